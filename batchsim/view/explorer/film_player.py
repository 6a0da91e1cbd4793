"""A film that stands alone in a cell: requests through queue and servers, a timeline, and a player."""

import base64
import math
from collections.abc import Mapping
from threading import RLock
from typing import Any

import ipywidgets as widgets

from batchsim import _check
from batchsim._format import counted
from batchsim.result import Result
from batchsim.scenario import Rule, Scenario
from batchsim.servers.comparison import Group, ServerComparison
from batchsim.simulate import simulated
from batchsim.view.canvas.theme import THEMES
from batchsim.view.canvas.words import PNG
from batchsim.view.explorer.player import SLOWNESS, Player
from batchsim.view.explorer.widgets import Screen, line, plain
from batchsim.view.film.film_view import Playable
from batchsim.view.film.lanes import KINDS, Lanes, comparison_of, stretch_of
from batchsim.view.film.snapshot import REQUESTS, Film
from batchsim.view.pictures.live import Animation

LEAST_WIDTH_PX = 320
WHOLE_S = 20.0  # on the screen, the duration of a film of token generation


class FilmPlayer(Player):
    """The film of a run above its timeline, with its controls."""

    def __init__(self, result: Result, requests: int = REQUESTS) -> None:
        self.result, self.requests = result, requests
        self.picture = self._picture()
        self.text = plain(widgets.HTML)
        self.text.add_class("batchsim-moment")
        lock = RLock()
        super().__init__(screen := Screen(), lambda: self.picture.stage, self._put, lambda: lock)
        screen.add_class("batchsim-stage")
        below = plain(widgets.Box, self.parts)
        below.add_class("batchsim-player-wide")
        self.children = [screen, below, self.text]
        self.add_class("batchsim")
        self.add_class("batchsim-film")
        stage = self.picture.stage
        assert stage.film is not None
        self.load(stage.film, stage)
        self.screen.show(self.picture.png(), self.words)
        self.screen.observe(lambda _: self._restyle(), names=["width_px", "ratio", "dark"])
        self.on_moment(self._say)
        self._say()

    def __repr__(self) -> str:
        requests = min(self.result.arrival_s.size, self.requests)
        return f"Film of {counted(requests, 'request')}, at {self.time_ms:.7g} ms"

    def _picture(self, width_px: int = 900, ratio: float = 1.0, theme: str = "light") -> Animation | Lanes:
        picture = Animation(width_px, ratio, theme, requests=self.requests)
        picture.play(self.result)
        return picture

    def _restyle(self) -> None:
        """Draw for the page's present width and colours."""
        screen, film = self.screen, self.film
        assert film is not None
        with self._guard():
            theme = "dark" if screen.dark else "light"
            self.picture = self._picture(max(screen.width_px, LEAST_WIDTH_PX), screen.ratio, theme)
            self.picture.stage.show(film, self.time_s, self.within_s)
            screen.show(self.picture.png(), self.words)

    def _put(self, stage: Playable) -> None:
        self.screen.patch(self.picture, stage.box)

    def _say(self) -> None:
        """Describe the moment below the picture, unless it changes too fast to read."""
        self.text.value = "" if self.playing else line(self.words)
        if not self.playing:
            self.screen.alt = self.words

    def _repr_mimebundle_(self, **options: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the widget, and a picture of the moment for front ends without widgets."""
        bundle: dict[str, Any] = super()._repr_mimebundle_(**options) or {}
        return bundle | {PNG: base64.b64encode(self.picture.png()).decode()}, {PNG: {"alt": self.words}}


class LanesPlayer(FilmPlayer):
    """The film of one stretch of traffic under several rules, with its controls."""

    def __init__(self, comparison: ServerComparison, requests: int | None = None) -> None:
        self.comparison = comparison
        self.seen = stretch_of(comparison, None, None, requests)
        super().__init__(comparison.groups[0].result)

    def __repr__(self) -> str:
        noun = KINDS[self.comparison.scenario.kind].noun
        return f"Film of {counted(len(self.comparison.rules), noun)}, at {self.time_ms:.7g} ms"

    def _picture(self, width_px: int = 900, ratio: float = 1.0, theme: str = "light") -> Lanes:
        return Lanes(self.comparison, self.seen, width_px, ratio, THEMES[theme])

    def load(self, film: Film, stage: Playable) -> None:
        """Load a film, and show its end until it plays."""
        super().load(film, stage)
        if KINDS[self.comparison.scenario.kind].answers_last:  # play the whole stretch in a fixed time
            begin_s, until_s = self.stretch
            wanted = WHOLE_S / (until_s - begin_s)
            self.slowness.value = min(SLOWNESS, key=lambda times: abs(math.log(times / wanted)))
        self.time_s, self.within_s = self.stretch.until_s, 0.0
        self.moment = stage.show(film, self.time_s)
        self._tell()

    @property
    def words(self) -> str:
        """The present moment in a sentence."""
        stage: Any = self.picture.stage
        return str(stage.film.describe(self.time_s))


def film(
    scenario_or_result: Scenario | Result | ServerComparison, requests: int | None = None, seed: int = 0,
    rules: Mapping[str, Rule] | None = None,
) -> FilmPlayer:  # fmt: skip
    """Return a film of a run: requests flow through the queue into the servers, above a timeline.

    For a scenario, it simulates the first `requests` requests, by default 200; for a result, it plays about
    as many from the middle. For the return value of `compare_servers`, or a scenario with `rules` by name, it
    plays about 60 under each rule, side by side. With tokens it plays the picture of `bs.lanes`: about 30
    requests under each rule, one row per seat.

    Show it as the last line of a cell. Without a page, set `time_ms` or click `next`, and read `words`.
    ValueError for a result without columns or with several replications.

    >>> from batchsim import Affine, Constant, Scenario, SizeOrWait
    >>> player = film(Scenario(Constant(1000), SizeOrWait(4, 10), Affine(5, 0.25)), requests=20)
    >>> player.time_ms = 2.5
    >>> player.words
    'At 2.5 ms: waiting for company; 2 waiting, the oldest for 1.5 ms; server idle; 2 arrived, 0 served, ...
    >>> player.next.click()
    >>> player.time_ms
    3.0
    """
    what = scenario_or_result
    if not isinstance(what, (Scenario, Result, ServerComparison)):
        raise TypeError(f"film takes a Scenario, a Result or what compare_servers returns, got {what!r}")
    count = REQUESTS if requests is None else _check.whole("requests", requests)
    if isinstance(what, Result) and rules is None:
        if KINDS[what.scenario.kind].is_staged:
            return FilmPlayer(what, count)
        rule = what.scenario.rule
        group = Group((rule.title,), rule, what)
        return LanesPlayer(ServerComparison(what.scenario, {rule.title: rule}, (group,)), requests)
    if isinstance(what, Scenario) and KINDS[what.kind].is_staged and rules is None:
        return FilmPlayer(simulated(what, count, seed)[0], count)
    if isinstance(what, Result):
        raise ValueError("rules must come with a scenario, got a result, which has its own")
    return LanesPlayer(comparison_of(what, rules, seed=seed), requests)
