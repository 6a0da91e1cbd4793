"""The compiled loops as one WebAssembly module: Numba's LLVM text, compiled for wasm32 and linked.

Run as a program, `python -m batchsim.web.wasm FILE` writes the module.
"""

# mypy: disable-error-code="no-untyped-call"

import importlib.metadata
import importlib.util
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from batchsim._files import replacing
from batchsim.engines.compiled.jit import digest, sources

TARGET = "wasm32-unknown-unknown"
FEATURES = "+bulk-memory,+bulk-memory-opt,+nontrapping-fptoint,+sign-ext"  # in every browser since 2021
STACK = 1 << 16  # bytes
# Numba's own optimiser would prepare the text for this machine's processor.
PLAIN = {"NUMBA_OPT": "0", "NUMBA_LOOP_VECTORIZE": "0", "NUMBA_SLP_VECTORIZE": "0"}


def built(folder: Path) -> Path:
    """Return the module's file in a folder, built in about a minute unless it is there from the same code."""
    own = Path(__file__).with_name("entries.py"), Path(__file__)
    tools = "-".join(importlib.metadata.version(name) for name in ("numba", "llvmlite"))
    file = folder / f"{digest([*sources(), *own])[:16]}-{tools}.wasm"
    if not file.exists():
        folder.mkdir(parents=True, exist_ok=True)
        with replacing(file) as into:
            into.write(build())
    return file


def build() -> bytes:
    """Return the module; raise ModuleNotFoundError without ziglang, which has the linker."""
    if importlib.util.find_spec("ziglang") is None:
        raise ModuleNotFoundError('the page needs ziglang to be built: pip install "batchsim[web]"')
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "batchsim.wasm")
        # In a process of its own, whose loops are not optimised yet.
        subprocess.run([sys.executable, "-m", __name__, str(file)], env=os.environ | PLAIN, check=True)
        return file.read_bytes()


def llvm_text(name: str, entry: Any) -> tuple[str, str]:
    """Return the LLVM text of an entry's module for wasm32, and the entry's symbol there."""
    from batchsim.engines.compiled.jit import compiled_uncached

    loop: Any = compiled_uncached(entry.function)
    loop.compile(entry.types)
    (signature,) = loop.signatures
    symbol = loop.overloads[signature].fndesc.llvm_func_name
    text = re.sub("^target .*$", "", loop.inspect_llvm(signature), flags=re.MULTILINE)
    text = re.sub('"target-(cpu|features)"="[^"]*"', "", text)
    return text.replace(" = common ", " = internal "), symbol  # LLVM has no common symbols in wasm


def object_of(name: str, entry: Any, machine: Any) -> Any:
    """Return an entry's module, optimised, in which all but the entry is private."""
    import llvmlite.binding as llvm

    text, symbol = llvm_text(name, entry)
    module = llvm.parse_assembly(
        f'target triple = "{TARGET}"\ntarget datalayout = "{machine.target_data}"\n{text}'
    )
    for each in (*module.functions, *module.global_variables):
        if not each.is_declaration and each.name != symbol:
            each.linkage = "internal"  # so that what the entry does not use goes, as what is for CPython
    module.get_function(symbol).name = name
    options = llvm.create_pipeline_tuning_options(3)
    options.loop_vectorization = options.slp_vectorization = False
    builder = llvm.create_pass_builder(machine, options)
    builder.getModulePassManager().run(module, builder)
    return machine.emit_object(module)


def main(path: str) -> None:
    """Write the module to a file."""
    import llvmlite.binding as llvm

    from batchsim.web.entries import entries

    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    machine = llvm.Target.from_triple(TARGET).create_target_machine(features=FEATURES, opt=3)
    with tempfile.TemporaryDirectory() as folder:
        objects, exports = [], []
        for name, entry in entries().items():
            file = Path(folder, f"{name}.o")
            file.write_bytes(object_of(name, entry, machine))
            objects.append(str(file))
            exports.append(f"--export={name}")
        linker = [sys.executable, "-m", "ziglang", "wasm-ld"]
        flags = [
            "--no-entry",
            "--strip-all",
            "--gc-sections",
            "--export-memory",
            "--export=__heap_base",
            "-z",
            f"stack-size={STACK}",
        ]
        subprocess.run([*linker, *flags, *exports, "-o", path, *objects], check=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
