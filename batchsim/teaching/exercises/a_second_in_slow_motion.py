"""The exercises of notebooks/03-a-second-in-slow-motion.ipynb: ten requests, one by one."""

from collections.abc import Iterable, Iterator
from functools import cache
from itertools import permutations
from typing import Any, NamedTuple

import numpy as np

from batchsim.engines.log import Status
from batchsim.result import Result
from batchsim.scenario import Affine, Scenario, SizeOrWait, Trace
from batchsim.simulate import simulate
from batchsim.teaching.exercises.exercise import Mistakes, Number
from batchsim.teaching.exercises.program import Case, Function, attempt, fault, plain, shown

ARRIVALS_MS = (0, 1, 2, 3, 5, 12, 13, 14, 24, 27)
MAX_BATCH_SIZE = 3
MAX_WAIT_MS = 4
SERVICE = Affine(fixed_ms=5, per_item_ms=1)
DIGITS = 6  # of a time in ms: they are whole milliseconds, except for the rounding of seconds


@cache
def run(
    arrivals_ms: tuple[int, ...] = ARRIVALS_MS, max_batch_size: int = MAX_BATCH_SIZE, **how: Any
) -> Result:
    """Return the run of some requests, by default of the lesson's ten."""
    times_s = Trace(np.array(arrivals_ms) / 1000)
    scenario = Scenario(times_s, SizeOrWait(max_batch_size, MAX_WAIT_MS), SERVICE, **how)
    return simulate(scenario, engine="simpy")  # as the lesson does, and there is nothing to compile


class Eleventh(Number, name="03.1"):
    """The latency of one more request, by hand."""

    unit = "ms"
    arrival_ms = 30  # else it waits as long as it computes
    parts = "the end of its wait, the time when the server is free, and the service time of a batch of 1"
    look = "The same in batchsim"
    otherwise = "when is its wait over, when is the server free, and how long does a batch of 1 compute?"

    @property
    def result(self) -> Result:
        return run((*ARRIVALS_MS, self.arrival_ms))

    def right(self) -> float:
        return float(self.result.latency_ms[-1])

    def because(self, right: float) -> str:
        start_ms, finish_ms = 1000 * self.result.start_s[-1], 1000 * self.result.finish_s[-1]
        over = f"its wait is over at {self.arrival_ms + MAX_WAIT_MS} ms, when the server computes"
        return f"{over}. It starts at {start_ms:.0f} ms and ends at {finish_ms:.0f} ms: {right:.0f} ms."

    def mistakes(self, right: float) -> Mistakes:
        alone_ms, start_ms = 1000 * SERVICE(1), 1000 * self.result.start_s[-1]
        over_ms, two_ms = self.arrival_ms + MAX_WAIT_MS, 1000 * SERVICE(2)
        yield right + self.arrival_ms, f"that is the time of its answer. It arrived at {self.arrival_ms} ms."
        yield alone_ms, "that is its computing time. How long did it wait before?"
        yield MAX_WAIT_MS + alone_ms, f"its wait is over at {over_ms} ms. What does the server do then?"
        yield start_ms - self.arrival_ms, "that is its waiting time. How long does it compute?"
        yield right + MAX_WAIT_MS, "its wait starts on arrival, so it is over when the server is free."
        yield right + two_ms - alone_ms, "it is alone in its batch: it is the last request."


class Waited(NamedTuple):
    """A case: when a request arrived, started and ended, and the server's last batch before ended."""

    arrival_ms: float
    start_ms: float
    finish_ms: float
    free_ms: float
    parts_ms: tuple[float, ...]  # forming, queueing, computing

    def missed(self, answer: Any) -> str:
        told = f"take split{self[:4]}.\n"
        made = attempt(answer, *self[:4])
        if made.error is not None:
            return f"{told}It {fault(made.error, answer)}"
        got, expected = plain(made.value), list(self.parts_ms)
        numbers = isinstance(got, list) and all(isinstance(part, (int, float)) for part in got)
        if not numbers or len(got) != len(expected):
            return f"{told}It gave {shown(got)} and should give three numbers: forming, queueing, computing."
        if np.allclose(got, expected, rtol=0, atol=10**-DIGITS):
            return ""
        return f"{told}It gave {tuple(got)} and should give {self.parts_ms}. {self.why(got, answer)}"

    def why(self, got: list[float], answer: Any) -> str:
        latency_ms, total_ms = self.finish_ms - self.arrival_ms, sum(got)
        if min(got) < 0:
            return f"A time cannot be less than 0 ms: compare {self.free_ms} ms with {self.arrival_ms} ms."
        if abs(total_ms - latency_ms) > 1e-6:
            return f"The sum is {total_ms:g} ms, but the latency is {latency_ms:g} ms."
        if sorted(got) == sorted(self.parts_ms) and _in_another_order(answer):
            return "The numbers are right, but their order is not."
        if self.free_ms >= self.start_ms:
            return f"The server computed until {self.free_ms} ms, when this request started."
        return f"The server was idle from {self.free_ms} ms until {self.start_ms} ms."


