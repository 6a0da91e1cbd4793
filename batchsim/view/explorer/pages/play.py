"""Film: the large view becomes a film of the requests, slowed down or from event to event."""

from dataclasses import replace

import ipywidgets as widgets

from batchsim.result import Result
from batchsim.view.explorer.kinds import KINDS
from batchsim.view.explorer.main_picture import MainPicture
from batchsim.view.explorer.pages import Page
from batchsim.view.explorer.player import Player
from batchsim.view.explorer.session import Session
from batchsim.view.explorer.widgets import HIDDEN, button, line, plain, set_class
from batchsim.view.film.clip import Clip, request_clip
from batchsim.view.film.film import RequestFilm
from batchsim.view.film.pseudocode import pseudocode, to_html
from batchsim.view.pictures.data import ViewData
from batchsim.view.pictures.views import views_of
from batchsim.view.theme import THEMES

HINT = "Space plays, arrows step. Click a request to follow it, or press S for the slowest."


class PlayPage(Page):
    """The film over the large view of the picture, and the acting line of the rule.

    It works without a browser: set `player.time_ms`, or call `player.next()`. The page marks the acting line
    in `code`, the explorer's pseudo-code. Opening the page makes the film's view large, until it closes.
    """

    title = "Film"
    follows = True
    from_start = False  # whether films show the first requests of a run

    def __init__(self, session: Session, screen: MainPicture, code: widgets.HTML) -> None:
        self.screen, self.code = screen, code
        self.player, self.hint = Player(), plain(widgets.HTML)
        self.back = button("Show the film", "Make the film the large view", self._enlarge)
        self.moment = plain(widgets.Box, classes="batchsim-moment")  # where the page writes the moment
        super().__init__(session, [self.back, self.hint])
        self.was_open, self.mode = False, session.style.mode
        self.before = ""  # the large view before the film's; "" while the page is closed
        self.run: tuple[Result, int] | None = None  # the result and the server in the film
        self.player.shown = False
        self.player.place = [0.0, 0.0, 1.0, 1.0]  # from the start, as a page asks once whether it has one
        self.player.observe(lambda _: self._mark(), names="moment")
        self.player.observe(lambda change: session.follow(change["new"]), names="followed")

    @property
    def filming(self) -> bool:
        """Whether the film covers the large view."""
        style = self.session.style
        return self.is_open and self.session.visible and style.large == KINDS[style.mode].film

    def _enlarge(self) -> None:
        style = self.session.style
        self.before = style.large
        self.session.enlarge(KINDS[style.mode].film)

    def update(self) -> None:
        """Show the film of the present run, or hide it."""
        session, player, data = self.session, self.player, self.session.data
        turned, self.was_open = self.is_open and not self.was_open, self.is_open
        if session.visible and self.mode != session.style.mode:
            turned, self.mode = turned or player.shown, session.style.mode  # to the film of the other mode
        if self.before and not self.is_open:
            before, self.before = self.before, ""
            style = session.style
            if style.large == KINDS[style.mode].film and before in views_of(style.mode, style.parts):
                return session.enlarge(before)
        if turned and self.is_open and session.visible and not self.filming:
            return self._enlarge()
        self.hint.value = line("Predict first, then play." if session.cover else HINT, "note")
        set_class(self.back, HIDDEN, self.filming or bool(session.cover))
        if not (self.filming and data is not None and self._load(data, session.style.server)):
            if player.playing:
                player.pause()
            player.shown = False
            return
        picture = self.screen.picture
        with player.hold_sync():
            player.place = picture.places()[picture.large]
            player.theme = next(name for name, theme in THEMES.items() if theme is picture.theme)
            player.em = float(picture.em)
        player.shown = True
        self._mark()

    def _load(self, data: ViewData, server: int) -> bool:
        """Load the film of a run, unless it is there; return whether there is one."""
        run = data.result, server
        if self.run is None or self.run[0] is not run[0] or self.run[1] != run[1]:
            kind = KINDS[data.result.scenario.kind]
            clip = _beginning(data.result) if self.from_start else kind.clip(data, server)
            if clip is None:
                return False
            self.run = run
            self.player.load(clip)
        return True

    def _mark(self) -> None:
        """Show the rule with its acting line; while the film plays, the page marks it."""
        if self.player.shown and self.run is not None:
            lines = pseudocode(self.run[0].scenario)
            acting = None if self.player.playing else self.player.line
            self.code.value = to_html(lines, acting=acting)


def _beginning(result: Result) -> Clip:
    """Return the film of a run's first requests, from the first arrival on."""
    first_s = float(result.arrival_s[0])
    clip = request_clip(RequestFilm.of(result), (first_s, first_s))
    return replace(clip, stretch=clip.stretch._replace(begin_s=first_s))
