"""The randomness of a scenario, drawn before an engine runs: a stream for each purpose.

Each stream has its own seed. So a knob never changes the rest of the traffic (common random numbers), and a
shorter run is a prefix of a longer one. `draw` returns new arrays for each run; `draw_cached` returns shared
ones, for the moves of a slider.
"""

import functools
import math
import sys
import threading
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

import numpy as np

from batchsim._clock import LATEST_S, check_time, on_grid
from batchsim._compat import kept
from batchsim.engines.log import check_cancelled
from batchsim.scenario import ClosedLoop, Limited, OpenLoop, Scenario, Tokens, Trace, priorities
from batchsim.scenario.lengths import Lengths
from batchsim.scenario.noise import Noise
from batchsim.scenario.priorities import Shares
from batchsim.scenario.sized_time import NO_UNITS, UnitCost, extra_s, unit_cost
from batchsim.scenario.workload import CHUNK, filled

KEPT = 1 << 20  # `draw` caches up to so many arrivals for the next run
SMALL = 1 << 17  # `draw_cached` caches the draws of up to so many requests: a megabyte each
NO_TIMES = np.empty(0)
NO_SIZES = np.empty(0, np.int64)
REPLICATIONS = 1_000_000  # no stream of the plain run has so high a number


def numba_is_loaded() -> bool:
    """Return whether the process uses Numba already: then a compiled pass gives the same bits sooner.

    A run of the reference engine does not load it, which takes longer than the passes.
    """
    return "numba" in sys.modules


@dataclass(frozen=True)
class Plan:
    """A scenario with its randomness drawn.

    An open loop has `arrival_s`, on the clock's grid, a closed loop `think_s`, the pause after each send, and
    perhaps `due_s`, the earliest time of each send.
    `service_s[k]` is the mean time of a batch of k; its sizes add `unit_cost`. `noise[j]` is the factor of
    batch j, `slowdown[n]` the factor while n servers are busy, `priority[i]` the level and `size[i]` the size
    of request i, as it was sent, and `cold_start` the compile time
    and the shape, both by batch size (and edge of lengths); each is None if the scenario has no such thing.

    With replicas, `chances` are two random numbers for each request, and `noise_of(replica, count)` returns
    the first factors of a replica, in place of `noise`. In the plan of one of the replicas, `end_s` is when
    the last request of the run comes, to any of them.
    """

    scenario: Scenario
    requests: int
    arrival_s: np.ndarray | None
    think_s: np.ndarray | None
    service_s: np.ndarray
    noise: np.ndarray | None
    slowdown: np.ndarray | None
    priority: np.ndarray | None = None
    cold_start: tuple[np.ndarray, np.ndarray] | None = None
    size: np.ndarray | None = None
    unit_cost: UnitCost = NO_UNITS
    chances: np.ndarray | None = None
    noise_of: Callable[[int, int], np.ndarray] | None = None
    end_s: float = -math.inf
    due_s: np.ndarray | None = None

    @property
    def first_s(self) -> np.ndarray:
        """The arrivals, or in a closed loop new earliest times of the sends."""
        if self.arrival_s is not None:
            return self.arrival_s
        return np.zeros(self.requests) if self.due_s is None else self.due_s.copy()

    def __post_init__(self) -> None:
        check_durations(self.scenario)
        if self.arrival_s is not None:
            check_arrivals(self.arrival_s)
        if self.service_s.size > 1:
            longest_s = float(np.fmax.reduce(self.service_s)) + self._longest_extra_s()
            check_time("a batch's finish", longest_s, "check the unit of the service time, ms")

    def _longest_extra_s(self) -> float:
        if not self.unit_cost.rows.size:
            return 0.0
        count, longest = self.service_s.size - 1, self.scenario.longest
        return extra_s(count, longest, count * longest, count * longest**2, self.unit_cost)

    @kept
    def computed_size(self) -> np.ndarray:
        """The sizes of requests, cut if the scenario truncates them; 1 each if they have none."""
        # A rule may read them in any run; an index into an empty array would lead the compiled loops astray.
        return np.ones(self.requests, np.int64) if self.size is None else self.scenario.cut(self.size)


