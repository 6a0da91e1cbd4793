"""How far one setting's goodput is above another's, of the same requests."""

import math

import numpy as np

from batchsim.engines.log import Status
from batchsim.result.comparison import Difference
from batchsim.result.sections import sums
from batchsim.result.shares import students_t
from batchsim.study.judgement import LEVEL
from batchsim.study.surface import SECTIONS
from batchsim.view.run.token_data import TokenViewData, of_tokens

SURE = "output_tokens_per_s"  # without an interval of this, the run is too short for one


def of_goodput(data: TokenViewData) -> Difference | None:
    """Return the goodput of A and of B within B's objectives, and their difference; None without objectives.

    The interval is of 16 sections of the run, in each of which both have met the same requests.
    """
    if not data.limits_ms or data.pinned is None or data.comparison is None:
        return None
    a, b = of_tokens(data.pinned), data
    met_a, met_b = (_within(each, data.limits_ms) for each in (a, b))
    goodput_a, goodput_b = (
        each.result.metrics.per_s(int(met.sum())) for each, met in ((a, met_a), (b, met_b))
    )
    difference = goodput_b - goodput_a
    if math.isnan(data.comparison[SURE].low):
        return Difference(goodput_a, goodput_b, difference, math.nan, math.nan)
    cuts = np.linspace(0, met_a.size, SECTIONS + 1).astype(int)
    of_sections = sums(met_b, cuts) - sums(met_a, cuts)
    # Of a section's requests, as a part of all: in requests per second of the whole run.
    per_request = (
        goodput_b / max(int(met_b.sum()), 1) if met_b.any() else goodput_a / max(int(met_a.sum()), 1)
    )
    error = of_sections.std(ddof=1) * math.sqrt(SECTIONS) * per_request
    half = students_t(LEVEL, SECTIONS) * error
    return Difference(goodput_a, goodput_b, difference, difference - float(half), difference + float(half))


def _within(data: TokenViewData, limits_ms: dict[str, float]) -> np.ndarray:
    """Return which requests were served within all limits; who makes one token keeps any on TPOT."""
    result = data.result
    met: np.ndarray = result.status == Status.SERVED
    for column, limit_ms in limits_ms.items():
        met = met & ~(getattr(result, column) > limit_ms)
    return met
