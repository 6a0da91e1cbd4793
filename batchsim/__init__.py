"""batchsim: a laboratory for request batching in model serving."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from batchsim._version import __version__ as __version__
from batchsim.batcher import InferenceBatcher, batch_inference
from batchsim.engines.log import Status
from batchsim.result import Batches, Result
from batchsim.result.comparison import Comparison, compare
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
    PreferredSizes,
    Rule,
    Scenario,
    SizeOrWait,
    Table,
    Trace,
    Trigger,
    published,
    published_names,
    published_source,
)
from batchsim.simulate import simulate

if TYPE_CHECKING:
    from batchsim import device, teaching, theory
    from batchsim.study.capacity import Capacity, capacity
    from batchsim.study.recommendation import Recommendation
    from batchsim.study.slo import SLO
    from batchsim.study.sweep import sweep
    from batchsim.study.tune import tune
    from batchsim.view.charts.curves import capacity_curves, frontier
    from batchsim.view.charts.heat_map import heat_map
    from batchsim.view.explorer import explore
    from batchsim.view.run.plot import plot

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
    "PreferredSizes",
    "Recommendation",
    "Result",
    "Rule",
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
    "plot",
    "published",
    "published_names",
    "published_source",
    "simulate",
    "sweep",
    "teaching",
    "theory",
    "tune",
]

# These load JAX, SciPy, matplotlib or ipywidgets, so they load on first use.
_ON_FIRST_USE = {
    "Capacity": "batchsim.study.capacity",
    "Recommendation": "batchsim.study.recommendation",
    "SLO": "batchsim.study.slo",
    "capacity": "batchsim.study.capacity",
    "capacity_curves": "batchsim.view.charts.curves",
    "device": "batchsim.device",
    "explore": "batchsim.view.explorer",
    "frontier": "batchsim.view.charts.curves",
    "heat_map": "batchsim.view.charts.heat_map",
    "plot": "batchsim.view.run.plot",
    "sweep": "batchsim.study.sweep",
    "teaching": "batchsim.teaching",
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
