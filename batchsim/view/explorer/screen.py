"""An image in a page: PNG frames and patches go to it; clicks, gestures and its room come from it."""

from pathlib import Path

import anywidget
import traitlets

from batchsim.view.canvas.picture import Box, Picture


class Screen(anywidget.AnyWidget):
    """An image that is replaced without a flicker, with a text alternative.

    `frame` is a PNG; `show` sends one, `patch` one that lies over a part of it. `width_px`, `height_px`,
    `alone` (there is room for one view only), `ratio` (device pixels per CSS pixel) and `dark` (the page's
    background) come from the page, 0 before it is seen. `cover` lays a text over the picture. A `clickable`
    one, that of an explorer, has the height that the window shows, and sends messages of what a hand does.
    """

    # Their text, not their paths: anywidget watches files, and so holds every widget of the class for ever.
    _esm = Path(__file__).with_name("screen.js").read_text("utf-8")
    _css = Path(__file__).with_name("screen.css").read_text("utf-8")
    frame = traitlets.Bytes().tag(sync=True)
    number = traitlets.Int(0).tag(sync=True)
    alt = traitlets.Unicode().tag(sync=True)
    cover = traitlets.Unicode().tag(sync=True)
    clickable = traitlets.Bool(False).tag(sync=True)
    width_px = traitlets.Int(0).tag(sync=True)
    height_px = traitlets.Int(0).tag(sync=True)
    alone = traitlets.Bool(False).tag(sync=True)
    ratio = traitlets.Float(1.0).tag(sync=True)
    dark = traitlets.Bool(False).tag(sync=True)

    def show(self, frame: bytes, alt: str) -> None:
        with self.hold_sync():
            self.frame, self.alt, self.number = frame, alt, self.number + 1

    def patch(self, picture: Picture, box: Box) -> None:
        """Lay a box of a picture as it is now over that part of the frame, until the next frame."""
        width, height = picture.width_px, picture.height_px
        part = [box.left / width, box.top / height, box.width / width, box.height / height]
        self.send({"patch": part}, buffers=[picture.png(box)])

    def download(self, name: str, media_type: str, content: bytes) -> None:
        """Let the reader's browser keep a file."""
        self.send({"download": name, "type": media_type}, buffers=[content])
