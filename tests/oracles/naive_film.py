"""A moment of a run, from its columns one request at a time: no order is assumed, and nothing is searched."""

import math
from dataclasses import dataclass, field

from oracles.naive import after

import batchsim as bs
from batchsim._format import listed, number


@dataclass
class Moment:
    """The state after everything that was due at a time; requests and batches by their numbers."""

    result: bs.Result
    time_s: float
    waiting: list = field(default_factory=list)  # oldest first
    members: dict = field(default_factory=dict)  # of each batch that a server computes
    arrived: int = 0
    served: int = 0
    lost: int = 0

    def __post_init__(self):
        result, time_s = self.result, self.time_s
        names = ("arrival_s", "status", "start_s", "finish_s", "timeout_s", "batch_index")
        rows = zip(*(getattr(result, name).tolist() for name in names), strict=True)
        for request, (arrival_s, status, start_s, finish_s, timeout_s, batch) in enumerate(rows):
            if arrival_s > time_s:
                continue
            self.arrived += 1
            timed_out = status == bs.Status.TIMED_OUT
            if status in (bs.Status.REJECTED, bs.Status.FAILED) or (
                timed_out and after(arrival_s, timeout_s) <= time_s
            ):
                self.lost += 1
            elif timed_out or time_s < start_s:
                self.waiting.append(request)
            elif finish_s <= time_s:
                self.served += 1
            else:
                self.members.setdefault(batch, []).append(request)
        # A whole batch of token generation has the number of its first step.
        self.columns = result.batches if result.scenario.tokens is None else result.steps
        starts_s = result.batches.start_s.tolist()
        self.left = [batch for batch, start_s in enumerate(starts_s) if start_s <= time_s]

    def in_turn(self, requests, time_s=None):
        """Return some requests as they stand in the queue at a time, by default at this one."""
        return sorted(requests, key=lambda each: self.turn(each, self.time_s if time_s is None else time_s))

    def turn(self, request, time_s):
        result = self.result
        scenario, place, batch = result.scenario, 0, 0
        if scenario.in_order:
            return request
        if result.priority is not None:
            place = scenario.levels.index(result.priority[request])
        limit, arrival_s = scenario.limits[place], result.arrival_s[request]
        late = limit.delays and after(arrival_s, limit.timeout_s) <= time_s
        if scenario.rule.freezes or not scenario.by_level:  # batches that were made before go first
            batch = result.batch_index[request]
            if batch < 0:
                left_s = after(arrival_s, result.timeout_s[request])
                batch = sum(start_s < left_s for start_s in result.batches.start_s)
        return batch, place, late, request

    @property
    def computing(self):
        """For each server the requests of its batch, as they stood in the queue; None if it is idle."""
        found = [None] * self.result.scenario.all_servers
        for batch, requests in self.members.items():
            before_s = math.nextafter(self.columns.start_s[batch], 0)
            found[self.columns.server[batch]] = self.in_turn(requests, before_s)
        return found

    @property
    def at_replicas(self):
        at = self.result.replica[self.waiting].tolist()
        return [at.count(replica) for replica in range(self.result.scenario.most_replicas)]

    @property
    def forming(self):
        """Whether a server is idle whose replica has requests that wait."""
        busy = [each is not None for each in self.computing]
        servers = self.result.scenario.servers
        return any(
            (count or len(self.at_replicas) == 1) and not all(busy[k * servers : (k + 1) * servers])
            for k, count in enumerate(self.at_replicas)
        )

    def leaves(self, within_s):
        return bool(self.left) and self.time_s - self.result.batches.start_s[self.left[-1]] <= within_s

    def state(self, within_s=0.0):
        """Return "leaves", or the state of the rule in words."""
        if self.leaves(within_s):
            return "leaves"
        if not self.waiting:
            return "no request waits"
        return "waiting for company" if self.forming else "waiting for a server"

    def words(self, lines, within_s=0.0):
        """Return the sentence of the moment, from a rule's pseudo-code."""
        result, batches, ms = self.result, self.result.batches, 1000 * self.time_s
        parts = [self.state(within_s)]
        if parts == ["leaves"]:
            trigger, size = (column[self.left[-1]] for column in (batches.trigger, batches.batch_size))
            (because,) = (line.because for line in lines if line.trigger == trigger)
            parts = [f"a batch of {size} leaves: {because}"]
        if self.waiting:
            waited, of = number((self.time_s - result.arrival_s[self.waiting[0]]) * 1000), ""
            if len(result.scenario.levels) > 1:
                levels = result.priority[self.waiting].tolist()
                of = listed([f"{levels.count(level)} of level {level}" for level in sorted({*levels})])
                of = f" ({of})"
            if 1 < len(self.at_replicas) <= 8:
                of += f" ({listed([*map(str, self.at_replicas)])} by replica)"
            elif len(self.at_replicas) > 8:
                of += f" (at most {max(self.at_replicas)} at a replica)"
            parts.append(f"{len(self.waiting)} waiting{of}, the oldest for {waited} ms")
        servers, busy = len(self.computing), len(self.members)
        parts.append(f"{busy} of {servers} servers busy")
        if servers == 1:
            parts[-1] = "server busy" if busy else "server idle"
        if compiling := sum(self.time_s < result.ready_s[batch] for batch in self.members):
            parts[-1] += ", compiling" if servers == 1 else f", {compiling} compiling"
        times = result.run.device_time
        if held := sum(times.asked_s[batch] <= self.time_s < times.begin_s[batch] for batch in self.members):
            parts[-1] += f", {held} waiting for a device"
        parts.append(f"{self.arrived} arrived, {self.served} served, {self.lost} lost")
        batches_ms = 1000 * (batches.finish_s - batches.start_s)
        decimals = 2 - math.floor(math.log10(batches_ms.mean())) if batches_ms.size else 0
        return f"At {ms:,.{min(max(decimals, 0), 9)}f} ms: {'; '.join(parts)}."
