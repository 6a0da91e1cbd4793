"""The film of a run of token generation: a cursor goes through the picture of its seats."""

from batchsim.result import Result
from batchsim.scenario import Continuous
from batchsim.view.film.film_view import Timeline
from batchsim.view.film.snapshot import Film, Snapshot, Stretch
from batchsim.view.film.step_film import StepFilm
from batchsim.view.film.whole_film import WholeFilm

WINDOWS = 4  # of the picture: so long is the stretch that is played


class StepView:
    """The seats, page by page, with a cursor at the film's time; `stretch` is what is played."""

    def __init__(self, timeline: Timeline) -> None:
        self.timeline, self.box = timeline, timeline.box
        self.film: StepFilm | None = None
        self.stretch = Stretch(0.0, 0.0)

    def load(self, result: Result) -> None:
        """Prepare for a run whose seats are shown; there is no film of a server without a step."""
        if self.film is None or self.film.result is not result:
            self.film = None
            begin_s, end_s = self.timeline.window_s
            if end_s > begin_s:
                kind = StepFilm if isinstance(result.scenario.rule, Continuous) else WholeFilm
                self.film = kind.of(result, self.timeline.server)
                last_s = float(self.film.instants()[-1])
                self.stretch = Stretch(begin_s, min(begin_s + WINDOWS * (end_s - begin_s), last_s))

    def show(self, film: Film, time_s: float, within_s: float = 0.0) -> Snapshot:
        """Draw a moment of a film."""
        self.timeline.turn_to(time_s)
        self.timeline.show_cursor(time_s)
        return film.snapshot(time_s)
