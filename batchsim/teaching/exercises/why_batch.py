"""The exercises of notebooks/01-why-batch.ipynb."""

from batchsim.scenario import Poisson, Scenario, SizeOrWait
from batchsim.simulate import simulate
from batchsim.teaching.exercises.exercise import SEED, SERVICE, Exercise


class SaturationRate(Exercise):
    """The saturation rate in batches of 12."""

    unit = "requests per second"
    size = 12

    def right(self) -> float:
        return self.size / SERVICE(self.size)

    def because(self, right: float) -> str:
        batch_ms = SERVICE(self.size) * 1000
        return f"{self.size} requests every {batch_ms:.2f} ms are {right:,.0f} requests per second."

    def hint(self, answer: float, right: float) -> str:
        if self.near(answer, right / 1000):
            return "that is requests per millisecond. How many milliseconds are there in a second?"
        if self.near(answer, right / self.size):
            return "that is the number of batches per second. How many requests does each carry?"
        if self.near(answer, 1 / SERVICE(1)):
            return "that is the saturation rate one at a time. How long does a whole batch take?"
        if self.near(answer, self.size / SERVICE(1)):
            return "a batch takes longer than one request: it pays the cost per item for each."
        return f"find out how long a batch of {self.size} takes, then how many requests a second that makes."


class SmallestBatch(Exercise):
    """The smallest `max_batch_size` whose saturation rate exceeds 3,000 requests per second."""

    unit = "requests in a batch, a whole number"
    within = 0.0
    rate_per_s = 3000

    def saturation_per_s(self, size: int) -> float:
        return size / SERVICE(size)

    def right(self) -> float:
        return next(size for size in range(1, 1000) if self.saturation_per_s(size) > self.rate_per_s)

    def because(self, right: float) -> str:
        size, enough = int(right), f"{self.saturation_per_s(int(right)):,.0f} requests per second"
        too_few = f"batches of {size - 1} only {self.saturation_per_s(size - 1):,.0f}"
        return f"batches of {size} finish up to {enough}, {too_few}."

    def hint(self, answer: float, right: float) -> str:
        if answer != int(answer) or answer < 1:
            return f"a batch holds a whole number of requests, at least 1, got {answer:g}."
        if answer > right:
            return f"that is enough for {self.rate_per_s:,} requests per second. Is it the smallest?"
        finished = f"{self.saturation_per_s(int(answer)):,.0f} requests per second"
        return f"batches of {answer:g} finish up to {finished}, and {self.rate_per_s:,} arrive."


class BreakEven(Exercise):
    """The lowest of four arrival rates at which a batcher that waits up to 4 ms answers sooner."""

    unit = "requests per second: 100, 200, 300 or 400"
    within = 0.0
    rates_per_s = (100, 200, 300, 400)
    max_wait_ms = 4
    requests = 10_000

    def both_ms(self, rate_per_s: float) -> tuple[float, float]:
        """Return the mean latency one at a time, and in batches."""
        rules = SizeOrWait(max_batch_size=1, max_wait_ms=0), SizeOrWait(32, self.max_wait_ms)
        scenarios = (Scenario(Poisson(rate_per_s), rule, SERVICE) for rule in rules)
        alone, together = (simulate(scenario, self.requests, seed=SEED) for scenario in scenarios)
        return alone.mean_latency_ms, together.mean_latency_ms

    def right(self) -> float:
        for rate_per_s in self.rates_per_s:
            alone_ms, together_ms = self.both_ms(rate_per_s)
            if together_ms < alone_ms:
                return rate_per_s
        raise AssertionError("batching wins at none of the rates: choose others")

    def because(self, right: float) -> str:
        alone_ms, together_ms = self.both_ms(right)
        means = f"{together_ms:.1f} ms in batches and {alone_ms:.1f} ms one at a time"
        at = f"at {right:,.0f} requests per second the mean latency is"
        return f"{at} {means}. A shorter wait pays off at a lower rate."

    def hint(self, answer: float, right: float) -> str:
        if answer not in self.rates_per_s:
            return f"the answer is one of the four rates {', '.join(map(str, self.rates_per_s))}."
        if answer > right:
            return "batching wins there, but at a lower rate too."
        alone_ms, both_ms = self.both_ms(answer)
        return f"there the mean latency is {both_ms:.1f} ms in batches and {alone_ms:.1f} ms one at a time."
