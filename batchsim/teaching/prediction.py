"""A question whose answer the learner commits to before anything moves."""

import html
from collections.abc import Iterable
from typing import Any

import ipywidgets as widgets

from batchsim import _check


class Prediction(widgets.VBox):
    """A question for a notebook: the learner chooses, commits, and reads whether it was right and why.

    It works without a browser:

    >>> question = predict("Is 32 larger than 1?", ["Yes", "No"], "Yes", "It is 31 more.")
    >>> question
    Predict: Is 32 larger than 1?
      ( ) Yes
      ( ) No
    >>> question.choice.value = "No"
    >>> question.commit.click()
    >>> question.verdict.value
    'Not this time. It is: “Yes”. It is 31 more.'
    """

    def __init__(self, question: str, choices: Iterable[str], answer: str, because: str) -> None:
        self.question, self.choices, self.answer, self.because = question, list(choices), answer, because
        if len(self.choices) < 2 or len(set(self.choices)) < len(self.choices):
            raise ValueError(f"choices must be at least two, all different, got {self.choices!r}")
        if answer not in self.choices:
            nearest = _check.nearest(answer, self.choices)
            raise ValueError(f"answer must be one of the choices, got {answer!r}{nearest}")
        # value=None: a preselected choice would be a hint.
        wide = {"width": "auto"}
        self.choice = widgets.RadioButtons(options=self.choices, value=None, tooltip=question, layout=wide)
        tip = "Commit to your choice: it cannot be changed afterwards"
        self.commit = widgets.Button(description="Commit", tooltip=tip)
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
        # The whole text, for readers of the page without a kernel: ipywidgets cuts it at 110 characters.
        return bundle and bundle | {"text/plain": repr(self)}


predict = Prediction