def check_durations(scenario: Scenario) -> None:
    """Raise ValueError for a wait or a timeout that ends later than the clock counts."""
    rule = scenario.rule
    named_ms = {name: getattr(rule, name) for name in rule.parameters() if name.endswith("_ms")}
    named_ms["timeout_ms"] = scenario.timeout_s * 1000
    for name, ms in named_ms.items():
        if ms < math.inf:
            never = "None" if name == "timeout_ms" else "math.inf"
            check_time(f"the end of {name}", ms / 1000, f"{never} means never")
    if isinstance(scenario.workload, ClosedLoop):
        check_time("the end of think_s", scenario.workload.think_s, "check the unit, s")


def check_arrivals(arrival_s: np.ndarray, before: int = 0) -> None:
    """Raise ValueError if some requests arrive too late; `before`: the requests before these."""
    if arrival_s.size and arrival_s[-1] >= LATEST_S:
        fit = before + int(np.searchsorted(arrival_s, LATEST_S))
        remedy = f"take the first {fit:,} requests, or a higher rate (of a trace: a speedup)"
        check_time("arrivals", float(arrival_s[-1]), remedy)


def _seed(purpose: int, seed: int, replication: int = 0) -> np.random.SeedSequence:
    """Return the seed of a stream.

    Arrivals 0, noise 1, think times 2, priorities 3, prompts 4, outputs 5, sizes 6, routing 7, prefixes 8.
    """
    key = (REPLICATIONS, replication) if replication else ()
    return np.random.SeedSequence(seed, spawn_key=(*key, purpose))  # as the child of this number


def length_seeds(seed: int, replication: int = 0) -> tuple[np.random.SeedSequence, np.random.SeedSequence]:
    """Return the seeds of prompts and outputs."""
    return _seed(4, seed, replication), _seed(5, seed, replication)


def path_draws(tokens: Tokens, seed: int, replication: int = 0) -> Callable[[int], np.ndarray]:
    """Return a function that draws the number of each request's path; 0 without prefixes."""
    if tokens.prefixes is None:
        return partial(np.zeros, dtype=np.int64)
    return tokens.prefixes.draws(_seed(8, seed, replication))


