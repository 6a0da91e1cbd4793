"""Many short texts as one artist, about twenty times as fast as matplotlib's own.

matplotlib lays out every `Text` at every draw: it parses mathtext, measures, and asks the font for each
glyph. A `Lettering` is a collection of glyph outlines instead. Outlines and advances are cached for the
process, one entry for each letter and weight, at a size of 1 px; the collection's transform scales them.
There is no kerning.
"""

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from matplotlib import font_manager
from matplotlib.collections import PathCollection
from matplotlib.font_manager import FontProperties
from matplotlib.path import Path
from matplotlib.textpath import TextPath
from matplotlib.transforms import Affine2D

from batchsim.view.canvas.picture import PX_PER_INCH, Picture

HALO_PX = 2.5  # the width of the outlines
STARTS = {"left": 0.0, "center": 0.5, "right": 1.0}


class Label(NamedTuple):
    """A line of text: its baseline is at `y`; its left end, center or right end is at `x`, in CSS pixels."""

    text: str
    x: float
    y: float
    align: str = "left"


@lru_cache(maxsize=2048)
def glyph(letter: str, weight: str = "normal") -> tuple[Path, float]:
    """Return a letter's outline at a font size of 1 px, and the distance to the next letter."""
    font = FontProperties(family="DejaVu Sans", weight=weight)
    face = font_manager.get_font(font_manager.findfont(font))
    face.set_size(100, 72)  # 100 points at 72 dpi: 100 px, large enough that hinting does not matter
    advance = face.load_char(ord(letter)).linearHoriAdvance / 65536 / 100  # a 16.16 fixed-point number
    # A space has no outline, and TextPath raises for it.
    outline = Path(np.empty((0, 2))) if letter.isspace() else TextPath((0, 0), letter, size=1, prop=font)
    return outline, advance


def width_em(text: str, weight: str = "normal") -> float:
    """Return the width of a text as a multiple of its size.

    >>> round(width_em("0123"), 3)
    2.545
    """
    return sum(glyph(letter, weight)[1] for letter in text)


def fitted(text: str, room_em: float) -> str:
    """Return a text, cut with an ellipsis where it is wider than its room.

    >>> fitted("max batch size", 20), fitted("max batch size", 6)
    ('max batch size', 'max batc…')
    """
    if width_em(text) <= room_em:
        return text
    while text and width_em(f"{text}…") > room_em:
        text = text[:-1]
    return f"{text}…"


class Lettering(PathCollection):
    """Labels of one size, weight and colour, drawn at once from cached outlines; `halo` is a colour."""

    def __init__(
        self, picture: Picture, font_px: float, color: str, weight: str = "normal", zorder: float = 5,
        halo: str = "",
    ) -> None:  # fmt: skip
        place = picture.px_transform
        super().__init__([], facecolor=color, linewidth=0, zorder=zorder, offset_transform=place)
        self.picture, self.weight, self.halo = picture, weight, halo
        self.set_size(font_px)
        self.set_snap(False)  # snapping to whole pixels would erase the dot of an i
        picture.add_artist(self)

    def set_size(self, font_px: float) -> None:
        self.set_transform(Affine2D().scale(font_px / PX_PER_INCH) + self.picture.dpi_scale_trans)
        self.font_px = font_px
        self.labels: tuple[Label, ...] = ()  # their places depend on the size

    def draw(self, renderer: Any) -> None:
        if not self.labels:
            return
        if self.halo:  # the letters' wide outlines first, then the letters
            self.set(edgecolor=self.halo, linewidth=HALO_PX)
            super().draw(renderer)
            self.set_linewidth(0)
        super().draw(renderer)

    def show(self, labels: Iterable[Label]) -> None:
        labels = tuple(labels)
        if labels == self.labels:
            return
        self.labels = labels
        paths: list[Path] = []
        offsets: list[tuple[float, float]] = []
        for label in self.labels:
            x = label.x - STARTS[label.align] * self.font_px * width_em(label.text, self.weight)
            for letter in label.text:
                path, advance = glyph(letter, self.weight)
                if len(path):
                    paths.append(path)
                    offsets.append((x, label.y))
                x += self.font_px * advance
        self.set_paths(paths)
        self.set_offsets(np.array(offsets).reshape(-1, 2))


def apart(places: Sequence[float], least: float, low: float, high: float) -> list[float]:
    """Return places moved as little as possible, in the same order, each at least `least` from the next.

    It separates the labels of lines that end near each other, and keeps them from `low` to `high` if they
    fit.

    >>> apart([10, 12, 40], 8, 0, 44)
    [7.0, 15.0, 40.0]
    """
    order = sorted(range(len(places)), key=lambda i: places[i])
    # Labels that would overlap form a group, centred on the mean of its members' places; that is where the
    # sum of their squared moves is least. A group that reaches the one before it merges with it.
    groups: list[tuple[float, int]] = []  # the middle, and the number of labels
    for i in order:
        groups.append((places[i], 1))
        while len(groups) > 1:
            (one, some), (two, more) = groups[-2:]
            if two - more * least / 2 >= one + some * least / 2:
                break
            groups[-2:] = [((one * some + two * more) / (some + more), some + more)]
    moved, floor = [0.0] * len(places), low
    flat: list[float] = []
    for middle, count in groups:
        flat += [middle + (place - (count - 1) / 2) * least for place in range(count)]
    # Up from the lower limit, then down from the upper one, which wins where there is too little room.
    for rank, place in enumerate(flat):
        flat[rank] = floor = max(place, floor + (least if rank else 0))
    ceiling = high
    for rank in range(len(flat) - 1, -1, -1):
        flat[rank] = ceiling = min(flat[rank], ceiling - (least if rank < len(flat) - 1 else 0))
    for rank, i in enumerate(order):
        moved[i] = float(flat[rank])
    return moved
