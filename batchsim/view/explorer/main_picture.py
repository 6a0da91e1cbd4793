"""The picture of the session's data: it is drawn at every change, and its heat map is a control."""

import math

from batchsim.view.explorer.kinds import values_of
from batchsim.view.explorer.screen import Screen
from batchsim.view.explorer.session import UNSEEN_PX, Session, Style
from batchsim.view.run.live import LivePicture

ARROWS = {"left": (0, -1), "right": (0, 1), "up": (1, 0), "down": (-1, 0)}  # rows, columns


class MainPicture(Screen):
    """The session's data in six views; a click or an arrow key on the heat map moves to another setting."""

    def __init__(self, session: Session) -> None:
        super().__init__(clickable=True)
        self.add_class("batchsim-main")
        self.session = session
        self.style = session.style
        self.picture = LivePicture(*self.style)
        self.observe(lambda _: self.restyle(), names=["width_px", "ratio", "dark"])
        session.subscribe("change", self.draw)

    def restyle(self, size: str | None = None) -> None:
        """Draw for the page's present width and colours, and the reader's choices."""
        session, page = self.session, "dark" if self.dark else "light"
        theme = page if session.theme == "auto" else session.theme
        session.restyle(Style(self.width_px or UNSEEN_PX, self.ratio, theme, size or session.style.size))

    def draw(self) -> None:
        """Show the session's data, or its cover."""
        session = self.session
        self.cover = session.cover
        if session.data is None or session.cover:
            return
        if session.style != self.style:
            self.style = session.style
            self.picture = LivePicture(*self.style)
        self.picture.show(session.data)
        self.show(self.picture.png(), self.words())

    def words(self) -> str:
        """Return what the picture shows as sentences."""
        return "" if self.session.data is None else self.picture.describe(self.session.data)

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
        surface, values = session.data.surface, dict(vars(session.state))
        if session.state.rule == "full_only":
            values["max_wait_ms"] = math.inf
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
        # The map's rule, not the state's, which may be another whose run was refused.
        rule = surface.scenario.rule.at(surface.x_values[column], surface.y_values[row])
        with session.reporting():
            session.move_to(session.state.replace(**(values_of("rule", rule) or {})))


def _nearest(values: tuple[float, ...], value: float) -> int:
    """Return the index of the nearest value; infinity is nearest to itself."""
    return min(range(len(values)), key=lambda i: abs(min(values[i], 1e15) - min(value, 1e15)))
