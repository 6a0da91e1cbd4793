"""The base of widgets in which a student acts: a script draws them, and Python answers what was done."""

from pathlib import Path
from typing import Any

import anywidget
import traitlets

from batchsim.teaching.output_capture import STYLE
from batchsim.view.scripts import JS, widget
from batchsim.view.theme import looks


class Act(anywidget.AnyWidget):
    """A widget in which a student acts: the page sets `done`, and shows the `answer` to it."""

    _esm = widget(Path(__file__).with_name("act.js"))
    _css = (JS / "play.css").read_text("utf-8") + STYLE
    part = traitlets.Unicode().tag(sync=True)
    given = traitlets.Dict().tag(sync=True)  # what the script needs
    looks = traitlets.Dict(looks()).tag(sync=True)
    done = traitlets.Dict().tag(sync=True)
    answered = traitlets.Dict().tag(sync=True)

    def __init__(self, part: str, given: dict[str, Any]) -> None:
        super().__init__(part=part, given=given)
        self.observe(self._answer, "done")

    def answer(self, done: dict[str, Any]) -> dict[str, Any]:
        """Return what the page shows; TypeError or ValueError for what it cannot have sent."""
        raise NotImplementedError

    def _answer(self, change: Any) -> None:
        # A turn makes each answer another one: the page hears of changes.
        self.answered = {**self.answer(change["new"]), "turn": change["new"].get("turn", 0)}
