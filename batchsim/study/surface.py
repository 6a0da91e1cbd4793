"""Numbers over a whole grid of settings, and along the load: what a picture redraws at every move.

Every number is that of `simulate` under the same traffic, bit for bit. `kinds.py` has what differs between
requests and token generation.
"""

import functools
import itertools
import math
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from batchsim import _check
from batchsim._compat import kept
from batchsim.engines.estimates import check_memory, warn_if_large
from batchsim.result.metrics import OF_ENERGY
from batchsim.scenario import ClosedLoop, OpenLoop, Rule, Scenario
from batchsim.simulate import available, simulated
from batchsim.study.kinds import ATTAINMENT, accepted, kind_of

# The loads at which a curve has its points: the last three are beyond saturation.
LOADS = (0.02, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.98, 1.03, 1.1, 1.2)
CLIENTS = 13  # the most points of a closed loop's curve,
FILLED = 4  # which ends at this many times the clients that fill the servers' batches
FROZEN = 50  # steps to the rate at which the batches that form just keep up
# Requests of each setting of a map, and of a closed loop or replicas, whose loops are slower. Traffic that
# drifts needs all, as its beginning is not typical.
MAP_REQUESTS, FEW_REQUESTS = 20_000, 5_000
MOST = 0.99  # of the requests: a setting where these keep both objectives is within them
SAME = 1.01  # times the least energy: settings up to it are as good


class Columns:
    """Numbers by metric in `columns`, each an attribute too: `found.p99_ms` is `found.columns["p99_ms"]`."""

    columns: Mapping[str, np.ndarray]

    def __getattr__(self, name: str) -> np.ndarray:
        if name in (columns := self.__dict__.get("columns", {})):
            return columns[name]
        raise AttributeError(f"{type(self).__name__} has no {name!r}, but {', '.join(columns)}")


@dataclass(frozen=True, eq=False)
class Surface(Columns):
    """Metrics of every pair of settings under one traffic; arrays of shape (len(y_values), len(x_values)).

    Of requests, `columns` has `p99_ms`. Of tokens it has `ttft_p99_ms`, and with two objectives
    `goodput_per_s` and `attainment`: the requests served within both, per second and as a fraction of all
    (else NaN). Percentiles are of all requests; a request that was not served is infinitely late. Settings
    are compared by `metric`: by energy if it is `joules_per_request` or `joules_per_token`, a column then.

    All are NaN if the rule, the scenario or the memory refuses the pair (`refused`). An `overloaded` pair has
    no steady state: its p99 depends on the length of the run; of tokens it is not run: NaN, as energy is.
    """

    scenario: Scenario
    requests: int
    seed: int
    x: str
    y: str
    x_values: tuple[Any, ...]
    y_values: tuple[Any, ...]
    metric: str
    columns: Mapping[str, np.ndarray]
    overloaded: np.ndarray
    refused: np.ndarray
    rules: tuple[Rule | None, ...] = field(repr=False)  # of the cells, row by row; None if refused
    settle: Callable[[], tuple[np.ndarray, int | None]] = field(repr=False)  # cells that tie, and the best

    @property
    def values(self) -> np.ndarray:
        """The values of `metric`."""
        return self.columns[self.metric]

    @property
    def latency_ms(self) -> np.ndarray:
        """The p99 of the latency, or of the TTFT."""
        return self.columns[kind_of(self.scenario).latency]

    def within(self, objective_ms: float | None = None) -> np.ndarray:
        """Return where 99 of 100 requests keep both objectives, or else one of `latency_ms`, if any."""
        limit_ms = sys.float_info.max if objective_ms is None else objective_ms
        met = self.columns.get(ATTAINMENT, np.full(self.refused.shape, math.nan))
        return ~self.overloaded & np.where(np.isnan(met), self.latency_ms <= limit_ms, met >= MOST)

    def best(self, objective_ms: float | None = None) -> tuple[int, int] | None:
        """Return (row, column) of the setting to take: of the `ties`, the first by `preference`.

        By energy, it is the first with the lowest `latency_ms`.
        """
        if self.metric not in OF_ENERGY:
            return self._settled[1]
        ties = self.ties(objective_ms)
        place = int(np.where(ties, self.latency_ms, math.inf).argmin())
        return divmod(place, len(self.x_values)) if ties.any() else None

    def ties(self, objective_ms: float | None = None) -> np.ndarray:
        """Return which settings do not differ significantly from the one of the best value, itself included.

        All settings met the same requests. In each of 16 sections of the run, batchsim counts the requests
        that took longer than the lowest p99, or that met both objectives. Two settings differ if the 95 %
        interval of the mean difference of their counts does not contain 0. By energy, settings up to 1 %
        above the least of those `within` tie, as in `tune`.
        """
        if self.metric not in OF_ENERGY:
            return self._settled[0]
        joules = np.where(self.within(objective_ms), self.values, math.inf)
        return np.isfinite(joules) & (joules <= SAME * joules.min())

    @kept
    def _settled(self) -> tuple[np.ndarray, tuple[int, int] | None]:
        cells, best = self.settle()
        tied = np.zeros(self.refused.shape, dtype=bool)
        tied.flat[cells] = True
        return tied, None if best is None else divmod(best, len(self.x_values))

    def __repr__(self) -> str:
        shape = f"{len(self.x_values)} {self.x} x {len(self.y_values)} {self.y}"
        return f"Surface({self.metric}, {shape}, {self.requests:,} requests each)"


