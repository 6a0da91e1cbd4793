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
    from batchsim.study.sweep import sweep
    from batchsim.view.explorer import explore
    from batchsim.view.plots import plot

__version__ = "0.1.0"

__all__ = [
    "Affine",
    "AtLeast",
    "Batches",
    "ClosedLoop",
    "Comparison",
    "Constant",
    "Diurnal",
    "Gamma",
    "InferenceBatcher",
    "Noise",
    "OnOff",
    "Poisson",
    "Result",
    "Scenario",
    "SizeOrWait",
    "Status",
    "Table",
    "Trace",
    "Trigger",
    "batch_inference",
    "compare",
    "device",
    "explore",
    "lessons",
    "plot",
    "published",
    "published_names",
    "published_source",
    "simulate",
    "sweep",
    "theory",
]

# These load JAX, SciPy, matplotlib or ipywidgets, so they load on first use.
_ON_FIRST_USE = {
    "device": "batchsim.device",
    "explore": "batchsim.view.explorer",
    "lessons": "batchsim.lessons",
    "plot": "batchsim.view.plots",
    "sweep": "batchsim.study.sweep",
    "theory": "batchsim.theory",
}


def __getattr__(name: str) -> Any:
    if name not in _ON_FIRST_USE:
        raise AttributeError(f"module 'batchsim' has no attribute {name!r}")
    module = import_module(_ON_FIRST_USE[name])
    return module if module.__name__ == f"batchsim.{name}" else getattr(module, name)


def __dir__() -> list[str]:
    return sorted(__all__)
