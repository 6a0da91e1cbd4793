"""The compiled loops as one WebAssembly module: Numba's LLVM text, compiled for wasm32 by its own llvmlite.

As a program, `python -m batchsim.web.wasm FILE FOLDER` writes the module, and keeps in the folder what it
compiles for the next one. Names of rules behind it leave out the others, which takes less time.
"""

# mypy: disable-error-code="no-untyped-call"

import ast
import functools
import hashlib
import importlib.metadata
import json
import multiprocessing
import os
import re
import subprocess
import sys
import tempfile
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from enum import EnumType
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from batchsim._files import bytes_of, json_of, replacing
from batchsim.engines.compiled.jit import CompilingLine, cache_folder, compiled_uncached, sources
from batchsim.engines.compiled.threshold import form_batches
from batchsim.web.link import linked

TARGET = "wasm32-unknown-unknown"
FEATURES = "+bulk-memory,+bulk-memory-opt,+nontrapping-fptoint,+sign-ext"  # in every browser since 2021
FIGURE = ("SizeOrWait",)  # the rules of the figure in notebooks
OLDEST = 0, 68  # Numba that builds a module without functions from outside
LARGEST = 1_000_000  # bytes
OWN = [Path(__file__).with_name(f"{name}.py") for name in ("entries", "link", "wasm")]
BUILD = Path(__file__).parents[2] / "build" / "web"  # what a build keeps for the next
ENTRIES = BUILD / "entries"
LARGEST_ENTRY = 10_000_000  # bytes, as text
MANY = 4  # entries that are worth a process
CALLED = re.compile(r"NumbaEnv(\d\w+)")  # Numba gives each function a variable with its name
CHOOSES = re.compile("overload|intrinsic")  # in files whose functions choose what is compiled
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
            into.write(build(*rules, quietly=quietly, folder=None if quietly else ENTRIES))
    return file


def for_wheel(quietly: bool = False) -> None:
    """Build the figure's module in the package, where wheels take it from, and remove those of other code."""
    package = Path(__file__).parent
    kept = built(package, FIGURE, quietly)
    for old in {*package.glob("*.wasm")} - {kept}:
        old.unlink()


def name_of(rules: tuple[str, ...] = ()) -> str:
    """Return the name of the module of this code: what was built from other code has another name."""
    return "-".join((checksum_of([*sources(), *OWN])[:16], *rules)) + ".wasm"


def checksum_of(files: Iterable[Path], *more: str) -> str:
    """Return a checksum of the code of files, and of other text."""
    code = "\0".join((*(code_of(each.read_text("utf-8")) for each in files), *more))
    return hashlib.sha256(code.encode()).hexdigest()


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


@functools.cache  # each entry contains functions of the same files
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


def build(*rules: str, quietly: bool = False, folder: Path | None = None) -> bytes:
    """Return the module, with the loops of these rules or of all; `folder` keeps each for the next module."""
    with tempfile.TemporaryDirectory() as own:
        file = Path(own, "batchsim.wasm")
        # In a process of its own, which has no optimised loops yet.
        command = [sys.executable, "-m", __name__, str(file), str(folder or own), *rules]
        told = subprocess.DEVNULL if quietly else None
        subprocess.run(command, env=os.environ | PLAIN, check=True, stdout=told)
        return file.read_bytes()


def compiled_entry(name: str, function: Any, types: Any, machine: Any) -> dict[str, Any]:
    """Return an entry: its LLVM text, optimised, in which all but the entry is private.

    And the names of the modules of this package whose functions it contains, and the type of its result.
    """
    import llvmlite.binding as llvm

    loop: Any = compiled_uncached(function)
    loop.compile(types)
    (signature,) = loop.signatures
    symbol = loop.overloads[signature].fndesc.llvm_func_name
    text = re.sub("^target .*$", "", loop.inspect_llvm(signature), flags=re.MULTILINE)
    named = {".".join(names_in(each)) for each in CALLED.findall(text)}
    ours = [each for each in sys.modules if each.startswith("batchsim.")]
    within = [[each for each in ours if name.startswith(f"{each}.")] for name in named]
    modules = sorted({max(each, key=len) for each in within if each})
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
    result = str(loop.overloads[signature].signature.return_type)
    return {"text": str(module), "modules": modules, "result": result}


