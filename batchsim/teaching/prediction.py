"""A question whose answer the learner commits to before anything moves."""

import html
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import anywidget
import ipywidgets as widgets
import traitlets

from batchsim import _check, _vote
from batchsim.teaching.output_capture import STYLE, WholeText, shown
from batchsim.teaching.progress import note_prediction
from batchsim.teaching.progress_store import change
from batchsim.view.scripts import widget

KEY = r"\d\d\.[a-z]"  # a lesson and a letter

ON_ITS_WAY = "Your answer is on its way to the class's chart, without your name."


class Verdict(anywidget.AnyWidget):
    """The feedback on an answer; a page shows it at once, also while the kernel is busy."""

    _esm = widget(Path(__file__).with_name("verdict.js"))
    _css = STYLE
    value = traitlets.Unicode().tag(sync=True)
    told: traitlets.List[str] = traitlets.List().tag(sync=True)  # of each choice


class Prediction(WholeText, widgets.VBox):
    r"""A question for a notebook: the learner chooses, commits, and reads whether it was right and why.

    `choices` may map each wrong choice to the reason why it is wrong. `then` is a function without arguments
    that shows the outcome. It runs only when the learner commits, so running all cells does not give the
    answer away. Its printed text and its return value appear below the verdict. The student's progress
    records the first choice under `key`, the lesson and a letter, such as "01.a".

    It works without a browser:

    >>> def outcome():
    ...     print("32 - 1 =", 32 - 1)
    >>> choices = {"Yes": "", "No": "One has a single digit, 32 has two."}
    >>> question = predict("Is 32 larger than 1?", choices, "Yes", "It is 31 more.", outcome)
    >>> question
    Predict: Is 32 larger than 1?
      ( ) Yes
      ( ) No
    >>> question.choice.value = "No"
    >>> question.commit.click()
    >>> question.verdict.value
    '✗ Not this time. One has a single digit, 32 has two.<br>The right answer is “Yes”. It is 31 more.'
    >>> question.outcome.children[0].value.partition(">")[2]
    '32 - 1 = 31\n</pre>'
    """

    def __init__(
        self, question: str, choices: Iterable[str] | Mapping[str, str], answer: str, because: str,
        then: Callable[[], Any] | None = None, key: str | None = None,
    ) -> None:  # fmt: skip
        if key is not None and not (isinstance(key, str) and re.fullmatch(KEY, key)):
            raise ValueError(f"key must be a lesson and a letter, such as '01.a', got {key!r}")
        self.key = key
        self.question, self.choices, self.answer, self.because = question, list(choices), answer, because
        if len(self.choices) < 2 or len(set(self.choices)) < len(self.choices):
            raise ValueError(f"choices must be at least two, all different, got {self.choices!r}")
        if answer not in self.choices:
            nearest = _check.nearest(answer, self.choices)
            raise ValueError(f"answer must be one of the choices, got {answer!r}{nearest}")
        if then is not None and not callable(then):
            raise TypeError(f"then must be a function without arguments, got {then!r}")
        self.why, self.then = dict(choices) if isinstance(choices, Mapping) else {}, then
        # value=None: a preselected choice would be a hint.
        wide = {"width": "auto"}
        self.choice = widgets.RadioButtons(options=self.choices, value=None, tooltip=question, layout=wide)
        tip = "Commit to your choice: it cannot be changed afterwards"
        self.commit = widgets.Button(description="Commit", tooltip=tip)
        waits = _vote.joined()
        self.verdict = Verdict(
            layout={"margin": "4px 2px"},
            told=[ON_ITS_WAY if waits else self._words(each) for each in self.choices],
        )
        self.outcome = widgets.VBox()
        self.commit.on_click(self._judge)
        title = widgets.HTML(f"<b>Predict: {html.escape(question)}</b>")
        super().__init__([title, self.choice, self.commit, self.verdict, self.outcome])
        self.add_class("batchsim-prediction")  # for the script of the verdict

    def _judge(self, _: widgets.Button) -> None:
        chosen = self.choice.value
        if chosen is None:
            self.verdict.value = "Choose an answer first, then commit."
            return
        self.choice.disabled = self.commit.disabled = True
        if self.key is not None:
            note_prediction(self.key, chosen, chosen == self.answer)
        if _vote.joined():
            self._cast(chosen)
        else:
            self._tell(chosen)

    def _cast(self, chosen: str) -> None:
        """Send the answer to the class's chart, and keep back what is right until the class has seen it."""
        self.verdict.value = ON_ITS_WAY
        show = widgets.Button(description="Show the outcome", tooltip="When your teacher asks for it")
        show.on_click(lambda _: self._tell(chosen))
        problem = widgets.Label()
        self.children: Any = [*self.children[:-1], problem, self.outcome]
        self.outcome.children = [show]
        cast(_vote.Vote(self.question, self.choices, chosen, self.answer), problem)

    def _words(self, chosen: str) -> str:
        told = [f"✓ Right. {self.because}"]
        if chosen != self.answer:
            wrong = f"✗ Not this time. {self.why.get(chosen, '')}".rstrip()
            told = [wrong, f"The right answer is “{self.answer}”. {self.because}"]
        return "<br>".join(html.escape(line, quote=False) for line in told)

    def _tell(self, chosen: str) -> None:
        self.verdict.value = self._words(chosen)
        self.outcome.children = [] if self.then is None else [widgets.HTML("Computing …")]
        if self.then is not None:
            self.outcome.children = shown(self.then)

    def __repr__(self) -> str:
        marks = [("(x)" if choice == self.choice.value else "( )") + f" {choice}" for choice in self.choices]
        return "\n  ".join([f"Predict: {self.question}", *marks])


def cast(vote: _vote.Vote, problem: widgets.Label) -> None:
    """Send a student's answer to the class's chart; a label shows why it does not arrive."""
    _vote.send([vote], lambda sentence: setattr(problem, "value", sentence), change(lambda _: None).key)


predict = Prediction
