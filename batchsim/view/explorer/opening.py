"""The opening of the explorer: the film and one slider, then one thing more with each sentence."""

from pathlib import Path
from typing import Any, NamedTuple

import anywidget
import traitlets

from batchsim.view.explorer.main_picture import MainPicture
from batchsim.view.explorer.pages.play import PlayPage
from batchsim.view.explorer.session import Session
from batchsim.view.pictures.views import NAMES
from batchsim.view.scripts import widget


class Step(NamedTuple):
    """A thing that appears, a control or a view by its name, with its sentence.

    `rate_per_s` replaces an earlier step's rate if the reader did not move it.
    """

    name: str
    words: str
    rate_per_s: float | None = None


STEPS = (
    Step(
        "rate_per_s",
        "Twenty requests arrive per second, and the server computes most of them alone. Raise the arrival "
        "rate until it computes several together, as a batch.",
        20.0,
    ),
    Step(
        "max_wait_ms",
        "Requests now arrive more often, and the server waits for company before it starts a batch. Move the "
        "max wait: batches grow, and requests start later.",
        800.0,
    ),
    Step(
        "max_batch_size",
        "A full batch does not wait. Move the max batch size: small batches fill soon, but the server "
        "answers fewer requests per second.",
    ),
    Step(
        "latency",
        "Here is how long the requests take. One in a hundred takes longer than p99, the number that servers "
        "promise.",
    ),
    Step(
        "map",
        "Each cell of the map is another max batch size and max wait, and its colour shows p99. Click a cell "
        "to choose it.",
    ),
)


class Opening(anywidget.AnyWidget):
    """The sentences above the controls; the page begins if it is `wanted` and its reader has not seen it.

    `step` is the index of the last thing shown, -1 for everything. `boxes` has the parts of the picture that
    each view's step shows, as fractions.
    """

    _esm = widget(Path(__file__).with_name("opens.js"))
    steps = traitlets.List([step._asdict() for step in STEPS]).tag(sync=True)
    wanted = traitlets.Bool(False).tag(sync=True)
    step = traitlets.Int(-1).tag(sync=True)
    boxes = traitlets.Dict().tag(sync=True)

    def __init__(self, session: Session, screen: MainPicture, play: PlayPage, wanted: bool) -> None:
        super().__init__(wanted=wanted)
        self.session, self.screen, self.play = session, screen, play
        self.observe(self._turn, names="step")
        self.on_msg(self._end)
        session.subscribe("change", self._place)

    def _turn(self, change: Any) -> None:
        session, style = self.session, self.session.style
        begins, self.play.from_start = change["old"] < 0, self.step >= 0
        if self.step >= 0:
            name, _, rate_per_s = STEPS[self.step]
            if rate_per_s and (begins or session.state.rate_per_s == STEPS[0].rate_per_s):
                session.start(session.state.replace(rate_per_s=rate_per_s))
            if style.alone and name in NAMES[style.mode]:
                session.enlarge(name)  # there is room for one view
        if begins:
            self.play.player.play()
        self._place()

    def _end(self, _: Any, content: dict[str, Any], __: Any) -> None:
        if content.get("skipped") is True:
            self.session.reset()

    def _place(self) -> None:
        """Tell the page where the views are."""
        if self.step < 0:
            return
        parts = self.screen.picture.places()
        self.boxes = {step.name: [parts[step.name]] for step in STEPS if step.name in parts}
