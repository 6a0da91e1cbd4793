"""The version, where every module can read it: the package itself imports them all."""

__version__ = "0.1.0"
