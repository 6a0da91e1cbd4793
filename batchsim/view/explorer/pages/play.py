"""Play: the large view shows a film of the requests, slowed down or from event to event."""

from collections.abc import Iterator
from contextlib import contextmanager

import ipywidgets as widgets

from batchsim.view.explorer.kinds import KINDS
from batchsim.view.explorer.main_picture import MainPicture
from batchsim.view.explorer.pages import Page
from batchsim.view.explorer.player import Player
from batchsim.view.explorer.session import Session
from batchsim.view.explorer.widgets import line, plain
from batchsim.view.film.film_view import FilmView, StepView
from batchsim.view.film.pseudocode import acting, pseudocode, to_html
from batchsim.view.film.snapshot import Snapshot


class PlayPage(Page):
    """A player of the film in the main picture, and the acting line of the rule.

    It works without a browser: set `player.time_ms`, or click `player.next`. The page marks the acting line
    in `code`, the explorer's pseudo-code. Using the page makes the film's view large.
    """

    title = "Play"

    def __init__(self, session: Session, screen: MainPicture, code: widgets.HTML) -> None:
        self.screen, self.code, self.opened = screen, code, False
        self.player = Player(screen, self._stage, self._put, self._guard, self._enlarge)
        self.words = plain(widgets.HTML)
        self.words.add_class("batchsim-moment")
        super().__init__(session, [self.player, self.words])
        self.player.on_moment(self._tell)
        session.subscribe("change", self.update)

    @contextmanager
    def _guard(self) -> Iterator[None]:
        with self.session.lock, self.session.reporting():
            yield

    def _stage(self) -> FilmView | StepView | None:
        """Return the film's view, if it is large and not covered."""
        return self.screen.picture.stage if self.session.visible else None

    def _enlarge(self) -> None:
        session = self.session
        large = KINDS[session.style.mode].film
        if session.style.large != large:
            session.restyle(session.style._replace(large=large))

    def _put(self, stage: FilmView | StepView) -> None:
        self.screen.patch(self.screen.picture, stage.box)

    def update(self) -> None:
        """Load the film of a new run, even while this page is closed."""
        session, player = self.session, self.player
        if self.is_open and not self.opened and session.visible:
            self.opened = True
            is_large = session.style.large == KINDS[session.style.mode].film
            return self.update() if is_large else self._enlarge()
        self.opened = self.is_open
        for control in player.controls:
            control.disabled = not session.visible
        stage, film = self._stage(), player.film
        if stage is None or stage.film is None:
            player.play.value = False
            self.words.value = line("Predict first, then play." if session.cover else "", "note")
        elif film is not None and (film.result, film.shown) == (stage.film.result, stage.film.shown):
            player.redraw()
        else:
            player.load(stage.film, stage)

    def _tell(self) -> None:
        """Mark the acting line, and describe the moment unless it changes too fast to read."""
        player, data = self.player, self.session.data
        if player.moment is None or data is None or not self.session.visible:
            return
        self.words.value = "" if player.playing else line(player.words, "note")
        if self.is_open:
            moment, within_s = player.moment, player.within_s
            lines = pseudocode(data.result.scenario)
            acts = acting(moment, within_s) if isinstance(moment, Snapshot) else moment.acting(within_s)
            self.code.value = to_html(lines, acting=acts, theme=self.session.style.theme)
