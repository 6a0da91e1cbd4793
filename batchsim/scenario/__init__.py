"""What is simulated: a workload, a rule and a service time, joined in a scenario."""

from batchsim.scenario.published import Published, published, published_names, published_source
from batchsim.scenario.rules import (
    RULES,
    AtLeast,
    FrozenBatches,
    LearnedCork,
    PreferredSizes,
    PreferredUntilLate,
    PullThenWait,
    Rule,
    RunningWindow,
    SizeOrWait,
    SleepingPoll,
    StalledBatches,
    Trigger,
    WaitSinceLast,
)
from batchsim.scenario.scenario import Scenario
from batchsim.scenario.service import Affine, Noise, Service, Table
from batchsim.scenario.trace import Trace
from batchsim.scenario.varying import Diurnal, OnOff
from batchsim.scenario.workload import ClosedLoop, Constant, Gamma, OpenLoop, Poisson

__all__ = [
    "RULES", "Affine", "AtLeast", "ClosedLoop", "Constant", "Diurnal", "FrozenBatches", "Gamma",
    "LearnedCork", "Noise", "OnOff", "OpenLoop", "Poisson", "PreferredSizes", "PreferredUntilLate",
    "Published", "PullThenWait", "Rule", "RunningWindow", "Scenario", "Service", "SizeOrWait", "SleepingPoll",
    "StalledBatches", "Table", "Trace", "Trigger", "WaitSinceLast", "published", "published_names",
    "published_source",
]  # fmt: skip
