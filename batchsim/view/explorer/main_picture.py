"""The picture of the session's data: drawn at every change, and a control itself."""

import math
from pathlib import Path
from typing import Any

import anywidget
import traitlets

from batchsim.scenario import Rule
from batchsim.view.explorer import presets
from batchsim.view.explorer.options import full_only
from batchsim.view.explorer.session import Session
from batchsim.view.pictures.headline import as_html
from batchsim.view.pictures.live import LEAST_PX, MOST_PX, LivePicture
from batchsim.view.pictures.view import Spot
from batchsim.view.scripts import widget

ARROWS = {"left": (0, -1), "right": (0, 1), "up": (1, 0), "down": (-1, 0)}  # rows, columns
MOST_PIXELS = 2**24  # that a page may ask for: a 4K screen has half as many
STORED_PX = 1000, 640  # the picture that a notebook keeps


class MainPicture(anywidget.AnyWidget):
    """The session's data in six views, drawn once somebody looks: `appear`.

    A click enlarges a small view; on the heat map or the load curve it moves to another setting, like the
    arrow keys on the map. Under a cover, the picture stays as it was.

    `frame` is an image with the text alternative `alt`, and `numbers` HTML above it. `width_px`, `height_px`,
    `alone` (there is room for one view only), `ratio` (device pixels per CSS pixel) and `dark` (the page's
    background) come from the page, and are 0 until it shows the image. `cover` is a text over the picture.
    `more`: all controls and views are there, else three of each; the page remembers it.
    `stale` is a text over a picture of another setting, with the seconds so far while it is `busy`: the page
    dims all that belongs to it.
    """

    _esm = widget(Path(__file__).with_name("screen.js"))
    _css = Path(__file__).with_name("screen.css").read_text("utf-8")
    frame = traitlets.Bytes().tag(sync=True)
    number = traitlets.Int(0).tag(sync=True)
    alt = traitlets.Unicode().tag(sync=True)
    numbers = traitlets.Unicode().tag(sync=True)
    cover = traitlets.Unicode().tag(sync=True)
    stale = traitlets.Unicode().tag(sync=True)
    busy = traitlets.Bool(False).tag(sync=True)
    width_px = traitlets.Int(0).tag(sync=True)
    height_px = traitlets.Int(0).tag(sync=True)
    alone = traitlets.Bool(False).tag(sync=True)
    more = traitlets.Bool(False).tag(sync=True)
    ratio = traitlets.Float(1.0).tag(sync=True)
    dark = traitlets.Bool(False).tag(sync=True)

    def __init__(self, session: Session) -> None:
        super().__init__(_dom_classes=["batchsim-main"])
        self.session = session
        self.style = session.style
        self.picture = LivePicture(*self.style)
        self.has_appeared = False  # else there are words alone, as a picture takes longer than most runs
        self.on_msg(self._receive)
        of_page = ["width_px", "height_px", "alone", "ratio", "dark", "more"]
        self.observe(lambda _: self.restyle(), of_page)
        session.subscribe("change", self.draw)
        session.subscribe("release", self._release)
        session.subscribe("wait", self._wait)

    def show(self, frame: bytes, alt: str, numbers: str = "") -> None:
        with self.hold_sync():
            self.frame, self.alt, self.numbers, self.number = frame, alt, numbers, self.number + 1

    def download(self, name: str, media_type: str, content: bytes) -> None:
        """Let the reader's browser keep a file."""
        self.send({"download": name, "type": media_type}, buffers=[content])

    def restyle(self, size: str | None = None) -> None:
        """Draw for the page's present room and colours, and the reader's choices."""
        session, page = self.session, "dark" if self.dark else "light"
        theme = page if session.theme == "auto" else session.theme
        style = session.style._replace(theme=theme, size=size or session.style.size)
        if self.width_px and self.height_px:
            width_px, height_px = (min(max(px, LEAST_PX), MOST_PX) for px in (self.width_px, self.height_px))
            ratio = min(max(0.5, self.ratio), math.sqrt(MOST_PIXELS / (width_px * height_px)))
            style = style._replace(width_px=width_px, height_px=height_px, ratio=ratio, alone=self.alone)
            style = style._replace(few=not self.more)
        session.restyle(style)
        if self.width_px and self.height_px:
            self.appear()
            session.open_page()

    def appear(self) -> None:
        """Draw from now on, as a notebook or a page shows the explorer."""
        if not self.has_appeared:
            self.has_appeared = True
            with self.session.lock, self.session.reporting():
                self.draw()

    def draw(self) -> None:
        session, restyled = self.session, self.session.style != self.style
        self.cover = session.cover
        if session.visible:
            session.seen = session.data
        if session.seen is None or (session.cover and not restyled):
            return
        if restyled:
            self.style = session.style
            self.picture = LivePicture(*self.style)
        words = self.alt if session.cover else self.picture.describe(session.seen)
        numbers = as_html(session.seen)
        if self.has_appeared:
            self.picture.show(session.seen)
            self.show(self.picture.frame(), words, numbers)
        else:
            self.alt, self.numbers = words, numbers

    def still(self) -> bytes | None:
        """Return the present picture as a PNG for a stored notebook; None if it is covered."""
        session, (width_px, height_px) = self.session, STORED_PX
        if not session.visible or session.data is None:
            return None
        return self.fresh(width_px=width_px, height_px=height_px, ratio=1.0, alone=False, few=False).png()

    def fresh(self, **style: Any) -> LivePicture:
        """Return a picture of the present data with its numbers as a line, in the page's style or another."""
        assert self.session.data is not None
        picture = LivePicture(*self.session.style._replace(**style))
        picture.show(self.session.data, line=True)
        return picture

    def _release(self) -> None:
        if self.has_appeared and self.session.visible and self.picture.release():
            self.show(self.picture.frame(), self.alt, self.numbers)

    def _wait(self) -> None:
        with self.hold_sync():
            self.stale, self.busy = self.session.wait.text, self.session.wait.busy

    # Messages from the page.

    def _receive(self, _: Any, content: dict[str, Any], __: Any) -> None:
        """Respond to a gesture, an arrow key, or the pointer at fractions of the width and the height."""
        match content:
            case {"press": _}:
                self.session.press()
            case {"hold": _}:
                self.session.hold()
            case {"release": _}:
                self.session.release()
            case {"key": arrow}:
                self._press(arrow)
            case {"hover": place}:
                self._tell(*place)
            case {"click": place}:
                if (spot := self._spot(*place)) is not None:
                    self._choose(spot)

    def _spot(self, across: float, down: float) -> Spot | None:
        with self.session.lock, self.session.reporting():
            return self.picture.at(across, down) if self.session.visible else None
        return None

    def _tell(self, across: float, down: float) -> None:
        """Describe the place under the pointer, and whether a click acts there."""
        spot = self._spot(across, down)
        acts = spot is not None and not spot.refused and (spot.change is not None or self._enlarges(spot))
        self.send({"tip": spot.text if spot else "", "act": acts})

    def _enlarges(self, spot: Spot) -> bool:
        return spot.view != self.session.style.large

    def _choose(self, spot: Spot) -> None:
        if spot.refused:
            self.session.say(spot.refused, alert=True)
        elif spot.change is not None:
            values = dict(spot.change)
            with self.session.reporting():
                self._move_to(self._values_of(values["rule"]) if "rule" in values else values)
        elif self._enlarges(spot):
            self.session.enlarge(spot.view)

    def _press(self, arrow: str) -> None:
        session = self.session
        if session.data is None or not session.visible or arrow not in ARROWS:
            return
        if session.data.surface is None:
            return session.say("This rule has no map of other settings.")
        surface, values = session.data.surface, dict(vars(session.state))
        if session.state.rule_option.make is full_only:
            values["max_wait_ms"] = math.inf
        up, right = ARROWS[arrow]
        row = _nearest(surface.y_values, values[surface.y]) + up
        column = _nearest(surface.x_values, values[surface.x]) + right
        if 0 <= row < len(surface.y_values) and 0 <= column < len(surface.x_values):
            if surface.refused[row, column]:
                return session.say("This setting makes no sense here: its cell is crossed out.", alert=True)
            # The map's rule, not the state's, which may be another whose run was refused.
            rule = surface.rules[row * len(surface.x_values) + column]
            assert rule is not None  # it is not refused
            with session.reporting():
                self._move_to(self._values_of(rule))

    def _values_of(self, rule: Rule) -> dict[str, Any]:
        state = self.session.state
        values = state.kind.values_of(state.kind.rule, rule)
        if values is None:
            raise ValueError(f"the rule must be one of the list to be moved on the map, got {rule!r}")
        return values | {"server": presets.kept(state.server, rule)}

    def _move_to(self, values: dict[str, Any]) -> None:
        self.session.move_to(self.session.state.replace(**values))


def _nearest(values: tuple[float | None, ...], value: float | None) -> int:
    """Return the index of the nearest value; no limit, as None or infinity, counts as a very large value."""
    places = [1e15 if each is None else min(each, 1e15) for each in (value, *values)]
    return min(range(len(values)), key=lambda i: abs(places[i + 1] - places[0]))
