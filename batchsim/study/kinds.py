"""What differs between kinds of run in a study: requests, and token generation.

`kind_of` returns the kind of a scenario; everything else in this package asks that. A third kind is one more
class, and its entry in `KINDS`.
"""

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from batchsim import _check
from batchsim._clock import check_time
from batchsim.engines.draws import Streams, draw_cached
from batchsim.engines.token_log import draw_tokens_cached
from batchsim.result.metrics import METRICS, OF_DEVICES, OF_SIZES, TOKENS, Metric
from batchsim.result.sections import FINE
from batchsim.scenario import ClosedLoop, Continuous, Rule, Scenario
from batchsim.scenario.rules.continuous import check_lengths
from batchsim.scenario.saturation import estimate_per_s
from batchsim.simulate import available
from batchsim.study import tokens
from batchsim.study.paired import CELL_SECTIONS, settle
from batchsim.study.slo import TOKEN_PERCENTILES

P99, TTFT_P99, GOODPUT, ATTAINMENT = "p99_ms", "ttft_p99_ms", "goodput_per_s", "attainment"
MEMORY = "kv_blocks"  # an axis in addition to the parameters of a rule that describe themselves
SHARES = 16  # of a surface: a thread takes one after the other

Objectives = tuple[float, float] | None  # of TTFT and of TPOT, in ms


class Cells(NamedTuple):
    """The cells of a map, row by row: their metrics, their state, and what computes the best of them."""

    columns: dict[str, np.ndarray]
    overloaded: np.ndarray
    refused: np.ndarray
    settle: Callable[[], tuple[np.ndarray, int | None]]


