"""Token generation over a whole grid of settings: what a picture redraws at every move.

Every number is that of `simulate` under the same traffic, bit for bit.
"""

import functools
import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from batchsim import _check
from batchsim.engines.token_log import TokenPlan, draw_tokens_cached
from batchsim.result.sections import sums
from batchsim.scenario import Continuous, Rule, Scenario
from batchsim.scenario.rules.continuous import NeverServed, check_lengths
from batchsim.scenario.saturation import estimate_per_s
from batchsim.simulate import available, check_memory
from batchsim.study.kinds import TokenTimes, keeping_up
from batchsim.study.race import preference
from batchsim.study.surface import NEAR, SECTIONS, accepted, indistinct, rising

TTFT_P99, GOODPUT = "ttft_p99_ms", "goodput_per_s"  # the metrics of a surface
MEMORY = "kv_blocks"  # an axis, beside the parameters of a rule that describe themselves


@dataclass(frozen=True, eq=False)
class TokenSurface:
    """Metrics of every pair of settings under one traffic; arrays of shape (len(y_values), len(x_values)).

    `ttft_p99_ms` is of all requests, those that were not served being infinitely late. `goodput_per_s` and
    `attainment` are of the requests served within both objectives; NaN without these. All three are NaN where
    the pair is `refused`, as the rule, the scenario or the memory refuses it, and where it is `overloaded`:
    there is no steady state, and nothing is run. `metric` is the one by which settings are compared,
    "goodput_per_s" where there are objectives, else "ttft_p99_ms", and `values` are its values.
    """

    scenario: Scenario
    requests: int
    seed: int
    x: str
    y: str
    x_values: tuple[Any, ...]
    y_values: tuple[Any, ...]
    ttft_objective_ms: float | None
    tpot_objective_ms: float | None
    ttft_p99_ms: np.ndarray
    goodput_per_s: np.ndarray
    attainment: np.ndarray
    overloaded: np.ndarray
    refused: np.ndarray
    tied: np.ndarray = field(repr=False)
    chosen: tuple[int, int] | None = field(repr=False)
    rules: tuple[Rule | None, ...] = field(repr=False)  # of the cells, row by row; None for one refused

    @property
    def metric(self) -> str:
        return TTFT_P99 if self.ttft_objective_ms is None else GOODPUT

    @property
    def values(self) -> np.ndarray:
        """The values of `metric`."""
        values: np.ndarray = getattr(self, self.metric)
        return values

    def rule_at(self, cell: tuple[int, int]) -> Rule | None:
        """Return the rule of a cell, (row, column); None for one that is refused."""
        return self.rules[cell[0] * len(self.x_values) + cell[1]]

    def best(self) -> tuple[int, int] | None:
        """Return (row, column) of the setting to take: of the `ties`, by `preference`; None without any."""
        return self.chosen

    def ties(self) -> np.ndarray:
        """Return which settings are statistically the same as the one of the best value, itself included.

        Each pair has met the same requests. In each of 16 sections of the run it is counted how many of them
        kept both objectives, or had their first token later than the lowest p99; two settings are told apart
        where the 95 % interval of the mean difference does not contain 0.
        """
        return self.tied

    def __repr__(self) -> str:
        shape = f"{len(self.x_values)} {self.x} x {len(self.y_values)} {self.y}"
        return f"TokenSurface({self.metric}, {shape}, {self.requests:,} requests each)"


