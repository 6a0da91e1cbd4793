"""For the notebooks: predictions to commit to, and exercises that grade themselves."""

import html
import textwrap
from collections.abc import Iterable
from typing import Any

import ipywidgets as widgets

from batchsim import _check
from batchsim.scenario import Affine, Poisson, Scenario, SizeOrWait
from batchsim.simulate import simulate

# What the lessons compute with: near to ResNet-50 on an NVIDIA V100 (see 01-why-batch.ipynb).
SERVICE = Affine(fixed_ms=1.85, per_item_ms=0.15)
SEED = 1


class Prediction(widgets.VBox):
    """A question whose answer the learner commits to before anything moves.

    It works without a browser: set `choice.value`, call `commit.click()`, read `verdict.value`.
    """

    def __init__(self, question: str, choices: Iterable[str], answer: str, because: str) -> None:
        self.question, self.choices, self.answer, self.because = question, list(choices), answer, because
        if len(self.choices) < 2 or len(set(self.choices)) < len(self.choices):
            raise ValueError(f"choices must be at least two, all different, got {self.choices!r}")
        if answer not in self.choices:
            raise ValueError(
                f"answer must be one of the choices, got {answer!r}" + _check.nearest(answer, self.choices)
            )
        # value=None: nothing is chosen for the learner.
        self.choice = widgets.RadioButtons(
            options=self.choices, value=None, tooltip=question, layout={"width": "auto"}
        )
        self.commit = widgets.Button(
            description="Commit", tooltip="Commit to the chosen answer: it cannot be changed afterwards"
        )
        self.verdict = widgets.HTML()
        self.commit.on_click(self._judge)
        title = widgets.HTML(f"<b>Predict: {html.escape(question)}</b>")
        super().__init__([title, self.choice, self.commit, self.verdict])

    def _judge(self, _: widgets.Button) -> None:
        if self.choice.value is None:
            self.verdict.value = "Nothing is chosen yet: choose an answer, then commit."
            return
        self.choice.disabled = self.commit.disabled = True
        right = self.choice.value == self.answer
        opening = "Right." if right else f"Not this time. It is: “{self.answer}”."
        self.verdict.value = html.escape(f"{opening} {self.because}", quote=False)

    def __repr__(self) -> str:
        marks = [("(x)" if choice == self.choice.value else "( )") + f" {choice}" for choice in self.choices]
        return "\n  ".join([f"Predict: {self.question}", *marks])

    def _repr_mimebundle_(self, **options: Any) -> dict[str, str] | None:
        bundle: dict[str, str] | None = super()._repr_mimebundle_(**options)
        # In full, for those who read the page without a kernel: ipywidgets cuts it at 110 characters.
        return bundle and bundle | {"text/plain": repr(self)}


def predict(question: str, choices: Iterable[str], answer: str, because: str) -> Prediction:
    """Return a question for a notebook: the learner chooses, commits, and reads whether and why.

    >>> asked = predict("Is 32 larger than 1?", ["Yes", "No"], "Yes", "It is 31 more.")
    >>> asked
    Predict: Is 32 larger than 1?
      ( ) Yes
      ( ) No
    >>> asked.choice.value = "No"
    >>> asked.commit.click()
    >>> asked.verdict.value
    'Not this time. It is: “Yes”. It is 31 more.'
    """
    return Prediction(question, choices, answer, because)


def check(exercise: str, answer: Any) -> None:
    """Print whether the answer to an exercise is right and why, or a hint that does not tell.

    `...` is an answer not given yet. Numbers within 1 % count, so that rounding does no harm.

    >>> check("capacity", ...)
    Not answered yet: put your number in place of the ... (requests per second).
    >>> check("capacity", 12 / SERVICE(12))
    Right: 12 requests every 3.65 ms are 3,288 requests per second.
    """
    if exercise not in EXERCISES:
        known = _check.nearest(str(exercise), EXERCISES)
        raise ValueError(f"exercise must be one of the lessons', got {exercise!r}{known}")
    asked = EXERCISES[exercise]
    if answer is ...:
        print(f"Not answered yet: put your number in place of the ... ({asked.unit}).")
        return
    try:
        number = _check.real("the answer", answer)
    except (TypeError, ValueError) as error:
        # One line, even if what was got is a whole table.
        print(f"Not yet: {textwrap.shorten(str(error), 100, placeholder=' ...')} ({asked.unit}).")
        return
    right = asked.right()
    if abs(number - right) <= asked.within * abs(right):
        print(f"Right: {asked.because(right)}")
    else:
        print(f"Not yet: {asked.hint(number, right)}")


