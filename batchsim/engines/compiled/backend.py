"""Numba; where there is none, as in a browser, stand-ins with which the loops are plain Python."""

# mypy: disable-error-code="no-untyped-def, misc, assignment"

from typing import Any

__all__ = [
    "IS_COMPILED", "DefaultOptions", "Event", "FunctionCache", "IndexDataCacheFile", "Listener", "NumbaError",
    "TypingError", "as_dtype", "if_unlikely", "intrinsic", "make_array", "njit", "overload", "populate_array",
    "register", "register_jitable", "typeof", "types", "unliteral", "unpack_tuple",
]  # fmt: skip

try:
    from numba import config, njit, typeof, types
    from numba.core.caching import FunctionCache, IndexDataCacheFile
    from numba.core.cgutils import if_unlikely, unpack_tuple
    from numba.core.errors import NumbaError, TypingError
    from numba.core.event import Event, Listener, register
    from numba.core.options import DefaultOptions
    from numba.core.types import unliteral
    from numba.extending import intrinsic, overload, register_jitable
    from numba.np.arrayobj import make_array, populate_array
    from numba.np.numpy_support import as_dtype
except ModuleNotFoundError as error:
    if error.name != "numba":  # one that does not fit is no reason to run hundreds of times slower
        raise

    class _Nothing:
        """What has every attribute and can be called, for types of the compiler that no loop has then."""

        DISABLE_JIT = True

        def __getattr__(self, name: str) -> Any:
            return self

        def __call__(self, *args: Any, **options: Any) -> Any:
            return self

    def _as_it_is(*args: Any, **options: Any) -> Any:
        """Decorate a function, with options or without, and leave it as it is."""
        return args[0] if args else lambda function: function

    config = types = typeof = as_dtype = unliteral = register = _Nothing()
    if_unlikely = unpack_tuple = make_array = populate_array = _Nothing()
    njit = intrinsic = register_jitable = _as_it_is
    overload = lambda *args, **options: _as_it_is()  # noqa: E731
    FunctionCache = IndexDataCacheFile = Listener = DefaultOptions = Event = object
    NumbaError = TypingError = TypeError

IS_COMPILED = not config.DISABLE_JIT  # type: ignore[attr-defined]
