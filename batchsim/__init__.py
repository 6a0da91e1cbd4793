"""batchsim: a laboratory for request batching in model serving."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from batchsim import _check, _compat
from batchsim._clock import later
from batchsim._compat import __version__ as __version__
from batchsim.batcher import InferenceBatcher, batch_inference
from batchsim.engines.log import Status
from batchsim.measured.load_commands import load_command
from batchsim.measured.load_tests import LoadTest, load_test
from batchsim.measured.published import published, published_names, published_source, published_watts
from batchsim.result import Batches, Result
from batchsim.result.comparison import Comparison, compare
from batchsim.scenario import routing
from batchsim.scenario.autoscale import Autoscale
from batchsim.scenario.data_sheets import kv_blocks
from batchsim.scenario.lengths import Geometric, Lognormal, Uniform
from batchsim.scenario.noise import Noise
from batchsim.scenario.prefixes import HashIds, PrefixGroups
from batchsim.scenario.rules import (
    AtLeast,
    Buckets,
    CompetingWindows,
    FrozenBatches,
    LearnedCork,
    LearnedSizes,
    PreferredSizes,
    PreferredUntilLate,
    PrefetchedBatches,
    PullThenWait,
    Rule,
    RunningWindow,
    SizeOrWait,
    SleepingPoll,
    SortedWindow,
    StalledBatches,
    Trigger,
)
from batchsim.scenario.rules.continuous import Continuous
from batchsim.scenario.rules.rule import (
    BACKLOG,
    DRAIN,
    ENOUGH,
    FREEZE,
    FULL,
    NOTHING,
    REFUSE,
    START,
    WAIT,
    oldest_s,
)
from batchsim.scenario.scenario import Scenario
from batchsim.scenario.service import Affine, Table
from batchsim.scenario.sized_time import PackedTime, PaddedTime, SizeTable
from batchsim.scenario.step_time import StepTime
from batchsim.scenario.tokens import Tokens
from batchsim.scenario.trace import Trace
from batchsim.scenario.workload import ClosedLoop, Constant, Diurnal, Gamma, OnOff, OpenLoop, Poisson
from batchsim.simulate import simulate

if TYPE_CHECKING:
    from batchsim import device, servers, teaching, theory
    from batchsim.servers.comparison import compare_routing, compare_servers
    from batchsim.study.calibration import Calibration, calibrate, predict
    from batchsim.study.capacity import Capacity, capacity
    from batchsim.study.recommendation import Recommendation
    from batchsim.study.slo import SLO
    from batchsim.study.sweep import sweep
    from batchsim.study.tune import Range, tune
    from batchsim.view.explorer import explore
    from batchsim.view.explorer.player import film
    from batchsim.view.pictures.curves import capacity_curves, frontier
    from batchsim.view.pictures.lanes import lanes
    from batchsim.view.pictures.plot import plot
    from batchsim.view.pictures.sweep_map import heat_map
    from batchsim.web.notebook import figure

__all__ = [
    "Affine", "AtLeast", "Autoscale", "BACKLOG", "Batches", "Buckets", "Calibration", "Capacity",
    "ClosedLoop", "Comparison", "CompetingWindows", "Constant", "Continuous", "DRAIN", "Diurnal", "ENOUGH",
    "FREEZE", "FULL", "FrozenBatches", "Gamma", "Geometric", "HashIds", "InferenceBatcher", "LearnedCork",
    "LearnedSizes", "LoadTest", "Lognormal", "NOTHING", "Noise", "OnOff", "OpenLoop", "PackedTime",
    "PaddedTime", "Poisson", "PreferredSizes", "PreferredUntilLate", "PrefetchedBatches", "PrefixGroups",
    "PullThenWait", "REFUSE", "Range", "Recommendation", "Result", "Rule", "RunningWindow", "SLO", "START",
    "Scenario", "SizeOrWait", "SizeTable", "SleepingPoll", "SortedWindow", "StalledBatches", "Status",
    "StepTime", "Table", "Tokens", "Trace", "Trigger", "Uniform", "WAIT", "batch_inference", "calibrate",
    "capacity", "capacity_curves", "compare", "compare_routing", "compare_servers", "device", "explore",
    "figure", "film", "frontier", "heat_map", "kv_blocks", "lanes", "later", "load_command", "load_test",
    "oldest_s", "plot", "predict", "published", "published_names", "published_source", "published_watts",
    "routing", "servers", "simulate", "sweep", "teaching", "theory", "tune",
]  # fmt: skip

# These load JAX, SciPy, matplotlib or ipywidgets, so they load on first use.
_ON_FIRST_USE = {
    "Calibration": "study.calibration", "calibrate": "study.calibration", "Capacity": "study.capacity",
    "Range": "study.tune", "Recommendation": "study.recommendation", "SLO": "study.slo",
    "capacity": "study.capacity", "capacity_curves": "view.pictures.curves",
    "compare_routing": "servers.comparison", "compare_servers": "servers.comparison", "device": "device",
    "explore": "view.explorer", "figure": "web.notebook", "film": "view.explorer.player",
    "frontier": "view.pictures.curves",
    "heat_map": "view.pictures.sweep_map", "lanes": "view.pictures.lanes",
    "plot": "view.pictures.plot", "predict": "study.calibration",
    "servers": "servers", "sweep": "study.sweep",
    "study": "study",  # of the public names that it had, it tells what to use instead
    "teaching": "teaching", "theory": "theory", "tune": "study.tune",
}  # fmt: skip

_compat.name_extras()


def __getattr__(name: str) -> Any:
    if name not in _ON_FIRST_USE:
        raise _check.no_attribute(__name__, name)
    module = import_module(f"batchsim.{_ON_FIRST_USE[name]}")
    return module if name == _ON_FIRST_USE[name] else getattr(module, name)


def __dir__() -> list[str]:
    return sorted(__all__)