class Requests:
    """Requests computed in batches, each batch at once."""

    # Metrics that a search notes of each setting, and percentiles to expect in addition to the latency's.
    noted: tuple[str, ...] = ("mean_latency_ms", "throughput_per_s", "utilisation", "mean_batch_size")
    percentiles: Mapping[str, float] = {}
    no_optimum = ""  # why theory knows no best policy
    map_cost = 1.0  # of a cell, as a part of a whole run's time
    latency, energy = P99, "joules_per_request"  # the metrics that settings of least energy are chosen by

    def metrics(self, devices: bool, sized: bool) -> Mapping[str, Metric]:
        """Return the metrics of a sweep; those of devices and of sizes only if asked for."""
        absent = {*(() if devices else OF_DEVICES), *(() if sized else OF_SIZES)}
        return {key: each for key, each in METRICS.items() if key not in absent}

    # Surfaces and load curves.

    def knobs(self, rule: Rule) -> dict[str, Callable[[str, Any], Any]]:
        """Return what may be an axis, with the check of its values."""
        return {name: described.check for name, described in rule.parameters().items()}

    def objectives(self, ttft_ms: float | None, tpot_ms: float | None) -> Objectives:
        """Return the checked objectives that goodput counts, or raise."""
        if ttft_ms is not None or tpot_ms is not None:
            raise ValueError("objectives need a scenario with tokens, got one without")
        return None

    def metric(self, objectives: Objectives) -> str:
        """Return the metric that settings are compared by."""
        return P99

    def point(self, scenario: Scenario, requests: int, seed: int) -> dict[str, float]:
        """Run a point of a load curve; return its metrics."""
        from batchsim.engines.compiled.grid_runs import run_many  # Numba loads on first use

        plan = draw_cached(scenario, requests, seed, scenario.rule.max_batch_size)
        run = run_many(plan, [scenario.rule], (50, 99), sections=FINE)
        check_time("finishes", float(run.last_s[0]), "take fewer requests")
        p50_ms, p99_ms = run.percentiles_ms[0]
        return {
            "mean_ms": run.mean_ms[0], "p50_ms": p50_ms, "p99_ms": p99_ms,
            "throughput_per_s": run.throughput_per_s[0],
        }  # fmt: skip

    def cells(
        self, scenario: Scenario, rules: Sequence[Rule | None], columns: int, requests: int, seed: int,
        objectives: Objectives, roughly: bool,
    ) -> Cells:  # fmt: skip
        """Run every cell of a map, row by row, with so many columns; None for a rule that was refused."""
        # Cells that differ only in the wait share their service times and saturation, hence these two.
        points: dict[tuple[Any, ...], tuple[bool, bool]] = {}
        clients = scenario.workload.clients if isinstance(scenario.workload, ClosedLoop) else math.inf

        def state(rule: Rule | None) -> tuple[bool, bool]:
            """Return whether a cell is refused, and whether it is overloaded."""
            if rule is None or rule.fewest_clients > clients:
                return True, False
            # Frozen batches do not grow with the queue: whether they keep up depends on the whole rule.
            of_all = rule if rule.forms_while_busy else None
            of_sizes = [getattr(rule, name) for name, it in rule.parameters().items() if it.of_sizes]
            key = of_all, rule.max_batch_size, rule.largest_batch, *of_sizes
            if key not in points:
                cell = accepted(functools.partial(replace, scenario, rule=rule))
                points[key] = cell is None, cell is not None and not cell.stable
            return points[key]

        refused, overloaded = np.array(list(map(state, rules))).T
        p99_ms = np.full(len(rules), math.nan)

        def run(cells: np.ndarray, *args: Any) -> Callable[[str], np.ndarray]:
            kept = [rule for cell in cells.tolist() if (rule := rules[cell]) is not None]
            return _run_all(scenario, kept, requests, seed, *args)

        def compare(cells: np.ndarray, limit_ms: float) -> tuple[np.ndarray, np.ndarray]:
            ran = run(cells, (), CELL_SECTIONS, limit_ms)
            return ran("above"), ran("mean_ms")

        def saturation_per_s(cell: int) -> float:
            rule = rules[cell]
            assert rule is not None
            return replace(scenario, rule=rule).saturation_per_s

        if not refused.all():
            p99_ms[~refused] = run(np.flatnonzero(~refused))("percentiles_ms")[:, 0]
            refused |= np.isnan(p99_ms)  # runs that end later than the clock counts
        losses = np.where(overloaded | refused, math.inf, p99_ms)
        args = rules, losses, compare, saturation_per_s
        return Cells({P99: p99_ms}, overloaded, refused, functools.partial(settle, *args))

    # Searches.

    def first_unserved(self, points: Sequence[Scenario], streams: Streams, requests: int) -> float:
        """Return how many requests precede the first that some setting can never serve; inf without one."""
        return math.inf

    def least_ms(self, scenario: Scenario, seed: int, warmup: float) -> Mapping[str, np.ndarray]:
        """Return the least values that a run's requests can have, by column; empty if unknown."""
        return {}

    # Words.

    def in_steps(self, rule: Rule) -> bool:
        """Return whether a rule forms steps, which requests join and leave, rather than whole batches."""
        return False

    def one_ms(self, scenario: Scenario) -> float:
        """Return how long a request alone computes on average."""
        return float(scenario.mean_s(1)[0] * 1000)


