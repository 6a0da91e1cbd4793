"""The compiled loops for a browser's Python: `python -m batchsim.web.loops` writes loops.wasm and loops.json.

Some runs show the types with which Python calls each loop, and each of these becomes an export.
"""

# mypy: disable-error-code="no-untyped-call, no-untyped-def, attr-defined"

import importlib
import json
import os
import pkgutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

from batchsim.engines import compiled
from batchsim.engines.compiled import rule_calls
from batchsim.engines.compiled.backend import as_dtype, types
from batchsim.engines.compiled.browser import code_of
from batchsim.engines.compiled.cells import fields_of
from batchsim.scenario import Affine, Poisson, Scenario
from batchsim.scenario.rules import RULES
from batchsim.simulate import KEEP, simulate
from batchsim.view.explorer.runs import Stored
from batchsim.view.explorer.state import DEFAULTS
from batchsim.web.calls import usual
from batchsim.web.wasm import PLAIN, module_of

HERE = Path(__file__).parent


def name_of(kind: Any) -> str:
    """Return the name of a type of Numba, as `engines.compiled.browser.code_of` names a value's."""
    if isinstance(kind, types.Array):
        return code_of(np.empty([0] * kind.ndim, as_dtype(kind.dtype)))
    if isinstance(kind, types.BaseTuple):
        name = kind.instance_class.__name__ if hasattr(kind, "instance_class") else "tuple"
        return f"{name}({','.join(map(name_of, fields_of(kind)))})"
    kinds = (types.Boolean, "?"), (types.Integer, "q"), (types.Float, "d"), (types.NoneType, "-")
    return next(code for each, code in kinds if isinstance(kind, each))


def returned(kind: Any) -> str:
    """Return what a loop returns, as `struct` names it."""
    if isinstance(kind, types.NoneType):
        return ""
    return "".join(map(name_of, fields_of(kind))) if isinstance(kind, types.BaseTuple) else name_of(kind)


def run_all() -> None:
    """Make Python call each loop with the types that a user's runs have."""
    rule_calls.IS_COMPILED = False  # a loop for each rule: a module has no addresses of Python's functions
    for state in (DEFAULTS["requests"], DEFAULTS["tokens"], DEFAULTS["requests"].replace(queue_limit=1000)):
        scenario = state.scenario()
        state.kind.run(state, scenario, 2000, Stored(), moving=False)
        for keep in KEEP:
            simulate(scenario, 500, keep=keep).summary()
    for rule in (usual(kind) for kind in RULES):
        simulate(Scenario(Poisson(100), rule, Affine(5, 0.25), queue_limit=9), 100)


def loops() -> dict[str, tuple[Any, Any]]:
    """Return the loops that were called, with the arguments' types, by name and types."""
    found = {}
    for each in pkgutil.iter_modules(compiled.__path__):
        module = importlib.import_module(f"{compiled.__name__}.{each.name}")
        for loop in vars(module).values():
            if getattr(loop, "__module__", "") == module.__name__ and hasattr(loop, "signatures"):
                for kinds in loop.signatures if "no_cpython_wrapper" not in loop.targetoptions else ():
                    found[f"{loop.__name__} tuple({','.join(map(name_of, kinds))})"] = loop, kinds
    return found


def main() -> None:
    """Write both files."""
    run_all()
    found = {
        f"{loop.__name__}_{at}": (name, loop, kinds)
        for at, (name, (loop, kinds)) in enumerate(loops().items())
    }
    exports = {
        name: (export, returned(loop.overloads[kinds].signature.return_type))
        for export, (name, loop, kinds) in found.items()
    }
    code = module_of({export: (loop.py_func, kinds) for export, (_, loop, kinds) in found.items()})
    (HERE / "loops.wasm").write_bytes(code)
    (HERE / "loops.json").write_text(json.dumps(exports), "utf-8")


if __name__ == "__main__":
    if os.environ.get("NUMBA_OPT") != PLAIN["NUMBA_OPT"]:  # in a process of its own, without optimised loops
        again = subprocess.run([sys.executable, "-m", "batchsim.web.loops"], env=os.environ | PLAIN)
        sys.exit(again.returncode)
    main()
