"""A number over a whole grid of settings, and along the load: what a picture redraws at every move.

Every number is that of `simulate` under the same traffic, bit for bit.
"""

import functools
import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from batchsim import _check
from batchsim.engines.draws import draw_cached
from batchsim.result.sections import FINE
from batchsim.result.shares import students_t
from batchsim.scenario import ClosedLoop, OpenLoop, Rule, Scenario
from batchsim.simulate import available, check_memory
from batchsim.study.judgement import LEVEL
from batchsim.study.race import preference

# The loads at which a curve has its points: the last three are beyond saturation.
LOADS = (0.02, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.98, 1.03, 1.1, 1.2)
CLIENTS = 13  # the most points of a closed loop's curve,
FILLED = 4  # which ends at this many times the clients that fill the servers' batches
FROZEN = 50  # steps to the rate that just carries the batches that form at it
SHARES = 16  # of a surface: a thread takes one after the other
SECTIONS = 16  # of the test by which two settings are told apart
NEAR = 1.2  # times the lowest p99: settings above it are not tested


@dataclass(frozen=True, eq=False)
class Surface:
    """The p99 of every pair of settings under one traffic; arrays of shape (len(y_values), len(x_values)).

    `p99_ms` is of all requests, those that were not served being infinitely late; NaN where the pair is
    `refused`, as the rule or the scenario refuses it. Where it is `overloaded` there is no steady state: the
    p99 only says how long the run was.
    """

    scenario: Scenario
    requests: int
    seed: int
    x: str
    y: str
    x_values: tuple[Any, ...]
    y_values: tuple[Any, ...]
    p99_ms: np.ndarray
    overloaded: np.ndarray
    refused: np.ndarray
    rules: tuple[Rule | None, ...] = field(repr=False)  # of the cells, row by row; None for one refused

    def lowest(self) -> tuple[int, int] | None:
        """Return (row, column) of the lowest steady p99, the first of equals; None if none is finite."""
        p99_ms = np.where(self.overloaded | self.refused, math.inf, self.p99_ms)
        row, column = np.unravel_index(int(np.argmin(p99_ms)), p99_ms.shape)
        return (int(row), int(column)) if math.isfinite(p99_ms[row, column]) else None

    def best(self) -> tuple[int, int] | None:
        """Return (row, column) of the setting to take, as `tune` would: of the `ties`, by `preference`."""
        return self._told_apart[1]

    def ties(self) -> np.ndarray:
        """Return which settings are statistically the same as the one of the lowest p99, itself included.

        Each pair has met the same requests. In each of 16 sections of the run it is counted how many
        requests took longer than the lowest p99 under either setting; two settings are told apart where the
        95 % interval of the mean difference does not contain 0.
        """
        return self._told_apart[0]

    @functools.cached_property
    def _told_apart(self) -> tuple[np.ndarray, tuple[int, int] | None]:
        tied, lowest = np.zeros(self.p99_ms.shape, dtype=bool), self.lowest()
        if lowest is None:
            return tied, None
        limit_ms = float(self.p99_ms[lowest])
        with np.errstate(invalid="ignore"):  # NaN is not near
            near = ~(self.overloaded | self.refused) & (self.p99_ms <= NEAR * limit_ms)
        places = np.flatnonzero(near)
        rules = [rule for place in places if (rule := self.rules[place])]
        many = _run_all(self.scenario, rules, self.requests, self.seed, (), SECTIONS, limit_ms)
        above, mean_ms = many("above"), many("mean_ms")
        difference = above - above[places == np.ravel_multi_index(lowest, tied.shape)]
        same = np.flatnonzero(indistinct(difference))
        tied.flat[places[same]] = True

        def order(number: Any) -> tuple[float, ...]:
            rule = rules[number]
            saturation = replace(self.scenario, rule=rule).saturation_per_s
            return preference(saturation, float(mean_ms[number]), rule.max_wait_ms)

        return tied, divmod(int(places[min(same, key=order)]), len(self.x_values))

    def __repr__(self) -> str:
        shape = f"{len(self.x_values)} {self.x} x {len(self.y_values)} {self.y}"
        return f"Surface({shape}, {self.requests:,} requests each)"


