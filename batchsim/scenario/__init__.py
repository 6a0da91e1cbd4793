"""What is asked: a workload, a rule, a service time, and the scenario that joins them."""

from batchsim.scenario.published import Published, published, published_names, published_source
from batchsim.scenario.rules import RULES, AtLeast, PreferredSizes, Rule, SizeOrWait, Trigger
from batchsim.scenario.scenario import Scenario
from batchsim.scenario.service import Affine, Noise, Service, Table
from batchsim.scenario.workload import (
    ClosedLoop,
    Constant,
    Diurnal,
    Gamma,
    OnOff,
    OpenLoop,
    Poisson,
    Trace,
)

__all__ = [
    "RULES",
    "Affine",
    "AtLeast",
    "ClosedLoop",
    "Constant",
    "Diurnal",
    "Gamma",
    "Noise",
    "OnOff",
    "OpenLoop",
    "Poisson",
    "PreferredSizes",
    "Published",
    "Rule",
    "Scenario",
    "Service",
    "SizeOrWait",
    "Table",
    "Trace",
    "Trigger",
    "published",
    "published_names",
    "published_source",
]
