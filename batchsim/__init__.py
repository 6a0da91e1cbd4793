"""batchsim: a laboratory for request batching in model serving."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from batchsim.batcher import InferenceBatcher, batch_inference
from batchsim.comparison import Comparison, compare
from batchsim.engines.plan import Status, Trigger
from batchsim.result import Batches, Result
from batchsim.scenario import (
    Affine,
    AtLeast,
    ClosedLoop,
    Constant,
    Diurnal,
    Gamma,
    Noise,
    OnOff,
    Poisson,
    Scenario,
    SizeOrWait,
    Table,
    Trace,
    published,
    published_names,
    published_source,
)
from batchsim.simulate import simulate

if TYPE_CHECKING:
    from batchsim import device, lessons, theory
    from batchsim.study.capacity import Capacity, capacity
    from batchsim.study.recommendation import Recommendation
    from batchsim.study.slo import SLO
    from batchsim.study.sweep import sweep
    from batchsim.study.tune import tune
    from batchsim.view.curves import capacity_curves, frontier
    from batchsim.view.explorer import explore
    from batchsim.view.maps import heat_map
    from batchsim.view.plots import plot

__version__ = "0.1.0"

__all__ = [
    "Affine",
    "AtLeast",
    "Batches",
    "Capacity",
    "ClosedLoop",
    "Comparison",
    "Constant",
    "Diurnal",
    "Gamma",
    "InferenceBatcher",
    "Noise",
    "OnOff",
    "Poisson",
    "Recommendation",
    "Result",
    "SLO",
    "Scenario",
    "SizeOrWait",
    "Status",
    "Table",
    "Trace",
    "Trigger",
    "batch_inference",
    "capacity",
    "capacity_curves",
    "compare",
    "device",
    "explore",
    "frontier",
    "heat_map",
    "lessons",
    "plot",
    "published",
    "published_names",
    "published_source",
    "simulate",
    "sweep",
    "theory",
    "tune",
]

# These load JAX, SciPy, matplotlib or ipywidgets, so they load on first use.
_ON_FIRST_USE = {
    "Capacity": "batchsim.study.capacity",
    "Recommendation": "batchsim.study.recommendation",
    "SLO": "batchsim.study.slo",
    "capacity": "batchsim.study.capacity",
    "capacity_curves": "batchsim.view.curves",
    "device": "batchsim.device",
    "explore": "batchsim.view.explorer",
    "frontier": "batchsim.view.curves",
    "heat_map": "batchsim.view.maps",
    "lessons": "batchsim.lessons",
    "plot": "batchsim.view.plots",
    "sweep": "batchsim.study.sweep",
    "theory": "batchsim.theory",
    "tune": "batchsim.study.tune",
}


def __getattr__(name: str) -> Any:
    if name not in _ON_FIRST_USE:
        raise AttributeError(f"module 'batchsim' has no attribute {name!r}")
    module = import_module(_ON_FIRST_USE[name])
    return module if module.__name__ == f"batchsim.{name}" else getattr(module, name)


def __dir__() -> list[str]:
    return sorted(__all__)
