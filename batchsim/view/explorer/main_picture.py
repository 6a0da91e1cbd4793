"""The picture of the session's data: it is drawn at every change, and its heat map is a control."""

import math
from pathlib import Path
from typing import Any

import anywidget
import traitlets

from batchsim.view.canvas.picture import Box
from batchsim.view.explorer.kinds import values_of
from batchsim.view.explorer.session import Session, Style
from batchsim.view.run.live import LivePicture
from batchsim.view.run.view import Spot

ARROWS = {"left": (0, -1), "right": (0, 1), "up": (1, 0), "down": (-1, 0)}  # rows, columns


class Screen(anywidget.AnyWidget):
    """An image that is replaced without a flicker, with a text alternative.

    `frame` is a PNG; `show` sends one. `width_px`, `ratio` (device pixels per CSS pixel) and `dark`
    (the page's background) come from the page, 0 before it is seen. `cover` hides the picture behind a text.
    """

    _esm = Path(__file__).with_name("screen.js")
    _css = Path(__file__).with_name("screen.css")
    frame = traitlets.Bytes().tag(sync=True)
    number = traitlets.Int(0).tag(sync=True)
    alt = traitlets.Unicode().tag(sync=True)
    cover = traitlets.Unicode().tag(sync=True)
    clickable = traitlets.Bool(False).tag(sync=True)
    width_px = traitlets.Int(0).tag(sync=True)
    ratio = traitlets.Float(1.0).tag(sync=True)
    dark = traitlets.Bool(False).tag(sync=True)

    def show(self, frame: bytes, alt: str) -> None:
        with self.hold_sync():
            self.frame, self.alt, self.number = frame, alt, self.number + 1

    def patch(self, png: bytes, box: Box, of: tuple[float, float]) -> None:
        """Lay a PNG over a box of the picture, whose width and height are `of`."""
        width, height = of
        place = [box.left / width, box.top / height, box.width / width, box.height / height]
        self.send({"patch": place, "number": self.number}, buffers=[png])

    def download(self, name: str, media_type: str, content: bytes) -> None:
        """Let the reader's browser keep a file."""
        self.send({"download": name, "type": media_type}, buffers=[content])


class MainPicture(Screen):
    """The session's data in six views; a click or an arrow key on the heat map moves to another setting."""

    def __init__(self, session: Session) -> None:
        super().__init__(clickable=True)
        self.add_class("batchsim-main")
        self.session = session
        self.style = session.style
        self.picture = LivePicture(*self.style)
        self.on_msg(self._receive)
        self.observe(lambda _: self.restyle(), names=["width_px", "ratio", "dark"])
        session.subscribe("change", self.draw)

    def restyle(self, size: str | None = None) -> None:
        """Draw for the page's present width and colours, and the reader's choices."""
        session, page = self.session, "dark" if self.dark else "light"
        theme = page if session.theme == "auto" else session.theme
        style = session.style._replace(ratio=self.ratio, theme=theme, size=size or session.style.size)
        session.restyle(style._replace(width_px=self.width_px or Style().width_px))

    def draw(self) -> None:
        session = self.session
        self.cover = session.cover
        if session.data is None or session.cover:
            return
        if session.style != self.style:
            self.style = session.style
            self.picture = LivePicture(*self.style)
        self.picture.show(session.data)
        self.show(self.picture.png(), self.picture.describe(session.data))

    # The heat map is a control.

    def _receive(self, _: Any, content: dict[str, Any], __: Any) -> None:
        """Respond to an arrow key, or to a click: where it was, as fractions of the width and the height."""
        if "key" in content:
            self._press(content["key"])
        elif "click" in content:
            with self.session.lock:
                spot = self.picture.at(*content["click"])
            if spot is not None and self.session.visible:
                self._choose(spot)

    def _choose(self, spot: Spot) -> None:
        if spot.refused:
            self.session.say(spot.refused, alert=True)
        elif spot.change is not None:
            values = dict(spot.change)
            if "rule" in values:
                values = values_of("rule", values["rule"]) or {}
            with self.session.reporting():
                self.session.move_to(self.session.state.replace(**values))
        elif spot.view != self.session.style.large:
            self.session.restyle(self.session.style._replace(large=spot.view))

    def _press(self, arrow: str) -> None:
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
            return session.say("This setting makes no sense here: its cell is crossed out.", alert=True)
        # The map's rule, not the state's, which may be another whose run was refused.
        rule = surface.scenario.rule.at(surface.x_values[column], surface.y_values[row])
        with session.reporting():
            session.move_to(session.state.replace(**(values_of("rule", rule) or {})))


def _nearest(values: tuple[float, ...], value: float) -> int:
    """Return the index of the nearest value; infinity is nearest to itself."""
    return min(range(len(values)), key=lambda i: abs(min(values[i], 1e15) - min(value, 1e15)))
