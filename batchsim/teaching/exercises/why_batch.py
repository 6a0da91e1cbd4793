"""The exercises of notebooks/01-why-batch.ipynb.

An exercise computes the answer (`right`) and its reason. A wrong answer gets the hint of its mistake, the
second one also the `parts` of the answer, and the third where to `look` in the lesson.
"""

from typing import Any

from scipy.optimize import brentq

from batchsim.teaching.exercises.exercise import SERVICE, Exercise, Limit, Mistakes, Number, Verdict
from batchsim.teaching.game import BeTheBatcher, seed_of
from batchsim.teaching.progress_store import load
from batchsim.theory import mg1, size_or_wait


class SaturationRate(Number, name="01.1"):
    """The saturation rate in batches of 12."""

    unit = "requests per second"
    size = 12
    parts = "how long a whole batch takes, in seconds, and how many requests it carries in that time"
    look = "Why 32 requests take little more time than one"
    otherwise = "how long does a batch of {self.size} take, and how many requests per second is that?"

    def right(self) -> float:
        return self.size / SERVICE(self.size)

    def because(self, right: float) -> str:
        batch_ms = SERVICE(self.size) * 1000
        return f"{self.size} requests every {batch_ms:.2f} ms are {right:,.0f} requests per second."

    def mistakes(self, right: float) -> Mistakes:
        yield right / self.size, "that is the number of batches per second. How many requests are in each?"
        yield 1 / SERVICE(1), "that is the saturation rate one at a time. How long does a whole batch take?"
        yield self.size / SERVICE(1), "a batch takes longer than one request: each request adds its own cost."


class SmallestBatch(Limit, name="01.2"):
    """The smallest `max_batch_size` whose saturation rate exceeds 3,000 requests per second."""

    unit = "requests in a batch"
    largest = False
    tried = range(1, 1000)
    rate_per_s = 3000
    parts = "the saturation rate of each batch size, and the first size whose rate is higher than the traffic"
    look = "Why 32 requests take little more time than one"

    def saturation_per_s(self, size: int) -> float:
        return size / SERVICE(size)

    def keeps(self, answer: float) -> bool:
        return self.saturation_per_s(int(answer)) > self.rate_per_s

    def because(self, right: float) -> str:
        size, enough = int(right), f"{self.saturation_per_s(int(right)):,.0f} requests per second"
        too_few = f"batches of {size - 1} only {self.saturation_per_s(size - 1):,.0f}"
        return f"batches of {size} finish up to {enough}, {too_few}."

    def hint(self, answer: float, right: float) -> str:
        if answer > right:
            return f"that is enough for {self.rate_per_s:,} requests per second. Is it the smallest?"
        finished = f"{self.saturation_per_s(int(answer)):,.0f} requests per second"
        return f"batches of {answer:g} finish up to {finished}, and {self.rate_per_s:,} arrive."


class BreakEven(Number, name="01.3"):
    """The wait with which batches take as long on average as one at a time, which theory knows exactly."""

    unit = "ms"
    within = 0.1  # of the right answer: a run of 40,000 requests is only an estimate
    rate_per_s = 380
    max_batch_size = 32
    parts = "the mean latency one at a time, and the mean latency in batches, which grows with the wait"
    look = "From morning to evening: what do you expect?"

    @property
    def alone_ms(self) -> float:
        return mg1(self.rate_per_s, SERVICE(1) * 1000, cv=0).mean_latency_ms

    def together_ms(self, max_wait_ms: float) -> float:
        return size_or_wait(self.rate_per_s, SERVICE, self.max_batch_size, max_wait_ms).mean_latency_ms

    def right(self) -> float:
        return float(brentq(lambda wait_ms: self.together_ms(wait_ms) - self.alone_ms, 0, SERVICE(1) * 3000))

    def because(self, right: float) -> str:
        means = f"{self.together_ms(right):.2f} ms, in batches and one at a time"
        without = f"{self.together_ms(0):.2f} ms without a wait"
        return f"with a wait of {right:.2f} ms theory expects {means}. It expects {without}."

    def mistakes(self, right: float) -> Mistakes:
        gain = "that is what batches gain without a wait. But only the first of a batch waits that long"
        yield self.alone_ms - self.together_ms(0), f"{gain}: by how much does the mean rise?"

    def hint(self, answer: float, right: float) -> str:
        if answer > 5:
            return "that is too long: batches take longer than one at a time."
        slower = "longer" if answer > right else "shorter"
        at = f"with a wait of {answer:g} ms batches take {self.together_ms(answer):.2f} ms"
        return f"{at}: {slower} than {self.alone_ms:.2f} ms one at a time."


class BeatTheWait(Exercise, name="01.4"):
    """A game of the student's own requests, whose mean latency must be below that of a wait of 10 ms."""

    asks = "a game, as be_the_batcher returns it"
    missing = "play the game to its end, then run this cell again."
    parts = "when the server is free, how many requests wait then, and how long until you press Send"
    look = "Be the batcher"
    hardly = 4  # sends

    def is_open(self, answer: Any) -> bool:
        return answer is ... or (isinstance(answer, BeTheBatcher) and not answer.answered)

    def judge(self, answer: Any) -> Verdict:
        if not isinstance(answer, BeTheBatcher):
            raise TypeError(
                f"the answer must be the game itself, got an object of type {type(answer).__name__}"
            )
        if answer.seed != seed_of(self.name, load().key):
            return Verdict(False, "this game has the requests of another one. Run its cell again, and play.")
        you, rule, *_ = answer.game.rows(answer.sends_s)
        if you["mean_ms"] < rule["mean_ms"]:
            means = f"your mean is {you['mean_ms']:.1f} ms, the rule's {rule['mean_ms']:.1f} ms"
            place = "for company" if you["forming_ms"] < rule["forming_ms"] else "in the queue"
            return Verdict(True, f"{means}: your requests waited less {place}.")
        means = f"your mean is {you['mean_ms']:.1f} ms, and {rule['mean_ms']:.1f} ms with a wait of 10 ms."
        if len(answer.sends_s) <= self.hardly:
            return Verdict(False, f"{means} You hardly sent: the others waited until the end.")
        if you["forming_ms"] > 2 * rule["forming_ms"]:
            idle = f"Requests wait {you['forming_ms']:.1f} ms on average while the server is idle"
            return Verdict(False, f"{means} {idle}. Send before many wait.")
        return Verdict(False, f"{means} Press Send while the server computes: the next batch leaves at once.")
