"""What is asked: a workload, a rule, a service time, and the scenario that joins them."""

from batchsim.scenario.published import Published, published, published_names, published_source
from batchsim.scenario.rules import AtLeast, Rule, SizeOrWait
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
    "Published",
    "Rule",
    "Scenario",
    "Service",
    "SizeOrWait",
    "Table",
    "Trace",
    "published",
    "published_names",
    "published_source",
]
