"""Token generation along the load. Every number is that of `simulate` under the same traffic, bit for bit."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from batchsim.engines.token_log import draw_tokens_cached
from batchsim.scenario import ClosedLoop, Scenario
from batchsim.scenario.rules.continuous import check_lengths
from batchsim.study.kinds import TokenTimes
from batchsim.study.surface import accepted, at_load, client_counts, load_rates
from batchsim.study.token_surface import checked


@dataclass(frozen=True, eq=False)
class TokenCurve:
    """What a setting makes of the load; arrays of shape (points,).

    `x` is "rate_per_s", or "clients" for a closed loop. TTFT, TPOT and the latency, of the whole answer, are
    of the served. From the arrival rate `saturation` on the engines no longer keep up; inf for a closed loop.
    """

    x: str
    x_values: np.ndarray
    overloaded: np.ndarray
    saturation: float
    mean_ttft_ms: np.ndarray
    ttft_p50_ms: np.ndarray
    ttft_p99_ms: np.ndarray
    mean_tpot_ms: np.ndarray
    tpot_p50_ms: np.ndarray
    tpot_p99_ms: np.ndarray
    mean_latency_ms: np.ndarray
    p50_ms: np.ndarray
    p99_ms: np.ndarray
    throughput_per_s: np.ndarray
    output_tokens_per_s: np.ndarray


def token_curve(scenario: Scenario, requests: int, seed: int = 0) -> TokenCurve:
    """Return the curve from almost no load to beyond saturation, or to many clients.

    Of a trace, or of listed lengths, shorter than `requests`, all is taken; a load that the workload refuses
    is left out. Raises ValueError for a scenario without tokens, for a rule that the compiled engine does not
    cover, for requests that do not fit into the memory, and for a trace without a rate.

    >>> from batchsim import Continuous, Geometric, Poisson, StepTime, Tokens
    >>> step = StepTime(fixed_ms=7, weights_ms=10, per_token_ms=0.1)
    >>> tokens = Tokens(prompt=400, output=Geometric(100))
    >>> curve = token_curve(Scenario(Poisson(8), Continuous(), step, tokens=tokens), requests=500)
    >>> round(curve.saturation, 1), curve.x_values[[0, -1]].round(1).tolist()
    (19.0, [0.4, 22.8])
    >>> curve.ttft_p99_ms[[0, 5]].round(1).tolist(), curve.tpot_p99_ms[[0, 5]].round(1).tolist()
    ([67.5, 191.0], [18.6, 72.3])
    """
    from batchsim.engines.compiled.grid_runs import (
        in_threads,  # Numba loads on first use
        run_times,
    )

    requests, seed = checked(scenario, requests, seed)
    workload = scenario.workload
    values: Sequence[float]
    if isinstance(workload, ClosedLoop):
        x, values, saturation = "clients", client_counts(scenario, requests), math.inf
    else:
        x, (values, saturation) = "rate_per_s", load_rates(scenario)
    plan = draw_tokens_cached(scenario, requests, seed)
    check_lengths(scenario, lambda: [(plan.prompts, plan.outputs, plan.limits)])

    def run(value: float) -> tuple[float, bool, list[float]] | None:
        point = accepted(lambda: replace(scenario, workload=at_load(workload, value)))
        if point is None:
            return None
        times = run_times(draw_tokens_cached(point, requests, seed))
        return value, not point.stable, _numbers(TokenTimes(times))

    points = [point for point in in_threads(scenario, run, values) if point is not None]
    if not points:
        at_load(workload, values[0])  # which says why: a trace without a rate has no load at all
    x_values, overloaded, numbers = zip(*points, strict=True)
    return TokenCurve(x, np.array(x_values), np.array(overloaded), saturation, *np.array(numbers).T)


def _numbers(times: TokenTimes) -> list[float]:
    """Return the numbers of a point, in the order of the curve's fields."""
    columns = {"ttft": times.ttft_ms, "tpot": times.tpot_ms, "latency": times.latency_ms}
    numbers = times.numbers
    of_each = [
        (numbers[f"mean_{name}_ms"], *times.percentiles_ms(column, 50, 99).tolist())
        for name, column in columns.items()
    ]
    rates = numbers["throughput_per_s"], times.per_s(times.totals.output_tokens)
    return [*(float(number) for each in of_each for number in each), *map(float, rates)]