def surface(
    scenario: Scenario, x_values: Sequence[Any], y_values: Sequence[Any], requests: int = 20_000,
    seed: int = 0, *, knobs: tuple[str, str] | None = None, metric: str | None = None,
    ttft_objective_ms: float | None = None, tpot_objective_ms: float | None = None, roughly: bool = False,
) -> Surface:  # fmt: skip
    """Return the p99, or the goodput of tokens, over two parameters of the scenario's rule.

    With `metric="joules"` it also has the energy of a request, or of a token, by the scenario's `watts`.

    `knobs`, x and y, are its `map_knobs` by default, such as batch size and wait; any others of its
    parameters will do, and "kv_blocks" for `Continuous`. The values of both must rise; the last wait may be
    infinite. If a trace or listed lengths are shorter than `requests`, all of it is taken.

    For tokens: the objectives, both or neither, define the goodput. `roughly`: which cells are overloaded may
    be wrong within some 3 % of saturation. Raises ValueError for a rule that the compiled engine does not
    cover.

    >>> from batchsim import Affine, Poisson, SizeOrWait
    >>> scenario = Scenario(Poisson(900), SizeOrWait(32, 10), Affine(5, 0.25))
    >>> found = surface(scenario, x_values=[4, 8, 32], y_values=[0, 10], requests=2000)
    >>> found.p99_ms.round(1)
    array([[786.8,  17.6,  14.3],
           [785.4,  17.8,  18.8]])
    >>> found.overloaded[0].tolist(), found.best()
    ([True, False, False], (0, 2))
    >>> hot = scenario.replace(watts={0: 60, 1: 150, 32: 300})
    >>> found = surface(hot, [4, 8, 32], [0, 10], requests=2000, metric="joules")
    >>> found.joules_per_request.round(3)
    array([[  nan, 0.193, 0.194],
           [  nan, 0.177, 0.168]])
    >>> found.best(), found.best(objective_ms=15)
    ((1, 2), (0, 2))

    >>> from batchsim import Continuous, Geometric, StepTime, Tokens
    >>> step = StepTime(fixed_ms=7, weights_ms=10, per_token_ms=0.1)
    >>> tokens = Tokens(prompt=400, output=Geometric(100))
    >>> scenario = Scenario(Poisson(8), Continuous(kv_blocks=2000), step, tokens=tokens)
    >>> surface(scenario, [16, 32, 64], [512, 2048], requests=2000).ttft_p99_ms.round()
    array([[ nan, 190., 190.],
           [ nan, 174., 174.]])
    """
    requests, seed = _checked(scenario, requests, seed)
    kind, rule = kind_of(scenario), scenario.rule
    objectives = kind.objectives(ttft_objective_ms, tpot_objective_ms)
    checks = kind.knobs(rule)
    if metric is not None and _check.one_of("metric", metric, ("joules",)) and scenario.watts is None:
        raise ValueError("metric='joules' needs watts, the power of a server, got none")
    if knobs is not None and (not _check.listed(knobs) or len(knobs) != 2 or knobs[0] == knobs[1]):
        raise ValueError(f"knobs must be two different ones, got {knobs!r}")
    x, y = (_check.one_of("a knob", knob, [*checks]) for knob in knobs or rule.map_knobs)
    xs, ys = (_rising(name, checks[name], given) for name, given in ((x, x_values), (y, y_values)))
    rules = _rules(rule, x, xs, y, ys)
    warn_if_large(scenario, requests, runs=kind.map_cost * len(rules) / (os.cpu_count() or 1))
    cells = kind.cells(scenario, rules, len(xs), requests, seed, objectives, roughly)
    shape = len(ys), len(xs)
    kept = tuple(None if no else rule for rule, no in zip(rules, cells.refused, strict=True))
    key, found = kind.metric(objectives) if metric is None else kind.energy, cells.columns
    if metric is not None:
        from batchsim.engines.compiled.grid_runs import in_threads  # Numba loads on first use

        def run(cell: int) -> float:
            if (rule := kept[cell]) is None or cells.overloaded[cell]:
                return math.nan
            one, _ = simulated(replace(scenario, rule=rule), requests, seed, keep="summary")
            return one.metrics.number(key)

        found[key] = np.array(in_threads(scenario, run, range(len(kept))))
    columns = {name: column.reshape(shape) for name, column in found.items()}
    return Surface(
        scenario, requests, seed, x, y, xs, ys, key, columns,
        cells.overloaded.reshape(shape), cells.refused.reshape(shape), kept, cells.settle,
    )  # fmt: skip


