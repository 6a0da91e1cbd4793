"""The exercises of notebooks/10-continuous-batching.ipynb."""

import math
from functools import cache
from statistics import median

from batchsim.measured.published import published
from batchsim.scenario import ClosedLoop, Continuous, Scenario
from batchsim.scenario.lengths import Geometric, Lognormal
from batchsim.scenario.tokens import Tokens
from batchsim.simulate import simulate
from batchsim.teaching.exercises.exercise import MUST_BE, SEED, Limit, Mistakes, Number

STEP = "llama-3.1-8b/rtx-4090"
TOKENS = Tokens(prompt=Lognormal(400, 1, at_most=4000), output=Geometric(150))


class UsefulShare(Number, name="10.1"):
    """Which part of a whole batch's rows makes tokens that somebody asked for."""

    unit = "from 0 to 1"
    answers = (30, 45, 60, 90, 120, 150, 225, 480)
    parts = "the tokens of all answers, and the rows: the seats times the tokens of the longest answer"
    look = "Whole batches: what do you expect?"

    def right(self) -> float:
        return sum(self.answers) / (len(self.answers) * max(self.answers))

    def because(self, right: float) -> str:
        wanted, rows = sum(self.answers), len(self.answers) * max(self.answers)
        need = f"the answers need {wanted:,} tokens, and the batch computes {rows:,} rows"
        return f"{need}: {right:.1%} of them are useful."

    def mistakes(self, right: float) -> Mistakes:
        longest, total = max(self.answers), sum(self.answers)
        seats = (
            f"that is the number of seats that would do the same work. The batch holds {len(self.answers)}."
        )
        yield 1 - right, "that is the wasted fraction. How much is useful?"
        yield 1 / right, "that is the number of rows per token. Take the inverse."
        yield median(self.answers) / longest, "that uses the median. Add up all: the long ones count more."
        yield total / longest, seats

    def hint(self, answer: float, right: float) -> str:
        if answer > 1:
            return f"{MUST_BE}from 0 to 1, got {answer:g}."
        rows = f"{len(self.answers)} seats compute in {max(self.answers)} steps"
        return f"how many tokens do the answers need in total, and how many rows do {rows}?"


class StepsOfPrompt(Number, name="10.2"):
    """The number of steps of a long prompt, when other requests make one token per step each."""

    unit = "steps"
    within = 0.0
    prompt, budget, others = 4000, 512, 80
    parts = "the budget, the tokens that the others take, and the prompt, which gets the rest of each step"
    look = "The budget: what do you expect?"
    otherwise = "how many of the {self.budget} tokens do the {self.others} others leave for the prompt?"

    def right(self) -> float:
        return math.ceil(self.prompt / (self.budget - self.others))

    def because(self, right: float) -> str:
        left = self.budget - self.others
        each = f"the others take {self.others} of the {self.budget} tokens, and {left} are left"
        steps = f"{right:.0f} steps for {self.prompt:,}"
        return f"{each}: {steps}. The first token comes at the end of the last step."

    def mistakes(self, right: float) -> Mistakes:
        left = self.budget - self.others
        yield math.ceil(self.prompt / self.budget), "that ignores others. Which other tokens use the budget?"
        yield 1, f"a step computes at most {self.budget} tokens, so this prompt is cut."
        yield math.floor(self.prompt / left), "after these steps, a part of the prompt is still left."
        yield right + 1, "the step that completes the prompt also makes the first token."
        yield self.prompt, "a step computes many tokens of a prompt at once, as far as its budget allows."


class MostSeats(Limit, name="10.3"):
    """The largest max_num_seqs that keeps the TPOT within an objective while clients queue."""

    unit = "max_num_seqs"
    step = 8
    clients, objective_ms, requests = 128, 48, 10_000
    tried = range(step, clients + 1, step)
    parts = "a run that keeps the objective, and a run with 8 more seats that does not"
    look = "More seats: what do you expect?"

    @classmethod
    @cache  # a run of each
    def tpot_ms(cls, seats: int) -> float:
        scenario = Scenario(ClosedLoop(cls.clients), Continuous(seats), published(STEP), tokens=TOKENS)
        return simulate(scenario, cls.requests, seed=SEED).percentile(99, column="tpot_ms")

    def keeps(self, answer: float) -> bool:
        return self.tpot_ms(int(answer)) <= self.objective_ms

    def because(self, right: float) -> str:
        seats, more = int(right), int(right) + self.step
        both = f"{self.tpot_ms(seats):.1f} ms with {seats} seats, {self.tpot_ms(more):.1f} ms with {more}"
        return f"p99 of TPOT is {both}. The objective, not the memory, sets the limit here."

    def hint(self, answer: float, right: float) -> str:
        seats = min(int(answer), self.clients)
        found = f"with {seats} seats p99 of TPOT is {self.tpot_ms(seats):.1f} ms"
        if answer > self.clients:
            return f"there are never more than {seats} requests, so further seats stay empty; {found}."
        if answer > right:
            return f"{found}, above {self.objective_ms} ms: with fewer seats, fewer requests share a step."
        return f"{found}: there is room for more, and each extra seat gives more tokens per second."
