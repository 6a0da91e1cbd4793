"""What a preset is: a serving system's own words, and the scenario that they mean."""

import dataclasses
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from batchsim import _check
from batchsim.scenario import ClosedLoop, OpenLoop, Rule, Scenario, Service
from batchsim.scenario.priorities import Shares


@dataclass(frozen=True)
class ServerConfig:
    """What a server's settings mean: a rule, and the parts of a scenario that the same file sets.

    `pad_to`: sizes up to which batches are padded. `settings` are the server's own, by their own names;
    `unused` those of them that make no difference here.

    A server with `priority_levels` takes the workload's levels as they are, those beyond its last one for
    its `default_priority_level`, and so all requests of a workload without. Where there are none (0), it
    serves all requests in order of arrival: a workload's priorities are dropped. Limits by level are
    {level: value}.
    """

    server: str
    rule: Rule
    servers: int = 1
    queue_limit: int | Mapping[int, int] | None = None
    timeout_ms: float | Mapping[int, float] | None = None
    pad_to: tuple[int, ...] = ()
    timeout_action: str | Mapping[int, str] = "reject"
    priority_levels: int = 0
    default_priority_level: int = 0
    settings: Mapping[str, Any] = field(default_factory=dict, repr=False)
    unused: Mapping[str, Any] = field(default_factory=dict)

    def scenario(self, workload: OpenLoop | ClosedLoop, service: Service) -> Scenario:
        """Return the scenario of this server under a workload."""
        return self.apply(Scenario(workload, self.rule, service))

    def apply(self, scenario: Scenario) -> Scenario:
        """Return a scenario with this server's rule, number of servers, limits and padding."""
        _check.instance("scenario", scenario, Scenario, "a Scenario")
        service = scenario.service.padded_to(self.pad_to) if self.pad_to else scenario.service
        workload = scenario.workload
        shares = self._shares(workload.priorities)
        if shares != workload.priorities:
            workload = dataclasses.replace(workload, priorities=shares)
        queue_limit, timeout_ms, action = (
            self._limit(limit, shares) for limit in (self.queue_limit, self.timeout_ms, self.timeout_action)
        )
        return dataclasses.replace(
            scenario, workload=workload, rule=self.rule, service=service, servers=self.servers,
            queue_limit=queue_limit, timeout_ms=timeout_ms, timeout_action=action or "reject",
        )  # fmt: skip

    def _shares(self, shares: Shares | None) -> Shares | None:
        """Return the shares of the levels that the server knows."""
        if not self.priority_levels or shares is None:
            return None
        known: dict[int, float] = {}
        for level, share in shares:
            level = level if level <= self.priority_levels else self.default_priority_level
            known[level] = known.get(level, 0) + share
        return tuple(sorted(known.items()))

    def _limit(self, limit: Any, shares: Shares | None) -> Any:
        """Return a limit of the levels that there are, or of the one that all requests have."""
        if not isinstance(limit, Mapping):
            return limit
        if shares is None:
            return limit.get(self.default_priority_level)
        return {level: limit[level] for level, _ in shares if level in limit} or None


@dataclass(frozen=True)
class Server:
    """A serving system: `rule` and `config` take its own settings; `ignored` have no effect on either."""

    name: str
    version: str
    rule: Callable[..., Rule]
    config: Callable[..., ServerConfig]
    ignored: tuple[str, ...] = ()

    def configure(self, settings: Mapping[str, Any]) -> ServerConfig:
        """Return what the settings mean, or raise ValueError for one that the server does not have."""
        known = [*inspect.signature(self.config).parameters, *self.ignored]
        for name in settings:
            if name not in known:
                hint = _check.nearest(name, known)
                raise ValueError(f"a setting of {self.name} must be one that it has, got {name!r}{hint}")
        used = {name: value for name, value in settings.items() if name not in self.ignored}
        ignored = {name: value for name, value in settings.items() if name in self.ignored}
        found = self.config(**used)
        return dataclasses.replace(found, settings=dict(settings), unused={**found.unused, **ignored})
