"""The explorer: sliders that move a picture of one scenario, in a notebook."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import ipywidgets as widgets

from batchsim import _check
from batchsim.result import Result
from batchsim.scenario import ClosedLoop, OpenLoop, Rule, Scenario
from batchsim.servers.server import ServerConfig
from batchsim.view.cell import with_picture
from batchsim.view.explorer import services as offer
from batchsim.view.explorer.control import COMPUTING, DEVICE, MAIN, SHARE
from batchsim.view.explorer.controls import SETTINGS, Controls
from batchsim.view.explorer.kinds import FIRST, KINDS
from batchsim.view.explorer.main_picture import MainPicture
from batchsim.view.explorer.opening import Opening
from batchsim.view.explorer.pages import Page
from batchsim.view.explorer.pages.compare import ComparePage
from batchsim.view.explorer.pages.config import ConfigPage
from batchsim.view.explorer.pages.play import PlayPage
from batchsim.view.explorer.pages.predict import PredictPage
from batchsim.view.explorer.pages.share import SharePage
from batchsim.view.explorer.parts import Values
from batchsim.view.explorer.session import Session
from batchsim.view.explorer.state import DEFAULT, DEFAULTS, MORE, State, of_rule, view_of
from batchsim.view.explorer.widgets import HIDDEN, OF_RESULT, button, line, plain, set_class
from batchsim.view.film.pseudocode import pseudocode, shares, to_html
from batchsim.view.pictures.data import ViewData
from batchsim.view.pictures.live import LivePicture
from batchsim.view.pictures.views import views_of
from batchsim.view.theme import THEMES


class Explorer(widgets.Box):
    """A column of controls, and to its right a picture with its description and a status line.

    It works without a browser: set `controls["max_wait_ms"].value` and read `readout.value`. `data` is what
    the picture shows, and `result` its run, the last that worked. `move_to(state)` moves every control at
    once, `say(text)` puts a line below the picture, and `large.value` is the key of the large view.
    """

    end_line: Callable[[], Any] = staticmethod(lambda: None)  # of what its cell shows before it

    def __init__(self, session: Session, services: dict[str, Values], opening: bool = False) -> None:
        self.session = session
        self.move_to, self.say = session.move_to, session.say
        self.status = plain(widgets.HTML, classes="batchsim-status")
        self.readout = plain(widgets.HTML, classes="batchsim-readout batchsim-words")
        self.pseudocode = plain(widgets.HTML, classes="batchsim-code")
        self.origin, self.note = (plain(widgets.HTML, classes=OF_RESULT) for _ in range(2))
        self.controls = Controls(session, services, {COMPUTING: [self.origin], DEVICE: [self.note]})
        self.screen = MainPicture(session)
        self.compare, self.predict = ComparePage(session), PredictPage(session)
        self.play = PlayPage(session, self.screen, self.pseudocode)
        self.config = ConfigPage(session, self.screen)
        self.share = SharePage(session, self.screen, self.controls.boxes[SHARE])

        self.pages: list[Page] = [self.config, self.compare, self.predict, self.play, self.share]
        self.tabs = plain(
            widgets.Tab, [*(self.controls.boxes[page] for page in SETTINGS), *self.pages],
            titles=self._titles(), selected_index=0, classes="batchsim-tabs",
        )  # fmt: skip
        self._open()
        self.opening = Opening(session, self.screen, self.play, opening)
        tip = "All controls and views, or three of each"
        self.more = button("More", tip, self._show_more, classes="batchsim-more")
        # The moment stays with the rule, where the page keeps both visible while a film plays.
        self.rule = plain(widgets.VBox, [self.play.moment, self.pseudocode])
        column = [self.opening, self.controls.boxes[MAIN], self.more, self.tabs, self.rule]

        self.large = plain(
            widgets.Dropdown, options=offered(session), value=session.style.large, classes="batchsim-large",
            tooltip="The large view; a click on a small view enlarges it, too",
        )  # fmt: skip
        self.changes_views = False
        self.words = plain(
            widgets.ToggleButton, description="In words", tooltip="A description of the picture in words"
        )
        self.server = plain(
            widgets.Dropdown, options=[("Server 1 of 1", 0)], classes=f"batchsim-server {HIDDEN}",
            tooltip="The server whose seats and steps the picture shows",
        )  # fmt: skip
        foot = [self.large, self.words, self.server, self.status]
        foot_box = plain(widgets.Box, foot, classes="batchsim-foot")
        right = [self.screen, self.play.player, self.config.box, foot_box, self.readout]
        sides = {"batchsim-column": column, "batchsim-right": right}
        super().__init__(
            [plain(widgets.VBox, parts, classes=side) for side, parts in sides.items()],
            _dom_classes=["batchsim", "batchsim-explorer"],
        )

        session.subscribe("state", lambda: self.tabs.set_trait("titles", self._titles()))
        session.subscribe("change", self._update)
        session.subscribe("status", self._show_status)
        self.tabs.observe(lambda _: self._open(), names="selected_index")
        self.tabs.observe(lambda _: self._update(), names="selected_index")
        self.large.observe(lambda change: self._enlarge(change["new"]), names="value")
        self.server.observe(lambda change: self._turn_to_server(change["new"]), names="value")
        self.words.observe(lambda _: set_class(self.readout, "batchsim-open", self.words.value), "value")
        self.screen.observe(lambda _: self._fold(), names="alone")
        self.screen.observe(
            lambda change: self.more.set_trait("description", "Less" if change["new"] else "More"), "more"
        )
        if session.style.large == self.state.kind.film:
            self.turn_to(self.play)
        session.refresh()

    def __repr__(self) -> str:
        workload, rule = self.state.option("workload").label, self.state.rule_option.label
        return f"Explorer of batching: {workload.partition(':')[0]} arrivals, rule “{rule}”"

    def _repr_mimebundle_(self, **options: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the widget, and its picture with a description for front ends without widgets."""
        self.screen.appear()
        bundle: dict[str, Any] = super()._repr_mimebundle_(**options) or {}
        still = self.screen.still()
        self.end_line()
        return (bundle, {}) if still is None else with_picture(bundle, still, self.screen.alt)

    def turn_to(self, page: Page) -> None:
        """Turn to a page."""
        self.tabs.selected_index = self.tabs.children.index(page)

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
        """The scenario of the controls; ValueError if they make none."""
        return self.session.scenario(self.state)

    @property
    def picture(self) -> LivePicture:
        return self.screen.picture

    def _titles(self) -> tuple[str, ...]:
        titles = [self.state.kind.titles.get(page, page) for page in SETTINGS]
        return (*titles, *(page.title for page in self.pages))

    def _open(self) -> None:
        """Make the controls of the page that is open."""
        pages = dict(enumerate(SETTINGS))
        self.controls.open(pages.get(self.tabs.selected_index))

    def _enlarge(self, key: str | None) -> None:
        if key and key in dict(offered(self.session)).values() and not self.changes_views:
            self.session.enlarge(key)

    def _turn_to_server(self, server: int | None) -> None:
        if server is not None:  # as it is while the list itself changes
            self.session.restyle(self.session.style._replace(server=server))

    def _offer_servers(self) -> None:
        """Offer a choice of server, if a film shows one of several."""
        session = self.session
        count = 1
        if KINDS[session.style.mode].is_film_by_server and session.data is not None:
            count = session.data.result.scenario.all_servers
        options = tuple((f"Server {each + 1:,} of {count:,}", each) for each in range(count))
        if self.server.options != options:
            self.server.options = options
        self.server.value = min(session.style.server, count - 1)
        set_class(self.server, HIDDEN, count == 1)

    def _show_status(self) -> None:
        text, alert = self.session.status
        self.status.value = line(text, "alert" if alert else "status") if text else ""

    def _show_more(self) -> None:
        """Show all controls and views, or three of each, without a page that needs others."""
        more = self.screen.more
        if more:
            self.predict.predicting.value = False  # which uncovers the picture
            self._turn_home()
        self.screen.more = not more

    def _fold(self) -> None:
        """Close the pages while the controls are below the picture; open one when they are to its left."""
        if self.screen.alone or self.tabs.selected_index is None:
            self._turn_home()

    def _turn_home(self) -> None:
        self.tabs.selected_index = None if self.screen.alone else 0
        if self.session.style.large == self.state.kind.film and not self.screen.alone:
            self.turn_to(self.play)

    def _update(self) -> None:
        """Show the picture's description and the rule, and update the pages; most wait until opened."""
        session = self.session
        with session.lock, session.reporting():
            set_class(self, "batchsim-projector", session.style.size == "projector")
            set_class(self, "batchsim-dark", session.style.theme == "dark")
            for name in THEMES:
                set_class(self, f"batchsim-as-{name}", session.theme == name)
            views = offered(session)
            if self.large.options != views:
                self.changes_views = True  # new options choose the first, which the reader did not
                self.large.options = views
                self.changes_views = False
            self.large.value = session.style.large
            self._offer_servers()
            index = self.tabs.selected_index
            selected = None if index is None else self.tabs.children[index]
            if selected is not None:
                for page in self.pages:
                    page.is_open = page is selected
            for page in self.pages:
                if page.is_open or page.follows:
                    page.update()
            films = self.play.player.shown
            set_class(self.rule, "batchsim-acting", films)
            if session.data is None or not session.visible:
                self.readout.value = self.pseudocode.value = ""
            else:
                self.readout.value = line(self.screen.alt)
                if not films:  # which has an acting line
                    left, lines = shares(session.data.result), pseudocode(session.data.result.scenario)
                    most = max(range(len(left)), key=lambda i: left[i] or 0)
                    self.pseudocode.value = to_html(lines, left, most)
            self.note.value = self.state.kind.note(self.state)
            self.origin.value = session.data_state.kind.origin(session.data_state)


