"""What stands around axes: grid, ticks, numbers and labels, and the limits of their scales.

matplotlib's own axis draws each tick as five artists, about 15 ms for a pair of axes. `Marks` hides that axis
and draws each kind of mark as one artist; matplotlib's locators and formatters still choose ticks and texts.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.ticker import FixedLocator

from batchsim.view.canvas.lettering import Label, Lettering, fitted, width_em
from batchsim.view.canvas.picture import Box, Tile

TICK, PAD = 0.25, 0.3  # in ems
NAME = 0.7  # the baseline of the horizontal axis' label above the edge of the tile, in ems
CAP, HALF_CAP = 0.76, 0.36  # height of a capital letter, and the shift that centres a line of text, in ems


class Marks:
    """The grid, ticks, numbers and labels of axes; `refresh` puts them where the axes' scales say.

    `grid` and `numbers` name the directions, "x", "y" or both, that have grid lines and numbers. The
    horizontal axis' label is at the lower edge of the tile. The vertical axis' label is above it, so it needs
    no turning, and begins at `left_px`.
    """

    def __init__(
        self, tile: Tile, ax: Axes, box: Box, left_px: float, grid: str = "y",
        numbers: str = "xy", ticks: bool = True, right: bool = False,
    ) -> None:  # fmt: skip
        picture, theme, em = tile.picture, tile.theme, tile.picture.font_px
        self.ax, self.box, self.grid, self.numbers, self.right = ax, box, grid, numbers, right
        self.em, self.tick_px = em, TICK * em if ticks else 0.0
        self.tile_box, self.left_px = tile.box, left_px
        ax.xaxis.set_visible(False)  # hidden, they still hold the locators, formatters and labels
        ax.yaxis.set_visible(False)
        # Below the axes (a negative zorder): their background is transparent, their data are above the grid.
        self.lines = tile.add(LineCollection([], colors=theme.faint, linewidths=1.0, zorder=-2))
        self.ticks = tile.add(LineCollection([], colors=theme.soft, linewidths=0.8, zorder=-1))
        self.tick_labels = Lettering(picture, em, theme.soft)
        self.names = Lettering(picture, em, theme.ink)
        tile.fixed += [self.tick_labels, self.names]

    def refresh(self) -> None:
        box, em, tick = self.box, self.em, self.tick_px
        lines: list[list[tuple[float, float]]] = []
        ticks: list[list[tuple[float, float]]] = []
        labels: list[Label] = []
        side, outward, align = (box.right, 1, "left") if self.right else (box.left, -1, "right")
        for fraction, text in self._ticks(self.ax.xaxis):
            x = box.left + fraction * box.width
            lines += [[(x, box.top), (x, box.bottom)]] * ("x" in self.grid)
            ticks.append([(x, box.bottom), (x, box.bottom + tick)])
            if "x" in self.numbers:
                labels.append(Label(text, x, box.bottom + tick + PAD * em + CAP * em, "center"))
        for fraction, text in self._ticks(self.ax.yaxis):
            y = box.bottom - fraction * box.height
            lines += [[(box.left, y), (box.right, y)]] * ("y" in self.grid)
            ticks.append([(side, y), (side + outward * tick, y)])
            if "y" in self.numbers:
                labels.append(Label(text, side + outward * (tick + PAD * em), y + HALF_CAP * em, align))
        self.lines.set_segments(lines)
        self.ticks.set_segments(ticks if tick else [])
        self.tick_labels.show(labels)
        across, up = self.ax.xaxis.get_label_text(), self.ax.yaxis.get_label_text()
        tile = self.tile_box
        across = fitted(across, tile.width / em - 0.6)
        half = (width_em(across) / 2 + 0.3) * em
        middle = min(max(box.left + box.width / 2, tile.left + half), tile.right - half)
        names = [Label(across, middle, tile.bottom - NAME * em, "center")] * bool(across)
        up = fitted(up, (tile.right - self.left_px) / em - 0.3)
        names += [Label(up, self.left_px, box.top - 0.6 * em)] * bool(up)
        self.names.show(names)

    def _ticks(self, axis: Any) -> list[tuple[float, str]]:
        """Return each tick of an axis: its place as a fraction of the axis' length, and its text."""
        # The axis' transform, such as a logarithm, maps limits and ticks to a scale on which fractions are
        # right.
        values = np.asarray(axis.get_majorticklocs(), dtype=float)
        texts = axis.get_major_formatter().format_ticks(values.tolist())
        low, high, *inner = axis.get_transform().transform(np.array([*axis.get_view_interval(), *values]))
        places = zip((np.array(inner) - low) / (high - low), texts, strict=True)
        return [place for place in places if -1e-6 <= place[0] <= 1 + 1e-6]


STEPS = (1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10, 12)
COARSE, FINE = (1, 2, 5), (1, 1.5, 2, 3, 5, 7)  # steps of a logarithmic scale


def nice(value: float) -> float:
    """Return the next round number.

    >>> nice(17), nice(0.26)
    (20.0, 0.3)
    """
    if not 1e-300 < value < math.inf:  # for less, the power of ten would be 0
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    step = next(step for step in STEPS if value <= step * power * (1 + 1e-12))
    return float(f"{step * power:.6g}")


def nice_span(low: float, high: float, digits: Sequence[float] = COARSE) -> tuple[float, float]:
    """Return the steps below and above, such as 1, 2 or 5 times a power of ten, for a logarithmic scale.

    >>> nice_span(7.1, 180), nice_span(3, 3)
    ((5.0, 200.0), (2.0, 5.0))
    """
    if not 0 < low <= high < math.inf:
        return 1.0, 100.0
    powers = range(math.floor(math.log10(low)) - 1, math.floor(math.log10(high)) + 3)
    steps = [float(f"{digit}e{power}") for power in powers for digit in digits]
    first = max(i for i, step in enumerate(steps) if step <= low * (1 + 1e-12))
    last = min(i for i, step in enumerate(steps) if step >= high * (1 - 1e-12))
    return steps[first], steps[max(last, first + 1)]


def log_ticks(axis: Any, low: float, high: float, most: int = 7, finest: Sequence[float] = COARSE) -> None:
    """Mark a logarithmic axis at the finest steps that make at most `most` ticks."""
    powers = range(math.floor(math.log10(low) + 1e-9), math.ceil(math.log10(high) - 1e-9) + 1)
    for digits in (finest, COARSE, (1, 3), (1,)):
        steps = (float(f"{digit}e{power}") for power in powers for digit in digits)
        ticks = [step for step in steps if low * (1 - 1e-9) <= step <= high * (1 + 1e-9)]
        if len(ticks) <= most:
            break
    while len(ticks) > most:
        ticks = ticks[::2]
    axis.set_major_locator(FixedLocator(ticks))
    axis.set_minor_locator(FixedLocator([]))
