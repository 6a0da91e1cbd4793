"""Real hardware: small models compiled by JAX, their measurement, and scenarios on the wall clock."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from batchsim.device.fidelity import Fidelity, compare_with_simulation
from batchsim.device.replay import Replay, measure_sharing, replay
from batchsim.measured.measurement import Measurement
from batchsim.scenario.service import Sharing, sharing

if TYPE_CHECKING:
    from batchsim.device.measuring import measure
    from batchsim.device.models import Model, load_model

__all__ = [
    "Fidelity", "Measurement", "Model", "Replay", "Sharing", "compare_with_simulation", "load_model",
    "measure", "measure_sharing", "replay", "sharing",
]  # fmt: skip

# These need JAX, so they are loaded on first use.
_ON_FIRST_USE = {"Model": "models", "load_model": "models", "measure": "measuring"}


def __getattr__(name: str) -> Any:
    if name not in _ON_FIRST_USE:
        raise AttributeError(f"module 'batchsim.device' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f"batchsim.device.{_ON_FIRST_USE[name]}"), name)
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
