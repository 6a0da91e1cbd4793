"""What stands round axes: grid, ticks, numbers and labels, as few artists that are drawn fast.

matplotlib's own axis draws each tick as five artists, some 15 ms for a pair of axes. Here its locators and
formatters still say where the ticks are and what they are called, but all of one kind is one artist.
"""

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection

from batchsim.view.canvas.lettering import Lettering, Words
from batchsim.view.canvas.picture import Box, Tile

SMALL = 0.9  # of the letters of the picture: numbers, and the rows of names
TICK, PAD = 0.25, 0.3  # in ems


class Marks:
    """The grid, ticks, numbers and labels of axes; `refresh` puts them where the axes' scales say.

    `grid` are the directions with lines across; `numbers` those with numbers and ticks. `labels` are the x
    of the vertical axis' label and the y of the other one's, in the picture.
    """

    def __init__(
        self,
        tile: Tile,
        ax: Axes,
        place: Box,
        labels: tuple[float, float],
        grid: str = "y",
        numbers: str = "xy",
        ticks: bool = True,
        right: bool = False,
    ) -> None:
        picture, theme = tile.picture, tile.theme
        self.ax, self.place, self.grid, self.numbers, self.right = ax, place, grid, numbers, right
        self.em, self.length = picture.font_px, TICK * picture.font_px if ticks else 0.0
        self.label_y = labels[1]
        ax.xaxis.set_visible(False)
        ax.yaxis.set_visible(False)
        self.lines, self.ticks = (
            tile.add(LineCollection([], colors=colour, linewidths=width, zorder=zorder))
            # Below the axes, which have no ground of their own.
            for colour, width, zorder in ((theme.faint, 1.0, -2), (theme.soft, 0.8, -1))
        )
        self.tick_labels = Lettering(picture, SMALL * self.em, theme.soft)
        self.across = Lettering(picture, SMALL * self.em, theme.ink)
        tile.fixed += [self.tick_labels, self.across]
        look: dict[str, Any] = {"rotation": 90, "ha": "right", "va": "center", "rotation_mode": "default"}
        middle = place.top + place.height / 2
        self.up = tile.add_text(labels[0], middle, "", fontsize=SMALL * self.em, **look)

    def refresh(self) -> None:
        """Put the marks where the scales are now."""
        place, em, length = self.place, self.em, self.length
        lines: list[list[tuple[float, float]]] = []
        ticks: list[list[tuple[float, float]]] = []
        words: list[Words] = []
        side = place.right if self.right else place.left
        outward = 1 if self.right else -1
        for part, text in self._ticks("x"):
            x = place.left + part * place.width
            if "x" in self.grid:
                lines.append([(x, place.top), (x, place.bottom)])
            ticks.append([(x, place.bottom), (x, place.bottom + length)])
            if "x" in self.numbers:
                down = place.bottom + length + PAD * em + 0.76 * SMALL * em
                words.append(Words(text, x, down, "center"))
        for part, text in self._ticks("y"):
            y = place.bottom - part * place.height
            if "y" in self.grid:
                lines.append([(place.left, y), (place.right, y)])
            ticks.append([(side, y), (side + outward * length, y)])
            if "y" in self.numbers:
                beside = side + outward * (length + PAD * em)
                words.append(Words(text, beside, y + 0.36 * SMALL * em, "left" if self.right else "right"))
        self.lines.set_segments(lines)
        self.ticks.set_segments(ticks if length else [])
        self.tick_labels.show(words)
        label = self.ax.xaxis.get_label_text()
        self.across.show(
            [Words(label, place.left + place.width / 2, self.label_y, "center")] if label else []
        )
        self.up.set_text(self.ax.yaxis.get_label_text())

    def _ticks(self, name: str) -> list[tuple[float, str]]:
        """Return where the ticks of an axis are, as parts of its length, and what they are called."""
        axis = self.ax.xaxis if name == "x" else self.ax.yaxis
        values = np.asarray(axis.get_majorticklocs(), dtype=float)
        texts = axis.get_major_formatter().format_ticks(values.tolist())
        begin, end = self.ax.get_xlim() if name == "x" else self.ax.get_ylim()
        low, high, *inner = axis.get_transform().transform(np.array([begin, end, *values]))
        parts = (np.array(inner) - low) / (high - low)
        return [(part, text) for part, text in zip(parts, texts, strict=True) if -1e-6 <= part <= 1 + 1e-6]
