"""What a preset is: a serving system's own words, and the scenario that they mean."""

import dataclasses
import inspect
import math
import reprlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from batchsim import _check, _format
from batchsim._format import typed
from batchsim.scenario import ClosedLoop, OpenLoop, Rule, Scenario, Service
from batchsim.scenario.priorities import Shares
from batchsim.scenario.rules import LearnedSizes
from batchsim.scenario.tokens import Tokens

LONGEST = 60  # letters of a value that is printed
_SHORT = reprlib.Repr()
_SHORT.maxlevel, _SHORT.maxother, _SHORT.maxstring = 3, LONGEST, LONGEST


@dataclass(frozen=True, repr=False)
class ServerConfig:
    """What a server's settings mean: a rule, and the parts of a scenario that the same file sets.

    `pad_to`: sizes up to which batches are padded. `settings` are the server's own, by their own names;
    `unused` is what makes no difference here: some of the settings, and whatever else a file says, by its
    place in it. `unknown` are keys of a file that the server does not have, each with the nearest that it
    has, "" if there is none; `notes` are sentences on what the file means. None of it is printed where empty.

    A server with `priority_levels` takes the workload's levels as they are, those beyond its last one for
    its `default_priority_level`, and so all requests of a workload without. Where there are none (0), it
    serves all requests in order of arrival: a workload's priorities are dropped. Limits by level are
    {level: value}.

    `devices`: on how many devices the servers are, where some share one; None: each has its own. How they
    share it is not in the file: see `apply`.

    >>> from batchsim import servers
    >>> servers.config("triton", max_batch_size=32, count=2, preserve_ordering=True)
    triton: SizeOrWait(max_batch_size=32, max_wait_ms=0) on 2 servers that share 1 device
      unused       preserve_ordering=True
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
    devices: int | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    unused: Mapping[str, Any] = field(default_factory=dict)
    unknown: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    kept: Mapping[str, Any] = field(default_factory=dict)  # of a file, written again while it says the same

    def __repr__(self) -> str:
        levels = f"1 to {self.priority_levels}, {self.default_priority_level} unless a request says another"
        parts = {
            "levels": [levels] if self.priority_levels else [],
            "queue limit": limits_in_words(self.queue_limit),
            "timeout": timeouts_in_words(self.timeout_ms, self.timeout_action),
            "padded to": [", ".join(map(str, self.pad_to))] if self.pad_to else [],
            "unused": [f"{key}={_short(value)}" for key, value in self.unused.items()],
            "unknown": [
                key + (f" (did you mean {near!r}?)" if near else "") for key, near in self.unknown.items()
            ],
            "note": list(self.notes),
        }
        share = f" that share {_format.counted(self.devices, 'device')}" if self.devices else ""
        lines = [f"{self.server}: {self.rule!r} on {_format.counted(self.servers, 'server')}{share}"]
        for name, part in parts.items():
            lines += [f"  {'' if number else name:<12} {text}" for number, text in enumerate(part)]
        return "\n".join(lines)

    def scenario(
        self, workload: OpenLoop | ClosedLoop, service: Service, tokens: Tokens | None = None
    ) -> Scenario:
        """Return the scenario of this server under a workload."""
        return self.apply(Scenario(workload, self._rule(service), service, tokens=tokens))

    def apply(self, scenario: Scenario, *, silent: bool = False) -> Scenario:
        """Return a scenario with this server's rule, number of servers, limits and padding.

        Where servers share devices, the scenario's `host_ms` and `contention`, or its own `devices` or
        `slowdown`, say how. Without, they take turns, and a warning says between which rates the truth lies.
        """
        _check.instance("scenario", scenario, Scenario, "a Scenario")
        service = scenario.service.padded_to(self.pad_to) if self.pad_to else scenario.service
        workload = scenario.workload
        shares = self._shares(workload.priorities)
        if shares != workload.priorities:
            workload = dataclasses.replace(workload, priorities=shares)
        queue_limit, timeout_ms, action = (
            self._limit(limit, shares) for limit in (self.queue_limit, self.timeout_ms, self.timeout_action)
        )
        told = scenario.devices is not None or scenario.slowdown is not None
        found = dataclasses.replace(
            scenario, workload=workload, rule=self._rule(service), service=service, servers=self.servers,
            queue_limit=queue_limit, timeout_ms=timeout_ms, timeout_action=action or "reject",
            devices=scenario.devices if told else self.devices,
        )  # fmt: skip
        if not silent and self.untold(scenario):
            low, high = (
                each.full_batches_per_s for each in (found, dataclasses.replace(found, devices=None))
            )
            _check.warn(self.sharing_unknown(f"full batches carry {_format.rate(low)}", _format.rate(high)))
        return found

    def untold(self, scenario: Scenario) -> bool:
        """Return whether servers share devices and a scenario does not say how."""
        said = scenario.host_ms > 0 or scenario.contention > 1 or scenario.slowdown is not None
        return self.devices is not None and scenario.devices is None and not said

    def sharing_unknown(self, low: str, high: str) -> str:
        """Return that it was not measured how servers share devices, and the range of a number."""
        devices = _format.counted(self.devices or 1, "device")
        ends = f"{low} if they take turns (simulated), {high} if each computes as if alone"
        how = "measure it with scenario.replace(bs.device.measure_sharing(model))"
        return f"how {self.servers} servers share {devices} was not measured: {ends}; {how}"

    def _rule(self, service: Service) -> Rule:
        """Return the rule; one that learns its sizes tries none of which the service time is not known."""
        if isinstance(self.rule, LearnedSizes) and service.largest_batch < self.rule.max_batch_size:
            return dataclasses.replace(self.rule, max_batch_size=int(service.largest_batch))
        return self.rule

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


def limits_in_words(limit: int | Mapping[int, int] | None) -> list[str]:
    """Return a queue limit in words, level by level where they differ; [] for none."""
    return _by_level(limit, lambda most, _: _format.counted(most, "request"))


def timeouts_in_words(
    timeout_ms: float | Mapping[int, float] | None, action: str | Mapping[int, str]
) -> list[str]:
    """Return a timeout and what follows it in words, level by level where they differ; [] for none."""

    def text(late: float, level: int | None) -> str:
        then = action.get(level or 0, "reject") if isinstance(action, Mapping) else action
        return _format.typed_duration(late) + (", then served after the others" if then == "delay" else "")

    if isinstance(action, Mapping) and timeout_ms is not None and not isinstance(timeout_ms, Mapping):
        timeout_ms = dict.fromkeys(action, timeout_ms)
    return _by_level(timeout_ms, text)


def _by_level(limit: Any, text: Callable[[Any, int | None], str]) -> list[str]:
    if isinstance(limit, Mapping):
        return [f"level {level}: {text(value, level)}" for level, value in limit.items()]
    return [] if limit is None else [text(limit, None)]


def _short(value: Any) -> str:
    text = _SHORT.repr(value)
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"


@dataclass(frozen=True)
class Words:
    """What a server calls the knobs that most servers have; "" where it has none.

    `wait_unit_ms`: the milliseconds in one unit of its wait, of which it takes whole ones if `whole`, and
    `least` at least. `queue` is a limit of requests, `timeout` a limit on their wait, in units of
    `timeout_unit_ms`.
    """

    size: str
    wait: str = ""
    wait_unit_ms: float = 1.0
    whole: bool = False
    least: int = 0
    servers: str = ""
    devices: str = ""  # on how many devices these are
    queue: str = ""
    sizes: str = ""  # sizes up to which it pads
    timeout: str = ""
    timeout_unit_ms: float = 1.0

    def wait_of(self, wait_ms: float) -> float:
        """Return a wait as the server takes it: in its unit, and rounded up where it takes whole ones.

        >>> Words("batchSize", "maxBatchDelay", whole=True).wait_of(2.5)
        3
        """
        units = float(typed(wait_ms / self.wait_unit_ms))
        return max(self.least, math.ceil(units)) if self.whole or units == int(units) else units


@dataclass(frozen=True)
class Server:
    """A serving system: `rule` and `config` take its own settings; `ignored` have no effect on either."""

    name: str
    version: str
    rule: Callable[..., Rule]
    config: Callable[..., ServerConfig]
    ignored: tuple[str, ...] = ()
    words: Words = Words("max_batch_size")

    @property
    def settings(self) -> list[str]:
        """The names of all its settings, those ignored last."""
        return [*self._parameters, *self.ignored]

    @cached_property
    def _parameters(self) -> dict[str, inspect.Parameter]:
        """The settings that are not ignored: those of `config`, and where it passes others on, of `rule`."""
        own = inspect.signature(self.config).parameters
        named = {name: each for name, each in own.items() if each.kind is not each.VAR_KEYWORD}
        return named if len(named) == len(own) else {**inspect.signature(self.rule).parameters, **named}

    def default(self, name: str) -> Any:
        """Return the value of a setting that is left out; None where it has none."""
        parameter = self._parameters.get(name)
        return None if parameter is None or parameter.default is parameter.empty else parameter.default

    def configure(self, settings: Mapping[str, Any]) -> ServerConfig:
        """Return what the settings mean, or raise ValueError for one that the server does not have."""
        known = self.settings
        for name in settings:
            if name not in known:
                hint = _check.nearest(name, known)
                raise ValueError(f"a setting of {self.name} must be one that it has, got {name!r}{hint}")
        used = {name: value for name, value in settings.items() if name not in self.ignored}
        ignored = {name: value for name, value in settings.items() if name in self.ignored}
        found = self.config(**used)
        return dataclasses.replace(found, settings=dict(settings), unused={**found.unused, **ignored})
