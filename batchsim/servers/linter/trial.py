"""Settings on trial: runs of them and of changed ones, in the same traffic."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from batchsim import _check
from batchsim.result import Result
from batchsim.result.comparison import compare
from batchsim.scenario import ClosedLoop, Scenario
from batchsim.servers.server import Server, ServerConfig
from batchsim.simulate import available, simulate

LOST = 0.01  # the share of requests from which a p99 of all of them is infinite
P99 = "p99_ms"
PARTS, LEAST = 4, 500  # of a run that has no interval, and the requests in each


@dataclass(frozen=True, eq=False)
class Outcome:
    """A scenario with some settings, and its run."""

    change: Mapping[str, Any]
    scenario: Scenario
    run: Callable[[Scenario], Result]

    @property
    def overloaded(self) -> bool:
        """Whether more arrives than is carried; a limit or a timeout then only makes it lost."""
        return self.load >= 1

    @property
    def load(self) -> float:
        """What arrives over what is carried."""
        workload = self.scenario.workload
        if isinstance(workload, ClosedLoop):
            return math.nan
        return workload.offered_per_s / self.scenario.full_batches_per_s

    @cached_property
    def result(self) -> Result:
        return self.run(self.scenario)

    @cached_property
    def loss(self) -> float:
        totals = self.result.metrics
        return 1 - totals.served / int(totals.totals.requests)

    @cached_property
    def p99_ms(self) -> float:
        """Of all requests, a lost one being infinitely late; inf if overloaded."""
        return math.inf if self.overloaded else self.result.percentile(99, unserved="inf")

    @property
    def mean_ms(self) -> float:
        return math.inf if self.overloaded else self.result.mean_latency_ms

    def beats(self, other: "Outcome", part: float) -> bool:
        """Return whether the p99 is below the other's, surely and by this part of it, and nothing is worse.

        Worse were a mean, or a loss, above the other's.
        """
        if math.inf in (self.p99_ms, other.p99_ms):
            return self.p99_ms < math.inf
        if self.p99_ms > (1 - part) * other.p99_ms:
            return False
        if self.loss > other.loss + 1e-3 or self.mean_ms > 1.02 * other.mean_ms:
            return False
        # In the same traffic.
        high = compare(other.result, self.result, [P99], silent=True)[P99].high
        return self._in_each_part(other, part) if math.isnan(high) else high < 0

    def _in_each_part(self, other: "Outcome", part: float) -> bool:
        """Return whether the p99 is lower in each part of the run.

        Near its limit a queue moves so slowly that no interval can be given, however far two are apart.
        """
        mine, others = (np.array_split(each.result.latency_ms, PARTS) for each in (self, other))
        if len(mine[0]) < LEAST:
            return False
        p99s = np.array([[np.nanpercentile(each, 99) for each in parts] for parts in (mine, others)])
        return bool((p99s[0] <= (1 - part) * p99s[1]).all())

    def effect_over(self, other: "Outcome") -> float:
        """Return by which factor the other's p99 is above this one's."""
        return math.inf if other.p99_ms == math.inf else other.p99_ms / self.p99_ms


@dataclass
class Trial:
    """A server's settings under a scenario; `outcome(name=value)` is that of changed ones."""

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
            must = "a config must have the settings that it means, as of servers.config"
            raise ValueError(f"{must}, got {self.config.rule!r} and settings={dict(self.settings)!r}")

    @property
    def settings(self) -> dict[str, Any]:
        """The settings that the server has."""
        known = self.server.settings
        return {name: value for name, value in self.config.settings.items() if name in known}

    def setting(self, name: str) -> Any:
        """Return a setting as it is, by default or by choice."""
        return self.settings.get(name, self.server.default(name))

    def said(self, name: str) -> str:
        """Return a setting as it is written: `name=value`."""
        return f"{name}={self.setting(name)!r}"

    @cached_property
    def now(self) -> Outcome:
        """The settings as they are."""
        return Outcome({}, self.config.apply(self.base, silent=True), self._run)

    @cached_property
    def alone(self) -> Outcome:
        """The same with a device for each server."""
        return self.other(replace(self.now.scenario, devices=None))

    def outcome(self, **change: Any) -> Outcome | None:
        """Return what changed settings do; None where the server or the scenario refuses them."""
        key = repr(sorted(change.items()))
        if key not in self._outcomes:
            try:
                config = self.server.configure({**self.settings, **change})
                self._outcomes[key] = Outcome(change, config.apply(self.base, silent=True), self._run)
            except ValueError:
                self._outcomes[key] = None
        return self._outcomes[key]

    def other(self, scenario: Scenario) -> Outcome:
        """Return what a change outside the settings does."""
        return Outcome({}, scenario, self._run)

    def resized(self, size: int, wait_ms: float | None = None) -> Outcome | None:
        """Return what another largest batch does, sizes beyond it left out, and another wait if given."""
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
        """Return what another wait does."""
        words = self.server.words
        return self.outcome(**{words.wait: words.wait_of(wait_ms)})

    def _run(self, scenario: Scenario) -> Result:
        return simulate(scenario, available(scenario, self.requests), self.seed, keep="requests")


def checked(config: Any, scenario: Any) -> None:
    """Refuse what is no config, and no scenario."""
    _check.instance("config", config, ServerConfig, "a ServerConfig, as of servers.config")
    _check.instance("scenario", scenario, Scenario, "a Scenario")
