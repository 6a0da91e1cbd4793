"""Real hardware: small models compiled by JAX, their measurement, and scenarios on the wall clock."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from batchsim import _check
from batchsim.measured.fidelity import Fidelity, compare_with_simulation
from batchsim.measured.measurement import Measurement
from batchsim.measured.replay import Replay, measure_sharing, replay
from batchsim.scenario.service import Sharing, sharing

if TYPE_CHECKING:
    from batchsim.measured.measuring import measure
    from batchsim.measured.models import Model, load_model

__all__ = [
    "Fidelity", "Measurement", "Model", "Replay", "Sharing", "compare_with_simulation", "load_model",
    "measure", "measure_sharing", "replay", "sharing",
]  # fmt: skip

# These need JAX, so they are loaded on first use.
_ON_FIRST_USE = {"Model": "models", "load_model": "models", "measure": "measuring"}  # of batchsim.measured


def __getattr__(name: str) -> Any:
    if name not in _ON_FIRST_USE:
        raise _check.no_attribute(__name__, name)
    value = globals()[name] = getattr(import_module(f"batchsim.measured.{_ON_FIRST_USE[name]}"), name)
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
