"""A against B: a setting is pinned, and what is moved to later is held against it, pair by pair."""

import html
import math
import textwrap
from typing import TYPE_CHECKING, Any

import ipywidgets as widgets

from batchsim._format import MINUS, number, signed
from batchsim.view.explorer.knob import flow
from batchsim.view.explorer.state import State, as_text
from batchsim.view.run.data import ViewData as Scene

if TYPE_CHECKING:
    from batchsim.view.explorer.explorer import Explorer

ROWS = {
    "p50_ms": "p50 (ms)",
    "p99_ms": "p99 (ms)",
    "mean_latency_ms": "mean latency (ms)",
    "throughput_per_s": "throughput (per s)",
    "utilisation": "utilisation",
    "mean_batch_size": "mean batch size",
}
HOW = "Pin the present setting as A, then move on: B is wherever you are, with the same seed."


class ComparePage(widgets.VBox):
    """Buttons that pin A, and a table of how far B is from it, each with its interval."""

    def __init__(self, panel: "Explorer") -> None:
        self.panel = panel
        self.pinned: Scene | None = None
        self.state: State | None = None  # A's
        self.pin = widgets.Button(description="Pin as A", tooltip="Keep the present setting to compare with")
        self.unpin = widgets.Button(description="Unpin", tooltip="Forget A", disabled=True)
        self.back = widgets.Button(
            description="Exchange A and B", tooltip="Move to A, and pin the present setting", disabled=True
        )
        self.table = widgets.HTML(HOW)
        self.pin.on_click(lambda _: self._pin())
        self.unpin.on_click(lambda _: self._unpin())
        self.back.on_click(lambda _: self._exchange())
        super().__init__([flow([self.pin, self.unpin, self.back]), self.table])

    def _pin(self) -> None:
        scene = self.panel.scene
        if scene is None or not self.panel.shown:
            return
        self._keep(scene, self.panel.seen)
        self.panel.refresh()

    def _keep(self, scene: Scene | None, state: State | None) -> None:
        self.pinned, self.state = scene and plain(scene), state
        self.unpin.disabled = self.back.disabled = scene is None

    def _unpin(self) -> None:
        self._keep(None, None)
        self.table.value = HOW
        self.panel.refresh()

    def _exchange(self) -> None:
        scene, state = self.panel.scene, self.state
        if scene is not None and state is not None and self.panel.shown:
            self._keep(scene, self.panel.seen)
            self.panel.move_to(state)

    def show(self, scene: Scene) -> None:
        """Let the table say how far the scene is from A."""
        if scene.pinned is None:
            return
        assert self.state is not None
        a, b = (html.escape(text) for text in apart(self.state, self.panel.seen))
        heads = f"A: <code>{a}</code><br>B: <code>{b}</code>" if a else "A and B are one setting."
        self.table.value = f"<p>{heads}</p>" + (
            table(scene) if scene.comparison else f"<p>{why_not(scene)}</p>"
        )


def apart(a: State, b: State) -> tuple[str, str]:
    """Return what two states say where they differ.

    >>> apart(State(servers=2), State(max_wait_ms=5))
    ('max_wait_ms=10, servers=2', 'max_wait_ms=5, servers=1')
    """
    mine, others = a.beside(b), b.beside(a)
    hidden = {"curve"} if {"curve_of", "service"} & mine.keys() else set()  # its name says it in fewer words

    def text(values: dict[str, Any]) -> str:
        return ", ".join(f"{name}={_short(value)}" for name, value in values.items() if name not in hidden)

    return text(mine), text(others)


def _short(value: Any) -> str:
    return textwrap.shorten(as_text(value).replace(",", ", "), 60) or "none"


def plain(scene: Scene) -> Scene:
    """Return a scene without what it was held against."""
    return Scene(scene.result, scene.surface, scene.curve, scene.theory, scene.objective_ms)


def why_not(scene: Scene) -> str:
    """Return why a scene has no differences from A."""
    assert scene.pinned is not None
    a, b = scene.pinned.result, scene.result
    if not (a.metrics.served and b.metrics.served):
        return "A setting that serves nobody has no latency to compare."
    if not (a.scenario.stable and b.scenario.stable):
        return "An overloaded setting has no lasting numbers to compare."
    if a.seed != b.seed:
        return f"Compared settings must share their traffic, got seeds {a.seed} and {b.seed}."
    sizes = f"{a.arrival_s.size:,} and {b.arrival_s.size:,}"
    return f"Compared settings must share their traffic, got {sizes} requests."


def table(scene: Scene) -> str:
    """Return the differences as HTML."""
    assert scene.comparison is not None
    rows = []
    for key, name in ROWS.items():
        row = scene.comparison[key]
        if math.isnan(row.low):
            sure, verdict = "none: too short a run, or its traffic drifts", ""
        else:
            sure = f"{signed(row.low)} to {signed(row.high)}"
            same = row.low <= 0 <= row.high
            verdict = "may be chance" if same and row.difference else "" if same else "differs"
        cells = (name, number(row.a), number(row.b), signed(row.difference), sure, verdict)
        head, *rest = (html.escape(cell) for cell in cells)
        rows.append(
            f'<tr><th scope="row">{head}</th>' + "".join(f"<td>{cell}</td>" for cell in rest) + "</tr>"
        )
    heads = ("", "A", "B", f"B {MINUS} A", "95 % interval", "")
    top = "".join(f'<th scope="col">{head}</th>' for head in heads)
    return f'<table class="batchsim-table"><tr>{top}</tr>{"".join(rows)}</table>'
