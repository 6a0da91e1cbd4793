"""The exercises of notebooks/12-one-queue-or-four.ipynb."""

from functools import cache

from scipy.optimize import brentq

from batchsim.result import Result
from batchsim.scenario import Diurnal, Poisson, Scenario, SizeOrWait
from batchsim.scenario.autoscale import Autoscale
from batchsim.simulate import simulate
from batchsim.teaching.exercises.exercise import SEED, SERVICE, Mistakes, Number

MAX_BATCH_SIZE, CARDS = 32, 4
REQUESTS = 100_000
SIGNALS = {"utilisation": 0.7, "queue": 32.0, "p99": 12.0}  # and their targets
SATURATION_PER_S = CARDS * MAX_BATCH_SIZE / SERVICE(MAX_BATCH_SIZE)


@cache  # a run of each
def at(rate_per_s: float, max_wait_ms: float, routing: str) -> Result:
    """Return a run of replicas behind a router."""
    rule = SizeOrWait(MAX_BATCH_SIZE, max_wait_ms)
    scenario = Scenario(Poisson(rate_per_s), rule, SERVICE, replicas=CARDS, routing=routing)
    return simulate(scenario, REQUESTS, SEED)


class FillFirstPays(Number, name="12.1"):
    """The rate above which filling one replica first has a higher mean latency than round robin."""

    unit = "requests per second"
    within = 0.03
    max_wait_ms = 10
    parts = "the mean latency of both routings at some rates, and the rate at which they are equal"
    look = "A quiet night: what do you expect?"
    least, most = 100.0, 1200.0

    def means_ms(self, rate_per_s: float) -> tuple[float, float]:
        """Return the mean latency with fill first, and with round robin."""
        first, turns = (at(rate_per_s, self.max_wait_ms, name) for name in ("fill_first", "round_robin"))
        return first.mean_latency_ms, turns.mean_latency_ms

    def right(self) -> float:
        def more_ms(rate_per_s: float) -> float:
            first, turns = self.means_ms(rate_per_s)
            return first - turns

        return float(brentq(more_ms, self.least, self.most, xtol=2))

    def because(self, right: float) -> str:
        runs = (at(right, self.max_wait_ms, name) for name in ("fill_first", "round_robin"))
        size, turns = (run.mean_batch_size for run in runs)
        return (
            f"there both have the same mean. Fill first has batches of {size:.1f}, round robin of "
            f"{turns:.1f}: above this rate, its larger batches cost more computing time than they save in "
            "waiting."
        )

    def mistakes(self, right: float) -> Mistakes:
        full = MAX_BATCH_SIZE / self.max_wait_ms * 1000
        yield full, "there a batch is full when its wait is over. But the routings are equal long before."
        yield SATURATION_PER_S, "that is the saturation rate of all four. Compare the mean latencies."
        yield SATURATION_PER_S / CARDS, "that is the saturation rate of one replica. Compare the latencies."

    def hint(self, answer: float, right: float) -> str:
        if not self.least <= answer <= SATURATION_PER_S:
            return f"look between {self.least:,.0f} and {self.most:,.0f} requests per second."
        first, turns = self.means_ms(answer)
        which = "still pays: try a higher rate" if first < turns else "no longer pays: try a lower rate"
        means = f"the mean is {first:.2f} ms with fill first and {turns:.2f} ms with round robin"
        return f"at {answer:,.4g} per second {means}. It {which}."


class LongerWait(Number, name="12.2"):
    """The wait that gathers as large a batch behind a router as a shorter one does in a common queue."""

    unit = "ms"
    within = 0.01
    one_wait_ms = 3
    rate_per_s = 500
    parts = "how many requests arrive during a wait, at one queue and at one of four"
    look = "A quiet night: what do you expect?"
    otherwise = (
        "a batch has the request that opens it, and those that come during the wait: to how many queues?"
    )

    @property
    def size(self) -> float:
        """The mean batch while servers are free, of a common queue."""
        return 1 + self.rate_per_s * self.one_wait_ms / 1000

    def right(self) -> float:
        return float(CARDS * self.one_wait_ms)

    def because(self, right: float) -> str:
        return (
            f"a common queue gathers {self.size:.1f} requests in {self.one_wait_ms:g} ms. Each of four "
            f"queues sees a quarter of the traffic, so it needs {right:g} ms for as many: four times as long."
        )

    def mistakes(self, right: float) -> Mistakes:
        yield self.one_wait_ms, "then each queue gathers fewer: it sees only a quarter of the traffic."
        yield self.one_wait_ms / CARDS, "in a shorter wait a queue gathers fewer requests, not more."
        yield self.size, "that is the size of a batch. Which wait gathers as many at one of four queues?"


@cache
def autoscaled(rate_per_s: float, signal: str) -> Result:
    """Return a run of an autoscaler on a day in two minutes."""
    auto = Autoscale(signal, SIGNALS[signal], least=1, most=8, startup_s=10, every_s=5, hold_s=30)
    day, rule = Diurnal(rate_per_s, 1.6, period_s=120), SizeOrWait(MAX_BATCH_SIZE, 0)
    scenario = Scenario(day, rule, SERVICE, replicas=CARDS, autoscale=auto)
    return simulate(scenario, round(120 * rate_per_s), SEED)


class BestSignal(Number, name="12.3"):
    """How many fewer replicas an autoscaler on p99 runs than one on utilisation, within a promise."""

    unit = "percent fewer replicas"
    within = 0.02
    rate_per_s = 5000
    promised_ms = 15
    parts = (
        "for each signal, the p99 and the mean_replicas of its summary; then the fewest within the promise"
    )
    look = "An autoscaler: what do you expect?"
    otherwise = "compare summary()['mean_replicas'] of the signals whose p99 is within {self.promised_ms} ms."

    def ran(self, signal: str) -> float:
        """Return how many replicas ran, on average."""
        return float(autoscaled(self.rate_per_s, signal).summary()["mean_replicas"])

    def right(self) -> float:
        kept = [
            each for each in SIGNALS if autoscaled(self.rate_per_s, each).percentile(99) <= self.promised_ms
        ]
        return 100 * (1 - min(map(self.ran, kept)) / self.ran("utilisation"))

    def because(self, right: float) -> str:
        ran = f"{self.ran('utilisation'):.1f} replicas run on utilisation, {self.ran('p99'):.1f} on p99"
        why = "Utilisation cannot tell a card with small batches from one that is nearly overloaded."
        return f"{ran}: {right:.0f} % fewer. {why}"

    def mistakes(self, right: float) -> Mistakes:
        queue = 100 * (1 - self.ran("queue") / self.ran("utilisation"))
        yield 100 - right, "that is the share that still runs. How many fewer are that?"
        yield queue, "that is the signal queue. Does its p99 keep the promise?"
        yield 100 * right / (100 - right), "that is how many more the other one runs. Divide by its number."
