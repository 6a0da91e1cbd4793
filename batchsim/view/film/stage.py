"""The film's stage: requests flow from the left through the queue into the servers, and out on the right."""

from collections.abc import Iterable

import numpy as np
from matplotlib.artist import Artist
from matplotlib.collections import LineCollection, PolyCollection
from matplotlib.colors import to_rgba
from matplotlib.patches import PathPatch, Rectangle

from batchsim.view.canvas.cells import CORNERS, NOWHERE, rectangles, triangles
from batchsim.view.canvas.lettering import Label, Lettering, width_em
from batchsim.view.canvas.picture import Box, Picture, Tile
from batchsim.view.canvas.theme import COMPILING, COMPONENTS, LEAST_PX, ComponentStyle
from batchsim.view.film.motion import Choreography, Crowd, Places, places_in
from batchsim.view.film.snapshot import Film, PlayRange, Snapshot
from batchsim.view.film.words import ABOVE, Captions

FLAG = 0.5  # of a box's side
STRIPE = np.array([0, 0.58])  # where the stripe of a box with a number begins
DIGITS = 3  # the last ones are shown
HATCHED_PX = 8  # the smallest side in which a hatch is visible


def fill_style(tile: Tile, style: ComponentStyle, dense: bool = True) -> dict[str, str]:
    """Return the style of a small shape of a latency component, with a hatch twice as dense."""
    colour, background = getattr(tile.theme, style.colour), tile.theme.background
    return {"facecolor": colour, "edgecolor": background, "hatch": 2 * style.hatch if dense else ""}


class RequestBoxes:
    """Requests as boxes in their component's colour and hatch; those large enough have a number."""

    def __init__(self, tile: Tile, em: float, zorder: float = 2) -> None:
        self.tile, self.em, theme = tile, em, tile.theme
        # One path for all boxes: matplotlib draws a hatch once per path, which is the slowest part.
        self.papers = tile.add(PathPatch(NOWHERE, facecolor=theme.background, linewidth=0, zorder=zorder))
        self.fills = tile.add(PathPatch(NOWHERE, linewidth=0, zorder=zorder + 0.1))
        self.edges = tile.add(PathPatch(NOWHERE, facecolor="none", edgecolor=theme.soft, linewidth=1))
        self.edges.set_zorder(zorder + 0.2)
        self.numbers = Lettering(tile.picture, em, theme.ink, zorder=zorder + 0.3)
        tile.set_moving(self.papers, self.fills, self.edges, self.numbers)

    def show(self, crowd: Crowd, component: str, digits: int) -> None:
        """Show these requests, with the last digits of their numbers if there is room."""
        em, sides = self.em, crowd.sides[:, None]
        numbered = sides[:, 0] >= number_px(em, digits)
        begin, end = crowd.corners, crowd.corners + sides
        papers = rectangles(begin[numbered], end[numbered])
        self.papers.set_path(papers)
        self.edges.set_path(papers)
        self.fills.set_path(rectangles(begin + sides * np.where(numbered[:, None], STRIPE, 0), end))
        style = fill_style(self.tile, COMPONENTS[component], bool(sides.max(initial=0) >= HATCHED_PX))
        self.fills.set(visible=len(sides) > 0, **style)
        baseline = (STRIPE[1] * sides + 0.72 * em) / 2
        places = np.concatenate([begin + sides / 2 * [1, 0], begin + baseline], axis=1)[numbered]
        self.numbers.show(
            Label(last_digits(request, digits), x, y, "center")
            for request, (x, _, _, y) in zip(crowd.requests[numbered].tolist(), places.tolist(), strict=True)
        )


def last_digits(request: int, digits: int) -> str:
    """Return the end of a request's number.

    >>> last_digits(7, 3), last_digits(50_012, 3)
    ('7', '012')
    """
    return str(request)[-digits:]


def number_px(em: float, digits: int) -> float:
    """Return the smallest side of a box with a number of `digits` digits."""
    return max(digits * em * width_em("0") + 2, 1.9 * em)


class Flags:
    """A mark in the lower left corner of requests whose level goes before others; earlier is larger."""

    def __init__(self, tile: Tile, zorder: float) -> None:
        theme = tile.theme
        self.shapes = tile.add(PathPatch(NOWHERE, facecolor=theme.ink, edgecolor=theme.background))
        self.shapes.set(zorder=zorder, visible=False)
        tile.set_moving(self.shapes)

    def show(self, crowd: Crowd, shares: np.ndarray) -> None:
        """Give each request a flag of a share of the largest size, or no flag for 0."""
        flagged = shares > 0
        sides = crowd.sides[flagged]
        corners = crowd.corners[flagged] + np.stack([np.zeros(sides.size), sides], axis=-1)
        sizes = FLAG * sides * shares[flagged]
        self.shapes.set_path(triangles(corners, sizes))
        self.shapes.set(visible=bool(flagged.any()), linewidth=float(sides.max(initial=0) >= HATCHED_PX))


