"""Queueing theory: the results that simulations should reproduce, one function for each model.

`expected(scenario)` picks the model that applies. Each function returns an `Answer`. At a load of 1 or more
there is no steady state, and all of them raise ValueError with the load and the saturation rate.
"""

from batchsim.theory.answer import Answer, NoAnswer
from batchsim.theory.batch import (
    at_least,
    capped,
    frozen_batch_size_pmf,
    frozen_load,
    frozen_mean_batch_size,
    frozen_wait_min_ms,
    full_batch_forming_ms,
    light_traffic_latency_ms,
    neuts,
    size_or_wait,
    uncapped,
    uncapped_bound,
)
from batchsim.theory.expected import expected
from batchsim.theory.optimum import Optimum, optimum
from batchsim.theory.single import erlang_c, gg1, kingman, md1, mdc, mg1, mm1, mmc, mmc_wait_percentile_ms
from batchsim.theory.tokens import (
    TokenAnswer,
    request_alone,
    seats_by_memory,
    seats_filled,
    slotted,
    useful_share,
)

__all__ = [
    "Answer", "NoAnswer", "Optimum", "TokenAnswer", "at_least", "capped", "erlang_c", "expected",
    "frozen_batch_size_pmf", "frozen_load", "frozen_mean_batch_size", "frozen_wait_min_ms",
    "full_batch_forming_ms", "gg1", "kingman", "light_traffic_latency_ms", "md1", "mdc", "mg1", "mm1", "mmc",
    "mmc_wait_percentile_ms", "neuts", "optimum", "request_alone", "seats_by_memory", "seats_filled",
    "size_or_wait", "slotted", "uncapped", "uncapped_bound", "useful_share",
]  # fmt: skip
