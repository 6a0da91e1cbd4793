"""A serving system: its vocabulary, its file formats, and the scenario that its settings describe."""

import dataclasses
import inspect
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from batchsim import _check, _format
from batchsim._compat import kept
from batchsim._format import as_typed
from batchsim.scenario import ClosedLoop, OpenLoop, Rule, Scenario, Service, StepTime
from batchsim.scenario.priorities import Shares
from batchsim.scenario.routing import MOST_REPLICAS
from batchsim.scenario.rules import LearnedSizes
from batchsim.scenario.rules.continuous import Continuous
from batchsim.scenario.tokens import Tokens
from batchsim.servers.language import NO_MEMORY

LONGEST, MOST_LINES = 60, 12  # characters of a printed value, and lines of a part


@dataclass(frozen=True, repr=False)
class ServerConfig(_check.Renewed):
    """The meaning of a server's settings: a rule, and the parts of a scenario that the same file sets.

    `pad_to`: batch sizes to which batches are padded. `settings` has the server's own names. `unused` holds
    settings without effect in a simulation, and other keys of a file, by their path. `unknown` maps each key
    that the server does not have to the nearest one that it has, or to "". `notes` explain the file.

    A server with `priority_levels` keeps the workload's levels up to its last one; requests of higher
    levels, and all requests of a workload without levels, get its `default_priority_level`. With 0 levels it
    drops the workload's priorities and serves in order of arrival. Limits by level are {level: value}.

    `oversize_action`: what becomes of a request above the rule's limit in units; None: as the scenario says.
    `one_shape`: why the server does not batch requests of different sizes; "" if it does.

    `captured`: for which batches the server records CUDA graphs, as fields of a `StepTime`; empty: not known.
    It counts for a step time with `beyond_ms`, which a step without a graph takes.

    `devices`: the number of devices that the servers share; None: each server has its own. Files do not
    define how servers share a device: see `apply`. `replicas` of all this are behind a router.

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
    oversize_action: str | None = None
    one_shape: str = ""
    replicas: int = 1
    routing: str = "round_robin"
    captured: Mapping[str, Any] = field(default_factory=dict, compare=False)  # as the settings are
    settings: Mapping[str, Any] = field(default_factory=dict)
    unused: Mapping[str, Any] = field(default_factory=dict)
    unknown: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    text: str = field(default="", compare=False)  # that was read, and what of it
    which: str | None = field(default=None, compare=False)
    # The line and the column of each setting, and of each unknown key, in the text that was read.
    places: Mapping[str, tuple[int, int]] = field(default_factory=dict, compare=False)

    def __repr__(self) -> str:
        levels = f"1 to {self.priority_levels}, {self.default_priority_level} by default"
        parts = {
            "levels": [levels] if self.priority_levels else [],
            "queue limit": describe_limit(self.queue_limit),
            "timeout": describe_timeout(self.timeout_ms, self.timeout_action),
            "padded to": [", ".join(map(str, self.pad_to))] if self.pad_to else [],
            "too large": ["truncated" if self.oversize_action == "truncate" else "rejected"]
            if self.oversize_action
            else [],
            "unused": [f"{key}={_format.brief(value, LONGEST)}" for key, value in self.unused.items()],
            "unknown": [
                key + (f" (did you mean {near!r}?)" if near else "") for key, near in self.unknown.items()
            ],
            "note": list(self.notes),
        }
        share = f" that share {_format.counted(self.devices, 'device')}" if self.devices else ""
        if self.replicas > 1:
            share += f", {self.replicas} replicas behind {self.routing}"
        lines = [f"{self.server}: {self.rule!r} on {_format.counted(self.servers, 'server')}{share}"]
        for name, part in parts.items():
            more = [f"... {len(part) - MOST_LINES:,} more"] if len(part) > MOST_LINES else []
            texts = [*part[:MOST_LINES], *more]
            lines += [f"  {'' if number else name:<12} {text}" for number, text in enumerate(texts)]
        return _format.printable("\n".join(lines))

    def scenario(
        self, workload: OpenLoop | ClosedLoop, service: Service, tokens: Tokens | None = None
    ) -> Scenario:
        """Return the scenario of this server under a workload."""
        return self.apply(Scenario(workload, self._rule(service), service, tokens=tokens))

    def apply(self, scenario: Scenario, *, silent: bool = False) -> Scenario:
        """Return a scenario with this server's rule, number of servers, limits, padding and replicas.

        A scenario with replicas keeps its routing, and its replicas if the file does not tell them.
        The scenario's `host_ms` and `contention`, or its own `devices` or `slowdown`, define how servers
        share a device. Without these, servers take turns, and a warning gives the range of the true rate.
        """
        _check.instance("scenario", scenario, Scenario, "a Scenario")
        service = scenario.service.padded_to(self.pad_to) if self.pad_to else scenario.service
        if self.captured and isinstance(service, StepTime) and service.beyond_ms:
            service = dataclasses.replace(service, **self.captured)
        workload = scenario.workload
        shares = self._shares(workload.priorities)
        if shares != workload.priorities:
            workload = dataclasses.replace(workload, priorities=shares)
        queue_limit, timeout_ms, action = (
            self._limit(limit, shares) for limit in (self.queue_limit, self.timeout_ms, self.timeout_action)
        )
        defined = scenario.devices is not None or scenario.slowdown is not None
        found = dataclasses.replace(
            scenario, workload=workload, rule=self._rule(service), service=service, servers=self.servers,
            queue_limit=queue_limit, timeout_ms=timeout_ms, timeout_action=action or "reject",
            devices=scenario.devices if defined else self.devices,
            oversize_action=self.oversize_action or scenario.oversize_action,
            replicas=self.replicas if self.replicas > 1 else scenario.replicas,
            routing=scenario.routing if scenario.replicas > 1 else self.routing,
        )  # fmt: skip
        if self.one_shape and not silent and workload.sizes is not None:
            _check.warn(f"{self.one_shape}; simulated as if it did")
        if not silent and self.untold(scenario):
            alone = dataclasses.replace(found, devices=None)
            low, high = (each.full_batches_per_s for each in (found, alone))
            _check.warn(self.sharing_unknown(f"full batches carry {_format.rate(low)}", _format.rate(high)))
        return found

    def untold(self, scenario: Scenario) -> bool:
        """Return whether servers share devices and a scenario does not define how."""
        defined = scenario.host_ms > 0 or scenario.contention > 1 or scenario.slowdown is not None
        return self.devices is not None and scenario.devices is None and not defined

    def sharing_unknown(self, low: str, high: str) -> str:
        """Return a warning that sharing was not measured, with the range of a number."""
        devices = _format.counted(self.devices or 1, "device")
        ends = f"{low} if they take turns (simulated), {high} if each computes as if alone"
        how = "measure it, and set contention (--contention)"
        return f"how {self.servers} servers share {devices} was not measured: {ends}; {how}"

    def _rule(self, service: Service) -> Rule:
        """Return the rule; one that learns its sizes tries only sizes whose service time is known."""
        if isinstance(self.rule, LearnedSizes) and service.largest_batch < self.rule.max_batch_size:
            return dataclasses.replace(self.rule, max_batch_size=int(service.largest_batch))
        return self.rule

    def _shares(self, shares: Shares | None) -> Shares | None:
        """Return the workload's shares, with levels that the server lacks moved to its default."""
        if not self.priority_levels or shares is None:
            return None
        known: dict[int, float] = {}
        for level, share in shares:
            level = level if level <= self.priority_levels else self.default_priority_level
            known[level] = known.get(level, 0) + share
        return tuple(sorted(known.items()))

    def _limit(self, limit: Any, shares: Shares | None) -> Any:
        """Return the limits of the workload's levels; without levels, that of the default level."""
        if not isinstance(limit, Mapping):
            return limit
        if shares is None:
            return limit.get(self.default_priority_level)
        return {level: limit[level] for level, _ in shares if level in limit} or None