class FadingBoxes:
    """Requests of any opacity, without numbers."""

    def __init__(self, tile: Tile, colour: str, filled: bool = True, zorder: float = 3) -> None:
        self.colour, self.filled = np.array(to_rgba(colour)), filled
        self.boxes = tile.add(PolyCollection([], facecolor="none", edgecolor="none", zorder=zorder))
        self.boxes.set_linewidth(1.0)
        tile.set_moving(self.boxes)

    def show(self, crowd: Crowd) -> None:
        corners = crowd.corners[:, None] + CORNERS[:4] * crowd.sides[:, None, None]
        self.boxes.set_verts(list(corners))
        colours = np.tile(self.colour, (len(corners), 1))
        colours[:, 3] *= crowd.alphas
        self.boxes.set(**{"facecolor" if self.filled else "edgecolor": colours})


class Gauge:
    """A bar, filled from the left."""

    def __init__(self, tile: Tile, box: Box) -> None:
        self.tile, self.box, corner = tile, box, (box.left, box.top)
        back = Rectangle(corner, box.width, box.height, facecolor=tile.theme.faint, linewidth=0)
        self.back = tile.add(back)
        self.fill = tile.add(Rectangle(corner, 0, box.height, linewidth=0, zorder=2))
        tile.set_moving(self.fill)

    def show(self, share: float, component: str = "computing") -> None:
        """Fill a share of the bar."""
        width = self.box.width * min(max(share, 0.0), 1.0)
        # An empty bar is hidden, as even its hatch would take time.
        self.fill.set(width=width, visible=width > 0, **fill_style(self.tile, COMPONENTS[component]))


