"""Play: the first requests of the run as a film, at a chosen slowness, or from event to event."""

import math
from typing import TYPE_CHECKING, Any

import ipywidgets as widgets
import numpy as np

from batchsim.result import Result
from batchsim.view.explorer.knob import flow
from batchsim.view.explorer.screen import Screen
from batchsim.view.explorer.words import line
from batchsim.view.film.animation import Animation, describe
from batchsim.view.film.pseudocode import acting, pseudocode, to_html
from batchsim.view.film.snapshot import Film

if TYPE_CHECKING:
    from batchsim.view.explorer.explorer import Explorer

REQUESTS = 200  # of the run that are played
FRAME_S = 0.08  # a frame's time on the screen
SLOWNESS = tuple(n * 10**power for power in range(6) for n in (1, 3))
COMFORTABLE_PER_S = 8  # arrivals in a second of the film, from which the eye loses them
MOST_FRAMES = 20_000


class PlayPage(widgets.VBox):
    """A player, and the queue and the servers at one moment of the run.

    It works without a browser: set `place.value`, the number of the frame, or click `next` and `previous`.
    """

    def __init__(self, panel: "Explorer") -> None:
        self.panel = panel
        self.film: Film | None = None
        self.result: Result | None = None
        self.stage: Animation | None = None
        self.style: tuple[Any, ...] = ()
        self.time_s = self.until_s = 0.0
        self.play = widgets.Play(interval=round(1000 * FRAME_S), max=100, tooltip="Play the first requests")
        self.place = widgets.IntSlider(
            description="Frame",
            max=100,
            readout=False,
            layout={"width": "20em"},
            style={"description_width": "4em"},
        )
        widgets.jslink((self.play, "value"), (self.place, "value"))
        self.slowness = widgets.Dropdown(
            description="Slower than life",
            options=[(f"{times:,} times", times) for times in SLOWNESS],
            value=100,
            tooltip="A second of the run lasts so many on the screen",
            style={"description_width": "9em"},
            layout={"width": "19em"},
        )
        self.previous = widgets.Button(
            description="Previous event", tooltip="Back to when something last happened"
        )
        self.next = widgets.Button(description="Next event", tooltip="On to when something next happens")
        self.screen = Screen()
        self.screen.add_class("batchsim-stage")
        self.words = widgets.HTML()
        self.words.add_class("batchsim-moment")
        self.place.observe(lambda _: self._placed(), names="value")
        self.slowness.observe(lambda _: self._refit(), names="value")
        self.previous.on_click(lambda _: self._step(-1))
        self.next.on_click(lambda _: self._step(1))
        self.screen.observe(lambda _: self._draw(), names=["width_px", "ratio", "dark"])
        row = [self.play, self.place, self.slowness, self.previous, self.next]
        super().__init__([flow(row), self.screen, self.words])

    @property
    def on_top(self) -> bool:
        """Whether the page is seen."""
        tabs = self.panel.tabs
        return tabs.selected_index is not None and tabs.children[tabs.selected_index] is self

    def turn(self) -> None:
        """Play the panel's run: from its beginning, if it is another."""
        result = self.panel.result
        for control in (self.play, self.place, self.previous, self.next):
            control.disabled = not self.panel.shown
        if not self.panel.shown:
            self.screen.cover, self.words.value = "Predict first, then play.", ""
        if result is None or not self.panel.shown:
            return
        self.screen.cover = ""
        if result is not self.result:
            self.film, self.result = Film(result), result
            self.instants = self.film.instants(min(REQUESTS, result.arrival_s.size))
            self.until_s, self.time_s = float(self.instants[-1]), 0.0
            self.slowness.unobserve_all("value")
            self.slowness.value = comfortable(min(REQUESTS, result.arrival_s.size) / max(self.until_s, 1e-12))
            self.slowness.observe(lambda _: self._refit(), names="value")
            self._refit()
        else:
            self._draw()

    @property
    def frame_s(self) -> float:
        """How much of the run passes from frame to frame."""
        return float(FRAME_S / self.slowness.value)

    def _refit(self) -> None:
        """Count the frames anew, and stay at the same moment of the run."""
        frames = min(max(math.ceil(self.until_s / self.frame_s), 1), MOST_FRAMES)
        at_s = self.time_s
        self.play.max = self.place.max = frames
        self._put(at_s)

    def _put(self, time_s: float) -> None:
        """Go to a moment, exactly, whatever frame is nearest."""
        frame = round(time_s / self.frame_s) if time_s < self.until_s else self.place.max
        self.place.value = min(frame, self.place.max)
        self.time_s = time_s
        self._draw()

    def _placed(self) -> None:
        self.time_s = min(self.place.value * self.frame_s, self.until_s)
        self._draw()

    def _step(self, way: int) -> None:
        if self.film is None:
            return
        side = "right" if way > 0 else "left"
        at = int(np.searchsorted(self.instants, self.time_s, side=side)) - (way < 0)  # type: ignore[call-overload]
        self._put(float(self.instants[min(max(at, 0), self.instants.size - 1)]))

    def _draw(self) -> None:
        with self.panel.lock, self.panel.telling():
            if self.film is None or self.result is None or not self.on_top or not self.panel.shown:
                return
            theme = "dark" if self.panel.dark else "light"
            style = (
                self.screen.width_px or self.panel.picture.width_px,
                self.screen.ratio,
                theme,
                self.panel.size,
            )
            if self.stage is None or style != self.style:
                self.stage, self.style = Animation(*style), style
            # A batch that left since the last frame is shown to leave: no frame hits the very instant.
            moment = self.stage.show(self.film, self.time_s, self.frame_s)
            words = describe(moment, self.frame_s)
            self.screen.show(self.stage.png(), words)
            self.words.value = line(words, "note")  # not said at once: it changes twelve times a second
            lines = pseudocode(self.result.scenario.rule)
            self.panel.pseudocode.value = to_html(lines, acting=acting(moment, self.frame_s), theme=theme)


def comfortable(arrivals_per_s: float) -> int:
    """Return how many times slower than life the eye can follow.

    >>> comfortable(1000), comfortable(5)
    (100, 1)
    """
    wanted = arrivals_per_s / COMFORTABLE_PER_S
    return min(SLOWNESS, key=lambda times: abs(math.log(times / max(wanted, 1e-9))))
