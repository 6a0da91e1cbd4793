"""Predictions that the learner commits to before anything moves: a choice, or a curve that is drawn."""

import html
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import anywidget
import ipywidgets as widgets
import traitlets

from batchsim import _check
from batchsim.scenario import Scenario
from batchsim.simulate import simulate
from batchsim.study.surface import LOADS
from batchsim.teaching.output_capture import STYLE, Act, WholeText, shown
from batchsim.teaching.progress import note_prediction
from batchsim.teaching.progress_store import change
from batchsim.view import voting
from batchsim.view.scripts import widget

KEY = r"\d\d\.[a-z]"  # a lesson and a letter
DRAWN = tuple(load for load in LOADS if load < 1)
SHAPES = [
    "rises late and steeply",
    "rises too early",
    "ends too low",
    "falls",
]  # of sketch.js, the right one first
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
        waits = voting.joined()
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
        if voting.joined():
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
        cast(voting.Vote(self.question, self.choices, chosen, self.answer), problem)

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


def cast(vote: voting.Vote, problem: widgets.Label) -> None:
    """Send a student's answer to the class's chart; a label shows why it does not arrive."""
    voting.send([vote], lambda sentence: setattr(problem, "value", sentence), change(lambda _: None).key)


predict = Prediction


class Paper(Act):
    """The paper, whose page judges the shape of a drawing."""

    verdict = traitlets.Dict().tag(sync=True)

    def __init__(self, given: dict[str, Any], curve_ms: Callable[[], list[float]]) -> None:
        super().__init__("sketch", given)
        self.curve_ms = curve_ms

    def answer(self, done: dict[str, Any]) -> dict[str, Any]:
        return {"curve_ms": self.curve_ms()}


class Drawing(WholeText, widgets.VBox):
    """A paper on which a student draws p99 against the load of a scenario, before the curve appears.

    The mouse, a finger or the arrow keys draw. The curve then appears, with a verdict on the shape of the
    drawing: does it rise late, and is it steep before saturation? `top_ms` is the upper end of the paper,
    `promised_ms` a line across it, and `then` a function without arguments that shows more. The student's
    progress records the first verdict under `key`, as that of a prediction, and a class's chart counts it.

    >>> from batchsim import Affine, Poisson, Scenario, SizeOrWait
    >>> paper = draw_p99(Scenario(Poisson(1), SizeOrWait(32, 5), Affine(1.85, 0.15)), top_ms=40)
    >>> paper
    Draw: p99 against the load, from 2% to 98% of saturation. Run this cell to draw.
    >>> [round(ms, 1) for ms in paper.curve_ms()][::3]
    [7.3, 8.8, 10.2, 14.0]
    """

    def __init__(
        self, scenario: Scenario, top_ms: float, promised_ms: float | None = None,
        then: Callable[[], Any] | None = None, key: str | None = None, requests: int = 40_000, seed: int = 1,
    ) -> None:  # fmt: skip
        _check.instance("scenario", scenario, Scenario, "a Scenario")
        if key is not None and not re.fullmatch(KEY, key):
            raise ValueError(f"key must be a lesson and a letter, such as '01.a', got {key!r}")
        self.scenario, self.then, self.key, self.requests, self.seed = scenario, then, key, requests, seed
        top_ms = _check.real("top_ms", top_ms, above=0)
        self.paper = Paper({"loads": DRAWN, "top_ms": top_ms, "promised_ms": promised_ms}, self.curve_ms)
        self.problem, self.outcome = widgets.Label(), widgets.VBox()
        self.shape = ""  # of the first drawing
        self.paper.observe(self._note, "verdict")
        self.paper.observe(self._show, "answered")
        super().__init__([self.paper, self.problem, self.outcome])

    def curve_ms(self) -> list[float]:
        """Return the simulated p99 at each load of the paper, in ms."""
        full = self.scenario.saturation_per_s
        scenarios = (self.scenario.replace(rate_per_s=load * full) for load in DRAWN)
        return [simulate(each, self.requests, seed=self.seed).percentile(99) for each in scenarios]

    def _note(self, judged: Any) -> None:
        shape = judged["new"].get("kind")
        if self.shape or shape not in SHAPES:  # a page can send anything
            return
        self.shape = shape
        if self.key is not None:
            note_prediction(self.key, shape, shape == SHAPES[0])
        if voting.joined():
            drawing = "Drawing" if self.key is None else f"Drawing {self.key}"
            question = f"{drawing}: how does p99 grow with the load?"
            cast(voting.Vote(question, SHAPES, shape, SHAPES[0]), self.problem)

    def _show(self, _: Any) -> None:
        if self.then is not None:
            self.outcome.children = [widgets.HTML("Computing …")]
            self.outcome.children = shown(self.then)
            self.then = None  # once

    def __repr__(self) -> str:
        first, last = (f"{load:.0%}" for load in (DRAWN[0], DRAWN[-1]))
        return f"Draw: p99 against the load, from {first} to {last} of saturation. Run this cell to draw."


draw_p99 = Drawing
