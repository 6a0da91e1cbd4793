"""A picture of its own for the film of a run and its timeline."""

from batchsim.result import Result
from batchsim.view.canvas.picture import Box
from batchsim.view.canvas.theme import SIZES, THEMES, named
from batchsim.view.film.film_view import FilmView
from batchsim.view.film.snapshot import REQUESTS
from batchsim.view.run.data import ViewData
from batchsim.view.run.run_picture import RunPicture
from batchsim.view.run.timeline import TimelineView

ASPECT, LEAST_PX, MOST_PX = 0.52, 400, 620  # the height for a width, and its bounds


class Animation(RunPicture):
    """The film of a run above its timeline; `play` prepares a result, `stage.show` draws a moment.

    `theme` is "light" or "dark", `size` "page" or "projector"; the height follows from the width. About
    `requests` requests are played: all of a run that is not much longer, else some from its middle.
    """

    def __init__(
        self, width_px: int = 900, ratio: float = 1.0, theme: str = "light", size: str = "page",
        requests: int = REQUESTS,
    ) -> None:  # fmt: skip
        sizes = named("size", size, SIZES)
        em_px = sizes.em_px(width_px)
        height_px = round(min(max(ASPECT * width_px, LEAST_PX), MOST_PX) * max(em_px / 13, 1))
        super().__init__(width_px, height_px, ratio, named("theme", theme, THEMES), em_px)
        above, below = FilmView.split(Box(0, 0, width_px, height_px))
        self.add_views([(TimelineView, below, True)], sizes.line_px)
        self.stage = FilmView(self, above, self.view(TimelineView), requests)

    def play(self, result: Result) -> None:
        """Prepare for a run, and show a moment of it at which a batch is on its way."""
        self.show(ViewData(result))
        self.stage.load(result)
