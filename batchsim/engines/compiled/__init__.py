"""The compiled engine: the reference engine's semantics as loops that Numba compiles."""
