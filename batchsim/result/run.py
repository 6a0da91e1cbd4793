"""A run: one log, and what is computed of it."""

import math
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from batchsim._clock import between_ms, later
from batchsim._compat import kept
from batchsim.engines.draws import numba_is_loaded
from batchsim.engines.log import Log, warmup_requests
from batchsim.engines.totals import Totals
from batchsim.result import replicas
from batchsim.result.breakdown import ServerTime, Stretches
from batchsim.result.metrics import DEVICE_WAIT, LATENCY, Metrics
from batchsim.result.run_length import Periods
from batchsim.result.sections import Sections, serves_all
from batchsim.result.value_columns import OrderStatistics
from batchsim.scenario import Scenario


@dataclass(frozen=True, eq=False)
class Batches:
    """Columns with a row a batch, numbered by start."""

    start_s: np.ndarray
    finish_s: np.ndarray
    batch_size: np.ndarray
    server: np.ndarray
    trigger: np.ndarray
    carried: np.ndarray | None = None  # the sum of its requests' sizes; None unless these change its time
    units: np.ndarray | None = None  # that it computes, padding included

    def __len__(self) -> int:
        return self.start_s.size

    def __repr__(self) -> str:
        return f"Batches({len(self):,} batches)"


def state_of(instance: Any) -> dict[str, Any]:
    """Return a dataclass's fields for its pickle: what is computed of them is computed again on arrival."""
    return {f.name: getattr(instance, f.name) for f in fields(instance)}


