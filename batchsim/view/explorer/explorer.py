"""The explorer: sliders that move a picture of one scenario, in a notebook."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import ipywidgets as widgets

from batchsim import _check
from batchsim.engines import compiled
from batchsim.result import Result
from batchsim.scenario import ClosedLoop, OpenLoop, Scenario
from batchsim.view.explorer import origin
from batchsim.view.explorer.compare import ComparePage
from batchsim.view.explorer.controls import Controls, offered
from batchsim.view.explorer.knob import flow
from batchsim.view.explorer.observe import Observer
from batchsim.view.explorer.play import PlayPage
from batchsim.view.explorer.predict import PredictPage
from batchsim.view.explorer.screen import Screen
from batchsim.view.explorer.share import SharePage
from batchsim.view.explorer.state import State, service_values, workload_values
from batchsim.view.explorer.words import line
from batchsim.view.film.pseudocode import pseudocode, shares, to_html
from batchsim.view.run.data import ViewData as Scene
from batchsim.view.run.live import LivePicture

MAIN = ("rate_per_s", "clients", "max_batch_size", "min_batch_size", "max_wait_ms", "servers", "objective_ms")
PAGES = {
    "Arrivals": ("workload", "cv", "burst_factor", "mean_burst_s", "peak_to_mean", "period_s", "think_ms"),
    "Rule, limits": ("rule", "queue_limit", "timeout_ms"),
    "Computing": ("service", "fixed_ms", "per_item_ms", "noise_cv", "padding", "sharing"),
}
UNSEEN_PX = 1000  # the picture's width until a page says its own
STEPS = {"left": (0, -1), "right": (0, 1), "up": (1, 0), "down": (-1, 0)}


class Explorer(widgets.VBox):
    """Controls by name, a picture, its words, and a status line.

    It works without a browser: set `controls["max_wait_ms"].value` and read `readout.value`.
    `scene` is what the picture shows, `result` its run: the last that worked.
    """

    def __init__(
        self,
        state: State,
        services: dict[str, dict[str, Any]],
        traffic: OpenLoop | None,
        requests: int,
        first: str | None = None,
        keep_rate: bool = False,
    ) -> None:
        self.requests = requests
        self.scene: Scene | None = None
        self.seen = state  # of which the scene is
        # One move at a time: callbacks may come on several threads, and matplotlib is for one.
        self.lock = threading.RLock()
        self.moves = 0
        self.theme, self.size = "auto", "page"  # as the reader chose
        self.status = widgets.HTML()
        self.status.add_class("batchsim-status")
        self.readout, self.pseudocode, self.whose = widgets.HTML(), widgets.HTML(), widgets.HTML()
        self.readout.add_class("batchsim-readout")
        self.screen = Screen(clickable=True)
        self.screen.add_class("batchsim-main")
        self.style = (UNSEEN_PX, 1.0, "light", "page")
        self.picture = LivePicture(*self.style)
        self.observer = Observer(requests, traffic)
        self.controls = Controls(state, services, traffic)
        self.controls.measure = self._measure
        if first is not None:
            self.controls.choose(first, keep_rate)
        self.initial = self.controls.state
        self.predict, self.compare = PredictPage(self), ComparePage(self)
        self.play, self.share = PlayPage(self), SharePage(self)

        pages = [flow(self.controls[name] for name in names) for names in PAGES.values()]
        pages[-1].children = (*pages[-1].children, self.whose)
        self.tabs = widgets.Tab(
            [*pages, self.compare, self.predict, self.play, self.share],
            titles=[*PAGES, "A and B", "Predict", "Play", "Class"],
        )
        self.tabs.add_class("batchsim-tabs")
        main = widgets.VBox([self.controls[name] for name in MAIN])
        self.pseudocode.layout = {"flex": "1 1 24em", "min_width": "0", "max_width": "44em"}
        top = flow([main, self.pseudocode])
        super().__init__([top, self.tabs, self.screen, self.status, self.readout])
        self.add_class("batchsim")

        self.controls.moved, self.controls.telling = self._moved, self.telling
        self.screen.clicked, self.screen.pressed = self._clicked, self._pressed
        self.screen.observe(self._resized, names=["width_px", "ratio", "dark"])
        self.tabs.observe(lambda _: self._turned(), names="selected_index")
        self.refresh()

    def __repr__(self) -> str:
        return f"Explorer({self.state.workload} arrivals, {self.state.rule} rule)"

    @property
    def result(self) -> Result | None:
        """The last run that worked."""
        return None if self.scene is None else self.scene.result

    @property
    def state(self) -> State:
        """What the controls say."""
        return self.controls.state

    @property
    def scenario(self) -> Scenario:
        """The scenario that the controls say."""
        return self.controls.scenario

    @property
    def dark(self) -> bool:
        """Whether the picture is drawn for a dark page."""
        return self.screen.dark if self.theme == "auto" else self.theme == "dark"

    @property
    def shown(self) -> bool:
        """Whether the learner may see the run: not before a prediction that is asked for."""
        return not self.predict.pending

    def move_to(self, state: State) -> None:
        """Move every control at once; ValueError, and nothing moves, where the state makes no sense."""
        self.controls.set(state)
        self._moved("everything")

    # What happens when something moves.

    def _moved(self, _: str) -> None:
        self.moves += 1
        move = self.moves
        with self.lock:
            if move == self.moves:  # else a later move is waiting, and draws for both
                self.refresh()

    def refresh(self) -> None:
        """Run and draw what the controls say; on failure keep the last picture and say why."""
        with self.lock, self.telling(), compiled.announcing(self.say):
            scene = self.observer.observe(self.state, self.compare.pinned)
            self.scene, self.seen = scene, self.state
            self.say("")
            self.predict.saw(scene)
            self.draw()
            if not self.shown:
                self._turned()

    def draw(self) -> None:
        """Show the present scene, unless the learner has to predict it first."""
        scene = self.scene
        if scene is None or not self.shown:
            return
        self.picture.show(scene)
        words = self.picture.describe(scene)
        self.screen.show(self.picture.png(), words)
        self.readout.value = line(words)
        self.compare.show(scene)
        self._turned()

    def hide(self, why: str) -> None:
        """Cover the picture and its words."""
        self.screen.cover = why
        if why:
            self.readout.value = self.pseudocode.value = ""

    def say(self, text: str, alert: bool = False) -> None:
        """Put a line below the picture; an alert is read out at once."""
        self.status.value = line(text, "alert" if alert else "status") if text else ""

    @contextmanager
    def telling(self) -> Iterator[None]:
        """Say below the picture why something failed: a callback's exception would be seen nowhere."""
        try:
            yield
        except Exception as error:
            self.say(f"{type(error).__name__}: {error}", alert=True)

    def _turned(self) -> None:
        """Bring the page that is open up to date: the others wait until they are."""
        with self.lock, self.telling():
            page = self.tabs.children[self.tabs.selected_index or 0]
            if page in (self.play, self.share):
                page.turn()
            if page is not self.play and self.result is not None and self.shown:
                lines = pseudocode(self.result.scenario.rule)
                left = shares(self.result)
                most = max(range(len(left)), key=lambda i: left[i] or 0)
                theme = "dark" if self.dark else "light"
                self.pseudocode.value = to_html(lines, left, most, theme)
            self.whose.value = origin.say(self.seen)

    def _resized(self, _: Any) -> None:
        with self.lock, self.telling():
            self.restyle()

    def restyle(self) -> None:
        """Draw for another width, theme or size."""
        width_px = self.screen.width_px or UNSEEN_PX
        theme = "dark" if self.dark else "light"
        style = (width_px, self.screen.ratio, theme, self.size)
        if style != self.style:
            self.style = style
            (self.add_class if self.size == "projector" else self.remove_class)("batchsim-projector")
            self.picture = LivePicture(*style)
            self.draw()

    def _measure(self, model: str) -> dict[str, Any]:
        """Measure a model on this machine: JAX loads when the first one is."""
        self.say(f"Compiling and measuring the {model} on this machine: about 5 s.")
        from batchsim import device

        measured = device.measure(device.load_model(model))
        return service_values(measured.service, curve_of=f"{model} on {measured.device}")

    # The heat map is a control too.

    def _clicked(self, across: float, down: float) -> None:
        """Move to the setting of the heat map that was clicked."""
        with self.lock:
            cell = self.picture.cell_at(across, down)
        if cell is not None and self.shown:
            self._go(*cell)

    def _pressed(self, arrow: str) -> None:
        """Move to the neighbouring setting of the heat map."""
        if self.scene is None or not self.shown or arrow not in STEPS:
            return
        grid, state = self.scene.surface, self.state
        y = float("inf") if state.rule == "full_only" else state.max_wait_ms
        y = state.min_batch_size if grid.y == "min_batch_size" else y
        row = min(range(len(grid.y_values)), key=lambda r: abs(min(grid.y_values[r], 1e15) - min(y, 1e15)))
        column = min(range(len(grid.x_values)), key=lambda c: abs(grid.x_values[c] - state.max_batch_size))
        up, right = STEPS[arrow]
        row, column = row + up, column + right
        if 0 <= row < len(grid.y_values) and 0 <= column < len(grid.x_values):
            self._go(row, column)

    def _go(self, row: int, column: int) -> None:
        assert self.scene is not None
        grid = self.scene.surface
        if grid.refused[row, column]:
            self.say("This setting makes no sense here: its cell is crossed out.", alert=True)
            return
        y, size = grid.y_values[row], grid.x_values[column]
        change: dict[str, Any] = {"max_batch_size": size}
        if grid.y == "min_batch_size":
            change |= {"rule": "at_least", "min_batch_size": int(y)}
        elif y == float("inf"):
            change |= {"rule": "full_only"}
        else:
            change |= {"rule": "size_or_wait", "max_wait_ms": y}
        with self.telling():
            self.move_to(self.state.replace(**change))


