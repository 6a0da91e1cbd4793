"""The exercises of notebooks/05-tails-and-bursts.ipynb."""

import numpy as np

from batchsim.scenario import Constant, Scenario, SizeOrWait, Trace
from batchsim.simulate import simulate
from batchsim.teaching.exercises.exercise import SERVICE, Mistakes, Number

MAX_BATCH_SIZE = 32
SATURATION_PER_S = MAX_BATCH_SIZE / SERVICE(MAX_BATCH_SIZE)


class SlowPages(Number, name="05.1"):
    """The percentage of pages that contain at least one answer slower than p99."""

    unit = "percent of the pages"
    photos = 40
    parts = "the probability that one photo is fast, and that all photos of a page are fast"
    look = "Eleven requests, by hand"
    otherwise = "one photo is fast with a probability of 0.99. How likely is it that all of a page are fast?"

    def right(self) -> float:
        return 100 * (1 - 0.99**self.photos)

    def because(self, right: float) -> str:
        fast = f"0.99 to the power of {self.photos} is {0.99**self.photos:.3f}"
        return (
            f"{fast}: this share of the pages has only fast answers. The other {right:.0f} % have a slow one."
        )

    def mistakes(self, right: float) -> Mistakes:
        fast = "the share of the pages on which all answers are fast"
        yield 100 - right, f"that is {fast}."
        yield 1 - right / 100, f"that is {fast}, as a fraction."
        yield self.photos, "that counts pages with two slow answers twice. How likely are all to be fast?"
        yield 1, f"that is the share of the photos. A page has {self.photos} of them."


class LastOfABurst(Number, name="05.2"):
    """The latency of the last request of a burst, by simulating an evenly spaced burst."""

    unit = "ms"
    within = 0.04  # by hand, one leaves out the service time of its own batch
    rate_per_s = 7000
    lasts_s = 1.5
    parts = "how fast the queue grows, its length at the end of the burst, and how fast it shrinks"
    look = "A crowd comes: what do you expect?"
    otherwise = "how many requests wait when the burst ends, and how long does the server need for them?"

    @property
    def waiting(self) -> float:
        """The number of requests that wait at the end of the burst, by hand."""
        return (self.rate_per_s - SATURATION_PER_S) * self.lasts_s

    def right(self) -> float:
        times_s = np.arange(round(self.rate_per_s * self.lasts_s)) / self.rate_per_s
        rule = SizeOrWait(MAX_BATCH_SIZE, max_wait_ms=0)
        return float(simulate(Scenario(Trace(times_s), rule, SERVICE)).latency_ms[-1])

    def because(self, right: float) -> str:
        return (
            f"{self.rate_per_s - SATURATION_PER_S:,.0f} more arrive than leave in each second, so after "
            f"{self.lasts_s:g} s {self.waiting:,.0f} wait. At {SATURATION_PER_S:,.0f} per second the last of "
            f"them is done after {right:,.0f} ms (simulated)."
        )

    def mistakes(self, right: float) -> Mistakes:
        drained_ms = 1000 * self.lasts_s * self.rate_per_s / SATURATION_PER_S
        slower = "the queue shrinks at the saturation rate, not at the arrival rate."
        yield self.waiting, "that is the queue when the burst ends. How long does the server need for it?"
        yield 1000 * self.waiting / self.rate_per_s, slower
        yield drained_ms, "that is the time from the start of the burst. The last request arrived at its end."
        yield 1000 * self.lasts_s, "that is the duration of the burst. How many requests wait at its end?"


class SeenByUsers(Number, name="05.3"):
    """The percentage of users' requests that a stall makes slow, although a closed loop reports one."""

    unit = "percent of the requests"
    within = 0.02
    rate_per_s = 200
    seconds = 60
    stall_ms = 1500
    parts = "the requests during the stall, the requests while its queue is cleared, and all requests"
    look = "A real load test: what do you expect?"
    otherwise = "simulate it, and count the requests that took more than {self.slow_ms} ms."
    slow_ms = 100

    @property
    def requests(self) -> int:
        return self.rate_per_s * self.seconds

    def right(self) -> float:
        rule, stalled = SizeOrWait(max_batch_size=1, max_wait_ms=0), SERVICE.compiling(self.stall_ms)
        result = simulate(Scenario(Constant(self.rate_per_s), rule, stalled), self.requests)
        return float(100 * (result.latency_ms > self.slow_ms).mean())

    def because(self, right: float) -> str:
        stalled = self.rate_per_s * self.stall_ms // 1000
        return (
            f"{right:.1f} %, {right * self.requests / 100:.0f} of {self.requests:,} requests. {stalled} of "
            "them arrived during the stall, and the others while the server cleared the queue. Their p99 is "
            f"far above {self.slow_ms} ms; a closed-loop client reports one slow request."
        )

    def mistakes(self, right: float) -> Mistakes:
        stall_s = self.stall_ms / 1000
        yield 100 / self.requests, "that is one request, as a closed loop reports it. But users keep sending."
        behind = "What about the queue that it left behind?"
        yield 100 * stall_s / self.seconds, f"those arrived during the stall. {behind}"
        early = f"those arrived {self.slow_ms} ms or more before the stall ended"
        yield 100 * (stall_s - self.slow_ms / 1000) / self.seconds, f"{early}. {behind}"
        yield 100 - right, "that is the share of the fast requests."