@dataclass(frozen=True, eq=False)
class Run:
    """One simulation of a scenario: columns with a row a request, its metrics, and those of its sections.

    A run with keep="summary" has `sums`, the totals and the histogram of its latencies, in place of
    `columns`. `warmup` is the fraction of the requests that metrics leave out; columns stay whole. `clock`
    is "measured" if a model's own times replace the service times, and "wall" if the whole run was real.
    """

    scenario: Scenario
    columns: Log | None = None
    sums: tuple[Totals, Any] | None = None
    warmup: float = 0.0
    clock: str = "simulated"

    __getstate__ = state_of

    @property
    def log(self) -> Log:
        if self.columns is None:
            raise ValueError("columns must be kept to be read, got a run with keep='summary'")
        return self.columns

    @property
    def warmup_requests(self) -> int:
        return warmup_requests(self.warmup, self.log.arrival_s.size)

    @kept
    def start_s(self) -> np.ndarray:
        return self._of_its_batch(self.log.batch_start_s)

    @kept
    def finish_s(self) -> np.ndarray:
        return self._of_its_batch(self.log.batch_finish_s)

    def _of_its_batch(self, column: np.ndarray) -> np.ndarray:
        # Index -1, not served, finds the NaN appended at the end.
        return np.append(column, math.nan)[self.log.batch_index]

    @property
    def ready_s(self) -> np.ndarray:
        """When each batch begins to be computed: at its start, or once the scenario has compiled its shape.

        The first batch of a shape compiles it, and those that start meanwhile wait for it. Measured times
        do not show which batches compiled. The log of a rule that fills batches up (`computed_as`) has only
        the sizes as taken, and these are assumed.
        """
        ready_s: np.ndarray = self.device_time.ready_s
        return ready_s

    @kept
    def units(self) -> Any:
        """The units of each batch: those that its requests carry, those that it computes, and its shape."""
        from batchsim.engines.compiled.total import Units  # Numba loads with it

        return Units.of(self.scenario, self.log, self.log.batch_size)

    @kept
    def latency_ms(self) -> np.ndarray:
        log = self.log
        if not numba_is_loaded():
            return between_ms(log.arrival_s, self.finish_s)
        from batchsim.engines.compiled.columns import writable
        from batchsim.engines.compiled.passes import note_latencies

        latency_ms = np.empty(log.requests)
        note_latencies(*map(writable, (log.arrival_s, log.batch_index, log.batch_finish_s)), latency_ms)
        return latency_ms

    @kept
    def forming_ms(self) -> np.ndarray:
        log = self.log
        if log.replica is not None:
            return replicas.forming_s(self.scenario, log, self.start_s) * 1000
        return self._forming_s() * 1000

    def _forming_s(self) -> np.ndarray:
        """Return how long each request waited while a server was idle, with one queue."""
        return self.server_time.forming_s(self.log)

    @kept
    def queueing_ms(self) -> np.ndarray:
        return (self.start_s - self.log.arrival_s) * 1000 - self.forming_ms

    @kept
    def computing_ms(self) -> np.ndarray:
        return (self.finish_s - self.start_s) * 1000 - self.device_wait_ms

    @kept
    def device_wait_ms(self) -> np.ndarray:
        if self.scenario.device_count == self.scenario.servers:
            return self.start_s * 0.0  # NaN where it was not served
        return self._of_its_batch(self.device_time.wait_s) * 1000

    @property
    def knows_devices(self) -> bool:
        """Whether it is known when batches had their devices: not of a real run where servers share them."""
        return self.clock != "wall" or self.scenario.plain_servers

    @kept
    def device_time(self) -> Any:
        """When batches had their devices, in rows of `DeviceTimes`."""
        from batchsim.engines.compiled.columns import Batches as Columns  # Numba loads with it
        from batchsim.engines.compiled.total import DeviceClock

        clock = DeviceClock(self.scenario, self.knows_devices, cold=self.clock == "simulated")
        return clock.of(Columns.of(self.log), self.units)

    def off_device_s(self, edges_s: np.ndarray) -> np.ndarray:
        """Return how long servers had a batch that was not on its device yet, between each two edges."""
        begin_s, log = self.device_time.begin_s, self.log
        if not self.knows_devices:
            return np.full(edges_s.size - 1, math.nan)
        if not (begin_s > log.batch_start_s).any():
            return np.zeros(edges_s.size - 1)
        off = ServerTime(replace(log, batch_finish_s=begin_s), self.scenario.all_servers)
        return np.diff(np.interp(edges_s, off.times_s, off.busy_s))

    @kept
    def server_time(self) -> ServerTime:
        """What the servers did until any time."""
        return ServerTime(self.log, self.scenario.all_servers)

    @kept
    def replica(self) -> np.ndarray:
        """The replica to which the router sent each request."""
        log = self.log
        return np.zeros(log.requests, np.uint16) if log.replica is None else log.replica

    @kept
    def timeout_s(self) -> np.ndarray:
        """How long each request waits until it times out or is delayed; inf: for ever."""
        return self._by_level([limit.timeout_s for limit in self.scenario.limits])

    @kept
    def delayed(self) -> np.ndarray:
        """Whether each request began to be computed after a timeout that delays it."""
        delays = self._by_level([limit.delays for limit in self.scenario.limits])
        return delays & (self.start_s > later(self.log.arrival_s, self.timeout_s))

    def _by_level(self, values: list[Any]) -> np.ndarray:
        if self.log.priority is None:
            return np.full(self.log.arrival_s.size, values[0])
        return np.array(values)[np.searchsorted(self.scenario.levels, self.log.priority)]

    def stretches(self, requests: np.ndarray) -> dict[str, Stretches]:
        """Return what requests went through; see `Result.stretches`."""
        _arrival_s, start_s, finish_s = (
            column[requests] for column in (self.log.arrival_s, self.start_s, self.finish_s)
        )
        served = np.flatnonzero(~np.isnan(start_s))
        log, among = self.log, requests[served]
        if log.replica is None:
            waits = self.server_time.waits(log.arrival_s[among], start_s[served])
        else:
            waits = replicas.waits(self.scenario, log, among, start_s[served])
        found = {name: each._replace(row=served[each.row]) for name, each in waits.items()}
        begin_s, end_s = start_s[served], finish_s[served]
        if self.scenario.device_count == self.scenario.servers:
            return found | {"computing": Stretches(served, begin_s, end_s)}
        index = self.log.batch_index[requests[served]]
        asked_s, device_s = self.device_time.asked_s[index], self.device_time.begin_s[index]
        wait = Stretches(served, asked_s, device_s).there()
        # A batch that waits is computed before, on the host, and after it.
        host = Stretches(served, begin_s, np.where(device_s > asked_s, asked_s, end_s)).there()
        rest = Stretches(served, np.where(device_s > asked_s, device_s, end_s), end_s).there()
        computing = Stretches(*map(np.concatenate, zip(host, rest, strict=True)))
        return found | {DEVICE_WAIT: wait, "computing": computing}

    @property
    def measured(self) -> dict[str, np.ndarray]:
        """The columns that percentiles are taken of, NaN where a request was not served.

        A run of tokens adds its own here, as the time to the first token: with a line in `METRICS` for each
        metric of it, its percentiles and their intervals follow.
        """
        return {LATENCY: self.latency_ms}

    @kept
    def metrics(self) -> Metrics:
        if self.sums is not None:
            totals, histogram = self.sums
            return Metrics(self.scenario, totals, {LATENCY: histogram})
        columns = {name: column[self.warmup_requests :] for name, column in self.measured.items()}
        if not serves_all(self.log):
            columns = {name: column[~np.isnan(column)] for name, column in columns.items()}
        ordered = {name: OrderStatistics(column) for name, column in columns.items()}
        return Metrics(self.scenario, self.sections.whole(), ordered)

    @kept
    def sections(self) -> Sections:
        """The same of 64 stretches of the run; needs its columns."""
        return self.sections_at(None)

    @property
    def alike(self) -> Sections:
        """The sections that intervals are made from: of a day, whole periods."""
        return self.sections if self.ends is None else self.sections_at(self.ends)

    def sections_at(self, ends: np.ndarray | None) -> Sections:
        """Return sections that end at some fractions of the run's requests, or 64 stretches."""
        skip, columns = self.warmup_requests, self.measured
        return Sections.of_log(self, self.log, skip, columns, ends)

    @property
    def serves_in_turn(self) -> bool:
        """Whether one queue serves every request in order of arrival, under a threshold rule."""
        from batchsim.engines.compiled.engine import serves_in_turn

        kept = self.clock != "wall" and self.log.replica is None
        return kept and serves_in_turn(self.scenario) and serves_all(self.log)

    @property
    def ends(self) -> np.ndarray | None:
        """Where its sections end, if it covers many periods of a day: see `Periods.ends`."""
        kept = self.log.arrival_s.size - self.warmup_requests
        periods = Periods.of(self.scenario.workload, kept, self.warmup_requests)
        return None if periods is None else periods.ends


def clock_of(engine: str) -> str:
    """Return the clock of the runs of a result by its engine, as it is saved."""
    return "wall" if engine.startswith("replay") else "measured" if " on " in engine else "simulated"