def explore(
    service: Any = None,
    workload: OpenLoop | ClosedLoop | None = None,
    *,
    requests: int = 100_000,
    seed: int = 0,
    link: str | None = None,
) -> Explorer:
    """Return sliders that move a picture of a scenario: show it as the last line of a cell.

    `service`: a Measurement, a service time, or a whole Scenario, to begin with; models can also be
    measured from the panel. `workload`: what to begin with; a Trace can be slid to any rate. `requests`:
    how many each run simulates. `link`: the line of text that another explorer gave for its state.

    >>> panel = explore(requests=500)
    >>> panel.controls["max_wait_ms"].value = 20
    >>> panel.result.scenario.rule
    SizeOrWait(max_batch_size=32, max_wait_ms=20)
    """
    _check.whole("requests", requests)
    services: dict[str, dict[str, Any]] = {}
    first, state = None, State(seed=seed)
    if isinstance(service, Scenario):
        if workload is not None:
            raise TypeError("a Scenario must come without a workload: it has one")
        workload, state = service.workload, State.of(service, seed=seed)
    elif service is not None:
        values, first = offered(service)
        services[first] = values
    if workload is not None:
        if not isinstance(workload, (OpenLoop, ClosedLoop)):
            raise TypeError(f"workload must be one of batchsim's, got {workload!r}")
        state = state.replace(**workload_values(workload))
    traffic = workload if isinstance(workload, OpenLoop) and state.workload == "given" else None
    if link:
        first, state = None, State.from_link(link)
    return Explorer(state, services, traffic, requests, first, keep_rate=workload is not None)
