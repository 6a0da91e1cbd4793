"""Many short texts as one artist, some twenty times as fast as matplotlib's own."""

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from matplotlib import font_manager
from matplotlib.collections import PathCollection
from matplotlib.font_manager import FontProperties
from matplotlib.path import Path
from matplotlib.textpath import TextPath
from matplotlib.transforms import Affine2D

from batchsim.view.canvas.picture import PX_PER_INCH, Picture

STARTS = {"left": 0.0, "center": 0.5, "right": 1.0}


class Label(NamedTuple):
    """One line of text: its baseline is at `y`, its left end, center or right end at `x`, in CSS pixels."""

    text: str
    x: float
    y: float
    align: str = "left"


@lru_cache(maxsize=2048)
def glyph(letter: str, weight: str = "normal") -> tuple[Path, float]:
    """Return a letter of the usual font, 1 px high: its outline, and the distance to the next letter."""
    font = FontProperties(family="DejaVu Sans", weight=weight)
    face = font_manager.get_font(font_manager.findfont(font))
    face.set_size(100, 72)  # points at 72 an inch: pixels
    advance = face.load_char(ord(letter)).linearHoriAdvance / 65536 / 100
    # A space has no outline, and TextPath fails on it.
    outline = Path(np.empty((0, 2))) if letter.isspace() else TextPath((0, 0), letter, size=1, prop=font)
    return outline, advance


def width_em(text: str, weight: str = "normal") -> float:
    """Return the width of a text as a multiple of its size.

    >>> round(width_em("0123"), 3)
    2.545
    """
    return sum(glyph(letter, weight)[1] for letter in text)


class Lettering(PathCollection):
    """Labels of one size, weight and colour, made of cached outlines and drawn all at once."""

    def __init__(
        self, picture: Picture, font_px: float, color: str, weight: str = "normal", zorder: float = 5
    ) -> None:
        place = picture.px_transform
        super().__init__([], facecolor=color, linewidth=0, zorder=zorder, offset_transform=place)
        self.picture, self.weight = picture, weight
        self.set_size(font_px)
        self.set_snap(False)  # snapped to whole pixels, an i would lose its dot
        self.labels: tuple[Label, ...] = ()
        picture.add_artist(self)

    def set_size(self, font_px: float) -> None:
        self.set_transform(Affine2D().scale(font_px / PX_PER_INCH) + self.picture.dpi_scale_trans)
        self.font_px = font_px

    def show(self, labels: Iterable[Label]) -> None:
        self.labels = tuple(labels)
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
    """Return places moved as little as order and room allow, each at least `least` from the next.

    For the labels of lines that end near each other; within low and high, as far as there is room.

    >>> apart([10, 12, 40], 8, 0, 44)
    [7.0, 15.0, 40.0]
    """
    order = sorted(range(len(places)), key=lambda i: places[i])
    groups: list[list[float]] = []  # the middle of a group of labels that touch, and how many it has
    for i in order:
        groups.append([places[i], 1])
        while len(groups) > 1 and _begin(groups[-1], least) < _end(groups[-2], least):
            (one, some), (two, more) = groups[-2:]
            groups[-2:] = [[(one * some + two * more) / (some + more), some + more]]
    moved, floor = [0.0] * len(places), low
    flat: list[float] = []
    for middle, count in groups:
        flat += [middle + (place - (count - 1) / 2) * least for place in range(int(count))]
    for rank, place in enumerate(flat):
        flat[rank] = floor = max(place, floor + (least if rank else 0))
    ceiling = high
    for rank in range(len(flat) - 1, -1, -1):
        flat[rank] = ceiling = min(flat[rank], ceiling - (least if rank < len(flat) - 1 else 0))
    for rank, i in enumerate(order):
        moved[i] = float(flat[rank])
    return moved


def _begin(group: list[float], least: float) -> float:
    return group[0] - group[1] * least / 2


def _end(group: list[float], least: float) -> float:
    return group[0] + group[1] * least / 2
