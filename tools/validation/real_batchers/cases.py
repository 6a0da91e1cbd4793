"""What is compared: servers, their settings and their load."""

import dataclasses
import importlib
import sys
from dataclasses import dataclass, field

from oracles.arrivals import arrivals

import batchsim as bs
from batchsim import servers
from validation.real_batchers.comparison import compare

V100 = bs.Affine(1.8874, 0.1438)  # ResNet-50, mixed precision (Inoue 2021)
SCALE = 40  # times on the machine's clock are longer by this, so that what the machine adds counts less
TIMES = ("max_wait_ms", "batch_timeout", "timeout_ms", "batch_wait_timeout_s")  # the settings that are times
# A trace's and a run's: without a limit of its own, Ray Serve's config means 5.
UNLIMITED = {"ray_serve": {"max_ongoing_requests": 1_000_000}}
MANY = 4000  # requests of a case on the clock that jumps
LONG_RUN = 100_000  # of a simulation that tells what lateness does


@dataclass(frozen=True)
class Case:
    """A server with its settings and a load; `variant`: which of a package's batchers, by its function."""

    server: str
    settings: dict
    rate_per_s: float
    variant: str = "replay"
    known: str = ""  # why it is known to differ
    on: str = "both"  # which clocks: "machine", "jumping" or "both"
    service: bs.Affine = field(default=V100)

    def times(self, scale):
        """The same case with all times longer by a factor."""
        settings = {name: value * scale if name in TIMES else value for name, value in self.settings.items()}
        service = bs.Affine(self.service.fixed_ms * scale, self.service.per_item_ms * scale)
        return dataclasses.replace(
            self, settings=settings, rate_per_s=self.rate_per_s / scale, service=service
        )

    def __str__(self):
        words = [f"{name}={value:.4g}" if isinstance(value, float) else f"{name}={value}"
                 for name, value in self.settings.items()]  # fmt: skip
        which = {"replay": "", "replay_async": " (aio)", "replay_routed": "'s router"}[self.variant]
        return f"{self.server}{which}: {', '.join(words)}"

    @property
    def module(self):
        return importlib.import_module(f"validation.real_batchers.{self.server}")

    def arrival_s(self, requests):
        times_s = arrivals(bs.Poisson(self.rate_per_s), requests)
        return times_s - times_s[0]

    def scenario(self, workload, late_ms=0.0):
        settings = UNLIMITED.get(self.server, {}) | self.settings
        service = bs.Affine(self.service.fixed_ms + late_ms, self.service.per_item_ms)
        return servers.config(self.server, **settings).scenario(workload, service)

    def shifted(self, late_ms):
        """By how much the mean latency of a long run changes if each call is longer by this."""
        one, other = (
            bs.simulate(self.scenario(bs.Poisson(self.rate_per_s), late), LONG_RUN).mean_latency_ms
            for late in (0.0, late_ms)
        )
        return abs(other / one - 1)

    def replay(self, clock, arrival_s):
        """Let the real batcher take the requests, and return the desk that saw it."""
        return getattr(self.module, self.variant)(clock, arrival_s, self.service, **self.settings)

    def compare(self, make_clock, requests):
        arrival_s = self.arrival_s(requests)
        clock = make_clock(arrival_s.tolist())
        desk = self.replay(clock, arrival_s)
        result = bs.simulate(self.scenario(bs.Trace(arrival_s)))
        return compare(desk, result, self.shifted) if clock.real else compare(desk, result)


def cases(server, waits, *loads, size=32, also=None, **more):
    """Cases of a size and of waits in ms; `waits`: what the server calls both, and its unit in ms."""
    of_size, of_wait, unit_ms = waits
    return [
        Case(server, {of_size: size, of_wait: wait_ms / unit_ms} | (also or {}), rate, **more)
        for wait_ms, rate in loads
    ]


