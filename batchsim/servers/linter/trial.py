"""Runs of settings as they are and with changes, in the same traffic."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from batchsim._compat import kept
from batchsim.result import Result
from batchsim.result.comparison import compare
from batchsim.scenario import ClosedLoop, Scenario
from batchsim.servers.server import Server, ServerConfig
from batchsim.simulate import available, simulate

P99 = "p99_ms"
PARTS, LEAST = 4, 500  # the parts of a run without an interval, and the requests in each


@dataclass(frozen=True, eq=False)
class Outcome:
    """A scenario with some settings, and its run."""

    change: Mapping[str, Any]
    scenario: Scenario
    run: Callable[[Scenario], Result]

    @property
    def overloaded(self) -> bool:
        """Whether more arrives than full batches carry, so that limits and timeouts only lose requests."""
        return self.load >= 1

    @property
    def load(self) -> float:
        """The arrival rate over the rate that full batches carry."""
        workload = self.scenario.workload
        if isinstance(workload, ClosedLoop):
            return math.nan
        full = self.scenario.full_batches_per_s
        return workload.offered_per_s / full if full else 0.0  # all rejected for their size: none computes

    @kept
    def result(self) -> Result:
        return self.run(self.scenario)

    @kept
    def loss(self) -> float:
        totals = self.result.metrics
        return 1 - totals.served / int(totals.totals.requests)

    @kept
    def p99_ms(self) -> float:
        """The p99 of all requests, with infinity for a lost one; inf if overloaded."""
        return math.inf if self.overloaded else self.result.percentile(99, unserved="inf")

    @property
    def mean_ms(self) -> float:
        return math.inf if self.overloaded else self.result.mean_latency_ms

    def beats(self, other: "Outcome", part: float) -> bool:
        """Return whether the p99 is significantly lower, by this part of the other's, and nothing is worse.

        "Worse": a higher mean or loss.
        """
        if math.inf in (self.p99_ms, other.p99_ms):
            return self.p99_ms < math.inf
        if self.p99_ms > (1 - part) * other.p99_ms:
            return False
        if self.loss > other.loss + 1e-3 or self.mean_ms > 1.02 * other.mean_ms:
            return False
        high = compare(other.result, self.result, [P99], silent=True)[P99].high
        return self._in_each_part(other, part) if math.isnan(high) else high < 0

    def _in_each_part(self, other: "Outcome", part: float) -> bool:
        """Return whether the p99 is lower in each part of the run.

        Near its limit a queue moves too slowly for an interval, however large the difference.
        """
        mine, others = (np.array_split(each.result.latency_ms, PARTS) for each in (self, other))
        if len(mine[0]) < LEAST:
            return False
        p99s = np.array([[np.nanpercentile(each, 99) for each in parts] for parts in (mine, others)])
        return bool((p99s[0] <= (1 - part) * p99s[1]).all())

    def effect_over(self, other: "Outcome") -> float:
        """Return the factor by which the other's p99 exceeds this one's."""
        return math.inf if other.p99_ms == math.inf else other.p99_ms / self.p99_ms


@dataclass
class Trial:
    """A server's settings under a scenario; `outcome(name=value)` runs changed ones."""

    server: Server
    config: ServerConfig
    base: Scenario
    requests: int
    seed: int
    _outcomes: dict[str, Outcome | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        meant = self.config.apply(self.base, silent=True)
        try:
            same = self.server.configure(self.settings).apply(self.base, silent=True) == meant
        except (TypeError, ValueError):
            same = False
        if not same:
            must = "a config must have the settings of its rule, as from servers.config"
            raise ValueError(f"{must}, got {self.config.rule!r} and settings={dict(self.settings)!r}")

    @property
    def settings(self) -> dict[str, Any]:
        """The settings, without unknown ones."""
        known = self.server.settings
        return {name: value for name, value in self.config.settings.items() if name in known}

    def setting(self, name: str) -> Any:
        """Return the value of a setting, given or default."""
        return self.settings.get(name, self.server.default(name))

    def said(self, name: str) -> str:
        """Return a setting as it is written: `name=value`."""
        return f"{name}={self.setting(name)!r}"

    @kept
    def now(self) -> Outcome:
        """The outcome of the settings as they are."""
        return Outcome({}, self.config.apply(self.base, silent=True), self._run)

    @kept
    def alone(self) -> Outcome:
        """The outcome with a device for each server."""
        return self.other(replace(self.now.scenario, devices=None))

    def outcome(self, **change: Any) -> Outcome | None:
        """Return the outcome of changed settings; None if the server or the scenario refuses them."""
        key = repr(sorted(change.items()))
        if key not in self._outcomes:
            try:
                config = self.server.configure({**self.settings, **change})
                self._outcomes[key] = Outcome(change, config.apply(self.base, silent=True), self._run)
            except ValueError:
                self._outcomes[key] = None
        return self._outcomes[key]

    def other(self, scenario: Scenario) -> Outcome:
        """Return the outcome of a change outside the settings."""
        return Outcome({}, scenario, self._run)

    def resized(self, size: int, wait_ms: float | None = None) -> Outcome | None:
        """Return the outcome of another largest batch, without larger sizes, and of another wait if given."""
        words = self.server.words
        change: dict[str, Any] = {words.size: size}
        if wait_ms is not None and words.wait:
            change[words.wait] = words.wait_of(wait_ms)
        for name in (words.sizes, "preferred_batch_size"):
            if sizes := self.settings.get(name):
                smaller = [each for each in sizes if each < size]
                change[name] = [*smaller, size] if name == words.sizes else [*smaller, *{size} & {*sizes}]
        return self.outcome(**change)

    def waited(self, wait_ms: float) -> Outcome | None:
        """Return the outcome of another wait."""
        words = self.server.words
        return self.outcome(**{words.wait: words.wait_of(wait_ms)})

    def _run(self, scenario: Scenario) -> Result:
        return simulate(scenario, available(scenario, self.requests), self.seed, keep="requests")
