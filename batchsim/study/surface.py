"""A number over a whole grid of settings, and along the load: what a picture redraws at every move.

Every number is that of `simulate` under the same traffic, bit for bit.
"""

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from batchsim import _check
from batchsim.engines.drawn import drawn
from batchsim.engines.plan import Plan
from batchsim.result.intervals import FINE
from batchsim.scenario import AtLeast, ClosedLoop, OpenLoop, Scenario, SizeOrWait
from batchsim.scenario.rules import Rule

if TYPE_CHECKING:
    from batchsim.engines.many import Settings

Value = TypeVar("Value", int, float)
# The loads at which a curve has its points: the last three are beyond saturation.
LOADS = (0.02, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.98, 1.03, 1.1, 1.2)
CLIENTS = 13  # the most points of a closed loop's curve,
FILLED = 4  # which ends at so many times the clients that fill the servers' batches
SHARES = 16  # of a surface: a thread takes one after the other


@dataclass(frozen=True, eq=False)
class Surface:
    """The p99 of every pair of settings under one traffic; arrays of shape (len(y_values), len(x_values)).

    `p99_ms` is of all requests, those that were not served being infinitely late; NaN where the
    pair is `refused`, as a scenario refuses it. Where it is `overloaded` there is no steady state: the
    p99 only says how long the run was.
    """

    scenario: Scenario
    requests: int
    seed: int
    x: str
    y: str
    x_values: tuple[int, ...]
    y_values: tuple[float, ...]
    p99_ms: np.ndarray
    overloaded: np.ndarray
    refused: np.ndarray

    def best(self) -> tuple[int, int] | None:
        """Return (row, column) of the lowest steady p99, the first of equals; None if none is finite."""
        p99_ms = np.where(self.overloaded | self.refused, math.inf, self.p99_ms)
        row, column = np.unravel_index(int(np.argmin(p99_ms)), p99_ms.shape)
        return (int(row), int(column)) if math.isfinite(p99_ms[row, column]) else None

    def ties(self) -> np.ndarray:
        """Return which cells cannot be told from the best; a stub for the views, of the best alone."""
        tied, best = np.zeros(self.p99_ms.shape, dtype=bool), self.best()
        if best is not None:
            tied[best] = True
        return tied

    def __repr__(self) -> str:
        shape = f"{len(self.x_values)} {self.x} x {len(self.y_values)} {self.y}"
        return f"Surface({shape}, {self.requests:,} requests each)"


def surface(
    scenario: Scenario,
    x_values: Sequence[int],
    y_values: Sequence[float],
    requests: int = 20_000,
    seed: int = 0,
) -> Surface:
    """Return the p99 over batch sizes x waits; largest x smallest batch sizes where the rule is AtLeast.

    Both must rise; the last wait may be infinite. Of a trace shorter than `requests`, all is taken.
    Raises ValueError for a rule that the compiled engine does not cover.

    >>> from batchsim import Affine, Poisson
    >>> scenario = Scenario(Poisson(900), SizeOrWait(32, 10), Affine(5, 0.25))
    >>> found = surface(scenario, x_values=[4, 8, 32], y_values=[0, 10], requests=2000)
    >>> found.p99_ms.round(1)
    array([[786.8,  17.6,  14.3],
           [785.4,  17.8,  18.7]])
    >>> found.overloaded[0].tolist(), found.best()
    ([True, False, False], (0, 2))
    """
    from batchsim.engines.many import Settings  # Numba loads on first use

    requests, seed = _asked(scenario, requests, seed)
    waits = type(scenario.rule) is SizeOrWait
    x, y = "max_batch_size", "max_wait_ms" if waits else "min_batch_size"
    sizes = _rising(x, [_check.whole(x, size) for size in x_values])
    rules: list[Rule] = [SizeOrWait(1, value) if waits else AtLeast(value, value) for value in y_values]  # type: ignore[arg-type]
    ys = _rising(y, [getattr(rule, y) for rule in rules])

    # What a scenario refuses, and whether it keeps up, is settled by column and by row, then by pair.
    columns = [_accepted(partial(_of_size, scenario, size)) for size in sizes]
    wait_s = np.array([rule.max_wait_ms / 1000 for rule in rules])[:, None]
    largest = np.array(sizes)
    enough = largest if waits else np.array(ys)[:, None]
    refused = (enough > largest) | np.array([column is None for column in columns])
    if isinstance(scenario.workload, ClosedLoop):
        refused = refused | (np.isinf(wait_s) & (enough > scenario.workload.clients))
    wait_s, enough, largest, refused = np.broadcast_arrays(wait_s, enough, largest, refused)
    unstable = np.array([column is not None and not column.stable for column in columns])

    p99_ms, kept = np.full(refused.shape, math.nan), ~refused
    if kept.any():
        settings = Settings(wait_s[kept], enough[kept], largest[kept])
        plan = drawn(scenario, requests, seed, int(settings.largest.max()))
        p99_ms[kept] = _p99_ms(plan, settings)
    return Surface(scenario, requests, seed, x, y, sizes, ys, p99_ms, unstable & kept, refused.copy())


def _of_size(scenario: Scenario, largest: int) -> Scenario:
    return replace(scenario, rule=SizeOrWait(largest, 0))