class Tokens(Requests):
    """Requests that generate tokens, step by step."""

    noted = (*Requests.noted, "mean_ttft_ms", "mean_tpot_ms", "output_tokens_per_s", "preempted_share")
    percentiles = TOKEN_PERCENTILES
    no_optimum = "the best policy needs batches, got tokens"
    map_cost = 0.2
    latency, energy = TTFT_P99, "joules_per_token"

    def metrics(self, devices: bool, sized: bool) -> Mapping[str, Metric]:
        return {**super().metrics(devices=False, sized=False), **TOKENS}

    def knobs(self, rule: Rule) -> dict[str, Callable[[str, Any], Any]]:
        memory = {MEMORY: _check.whole} if isinstance(rule, Continuous) else {}
        return super().knobs(rule) | memory

    def objectives(self, ttft_ms: float | None, tpot_ms: float | None) -> Objectives:
        given = {"ttft_objective_ms": ttft_ms, "tpot_objective_ms": tpot_ms}
        missing = [name for name, limit_ms in given.items() if limit_ms is None]
        if len(missing) == 1:
            raise ValueError(f"both objectives must be given, or neither, got no {missing[0]}")
        if missing:
            return None
        ttft_ms, tpot_ms = (_check.real(name, limit_ms, above=0) for name, limit_ms in given.items())
        return ttft_ms, tpot_ms

    def metric(self, objectives: Objectives) -> str:
        return TTFT_P99 if objectives is None else GOODPUT

    def point(self, scenario: Scenario, requests: int, seed: int) -> dict[str, float]:
        plan = draw_tokens_cached(scenario, requests, seed)
        check_lengths(scenario, lambda: [(plan.prompts, plan.outputs, plan.limits)])
        return tokens.of_curve(plan)

    def cells(
        self, scenario: Scenario, rules: Sequence[Rule | None], columns: int, requests: int, seed: int,
        objectives: Objectives, roughly: bool,
    ) -> Cells:  # fmt: skip
        plan = draw_tokens_cached(scenario, requests, seed)
        fits = tokens.fits_of(plan)
        cells: list[Scenario | None] = [
            None if rule is None else accepted(functools.partial(replace, scenario, rule=rule))
            for rule in rules
        ]
        cells = [cell if cell is not None and fits(cell.rule) else None for cell in cells]
        refused = np.array([cell is None for cell in cells])
        stable = tokens.stable_cells(cells, columns, roughly)
        steady = {place: cell for place in np.flatnonzero(stable).tolist() if (cell := cells[place])}
        ran = tokens.run_cells(plan, [*steady.values()], objectives) if steady else []
        runs = dict(zip(steady, ran, strict=True))
        values = np.full((3, len(cells)), math.nan)
        for place, run in runs.items():
            values[:, place] = run.metrics
        found = dict(zip((TTFT_P99, GOODPUT, ATTAINMENT), values, strict=True))
        value = found[self.metric(objectives)]
        losses = np.where(stable, value, math.inf)
        if objectives is not None:  # the less, the better; no request in time is as bad as can be
            losses = np.divide(1, value, out=np.full(len(cells), math.inf), where=value > 0)
        cuts = np.linspace(0, requests, CELL_SECTIONS + 1).astype(np.int64)

        def compare(places: np.ndarray, limit: float) -> tuple[np.ndarray, np.ndarray]:
            some = [runs[place] for place in places.tolist()]
            return np.array([run.worse(limit, cuts) for run in some]), np.array([run.mean_ms for run in some])

        # An estimate of the saturation rate will do for so many: no noise of a measurement moves the choice.
        # Settled at once: the runs' columns take more memory than the map.
        settled = settle(rules, losses, compare, lambda place: estimate_per_s(steady[place]))
        return Cells(found, ~(refused | stable), refused, lambda: settled)

    def first_unserved(self, points: Sequence[Scenario], streams: Streams, requests: int) -> float:
        return tokens.first_unserved(points, streams, available(points[0], requests))

    def least_ms(self, scenario: Scenario, seed: int, warmup: float) -> Mapping[str, np.ndarray]:
        if scenario.service.noise is not None:  # which makes steps as short as they like
            return {}
        return tokens.alone_ms(scenario, *tokens.lengths_of(scenario.tokens, seed, warmup))

    def in_steps(self, rule: Rule) -> bool:
        return isinstance(rule, Continuous)

    def one_ms(self, scenario: Scenario) -> float:
        service: Any = scenario.service
        return float(service.ms(1))


KINDS = {"requests": Requests(), "tokens": Tokens()}


def kind_of(scenario: Scenario) -> Requests:
    """Return what differs for scenarios of this kind."""
    return KINDS[scenario.kind]


def accepted(make: Callable[[], Any]) -> Any:
    """Return what `make` returns, None if it raises ValueError."""
    try:
        return make()
    except ValueError:
        return None


def _run_all(
    scenario: Scenario, rules: Sequence[Rule], requests: int, seed: int, per_cent: Sequence[float] = (99,),
    sections: int = 0, above_ms: float = math.inf,
) -> Callable[[str], np.ndarray]:  # fmt: skip
    """Run each setting on all cores; return a function that gives a metric of all by name."""
    from batchsim.engines.compiled.grid_runs import in_threads, run_many  # Numba loads on first use

    plan = draw_cached(scenario, requests, seed, max(rule.max_batch_size for rule in rules))
    shares = range(min(SHARES, len(rules)))

    def run(first: int) -> Any:
        return run_many(plan, rules[first :: len(shares)], per_cent, "inf", sections, above_ms)

    parts = in_threads(scenario, run, shares)
    order = np.argsort(np.arange(len(rules)) % len(shares), kind="stable").argsort()
    return lambda name: np.concatenate([getattr(part, name) for part in parts])[order]
