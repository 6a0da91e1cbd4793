"""The films of the explorer: requests above the timeline, or a cursor through the picture of the seats."""

from typing import Protocol

from matplotlib.text import Text

from batchsim.result import Result
from batchsim.scenario import Continuous
from batchsim.view.canvas.picture import Box, Picture
from batchsim.view.film.motion import WAY
from batchsim.view.film.snapshot import REQUESTS, Film, PlayRange, Snapshot
from batchsim.view.film.stage import Stage
from batchsim.view.film.token_film import StepFilm, WholeFilm

STAGE = 0.55  # the stage's share of the height


class Windowed(Protocol):
    """A window of a run."""

    @property
    def window_s(self) -> tuple[float, float]:
        """When the window begins and ends."""


class Timeline(Windowed, Protocol):
    """A window of a run, with a cursor."""

    box: Box
    title: Text
    server: int

    def turn_to(self, time_s: float) -> None:
        """Show the window around a time, unless the present one contains it."""

    def show_cursor(self, time_s: float) -> None:
        """Mark a time."""


class Playable(Protocol):
    """A film with its place in the picture, and the stretch to play."""

    box: Box
    stretch: PlayRange

    @property
    def film(self) -> Film | None: ...

    @property
    def timeline(self) -> Windowed: ...

    def show(self, film: Film, time_s: float, within_s: float = 0.0) -> Snapshot:
        """Draw a moment of a film."""


class FilmView:
    """A stage above a timeline that follows the film page by page, with a cursor at its time.

    `box` contains both. The player plays `stretch`: it begins some requests before the timeline's first
    window, and has about `requests` in all.
    """

    def __init__(self, picture: Picture, box: Box, timeline: Timeline, requests: int = REQUESTS) -> None:
        below = timeline.box
        self.box = Box(box.left, box.top, box.width, below.bottom - box.top)
        self.timeline, self.requests = timeline, requests
        timeline.title.set_text("The batches around this moment")
        with picture.styled():
            self.stage = Stage(picture, box)
        self.film: Film | None = None
        self.stretch = PlayRange(0.0, 0.0)

    @staticmethod
    def split(box: Box) -> tuple[Box, Box]:
        """Return the boxes of the stage and of the timeline below it."""
        height = round(STAGE * box.height)
        return box._replace(height=height), box._replace(top=box.top + height, height=box.height - height)

    def load(self, result: Result) -> None:
        """Prepare for a run whose timeline is shown, and show a moment at which a batch leaves."""
        if self.film is None or self.film.result is not result:
            self.film = Film.of(result)
            self.stretch = self.film.stretch(*self.timeline.window_s, self.requests)
            self.stage.fit(self.film, self.stretch)
            self.show(self.film, *telling_moment(self.film, self.timeline.window_s))

    def show(self, film: Film, time_s: float, within_s: float = 0.0) -> Snapshot:
        """Draw a moment of a film; a batch that left at most `within_s` ago counts as leaving."""
        seen_s = max(time_s, float(film.result.arrival_s[0]))  # where the timeline begins
        self.timeline.turn_to(seen_s)
        self.timeline.show_cursor(seen_s)
        return self.stage.show(film, time_s, within_s)


def telling_moment(film: Film, window_s: tuple[float, float]) -> tuple[float, float]:
    """Return a time while the largest batch of a window moves to its server, and how long it has moved."""
    batch = film.largest_leaving(*window_s)
    if batch is None:
        return window_s[0], 0.0
    since_s = 0.45 * WAY * (batch.finish_s - batch.start_s)
    return batch.start_s + since_s, 1.01 * since_s


WINDOWS = 4  # of the picture: the length of the stretch to play


class StepView:
    """The seats, page by page, with a cursor at the film's time; the player plays `stretch`."""

    def __init__(self, timeline: Timeline) -> None:
        self.timeline, self.box = timeline, timeline.box
        self.film: StepFilm | None = None
        self.stretch = PlayRange(0.0, 0.0)

    def load(self, result: Result) -> None:
        """Prepare for a run whose seats are shown; a server without a step has no film."""
        if self.film is None or self.film.result is not result:
            self.film = None
            begin_s, end_s = self.timeline.window_s
            if end_s > begin_s:
                kind = StepFilm if isinstance(result.scenario.rule, Continuous) else WholeFilm
                self.film = kind.of(result, self.timeline.server)
                last_s = float(self.film.instants()[-1])
                self.stretch = PlayRange(begin_s, min(begin_s + WINDOWS * (end_s - begin_s), last_s))

    def show(self, film: Film, time_s: float, within_s: float = 0.0) -> Snapshot:
        """Draw a moment of a film."""
        self.timeline.turn_to(time_s)
        self.timeline.show_cursor(time_s)
        return film.snapshot(time_s)
