"""The exercises of notebooks/08-does-it-tell-the-truth.ipynb: a server as measured, and as it really ran."""

from functools import cache

from batchsim.scenario import Poisson, Scenario, SizeOrWait, Table
from batchsim.simulate import simulate
from batchsim.teaching.exercises.exercise import SEED, SERVICE, Mistakes, Number

SLOWER = 1.2  # how many times as long as measured the model took
OWN_MS = 0.5  # per batch, in addition to the model
RULE = SizeOrWait(max_batch_size=16, max_wait_ms=3)
RATE_PER_S = 2400
REQUESTS = 200_000


def as_it_ran(slower: float = SLOWER, own_ms: float = OWN_MS) -> Table:
    """Return the measured service time, with the extra time that a replay found."""
    sizes = range(1, RULE.max_batch_size + 1)
    return Table({size: SERVICE(size) * 1000 * slower + own_ms for size in sizes})


class RealSaturation(Number, name="08.1"):
    """The saturation rate that is left when a batch takes longer than its model alone, as measured."""

    unit = "requests per second"
    within = 0.008
    slower, own_ms = SLOWER, OWN_MS
    parts = "how long a full batch takes, including the batcher's own time, and how many requests it holds"
    look = "Predict, then run: what do you expect?"
    otherwise = "how long does a full batch take from start to finish, and how many requests does it hold?"

    def per_s(self, slower: float, own_ms: float) -> float:
        size = RULE.max_batch_size
        return size / as_it_ran(slower, own_ms)(size)

    def right(self) -> float:
        return self.per_s(self.slower, self.own_ms)

    def because(self, right: float) -> str:
        size = RULE.max_batch_size
        ms, measured_ms = as_it_ran(self.slower, self.own_ms)(size) * 1000, SERVICE(size) * 1000
        took = f"a batch of {size} takes {ms:.2f} ms instead of {measured_ms:.2f} ms"
        return f"{took}, so {right:,.0f} requests per second instead of {self.per_s(1, 0):,.0f}."

    def mistakes(self, right: float) -> Mistakes:
        size, model_ms = RULE.max_batch_size, f"the model also takes {self.slower} times as long"
        yield self.per_s(1, 0), "that is the saturation rate of the measurement alone."
        yield self.per_s(self.slower, 0), f"each batch also takes {self.own_ms} ms in the batcher itself."
        yield self.per_s(1, self.own_ms), f"that includes the batcher's own time. But {model_ms}."
        both = self.per_s(self.slower, self.slower * self.own_ms)
        yield both, f"only the model takes {self.slower} times as long, not the batcher's {self.own_ms} ms."
        yield right / size, f"those are batches per second, and a batch holds {size} requests."
        batch_ms = 1000 * size / right
        for took in (batch_ms, batch_ms / 1000):
            yield took, f"that is how long a batch takes. How many times {size} requests is that in a second?"


class Explained(Number, name="08.2"):
    """The mean latency that the simulator expects once it knows what the replay found."""

    unit = "ms"
    within = 0.01
    slower, own_ms = SLOWER, OWN_MS
    parts = "a Table with the real time of each size, and a simulation with it"
    look = "Predict, then run: what do you expect?"

    def right(self) -> float:
        return _mean_ms(self.slower, self.own_ms)

    def because(self, right: float) -> str:
        measured_ms, more_ms = _mean_ms(1, 0), right - _mean_ms(1, 0)
        once = f"{more_ms:.2f} ms more than with the measured times, {measured_ms:.2f} ms"
        return f"it expects {right:.2f} ms, {once}: after a longer batch, the next ones also wait longer."

    def mistakes(self, right: float) -> Mistakes:
        measured_ms, added = _mean_ms(1, 0), "requests also wait longer when batches take longer. Simulate it"
        yield measured_ms, "that is the mean latency with the measured service times."
        yield _mean_ms(self.slower, 0), f"that leaves out the {self.own_ms} ms of the batcher itself."
        yield _mean_ms(1, self.own_ms), f"that leaves out that the model takes {self.slower} times as long."
        both_ms = _mean_ms(self.slower, self.slower * self.own_ms)
        yield (
            both_ms,
            f"only the model takes {self.slower} times as long, not the batcher's {self.own_ms} ms.",
        )
        yield measured_ms + self.own_ms, f"that adds {self.own_ms} ms to the latency, but {added}."
        yield measured_ms * self.slower, f"that multiplies the latency by {self.slower}, but {added}."
        both_ms = measured_ms * self.slower + self.own_ms
        yield both_ms, f"that does to the latency what happened to a batch, but {added}."

    def hint(self, answer: float, right: float) -> str:
        side = "less" if answer > right else "more"
        return f"it is {side} than {answer:g} ms. How long does a batch of each size take, with both effects?"


class ColdShapes(Number, name="08.3"):
    """The compile time that padding saves at a cold start."""

    unit = "ms"
    each_ms, largest = 350, 16
    padded = 1, 4, largest
    parts = "how many shapes compile without padding, how many with it, and how long each takes"
    look = "A cold start: what do you expect?"
    otherwise = "how many shapes compile without padding, and how many with it?"

    def right(self) -> float:
        return float((self.largest - len(self.padded)) * self.each_ms)

    def because(self, right: float) -> str:
        without = f"{self.largest} shapes compile for {self.largest * self.each_ms:,} ms in all"
        padded = f"{len(self.padded)} for {len(self.padded) * self.each_ms:,} ms"
        return f"{without}, {padded}: {right:,.0f} ms saved."

    def mistakes(self, right: float) -> Mistakes:
        padded = len(self.padded)
        yield padded * self.each_ms, "that is the compile time with padding. How much does padding save?"
        yield self.largest * self.each_ms, "that is the time without padding. How much does padding save?"
        yield self.largest - padded, "that is the number of saved shapes. How many milliseconds is that?"


@cache
def _mean_ms(slower: float, own_ms: float) -> float:
    scenario = Scenario(Poisson(RATE_PER_S), RULE, as_it_ran(slower, own_ms))
    return simulate(scenario, REQUESTS, seed=SEED).mean_latency_ms
