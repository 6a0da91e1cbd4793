"""Predict, then reveal: the picture is covered until the learner has said what will happen to it."""

import html
import math
from typing import TYPE_CHECKING

import ipywidgets as widgets

from batchsim._format import number
from batchsim.result import Result
from batchsim.view.explorer.words import line
from batchsim.view.run.data import ViewData as Scene

if TYPE_CHECKING:
    from batchsim.view.explorer.explorer import Explorer

STAYS = 0.02  # a number that changes by less stays
FALLS, SAME, RISES = "falls", "stays", "rises"
ASKED = {"p50": "p50, the middle latency", "p99": "p99, the slowest in a hundred", "throughput": "throughput"}
HOW = (
    "Tick the box, move a control, and say what will happen before you see it. "
    f"“Stays” is a change of less than {100 * STAYS:.0f} %."
)


class PredictPage(widgets.VBox):
    """Questions about p50, p99 and throughput, asked after each move, and a button that reveals.

    It works without a browser: set `asking.value`, move a control, set the answers' values, call
    `reveal.click()`, read `verdict.value`.
    """

    def __init__(self, panel: "Explorer") -> None:
        self.panel = panel
        self.before: Scene | None = None  # what the learner has seen last
        self.pending = False
        self.right = self.asked = 0
        self.asking = widgets.Checkbox(description="Predict before seeing", indent=False)
        self.answers = {
            key: widgets.ToggleButtons(
                options=[FALLS, SAME, RISES],
                value=None,
                tooltips=[f"{name} {way}" for way in (FALLS, SAME, RISES)],
                style={"button_width": "5em"},
                disabled=True,
            )
            for key, name in ASKED.items()
        }
        rows = [
            widgets.HBox([widgets.HTML(f"{html.escape(name)}:", layout={"width": "16em"}), self.answers[key]])
            for key, name in ASKED.items()
        ]
        self.reveal = widgets.Button(
            description="Reveal", tooltip="Commit to the three answers, and see", disabled=True
        )
        self.verdict = widgets.HTML(HOW)
        self.asking.observe(lambda _: self._begin(), names="value")
        for answer in self.answers.values():
            answer.observe(lambda _: self._answered(), names="value")
        self.reveal.on_click(lambda _: self._reveal())
        super().__init__([self.asking, *rows, self.reveal, self.verdict])

    def _begin(self) -> None:
        """Ask from the next move on, or stop asking and show what there is."""
        self.verdict.value = HOW
        if not self.asking.value and self.pending:
            self._uncover()

    def saw(self, scene: Scene) -> None:
        """Hear of a new run: cover it, if it is to be predicted."""
        if not self.asking.value:
            self.before = scene
            return
        if self.pending or (self.before is not None and same(self.before.result, scene.result)):
            return
        self.pending = True
        for answer in self.answers.values():
            answer.disabled = False
        self.verdict.value = "Move on if you like, then say what has happened to all three."
        self.panel.hide("Predict first: what happens to p50, p99 and throughput?\nThen choose Reveal.")

    def _answered(self) -> None:
        self.reveal.disabled = any(answer.value is None for answer in self.answers.values())

    def _reveal(self) -> None:
        scene, before = self.panel.scene, self.before
        if not self.pending or self.reveal.disabled or scene is None or before is None:
            return
        said = []
        for key, answer in self.answers.items():
            way, words = outcome(key, before.result, scene.result)
            if way is None:
                said.append(f"{key}: {words}; that does not count.")
                continue
            right = answer.value == way
            self.right, self.asked = self.right + right, self.asked + 1
            said.append(
                f"{key}: you said it {answer.value}. {'Right' if right else 'Not this time'}: {words}."
            )
        if self.asked:
            said.append(f"So far {self.right} of {self.asked} are right.")
        self._uncover()
        self.verdict.value = line(" ".join(said))

    def _uncover(self) -> None:
        self.pending = False
        self.before = self.panel.scene
        for answer in self.answers.values():
            answer.value, answer.disabled = None, True
        self.reveal.disabled = True
        self.panel.hide("")
        self.panel.draw()


def same(a: Result, b: Result) -> bool:
    """Return whether two runs are of one scenario and one traffic."""
    return a.scenario == b.scenario and a.seed == b.seed


def outcome(key: str, before: Result, after: Result) -> tuple[str | None, str]:
    """Return which way a number went, None if no way can be told, and the same in words."""
    old, new = _number(key, before), _number(key, after)
    unit = "per s" if key == "throughput" else "ms"
    if math.isinf(old) and math.isinf(new):
        return None, "it has no lasting value, before and after: both settings are overloaded"
    if math.isinf(new):
        return RISES, f"from {number(old)} {unit} it grows without end: the setting is overloaded"
    if math.isinf(old):
        return FALLS, f"it grew without end, and is {number(new)} {unit} now"
    if math.isnan(old) or math.isnan(new):
        return None, "it has no value where nobody is served"
    if old == 0:
        return (RISES if new > 0 else SAME), f"it was 0 and is {number(new)} {unit}"
    change = new / old - 1
    way = SAME if abs(change) < STAYS else RISES if change > 0 else FALLS
    return way, f"it {way}, from {number(old)} to {number(new)} {unit}"


def _number(key: str, result: Result) -> float:
    if key == "throughput":
        return result.throughput_per_s
    return result.percentile(int(key[1:])) if result.scenario.stable else math.inf
