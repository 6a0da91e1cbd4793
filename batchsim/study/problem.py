"""A search as a problem for other optimisers: ask for a setting, evaluate it, tell the result."""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from batchsim import _check
from batchsim.scenario import Scenario
from batchsim.simulate import check_memory, check_requests
from batchsim.study import phrases
from batchsim.study.capacity import check, check_loss
from batchsim.study.grid import Grid
from batchsim.study.judgement import STRICT, Verdict, out_of_reach
from batchsim.study.race import Race, numbers_of
from batchsim.study.slo import LEVEL, SLO
from batchsim.study.traffic import Traffic


class Evaluation(NamedTuple):
    """One run of a setting.

    `value` is the latency that `tune` ranks settings by (the highest percentile of the objective, or its
    mean), with the interval `low` to `high` that the race tests, NaN if the run is too short for one: of 95 %
    in a full run, of 99.9 % in a shorter one, which may be too short for that level. `feasible`: whether the
    estimates meet the objective, without confidence; `why` explains it. `excess` is the largest ratio of an
    estimate to its limit: `excess - 1` is at most 0 if feasible, as optimisers want a constraint. A setting
    that the scenario refuses, or that has no steady state, has an infinite value.
    """

    value: float
    low: float
    high: float
    feasible: bool
    why: str
    excess: float
    requests: int


class Problem:
    """The settings of a grid, to be evaluated one by one; any optimiser may drive it.

    `lengths` are the lengths of runs that `tune` uses: an optimiser may stop a setting after each. All
    settings meet the same requests at each length (common random numbers). `ask()` returns the next setting
    of the grid that was not told, None after the last; `tell` stores an evaluation, and `best` is the
    feasible setting of the lowest value among the longest runs. An evaluation of many settings takes the
    luckiest, so confirm the choice by another seed: `tune` does.

    >>> from batchsim import Affine, Poisson, SizeOrWait
    >>> scenario = Scenario(Poisson(1400), SizeOrWait(), Affine(5, 0.25))
    >>> problem = Problem(scenario, SLO(p99_ms=50), {"max_batch_size": [4, 32], "max_wait_ms": [0, 20]})
    >>> while (knobs := problem.ask()) is not None:
    ...     problem.tell(knobs, problem.evaluate(knobs, problem.lengths[1]))
    >>> problem.best()
    {'max_batch_size': 32, 'max_wait_ms': 0}
    """

    def __init__(
        self, scenario: Scenario, slo: SLO, over: Mapping[str, Any], requests: int | None = None,
        seed: int = 0,
    ) -> None:  # fmt: skip
        check(scenario, slo)
        count = check_requests(scenario, requests)
        check_memory(scenario, count)
        seed = _check.whole("seed", seed, at_least=0, at_most=None)
        self.scenario, self.slo, self.grid = scenario, slo, Grid.of(scenario, over)
        self.traffic = Traffic(scenario, count, seed)
        race = Race(slo, self.traffic, self.traffic, ())
        self.lengths = tuple(dict.fromkeys([*race.short, self.traffic.requests]))
        self._told: dict[int, Evaluation] = {}

    @property
    def over(self) -> dict[str, list[Any]]:
        """The values of each knob, such as a grid sampler wants them."""
        return {axis.name: list(axis.values) for axis in self.grid.axes}

    def evaluate(self, knobs: Mapping[str, Any], requests: int | None = None) -> Evaluation:
        """Run a setting, of the grid or not, with so many of the requests (default: all)."""
        requests = self.lengths[-1] if requests is None else _check.whole("requests", requests)
        _check.at_most("requests", requests, self.lengths[-1], "those of the problem")
        try:
            point = self.scenario.replace(dict(knobs))
        except ValueError as refusal:
            return _without_a_run(str(refusal))
        if point.workload is not self.scenario.workload or point.tokens is not self.scenario.tokens:
            raise ValueError(f"a setting must not change the workload, got {', '.join(knobs)}")
        check_loss(point, self.slo)
        if missed := out_of_reach(point, self.slo, self.traffic.seed):
            return _without_a_run(missed.text)
        if not point.stable:
            return _without_a_run(phrases.overload(point))
        whole = requests == self.traffic.requests
        ran = numbers_of(
            self.traffic.run(point, requests), self.slo, point, whole, LEVEL if whole else STRICT
        )
        feasible = ran.judgement.excess <= 1 and ran.judgement.verdict is not Verdict.FAILS
        latency = ran.judgement.estimates.get(self.slo.latency, ran.latency)
        return Evaluation(*latency, feasible, phrases.finding(ran.judgement), ran.judgement.excess, requests)

    def ask(self) -> dict[str, Any] | None:
        """Return the next setting of the grid that was not told; None after the last."""
        number = next((each for each in range(len(self.grid)) if each not in self._told), None)
        return None if number is None else self.grid.knobs(number)

    def tell(self, knobs: Mapping[str, Any], evaluation: Evaluation) -> None:
        """Store the evaluation of a setting of the grid; one of a longer run replaces it."""
        number = next((each for each in range(len(self.grid)) if self.grid.knobs(each) == dict(knobs)), None)
        if number is None:
            raise ValueError(f"a setting told must be one of the grid, got {dict(knobs)!r}")
        _check.instance("what is told", evaluation, Evaluation, "an Evaluation")
        if number not in self._told or evaluation.requests >= self._told[number].requests:
            self._told[number] = evaluation

    def best(self) -> dict[str, Any] | None:
        """Return the feasible setting of the lowest value among the longest runs told; None without one."""
        feasible = {number: each for number, each in self._told.items() if each.feasible}
        longest = max((each.requests for each in feasible.values()), default=0)
        ran = {number: each for number, each in feasible.items() if each.requests == longest}
        return self.grid.knobs(min(ran, key=lambda number: ran[number].value)) if ran else None


def _without_a_run(why: str) -> Evaluation:
    return Evaluation(math.inf, math.nan, math.nan, False, why, math.inf, 0)
