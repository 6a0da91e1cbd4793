"""The reference engine: SimPy processes, for reading."""
