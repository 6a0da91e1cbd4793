"""Many scenarios: sweeps over a grid of knobs, in a folder that loses nothing."""

from typing import Any

__all__ = ["Problem"]


def __getattr__(name: str) -> Any:
    if name != "Problem":
        raise AttributeError(f"module 'batchsim.study' has no attribute {name!r}")
    from batchsim.study.problem import Problem

    return Problem
