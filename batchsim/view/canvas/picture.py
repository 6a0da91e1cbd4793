"""A figure that is redrawn fast: fixed artists are stored as pixels, moving ones are drawn over them.

The explorer redraws its picture at every move of a slider. matplotlib would draw axes, grids, labels and
legends each time, and take longer than a frame lasts. So the picture is blitted:

- It is divided into *tiles*, rectangles that do not overlap and together cover it. Each tile has `fixed`
  artists (and axes) and `moving` ones.
- One buffer stores the pixels of all fixed artists. A redraw copies that buffer and draws the moving artists
  over it, by their zorder.
- A tile is *stale* when a fixed artist has changed: a limit of an axis, a unit, a name in a legend. Only then
  are its fixed artists redrawn, and only within its rectangle. So a new scale of one view costs one tile.
- `Tile.hold(what, value)` makes a tile stale: a view calls it with each value on which fixed artists depend,
  and changes them only if it returns True. A fixed artist changed without `hold` leaves old pixels on the
  screen; an artist that changes at every move must be moving, or every redraw is slow.

Two rules follow: no fixed artist may be above a moving one, and no tile may draw outside its rectangle. Tests
make any sequence of moves and compare the picture with a new one.
"""

import struct
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeVar

import matplotlib.style
import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_rgba
from matplotlib.text import Text
from matplotlib.transforms import Affine2D

from batchsim.view.canvas.theme import LIGHT, Theme
from batchsim.view.canvas.words import Worded

AnyArtist = TypeVar("AnyArtist", bound=Artist)
PX_PER_INCH = 72  # so that matplotlib's points are CSS pixels
PRINT_DPI = 200


class Box(NamedTuple):
    """A rectangle in CSS pixels, from the top left of a picture."""

    left: float
    top: float
    width: float
    height: float

    @property
    def right(self) -> float:
        return self.left + self.width

    @property
    def bottom(self) -> float:
        return self.top + self.height

    def overlaps(self, other: "Box") -> bool:
        beside = self.right <= other.left or other.right <= self.left
        return not beside and self.top < other.bottom and other.top < self.bottom


class Canvas(FigureCanvasAgg):
    """A canvas that keeps its margins: notebooks would crop them, and places are counted from the edges."""

    def print_figure(self, *args: Any, **options: Any) -> Any:
        return super().print_figure(*args, **options | {"bbox_inches": None})


class Picture(Worded):
    """A figure without pyplot, made of tiles, that shows itself in a notebook.

    `width_px` and `height_px` are CSS pixels, as are the points of fonts and lines; each is `ratio` pixels of
    the screen. Make artists inside `with picture.styled():`, so that the user's settings of matplotlib do not
    change them.
    """

    def __init__(
        self, width_px: int, height_px: int, ratio: float = 1.0, theme: Theme = LIGHT, font_px: float = 11
    ) -> None:
        self.width_px, self.height_px, self.ratio = width_px, height_px, ratio
        self.theme, self.font_px = theme, font_px
        self.tiles: list[Tile] = []
        # Slightly more than the pixels: matplotlib truncates, and would lose the last one.
        inches = ((width_px + 1e-6) / PX_PER_INCH, (height_px + 1e-6) / PX_PER_INCH)
        with self.styled():
            super().__init__(figsize=inches, dpi=PX_PER_INCH * ratio, facecolor=theme.background)
            self.agg: Any = Canvas(self)  # matplotlib has no types for its renderer
        px = Affine2D().scale(1 / PX_PER_INCH, -1 / PX_PER_INCH).translate(0, inches[1])
        self.px_transform = px + self.dpi_scale_trans  # CSS pixels from the top left
        # The pixels of all fixed artists, with which each redraw begins.
        self._fixed_pixels = np.empty((*self._frame().shape[:2], 4), dtype=np.uint8)

    @contextmanager
    def styled(self) -> Iterator[None]:
        """Apply the theme instead of the user's settings of matplotlib."""
        with matplotlib.style.context(["default", self.theme.rc(self.font_px)]):
            yield

    def _frame(self) -> np.ndarray:
        # Agg's own buffer, without a copy: writing to it is the blitting, which matplotlib offers only for
        # windows. A new renderer, as of another size or ratio, has another buffer, so it is never stored.
        return np.asarray(self.agg.get_renderer()._renderer)

    def pixels(self) -> np.ndarray:
        """Return the picture as uint8, shape (rows, columns, 4), in a buffer that the next draw changes."""
        frame, renderer = self._frame(), self.agg.get_renderer()
        for tile in self.tiles:
            if tile.stale:
                region = tile.region
                tile.refresh()
                # Cleared here rather than by Agg, which clears the whole picture.
                frame[region] = np.multiply(to_rgba(self.theme.background), 255).round()
                tile.draw_fixed(renderer)
                self._fixed_pixels[region] = frame[region]
                tile.stale = False
        frame[:] = self._fixed_pixels
        for tile in self.tiles:
            tile.draw_moving(renderer)
        return frame

    def png(self) -> bytes:
        """Return the picture as PNG: exactly the pixels of the screen."""
        return to_png(self.pixels())

    def region(self, box: Box) -> tuple[slice, slice]:
        """Return the rows and columns of the pixels in a box."""
        edges = [round(self.ratio * edge) for edge in (box.top, box.bottom, box.left, box.right)]
        return slice(*edges[:2]), slice(*edges[2:])

    _repr_png_ = png

    def draw(self, renderer: Any) -> None:
        """Draw everything: for a file, or for a notebook in which pyplot is used, which draws all figures."""
        moving = [artist for tile in self.tiles for artist in tile.moving]
        for tile in self.tiles:
            tile.refresh()
        for artist in moving:
            artist.set_animated(False)  # matplotlib's own drawing skips animated artists
        try:
            with self.styled():
                super().draw(renderer)
        finally:
            for artist in moving:
                artist.set_animated(True)

    def savefig(self, fname: Any, **options: Any) -> None:
        """Write the picture to a file, a PNG, SVG or PDF by its ending; `dpi` is 200 by default."""
        super().savefig(fname, **{"dpi": PRINT_DPI} | options)