def offered(session: Session) -> tuple[tuple[str, str], ...]:
    """Return the names of the views that a session may enlarge, and their keys."""
    views = views_of(session.style.mode, session.style.parts)
    return tuple((view.NAME, key) for key, view in views.items())


def explorer(
    service: Any, workload: OpenLoop | ClosedLoop | None, requests: int, seed: int, link: str | None,
    play: bool, opening: bool,
) -> Explorer:  # fmt: skip
    """Return the explorer of `explore`'s arguments."""
    _check.whole("requests", requests)
    services: dict[str, Values] = {}
    costs: Values = {}
    state = DEFAULT.replace(seed=seed)
    if isinstance(service, Scenario):
        if workload is not None:
            raise TypeError("a Scenario must come without a workload: it has one")
        state = State.of(service, seed=seed)
    elif isinstance(service, Rule):
        state = of_rule(service).replace(seed=seed)
    elif service is not None:
        label, kind, costs, given = offer.given(service)
        state = DEFAULTS[kind.name].replace(seed=seed, given=given)
        services = {label: costs} if "service" in kind.controls else {}
    if workload is not None:
        if not isinstance(workload, (OpenLoop, ClosedLoop)):
            raise TypeError(f"workload must be one of batchsim's, got {workload!r}")
        state = state.having(SimpleNamespace(workload=workload), "workload")
    if link:
        state = State.from_link(link, state)
        if (service is not None or workload is not None) and not state.needs:
            rule = "a link with a scenario, or a part of one, must be one that needs it"
            raise ValueError(f"{rule}, got {link!r:.80}, which is a whole state: give one of the two")
    elif costs:
        state = state.kind.rescaled(state, costs, keep_rate=workload is not None)
    elif isinstance(service, Rule):
        state = state.kind.fitting(state, ServerConfig("", service))
    session = Session(state, requests)
    large = (view_of(link, state.mode) if link else None) or (
        state.kind.film if play else session.style.large
    )
    if large in views_of(state.mode, session.style.parts):  # a run without replicas has no view of them
        session.style = session.style._replace(large=large)
    panel = Explorer(session, services, opening and not link and state.mode == FIRST)
    panel.screen.more = bool(link) and MORE in str(link).split("&")
    return panel