def steady(workload: OpenLoop | ClosedLoop) -> bool:
    """Return whether the beginning of the traffic is typical."""
    return isinstance(workload, ClosedLoop) or workload.gamma_cv is not None


def map_requests(scenario: Scenario, requests: int) -> int:
    """Return how many requests each setting of a map runs, at most `requests`."""
    if not steady(scenario.workload):
        return requests
    slow = isinstance(scenario.workload, ClosedLoop) or scenario.replicas > 1
    return min(requests, FEW_REQUESTS if slow else MAP_REQUESTS)


@functools.lru_cache(maxsize=8)  # a slider that moves the traffic asks for the same rules again and again
def _rules(rule: Rule, x: str, xs: tuple[Any, ...], y: str, ys: tuple[Any, ...]) -> tuple[Rule | None, ...]:
    """Return the rule of each cell, row by row; None where the rule refuses the pair."""
    if (x, y) == rule.map_knobs:
        return tuple(accepted(functools.partial(rule.at, of_x, of_y)) for of_y in ys for of_x in xs)
    pairs = ({x: of_x, y: of_y} for of_y in ys for of_x in xs)
    return tuple(accepted(functools.partial(replace, rule, **pair)) for pair in pairs)  # type: ignore[type-var]


@dataclass(frozen=True, eq=False)
class LoadCurve(Columns):
    """A setting's latency and throughput along the load; arrays of shape (points,).

    `x` is "rate_per_s", or "clients" for a closed loop. `columns` has `p50_ms`, `p99_ms` and the mean of the
    latency of the served requests (`mean_ms`; of tokens `mean_latency_ms`, and the same for TTFT and TPOT),
    and `throughput_per_s` (of tokens `output_tokens_per_s` too). From the arrival rate `saturation` on, full
    batches no longer keep up; inf for a closed loop.
    """

    x: str
    x_values: np.ndarray
    columns: Mapping[str, np.ndarray]
    overloaded: np.ndarray
    saturation: float


