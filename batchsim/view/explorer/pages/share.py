"""To share: a seed for each student, a link and Python to share, files to save, and the colours."""

import io
import unicodedata
import zlib
from typing import Any

import ipywidgets as widgets

from batchsim.view.explorer.control import SHARE
from batchsim.view.explorer.kinds import in_labels
from batchsim.view.explorer.main_picture import MainPicture
from batchsim.view.explorer.pages import Page
from batchsim.view.explorer.session import Session
from batchsim.view.explorer.widgets import OF_RESULT, button, flow, label, line, plain, toggle

WIDE: dict[str, Any] = {"layout": {"width": "auto"}, "style": {"description_width": "auto"}}


class SharePage(Page):
    """The seed, the colours, the state as a link and as Python, and the files."""

    title = SHARE

    def __init__(self, session: Session, picture: MainPicture, seed: widgets.Widget) -> None:
        self.picture = picture
        self.student = plain(
            widgets.Text,
            description="Student", placeholder="name or number", continuous_update=False,
            tooltip="Each name has its own seed, and therefore its own traffic",
            **WIDE,
        )  # fmt: skip
        self.theme = toggle(["auto", "light", "dark"], "Colours: as the page, or as you choose", "auto")
        self.size = toggle(["page", "projector"], "Size: larger letters and lines for the class", "page")
        self.link = plain(
            widgets.Text,
            description="Link", placeholder="paste a link here", continuous_update=False, classes=OF_RESULT,
            tooltip="The state as a line of text: copy it, or paste another one here", **WIDE,
        )  # fmt: skip
        self.refusal = plain(widgets.HTML, classes="batchsim-refusal")
        tip = "The same scenario as Python"
        self.python = plain(
            widgets.Textarea, description="Python", disabled=True, rows=9, tooltip=tip, classes=OF_RESULT,
            **WIDE,
        )  # fmt: skip
        self.buttons = {
            name: button(name, tip, session.reporting()(act))
            for name, tip, act in [
                ("Reset", "Return every control to its initial value", session.reset),
                ("Copy link", "Copy the link to the clipboard", lambda: self._copy("link")),
                ("Copy as Python", "Copy the Python to the clipboard", lambda: self._copy("Python")),
                ("Save PNG", "The picture, for a page", lambda: self._save("png", "image/png")),
                ("Save SVG", "The picture, to print at any size", lambda: self._save("svg", "image/svg+xml")),
                ("Save CSV", "The run, one row per request", lambda: self._save("csv", "text/csv")),
            ]
        }
        self.student.observe(lambda change: self._seed(change["new"]), names="value")
        self.link.observe(lambda change: self._paste(change["new"]), names="value")
        for choice in (self.theme, self.size):
            choice.observe(lambda _: self._restyle(), names="value")
        looks = [label("Colours"), self.theme, label("Size"), self.size]
        rows = [flow(self.buttons.values()), seed, self.student, *looks]
        super().__init__(session, [*rows, self.link, self.refusal, self.python])

    @property
    def text(self) -> str:
        """The link; for the default state something that can be pasted."""
        return self.session.state.to_link() or "seed=0"

    def update(self) -> None:
        self.link.value, self.refusal.value = self.text, ""
        self.python.value = self.session.python()
        if self.student.value.strip() and seed_of(self.student.value) != self.session.state.seed:
            self.student.value = ""  # the seed is no longer this student's

    def _seed(self, student: str) -> None:
        if student.strip():
            with self.session.reporting():
                self.session.move_to(self.session.state.replace(seed=seed_of(student)))

    def _restyle(self) -> None:
        self.session.theme = self.theme.value
        self.picture.restyle(self.size.value)

    def _paste(self, text: str) -> None:
        if text == self.text:
            return
        try:
            self.session.open_link(text)
        except (TypeError, ValueError) as error:
            self.refusal.value = line(in_labels(str(error)), "alert")

    def _copy(self, name: str) -> None:
        if name == "Python":
            self.picture.send({"copy": self.session.python()})
            return self.session.say("The Python is on the clipboard.")
        link = self.session.link()
        self.picture.send({"copy": self.session.explored(link), "link": link})
        self.session.say(
            "The link is on the clipboard: in a notebook a line of Python, in the app an address that "
            "contains the class's token."
        )

    def _save(self, suffix: str, media_type: str) -> None:
        if self.session.cover:
            raise ValueError("Reveal the picture before you save it.")
        if (data := self.session.data) is None:
            return
        file = io.BytesIO()
        if suffix == "csv":
            data.result.to_frame().to_csv(file, index_label="request")
        else:
            self.picture.fresh().save(file, suffix)
        self.picture.download(f"batchsim.{suffix}", media_type, file.getvalue())
        self.session.say(f"batchsim.{suffix} is in your browser's downloads.")


def seed_of(student: str) -> int:
    """Return the seed of a student: the same on every machine, ignoring case and spaces.

    >>> seed_of("Ada Lovelace") == seed_of(" ada  lovelace ")
    True
    """
    name = unicodedata.normalize("NFKC", " ".join(student.split())).casefold()
    return zlib.crc32(name.encode())
