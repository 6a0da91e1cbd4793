"""A player of films: play and pause, event by event, speed, and time."""

import math
import time
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import ipywidgets as widgets
import numpy as np

from batchsim import _check
from batchsim.view.explorer.widgets import ECHO_S, SLIDERS, Screen, button, plain
from batchsim.view.film.film_view import Playable, telling_moment
from batchsim.view.film.snapshot import Film, PlayRange, Snapshot
from batchsim.view.film.token_film import StepMoment, WholeMoment
from batchsim.view.film.words import describe

SLOWNESS = tuple(float(f"{digit}e{power}") for power in range(-3, 7) for digit in (1, 2, 5))
PER_S = 8.0  # arrivals per second on the screen that the eye can follow
BATCH_S = 0.4, 3.0  # how long a batch should compute on the screen
LONGEST_PAUSE_S = 2.0  # on the screen between two arrivals
LEAP_S = 0.25  # the longest clock time between frames: a page that was hidden resumes where it was
LEAVES_S = 0.25  # on the screen, for which a batch counts as leaving: long enough to read it
SLIDE_S = 0.12  # between two moves of the slider while the film plays
PLACES = 400  # of the slider


class Player(widgets.VBox):
    """The controls of a film; `time_ms` is its time, `words` describes that moment.

    The page plays the film: it requests the next frame once it shows the last, so frames do not queue.
    Without a page, set `time_ms`, or click `next` and `previous`.

    `stage` returns the object that draws the film, or None; `show` puts its drawing on the screen. `guard` is
    held meanwhile, as callbacks may come on several threads and matplotlib is not thread-safe. `prepare` is
    called before the reader's own moves.
    """

    def __init__(
        self, screen: Screen, stage: Callable[[], Playable | None], show: Callable[[Any], None],
        guard: Callable[[], AbstractContextManager[Any]], prepare: Callable[[], None] = lambda: None,
    ) -> None:  # fmt: skip
        self.screen, self._stage, self._show = screen, stage, show
        self._guard, self._prepare = guard, prepare
        self.film: Film | None = None
        self.moment: Snapshot | StepMoment | WholeMoment | None = None
        self.stretch = PlayRange(0.0, 0.0)
        self.time_s = self.within_s = self._clock_s = self._slid_s = 0.0
        self.untouched = True  # since the film was loaded: Play starts at its beginning
        self._moves = 0  # of the slider by this code
        self._sent: deque[tuple[float, float]] = deque(maxlen=64)  # to the slider, and when
        self._seen: list[Callable[[], None]] = []
        self.play = plain(
            widgets.ToggleButton, description="Play", icon="play", tooltip="Play the film, or pause it"
        )
        back, on = "Go to the previous event", "Go to the next event"
        self.previous = button("Previous", back, lambda: self._step(-1), icon="step-backward")
        self.next = button("Next event", on, lambda: self._step(1), icon="step-forward")
        self.slowness = plain(
            widgets.Dropdown, options=[(_slowness(times), times) for times in SLOWNESS], value=100.0,
            layout={"width": "auto"}, tooltip="Seconds on the screen per second of the run",
        )  # fmt: skip
        self.place = plain(
            SLIDERS["linear"], readout=False, tooltip="The film's time", layout={"width": "auto"}
        )
        self.readout = plain(widgets.HTML)  # exact, while the slider rounds to its steps
        self.readout.add_class("batchsim-label")
        self.play.observe(lambda _: self._play(), names="value")
        self.place.observe(self._slid, names="value")
        screen.on_msg(self._receive)
        self.buttons = plain(widgets.Box, [self.play, self.previous, self.next])
        self.buttons.add_class("batchsim-player-row")
        timing = plain(widgets.VBox, [self.readout, self.place])
        timing.add_class("batchsim-player-time")
        self.parts = [self.buttons, self.slowness, timing]
        self.controls = [self.play, self.previous, self.next, self.slowness, self.place]
        super().__init__(self.parts)
        self.add_class("batchsim-player")

    def on_moment(self, callback: Callable[[], None]) -> None:
        """Call back whenever another moment is shown."""
        self._seen.append(callback)

    # When.

    @property
    def time_ms(self) -> float:
        """The film's time in ms; ValueError outside the part that is played."""
        return 1000 * self.time_s

    @time_ms.setter
    def time_ms(self, value: float) -> None:
        begin_ms, until_ms = (1000 * time_s for time_s in self.stretch)
        self._prepare()
        self.go_to(float(_check.real("time_ms", value, at_least=begin_ms, at_most=until_ms)) / 1000)

    @property
    def words(self) -> str:
        """The present moment in a sentence."""
        return "" if self.moment is None else describe(self.moment, self.within_s)

    @property
    def playing(self) -> bool:
        return bool(self.play.value)

    def load(self, film: Film, stage: Playable) -> None:
        """Play another film, which `stage` has prepared and drawn at a typical moment.

        If a film is playing, the new one continues from its beginning.
        """
        self.film, self.stretch = film, stage.stretch
        begin_ms, until_ms = (1000 * time_s for time_s in self.stretch)
        place = self.place
        with place.hold_sync():
            self._moves += 1
            place.max = max(until_ms, place.min)
            place.min = begin_ms
            place.max = max(until_ms, begin_ms)
            place.step = _step_ms(until_ms - begin_ms)
            self._moves -= 1
        self.slowness.value = comfortable(film, self.stretch)
        if self.playing:
            return self.go_to(self.stretch.begin_s, LEAVES_S / self.slowness.value)
        self.untouched = True
        self.time_s, self.within_s = telling_moment(film, stage.timeline.window_s)
        self.moment = film.snapshot(self.time_s)
        self._tell()

    def go_to(self, time_s: float, within_s: float = 0.0) -> None:
        """Show a moment, if there is a stage; a batch that left `within_s` ago still counts as leaving."""
        if self._stage() is None:
            return
        self.time_s, self.within_s = min(max(time_s, self.stretch.begin_s), self.stretch.until_s), within_s
        self.untouched = False
        self.redraw()

    def redraw(self) -> None:
        """Show the present moment on the present stage."""
        with self._guard():
            stage = self._stage()
            if self.film is None or stage is None:
                self.play.value = False
                return
            self.moment = stage.show(self.film, self.time_s, self.within_s)
            self._show(stage)
        self._tell()

    def _tell(self) -> None:
        now_s = time.perf_counter()
        if not self.playing or now_s - self._slid_s >= SLIDE_S:
            self._slid_s = now_s
            self._slide()
        for callback in self._seen:
            callback()

    def _slide(self) -> None:
        """Let the slider follow the time."""
        self._moves += 1
        try:
            decimals = 0 if self.film is None else self.film.decimals
            self.readout.value = f"Time: {self.time_ms:,.{decimals}f} ms"
            self.place.value = min(max(self.time_ms, self.place.min), self.place.max)
            self._sent.append((self.place.value, time.perf_counter()))
        finally:
            self._moves -= 1

    def _slid(self, change: dict[str, Any]) -> None:
        # A page may echo a value, rounded to the slider's step.
        half, since_s = 0.51 * self.place.step, time.perf_counter() - ECHO_S
        echo = any(abs(change["new"] - value) <= half and when_s > since_s for value, when_s in self._sent)
        if not self._moves and not echo:
            self._prepare()
            self.go_to(change["new"] / 1000, LEAVES_S / self.slowness.value if self.playing else 0.0)

    def _step(self, way: int) -> None:
        self._prepare()
        if self.film is None:
            return
        self.play.value = False
        if way > 0 and self.untouched and self.time_s >= self.stretch.until_s:  # as Play does
            return self.go_to(self.stretch.begin_s)
        instants = self.film.instants()
        index = int(np.searchsorted(instants, self.time_s, "right" if way > 0 else "left")) - (way < 0)
        self.go_to(float(instants[min(index, instants.size - 1)]) if index >= 0 else self.stretch.begin_s)

    # Play: a clock, and a page that requests frames.

    def _play(self) -> None:
        if self.playing:
            self._prepare()
            if self.film is None or self._stage() is None:
                self.play.value = False
                return
        self.play.description, self.play.icon = ("Pause", "pause") if self.playing else ("Play", "play")
        self._clock_s = time.perf_counter()
        if self.playing and (self.untouched or self.time_s >= self.stretch.until_s):
            self.go_to(self.stretch.begin_s)
        self.screen.send({"film": self.playing})
        if not self.playing:
            self.redraw()  # exact slider and words again

    def _receive(self, _: Any, content: dict[str, Any], __: Any) -> None:
        if "tick" in content:
            self._tick()

    def _tick(self) -> None:
        """Show the moment of the clock."""
        if not self.playing:
            return
        now_s = time.perf_counter()
        passed_s, self._clock_s = min(now_s - self._clock_s, LEAP_S), now_s
        time_s = self.time_s + passed_s / self.slowness.value
        self.go_to(time_s, LEAVES_S / self.slowness.value)
        if self.time_s >= self.stretch.until_s:
            self.play.value = False


