"""The film above the timeline: one moment in both, and one stretch of the run to play."""

from typing import Protocol

from matplotlib.text import Text

from batchsim.result import Result
from batchsim.scenario import Continuous
from batchsim.view.canvas.picture import Box, Picture
from batchsim.view.film.motion import WAY
from batchsim.view.film.snapshot import REQUESTS, Film, PlayRange, Snapshot
from batchsim.view.film.stage import Stage
from batchsim.view.film.token_film import StepFilm, WholeFilm

STAGE = 0.55  # of the height: the stage's


class Timeline(Protocol):
    """What the film needs of a timeline: a window of the run, and a cursor in it."""

    box: Box
    title: Text
    server: int

    @property
    def window_s(self) -> tuple[float, float]:
        """When the window that is shown begins and ends."""

    def turn_to(self, time_s: float) -> None:
        """Show the window round a time, unless it is within the present one."""

    def show_cursor(self, time_s: float) -> None:
        """Mark a time."""


class Windowed(Protocol):
    """What shows a window of a run."""

    @property
    def window_s(self) -> tuple[float, float]:
        """When the window begins and ends."""


class Playable(Protocol):
    """What a player needs of what it plays: a film, the stretch to play, where it is, and how to draw it."""

    box: Box
    stretch: PlayRange

    @property
    def film(self) -> Film | None: ...

    @property
    def timeline(self) -> Windowed: ...

    def show(self, film: Film, time_s: float, within_s: float = 0.0) -> Snapshot:
        """Draw a moment of a film."""


class FilmView:
    """A stage above a timeline, which follows it page by page with a cursor at the film's time.

    `box` is that of both; `stretch` is what is played: some requests before the timeline's first window, and
    about `requests` in all.
    """

    def __init__(self, picture: Picture, box: Box, timeline: Timeline, requests: int = REQUESTS) -> None:
        below = timeline.box
        self.box = Box(box.left, box.top, box.width, below.bottom - box.top)
        self.timeline, self.requests = timeline, requests
        timeline.title.set_text("The batches round this moment")
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
        """Prepare for a run whose timeline is shown, and show a moment of it: a batch on its way."""
        if self.film is None or self.film.result is not result:
            self.film = Film.of(result)
            self.stretch = self.film.stretch(*self.timeline.window_s, self.requests)
            self.stage.fit(self.film, self.stretch)
            self.show(self.film, *telling_moment(self.film, self.timeline.window_s))

    def show(self, film: Film, time_s: float, within_s: float = 0.0) -> Snapshot:
        """Draw a moment of a film, in the timeline, too; a batch that left `within_s` ago still leaves."""
        seen_s = max(time_s, float(film.result.arrival_s[0]))  # before it there is no timeline
        self.timeline.turn_to(seen_s)
        self.timeline.show_cursor(seen_s)
        return self.stage.show(film, time_s, within_s)


def telling_moment(film: Film, window_s: tuple[float, float]) -> tuple[float, float]:
    """Return a time within a window at which its largest batch is on its way, and how long it has been."""
    batch = film.largest_leaving(*window_s)
    if batch is None:
        return window_s[0], 0.0
    since_s = 0.45 * WAY * (batch.finish_s - batch.start_s)
    return batch.start_s + since_s, 1.01 * since_s


WINDOWS = 4  # of the picture: so long is the stretch that is played


class StepView:
    """The seats, page by page, with a cursor at the film's time; `stretch` is what is played."""

    def __init__(self, timeline: Timeline) -> None:
        self.timeline, self.box = timeline, timeline.box
        self.film: StepFilm | None = None
        self.stretch = PlayRange(0.0, 0.0)

    def load(self, result: Result) -> None:
        """Prepare for a run whose seats are shown; there is no film of a server without a step."""
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
