"""The exercises of notebooks/07-tune-to-an-objective.ipynb."""

from functools import cache

from batchsim.measured.published import published
from batchsim.scenario import Poisson, Scenario, SizeOrWait
from batchsim.simulate import simulate
from batchsim.study.slo import SLO
from batchsim.study.tune import tune
from batchsim.teaching.exercises.exercise import MUST_BE, SEED, Limit, Mistakes, Number
from batchsim.theory import capped

RATE_PER_S = 1350
PROMISED_MS = 30
SERVICE = published("gpunet-175ms/v100-32gb/fp16")
SIZES = [4, 8, 12, 16, 24, 32, 64]
WAITS_MS = [0, 2, 5, 10, 15, 25]


class Goodput(Number, name="07.1"):
    """The requests per second that are answered in time when batches wait long to fill."""

    unit = "requests per second"
    within = 0.03
    rule = SizeOrWait(max_batch_size=64, max_wait_ms=20)
    today_ms, requests = 15, 400_000
    parts = "the requests that are answered per second, and the fraction of them in time"
    look = "The smallest promise, by hand"

    def per_s(self, max_wait_ms: float) -> float:
        scenario = Scenario(Poisson(RATE_PER_S), self.rule, SERVICE).replace(max_wait_ms=max_wait_ms)
        return simulate(scenario, self.requests, seed=SEED).goodput_per_s(PROMISED_MS)

    def right(self) -> float:
        return self.per_s(self.rule.max_wait_ms)

    def because(self, right: float) -> str:
        in_time = f"{right:,.0f} of them within {PROMISED_MS} ms: an attainment of {right / RATE_PER_S:.0%}"
        return f"about {RATE_PER_S:,} requests per second are answered, and {in_time}."

    def mistakes(self, right: float) -> Mistakes:
        yield RATE_PER_S, "that is the throughput, which counts late answers too. How many are in time?"
        yield RATE_PER_S - right, "that is the number of late answers. How many are in time?"
        for share, unit in ((right / RATE_PER_S, "a fraction"), (100 * right / RATE_PER_S, "in percent")):
            yield share, f"that is the attainment, {unit}. How many requests per second is that?"
        yield self.per_s(self.today_ms), f"that is with today's wait of {self.today_ms} ms, not with 20 ms."
        yield 0, f"goodput_per_s takes milliseconds: {PROMISED_MS}, not {PROMISED_MS / 1000:g}."

    def hint(self, answer: float, right: float) -> str:
        if answer > RATE_PER_S:
            at_most = f"at most the {RATE_PER_S:,} requests per second that arrive"
            return f"{MUST_BE}{at_most}, got {answer:g}."
        side = "more" if answer > right else "fewer"
        return f"that is {side} than are in time. Call goodput_per_s({PROMISED_MS}) on a run of the setting."


class StricterPromise(Limit, name="07.2"):
    """The highest rate within a stricter promise, which theory knows exactly."""

    unit = "requests per second"
    step = 50
    tried = range(step, 1549, step)  # up to the saturation rate
    promised_ms = 20
    max_batch_size = 16
    parts = "a setting, its p99 at a rate, and the highest rate at which p99 is within the promise"
    look = "How much may the traffic grow?"

    @property
    def saturation_per_s(self) -> float:
        return self.max_batch_size / SERVICE(self.max_batch_size)

    @classmethod
    @cache
    def p99_ms(cls, rate_per_s: float) -> float:
        return capped(rate_per_s, SERVICE, cls.max_batch_size).percentile(99)

    def keeps(self, answer: float) -> bool:
        return self.p99_ms(answer) <= self.promised_ms

    def because(self, right: float) -> str:
        there = f"p99 is {self.p99_ms(right):.1f} ms at {right:,.0f} requests per second"
        more = f"at {right + self.step:,.0f} it is {self.p99_ms(right + self.step):.1f} ms"
        return f"theory says that {there}, and {more}."

    def mistakes(self, right: float) -> Mistakes:
        saturation = round(self.saturation_per_s)
        yield saturation, "that is the saturation rate: at this rate the queue grows without end."

    def hint(self, answer: float, right: float) -> str:
        if answer >= self.saturation_per_s:
            return "the server cannot keep up: the queue grows without end."
        found = f"at that rate p99 is {self.p99_ms(answer):.1f} ms"
        if answer < right:
            return (
                f"{found}, within {self.promised_ms} ms. The promise also holds at a higher rate: at which?"
            )
        return f"{found}, above {self.promised_ms} ms: the promise is broken."


class EnoughServers(Number, name="07.3"):
    """The fewest servers with which some setting keeps the promise under more traffic."""

    unit = "servers"
    within = 0.0
    rate_per_s = 3550
    most = 4
    parts = "for each number of servers, the best setting of KNOBS and its p99; then the fewest in time"
    look = "Let a search choose"

    def right(self) -> float:
        return self.fewest()[0]

    @classmethod
    @cache  # the search takes longer than a learner should wait twice
    def fewest(cls) -> tuple[int, SizeOrWait, float]:
        """Return the number of servers, the rule and its p99 in ms."""
        scenario = Scenario(Poisson(cls.rate_per_s), SizeOrWait(), SERVICE)
        over = {"servers": range(1, cls.most + 1), "max_batch_size": SIZES, "max_wait_ms": WAITS_MS}
        best = tune(scenario, SLO(p99_ms=PROMISED_MS), over, seed=SEED, progress=False)
        assert best.met
        assert isinstance(best.rule, SizeOrWait)
        return best.scenario.servers, best.rule, best.expected["p99_ms"].value

    def load(self, servers: float) -> float:
        """Return the load of this many servers with the largest batches of the grid."""
        return self.rate_per_s * SERVICE(SIZES[-1]) / (servers * SIZES[-1])

    def because(self, right: float) -> str:
        _, rule, p99_ms = self.fewest()
        setting = f"max_batch_size={rule.max_batch_size} and max_wait_ms={rule.max_wait_ms:g}"
        fewer = f"With {right - 1:g} no setting of the grid keeps it within {PROMISED_MS} ms"
        return f"with {right:g} servers, {setting}, p99 is {p99_ms:.0f} ms. {fewer}."

    def hint(self, answer: float, right: float) -> str:
        if answer > right:
            return "they keep the promise. Are fewer enough?"
        largest, load = SIZES[-1], self.load(answer)
        if load >= 1:
            return f"they cannot keep up: in full batches of {largest} the load is {load:.0%}."
        slow = f"one such batch takes {SERVICE(largest) * 1000:.0f} ms, and the promise is {PROMISED_MS} ms"
        return f"in full batches of {largest} the load is {load:.1%}: just stable. But {slow}."
