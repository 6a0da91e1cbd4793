"""A scenario: the complete input of an engine, and every knob by its name."""

import dataclasses
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from os import PathLike
from typing import Any, Self

import numpy as np

from batchsim import _check
from batchsim._compat import kept
from batchsim._files import replacing
from batchsim.scenario import printing, saturation
from batchsim.scenario.autoscale import Autoscale, check_autoscale
from batchsim.scenario.full_batches import FullBatches, full_batches, mean_seconds
from batchsim.scenario.knobs import find_knob, parts_of, rebuilt
from batchsim.scenario.priorities import ACTIONS, Limits, check_by_level, limits_of
from batchsim.scenario.routing import MOST_REPLICAS, Routing, checked_routing, router_of
from batchsim.scenario.rules import AtLeast, Rule, SizeOrWait
from batchsim.scenario.rules.continuous import Continuous
from batchsim.scenario.rules.rule import ENDLESS
from batchsim.scenario.service import (
    Service,
    batches_per_s,
    checked_slowdown,
    checked_watts,
    drawn_w,
    noisy_share,
)
from batchsim.scenario.sized_time import SizedTime
from batchsim.scenario.step_time import StepTime
from batchsim.scenario.tokens import Tokens
from batchsim.scenario.workload import ClosedLoop, OpenLoop

MOST_SERVERS = 65_536
OVERSIZE = ("reject", "truncate")


