"""For the class: a seed for each student, a link and Python to hand on, files to keep, and the look."""

import io
import unicodedata
import zlib
from typing import TYPE_CHECKING

import ipywidgets as widgets

from batchsim.view.explorer.knob import LABEL, flow
from batchsim.view.explorer.state import State
from batchsim.view.explorer.words import line

if TYPE_CHECKING:
    from batchsim.view.explorer.explorer import Explorer

WIDE = {"width": "auto", "max_width": "60em"}


class SharePage(widgets.VBox):
    """The seed, the look, the state as a link and as Python, and the exports."""

    def __init__(self, panel: "Explorer") -> None:
        self.panel = panel
        self.student = widgets.Text(
            description="Student",
            placeholder="name or number",
            tooltip="Each name has a seed of its own, and so a traffic of its own",
            continuous_update=False,
            style={"description_width": LABEL},
            layout={"width": "22em"},
        )
        self.theme = toggle(["auto", "light", "dark"], "Colours: as the page, or as you choose")
        self.size = toggle(["page", "projector"], "Size: larger letters and lines for the class")
        self.link = widgets.Text(
            description="Link",
            placeholder="paste a link here",
            tooltip="The state in a line of text: copy it, or paste another here",
            continuous_update=False,
            style={"description_width": LABEL},
            layout=WIDE,
        )
        self.refusal = widgets.HTML()
        self.python = widgets.Textarea(
            description="Python",
            disabled=True,
            rows=9,
            style={"description_width": LABEL},
            layout=WIDE,
            tooltip="The same, without sliders",
        )
        self.buttons = {
            name: widgets.Button(description=name, tooltip=tip)
            for name, tip in {
                "Reset": "Every control as it was at the start",
                "Copy link": "Put the link on the clipboard",
                "Copy as Python": "Put the Python on the clipboard",
                "Save PNG": "The picture, for a page",
                "Save SVG": "The picture, to print at any size",
                "Save CSV": "The run, a row a request",
            }.items()
        }
        for button, act in zip(
            self.buttons.values(),
            (self._reset, self._copy_link, self._copy_python, self._png, self._svg, self._csv),
            strict=True,
        ):
            button.on_click(lambda _, act=act: self._do(act))
        self.student.observe(lambda change: self._seed(change["new"]), names="value")
        self.link.observe(lambda change: self._paste(change["new"]), names="value")
        for look in (self.theme, self.size):
            look.observe(lambda _: self._look(), names="value")
        super().__init__(
            [
                flow([panel.controls["seed"], self.student]),
                flow([labelled("Colours", self.theme), labelled("Size", self.size, "3em")]),
                flow(self.buttons.values()),
                self.link,
                self.refusal,
                self.python,
            ]
        )

    @property
    def text(self) -> str:
        """The link, which for the defaults must be something that can be pasted."""
        return self.panel.state.to_link() or "seed=0"

    def turn(self) -> None:
        """Bring the link and the Python up to date."""
        state, observer = self.panel.state, self.panel.observer
        self.link.value, self.refusal.value = self.text, ""
        self.python.value = state.python(observer.requests, observer.traffic)
        if self.student.value.strip() and seed_of(self.student.value) != state.seed:
            self.student.value = ""  # the seed is another's now

    def _do(self, act: object) -> None:
        with self.panel.telling():
            act()  # type: ignore[operator]

    def _reset(self) -> None:
        self.panel.move_to(self.panel.initial)

    def _seed(self, student: str) -> None:
        if student.strip():
            self.panel.controls["seed"].value = seed_of(student)

    def _look(self) -> None:
        self.panel.theme, self.panel.size = self.theme.value, self.size.value
        self.panel.restyle()

    def _paste(self, text: str) -> None:
        if text == self.text:
            return
        try:
            self.panel.move_to(State.from_link(text))
        except (TypeError, ValueError) as error:
            self.refusal.value = f'<div class="batchsim-refusal">{line(str(error), "alert")}</div>'

    def _copy_link(self) -> None:
        self.panel.screen.copy_text(self.text)
        self.panel.say("The link is on the clipboard.")

    def _copy_python(self) -> None:
        self.panel.screen.copy_text(
            self.panel.state.python(self.panel.observer.requests, self.panel.observer.traffic)
        )
        self.panel.say("The Python is on the clipboard.")

    def _png(self) -> None:
        self._save("png", "image/png")

    def _svg(self) -> None:
        self._save("svg", "image/svg+xml")

    def _save(self, kind: str, media_type: str) -> None:
        packed = io.BytesIO()
        self.panel.picture.savefig(packed, format=kind)
        self._download(kind, media_type, packed.getvalue())

    def _csv(self) -> None:
        if self.panel.result is not None:
            text = self.panel.result.to_frame().to_csv(index_label="request")
            self._download("csv", "text/csv", text.encode())

    def _download(self, kind: str, media_type: str, content: bytes) -> None:
        if not self.panel.shown:
            raise ValueError("the picture must be revealed before it is saved, got a prediction that is open")
        self.panel.screen.download(f"batchsim.{kind}", media_type, content)
        self.panel.say(f"batchsim.{kind} is in your browser's downloads.")


def toggle(options: list[str], tip: str) -> widgets.ToggleButtons:
    """Return buttons of which one is down."""
    tips = [f"{tip}: {option}" for option in options]
    return widgets.ToggleButtons(options=options, tooltips=tips, style={"button_width": "auto"})


def labelled(label: str, widget: widgets.Widget, width: str = LABEL) -> widgets.Widget:
    """Return a widget behind its name."""
    name = widgets.HTML(label, layout={"width": width})
    name.add_class("batchsim-label")
    return widgets.HBox([name, widget])


def seed_of(student: str) -> int:
    """Return the seed of a student: the same on every machine, whatever the case and the spaces.

    >>> seed_of("Ada Lovelace") == seed_of(" ada  lovelace ")
    True
    """
    name = unicodedata.normalize("NFKC", " ".join(student.split())).casefold()
    return zlib.crc32(name.encode())
