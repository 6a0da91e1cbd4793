"""What is simulated: a workload, a rule and a service time, joined in a scenario."""

from batchsim.scenario.rules import (
    RULES,
    AtLeast,
    CompetingWindows,
    FrozenBatches,
    LearnedCork,
    LearnedSizes,
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
from batchsim.scenario.rules.continuous import Continuous
from batchsim.scenario.scenario import Scenario
from batchsim.scenario.service import Affine, Noise, Service, Table
from batchsim.scenario.step_time import StepTime
from batchsim.scenario.tokens import Geometric, Lognormal, Tokens, Uniform
from batchsim.scenario.trace import Trace
from batchsim.scenario.workload import (
    WORKLOADS,
    ClosedLoop,
    Constant,
    Diurnal,
    Gamma,
    OnOff,
    OpenLoop,
    Poisson,
)

__all__ = [
    "Affine", "AtLeast", "ClosedLoop", "CompetingWindows", "Constant", "Continuous", "Diurnal",
    "FrozenBatches", "Gamma",
    "Geometric", "LearnedCork", "LearnedSizes", "Lognormal", "Noise", "OnOff", "OpenLoop", "Poisson",
    "PreferredSizes", "PreferredUntilLate", "PullThenWait", "RULES", "Rule", "RunningWindow",
    "Scenario", "Service", "SizeOrWait", "SleepingPoll", "StalledBatches", "StepTime", "Table", "Tokens",
    "Trace", "WORKLOADS",
    "Trigger", "Uniform", "WaitSinceLast",
]  # fmt: skip
