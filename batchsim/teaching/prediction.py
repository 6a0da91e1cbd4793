"""For the notebooks: predictions to commit to, and the grading of `batchsim.teaching.exercises`."""

import html
import textwrap
from collections.abc import Iterable
from typing import Any

import ipywidgets as widgets

from batchsim import _check
from batchsim.teaching.exercises import EXERCISES, SEED, SERVICE

__all__ = ["EXERCISES", "SEED", "SERVICE", "Prediction", "check", "predict"]


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

    `...` is an answer not given yet. Numbers within 1 % count, or what else the exercise
    allows, so that rounding does no harm.

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
    if asked.near(number, right):
        print(f"Right: {asked.because(right)}")
    else:
        print(f"Not yet: {asked.hint(number, right)}")
