"""The mean latency that theory expects along the load, fast enough for a picture that moves."""

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from batchsim import _check
from batchsim.scenario import OpenLoop, Scenario
from batchsim.theory.answer import Answer
from batchsim.theory.expected import expected

LARGEST = 64  # of larger batches one rate alone can take half a second
POINTS = 9  # up to the largest size, each takes 1 to 3 ms


@dataclass(frozen=True, eq=False)
class TheoryCurve:
    """The mean latency at some arrival rates; arrays of shape (rates,).

    `mean_ms` is NaN where theory has no answer. Of `model`, the name of the theory, and `reason`, why no
    theory answers at any rate, one is empty.
    """

    rate_per_s: np.ndarray
    mean_ms: np.ndarray
    model: str
    reason: str


def theory_curve(scenario: Scenario, rates: Sequence[float] | np.ndarray) -> TheoryCurve:
    """Return the mean latency that theory expects at some of the rates, which must rise.

    At up to 9 of those below saturation, the first and the last among them, at the scenario's own, and at all
    others, whose mean is NaN.

    >>> from batchsim import Affine, SizeOrWait
    >>> scenario = Scenario(Poisson(900), SizeOrWait(32, 0), Affine(5, 0.25))
    >>> curve = theory_curve(scenario, [600, 900, 3000])
    >>> curve.mean_ms.round(4).tolist()
    [9.0703, 9.9681, nan]
    >>> theory_curve(scenario.replace(servers=2), [600]).reason
    'batches of up to 32 are solved for one server only, got 2'
    """
    rate_per_s = np.array([_check.real("a rate", rate, above=0) for rate in rates], float)
    if rate_per_s.size == 0 or (np.diff(rate_per_s) <= 0).any():
        raise ValueError(f"rates must rise, got {rate_per_s.tolist()}")
    empty = TheoryCurve(rate_per_s, np.full(rate_per_s.shape, math.nan), "", "")
    workload, largest = scenario.workload, scenario.rule.largest_batch
    if not isinstance(workload, OpenLoop) or workload.gamma_cv is None:
        return replace(empty, reason=_mean_ms(scenario)[2])
    if largest > LARGEST:
        return replace(empty, reason=f"batches must be at most {LARGEST} for theory's curve, got {largest}")
    saturation_per_s = scenario.full_batches_per_s
    steady = np.flatnonzero(rate_per_s < saturation_per_s)
    if steady.size == 0:
        lowest, limit = (f"{rate:,.6g}/s" for rate in (rate_per_s[0], saturation_per_s))
        return replace(empty, reason=f"a rate must be below {limit} for a mean, got {lowest}")
    some = np.unique(np.linspace(0, steady.size - 1, min(POINTS, steady.size)).round().astype(int))
    some = np.union1d(some, np.flatnonzero(rate_per_s[steady] == workload.offered_per_s))
    chosen = np.append(steady[some], np.flatnonzero(rate_per_s >= saturation_per_s))
    rate_per_s = rate_per_s[chosen]
    # The scenario itself at its own rate: answers are cached, and a reason should name 90, not 90.0.
    rated = {workload.offered_per_s: scenario}
    rates = rate_per_s[: some.size].tolist()
    answers = [_mean_ms(rated.get(rate) or scenario.replace(rate_per_s=rate)) for rate in rates]
    mean_ms = np.full(rate_per_s.shape, math.nan)
    mean_ms[: some.size] = [mean for mean, _, _ in answers]
    model = next((model for _, model, _ in answers if model), "")
    # If no rate has a mean, the reason is best given for the scenario's own.
    return TheoryCurve(rate_per_s, mean_ms, model, "" if model else _mean_ms(scenario)[2] or answers[0][2])


@functools.lru_cache(maxsize=4096)
def _mean_ms(scenario: Scenario) -> tuple[float, str, str]:
    """Return the mean, the model's name, and the reason if there is neither."""
    try:
        answer = expected(scenario)
    except ValueError as error:  # a load that rounding makes 1
        return math.nan, "", str(error)
    if isinstance(answer, Answer):
        return answer.mean_latency_ms, answer.model, ""
    return math.nan, "", answer.why