class Stage(Tile):
    """The film of a run, in any box of a picture: a clock, the queue and the servers, and the rule's gauges.

    Each box is one request. Boxes are as large as the fullest moment of the stretch allows that `fit`
    prepared, and keep that size. A request is left out only if its box would be too small to see.
    """

    def __init__(self, picture: Picture, box: Box) -> None:
        super().__init__(picture, box)
        self.em = em = max(picture.font_px, LEAST_PX)
        theme, left, right = self.theme, box.left + 0.8 * em, box.right - 0.8 * em
        self.coming = FadingBoxes(self, theme.soft, filled=False, zorder=2)
        self.bars = self.add(PathPatch(NOWHERE, facecolor=theme.blue, linewidth=0, zorder=2))
        self.waiting = RequestBoxes(self, em, zorder=2.5)
        self.finished = FadingBoxes(self, theme.blue, zorder=3)
        self.computing, self.held = (RequestBoxes(self, em, zorder=4) for _ in range(2))
        self.flags = Flags(self, zorder=4.4)
        self.lost = FadingBoxes(self, theme.vermilion, zorder=4.5)
        group = PathPatch(NOWHERE, facecolor="none", edgecolor=theme.ink, linewidth=1.2, zorder=5)
        self.group = self.add(group)
        style = fill_style(self, COMPILING)
        self.compiling = self.add(PathPatch(NOWHERE, linewidth=0, zorder=2.1, **style))
        style = fill_style(self, COMPONENTS["device_wait"])
        self.waits = self.add(PathPatch(NOWHERE, linewidth=0, zorder=2.1, **style))
        self.set_moving(self.bars, self.compiling, self.waits, self.group)
        self.captions = Captions(self, left, right, em)
        # Below are the gauges and their names; above, the header and the names of the parts.
        wide, low, high = (right - left - 1.6 * em) / 2, box.bottom - 1.1 * em, 0.6 * em
        self.size_gauge = Gauge(self, Box(left, low, wide, high))
        self.wait_gauge = Gauge(self, Box(right - wide, low, wide, high))
        self.enough = self.add(Rectangle((0, 0), 0, 1.5 * high, color=theme.ink, linewidth=0))
        top = box.top + self.captions.height_px + (1 + ABOVE) * em
        self.body = Box(box.left, top, box.width, max(low - 1.9 * em - top, em))
        self.frames: list[Artist] = []
        self.film: Film | None = None

    # Fixed parts.

    def fit(self, film: Film, stretch: PlayRange | None = None) -> None:
        """Prepare for a stretch of a film, by default all of it: the size and the places of its boxes."""
        begin_s, until_s = stretch or film.stretch(requests=film.result.arrival_s.size)
        largest = film.largest_batch(begin_s, until_s)
        waiting = max(film.most_waiting(begin_s, until_s), largest)
        last_s = min(until_s, float(film.result.arrival_s[-1]))
        pace_s = (last_s - begin_s) / max(film.coming(begin_s, until_s).size, 1)
        self.film, self.digits = film, min(len(str(film.result.arrival_s.size - 1)), DIGITS)
        self.places = places = places_in(self.body, waiting, film.servers, largest, self.em)
        self.choreography = Choreography(film, places, max(pace_s, 1e-12))
        if self.hold("places", [places.queue_box, *(server.box for server in places.servers)]):
            self.remove(self.frames)
            with self.picture.styled():
                self.frames = self._put_up(places)

    def _put_up(self, places: Places) -> list[Artist]:
        """Add the banks of the queue, the servers' frames, and the lane of arrivals."""
        queue, lane, theme = places.queue_box, places.lane, self.theme
        banks = [[(lane.left, y), (queue.right, y)] for y in (queue.top - 2, queue.bottom + 2)]
        frames = rectangles(*_ends(server.box for server in places.servers))
        backs = rectangles(*_ends(server.bar for server in places.servers))
        name = "arrivals \u2192" if lane.width > 7 * self.em else "arrivals"
        style = {"color": theme.soft, "fontsize": self.em}
        return [
            self.add(LineCollection(banks, colors=theme.faint, linewidths=2)),
            self.add(PathPatch(frames, facecolor="none", edgecolor=theme.soft, linewidth=1)),
            self.add(PathPatch(backs, facecolor=theme.faint, linewidth=0)),
            self.add_text(self.captions.left, queue.top - ABOVE * self.em, name, **style),
        ]

    # Moving parts.

    def show(self, film: Film, time_s: float, within_s: float = 0.0) -> Snapshot:
        """Draw a moment, and return its snapshot; a batch that left `within_s` ago counts as leaving."""
        now = film.snapshot(time_s)
        if film is not self.film:
            self.fit(film)
        crowds, component = self.choreography.at(now), "forming" if now.forming else "queueing"
        self.coming.show(crowds.coming)
        self.waiting.show(crowds.waiting, component, self.digits)
        self.computing.show(crowds.computing, "computing", self.digits)
        self.held.show(crowds.held, "device_wait", self.digits)
        seen = Crowd.join([crowds.coming, crowds.waiting, crowds.computing, crowds.held])
        self.flags.show(seen, film.order.flags(seen.requests))
        self.finished.show(crowds.finished)
        self.lost.show(crowds.lost)
        self.group.set_path(rectangles(*_ends(crowds.groups)))
        self._show_bars(now)
        self._show_gauges(now, component)
        gauges = self.size_gauge.box, self.wait_gauge.box
        self.captions.show(now, within_s, film, self.places, gauges)
        return now

    def _show_bars(self, now: Snapshot) -> None:
        """Show the progress of each batch, and its compiling and waiting."""
        fills, compiled, waited = [], [], []
        for place, batch in zip(self.places.servers, now.computing, strict=False):
            if batch is not None:
                share, ready, asked, begin = (
                    (time_s - batch.start_s) / (batch.finish_s - batch.start_s)
                    for time_s in (now.time_s, batch.ready_s, *batch.held_s)
                )
                left, wide = place.bar.left + place.bar.width * asked, min(share, begin) - asked
                waited.append(place.bar._replace(left=left, width=place.bar.width * wide))
                fills.append(place.bar._replace(width=place.bar.width * min(share, 1.0)))
                compiled.append(place.bar._replace(width=place.bar.width * min(share, ready, 1.0)))
        self.bars.set_path(rectangles(*_ends(fills)))
        for patch, bars in ((self.compiling, compiled), (self.waits, waited)):
            seen = [bar for bar in bars if bar.width > 0]
            patch.set_path(rectangles(*_ends(seen)))
            patch.set_visible(bool(seen))  # even an empty hatch takes time

    def _show_gauges(self, now: Snapshot, component: str) -> None:
        """Show how close a batch is to leaving, by size and by the oldest request's wait."""
        rule, gauge = now.rule, self.size_gauge.box
        self.size_gauge.show(now.waiting.size / rule.largest_batch, component)
        if self.hold("enough", rule.enough / rule.largest_batch):
            wide = 0.0 if rule.enough == rule.largest_batch else 0.17 * self.em
            x = gauge.left + gauge.width * rule.enough / rule.largest_batch - wide / 2
            self.enough.set(x=x, y=gauge.top - 0.15 * self.em, width=wide)
        limit_ms, waited_ms = rule.max_wait_ms, now.waited_ms
        # A wait of 0 ms is over at once.
        share = 0.0 if waited_ms is None else waited_ms / limit_ms if limit_ms else 1.0
        self.wait_gauge.show(share, component)


def _ends(boxes: Iterable[Box]) -> tuple[np.ndarray, np.ndarray]:
    """Return the opposite corners of boxes, each of shape (boxes, 2)."""
    edges = np.array([(box.left, box.top, box.right, box.bottom) for box in boxes]).reshape(-1, 4)
    return edges[:, :2], edges[:, 2:]
