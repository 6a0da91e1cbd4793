"""The loops in a browser's Python: WebAssembly where `batchsim.web.loops` has built them, else plain Python.

An argument's type has a short name, and a loop is an export for each list of types that it was built for.
WebAssembly has a memory of its own, so a call copies all arrays there, and those that can be written back.
"""

# mypy: disable-error-code="no-untyped-def"

import functools
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from batchsim._files import TABLE_BYTES, bytes_of, json_of

CODES = {bool: "?", int: "q", float: "d", type(None): "-"}  # of numbers, as in `struct`
SCALARS: tuple[tuple[type, str], ...] = ((np.bool_, "?"), (np.integer, "q"), (np.floating, "d"))
DONE = 0, -2  # as Numba says that there was no exception
RESULT = 256  # bytes: for what a loop returns, after its exception
BIG, PLAIN = "n", ""  # whether JavaScript takes a number as a BigInt


def code_of(value: Any) -> str:
    """Return the name of a value's type.

    >>> code_of((np.zeros((2, 3)), 1, 0.5, None))
    'tuple(<f82,q,d,-)'
    """
    if isinstance(value, np.ndarray):
        dtype = value.dtype
        name = dtype.str if dtype.names is None else f"{dtype.descr}".replace(" ", "")
        return f"{name}{value.ndim}"
    if isinstance(value, tuple):
        return f"{type(value).__name__}({','.join(map(code_of, value))})"
    return CODES.get(type(value)) or next(code for kind, code in SCALARS if isinstance(value, kind))


def flat(value: Any) -> Iterator[Any]:
    """Yield numbers and arrays of nested tuples."""
    if isinstance(value, tuple):
        for each in value:
            yield from flat(each)
    else:
        yield value


def root_of(array: np.ndarray) -> np.ndarray:
    """Return the array whose memory another one shares."""
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array


class Module:
    """The built module, its memory, and for each loop and types its export and what it returns."""

    def __init__(self, code: bytes, exports: dict[str, tuple[str, str]]) -> None:
        import js  # type: ignore[import-not-found]
        from pyodide.code import run_js  # type: ignore[import-not-found]
        from pyodide.ffi import to_js  # type: ignore[import-not-found]

        module = js.WebAssembly.Module.new(to_js(code))
        self.made = js.WebAssembly.Instance.new(module, js.Object.new()).exports
        self.exports, self.bytes = exports, js.Uint8Array
        self.call_js = run_js(
            "(run, kinds, values) => run(...Array.from(values, (v, i) => kinds[i] === 'n' ? BigInt(v) : v))"
        )
        self.to_js = to_js
        self.base = -(-int(getattr(self.made, "__heap_base").value) // 16) * 16

    def place(self, at: int, size: int) -> Any:
        """Return bytes of the memory, valid until it grows."""
        return self.bytes.new(self.made.memory.buffer, at, size)

    def call(self, export: str, returned: str, args: tuple[Any, ...]) -> Any:
        """Call an export with the arguments of its loop; return what that returns."""
        values: list[Any] = [self.base + RESULT // 2, self.base]
        kinds, at = [PLAIN, PLAIN], self.base + RESULT
        leaves, places = [*flat(args)], dict[int, tuple[int, np.ndarray]]()
        for root in (root_of(each) for each in leaves if isinstance(each, np.ndarray)):
            if id(root) not in places:
                places[id(root)] = at, root
                at += -(-root.nbytes // 16) * 16
        memory = self.made.memory
        if (missing := at - memory.buffer.byteLength) > 0:
            memory.grow(-(-missing // 65536))
        for place, root in places.values():
            if root.nbytes:
                self.place(place, root.nbytes).assign(root.reshape(-1).view(np.uint8))
        for each in leaves:
            if isinstance(each, np.ndarray):
                place, root = places[id(root_of(each))]
                place += each.ctypes.data - root.ctypes.data
                values += [0, 0, each.size, each.itemsize, place, *each.shape, *each.strides]
                kinds += [PLAIN, PLAIN, BIG, BIG, PLAIN, *[BIG] * 2 * each.ndim]
            elif isinstance(each, int | np.integer) and not isinstance(each, bool):
                values.append(int(each))
                kinds.append(BIG)
            else:
                values.append(0 if each is None else float(each))
                kinds.append(PLAIN)
        status = self.call_js(getattr(self.made, export), self.to_js(kinds), self.to_js(values))
        if status not in DONE:
            raise RuntimeError(f"{export} must end without an error, got {status}")
        for place, root in places.values():
            if root.nbytes and root.flags.writeable:
                self.place(place, root.nbytes).assign_to(root.reshape(-1).view(np.uint8))
        if not returned:
            return None
        size = struct.calcsize(form := f"<{returned}")
        found = struct.unpack(form, self.place(self.base + RESULT // 2, size).to_bytes())
        return found[0] if len(found) == 1 else found


@functools.cache
def module() -> Module | None:
    """Return the module of this package; None if it was packed without one."""
    folder = Path(__file__).parents[2] / "web"
    try:
        exports = json_of(bytes_of(folder / "loops.json", TABLE_BYTES), "loops.json")
        return Module(bytes_of(folder / "loops.wasm", TABLE_BYTES), exports)
    except FileNotFoundError:
        return None


def loop(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a loop that calls its export where there is one for its arguments, and itself elsewhere."""

    @functools.wraps(function)
    def run(*args: Any) -> Any:
        built = module()
        found = built and built.exports.get(f"{function.__name__} {code_of(args)}")
        return built.call(*found, args) if built and found else function(*args)

    return run