def names_in(mangled: str) -> list[str]:
    """Return the names that begin a mangled one, each behind its length.

    >>> names_in("8batchsim6_clock5laterB2v1dd")
    ['batchsim', '_clock', 'later']
    """
    length = re.match(r"\d+", mangled)
    if not length:
        return []
    end = length.end() + int(length[0])
    return [mangled[length.end() : end], *names_in(mangled[end:])]


def checksum_behind(modules: Iterable[str], types: Any) -> str:
    """Return a checksum of all that makes an entry: these modules, and the types of its arguments."""
    found = [importlib.import_module(each) for each in modules]
    choosing = [each for each in sources() if CHOOSES.search(each.read_text("utf-8"))]
    files = sorted({*OWN, *choosing, *(Path(each.__file__ or "") for each in found)})
    versions = map(importlib.metadata.version, ("numba", "llvmlite"))
    return checksum_of(files, str(types), *versions, *map(constants, found))


def constants(value: Any, depth: int = 2) -> str:
    """Return what a compiled function can take from a global of its module, as text."""
    match value:
        case ModuleType():
            own = sorted(vars(value).items()) if depth and value.__name__.startswith("batchsim.") else ()
            return "".join(f"{name} {constants(each, depth - 1)};" for name, each in own if name[:2] != "__")
        case tuple():
            return f"({', '.join(constants(each, depth) for each in value)})"
        case EnumType():
            return repr([*value])
        case bool() | int() | float() | str() | np.generic():
            return repr(value)
        case np.ndarray():
            return repr(value.tolist())
    return repr(getattr(value, "_fields", ""))  # of a named tuple


def module_of(
    entries: Mapping[str, tuple[Any, tuple[Any, ...]]], folder: Path | None = None, workers: int = 1
) -> tuple[bytes, dict[str, str]]:
    """Return a module that exports functions by their names, and the types of their results.

    An entry is a function with the types of its arguments. Each is compiled anew, unless the folder has it
    from the same code. Several workers leave theirs there: they are forks, which a process with threads (JAX
    has some) must not make.
    """
    import llvmlite.binding as llvm

    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    machine = llvm.Target.from_triple(TARGET).create_target_machine(features=FEATURES, opt=3)
    steps = {name: f"{name}, {at} of {len(entries)}" for at, name in enumerate(entries, 1)}

    def made(names: Iterable[str]) -> Iterator[tuple[str, dict[str, Any]]]:
        for name in names:
            (function, types), file = entries[name], folder and folder / f"{name}.json"
            if (entry := kept_entry(file, types) if file else None) is None:
                print(f"compiling {steps[name]}", flush=True)
                entry = compiled_entry(name, function, types, machine)
                if file:
                    file.parent.mkdir(parents=True, exist_ok=True)
                    known = {"checksum": checksum_behind(entry["modules"], types), **entry}
                    with replacing(file) as into:
                        into.write(json.dumps(known).encode())
            else:
                print(f"unchanged: {steps[name]}", flush=True)
            yield name, entry

    names = [*entries]
    workers = min(workers, len(names) // MANY)
    if folder and workers > 1 and hasattr(os, "fork"):
        fork = multiprocessing.get_context("fork").Process
        crew = [fork(target=deque, args=(made(names[k::workers]), 0)) for k in range(workers)]
        for process in crew:
            process.start()
        for process in crew:
            process.join()  # what it could not compile is tried again below
    whole, results = llvm.parse_assembly(""), {}
    for name, entry in made(names):
        whole.link_in(llvm.parse_assembly(entry["text"]))
        results[name] = entry["result"]
    return linked(machine.emit_object(whole), entries), results


def kept_entry(file: Path, types: Any) -> dict[str, Any] | None:
    """Return an entry from its file; None unless the same code made it."""
    with suppress(OSError, ValueError, LookupError, TypeError, ImportError):
        entry = json_of(bytes_of(file, LARGEST_ENTRY), file.name)
        if entry["checksum"] == checksum_behind(entry["modules"], types):
            return {"text": str(entry["text"]), "result": str(entry["result"])}
    return None


def main(path: str, folder: str, *rules: str) -> None:
    """Write the module to a file."""
    from batchsim.web.entries import entries

    Path(path).write_bytes(module_of(entries(*rules), Path(folder), os.cpu_count() or 1)[0])


if __name__ == "__main__":
    main(*sys.argv[1:])
