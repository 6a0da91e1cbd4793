"""Many scenarios: sweeps over a grid of knobs, in a folder that loses nothing."""

from typing import TYPE_CHECKING

from batchsim import _check

if not TYPE_CHECKING:  # a type checker would take any name for one of ours

    def __getattr__(name):
        raise _check.no_attribute(__name__, name)
