"""What is simulated: a workload, a rule and a service time, joined in a scenario.

These are the names that the other packages use. `batchsim` has every rule.
"""

from batchsim.scenario.lengths import Geometric, Lognormal, Uniform
from batchsim.scenario.noise import Noise
from batchsim.scenario.rules import RULES, AtLeast, Rule, SizeOrWait
from batchsim.scenario.rules.continuous import Continuous
from batchsim.scenario.scenario import Scenario
from batchsim.scenario.service import Affine, Service, Table
from batchsim.scenario.step_time import StepTime
from batchsim.scenario.tokens import Tokens
from batchsim.scenario.trace import Trace
from batchsim.scenario.workload import (
    WORKLOADS,
    ClosedLoop,
    Constant,
    Diurnal,
    Gamma,
    Limited,
    OnOff,
    OpenLoop,
    Poisson,
)

__all__ = [
    "RULES", "WORKLOADS", "Affine", "AtLeast", "ClosedLoop", "Constant", "Continuous", "Diurnal", "Gamma",
    "Geometric", "Limited", "Lognormal",
    "Noise", "OnOff", "OpenLoop", "Poisson", "Rule", "Scenario", "Service", "SizeOrWait", "StepTime", "Table",
    "Tokens", "Trace", "Uniform",
]  # fmt: skip