def describe_limit(limit: int | Mapping[int, int] | None) -> list[str]:
    """Return a queue limit as text, one entry per level if they differ; [] without a limit."""
    return _by_level(limit, lambda most, _: _format.counted(most, "request"))


def describe_timeout(
    timeout_ms: float | Mapping[int, float] | None, action: str | Mapping[int, str]
) -> list[str]:
    """Return a timeout and its consequence as text, one entry per level if they differ; [] without one."""

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


@dataclass(frozen=True)
class Words:
    """A server's names for the settings that most servers have; "" for one that it lacks.

    A wait is in units of `wait_unit_ms`, a timeout in units of `timeout_unit_ms`. If `whole`, the wait must
    be a whole number of units, at least `least`.
    """

    size: str
    wait: str = ""
    wait_unit_ms: float = 1.0
    whole: bool = False
    least: int = 0
    servers: str = ""
    devices: str = ""  # on how many devices these servers run
    queue: str = ""
    queue_in_batches: bool = False  # whether the limit of the queue counts batches, not requests
    sizes: str = ""  # sizes to which it pads
    timeout: str = ""
    timeout_unit_ms: float = 1.0
    timeout_action: str = ""
    budget: str = ""  # tokens in a step
    replicas: str = ""  # copies of the server behind a router
    others: Mapping[str, str] = field(default_factory=dict)  # by the parameter of its rule

    def wait_of(self, wait_ms: float) -> float:
        """Return a wait in the server's unit, rounded up if the server requires whole numbers.

        >>> Words("batchSize", "maxBatchDelay", whole=True).wait_of(2.5)
        3
        """
        units = as_typed(wait_ms / self.wait_unit_ms)
        return max(self.least, math.ceil(units)) if self.whole or units == int(units) else units


@dataclass(frozen=True)
class Format:
    """A file format of a server: how to recognise and read it.

    `title` describes such a file, `file` is its usual name, `suffixes` are those of other names. `signs` is a
    pattern that matches no other server's files. `read(document, text, which)` fills a `Document`; `which`
    selects one of several models or functions. `template` is the least such text, to which settings are
    added; None if no new file can be written. A file with a suffix of `also` may be of this format, too.
    """

    title: str
    file: str
    suffixes: tuple[str, ...]
    signs: str
    read: Callable[[Any, str, str | None], None]
    template: str | None = None
    also: tuple[str, ...] = ()