@dataclass(frozen=True)
class Streams:
    """The streams of a scenario; each call starts its stream again. Replication 0 is the plain run."""

    scenario: Scenario
    seed: int
    replication: int = 0
    end_s: ClassVar[float] = -math.inf  # as in `Plan`

    def _generator(self, purpose: int) -> np.random.Generator:
        return np.random.default_rng(_seed(purpose, self.seed, self.replication))

    def arrivals_s(
        self, requests: int, chunk: int = CHUNK, room: np.ndarray | None = None
    ) -> Iterator[np.ndarray]:
        """Yield the arrival times, on the clock's grid.

        Chunk after chunk may lie in the same `room`, if any: new memory would take as long as the draws.
        """
        assert isinstance(self.scenario.workload, OpenLoop)
        seed, passed = _seed(0, self.seed, self.replication), 0
        for arrival_s in _chunks_s(self.scenario.workload, seed, requests, chunk, room):
            check_arrivals(arrival_s, passed)
            passed += arrival_s.size
            yield arrival_s

    def noise(self, replica: int = 0) -> Callable[[int], np.ndarray] | None:
        """Return a function that draws the factors of a replica's next batches; None without noise.

        Replica 0 has the stream of a single queue.
        """
        noise = self.scenario.service.noise
        if noise is None:
            return None
        seed = _seed(1, self.seed, self.replication)
        if replica:  # the last of so many spawned children
            seed = np.random.SeedSequence(seed.entropy, spawn_key=(*seed.spawn_key, replica - 1))
        return noise.source(np.random.default_rng(seed))

    def think(self) -> Callable[[int], np.ndarray] | None:
        """Return a function that draws the think times after the next sends; None in an open loop."""
        workload = self.scenario.workload
        return partial(workload.thinking_s, self._generator(2)) if isinstance(workload, ClosedLoop) else None

    def priorities(self) -> Callable[[int], np.ndarray] | None:
        """Return a function that draws the levels of the next requests; None without priorities."""
        shares = self.scenario.workload.priorities
        return None if shares is None else partial(priorities.draw, shares, self._generator(3))

    def sizes(self) -> Callable[[int], np.ndarray] | None:
        """Return a function that draws the sizes of the next requests; None without sizes."""
        sizes = self.scenario.workload.sizes
        return None if sizes is None else sizes.draws(_seed(6, self.seed, self.replication))

    def noise_of(self, replica: int, count: int) -> np.ndarray:
        """Return the factors of a replica's first batches."""
        draw = self.noise(replica)
        assert draw is not None
        return draw(count)

    def chances(self, requests: int) -> Callable[[int], np.ndarray] | None:
        """Return a function that draws two random numbers for each next request; None with one replica."""
        if self.scenario.most_replicas == 1:
            return None
        given = getattr(self.scenario.routing, "keys", 0)
        if isinstance(given, tuple) and len(given) < requests:
            raise ValueError(f"keys must be one a request, {requests:,}, got {len(given):,}")
        generator = self._generator(7)
        return lambda count: generator.random((count, 2))

    def of_replicas(self, requests: int) -> dict[str, Any]:
        """Return the fields of a plan that only a scenario with replicas has."""
        if (draw := self.chances(requests)) is None:
            return {}
        noise_of = None if self.scenario.service.noise is None else self.noise_of
        return {"chances": draw(requests), "noise": None, "noise_of": noise_of}

    @property
    def service_s(self) -> np.ndarray:
        return self.scenario.service.count_s(self.scenario.rule.max_batch_size)

    @property
    def unit_cost(self) -> UnitCost:
        return unit_cost(self.scenario.service, self.scenario.rule.max_batch_size)

    def lengths(self) -> Callable[[int], tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """Return a function that draws prompts, outputs and limits of the next requests, in tokens."""
        assert self.scenario.tokens is not None
        return self.scenario.tokens.draws(*length_seeds(self.seed, self.replication))

    def paths(self) -> Callable[[int], np.ndarray]:
        """Return a function that draws the prefixes of the next requests: the number of each one's path."""
        assert self.scenario.tokens is not None
        return path_draws(self.scenario.tokens, self.seed, self.replication)

    @property
    def cold_start(self) -> tuple[np.ndarray, np.ndarray] | None:
        return self.scenario.service.cold_start(self.scenario.rule.max_batch_size)

    @property
    def slowdown(self) -> np.ndarray | None:
        """The factor on service times, by the number of busy servers."""
        factors, servers = self.scenario.slowdown, self.scenario.servers
        return None if factors is None else np.array([math.nan] + [factors[n + 1] for n in range(servers)])


def _chunks_s(
    workload: OpenLoop, seed: np.random.SeedSequence, requests: int, chunk: int, room: np.ndarray | None
) -> Iterator[np.ndarray]:
    """Yield the arrival times of a workload, on the clock's grid: see `Streams.arrivals_s`."""
    fill, total = workload.gaps(seed) if numba_is_loaded() else None, 0.0
    if fill is None:
        yield from map(on_grid, workload.chunks_s(seed, requests, chunk))
        return
    from batchsim.engines.compiled.passes import add_up

    for begin in range(0, requests, chunk):
        size = min(chunk, requests - begin)
        arrival_s = np.empty(size) if room is None else room[:size]
        fill(arrival_s)
        total = add_up(arrival_s, total, float(workload.offered_per_s))
        yield arrival_s


def _arrivals_s(workload: OpenLoop, requests: int, seed: int, replication: int = 0) -> np.ndarray:
    chunks = _chunks_s(workload, _seed(0, seed, replication), requests, CHUNK, np.empty(CHUNK))
    return filled(chunks, requests)


_latest_arrivals_s = functools.lru_cache(maxsize=4)(_arrivals_s)


def _due_s(workload: ClosedLoop, requests: int) -> np.ndarray | None:
    """Return the earliest times of sends, on the clock's grid; None if clients send as soon as they can."""
    return on_grid(np.array(workload.times_s[:requests])) if isinstance(workload, Limited) else None


def _until(cancelled: threading.Event | None, chunks: Iterator[np.ndarray]) -> Iterator[np.ndarray]:
    for chunk in chunks:
        check_cancelled(cancelled)
        yield chunk


def _whole(
    draw: Callable[[int], np.ndarray], requests: int, cancelled: threading.Event | None
) -> np.ndarray:  # fmt: skip
    chunks = (draw(min(CHUNK, requests - begin)) for begin in range(0, requests, CHUNK))
    return filled(_until(cancelled, chunks), requests)


def draw_traffic(
    scenario: Scenario, requests: int, seed: int, replication: int = 0,
    cancelled: threading.Event | None = None, shared: bool = False, **fields: Any,
) -> Plan:  # fmt: skip
    """Draw the arrivals of an open loop, or the think times of a closed one.

    `shared`: other runs may have the same arrivals in memory, so that nothing may write to them.
    `fields` of the plan are about batches; without them it has nothing about these.
    """
    check_cancelled(cancelled)
    streams, workload = Streams(scenario, seed, replication), plain(scenario.workload)
    arrival_s = think_s = due_s = None
    if think := streams.think():
        think_s = _whole(think, requests, cancelled)
        due_s = _due_s(workload, requests)
    elif requests <= KEPT and isinstance(workload, Hashable) and not isinstance(workload, Trace):
        # The settings of a sweep have the same traffic, so it is drawn once.
        arrival_s = _latest_arrivals_s(workload, requests, seed, replication)
        arrival_s = arrival_s if shared else arrival_s.copy()
    else:
        arrival_s = filled(_until(cancelled, streams.arrivals_s(requests, room=np.empty(CHUNK))), requests)
    about_batches = {"service_s": NO_TIMES, "noise": None, "slowdown": None} | fields
    return Plan(scenario, requests, arrival_s, think_s, due_s=due_s, **about_batches)


def draw(
    scenario: Scenario, requests: int, seed: int, replication: int = 0,
    cancelled: threading.Event | None = None, shared: bool = False,
) -> Plan:  # fmt: skip
    """Draw everything that a run needs; InterruptedError at the next chunk once `cancelled` is set.

    `shared` as in `draw_traffic`.
    """
    streams = Streams(scenario, seed, replication)
    noise = None if scenario.most_replicas > 1 else streams.noise()
    levels, sizes = streams.priorities(), streams.sizes()
    fields: dict[str, Any] = {
        "service_s": streams.service_s,
        "noise": _whole(noise, requests, cancelled) if noise else None,  # at most as many batches as requests
        "slowdown": streams.slowdown, "priority": levels(requests) if levels else None,
        "cold_start": streams.cold_start, "size": sizes(requests) if sizes else None,
        "unit_cost": streams.unit_cost,
    }  # fmt: skip
    fields |= streams.of_replicas(requests)
    return draw_traffic(scenario, requests, seed, replication, cancelled, shared, **fields)


def plain(workload: Any) -> Any:
    """Return a workload without its priorities and sizes: they do not change its traffic."""
    if workload.priorities is workload.sizes is None:
        return workload
    return replace(workload, priorities=None, sizes=None)


# Plans with cached draws, for the moves of a slider: another rate only stretches them.


def draw_traffic_cached(scenario: Scenario, requests: int, seed: int) -> Plan:
    """Return the plan of `draw_traffic`. Its arrays are shared: they must not be written to."""
    workload = plain(scenario.workload)
    arrival_s = think_s = due_s = None
    if isinstance(workload, ClosedLoop):
        think_s, due_s = _cached(_think_s, workload.think_s, requests, seed), _due_s(workload, requests)
    else:
        arrival_s = _stretched_s(workload, requests, seed)
    return Plan(scenario, requests, arrival_s, think_s, NO_TIMES, noise=None, slowdown=None, due_s=due_s)


def draw_cached(scenario: Scenario, requests: int, seed: int, largest: int) -> Plan:
    """Return the plan of `draw`, with service times up to batches of `largest`.

    Its arrays are shared: they must not be written to.
    """
    noise, shares, sizes = scenario.service.noise, scenario.workload.priorities, scenario.workload.sizes
    streams = Streams(scenario, seed)
    plan = replace(
        draw_traffic_cached(scenario, requests, seed), service_s=scenario.service.count_s(largest),
        noise=None if noise is None else _cached(_noise, noise, requests, seed),
        slowdown=streams.slowdown,
        priority=None if shares is None else _cached(_levels, shares, requests, seed),
        cold_start=scenario.service.cold_start(largest),
        size=None if sizes is None else _cached(_sizes, sizes, requests, seed),
        unit_cost=unit_cost(scenario.service, largest),
    )  # fmt: skip
    return replace(plan, **streams.of_replicas(requests))


def _cached(draw, key, requests: int, seed: int) -> np.ndarray:  # type: ignore[no-untyped-def]
    """Draw; the result is cached if it is small enough."""
    return (draw if requests <= SMALL else draw.__wrapped__)(key, requests, seed)


def _stretched_s(workload: OpenLoop, requests: int, seed: int) -> np.ndarray:
    if isinstance(workload, Trace):  # copying one is cheaper than hashing it
        return on_grid(workload.times_s[:requests])
    if isinstance(workload, Hashable):
        return _cached(_open_s, workload, requests, seed)
    return _arrivals_s(workload, requests, seed)


@functools.lru_cache(maxsize=32)  # the rates of two load curves
def _open_s(workload: OpenLoop, requests: int, seed: int) -> np.ndarray:
    if (standard := workload.standard) is not None:  # each rate stretches the same points
        points = _cached(_unrounded_s, standard, requests, seed)
        return on_grid(filled(workload.stretched_s([points]), requests))
    return _arrivals_s(workload, requests, seed)


@functools.lru_cache(maxsize=4)
def _unrounded_s(workload: OpenLoop, requests: int, seed: int) -> np.ndarray:
    return filled(workload.chunks_s(_seed(0, seed), requests, CHUNK), requests)


def standard_points(workload: OpenLoop, requests: int, seed: int) -> np.ndarray:
    """Return a workload's arrivals at rate 1, shape (requests,), shared and not yet on the clock's grid."""
    return _cached(_unrounded_s, workload.with_rate(1), requests, seed)


@functools.lru_cache(maxsize=4)
def _think_s(think_s: float, requests: int, seed: int) -> np.ndarray:
    return ClosedLoop(1, think_s).thinking_s(np.random.default_rng(_seed(2, seed)), requests)


@functools.lru_cache(maxsize=4)
def _levels(shares: Shares, requests: int, seed: int) -> np.ndarray:
    return priorities.draw(shares, np.random.default_rng(_seed(3, seed)), requests)


@functools.lru_cache(maxsize=4)
def _sizes(sizes: Lengths, requests: int, seed: int) -> np.ndarray:
    return sizes.draws(_seed(6, seed))(requests)


@functools.lru_cache(maxsize=4)
def _noise(noise: Noise, requests: int, seed: int) -> np.ndarray:
    return noise.draw(np.random.default_rng(_seed(1, seed)), requests)
