"""A picture in the page: it shows frames, and reports clicks, keys and its width."""

from pathlib import Path
from typing import Any

import anywidget
import traitlets

HERE = Path(__file__).parent


class Screen(anywidget.AnyWidget):
    """An image that is replaced without a flicker, with a text alternative.

    `frame` is a PNG; `show` sends one. `width_px`, `ratio` (device pixels per CSS pixel) and `dark`
    (the page's background) come from the page, 0 before it is seen. `cover` hides the picture behind a text.
    """

    _esm = HERE / "screen.js"
    _css = HERE / "screen.css"
    frame = traitlets.Bytes().tag(sync=True)
    number = traitlets.Int(0).tag(sync=True)
    alt = traitlets.Unicode().tag(sync=True)
    cover = traitlets.Unicode().tag(sync=True)
    clickable = traitlets.Bool(False).tag(sync=True)
    width_px = traitlets.Int(0).tag(sync=True)
    ratio = traitlets.Float(1.0).tag(sync=True)
    dark = traitlets.Bool(False).tag(sync=True)

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.on_msg(self._receive)

    def show(self, frame: bytes, alt: str) -> None:
        """Replace the picture and its text alternative."""
        with self.hold_sync():
            self.frame, self.alt, self.number = frame, alt, self.number + 1

    def download(self, name: str, media_type: str, content: bytes) -> None:
        """Let the reader's browser keep a file."""
        self.send({"download": name, "type": media_type}, buffers=[content])

    def clicked(self, across: float, down: float) -> None:
        """Respond to a click: where it was, as fractions of the width and the height from the top left."""

    def pressed(self, arrow: str) -> None:
        """Respond to an arrow key: "left", "right", "up" or "down"."""

    def _receive(self, _: Any, content: dict[str, Any], __: Any) -> None:
        if "click" in content:
            across, down = content["click"]
            self.clicked(float(across), float(down))
        elif "key" in content:
            self.pressed(str(content["key"]))
