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
from batchsim.scenario import saturation
from batchsim.scenario.autoscale import Autoscale, check_autoscale
from batchsim.scenario.fitting_parts import check_parts
from batchsim.scenario.full_batches import FullBatches, full_batches, mean_seconds
from batchsim.scenario.knobs import as_html, as_text, fields_of, find_knob, names_of, rebuilt
from batchsim.scenario.parameters import Described, parameter
from batchsim.scenario.priorities import ACTIONS, Limits, check_by_level, limits_of
from batchsim.scenario.routing import MOST_REPLICAS, Routing, checked_routing, router_of
from batchsim.scenario.rules import Rule
from batchsim.scenario.rules.rule import ENDLESS
from batchsim.scenario.service import (
    Service,
    batches_per_s,
    checked_slowdown,
    checked_watts,
    drawn_w,
    noisy_share,
)
from batchsim.scenario.tokens import Tokens
from batchsim.scenario.workload import ClosedLoop, OpenLoop

MOST_SERVERS = 65_536


@dataclass(frozen=True)
class Scenario(Described, _check.Renewed):
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
    servers: int = parameter(
        "Servers", "Model instances; each computes one batch, or one step, at a time", at_most=MOST_SERVERS,
        slider=(1, 8, 1), default=1,
    )  # fmt: skip
    queue_limit: int | Mapping[int, int] | None = parameter(
        "Queue limit",
        "Reject arrivals while this many requests wait, including those of the same instant",
        when_none="no limit", by_level=True, at_most=_check.LARGEST_WHOLE, default=None,
    )  # fmt: skip
    timeout_ms: float | Mapping[int, float] | None = parameter(
        "Timeout (ms)", "Requests that have waited this long give up", type="real", at_least=0,
        when_none="never", by_level=True, default=None,
    )  # fmt: skip
    slowdown: Mapping[int, float] | None = None
    devices: int | None = parameter(
        "Devices", "Devices that the servers share, each computing one batch at a time", when_none="one each",
        at_most=_check.LARGEST_WHOLE, default=None,
    )  # fmt: skip
    host_ms: float = parameter(
        "Host part (ms)", "Part of the service time before a batch needs its device; 0: none", type="real",
        at_least=0, slider=(0, 50, 0.1), default=0.0,
    )  # fmt: skip
    contention: float = parameter(
        "Contention", "Slowdown of a batch that starts while its device is busy; 1: none", type="real",
        at_least=1, slider=(1, 3, 0.05), default=1.0,
    )  # fmt: skip
    timeout_action: str | Mapping[int, str] = parameter(
        "At the timeout", "The fate of a request that has waited too long", type="word", by_level=True,
        words=dict(zip(ACTIONS, ("It leaves", "It is served after the others"), strict=True)),
        default="reject",
    )  # fmt: skip
    tokens: Tokens | None = None
    oversize_action: str = parameter(
        "Above the limit in units", "The fate of a request that alone exceeds the limit", type="word",
        words={"reject": "It is rejected", "truncate": "It is cut to the limit"}, default="reject",
    )  # fmt: skip
    replicas: int = parameter(
        "Replicas", "Copies of all servers, each with its own queue, behind a router; 1: no router",
        at_most=MOST_REPLICAS, slider=(1, 8, 1), default=1,
    )  # fmt: skip
    routing: str | Routing = "round_robin"
    stale_ms: float = parameter(
        "Age of loads (ms)", "Time since the compared loads were counted; 0: none", type="real", at_least=0,
        slider=(0, 100, 0.5), default=0.0,
    )  # fmt: skip
    autoscale: Autoscale | None = None
    price_per_hour: float | None = parameter(
        "Price (per hour)", "Cost of a server, in any currency", type="real", at_least=0,
        when_none="not known", slider=(0, 10, 0.1), default=None,
    )  # fmt: skip
    watts: Mapping[int, float] | None = None

    def check(self) -> None:
        for name, kind in (("workload", (OpenLoop, ClosedLoop)), ("rule", Rule), ("service", Service)):
            _check.instance(name, getattr(self, name), kind, f"a {name} of batchsim")
        self._check_replicas()
        self._check_limits()
        object.__setattr__(self, "watts", checked_watts(self.watts))
        if self.slowdown is not None:
            object.__setattr__(self, "slowdown", checked_slowdown(self.slowdown, self.servers))
        check_parts(self)

    def _check_limits(self) -> None:
        for name, each in self.parameters().items():
            if each.by_level:
                value = check_by_level(name, getattr(self, name), self.levels, each.check)
                object.__setattr__(self, name, value)

    def _check_replicas(self) -> None:
        object.__setattr__(self, "routing", checked_routing(self.routing))
        check_autoscale(self.autoscale, self.replicas)
        if self.tokens is None and self.router.needs_tokens:
            raise ValueError(f"routing {self.router.name!r} needs tokens=..., got none")
        if (count := self.all_servers) > MOST_SERVERS:
            rule = f"the servers of all replicas must be at most {MOST_SERVERS:,}"
            raise ValueError(f"{rule}, got {self.most_replicas:,} replicas of {self.servers:,}: {count:,}")

    __repr__, _repr_html_ = as_text, as_html

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

    @kept
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
        whole = values.keys() & {*names_of(type(self))}  # type: ignore[arg-type]  # a class is hashable
        paths: dict[str, tuple[str, ...]] = {name: (name,) for name in whole} if whole else self._paths
        by_path: dict[tuple[str, ...], Any] = {}
        for name, value in values.items():
            if (path := paths.get(name)) is None:
                changed = {name: values[name] for name in whole}
                path = paths[name] = find_knob(name, fields_of(self) | changed)
            if path in by_path:
                raise ValueError(f"a knob must be given once, got {name!r} twice")
            by_path[path] = value
        return rebuilt(self, by_path)

    @kept
    def _paths(self) -> dict[str, tuple[str, ...]]:
        """The knobs that have been found so far: a sweep changes the same ones at every point."""
        return {}

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
