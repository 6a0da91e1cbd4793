"""The exercises of notebooks/11-one-long-sentence.ipynb."""

from functools import cache
from typing import Any

from batchsim import _check
from batchsim.scenario import Poisson, Scenario, SizeOrWait
from batchsim.scenario.lengths import LONGEST, Lognormal
from batchsim.scenario.rules import Rule
from batchsim.scenario.rules.buckets import Buckets
from batchsim.scenario.sized_time import PaddedTime
from batchsim.simulate import simulate
from batchsim.teaching.exercises.exercise import SEED, Exercise, Limit, Verdict

LARGEST = 512  # tokens
SIZES = Lognormal(80, cv=1, at_most=LARGEST)
SERVICE = PaddedTime(fixed_ms=2, per_item_ms=0.05, per_unit_ms=0.002)
REQUESTS = 100_000


class Edges(Exercise, name="11.1"):
    """Three ranges of sizes, each with a queue of its own, that keep p99 within an objective."""

    rate_per_s, objective_ms = 1250, 19.5
    near_ms = 0.3  # runs of other seeds differ by as much
    parts = "three rising whole numbers: the largest size of the short, the middle and the long sentences"
    look = "Queues by length: what do you expect?"

    @property
    def asks(self) -> str:
        return "a list of three edges, in tokens"

    def judge(self, answer: Any) -> Verdict:
        edges = _check.sizes("the edges", answer, LONGEST)
        if len(edges) != 3:
            return Verdict(False, f"the answer must be three edges, got {len(edges)}.")
        if edges[-1] < LARGEST:
            rule = f"the last edge must be at least the longest sentence, {LARGEST} tokens"
            return Verdict(False, f"{rule}, got {edges[-1]}.")
        p99_ms, padding = _measured(self.rate_per_s, Buckets(edges))
        found = f"p99 is {p99_ms:.2f} ms, with {padding:.0%} of padding"
        if p99_ms <= self.objective_ms:
            plain_ms, _ = _measured(self.rate_per_s, SizeOrWait())
            return Verdict(True, f"{found}. In one queue p99 is {plain_ms:.0f} ms.")
        if p99_ms <= self.objective_ms + self.near_ms:
            why = "that is so close that another seed may judge otherwise. Move one edge a little"
        elif edges[1] <= SIZES.mean:
            why = f"the last range, from {edges[1] + 1} tokens on, still mixes middle and long sentences"
        elif edges[0] >= SIZES.mean:
            why = f"the first range, up to {edges[0]} tokens, has most sentences, and pads the short ones"
        else:
            why = "move one edge at a time: which range pads most, which one waits most?"
        return Verdict(False, f"{found}, above {self.objective_ms} ms: {why}.".replace("?.", "?"))


class TokenLimit(Limit, name="11.2"):
    """The largest limit of a batch in tokens, padding included, that keeps p99 within an objective."""

    unit = "thousand tokens"
    rate_per_s, objective_ms = 1200, 30
    parts = "p99 with two neighbouring limits: one within the objective, one above"
    look = "A limit in tokens: what do you expect?"
    most = 16  # thousand: a batch of 32 of the longest sentences
    tried = range(1, most + 1)

    def p99_ms(self, thousand: float) -> float:
        return _measured(self.rate_per_s, SizeOrWait(max_batch_units=round(1000 * thousand)))[0]

    def keeps(self, answer: float) -> bool:
        return self.p99_ms(answer) <= self.objective_ms

    def found(self, limit: float) -> str:
        return f"with {limit:g} thousand tokens p99 is {self.p99_ms(limit):.1f} ms"

    def because(self, right: float) -> str:
        return f"{self.found(right)}; with one thousand more it is {self.p99_ms(right + 1):.1f} ms."

    def hint(self, answer: float, right: float) -> str:
        if answer > self.most:
            full = f"even a batch of 32 of the longest sentences has only {32 * LARGEST:,} tokens"
            return f"{full}, padding included. Is your limit in thousands?"
        if answer > right:
            above = f"{self.found(answer)}, above {self.objective_ms} ms"
            return f"{above}: one long sentence still makes too many others longer."
        return f"{self.found(answer)}: that is within {self.objective_ms} ms. A larger limit is, too."


@cache  # a run of each
def _measured(rate_per_s: float, rule: Rule) -> tuple[float, float]:
    """Return p99 in ms, and the share of padding."""
    result = simulate(Scenario(Poisson(rate_per_s).with_sizes(SIZES), rule, SERVICE), REQUESTS, seed=SEED)
    return result.percentile(99), result.metrics.number("padding")
