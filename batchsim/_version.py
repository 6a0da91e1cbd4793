"""The version, where every module can read it: the package itself imports them all."""

__version__ = "1.0.0"