def comfortable(film: Film, stretch: PlayRange) -> float:
    """Return the slowdown at which the eye can follow a film.

    >>> from batchsim import Affine, Constant, Scenario, SizeOrWait, simulate
    >>> for rate_per_s in (10, 1000, 100_000):
    ...     film = Film(simulate(Scenario(Constant(rate_per_s), SizeOrWait(32, 1), Affine(5, 0.25)), 200))
    ...     print(comfortable(film, film.stretch()))
    20.0
    100.0
    200.0
    """
    begin_s, until_s = stretch
    per_s = max(film.coming(begin_s, until_s).size, 1) / max(until_s - begin_s, 1e-12)
    shortest, longest = (wanted_s / film.batch_s for wanted_s in BATCH_S)
    wanted = min(max(min(per_s / PER_S, longest), shortest), LONGEST_PAUSE_S * per_s)
    return min(SLOWNESS, key=lambda times: abs(math.log(times / max(wanted, 1e-9))))


def _slowness(times: float) -> str:
    if times == 1:
        return "In real time"
    return f"{times:,.0f}x slower" if times > 1 else f"{1 / times:,.0f}x faster"


def _step_ms(span_ms: float) -> float:
    """Return the slider's step: a power of ten, about `PLACES` of them in all."""
    return float(10 ** math.floor(math.log10(max(span_ms, 1e-9) / PLACES)))