def indistinct(difference: np.ndarray) -> np.ndarray:
    """Return which settings cannot be told from another by their differences, shape (settings, sections)."""
    half = students_t(LEVEL, SECTIONS) * difference.std(axis=1, ddof=1) / math.sqrt(SECTIONS)
    same: np.ndarray = np.abs(difference.mean(axis=1)) <= half
    return same


def surface(
    scenario: Scenario, x_values: Sequence[Any], y_values: Sequence[Any], requests: int = 20_000,
    seed: int = 0,
) -> Surface:  # fmt: skip
    """Return the p99 over two parameters of the scenario's rule, its `map_knobs`.

    Such as batch sizes x waits. Both must rise; the last wait may be infinite. Of a trace shorter than
    `requests`, all is taken. Raises ValueError for a rule that the compiled engine does not cover.

    >>> from batchsim import Affine, Poisson, SizeOrWait
    >>> scenario = Scenario(Poisson(900), SizeOrWait(32, 10), Affine(5, 0.25))
    >>> found = surface(scenario, x_values=[4, 8, 32], y_values=[0, 10], requests=2000)
    >>> found.p99_ms.round(1)
    array([[786.8,  17.6,  14.3],
           [785.4,  17.8,  18.7]])
    >>> found.overloaded[0].tolist(), found.best()
    ([True, False, False], (0, 2))
    """
    requests, seed = _checked(scenario, requests, seed)
    (x, y), described = scenario.rule.map_knobs, scenario.rule.parameters()
    xs, ys = (rising(name, described[name].check, given) for name, given in ((x, x_values), (y, y_values)))
    rules = _rules(scenario.rule, xs, ys)
    # Whether a scenario has a service time for a rule, and keeps up, is the same for many cells.
    points: dict[tuple[Any, ...], tuple[bool, bool]] = {}
    clients = scenario.workload.clients if isinstance(scenario.workload, ClosedLoop) else math.inf

    def point(rule: Rule | None) -> tuple[bool, bool]:
        """Return whether a cell is refused, and whether it is overloaded."""
        if rule is None or rule.fewest_clients > clients:
            return True, False
        # Frozen batches do not grow with the queue: whether they keep up depends on the whole rule.
        like = rule if rule.forms_while_busy else None, rule.max_batch_size, rule.largest_batch
        if like not in points:
            cell = accepted(lambda: replace(scenario, rule=rule))
            points[like] = cell is None, cell is not None and not cell.stable
        return points[like]

    refused, unstable = np.array(list(map(point, rules))).T
    p99_ms = np.full(len(rules), math.nan)
    if kept := [rule for rule, no in zip(rules, refused, strict=True) if rule is not None and not no]:
        p99_ms[~refused] = _run_all(scenario, kept, requests, seed)("percentiles_ms")[:, 0]
    shape = len(ys), len(xs)
    grids = (p99_ms.reshape(shape), unstable.reshape(shape), refused.reshape(shape))
    return Surface(scenario, requests, seed, x, y, xs, ys, *grids, rules)


@functools.lru_cache(maxsize=8)  # a slider that moves the traffic asks for the same rules again and again
def _rules(rule: Rule, xs: tuple[Any, ...], ys: tuple[Any, ...]) -> tuple[Rule | None, ...]:
    """Return the rule of each cell, row by row; None where the rule refuses the pair."""
    return tuple(accepted(functools.partial(rule.at, x, y)) for y in ys for x in xs)


