"""The compiled loops as one WebAssembly module: Numba's LLVM text, compiled for wasm32 by its own llvmlite.

As a program, `python -m batchsim.web.wasm FILE` writes the module. Names of rules behind it leave out the
others, which takes less time.
"""

# mypy: disable-error-code="no-untyped-call"

import ast
import hashlib
import importlib.metadata
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from batchsim._files import bytes_of, replacing
from batchsim.engines.compiled.jit import CompilingLine, cache_folder, compiled_uncached, sources
from batchsim.engines.compiled.threshold import form_batches
from batchsim.web.link import linked

TARGET = "wasm32-unknown-unknown"
FEATURES = "+bulk-memory,+bulk-memory-opt,+nontrapping-fptoint,+sign-ext"  # in every browser since 2021
FIGURE = ("SizeOrWait",)  # the rules of the figure in notebooks
OLDEST = 0, 68  # Numba that builds a module without functions from outside
LARGEST = 1_000_000  # bytes
# Numba's own optimiser prepares the text for this machine's processor: the module becomes twice as large.
PLAIN = dict.fromkeys(("NUMBA_OPT", "NUMBA_LOOP_VECTORIZE", "NUMBA_SLP_VECTORIZE", "NUMBA_BOUNDSCHECK"), "0")


def built(folder: Path, rules: tuple[str, ...] = (), quietly: bool = False) -> Path:
    """Return the module's file in a folder, built in some minutes unless it is there from the same code.

    Another comment or docstring is the same code.
    """
    file = folder / name_of(rules)
    if not file.exists():
        folder.mkdir(parents=True, exist_ok=True)
        with replacing(file) as into:
            into.write(build(*rules, quietly=quietly))
    return file


def name_of(rules: tuple[str, ...] = ()) -> str:
    """Return the name of the module of this code: what was built from other code has another name."""
    own = (Path(__file__).with_name(f"{name}.py") for name in ("entries", "link", "wasm"))
    code = "\0".join(code_of(each.read_text("utf-8")) for each in (*sources(), *own))
    return "-".join((hashlib.sha256(code.encode()).hexdigest()[:16], *rules)) + ".wasm"


def kept(rules: tuple[str, ...]) -> bytes:
    """Return the module from the package, or else built once on this machine, in some seconds.

    ImportError with a Numba that is too old to build it.
    """
    folder, line = cache_folder(form_batches), CompilingLine()
    for known in (Path(__file__).parent, folder):
        if known and (file := known / name_of(rules)).exists():
            return bytes_of(file, LARGEST)
    if tuple(map(int, (has := importlib.metadata.version("numba")).split(".")[:2])) < OLDEST:
        raise ImportError(
            f"numba must be at least {'.'.join(map(str, OLDEST))} to build the figure, got {has}"
        )
    in_notebook = line.begin()
    content = bytes_of(built(folder, rules, True), LARGEST) if folder else build(*rules, quietly=True)
    if in_notebook:
        line.end()
    return content


def code_of(text: str) -> str:
    """Return Python without comments and docstrings, as it is compiled; the same in all its versions.

    >>> code_of("x = 1  # one") == code_of("x=1") != code_of("x = 2")
    True
    """
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(
            node, clean=False
        ):
            node.body[0] = ast.Pass()
    return repr(plain(tree))


def plain(part: Any) -> Any:
    """Return a part of a syntax tree as tuples; `ast.dump` shows fields of its version, also empty ones."""
    if isinstance(part, list):
        return [*map(plain, part)]
    if not isinstance(part, ast.AST):
        return part
    kept = ((name, plain(value)) for name, value in ast.iter_fields(part) if value not in (None, []))
    return type(part).__name__, *kept


def build(*rules: str, quietly: bool = False) -> bytes:
    """Return the module, with the loops of these rules or of all."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "batchsim.wasm")
        # In a process of its own, which has no optimised loops yet.
        command = [sys.executable, "-m", __name__, str(file), *rules]
        told = subprocess.DEVNULL if quietly else None
        subprocess.run(command, env=os.environ | PLAIN, check=True, stdout=told)
        return file.read_bytes()


def compiled_entry(name: str, function: Any, types: Any, machine: Any) -> Any:
    """Return an entry as a module of llvmlite, optimised, in which all but the entry is private."""
    import llvmlite.binding as llvm

    loop: Any = compiled_uncached(function)
    loop.compile(types)
    (signature,) = loop.signatures
    symbol = loop.overloads[signature].fndesc.llvm_func_name
    text = re.sub("^target .*$", "", loop.inspect_llvm(signature), flags=re.MULTILINE)
    text = re.sub('"target-(cpu|features)"="[^"]*"', "", text)
    text = text.replace(" = common ", " = internal ")  # LLVM has no common symbols for wasm
    module = llvm.parse_assembly(
        f'target triple = "{TARGET}"\ntarget datalayout = "{machine.target_data}"\n{text}'
    )
    for each in (*module.functions, *module.global_variables):
        if not each.is_declaration and each.name != symbol:
            each.linkage = "internal"  # so the optimiser removes what only CPython would call
    module.get_function(symbol).name = name
    options = llvm.create_pipeline_tuning_options(3)
    options.loop_vectorization = options.slp_vectorization = False
    builder = llvm.create_pass_builder(machine, options)
    builder.getModulePassManager().run(module, builder)
    return module


def module_of(entries: Mapping[str, tuple[Any, tuple[Any, ...]]]) -> bytes:
    """Return a module that exports functions by their names, each with the types of its arguments."""
    import llvmlite.binding as llvm

    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    machine = llvm.Target.from_triple(TARGET).create_target_machine(features=FEATURES, opt=3)
    whole = llvm.parse_assembly("")
    for at, (name, (function, types)) in enumerate(entries.items(), 1):
        print(f"compiling {name}, {at} of {len(entries)}", flush=True)
        whole.link_in(compiled_entry(name, function, types, machine))
    return linked(machine.emit_object(whole), entries)


def main(path: str, *rules: str) -> None:
    """Write the module to a file."""
    from batchsim.web.entries import entries

    Path(path).write_bytes(module_of(entries(*rules)))


if __name__ == "__main__":
    main(*sys.argv[1:])