TEXTBOOK, BATCHED = ("max_batch_size", "max_wait_ms", 1), ("batch_size", "timeout_ms", 1)
LITSERVE, RAY = ("max_batch_size", "batch_timeout", 1000), ("max_batch_size", "batch_wait_timeout_s", 1000)
# Waits in ms, and requests per second. On the machine's clock lone requests would take too long.
LONE, LIGHT, LONG, SHORT = (10, 20), (10, 300), (10, 2000), (2, 2000)
# What the machine adds to each call counts for more the closer the load is to 1, and above it.
CLOSE = {"on": "jumping"}
TWO, THREE, FIVE = ({"workers_per_device": workers} for workers in (2, 3, 5))
FOUR = {"num_replicas": 4}
BLOCKING = {"handler": "blocking"}
HEAP = "its queue is a heap, not oldest first"
LOOP = "the preset is of Python 3.12" if sys.version_info < (3, 12) else ""

CASES = [
    *cases("textbook", TEXTBOOK, LIGHT, LONG, SHORT),
    *cases("litserve", LITSERVE, LIGHT, LONG, SHORT),
    *cases("litserve", LITSERVE, LONE, **CLOSE),
    *cases("litserve", LITSERVE, (2, 1500), size=8),
    *cases("litserve", LITSERVE, (2, 2400), size=8, **CLOSE),
    *cases("litserve", LITSERVE, LIGHT, LONG, SHORT, also=TWO),
    *cases("litserve", LITSERVE, LIGHT, size=8, also=THREE),
    *cases("litserve", LITSERVE, (2, 1500), size=8, also=THREE, **CLOSE),
    *cases("litserve", LITSERVE, LONG, SHORT, also=FIVE, **CLOSE),
    *cases("batched", BATCHED, LIGHT, SHORT),
    *cases("batched", BATCHED, LONG, known=HEAP),
    *cases("batched", BATCHED, LIGHT, LONG, SHORT, variant="replay_async"),
    *cases("batched", BATCHED, LONE, (2, 4000), variant="replay_async", **CLOSE),
    *cases("ray_serve", RAY, LIGHT, LONG, (2, 1000)),
    *cases("ray_serve", RAY, LONE, (1, 2000), SHORT, (2.1, 2000), (2.2, 2000), (0, 400), **CLOSE),
    *cases("ray_serve", RAY, (10, 300), size=8, also={"max_ongoing_requests": 5}),
    *cases("ray_serve", RAY, SHORT, also={"max_ongoing_requests": 40}, **CLOSE),
    *cases("ray_serve", RAY, SHORT, also={"max_concurrent_batches": 2}),
    *cases("ray_serve", RAY, LIGHT, LONG, SHORT, also=BLOCKING),
    *cases("ray_serve", RAY, (2, 2000), size=8, also=BLOCKING, known=LOOP),
    *cases("ray_serve", RAY, (2, 2400), size=8, also=BLOCKING, known=LOOP, **CLOSE),
    *cases("ray_serve", RAY, (0, 1500), size=4, also=BLOCKING, **CLOSE),
    *cases("ray_serve", RAY, (10, 1200), (2, 4000), also=FOUR, variant="replay_routed", **CLOSE),
    *cases("ray_serve", RAY, (0, 1600), size=1, also=FOUR, variant="replay_routed", **CLOSE),
    *(Case("bentoml", {"max_batch_size": 32}, rate) for rate in (300, 1000, 2000, 4000)),
    Case("bentoml", {"max_batch_size": 32}, 20, **CLOSE),
    Case("bentoml", {"max_batch_size": 1}, 300, **CLOSE),
    Case("bentoml", {"max_batch_size": 4}, 1500, **CLOSE),
    Case("bentoml", {"max_batch_size": 32, "max_latency_ms": 20}, 6000, **CLOSE),
    Case("bentoml", {"max_batch_size": 32, "max_latency_ms": 5}, 300, **CLOSE),
    Case("bentoml", {"max_batch_size": 4, "max_latency_ms": 10}, 3000, **CLOSE),
]  # fmt: skip