def load_curve(scenario: Scenario, requests: int, seed: int = 0) -> LoadCurve:
    """Return the curve from almost no load to beyond saturation, or to many clients.

    If a trace or listed lengths are shorter than `requests`, all of it is taken; a load that the workload
    or the clock refuses is left out. Raises ValueError for a rule that the compiled engine does not cover,
    for a trace without a rate, and for a request that does not fit into the memory.

    >>> from batchsim import Affine, Poisson, SizeOrWait
    >>> curve = load_curve(Scenario(Poisson(900), SizeOrWait(32, 10), Affine(5, 0.25)), requests=2000)
    >>> round(curve.saturation), curve.x_values[[0, -1]].round().tolist()
    (2462, [49.0, 2954.0])
    >>> curve.p99_ms[[0, 5, -1]].round(1).tolist()
    [15.8, 19.9, 155.1]
    """
    from batchsim.engines.compiled.grid_runs import in_threads  # Numba loads on first use

    requests, seed = _checked(scenario, requests, seed)
    workload, kind = scenario.workload, kind_of(scenario)
    values: Sequence[float]
    if isinstance(workload, ClosedLoop):
        x, values, saturation = "clients", _client_counts(scenario, requests), math.inf
    else:
        x, (values, saturation) = "rate_per_s", load_rates(scenario)

    warn_if_large(scenario, requests, runs=len(values) / (os.cpu_count() or 1))

    def run(value: float) -> tuple[float, bool, dict[str, float]] | None:
        point = accepted(lambda: replace(scenario, workload=_at_load(workload, value)))
        numbers = point and accepted(lambda: kind.point(point, requests, seed))
        return None if numbers is None else (value, not point.stable, numbers)

    points = [point for point in in_threads(scenario, run, values) if point is not None]
    if not points:
        # One raises with the reason: a trace without a rate has no load.
        kind.point(replace(scenario, workload=_at_load(workload, values[0])), requests, seed)
    x_values, overloaded, numbers = zip(*points, strict=True)
    columns = {name: np.array([each[name] for each in numbers]) for name in numbers[0]}
    return LoadCurve(x, np.array(x_values), columns, np.array(overloaded), saturation)


def load_rates(scenario: Scenario) -> tuple[list[float], float]:
    """Return the arrival rates at which an open loop's load curve has its points, and the saturation rate."""
    saturation = scenario.full_batches_per_s
    for _ in range(FROZEN if scenario.rule.forms_while_busy else 0):  # at a higher rate larger ones form
        saturation = scenario.carried_per_s(saturation)
    return [load * saturation for load in LOADS], saturation


def _at_load(workload: OpenLoop | ClosedLoop, value: float) -> OpenLoop | ClosedLoop:
    """Return a workload at another rate or number of clients; ValueError where it refuses that."""
    if isinstance(workload, ClosedLoop):
        return replace(workload, clients=int(value))
    return workload.with_rate(value)


def _client_counts(scenario: Scenario, requests: int) -> list[int]:
    """Return numbers of clients, evenly by ratio: from the fewest that ever fill a batch to all that send."""
    fewest = scenario.rule.fewest_clients
    most = max(min(FILLED * scenario.servers * scenario.rule.max_batch_size, requests), fewest)
    return sorted({round(clients) for clients in np.geomspace(fewest, most, CLIENTS)})


def _checked(scenario: Scenario, requests: int, seed: int) -> tuple[int, int]:
    """Return the number of requests that a run can have, and the seed, or raise."""
    _check.instance("scenario", scenario, Scenario, "a Scenario")
    if scenario.uncovered:
        got = scenario.uncovered.removeprefix("the rule ")
        raise ValueError(f"the scenario must be one that the compiled engine covers, got {got}")
    requests = available(scenario, _check.whole("requests", requests))
    check_memory(scenario, requests)
    return requests, _check.seed(seed)


def _rising(name: str, check: Callable[[str, Any], Any], given: Sequence[Any]) -> tuple[Any, ...]:
    """Return the checked values of an axis, or raise unless they rise."""
    if not _check.listed(given):
        raise TypeError(f"values of {name} must be a list, got {given!r}")
    values = tuple(check(name, value) for value in given)
    if not values or any(a >= b for a, b in itertools.pairwise(values)):
        raise ValueError(f"values of {name} must rise, got {list(values)}")
    return values