def to_png(pixels: np.ndarray) -> bytes:
    """Return pixels, uint8 of shape (rows, columns, at least 3), as PNG of their first three channels.

    Rows are unfiltered and lightly compressed: for drawings with flat colours, files are as small as
    Pillow's, which tries all five filters on each row, and made in a third of the time.
    """
    height, width = pixels.shape[:2]
    rows = np.zeros((height, 1 + 3 * width), dtype=np.uint8)  # each begins with its filter: 0, none
    for channel in range(3):
        rows[:, 1 + channel :: 3] = pixels[..., channel]
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)  # 8 bits a channel, RGB
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(rows.data, level=1)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in chunks
    )


class Tile:
    """A rectangle of a picture: its fixed artists, and the moving ones above them."""

    def __init__(self, picture: Picture, box: Box) -> None:
        self.picture, self.box, self.theme = picture, box, picture.theme
        self.axes: list[Axes] = []
        self.fixed: list[Artist] = []
        self.moving: list[Artist] = []
        self.stale = True
        self._held: dict[str, Any] = {}
        picture.tiles.append(self)

    @property
    def region(self) -> tuple[slice, slice]:
        return self.picture.region(self.box)

    def add_axes(self, box: Box) -> Axes:
        """Return axes with this frame. They never scale themselves: that would change fixed artists."""
        width, height = self.picture.width_px, self.picture.height_px
        begin, size = (box.left / width, 1 - box.bottom / height), (box.width / width, box.height / height)
        ax = self.picture.add_axes((*begin, *size))
        ax.set_autoscale_on(False)
        ax.set_axisbelow(True)
        ax.spines[:].set_zorder(0.6)  # below all that moves
        self.axes.append(ax)
        return ax

    def add_text(self, x: float, y: float, text: str = "", **style: Any) -> Text:
        """Return a fixed text with its left end and baseline at these CSS pixels."""
        artist = self.picture.text(x, y, text, transform=self.picture.px_transform, **style)
        self.fixed.append(artist)
        return artist

    def add(self, artist: AnyArtist) -> AnyArtist:
        """Add a fixed artist whose coordinates are CSS pixels of the picture."""
        artist.set_transform(self.picture.px_transform)
        self.picture.add_artist(artist)
        self.fixed.append(artist)
        return artist

    def remove(self, artists: Iterable[Artist]) -> None:
        for artist in artists:
            (self.moving if artist in self.moving else self.fixed).remove(artist)
            artist.remove()
        self.stale = True

    def set_moving(self, *artists: Artist) -> None:
        """Make artists moving: each redraw draws them above all fixed artists, by their zorder."""
        for artist in artists:
            artist.set_animated(True)
        self.fixed = [artist for artist in self.fixed if artist not in artists]
        self.moving = sorted([*self.moving, *artists], key=Artist.get_zorder)

    def hold(self, what: str, value: Any) -> bool:
        """Return whether a value on which fixed artists depend is new; the tile is then stale."""
        new = what not in self._held or self._held[what] != value
        self._held[what], self.stale = value, self.stale or new
        return new

    def refresh(self) -> None:
        """Prepare the fixed artists of a stale tile for drawing."""

    def draw_fixed(self, renderer: Any) -> None:
        for artist in sorted((*self.axes, *self.fixed), key=Artist.get_zorder):
            artist.draw(renderer)

    def draw_moving(self, renderer: Any) -> None:
        for artist in self.moving:
            artist.draw(renderer)
