"""What an engine is given, and what it returns: a scenario with its randomness, and columns."""

import functools
import math
import threading
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from enum import IntEnum
from functools import partial
from typing import Any

import numpy as np

from batchsim.scenario import ClosedLoop, OpenLoop, Scenario, Trace
from batchsim.scenario.workload import CHUNK, filled


class Status(IntEnum):
    """What became of a request."""

    SERVED = 0
    REJECTED = 1  # the queue was at its limit
    TIMED_OUT = 2  # it left the queue unserved


KEPT = 1 << 20  # arrivals that are kept for the next run
REPLICATIONS = 1_000_000  # no stream of the plain run has so high a number


@dataclass(frozen=True)
class Plan:
    """A scenario with its randomness drawn.

    `arrival_s` is None for a closed loop, whose `think_s[i]` follows send i. `service_s[k]` is
    the mean time of a batch of k; `noise[j]`, if any, the factor of batch number j, and
    `slowdown[n]`, if any, the factor while n servers are busy.
    """

    scenario: Scenario
    requests: int
    arrival_s: np.ndarray | None
    think_s: np.ndarray | None
    service_s: np.ndarray
    noise: np.ndarray | None
    slowdown: np.ndarray | None


@dataclass(frozen=True, eq=False)
class Log:
    """What happened: a row a request in arrival order, and a row a batch in order of start."""

    arrival_s: np.ndarray
    batch_index: np.ndarray  # -1: not served
    status: np.ndarray
    batch_start_s: np.ndarray
    batch_finish_s: np.ndarray
    batch_size: np.ndarray
    batch_server: np.ndarray
    batch_trigger: np.ndarray  # uint8 of `Trigger`
    outputs: list[Any] | None = None

    @classmethod
    def join(cls, logs: Sequence["Log"]) -> "Log":
        """Return the logs of several runs as one, with their batches numbered through."""
        before = np.cumsum([0, *(log.batch_start_s.size for log in logs)])
        joined: dict[str, Any] = {
            f.name: np.concatenate([getattr(log, f.name) for log in logs])
            for f in fields(cls)
            if f.name != "outputs"
        }
        joined["batch_index"] = np.concatenate(
            [
                np.where(log.batch_index < 0, -1, log.batch_index + n)
                for log, n in zip(logs, before, strict=False)
            ]
        )
        return cls(**joined)


Sum = Any  # a number, or an array with one for each part of a run


@dataclass(frozen=True, eq=False)
class Totals:
    """What a run's summary numbers are made of; the sum of two is that of both runs.

    Over the requests after the warm-up, and over the window from the first of them to the last
    finish. Of several parts, every field has a leading axis.
    """

    requests: Sum
    statuses: np.ndarray  # how many of each Status
    parts_s: np.ndarray  # sums over the served: latency, forming, queueing, computing
    finished: Sum  # in the window, warm-up included
    busy_s: Sum  # of all servers, in the window
    window_s: Sum
    batches: Sum  # that start in the window
    items: Sum  # requests in these
    triggers: np.ndarray  # how many of them for each Trigger

    def __add__(self, other: "Totals") -> "Totals":
        return Totals(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(self)))


def warmup_requests(fraction: float, requests: int) -> int:
    """Return how many requests a warm-up drops.

    >>> warmup_requests(0.29, 100)  # although 0.29 * 100 is 28.999999999999996
    29
    """
    return min(math.floor(fraction * requests + 1e-9), requests - 1)


def _seeds(seed: int, replication: int) -> list[np.random.SeedSequence]:
    key = (REPLICATIONS, replication) if replication else ()
    return np.random.SeedSequence(seed, spawn_key=key).spawn(3)


@dataclass(frozen=True)
class Streams:
    """A scenario's randomness: a stream each for arrivals, service noise and think times.

    Every call starts its stream anew. Replication 0 is the plain run.
    """

    scenario: Scenario
    seed: int
    replication: int = 0

    def _stream(self, number: int) -> np.random.SeedSequence:
        return _seeds(self.seed, self.replication)[number]

    def arrivals_s(self, requests: int, chunk: int = CHUNK) -> Iterator[np.ndarray]:
        """Yield an open loop's arrival times in chunks."""
        assert isinstance(self.scenario.workload, OpenLoop)
        return self.scenario.workload.chunks_s(self._stream(0), requests, chunk)

    def noise(self) -> Callable[[int], np.ndarray] | None:
        """Return what draws the next batches' factors, if there are any."""
        noise = self.scenario.service.noise
        return None if noise is None else partial(noise.draw, np.random.default_rng(self._stream(1)))

    def think(self) -> Callable[[int], np.ndarray] | None:
        """Return what draws the thoughts after a closed loop's next sends."""
        workload = self.scenario.workload
        if not isinstance(workload, ClosedLoop):
            return None
        return partial(workload.thinking_s, np.random.default_rng(self._stream(2)))

    @property
    def service_s(self) -> np.ndarray:
        """The mean seconds of a batch, by its size."""
        return self.scenario.service.table(self.scenario.rule.max_batch_size)

    @property
    def slowdown(self) -> np.ndarray | None:
        """The factor on them, by the number of busy servers."""
        factors, servers = self.scenario.slowdown, self.scenario.servers
        return None if factors is None else np.array([math.nan] + [factors[n + 1] for n in range(servers)])


@functools.lru_cache(maxsize=4)
def _arrivals_s(workload: OpenLoop, requests: int, seed: int, replication: int) -> np.ndarray:
    """Return an open loop's arrival times."""
    (stream, *_) = _seeds(seed, replication)
    return filled(workload.chunks_s(stream, requests, CHUNK), requests)


def heed(halt: threading.Event | None) -> None:
    """Give up, if another replication was stopped."""
    if halt is not None and halt.is_set():
        raise InterruptedError("another replication was stopped")


def draw(
    scenario: Scenario,
    requests: int,
    seed: int,
    replication: int = 0,
    halt: threading.Event | None = None,
) -> Plan:
    """Draw all that a run needs at once; given up at the next chunk once `halt` is set."""
    heed(halt)
    streams = Streams(scenario, seed, replication)
    noise, think = streams.noise(), streams.think()

    def heeding(chunks: Iterable[np.ndarray]) -> Iterator[np.ndarray]:
        for chunk in chunks:
            heed(halt)
            yield chunk

    def whole(draw: Callable[[int], np.ndarray]) -> np.ndarray:
        sizes = (min(CHUNK, requests - begin) for begin in range(0, requests, CHUNK))
        return filled(heeding(map(draw, sizes)), requests)

    def arrivals_s() -> np.ndarray:
        # The settings of a sweep share their traffic: it is drawn once. A copy, which belongs to the run.
        if (
            requests <= KEPT
            and isinstance(scenario.workload, Hashable)
            and not isinstance(scenario.workload, Trace)
        ):
            return _arrivals_s(scenario.workload, requests, seed, replication).copy()
        return filled(heeding(streams.arrivals_s(requests)), requests)

    return Plan(
        scenario=scenario,
        requests=requests,
        arrival_s=None if think else arrivals_s(),
        think_s=whole(think) if think else None,
        service_s=streams.service_s,
        noise=whole(noise) if noise else None,  # there are at most as many batches as requests
        slowdown=streams.slowdown,
    )