def token_surface(
    scenario: Scenario, x_values: Sequence[Any], y_values: Sequence[Any], requests: int = 20_000,
    seed: int = 0, *, knobs: tuple[str, str] | None = None, ttft_objective_ms: float | None = None,
    tpot_objective_ms: float | None = None, roughly: bool = False,
) -> TokenSurface:  # fmt: skip
    """Return the p99 of TTFT, and with two objectives the goodput, over two parameters of a rule.

    `knobs`, x and y, are its `map_knobs`, if not others of its parameters; of `Continuous` also "kv_blocks".
    The values of both must rise. The objectives, both or neither, are what goodput counts. Of a trace, or of
    listed lengths, shorter than `requests`, all is taken. `roughly`: which cells are overloaded may be wrong
    within some 3 % of saturation. Raises ValueError for a scenario without tokens,
    and for a rule that the compiled engine does not cover.

    >>> from batchsim import Geometric, Poisson, StepTime, Tokens
    >>> step = StepTime(fixed_ms=7, weights_ms=10, per_token_ms=0.1)
    >>> tokens = Tokens(prompt=400, output=Geometric(100))
    >>> scenario = Scenario(Poisson(8), Continuous(kv_blocks=2000), step, tokens=tokens)
    >>> found = token_surface(scenario, [16, 32, 64], [512, 2048], requests=2000)
    >>> found.ttft_p99_ms.round()
    array([[ nan, 190., 190.],
           [ nan, 174., 174.]])
    >>> found.overloaded[0].tolist(), found.best()
    ([True, False, False], (1, 2))
    """
    requests, seed = checked(scenario, requests, seed)
    objectives = _objectives(ttft_objective_ms, tpot_objective_ms)
    x, y = _two(scenario.rule, scenario.rule.map_knobs if knobs is None else knobs)
    xs, ys = (_rising(scenario.rule, name, given) for name, given in ((x, x_values), (y, y_values)))
    plan = draw_tokens_cached(scenario, requests, seed)
    rules = _rules(scenario.rule, x, xs, y, ys)
    fits = functools.cache(functools.partial(_fits, plan))
    cells = [None if rule is None else _cell(scenario, rule, fits) for rule in rules]
    refused = np.array([cell is None for cell in cells])
    stable = keeping_up(cells, len(xs), roughly)
    overloaded = ~(refused | stable)
    steady = [cell for cell, keeps_up in zip(cells, stable, strict=True) if cell is not None and keeps_up]
    columns, tied, chosen = np.full((3, len(cells)), math.nan), np.zeros(len(cells), bool), None
    if steady:
        places = np.flatnonzero(stable)
        numbers = _run_all(plan, steady, objectives)
        columns[:, places] = np.array([each.of_surface for each in numbers]).T
        same, best = _told_apart(steady, numbers, objectives is not None)
        tied[places[same]] = True
        chosen = None if best is None else divmod(int(places[best]), len(xs))
    ttft_p99_ms, goodput_per_s, attainment = columns.reshape(3, *(shape := (len(ys), len(xs))))
    kept = tuple(rule if cell else None for rule, cell in zip(rules, cells, strict=True))
    return TokenSurface(
        scenario, requests, seed, x, y, xs, ys, ttft_objective_ms, tpot_objective_ms,
        ttft_p99_ms, goodput_per_s, attainment, overloaded.reshape(shape), refused.reshape(shape),
        tied.reshape(shape), chosen, kept,
    )  # fmt: skip


class _Numbers(NamedTuple):
    """What is kept of a setting: `counted` is each request's TTFT, or whether it kept the objectives."""

    of_surface: tuple[float, float, float]
    mean_ms: float
    counted: np.ndarray


def _run_all(
    plan: TokenPlan, cells: Sequence[Scenario], objectives: tuple[float, float] | None
) -> list[_Numbers]:
    """Run each setting, all cores at work; those that make the same steps as another are not run again."""
    from batchsim.engines.compiled.grid_runs import (
        PeakUse,
        in_threads,  # Numba loads on first use
        run_times,
        same_steps,
    )

    ran: list[tuple[Rule, PeakUse, _Numbers]] = []

    def known(cell: Scenario) -> _Numbers | None:
        return next((numbers for rule, most, numbers in ran if same_steps(rule, most, cell.rule)), None)

    def run(cell: Scenario) -> _Numbers:
        if numbers := known(cell):
            return numbers
        times = run_times(replace(plan, base=replace(plan.base, scenario=cell)))
        numbers = _numbers(TokenTimes(times), objectives)
        ran.append((cell.rule, times.most, numbers))
        return numbers

    # The last has the most seats, and the largest budget: what it does not use, others do not need.
    run(cells[-1])
    left = [cell for cell in reversed(cells) if known(cell) is None]
    # Few jobs, as each wakes a thread, which takes longer than many a run where other programs compute, too.
    jobs = min(os.cpu_count() or 1, len(left))
    in_threads(plan.scenario, lambda first: [run(cell) for cell in left[first::jobs]], range(jobs))
    return [run(cell) for cell in cells]


def _numbers(times: TokenTimes, objectives: tuple[float, float] | None) -> _Numbers:
    ttft_ms = float(times.percentiles_ms(times.ttft_ms, 99, of_all=True)[0])
    mean_ms = float(times.numbers["mean_latency_ms"])
    if objectives is None:
        return _Numbers((ttft_ms, math.nan, math.nan), mean_ms, times.ttft_ms)
    met = times.meeting(*objectives)
    count = int(np.count_nonzero(met))
    return _Numbers((ttft_ms, times.per_s(count), count / met.size), mean_ms, met)