class Split(Function, name="03.2"):
    """A function that splits a latency into forming, queueing and computing."""

    parts = "the moment when the request was there and the server free, and the time before and after it"
    look = "The same in batchsim"
    done = "your three parts match batchsim's"
    signature = "split(arrival_ms, start_ms, finish_ms, free_ms)"

    def cases(self, written: Iterable[str]) -> Iterator[Case]:
        gaps_ms = np.random.default_rng(3).integers(1, 12, size=60)
        runs = [run(), run(tuple(np.cumsum(gaps_ms).tolist()))]
        found = {case for result in runs for case in _waited(result)}
        if written:
            yield from sorted(found, key=lambda case: (case.finish_ms, case.arrival_ms))


def _waited(result: Result) -> Iterator[Waited]:
    ends_s = [0.0, *result.batches.finish_s]
    for request, batch in enumerate(result.batch_index):
        times_s = result.arrival_s[request], result.start_s[request], result.finish_s[request], ends_s[batch]
        arrival_ms, start_ms, finish_ms, free_ms = (_whole(1000 * time_s) for time_s in times_s)
        columns = result.forming_ms, result.queueing_ms, result.computing_ms
        parts_ms = tuple(_whole(column[request]) for column in columns)
        yield Waited(arrival_ms, start_ms, finish_ms, free_ms, parts_ms)


def _in_another_order(answer: Any) -> bool:
    """Return whether the parts of all the lesson's requests are right but for one and the same order."""
    cases = list(_waited(run()))
    got = [plain(attempt(answer, *case[:4]).value) for case in cases]
    return any(
        all(parts == [case.parts_ms[at] for at in order] for parts, case in zip(got, cases, strict=True))
        for order in permutations(range(3))
    )


def _whole(time_ms: float) -> int:
    whole = round(float(time_ms))
    assert abs(whole - time_ms) < 10**-DIGITS
    return whole


class ShortQueue(Number, name="03.3"):
    """The mean latency of those who find a place in a queue for two."""

    unit = "ms"
    within = 0.003
    queue_limit = 2
    parts = "the requests that find a place, their waiting and computing times, and their number"
    look = "A source, a queue, a collector, a server"
    otherwise = "in the source, put a request into the queue if fewer than {self.queue_limit} are waiting."

    @property
    def result(self) -> Result:
        return run(queue_limit=self.queue_limit)

    def right(self) -> float:
        return self.result.mean_latency_ms

    def because(self, right: float) -> str:
        away = int((self.result.status == Status.REJECTED).sum())
        waits = f"a batch of {MAX_BATCH_SIZE} never fills"
        return f"{away} of the ten are rejected, and {waits}. The others take {right:.2f} ms on average."

    def mistakes(self, right: float) -> Mistakes:
        served_ms = self.result.latency_ms[self.result.status == Status.SERVED]
        total_ms, count, ten = served_ms.sum(), len(served_ms), len(ARRIVALS_MS)
        short_batch_ms = run(max_batch_size=self.queue_limit).mean_latency_ms
        yield run().mean_latency_ms, "that is the mean of all ten with an unlimited queue."
        yield total_ms / ten, "rejected requests have no latency: divide by the number of answered requests."
        yield total_ms, "that is the sum of the latencies. What is their mean?"
        yield count, "that is the number of answered requests. What is their mean latency?"
        yield ten - count, "that is the number of rejected requests. What is the mean latency of the others?"
        yield short_batch_ms, "only the queue is shorter, not the batch: it is full when two are waiting."
        yield run(queue_limit=1).mean_latency_ms, "only a request that finds 2 waiting is rejected."
