"""The explorer: sliders that move a picture of one scenario, in a notebook."""

from typing import Any

import ipywidgets as widgets

from batchsim import _check
from batchsim.result import Result
from batchsim.scenario import ClosedLoop, OpenLoop, Scenario
from batchsim.view.explorer import services as offer
from batchsim.view.explorer.controls import Controls
from batchsim.view.explorer.controls_table import ARRIVALS, COMPUTING, DEVICE, MAIN, RULE, on_page
from batchsim.view.explorer.knob import flow, line
from batchsim.view.explorer.main_picture import MainPicture
from batchsim.view.explorer.pages import Page
from batchsim.view.explorer.pages.compare import ComparePage
from batchsim.view.explorer.pages.play import PlayPage
from batchsim.view.explorer.pages.predict import PredictPage
from batchsim.view.explorer.pages.share import SharePage
from batchsim.view.explorer.session import Session
from batchsim.view.explorer.state import State, workload_values
from batchsim.view.film.pseudocode import pseudocode, shares, to_html
from batchsim.view.run.data import ViewData
from batchsim.view.run.live import LivePicture


class Explorer(widgets.VBox):
    """Controls by name, a picture, its words, and a status line.

    It works without a browser: set `controls["max_wait_ms"].value` and read `readout.value`. `data` is what
    the picture shows and `result` its run: the last that worked. `move_to(state)` moves every control at
    once, and `say(text)` puts a line below the picture.
    """

    def __init__(self, session: Session, services: dict[str, offer.Values]) -> None:
        self.session = session
        self.move_to, self.say = session.move_to, session.say
        self.status, self.readout, self.pseudocode, self.origin = (widgets.HTML() for _ in range(4))
        self.status.add_class("batchsim-status")
        self.readout.add_class("batchsim-readout")
        self.pseudocode.layout = {"flex": "1 1 24em", "min_width": "0", "max_width": "44em"}
        self.controls = controls = Controls(session, services)
        self.screen = MainPicture(session)
        self.compare, self.predict = ComparePage(session), PredictPage(session)
        self.play = PlayPage(session, self.screen, self.pseudocode)
        self.share = SharePage(session, self.screen, controls["seed"])

        settings = [ARRIVALS, RULE, COMPUTING, DEVICE]
        tabs = [flow(controls[name] for name in on_page(page)) for page in settings]
        service = tabs[settings.index(COMPUTING)]
        service.children = (*service.children, self.origin)
        self.pages: list[Page] = [self.compare, self.predict, self.play, self.share]
        self.tabs = widgets.Tab([*tabs, *self.pages], titles=[*settings, *(p.title for p in self.pages)])
        self.tabs.add_class("batchsim-tabs")
        main = widgets.VBox([controls[name] for name in on_page(MAIN)])
        super().__init__([flow([main, self.pseudocode]), self.tabs, self.screen, self.status, self.readout])
        self.add_class("batchsim")

        session.subscribe("change", self._update)
        session.subscribe("status", self._show_status)
        self.tabs.observe(lambda _: self._update(), names="selected_index")
        session.refresh()

    def __repr__(self) -> str:
        workload, rule = (self.state.kind(choice).label for choice in ("workload", "rule"))
        return f"Explorer of batching: {workload.partition(':')[0]} arrivals, rule “{rule}”"

    @property
    def data(self) -> ViewData | None:
        return self.session.data

    @property
    def result(self) -> Result | None:
        return None if self.data is None else self.data.result

    @property
    def state(self) -> State:
        return self.session.state

    @property
    def scenario(self) -> Scenario:
        """The scenario that the controls say; ValueError where there is none."""
        return self.state.scenario(self.session.traffic)

    @property
    def picture(self) -> LivePicture:
        return self.screen.picture

    def _show_status(self) -> None:
        text, alert = self.session.status
        self.status.value = line(text, "alert" if alert else "status") if text else ""

    def _update(self) -> None:
        """Show the words of the picture, and bring the open page up to date; the others wait until opened."""
        session = self.session
        with session.lock, session.reporting():
            (self.add_class if session.style.size == "projector" else self.remove_class)("batchsim-projector")
            selected = self.tabs.children[self.tabs.selected_index or 0]
            if session.data is None or not session.visible:
                self.readout.value = self.pseudocode.value = ""
            else:
                self.readout.value = line(self.screen.alt)
                if selected is not self.play:  # which marks the line that acts
                    left, lines = shares(session.data.result), pseudocode(session.data.result.scenario.rule)
                    most = max(range(len(left)), key=lambda i: left[i] or 0)
                    self.pseudocode.value = to_html(lines, left, most, session.style.theme)
            for page in self.pages:
                page.is_open = page is selected
                if page.is_open:
                    page.update()
            self.origin.value = offer.origin(session.data_state)


def explore(
    service: Any = None, workload: OpenLoop | ClosedLoop | None = None, *,
    requests: int = 100_000, seed: int = 0, link: str | None = None,
) -> Explorer:  # fmt: skip
    """Return sliders that move a picture of a scenario: show it as the last line of a cell.

    `service`: a Measurement, a service time, or a whole Scenario to begin with; the panel can measure models,
    too. `workload`: the traffic to begin with; the rate of a Trace can be changed. `requests`: the number of
    requests in each run. `link`: the line of text that another explorer gave for its state.

    >>> panel = explore(requests=500)
    >>> panel.controls["max_wait_ms"].value = 20
    >>> panel.result.scenario.rule
    SizeOrWait(max_batch_size=32, max_wait_ms=20)
    """
    _check.whole("requests", requests)
    services: dict[str, offer.Values] = {}
    state = State(seed=seed)
    if isinstance(service, Scenario):
        if workload is not None:
            raise TypeError("a Scenario must come without a workload: it has one")
        workload, state = service.workload, State.of(service, seed=seed)
    elif service is not None:
        label, values = offer.given(service)
        services = {label: values}
    if workload is not None:
        if not isinstance(workload, (OpenLoop, ClosedLoop)):
            raise TypeError(f"workload must be one of batchsim's, got {workload!r}")
        state = state.replace(**workload_values(workload))
    traffic = workload if isinstance(workload, OpenLoop) and state.workload == "given" else None
    if link:
        state = State.from_link(link)
    elif services:
        state = offer.rescaled(state, values, keep_rate=workload is not None)
    return Explorer(Session(state, requests, traffic), services)
