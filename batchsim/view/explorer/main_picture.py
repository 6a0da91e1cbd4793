"""The picture of the session's data: it is drawn at every change, and its heat map is a control."""

import io
import math
from typing import Any

from batchsim.scenario import SizeOrWait
from batchsim.study.surface import Surface
from batchsim.view.explorer.controls_table import CONTROLS
from batchsim.view.explorer.kinds import values_of
from batchsim.view.explorer.screen import Screen
from batchsim.view.explorer.session import UNSEEN_PX, Session
from batchsim.view.explorer.state import State
from batchsim.view.explorer.words import describe
from batchsim.view.run.live import LivePicture

ARROWS = {"left": (0, -1), "right": (0, 1), "up": (1, 0), "down": (-1, 0)}  # rows, columns


class MainPicture(Screen):
    """The session's data in six views; a click or an arrow key on the heat map moves to another setting."""

    def __init__(self, session: Session) -> None:
        super().__init__(clickable=True)
        self.add_class("batchsim-main")
        self.session = session
        self.drawing = session.style.drawing
        self.picture = LivePicture(*self.drawing)
        self.observe(self._resized, names=["width_px", "ratio", "dark"])
        session.subscribe("change", self.draw)

    def _resized(self, _: Any) -> None:
        width_px = self.width_px or UNSEEN_PX
        self.session.restyle(width_px=width_px, ratio=self.ratio, page_is_dark=self.dark)

    def draw(self) -> None:
        """Show the session's data, or its cover."""
        session = self.session
        self.cover = session.cover
        if session.data is None or not session.visible:
            return
        if session.style.drawing != self.drawing:
            self.drawing = session.style.drawing
            self.picture = LivePicture(*self.drawing)
        self.picture.show(session.data)
        self.show(self.picture.png(), describe(session.data))

    def saved(self, kind: str) -> bytes:
        """Return the picture as a file of a kind, "png" or "svg"."""
        file = io.BytesIO()
        self.picture.savefig(file, format=kind)
        return file.getvalue()

    # The heat map is a control.

    def clicked(self, across: float, down: float) -> None:
        """Move to the setting of the heat map that was clicked."""
        with self.session.lock:
            cell = self.picture.cell_at(across, down)
        if cell is not None and self.session.visible:
            self._go(*cell)

    def pressed(self, arrow: str) -> None:
        """Move to the neighbouring setting of the heat map."""
        session = self.session
        if session.data is None or not session.visible or arrow not in ARROWS:
            return
        surface, values = session.data.surface, shown_values(session.state)
        up, right = ARROWS[arrow]
        row = _nearest(surface.y_values, values[surface.y]) + up
        column = _nearest(surface.x_values, values[surface.x]) + right
        if 0 <= row < len(surface.y_values) and 0 <= column < len(surface.x_values):
            self._go(row, column)

    def _go(self, row: int, column: int) -> None:
        session = self.session
        assert session.data is not None
        surface = session.data.surface
        if surface.refused[row, column]:
            session.say("This setting makes no sense here: its cell is crossed out.", alert=True)
            return
        with session.reporting():
            session.move_to(session.state.replace(**cell_values(surface, row, column)))


def shown_values(state: State) -> dict[str, Any]:
    """Return the values that place a state on a heat map: full batches only is an infinite wait."""
    return vars(state) | ({"max_wait_ms": math.inf} if state.rule == "full_only" else {})


def cell_values(surface: Surface, row: int, column: int) -> dict[str, Any]:
    """Return what the controls say of a cell: its two values, and the map's rule.

    The state's rule may be another one, whose run was refused: the map is that of the last run.
    """
    cell = {surface.x: surface.x_values[column], surface.y: surface.y_values[row]}
    values: dict[str, Any] = {n: int(v) if CONTROLS[n].kind == "whole" else v for n, v in cell.items()}
    rule = surface.scenario.rule
    if isinstance(rule, SizeOrWait):  # whose last row has a name of its own
        return values_of("rule", SizeOrWait(**values)) or {}
    return values | {"rule": (values_of("rule", rule) or {})["rule"]}


def _nearest(values: tuple[float, ...], value: float) -> int:
    """Return the index of the nearest value; infinity is nearest to itself."""
    return min(range(len(values)), key=lambda i: abs(min(values[i], 1e15) - min(value, 1e15)))