@dataclass(frozen=True)
class Server:
    """A serving system: `rule` and `config` take its own settings; `ignored` have no effect on either.

    Without `config`, the settings are those of `rule`. The other fields describe the parts that few servers
    have: `extras` returns such settings for a `ServerConfig`, `level_limits` those for limits by priority
    level, and `remarks` sentences on the settings that are written. `variants` are settings that choose
    among its rules. `unbounded`: its wait may be infinite. For `lint`: `per_core` is a setting that defaults
    to the number of cores, `notes` yields the code and the sentence of each note on settings, `calm` maps a
    setting to the value with which it never takes more memory than there is, and `by_card` has the settings
    whose defaults depend on the card's memory, with memories (GiB) that differ in them.
    """

    name: str
    version: str
    rule: Callable[..., Rule]
    config: Callable[..., ServerConfig] | None = None
    ignored: tuple[str, ...] = ()
    title: str = ""  # its name for people, by default `name`
    words: Words = Words("max_batch_size")
    formats: tuple[Format, ...] = ()  # the first one is written
    extras: Callable[[ServerConfig], dict[str, Any]] = lambda target: {}
    level_limits: Callable[[ServerConfig], dict[str, Any]] | None = None
    remarks: Callable[[Mapping[str, Any]], list[str]] = lambda settings: []
    variants: tuple[Mapping[str, Any], ...] = ({},)
    unbounded: bool = False
    per_core: str = ""
    notes: Callable[[Mapping[str, Any]], Iterable[tuple[str, str]]] = lambda settings: ()
    calm: Mapping[str, Any] = field(default_factory=dict)
    by_card: tuple[tuple[str, ...], tuple[float, ...]] = ((), ())
    routing: str = "round_robin"  # of the router in front of its replicas
    started: str = ""  # a pattern of texts that start it, while its settings stand in another file
    caveats: Mapping[str, str] = field(default_factory=dict)  # what would change that is not simulated
    graphs: tuple[str, ...] = ()  # its settings of captured sizes: left at their defaults if not known
    modest: tuple[str, ...] = ()  # what may be unknown without a gpu: it changes memory or lengths

    def __post_init__(self) -> None:
        object.__setattr__(self, "title", self.title or self.name)

    @property
    def settings(self) -> list[str]:
        """The names of all its settings, those ignored last."""
        replicas = [self.words.replicas] if self.words.replicas else []
        return [*dict.fromkeys([*self._parameters, *replicas]), *self.ignored]

    @property
    def may_miss(self) -> tuple[str, ...]:
        """The settings that a file may leave to a program: without effect on the rule."""
        return (*self.ignored, *self.graphs)

    @kept
    def _parameters(self) -> dict[str, inspect.Parameter]:
        """The settings that count: those of `config`, and of `rule` if `config` passes others on to it."""
        if self.config is None:
            return {**inspect.signature(self.rule).parameters}
        own = inspect.signature(self.config).parameters
        named = {name: each for name, each in own.items() if each.kind is not each.VAR_KEYWORD}
        return named if len(named) == len(own) else {**inspect.signature(self.rule).parameters, **named}

    def default(self, name: str) -> Any:
        """Return the default of a setting, or None."""
        parameter = self._parameters.get(name)
        return None if parameter is None or parameter.default is parameter.empty else parameter.default

    def configure(self, settings: Mapping[str, Any]) -> ServerConfig:
        """Return the meaning of settings, or raise ValueError for one that the server does not have."""
        known = self.settings
        for name in settings:
            if name not in known:
                hint = _check.nearest(name, known)
                raise ValueError(f"a setting of {self.name} must be one that it has, got {name!r}{hint}")
        used = {name: value for name, value in settings.items() if name not in self.ignored}
        ignored = {name: value for name, value in settings.items() if name in self.ignored}
        replicas, word, notes = 1, self.words.replicas, list[str]()
        if word in used:
            count = used.pop(word)
            if type(count) is int and count > 0:
                replicas = _check.whole(f"{self.title}'s {word}", count, at_most=MOST_REPLICAS)
            else:  # "auto", or 0 while nobody asks
                ignored[word] = count
                notes.append(f"{word} is {count!r}: batchsim starts one")
        if word in self._parameters:
            used[word] = replicas
        found = ServerConfig(self.name, self.rule(**used)) if self.config is None else self.config(**used)
        if "gpu" in self._parameters and isinstance(found.rule, Continuous):
            small = [] if "gpu" in used else [each for each in self.by_card[0] if used.get(each) is None]
            unsaid = [NO_MEMORY] * (not found.rule.kv_blocks)
            unsaid += [f"without a gpu, {_format.several(small)} as on a small card"] * bool(small)
            notes += ["; ".join(unsaid)] * bool(unsaid)
        return dataclasses.replace(
            found, settings=dict(settings), unused={**found.unused, **ignored},
            replicas=replicas * found.replicas,
            routing=self.routing,
            notes=(*found.notes, *notes),
        )  # fmt: skip