def _run_all(
    scenario: Scenario, rules: Sequence[Rule], requests: int, seed: int, per_cent: Sequence[float] = (99,),
    sections: int = 0, above_ms: float = math.inf,
) -> Callable[[str], np.ndarray]:  # fmt: skip
    """Run each setting, all cores at work; return what gives the metrics of all by name."""
    from batchsim.engines.compiled.grid_runs import in_threads, run_many  # Numba loads on first use

    plan = draw_cached(scenario, requests, seed, max(rule.max_batch_size for rule in rules))
    shares = range(min(SHARES, len(rules)))

    def run(first: int) -> Any:
        return run_many(plan, rules[first :: len(shares)], per_cent, "inf", sections, above_ms)

    parts = in_threads(scenario, run, shares)
    order = np.argsort(np.arange(len(rules)) % len(shares), kind="stable").argsort()
    return lambda name: np.concatenate([getattr(part, name) for part in parts])[order]


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

    >>> from batchsim import Affine, Poisson, SizeOrWait
    >>> curve = load_curve(Scenario(Poisson(900), SizeOrWait(32, 10), Affine(5, 0.25)), requests=2000)
    >>> round(curve.saturation), curve.x_values[[0, -1]].round().tolist()
    (2462, [49.0, 2954.0])
    >>> curve.p99_ms[[0, 5, -1]].round(1).tolist()
    [15.8, 19.9, 155.1]
    """
    from batchsim.engines.compiled.grid_runs import in_threads, run_many  # Numba loads on first use

    requests, seed = _checked(scenario, requests, seed)
    workload, rule = scenario.workload, scenario.rule
    values: Sequence[float]
    if isinstance(workload, ClosedLoop):
        x, values, saturation = "clients", client_counts(scenario, requests), math.inf
    else:
        x, (values, saturation) = "rate_per_s", load_rates(scenario)

    def run(value: float) -> tuple[float, bool, Any] | None:
        point = accepted(lambda: replace(scenario, workload=at_load(workload, value)))
        if point is None:
            return None
        plan = draw_cached(point, requests, seed, rule.max_batch_size)
        return value, not point.stable, run_many(plan, [rule], (50, 99), sections=FINE)

    points = [point for point in in_threads(scenario, run, values) if point is not None]
    if not points:
        at_load(workload, values[0])  # which says why: a trace without a rate has no load at all
    x_values, overloaded, numbers = zip(*points, strict=True)
    names = ("mean_ms", "percentiles_ms", "throughput_per_s")
    mean_ms, both_ms, answers_per_s = (np.concatenate([getattr(one, n) for one in numbers]) for n in names)
    xs, over, (p50_ms, p99_ms) = np.array(x_values), np.array(overloaded), both_ms.T
    return LoadCurve(x, xs, mean_ms, p50_ms, p99_ms, answers_per_s, over, saturation)


def load_rates(scenario: Scenario) -> tuple[list[float], float]:
    """Return the arrival rates at which an open loop's load curve has its points, and the saturation rate."""
    saturation = scenario.full_batches_per_s
    for _ in range(FROZEN if scenario.rule.forms_while_busy else 0):  # at a higher rate larger ones form
        saturation = scenario.carried_per_s(saturation)
    return [load * saturation for load in LOADS], saturation


def at_load(workload: OpenLoop | ClosedLoop, value: float) -> OpenLoop | ClosedLoop:
    """Return a workload at another rate, or of as many clients; ValueError where it refuses that."""
    if isinstance(workload, ClosedLoop):
        return replace(workload, clients=int(value))
    return workload.with_rate(value)


def client_counts(scenario: Scenario, requests: int) -> list[int]:
    """Return how many clients, evenly by ratio; as few as ever fill a batch, no more than may send."""
    fewest = scenario.rule.fewest_clients
    most = max(min(FILLED * scenario.servers * scenario.rule.max_batch_size, requests), fewest)
    return sorted({round(clients) for clients in np.geomspace(fewest, most, CLIENTS)})


def accepted(make: Callable[[], Any]) -> Any:
    """Return what is made, None where it is refused."""
    try:
        return make()
    except ValueError:
        return None


def _checked(scenario: Scenario, requests: int, seed: int) -> tuple[int, int]:
    """Return the requests, as many as there are, and the seed, or raise."""
    _check.instance("scenario", scenario, Scenario, "a Scenario")
    if not scenario.rule.compiled:
        raise ValueError(f"the rule must be one that the compiled engine covers, got {scenario.rule!r}")
    if scenario.tokens is not None:
        raise ValueError("maps and load curves of tokens are token_surface and token_curve, got tokens")
    requests = available(scenario, _check.whole("requests", requests))
    check_memory(scenario, requests)
    return requests, _check.whole("seed", seed, at_least=0, at_most=None)


def rising(name: str, check: Callable[[str, Any], Any], given: Sequence[Any]) -> tuple[Any, ...]:
    """Return the checked values of an axis, or raise unless they rise."""
    if not _check.listed(given):
        raise TypeError(f"values of {name} must be a list, got {given!r}")
    values = tuple(check(name, value) for value in given)
    if not values or any(a >= b for a, b in itertools.pairwise(values)):
        raise ValueError(f"values of {name} must rise, got {list(values)}")
    return values
