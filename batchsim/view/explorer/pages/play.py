"""Play: the first requests of the run as a film, slowed down, or from event to event."""

import math

import ipywidgets as widgets
import numpy as np

from batchsim.result import Result
from batchsim.view.explorer.knob import button, flow, line
from batchsim.view.explorer.main_picture import Screen
from batchsim.view.explorer.pages import Page
from batchsim.view.explorer.session import Session, Style
from batchsim.view.film.animation import Animation, describe
from batchsim.view.film.pseudocode import acting, pseudocode, to_html
from batchsim.view.film.snapshot import Film

REQUESTS = 200  # how many requests of the run are played
FRAME_S = 0.08  # a frame's time on the screen
SLOWNESS = tuple(n * 10**power for power in range(6) for n in (1, 3))
COMFORTABLE_PER_S = 8  # arrivals in a second of the film that the eye can still follow
MOST_FRAMES = 20_000


class PlayPage(Page):
    """A player, and the queue and the servers at one moment of the run.

    It works without a browser: set `place.value`, the number of the frame, or click `next` and `previous`.
    `code` is the explorer's pseudo-code, in which the page marks the line that acts.
    """

    title = "Play"

    def __init__(self, session: Session, code: widgets.HTML) -> None:
        self.code = code
        self.film: Film | None = None
        self.result: Result | None = None
        self.stage: Animation | None = None
        self.style: Style | None = None  # what the stage was made with
        self.time_s = self.until_s = 0.0
        self.play = widgets.Play(interval=round(1000 * FRAME_S), max=100, tooltip="Play the first requests")
        self.place = widgets.IntSlider(
            description="Frame", max=100, readout=False,
            layout={"width": "20em"}, style={"description_width": "4em"},
        )  # fmt: skip
        widgets.jslink((self.play, "value"), (self.place, "value"))
        self.slowness = widgets.Dropdown(
            description="Slowed down", options=[(f"{times:,} times", times) for times in SLOWNESS], value=100,
            tooltip="How many seconds on the screen a second of the run takes",
            layout={"width": "19em"}, style={"description_width": "9em"},
        )  # fmt: skip
        back, on = "Back to when something last happened", "On to when something next happens"
        self.previous = button("Previous event", back, lambda: self._step(-1))
        self.next = button("Next event", on, lambda: self._step(1))
        self.screen = Screen()
        self.screen.add_class("batchsim-stage")
        self.words = widgets.HTML()
        self.words.add_class("batchsim-moment")
        self.place.observe(lambda _: self._placed(), names="value")
        self.slowness.observe(lambda _: self._refit(), names="value")
        self.screen.observe(lambda _: self._draw(), names=["width_px", "ratio", "dark"])
        row = [self.play, self.place, self.slowness, self.previous, self.next]
        super().__init__(session, [flow(row), self.screen, self.words])

    def update(self) -> None:
        """Play the session's run: from its beginning, if it is another."""
        session = self.session
        for control in (self.play, self.place, self.previous, self.next):
            control.disabled = not session.visible
        self.screen.cover = "Predict first, then play." if session.cover else ""
        if session.data is None or session.cover:
            self.words.value = ""
        elif session.data.result is self.result:
            self._draw()
        else:
            result = self.result = session.data.result
            requests = min(REQUESTS, result.arrival_s.size)
            self.film = Film(result)
            self.instants = self.film.instants(requests)
            self.until_s, self.time_s = float(self.instants[-1]), 0.0
            slowness = comfortable(requests / max(self.until_s, 1e-12))
            if slowness == self.slowness.value:
                self._refit()
            self.slowness.value = slowness  # which refits where it is another

    @property
    def frame_s(self) -> float:
        """How much of the run passes from frame to frame."""
        return float(FRAME_S / self.slowness.value)

    def _refit(self) -> None:
        """Count the frames anew, and stay at the same moment of the run."""
        time_s = self.time_s
        self.play.max = self.place.max = min(max(math.ceil(self.until_s / self.frame_s), 1), MOST_FRAMES)
        self._put(time_s)

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
        event = int(np.searchsorted(self.instants, self.time_s, "right" if way > 0 else "left")) - (way < 0)
        self._put(float(self.instants[min(max(event, 0), self.instants.size - 1)]))

    def _draw(self) -> None:
        session = self.session
        with session.lock, session.reporting():
            if self.film is None or not self.is_open or not session.visible:
                return
            width_px = self.screen.width_px or session.style.width_px
            style = session.style._replace(width_px=width_px, ratio=self.screen.ratio)
            if self.stage is None or style != self.style:
                self.stage, self.style = (
                    Animation(style.width_px, style.ratio, style.theme, style.size),
                    style,
                )
            # A batch that left since the last frame is shown to leave: no frame hits the very instant.
            moment = self.stage.show(self.film, self.time_s, self.frame_s)
            words, acts = describe(moment, self.frame_s), acting(moment, self.frame_s)
            self.screen.show(self.stage.png(), words)
            self.words.value = line(words, "note")  # not said at once: it changes twelve times a second
            self.code.value = to_html(pseudocode(self.film.rule), acting=acts, theme=style.theme)


def comfortable(arrivals_per_s: float) -> int:
    """Return how many times slower the film must be for the eye to follow.

    >>> comfortable(1000), comfortable(5)
    (100, 1)
    """
    wanted = arrivals_per_s / COMFORTABLE_PER_S
    return min(SLOWNESS, key=lambda times: abs(math.log(times / max(wanted, 1e-9))))
