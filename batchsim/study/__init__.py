"""Many scenarios: sweeps over a grid of knobs, in a folder that loses nothing."""

from typing import Any

from batchsim import _check


def __getattr__(name: str) -> Any:
    raise _check.no_attribute(__name__, name)
