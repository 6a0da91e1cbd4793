"""The explorer's picture of a run: four numbers, one large view, the others small; and a film's still."""

from itertools import pairwise

from batchsim import _check
from batchsim.result import Result
from batchsim.view.canvas.picture import Box
from batchsim.view.canvas.theme import PAGE, SIZES, THEMES, named
from batchsim.view.pictures.data import ViewData
from batchsim.view.pictures.headline import HIGH, Headline, levels
from batchsim.view.pictures.timeline import TimelineView
from batchsim.view.pictures.view import Spot
from batchsim.view.pictures.views import VIEWS, RunPicture, views_of

LEAST_PX, MOST_PX = 240, 4096
MOST_ROWS = 3
LEAST_EM = 15.1, 11.0  # the width and the height of a small view: smaller, and its names would not fit


class LivePicture(RunPicture):
    """All views of a run in one figure, one of them large.

    The sizes are in CSS pixels, each `ratio` pixels of the screen; `theme` is "light" or "dark", `size`
    "page" or "projector". `large` is the key of the large view, and `alone` leaves out the others, as does
    a picture too small for their names. `show` draws a `ViewData`, `describe` puts it into words, and `at`
    answers the pointer. `mode` is the kind of run: "requests" or "tokens"; `parts` are those that the run
    has of `data.PARTS`. Views of steps and seats show `server`.
    """

    def __init__(
        self, width_px: int = 1000, height_px: int = 640, ratio: float = 1.0, theme: str = "light",
        size: str = "page", large: str = "latency", alone: bool = False, mode: str = "requests",
        server: int = 0, parts: tuple[str, ...] = (),
    ) -> None:  # fmt: skip
        _check.whole("width_px", width_px, LEAST_PX, MOST_PX)
        _check.whole("height_px", height_px, LEAST_PX, MOST_PX)
        _check.real("ratio", ratio, at_least=0.5, at_most=4)
        named("mode", mode, VIEWS)
        views = views_of(mode, parts)
        first = named("large", large, views)
        colours, self.size = named("theme", theme, THEMES), named("size", size, SIZES)
        super().__init__(width_px, height_px, ratio, colours, self.size.em_px(width_px))
        top = round(HIGH * self.font_px * (2 if alone and width_px < 40 * self.font_px else 1))
        others = [kind for kind in views.values() if kind is not first]
        with self.styled():
            self.headline = Headline(self, Box(0, 0, width_px, top))
        rows = min(max(len(others) - 2, 1), MOST_ROWS)
        last = len(others) - rows + 1  # in the last row
        tight = (
            width_px / max(last, 3) < LEAST_EM[0] * self.font_px
            or (height_px - top) / rows < LEAST_EM[1] * self.font_px
        )
        if alone or tight:
            places = [(first, Box(0, top, width_px, height_px - top), True)]
        else:
            # The large view takes two of three columns, down to the last row, and small ones fill the rest.
            xs = [round(width_px * part / 3) for part in range(4)]
            ys = [round(top + (height_px - top) * part / rows) for part in range(rows + 1)]
            small = [Box(xs[2], y, width_px - xs[2], low - y) for y, low in pairwise(ys[:-1])]
            ends = [round(width_px * part / last) for part in range(last + 1)]
            small += [Box(x, ys[-2], right - x, ys[-1] - ys[-2]) for x, right in pairwise(ends)]
            places = [(first, Box(0, top, xs[2], ys[-2] - top), True)]
            places += [(kind, box, False) for kind, box in zip(others, small, strict=False)]
        self.mode = mode
        self.add_views(places, self.size.line_px)
        for view in self.views:
            view.server = server

    def show(self, data: ViewData) -> None:  # type: ignore[override]
        if (kind := data.result.scenario.kind) != self.mode:
            raise TypeError(f"a picture of {self.mode} must show a run of {self.mode}, got one of {kind}")
        super().show(data)
        self.headline.update(data)

    def describe(self, data: ViewData) -> str:
        sentence = f" The p99 by priority: {levels(data, 99)[0]}." if data.levels_ms else ""
        return super().describe(data) + sentence

    def at(self, across: float, down: float) -> Spot | None:
        """Return the answer to the pointer at fractions of the width and the height, from the top left."""
        x, y = across * self.width_px, down * self.height_px
        for view in self.views:
            box = view.box
            if self.data is not None and box.left <= x < box.right and box.top <= y < box.bottom:
                if not view.large:
                    return Spot(view.KEY, f"Enlarge: {view.NAME}")
                return None if view.lacks(self.data) else view.spot(x, y, self.data)
        return None


WIDTH_PX, HEIGHT_PX = 900, 260


class Moment(RunPicture):
    """The timeline of a result, the still of its film."""

    def __init__(self, result: Result) -> None:
        super().__init__(WIDTH_PX, HEIGHT_PX, 1.0, THEMES["light"], PAGE.em_px(WIDTH_PX))
        self.add_views([(TimelineView, Box(0, 0, WIDTH_PX, HEIGHT_PX), True)], PAGE.line_px)
        self.show(ViewData(result))