def _p99_ms(plan: Plan, settings: "Settings") -> np.ndarray:
    """Return the p99 of each setting, all cores at work."""
    from batchsim.engines.many import in_threads, survey

    p99_ms = np.empty(settings.wait_s.size)
    shares = min(SHARES, p99_ms.size)

    def run(first: int) -> None:
        figures = survey(plan, settings.share(first, shares), unserved="inf")
        p99_ms[first::shares] = figures.percentiles_ms[:, 0]

    in_threads(plan.scenario, run, range(shares))
    return p99_ms


@dataclass(frozen=True, eq=False)
class LoadCurve:
    """A setting's latency and throughput along the load; arrays of shape (points,).

    `x` is "rate_per_s", or "clients" for a closed loop. The latencies are of the served. From the
    arrival rate `saturation` on, full batches no longer keep up; inf for a closed loop.
    """

    x: str
    x_values: np.ndarray
    mean_ms: np.ndarray
    p50_ms: np.ndarray
    p99_ms: np.ndarray
    throughput_per_s: np.ndarray
    overloaded: np.ndarray
    saturation: float


def load_curve(scenario: Scenario, requests: int, seed: int = 0) -> LoadCurve:
    """Return the curve from almost no load to beyond saturation, or to many clients.

    Of a trace shorter than `requests`, all is taken; a load that the workload refuses is left out.
    Raises ValueError for a rule that the compiled engine does not cover, and for a trace without a rate.

    >>> from batchsim import Affine, Poisson
    >>> curve = load_curve(Scenario(Poisson(900), SizeOrWait(32, 10), Affine(5, 0.25)), requests=2000)
    >>> round(curve.saturation), curve.x_values[[0, -1]].round().tolist()
    (2462, [49.0, 2954.0])
    >>> curve.p99_ms[[0, 5, -1]].round(1).tolist()
    [15.8, 19.9, 155.1]
    """
    from batchsim.engines.many import Metrics, Settings, in_threads, survey  # Numba loads on first use

    requests, seed = _asked(scenario, requests, seed)
    workload, rule = scenario.workload, scenario.rule
    values: Sequence[float]
    if isinstance(workload, ClosedLoop):
        x, values, saturation = "clients", _clients(scenario, requests), math.inf
    else:
        x, saturation = "rate_per_s", scenario.full_batches_per_s
        values = [load * saturation for load in LOADS]
    columns = (rule.max_wait_ms / 1000, rule.enough, rule.max_batch_size)
    setting = Settings(*(np.array([column]) for column in columns))

    def run(value: float) -> tuple[float, bool, Metrics] | None:
        point = _accepted(lambda: replace(scenario, workload=_at(workload, value)))
        if point is None:
            return None
        plan = drawn(point, requests, seed, rule.max_batch_size)
        return value, not point.stable, survey(plan, setting, (50, 99), sections=FINE)

    points = [point for point in in_threads(scenario, run, values) if point is not None]
    if not points:
        _at(workload, values[0])  # which says why: a trace without a rate has no load at all
    x_values, overloaded, figures = zip(*points, strict=True)
    p50_ms, p99_ms = np.concatenate([one.percentiles_ms for one in figures]).T
    return LoadCurve(
        x=x,
        x_values=np.array(x_values),
        mean_ms=np.concatenate([one.mean_ms for one in figures]),
        p50_ms=p50_ms,
        p99_ms=p99_ms,
        throughput_per_s=np.concatenate([one.throughput_per_s for one in figures]),
        overloaded=np.array(overloaded),
        saturation=saturation,
    )


def _at(workload: OpenLoop | ClosedLoop, value: float) -> OpenLoop | ClosedLoop:
    if isinstance(workload, ClosedLoop):
        return replace(workload, clients=int(value))
    return workload.with_rate(value)


def _clients(scenario: Scenario, requests: int) -> list[int]:
    """Return how many clients, evenly by ratio; as few as ever fill a batch, no more than may send."""
    rule = scenario.rule
    fewest = rule.enough if math.isinf(rule.max_wait_ms) else 1
    most = max(min(FILLED * scenario.servers * rule.max_batch_size, requests), fewest)
    return sorted({round(clients) for clients in np.geomspace(fewest, most, CLIENTS)})


def _accepted(make: Callable[[], Scenario]) -> Scenario | None:
    """Return what is made, None where it is refused."""
    try:
        return make()
    except ValueError:
        return None


def _asked(scenario: Scenario, requests: int, seed: int) -> tuple[int, int]:
    """Return the requests, as many as there are, and the seed, or raise."""
    if not isinstance(scenario, Scenario):
        raise TypeError(f"scenario must be a Scenario, got {scenario!r}")
    if type(scenario.rule) not in (SizeOrWait, AtLeast):
        raise ValueError(f"the rule must be SizeOrWait or AtLeast, got {scenario.rule!r}")
    requests = _check.whole("requests", requests)
    if isinstance(scenario.workload, OpenLoop) and scenario.workload.max_requests is not None:
        requests = min(requests, scenario.workload.max_requests)
    return requests, _check.whole("seed", seed, at_least=0, at_most=None)


def _rising(name: str, values: list[Value]) -> tuple[Value, ...]:
    if not values or any(a >= b for a, b in itertools.pairwise(values)):
        raise ValueError(f"values of {name} must rise, got {values}")
    return tuple(values)
