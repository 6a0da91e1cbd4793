"""Play: the large view becomes a film of the requests, slowed down or from event to event."""

import ipywidgets as widgets

from batchsim.view.canvas.theme import THEMES
from batchsim.view.explorer.kinds import KINDS
from batchsim.view.explorer.main_picture import MainPicture
from batchsim.view.explorer.pages import Page
from batchsim.view.explorer.player import Player
from batchsim.view.explorer.session import Session
from batchsim.view.explorer.widgets import button, hide, line, plain
from batchsim.view.film.pseudocode import pseudocode, to_html

HINT = "In the large view, space plays and pauses, and arrows go from event to event."


class PlayPage(Page):
    """The film over the large view of the picture, and the acting line of the rule.

    It works without a browser: set `player.time_ms`, or call `player.next()`. The page marks the acting line
    in `code`, the explorer's pseudo-code. Opening the page makes the film's view large.
    """

    title = "Play"
    plays = True

    def __init__(self, session: Session, screen: MainPicture, code: widgets.HTML) -> None:
        self.screen, self.code, self.opened = screen, code, False
        self.player, self.hint = Player(), plain(widgets.HTML)
        self.back = button("Show the film", "Make the film the large view", self._enlarge)
        words = plain(widgets.Box)  # where the page writes the moment
        words.add_class("batchsim-moment")
        super().__init__(session, [self.hint, self.back, words])
        self.mode = session.style.mode
        self.run: tuple[object, int] | None = None  # the result and the server in the film
        self.player.shown = False
        self.player.place = [0.0, 0.0, 1.0, 1.0]  # from the start, as a page asks once whether it has one
        self.player.observe(lambda _: self._mark(), names=["moved_s", "playing"])
        session.subscribe("change", self.update)

    @property
    def filming(self) -> bool:
        """Whether the film covers the large view."""
        style = self.session.style
        return self.opened and self.session.visible and style.large == KINDS[style.mode].film

    def _enlarge(self) -> None:
        session = self.session
        session.restyle(session.style._replace(large=KINDS[session.style.mode].film))

    def follow(self, page: widgets.Widget | None) -> None:
        """Follow the reader to another page; a folded column keeps the film."""
        plays = getattr(page, "plays", False)
        if page is not None and self.opened is not plays:
            self.opened = plays
            if self.opened and self.session.visible and not self.filming:
                return self._enlarge()
            self.update()

    def update(self) -> None:
        """Show the film of the present run, or hide it."""
        session, player, data = self.session, self.player, self.session.data
        if session.visible and self.mode != session.style.mode:
            self.mode = session.style.mode
            if self.opened and not self.filming and player.shown:
                return self._enlarge()  # the film of the other mode
        self.hint.value = line("Predict first, then play." if session.cover else HINT, "note")
        hide(self.back, self.filming or bool(session.cover))
        if not self.filming or data is None:
            if player.playing:
                player.pause()
            player.shown = False
            return
        run = data.result, session.style.server
        if self.run is None or self.run[0] is not run[0] or self.run[1] != run[1]:
            window = session.data_state.kind.window(data, session.style.server)
            if window is None:
                player.shown = False
                return
            self.run = run
            player.load(window)
        picture, box = self.screen.picture, self.screen.picture.views[0].box
        width, height = picture.width_px, picture.height_px
        with player.hold_sync():
            player.place = [box.left / width, box.top / height, box.width / width, box.height / height]
            player.theme = next(name for name, theme in THEMES.items() if theme is picture.theme)
            player.em = float(picture.font_px)
        player.shown = True
        self._mark()

    def _mark(self) -> None:
        """Mark the acting line; while the film plays, the page does."""
        data = self.session.data
        if self.is_open and self.filming and data is not None and not self.player.playing:
            lines = pseudocode(data.result.scenario)
            self.code.value = to_html(lines, acting=self.player.line, theme=self.session.style.theme)