def _told_apart(
    cells: Sequence[Scenario], numbers: Sequence[_Numbers], of_goodput: bool
) -> tuple[np.ndarray, int | None]:
    """Return which settings cannot be told from the best, by their places, and which of them to take."""
    values = np.array([each.of_surface[1 if of_goodput else 0] for each in numbers])
    # The less, the better; no request in time is as bad as can be.
    losses = (
        np.divide(1, values, out=np.full(values.size, math.inf), where=values > 0) if of_goodput else values
    )
    first = int(np.argmin(losses))
    if not losses[first] < math.inf:
        return np.empty(0, int), None
    near = np.flatnonzero(losses <= NEAR * losses[first])
    cuts = np.linspace(0, numbers[0].counted.size, SECTIONS + 1).astype(int)

    def count(place: int) -> np.ndarray:
        counted = numbers[place].counted
        return sums(counted if of_goodput else ~(counted <= values[first]), cuts)

    difference = np.array([count(place) for place in near.tolist()]) - count(first)
    same = near[indistinct(difference)]

    def order(place: Any) -> tuple[float, ...]:
        # Of so many an estimate does: no noise of a measurement moves the choice.
        return preference(estimate_per_s(cells[place]), numbers[place].mean_ms, cells[place].rule.max_wait_ms)

    return same, int(min(same, key=order))


@functools.lru_cache(maxsize=8)  # a slider that moves the traffic asks for the same rules again and again
def _rules(rule: Rule, x: str, xs: tuple[Any, ...], y: str, ys: tuple[Any, ...]) -> tuple[Rule | None, ...]:
    """Return the rule of each cell, row by row; None where the rule refuses the pair."""
    pairs = ({x: of_x, y: of_y} for of_y in ys for of_x in xs)
    return tuple(accepted(functools.partial(replace, rule, **pair)) for pair in pairs)  # type: ignore[type-var]


def _fits(plan: TokenPlan, rule: Rule) -> bool:
    """Return whether every request can be served under a rule, sooner or later."""
    try:
        check_lengths(replace(plan.scenario, rule=rule), lambda: [(plan.prompts, plan.outputs, plan.limits)])
    except NeverServed:
        return False
    return True


def _cell(scenario: Scenario, rule: Rule, fits: Callable[[Rule], bool]) -> Scenario | None:
    """Return the scenario under a rule; None where it is refused."""
    cell: Scenario | None = accepted(lambda: replace(scenario, rule=rule))
    alike = rule
    if isinstance(rule, Continuous) and rule.chunked:  # then what fits depends on the memory alone
        alike = replace(rule, max_num_seqs=1, max_num_batched_tokens=1)
    return cell if cell is not None and fits(alike) else None


def checked(scenario: Scenario, requests: int, seed: int) -> tuple[int, int]:
    """Return the requests, as many as there are, and the seed, or raise."""
    _check.instance("scenario", scenario, Scenario, "a Scenario")
    if scenario.tokens is None:
        raise ValueError("tokens are needed (Scenario(..., tokens=...)), got a scenario without")
    if not scenario.rule.compiled:
        raise ValueError(f"the rule must be one that the compiled engine covers, got {scenario.rule!r}")
    requests = available(scenario, _check.whole("requests", requests))
    requests = min(requests, scenario.tokens.max_requests or requests)
    check_memory(scenario, requests)
    return requests, _check.whole("seed", seed, at_least=0, at_most=None)


def _objectives(ttft_ms: float | None, tpot_ms: float | None) -> tuple[float, float] | None:
    given = {"ttft_objective_ms": ttft_ms, "tpot_objective_ms": tpot_ms}
    missing = [name for name, limit_ms in given.items() if limit_ms is None]
    if len(missing) == 1:
        raise ValueError(f"the objectives must be both given, or none, got no {missing[0]}")
    if missing:
        return None
    ttft_ms, tpot_ms = (_check.real(name, limit_ms, above=0) for name, limit_ms in given.items())
    return ttft_ms, tpot_ms


def _two(rule: Rule, knobs: Any) -> tuple[str, str]:
    if not _check.listed(knobs) or len(knobs) != 2 or knobs[0] == knobs[1]:
        raise ValueError(f"knobs must be two different ones, got {knobs!r}")
    known = [*rule.parameters(), *([MEMORY] if isinstance(rule, Continuous) else [])]
    x, y = (_check.one_of("a knob", knob, known) for knob in knobs)
    return x, y


def _rising(rule: Rule, name: str, given: Sequence[Any]) -> tuple[Any, ...]:
    check = _check.whole if name == MEMORY else rule.parameters()[name].check
    return rising(name, check, given)