class Exercise:
    """What is right, computed and never written down; why; and what helps when it is not."""

    unit: str
    within = 0.01  # relative; 0 for what is counted

    def right(self) -> float:
        raise NotImplementedError

    def because(self, right: float) -> str:
        raise NotImplementedError

    def hint(self, answer: float, right: float) -> str:
        raise NotImplementedError


class Capacity(Exercise):
    """The most requests per second in batches of 12."""

    unit = "requests per second"
    size = 12

    def right(self) -> float:
        return self.size / SERVICE(self.size)

    def because(self, right: float) -> str:
        return (
            f"{self.size} requests every {SERVICE(self.size) * 1000:.2f} ms are "
            f"{right:,.0f} requests per second."
        )

    def hint(self, answer: float, right: float) -> str:
        def near(other: float) -> bool:
            return abs(answer - other) <= self.within * other

        if near(right / 1000):
            return "that is a number per millisecond. How many milliseconds has a second?"
        if near(right / self.size):
            return "that is the number of batches per second. How many requests does each carry?"
        if near(1 / SERVICE(1)):
            return "that is the capacity one at a time. How long does a whole batch take?"
        if near(self.size / SERVICE(1)):
            return "a batch takes longer than one request does: it has the cost per item for each."
        return f"first find how long one batch of {self.size} takes, then how many requests that is a second."


class SmallestBatch(Exercise):
    """The smallest `max_batch_size` whose capacity exceeds 3,000 requests per second."""

    unit = "requests in a batch, a whole number"
    within = 0.0
    rate_per_s = 3000

    def capacity_per_s(self, size: int) -> float:
        return size / SERVICE(size)

    def right(self) -> float:
        return next(size for size in range(1, 1000) if self.capacity_per_s(size) > self.rate_per_s)

    def because(self, right: float) -> str:
        size = int(right)
        return (
            f"batches of {size} finish up to {self.capacity_per_s(size):,.0f} requests per second, "
            f"batches of {size - 1} only {self.capacity_per_s(size - 1):,.0f}."
        )

    def hint(self, answer: float, right: float) -> str:
        if answer != int(answer) or answer < 1:
            return f"a batch holds a whole number of requests, at least 1, got {answer:g}."
        if answer > right:
            return f"that is enough for {self.rate_per_s:,} requests per second. Is it the smallest?"
        return (
            f"batches of {answer:g} finish up to {self.capacity_per_s(int(answer)):,.0f} requests "
            f"per second, and {self.rate_per_s:,} arrive."
        )


class BreakEven(Exercise):
    """The lowest of four arrival rates at which a batcher that waits 4 ms answers sooner."""

    unit = "requests per second: 100, 200, 300 or 400"
    within = 0.0
    rates_per_s = (100, 200, 300, 400)
    max_wait_ms = 4
    requests = 10_000

    def mean_ms(self, rate_per_s: float, rule: SizeOrWait) -> float:
        scenario = Scenario(Poisson(rate_per_s), rule, SERVICE)
        return simulate(scenario, self.requests, seed=SEED).mean_latency_ms

    def both_ms(self, rate_per_s: float) -> tuple[float, float]:
        """Return the mean latency one at a time, and in batches."""
        rules = SizeOrWait(max_batch_size=1, max_wait_ms=0), SizeOrWait(32, self.max_wait_ms)
        alone_ms, together_ms = (self.mean_ms(rate_per_s, rule) for rule in rules)
        return alone_ms, together_ms

    def right(self) -> float:
        for rate_per_s in self.rates_per_s:
            alone_ms, together_ms = self.both_ms(rate_per_s)
            if together_ms < alone_ms:
                return rate_per_s
        raise AssertionError("batching wins at none of the rates: choose others")

    def because(self, right: float) -> str:
        alone_ms, together_ms = self.both_ms(right)
        return (
            f"at {right:,.0f} requests per second the mean latency is {together_ms:.1f} ms in batches "
            f"and {alone_ms:.1f} ms one at a time. A shorter wait begins to pay at a lower rate."
        )

    def hint(self, answer: float, right: float) -> str:
        if answer not in self.rates_per_s:
            return f"the answer is one of the four rates {', '.join(map(str, self.rates_per_s))}."
        if answer > right:
            return "batching wins there, but it does so at a lower rate too."
        alone_ms, together_ms = self.both_ms(answer)
        return (
            f"there the mean latency is {together_ms:.1f} ms in batches and {alone_ms:.1f} ms one at a time."
        )


EXERCISES: dict[str, Exercise] = {
    "capacity": Capacity(),
    "smallest-batch": SmallestBatch(),
    "break-even": BreakEven(),
}
