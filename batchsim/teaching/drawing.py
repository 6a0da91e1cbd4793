"""A prediction that is drawn: p99 against the load, before the curve appears."""

import re
from collections.abc import Callable
from typing import Any

import ipywidgets as widgets
import traitlets

from batchsim import _check, _vote
from batchsim.scenario import Scenario
from batchsim.simulate import simulate
from batchsim.study.surface import LOADS
from batchsim.teaching.act import Act
from batchsim.teaching.output_capture import WholeText, shown
from batchsim.teaching.prediction import KEY, cast
from batchsim.teaching.progress import note_prediction

DRAWN = tuple(load for load in LOADS if load < 1)
SHAPES = [
    "rises late and steeply",
    "rises too early",
    "ends too low",
    "falls",
]  # of sketch.js, the right one first


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
        if _vote.joined():
            drawing = "Drawing" if self.key is None else f"Drawing {self.key}"
            question = f"{drawing}: how does p99 grow with the load?"
            cast(_vote.Vote(question, SHAPES, shape, SHAPES[0]), self.problem)

    def _show(self, _: Any) -> None:
        if self.then is not None:
            self.outcome.children = [widgets.HTML("Computing …")]
            self.outcome.children = shown(self.then)
            self.then = None  # once

    def __repr__(self) -> str:
        first, last = (f"{load:.0%}" for load in (DRAWN[0], DRAWN[-1]))
        return f"Draw: p99 against the load, from {first} to {last} of saturation. Run this cell to draw."


draw_p99 = Drawing