@dataclass(frozen=True)
class Scenario(_check.Renewed):
    """A workload, a rule and a service time, on one or more servers.

    `queue_limit`: arrivals are rejected when this many wait. Requests that arrive at one instant all count as
    waiting, even if servers are idle: they enter the queue before a server takes a batch.

    `timeout_ms`: a request that has not started this long after its arrival leaves the queue, or, with
    `timeout_action="delay"`, is served after the others. With priorities, these limits apply to the queue of
    each level; {level: value} sets them one by one. A level that it omits has no limit, no timeout, or
    "reject".

    `devices`: server i computes on device i mod devices; None: each server has its own device. A batch spends
    the first `host_ms` of its service time on the host, then uses the device, which computes one batch at a
    time in order of start; a batch that finds it busy takes `contention` times as long there.
    `batchsim.device.sharing` measures both. `slowdown` is a coarser model: {busy servers: factor on the
    service time}, counting the server itself.

    `oversize_action`: a request that is larger than the rule's limit is rejected as it comes, or, with
    "truncate", cut to the limit.

    `tokens`: the requests generate tokens, step by step; the service is then a `StepTime`.

    `replicas`: complete copies of all this, each with its own queue and servers, behind a router. `routing`
    is one of the names in `batchsim.routing`, or such a routing; it sees loads that are `stale_ms` old. With
    `autoscale`, an `Autoscale` changes their number; a run starts with `replicas`, or its `least` if these
    are more. Its load and saturation rate are those of the most replicas.

    `price_per_hour` of a server makes cost a metric. `watts` is what one draws, {batch size: watts} with 0
    for an idle server, linear between, and makes energy one.

    >>> from batchsim import Affine, Poisson, SizeOrWait
    >>> scenario = Scenario(Poisson(900), SizeOrWait(32, 10), Affine(5, 0.25))
    >>> round(scenario.saturation_per_s)
    2462
    >>> scenario.replace(max_batch_size=16, rate_per_s=500).rule.max_batch_size
    16
    """

    workload: OpenLoop | ClosedLoop
    rule: Rule
    service: Service
    servers: int = 1
    queue_limit: int | Mapping[int, int] | None = None
    timeout_ms: float | Mapping[int, float] | None = None
    slowdown: Mapping[int, float] | None = None
    devices: int | None = None
    host_ms: float = 0.0
    contention: float = 1.0
    timeout_action: str | Mapping[int, str] = "reject"
    tokens: Tokens | None = None
    oversize_action: str = "reject"
    replicas: int = 1
    routing: str | Routing = "round_robin"
    stale_ms: float = 0.0
    autoscale: Autoscale | None = None
    price_per_hour: float | None = None
    watts: Mapping[int, float] | None = None

    def __post_init__(self) -> None:
        for name, kind in (("workload", (OpenLoop, ClosedLoop)), ("rule", Rule), ("service", Service)):
            _check.instance(name, getattr(self, name), kind, f"a {name} of batchsim")
        _check.fix_whole(self, "servers", at_most=MOST_SERVERS)
        self._check_replicas()
        self._check_limits()
        object.__setattr__(self, "watts", checked_watts(self.watts))
        if self.slowdown is not None:
            object.__setattr__(self, "slowdown", checked_slowdown(self.slowdown, self.servers))
        if isinstance(self.workload, ClosedLoop):
            self._check_closed_loop(self.workload)
        _check.one_of("oversize_action", self.oversize_action, OVERSIZE)
        self._check_tokens()
        if self.tokens is None:
            self._check_sizes()
            seconds = self.service.count_s(self.rule.max_batch_size)  # raises if it does not cover a size
            self._check_devices(float(np.nanmin(seconds)))

    def _check_limits(self) -> None:
        checks = {
            "queue_limit": _check.whole,
            "timeout_ms": lambda name, value: _check.real(name, value, at_least=0),
            "timeout_action": lambda name, value: _check.one_of(name, value, ACTIONS),
        }
        for name, checked in checks.items():
            if (value := getattr(self, name)) is not None or name == "timeout_action":
                object.__setattr__(self, name, check_by_level(name, value, self.levels, checked))

    def _check_replicas(self) -> None:
        _check.fix_whole(self, "replicas", at_most=MOST_REPLICAS)
        object.__setattr__(self, "routing", checked_routing(self.routing))
        _check.fix_real(self, "stale_ms", at_least=0)
        if self.price_per_hour is not None:
            _check.fix_real(self, "price_per_hour", at_least=0)
        check_autoscale(self.autoscale, self.replicas)
        if self.tokens is None and self.router.needs_tokens:
            raise ValueError(f"routing {self.router.name!r} needs tokens=..., got none")
        if (count := self.all_servers) > MOST_SERVERS:
            rule = f"the servers of all replicas must be at most {MOST_SERVERS:,}"
            raise ValueError(f"{rule}, got {self.most_replicas:,} replicas of {self.servers:,}: {count:,}")

    def _check_devices(self, shortest_s: float) -> None:
        _check.fix_real(self, "host_ms", at_least=0)
        _check.fix_real(self, "contention", at_least=1)
        if self.devices is not None:
            _check.fix_whole(self, "devices")
            if self.devices > self.servers:
                rule = f"devices must be at most the servers, {self.servers:,}"
                raise ValueError(f"{rule}, as each server computes on one, got {self.devices:,}")
        if self.host_ms / 1000 > shortest_s:
            rule = f"host_ms must be at most the shortest service time, {shortest_s * 1000:.6g} ms"
            raise ValueError(f"{rule}, which includes it, got {self.host_ms!r}")
        shared = {"devices": self.devices, "host_ms": self.host_ms or None}
        if self.slowdown is not None and (given := [name for name in shared if shared[name] is not None]):
            both = "slowdown and devices, host_ms and contention are two ways to describe one thing: give one"
            raise ValueError(f"{both}, got slowdown and {given[0]}={shared[given[0]]}")

    def _check_sizes(self) -> None:
        rule, service, sizes = self.rule, self.service, self.workload.sizes
        for part in (service, rule):
            if sizes is None and (isinstance(part, SizedTime) or getattr(part, "by_size", False)):
                example = "Poisson(900).with_sizes(Lognormal(80, cv=1))"
                needs = f"{part!r} needs the sizes of the requests, as {example}"
                raise ValueError(f"{needs}, got {self.workload!r}")
        if rule.by_size and self.by_level:
            order = "priorities" if self.levels else "a timeout that delays"
            raise ValueError(f"{rule!r} must serve requests in order of arrival, got {order}")
        _check.at_most("the largest size", self.longest, rule.covers, "the last edge of the buckets")
        if isinstance(service, SizedTime):
            if rule.computed_as is not None:
                needs = f"a {type(rule).__name__} pads with copies, and needs a time by batch size alone"
                raise ValueError(f"{needs}, got {service!r}")
            service.cold_start(1)  # raises if it has no shapes
            _check.at_most("the largest size", self.longest, service.longest, "the service's largest length")

    def _check_tokens(self) -> None:
        rule, service, tokens = self.rule, self.service, self.tokens
        if tokens is None:
            for part in (service, rule):
                if isinstance(part, (StepTime, Continuous)):
                    raise ValueError(f"a {type(part).__name__} needs tokens=Tokens(prompt, output), got none")
            return
        _check.instance("tokens", tokens, Tokens, "a Tokens of batchsim")
        if not isinstance(service, StepTime):
            raise ValueError(f"tokens need a StepTime as service, got {service!r}")
        if not isinstance(rule, (Continuous, SizeOrWait, AtLeast)) or rule.by_size:
            raise ValueError(f"tokens need Continuous, SizeOrWait or AtLeast by number as rule, got {rule!r}")
        service.check_seats(rule.largest_batch)
        if isinstance(rule, Continuous):
            rule.check_tokens(tokens)
        if self.workload.priorities is not None:
            raise ValueError(f"tokens do not cover priorities, got {self.workload!r}")
        if self.workload.sizes is not None:
            raise ValueError(f"tokens have lengths of their own instead of sizes, got {self.workload!r}")
        defaults = {field.name: field.default for field in dataclasses.fields(self)}
        for name in ("slowdown", "devices", "host_ms", "contention", "timeout_action", "oversize_action"):
            if (value := getattr(self, name)) != defaults[name]:
                raise ValueError(f"tokens do not cover {name}, got {name}={value!r}")

    def _check_closed_loop(self, workload: ClosedLoop) -> None:
        limits = [limit.queue for limit in self.limits if limit.queue is not None]
        limited = {  # no more than all clients wait
            "a queue_limit below the clients": min(limits, default=math.inf) < workload.clients,
            repr(self.rule): self.rule.refuses or self.refuses_sizes,
        }
        for name, rejects in limited.items():
            if rejects and workload.think_s == 0:
                why = "a rejected client would send again at once"
                raise ValueError(f"{name} on a ClosedLoop needs think_s greater than 0 ({why}), got 0")
        # At each replica, all but one of those that a batch needs may wait.
        fewest = self.most_replicas * (self.rule.fewest_clients - 1) + 1
        if workload.clients < fewest:
            rule = f"a ClosedLoop must have at least {fewest} clients to gather a batch of {self.rule.enough}"
            raise ValueError(f"{rule}, got {workload.clients}")

    __repr__, _repr_html_ = printing.as_text, printing.as_html

    def __hash__(self) -> int:
        slowdown = None if self.slowdown is None else tuple(sorted(self.slowdown.items()))
        parts = self.workload, self.rule, self.service, self.servers, slowdown
        return hash((*parts, self.replicas, self.routing, self.autoscale))

    @property
    def router(self) -> Routing:
        """The routing as an object."""
        return router_of(self.routing)

    @property
    def uncovered(self) -> str:
        """The part that the compiled engine does not cover; "" for none."""
        if self.most_replicas > 1 and isinstance(self.workload, ClosedLoop):
            return "a ClosedLoop with replicas"
        return "" if self.rule.compiled else f"the rule {self.rule!r}"

    @property
    def one(self) -> Self:
        """One replica, as a scenario: its workload is still that of all."""
        return dataclasses.replace(self, replicas=1, autoscale=None)

    @property
    def most_replicas(self) -> int:
        """The number of replicas; with an autoscaler, its most."""
        return self.replicas if self.autoscale is None else self.autoscale.most

    @property
    def watts_at(self) -> Callable[[np.ndarray], np.ndarray] | None:
        """What a server draws by batch size, 0 of an idle one; None if it is not known."""
        return None if self.watts is None else partial(drawn_w, self.watts)

    @property
    def all_servers(self) -> int:
        """The number of servers of all replicas."""
        return self.most_replicas * self.servers

    @property
    def kind(self) -> str:
        """The kind of run, "requests" or "tokens": each layer has a table of the differences."""
        return "requests" if self.tokens is None else "tokens"

    @property
    def levels(self) -> tuple[int, ...]:
        """The priority levels of the requests, in order; none without priorities."""
        return tuple(level for level, _ in self.workload.priorities or ())

    @kept
    def limits(self) -> tuple[Limits, ...]:
        """The limits of each level's queue, in order; without priorities, of the only queue."""
        return limits_of(self.queue_limit, self.timeout_ms, self.timeout_action, self.levels)

    @property
    def refuses_sizes(self) -> bool:
        """Whether some requests are rejected for their size."""
        return self.has_oversized and self.oversize_action == "reject"

    @property
    def has_oversized(self) -> bool:
        """Whether some requests are larger than the rule's limit."""
        return (sizes := self.workload.sizes) is not None and sizes.longest > self.rule.largest_size

    @property
    def longest(self) -> int:
        """The largest size that is computed."""
        sizes = self.workload.sizes
        return 0 if sizes is None else min(sizes.longest, self.rule.largest_size)

    @property
    def cut_to(self) -> int:
        """The size to which larger requests are cut."""
        return self.rule.largest_size if self.oversize_action == "truncate" else ENDLESS

    def cut(self, size: np.ndarray) -> np.ndarray:
        """Return the sizes of requests as they are computed."""
        return size if self.cut_to == ENDLESS else np.minimum(size, self.cut_to)

    def mean_s(self, largest: int) -> np.ndarray:
        """Return the mean seconds of batches of 1 .. `largest` requests, alone: of random sizes, if any."""
        return mean_seconds(self.service, self.workload.sizes, largest)

    @property
    def timeout_s(self) -> float:
        """The longest timeout in seconds; inf without one."""
        return max(limit.timeout_s for limit in self.limits)

    @property
    def by_level(self) -> bool:
        """Whether priority levels, or timeouts that delay, determine the order of service."""
        return len(self.levels) > 1 or self.limits[0].delays

    @property
    def in_order(self) -> bool:
        """Whether requests are served in the order in which they arrive."""
        if self.most_replicas > 1:
            return False
        alone = self.servers == 1 and not self.rule.by_size
        return not self.by_level and (alone or self.rule.picked is None)

    @property
    def can_lose(self) -> bool:
        """Whether some requests may not be served."""
        return self.rule.refuses or self.refuses_sizes or not all(limit.lossless for limit in self.limits)

    @property
    def limited(self) -> bool:
        """Whether requests may leave the queue unserved, or overtake others in it."""
        return self.by_level or not all(limit.lossless for limit in self.limits)

    @property
    def longest_queue(self) -> float:
        """The longest queue possible at the saturation rate; inf: unlimited."""
        full_per_s = self.saturation_per_s or 1.0  # where none is served, none waits
        kept, of_one_per_s = self.rule.longest_wait_s * full_per_s, full_per_s / self.most_replicas
        return min(kept, self.most_replicas * sum(limit.longest(of_one_per_s) for limit in self.limits))

    @property
    def device_count(self) -> int:
        """The number of devices of a replica, by default one for each server."""
        return self.servers if self.devices is None else self.devices

    @property
    def plain_servers(self) -> bool:
        """Whether each server has its own device, and no host part."""
        return self.host_ms == 0 and self.device_count == self.servers

    @kept
    def saturation_per_s(self) -> float:
        """The saturation rate: the servers' throughput in full batches. `load` is relative to it.

        replicas * servers * B / service(B), with B the rule's largest batch, because a growing queue fills
        every batch. With padded sizes that holds even if a smaller B would carry more (9 requests that
        compute as 16). Only if some larger batch takes less time than a smaller one, it is the largest
        replicas * servers * k / service(k) for k up to B. With sizes, service(B) is the mean of B random ones
        (the largest of them has its exact expected value), and a rule that reads sizes is measured; requests
        that are rejected for their size count; where all are, the rate is 0. For tokens, see
        `scenario/saturation.py`.
        """
        if self.tokens is not None:
            return saturation.saturation_of(self).per_s
        if self.rule.by_size:
            return self.full_batches_per_s
        seconds = self._seconds()
        sizes = np.arange(1, seconds.size + 1)
        if (np.diff(seconds) >= 0).all() or self.rule.forms_while_busy:
            return self.full_batches_per_s
        return self.most_replicas * float(self.servers * (sizes / seconds).max())

    @property
    def saturation_error(self) -> float:
        """The relative standard error of `saturation_per_s`: 0 if exact, NaN if estimated (tokens only)."""
        return self._full_batches.error if self.tokens is None else saturation.saturation_of(self).error

    @property
    def _full_batches(self) -> FullBatches:
        return full_batches(self.rule, self.service, self.workload.sizes, self.oversize_action)

    @kept
    def full_batches_per_s(self) -> float:
        """The rate at which the servers compute full batches: servers * B / service(B), B the largest batch.

        A growing queue fills every batch, so this rate, which may be below `saturation_per_s`, decides
        whether the queue is `stable`. Frozen batches do not grow: for them it is the rate at which the
        servers compute the batches that form at this arrival rate.
        """
        if self.tokens is not None:
            return self.saturation_per_s
        if self.rule.by_size:
            full = self._full_batches
            seconds = self._while_all_compute(np.array([full.seconds]))[0]
            return self.most_replicas * float(self.servers * full.requests / seconds)
        workload = self.workload
        return self.carried_per_s(math.inf if isinstance(workload, ClosedLoop) else workload.offered_per_s)

    def carried_per_s(self, rate_per_s: float) -> float:
        """Return the rate at which the servers compute the batches that form at an arrival rate."""
        of_one_per_s = self.rule.carried_per_s(rate_per_s / self.most_replicas, self._seconds(), self.servers)
        return self.most_replicas * of_one_per_s

    def _seconds(self) -> np.ndarray:
        """Return the service times of sizes 1 to the largest batch, while all servers compute."""
        largest = self.rule.largest_batch
        return self._while_all_compute(mean_seconds(self.service, self.workload.sizes, largest))

    def _while_all_compute(self, seconds: np.ndarray) -> np.ndarray:
        """Return the seconds of batches that take so long alone, while all servers compute."""
        if self.slowdown is not None:
            return seconds * self.slowdown[self.servers]
        if self.plain_servers:
            return seconds
        servers, devices, host_s = self.servers, self.device_count, self.host_ms / 1000
        per_s = batches_per_s(servers, devices, seconds, host_s, self.contention)
        if (noise := self.service.noise) is not None and noise.cv > 0:
            # All sizes lose the same share as full batches.
            per_s *= noisy_share(servers, devices, float(seconds[-1]), host_s, self.contention, noise)
        return servers / per_s

    @property
    def load(self) -> float:
        """The arrival rate over the saturation rate; NaN for a closed loop, which has no arrival rate.

        0 where every request is rejected for its size: none occupies a server.
        """
        if isinstance(self.workload, ClosedLoop):
            return math.nan
        full = self.saturation_per_s
        return self.workload.offered_per_s / full if full else 0.0

    @property
    def stable(self) -> bool:
        """Whether the queue stays finite: full batches outpace the arrivals, or its length is limited.

        With priorities, every level must be stable: the last unlimited level waits for all before it. The
        replica with the largest share of the requests must be, too.
        """
        if isinstance(self.workload, ClosedLoop) or self.rule.longest_wait_s < math.inf:
            return True
        if not self.full_batches_per_s:  # each request is rejected for its size at once
            return True
        # A level without a limit must keep up together with the levels before it, which are served first.
        endless = [place for place, limit in enumerate(self.limits) if limit.longest(1.0) == math.inf]
        if not endless:
            return True
        share = 1.0
        if self.workload.priorities is not None and endless[-1] + 1 < len(self.levels):
            share = math.fsum(share for _, share in self.workload.priorities[: endless[-1] + 1])
        if (count := self.most_replicas) > 1:
            share *= self.router.hottest(count) * count
        return bool(share * self.workload.offered_per_s < self.full_batches_per_s)

    def replace(self, changes: Mapping[str, Any] | None = None, /, **knobs: Any) -> Self:
        """Return a copy with some knobs changed, each by its name, in any part.

        `rate_per_s` scales any open workload to that mean rate. An ambiguous name raises ValueError: add the
        part, as in `replace({"workload.cv": 2.0})`.
        """
        if not isinstance(changes, (Mapping, type(None))):
            raise TypeError(f"changes must be {{knob: value}}, got {changes!r}")
        values = {**(changes or {}), **knobs}
        for name in values:
            _check.instance("a knob", name, str, "named by text")
        # Names refer to the new parts if a whole part changes too.
        parts = {name: values.get(name, value) for name, value in parts_of(self).items()}
        by_path: dict[tuple[str, ...], Any] = {}
        for name, value in values.items():
            path = (name,) if name in parts else find_knob(name, parts)
            if path in by_path:
                raise ValueError(f"a knob must be given once, got {name!r} twice")
            by_path[path] = value
        return rebuilt(self, by_path)

    def to_toml(self, path: str | PathLike[str] | None = None) -> str:
        """Return the scenario as TOML text, and write it to `path` if there is one.

        >>> from batchsim import Affine, Poisson, SizeOrWait
        >>> scenario = Scenario(Poisson(900), SizeOrWait(32, 10), Affine(5, 0.25))
        >>> print(scenario.to_toml().partition("[rule]")[0].strip())
        servers = 1
        <BLANKLINE>
        [workload]
        kind = "Poisson"
        rate_per_s = 900
        >>> Scenario.from_toml(scenario.to_toml()) == scenario
        True
        """
        from batchsim.scenario.toml import document  # and with it tomlkit

        text = document(self).as_string()
        if path is not None:
            with replacing(path) as file:
                file.write(text.encode())
        return text

    @classmethod
    def from_toml(cls, path_or_text: str | PathLike[str]) -> Self:
        """Return the scenario of a TOML file, or of text (which has more than one line).

        `batchsim.scenario.toml` lists the kinds that can only be read, such as a trace in a CSV file. Wrong
        content raises ValueError with its place.
        """
        from batchsim.scenario.toml import read_toml

        return read_toml(cls, path_or_text)[0]
