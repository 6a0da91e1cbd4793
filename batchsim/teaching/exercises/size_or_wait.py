"""The exercises of notebooks/04-size-or-wait.ipynb."""

import numpy as np
from scipy.optimize import brentq

from batchsim._compat import kept
from batchsim.result import Result
from batchsim.scenario import Poisson, Scenario, SizeOrWait
from batchsim.scenario.rules import Trigger
from batchsim.simulate import simulate
from batchsim.teaching.exercises.exercise import SEED, SERVICE, Limit, Mistakes, Number
from batchsim.theory import size_or_wait


class ServerCameFree(Number, name="04.1"):
    """The share of the batches that left because the server became free, in percent."""

    unit = "percent of the batches"
    within = 0.06  # a run of 40,000 requests is only an estimate
    rate_per_s = 1000
    rule = SizeOrWait(max_batch_size=4, max_wait_ms=2)
    requests = 400_000
    parts = "the number of batches whose trigger is BACKLOG, and the number of all batches"
    look = "Why batches left"

    @kept
    def result(self) -> Result:
        return self.run()

    def run(self, **knobs: float) -> Result:
        """Return a run with knobs that a student may have left as they are."""
        scenario = Scenario(Poisson(self.rate_per_s), self.rule, SERVICE).replace(knobs)
        return simulate(scenario, self.requests, seed=SEED)

    def percent(self, trigger: Trigger, requests: bool = False) -> float:
        """Return the share of the batches that left so, or of the requests in them."""
        batches = self.result.batches
        sizes = batches.batch_size if requests else np.ones_like(batches.batch_size)
        return float(100 * sizes[batches.trigger == trigger].sum() / sizes.sum())

    def right(self) -> float:
        return self.percent(Trigger.BACKLOG)

    def because(self, right: float) -> str:
        full, waited = self.percent(Trigger.FULL), self.percent(Trigger.WAIT)
        others = f"{full:.0f} % left because they were full, {waited:.0f} % because their wait was over"
        return f"{right:.0f} % left when the server became free; {others}."

    def mistakes(self, right: float) -> Mistakes:
        requests = self.percent(Trigger.BACKLOG, requests=True)
        yield requests, "that is the share of the requests. Small batches count as much as large ones here."
        for trigger, why in ((Trigger.FULL, "were full"), (Trigger.WAIT, "had waited long enough")):
            share = f"that is the share of the batches that {why}"
            yield self.percent(trigger), f"{share}. Which batches left after their deadline?"
        yield 100 - right, "that is the share of all the others."
        for knobs, left in (
            ({"max_batch_size": 32}, f"batches of up to 32, not {self.rule.max_batch_size}"),
            ({"max_wait_ms": 0}, f"a wait of 0 ms, not {self.rule.max_wait_ms} ms"),
        ):
            share = 100 * (self.run(**knobs).batches.trigger == Trigger.BACKLOG).mean()
            yield float(share), f"that is with {left}."

    def hint(self, answer: float, right: float) -> str:
        side = "less" if answer > right else "more"
        return f"it is {side} than {answer:g} %: count the batches whose trigger is bs.Trigger.BACKLOG."


class TwoPhotos(Number, name="04.2"):
    """How far apart two photos of a page may come for a wait to make their mean latency shorter."""

    unit = "ms"
    within = 0.02
    service = SERVICE
    parts = "the mean of both latencies without a wait, and with a wait that lets both leave together"
    look = "When a wait pays: what do you expect?"

    def alone_ms(self, apart_ms: float) -> float:
        """Return the mean latency without a wait: the second photo waits for the first."""
        one_ms = self.service(1) * 1000
        return (one_ms + max(one_ms - apart_ms, 0) + one_ms) / 2

    def together_ms(self, apart_ms: float) -> float:
        """Return the mean latency with a wait that is just long enough for both to leave together."""
        return apart_ms / 2 + self.service(2) * 1000

    def right(self) -> float:
        return float(brentq(lambda ms: self.together_ms(ms) - self.alone_ms(ms), 0, self.service(1) * 1000))

    def keeps(self, answer: float) -> bool:
        return self.together_ms(answer) <= self.alone_ms(answer) + 1e-9

    def because(self, right: float) -> str:
        more_ms = 1000 * (self.service(2) - self.service(1))
        return (
            f"at {right:.2f} ms both ways take {self.together_ms(right):.2f} ms on average. The first "
            f"gives up {right:.2f} ms and {more_ms:.2f} ms of computing, and the "
            "second gains as much."
        )

    def mistakes(self, right: float) -> Mistakes:
        gain_ms = 1000 * (2 * self.service(1) - self.service(2))
        yield gain_ms, "up to there the second photo gains. But the first one loses: take the mean of both."

    def hint(self, answer: float, right: float) -> str:
        one_ms = self.service(1) * 1000
        if answer >= one_ms:
            return f"after {one_ms:.2f} ms the first is finished, so the second does not wait for it."
        means = f"waiting gives a mean of {self.together_ms(answer):.2f} ms"
        verdict = "waiting pays, and would pay even further apart" if answer < right else "waiting costs"
        return f"{answer:g} ms apart, {means}, and no wait gives {self.alone_ms(answer):.2f} ms: {verdict}."


class HalfTheGpu(Limit, name="04.3"):
    """The shortest wait with which the server computes only half of the time, which theory knows exactly."""

    unit = "ms"
    step = 0.5
    tried = tuple(each / 2 for each in range(14))  # theory solves waits up to the time of a full batch
    largest = False
    rate_per_s = 1000
    max_batch_size = 32
    share = 0.5
    parts = "the utilisation with a wait, and the shortest wait that makes it low enough"
    look = "Two prices: what do you expect?"

    def utilisation(self, max_wait_ms: float) -> float:
        return size_or_wait(self.rate_per_s, SERVICE, self.max_batch_size, max_wait_ms).utilisation

    def mean_ms(self, max_wait_ms: float) -> float:
        return size_or_wait(self.rate_per_s, SERVICE, self.max_batch_size, max_wait_ms).mean_latency_ms

    def keeps(self, answer: float) -> bool:
        return self.utilisation(answer) <= self.share

    def because(self, right: float) -> str:
        means = f"from {self.mean_ms(0):.2f} ms to {self.mean_ms(right):.2f} ms"
        return (
            f"without a wait the server computes {self.utilisation(0):.1%} of the time, with {right:g} ms "
            f"{self.utilisation(right):.1%}. The mean latency rises {means}: that is the price."
        )

    def hint(self, answer: float, right: float) -> str:
        if answer > self.tried[-1]:
            return f"that is more than enough: it computes less than {self.share:.0%} of the time."
        busy = f"with a wait of {answer:g} ms it computes {self.utilisation(answer):.1%} of the time"
        if answer < right:
            return f"{busy}: the batches are still too small."
        return f"{busy}. Is a shorter wait enough?"
