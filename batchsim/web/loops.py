"""The compiled loops for a browser's Python: `python -m batchsim.web.loops FOLDER` writes two files.

Some runs in plain Python show the types with which each loop is called, and each of these becomes an export
of loops.wasm; loops.json has their names. Names of runs behind it (`RUNS`) leave out the others, which takes
less time.
"""

# mypy: disable-error-code="no-untyped-call, no-untyped-def, attr-defined"

import hashlib
import importlib
import json
import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from functools import wraps
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from batchsim.engines.compiled import jit
from batchsim.engines.compiled.backend import as_dtype, typeof, types
from batchsim.engines.compiled.browser import code_of
from batchsim.engines.compiled.cells import fields_of

FEW, ENOUGH = 50, 500  # requests of a run, in plain Python; and of one that has intervals
RUNS = "requests", "tokens", "limited", "levels", "sizes", "rules", "replicas"
# As `struct` names what a loop returns.
RESULTS = {"none": "", "int64": "q", "float64": "d", "bool": "?", "UniTuple(int64 x 2)": "qq"}
Calls = dict[tuple[str, str, tuple[Any, ...]], None]  # of loops: their modules, names, and arguments' types


def name_of(kind: Any) -> str:
    """Return the name of a type of Numba, as `engines.compiled.browser.code_of` names a value's."""
    if isinstance(kind, types.Array):
        return code_of(np.empty([0] * kind.ndim, as_dtype(kind.dtype)))
    if isinstance(kind, types.BaseTuple):
        name = kind.instance_class.__name__ if hasattr(kind, "instance_class") else "tuple"
        return f"{name}({','.join(map(name_of, fields_of(kind)))})"
    kinds = (types.Boolean, "?"), (types.Integer, "q"), (types.Float, "d"), (types.NoneType, "-")
    return next(code for each, code in kinds if isinstance(kind, each))


def call_of(name: str, kinds: tuple[Any, ...]) -> str:
    """Return the name of a loop with its arguments' types, by which `engines.compiled.browser` finds it."""
    return f"{name} tuple({','.join(map(name_of, kinds))})"


def note(*runs: str) -> Calls:
    """Run what users run, and return the calls of loops. Loops must not be compiled, nor imported yet."""
    calls: Calls = {}

    def noted(function: Callable[..., Any], **_: Any) -> Callable[..., Any]:
        @wraps(function)
        def run(*args: Any) -> Any:
            calls[function.__module__, function.__name__, tuple(map(typeof, args))] = None
            return function(*args)

        return run

    jit.compiled = noted
    from batchsim.scenario import Affine, Poisson, Scenario
    from batchsim.scenario.routing import NAMES
    from batchsim.scenario.rules import RULES, RULES_OF_SIZES
    from batchsim.simulate import KEEP, simulate
    from batchsim.view.explorer.runs import Stored
    from batchsim.view.explorer.state import DEFAULTS
    from batchsim.view.pictures.data import ViewData
    from batchsim.web.calls import usual

    usual_state = DEFAULTS["requests"]
    states = DEFAULTS | {
        "limited": usual_state.replace(queue_limit=1000, compile_ms=50),
        "levels": usual_state.replace(priorities=((1, 0.5), (2, 0.5))),
        "replicas": usual_state.replace(replicas=4),
        "sizes": usual_state.replace(sizes="lognormal", service="padded"),
    }
    for state in (states[name] for name in runs if name in states):
        scenario = state.scenario()
        if scenario.tokens is None:  # else its heat map takes a minute, and calls nothing that others do not
            state.kind.run(state, scenario, FEW, Stored(), moving=False)
            _ = ViewData(simulate(scenario, ENOUGH)).intervals
        for keep in KEEP:
            simulate(scenario, FEW, keep=keep).summary()
    one = Scenario(Poisson(100), usual(RULES[0]), Affine(5, 0.25), queue_limit=9)
    sized = one.replace(workload=states["sizes"].scenario().workload, queue_limit=None)
    for rule in (*RULES, *RULES_OF_SIZES) if "rules" in runs else ():
        simulate((sized if rule in RULES_OF_SIZES else one).replace(rule=usual(rule)), FEW).summary()
    for routing, queue_limit in product(NAMES, (9, None)) if "replicas" in runs else ():
        if routing not in ("by_key", "least_tokens"):  # the one needs keys, the other tokens
            simulate(one.replace(replicas=4, routing=routing, queue_limit=queue_limit), FEW).summary()
    return calls


def build(calls: Calls, folder: Path) -> None:
    """Write both files, in a process without optimised loops."""
    from batchsim.web.wasm import ENTRIES, module_of

    entries, names = {}, {}
    for module, name, kinds in calls:
        loop = getattr(importlib.import_module(module), name)
        called = call_of(name, kinds)
        export = names[called] = f"{name}_{hashlib.sha256(called.encode()).hexdigest()[:8]}"
        entries[export] = getattr(loop, "py_func", loop), kinds
    code, results = module_of(entries, ENTRIES, os.cpu_count() or 1)
    exports = {called: (export, RESULTS[results[export]]) for called, export in names.items()}
    (folder / "loops.wasm").write_bytes(code)
    (folder / "loops.json").write_text(json.dumps(exports), "utf-8")


def main(folder: str, *runs: str) -> None:
    """Note the calls in one process, and compile their loops in another."""
    from batchsim.web.wasm import PLAIN

    again, uncompiled = [sys.executable, "-m", __spec__.name], {"NUMBA_DISABLE_JIT": "1"}
    noted = subprocess.run(
        [*again, "note", *(runs or RUNS)], env=os.environ | uncompiled, check=True, stdout=subprocess.PIPE
    )
    subprocess.run([*again, "build", folder], env=os.environ | PLAIN, check=True, input=noted.stdout)


if __name__ == "__main__":
    match sys.argv[1:]:
        case "note", *runs:
            sys.stdout.buffer.write(pickle.dumps(note(*runs)))
        case "build", folder:
            build(pickle.load(sys.stdin.buffer), Path(folder))
        case words:
            main(*words)
