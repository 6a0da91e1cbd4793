"""A film in a page, with its own clock and controls and its time for Python: of an explorer, or in a cell."""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import anywidget
import numpy as np
import traitlets

from batchsim import _check
from batchsim._format import counted
from batchsim.engines.estimates import warn_if_large
from batchsim.result import Result
from batchsim.result.moments import window
from batchsim.scenario import Rule, Scenario
from batchsim.servers.comparison import Group, ServerComparison
from batchsim.simulate import available, simulated
from batchsim.view.cell import with_picture
from batchsim.view.film.clip import Clip, request_clip
from batchsim.view.film.film import REQUESTS, PlayRange, RequestFilm
from batchsim.view.film.lane_kinds import KINDS, comparison_of, lanes_clip
from batchsim.view.pictures.lanes import Lanes
from batchsim.view.pictures.picture import Picture
from batchsim.view.pictures.plot import plot
from batchsim.view.scripts import widget
from batchsim.view.theme import looks


class Player(anywidget.AnyWidget):
    """A film; `time_ms` is its time, and `words` describes that moment.

    The page plays it without the kernel, and reports its time when it pauses, or twice a second. Without a
    page, set `time_ms`, or call `next` and `previous`.

    `moment` is the number of the kernel's last order (another film, or another time), the time if it was
    moved, and whether the film plays. A page repeats the number in its reports: one that it sent before the
    order arrived is about another film or another time, and is ignored.

    `followed` is the number of the request that the reader follows.

    `place` is the part of the explorer's picture that the film covers, as fractions; without it the film has
    a place of its own. `theme` is "auto" for the page's own colours.
    """

    _esm = widget(Path(__file__).with_name("player.js"))
    _css = Path(__file__).with_name("player.css").read_text("utf-8")
    film = traitlets.Dict().tag(sync=True)
    looks = traitlets.Dict(looks()).tag(sync=True)
    place: traitlets.List[float] = traitlets.List().tag(sync=True)
    shown = traitlets.Bool(True).tag(sync=True)
    em = traitlets.Float(0.0).tag(sync=True)
    theme = traitlets.Unicode("auto").tag(sync=True)
    moment: traitlets.Tuple = traitlets.Tuple(
        traitlets.Int(), traitlets.Float(allow_none=True), traitlets.Bool(), default_value=(0, None, False)
    ).tag(sync=True)
    followed = traitlets.Int(None, allow_none=True).tag(sync=True)
    clip: Clip | None = None

    def __init__(self) -> None:
        super().__init__()
        self.on_msg(self._receive)

    def load(self, clip: Clip) -> None:
        """Play another clip; one that looks the same keeps its time.

        If a film is playing, the new one continues from its beginning.
        """
        self.clip, film = clip, clip.message()
        if film != self.film:
            with self.hold_sync():
                self.film = film
                self._order(clip.stretch.begin_s if self.playing else None)

    def _order(self, time_s: float | None) -> None:
        number, _, playing = self.moment
        self.moment = number + 1, time_s, playing

    def _receive(self, _: Any, content: dict[str, Any], __: Any) -> None:
        """Take over the moment that a page shows, unless an order is on its way there."""
        match content:
            case {"moment": [number, time_s, playing]} if number == self.moment[0]:
                self.moment = number, time_s, playing

    @property
    def moved_s(self) -> float | None:
        """The film's time, once it was moved."""
        time_s: float | None = self.moment[1]
        return time_s

    @property
    def playing(self) -> bool:
        """Whether a page plays the film."""
        return bool(self.moment[2])

    @property
    def stretch(self) -> PlayRange:
        """The part that is played."""
        return PlayRange(0.0, 0.0) if self.clip is None else self.clip.stretch

    @property
    def time_s(self) -> float:
        if self.moved_s is not None or self.clip is None:
            return self.moved_s or 0.0
        return self.clip.start_s[0]

    @property
    def time_ms(self) -> float:
        """The film's time in ms; ValueError outside the part that is played."""
        return 1000 * self.time_s

    @time_ms.setter
    def time_ms(self, value: float) -> None:
        begin_ms, until_ms = (1000 * time_s for time_s in self.stretch)
        self.go_to(float(_check.real("time_ms", value, at_least=begin_ms, at_most=until_ms)) / 1000)

    @property
    def words(self) -> str:
        """The present moment in a sentence."""
        return "" if self.clip is None else self.clip.said(self.time_s, self._within_s)

    @property
    def line(self) -> int | None:
        """The index of the acting line of the pseudo-code, None if there is none."""
        return None if self.clip is None else self.clip.line(self.time_s, self._within_s)

    @property
    def _within_s(self) -> float:
        return 0.0 if self.clip is None or self.moved_s is not None else self.clip.start_s[1]

    def go_to(self, time_s: float) -> None:
        """Show the moment at a time, or at the nearest end."""
        begin_s, until_s = self.stretch
        self._order(min(max(time_s, begin_s), until_s))

    def next(self) -> None:
        """Go to the next event."""
        self._step(1)

    def previous(self) -> None:
        """Go to the previous event."""
        self._step(-1)

    def play(self) -> None:
        """Play the film in the page, if there is one."""
        self.send({"play": True})

    def pause(self) -> None:
        self.send({"play": False})
        self.moment = (*self.moment[:2], False)

    def _step(self, way: int) -> None:
        if self.clip is None:
            return
        self.pause()
        instants = self.clip.instants
        index = int(np.searchsorted(instants, self.time_s, "right" if way > 0 else "left")) - (way < 0)
        self.go_to(float(instants[min(index, instants.size - 1)]) if index >= 0 else self.stretch.begin_s)


class FilmPlayer(Player):
    """The film of a run, or of several; `still` draws the picture that a notebook keeps."""

    def __init__(self, clip: Clip, name: str, still: Callable[[], Picture]) -> None:
        super().__init__()
        self.name, self.still = name, still
        self.load(clip)

    def __repr__(self) -> str:
        return f"Film of {self.name}, a{self.words.partition(': ')[0][1:]}"

    def _repr_mimebundle_(self, **options: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the widget, and a picture with a description for front ends without widgets."""
        picture = self.still()
        return with_picture(super()._repr_mimebundle_(**options), picture.png(), picture.words)


def film(
    scenario_or_result: Scenario | Result | ServerComparison, requests: int | None = None, seed: int = 0,
    rules: Mapping[str, Rule] | None = None, names: Iterable[str] = (),
) -> FilmPlayer:  # fmt: skip
    """Return a film of a run: requests flow through the queue into the servers, above a timeline.

    For a scenario, it simulates the first `requests` requests, by default 200; for a result, it plays about
    as many from the middle. For the return value of `compare_servers`, or a scenario with `rules` by name, it
    plays about 60 under each rule, side by side. With tokens it plays the picture of `bs.lanes`: about 30
    requests under each rule, one row per seat. `names`: of the first requests, in place of their numbers.

    Show it as the last line of a cell. Without a page, set `time_ms` or call `next`, and read `words`.
    ValueError for a result without columns or with several replications.

    >>> from batchsim import Affine, Constant, Scenario, SizeOrWait
    >>> player = film(Scenario(Constant(1000), SizeOrWait(4, 10), Affine(5, 0.25)), requests=20)
    >>> player.time_ms = 2.5
    >>> player.words
    'At 2.50 ms: waiting for company; 2 waiting, the oldest for 1.5 ms; server idle; 2 arrived, 0 served, ...
    >>> player.next()
    >>> player.time_ms
    3.0
    """
    what = scenario_or_result
    if not isinstance(what, (Scenario, Result, ServerComparison)):
        raise TypeError(f"film takes a Scenario, a Result or what compare_servers returns, got {what!r}")
    called: list[Any] = [*names] if _check.listed(names) else [names]
    if not all(isinstance(each, str) for each in called):
        raise TypeError(f"names must be a list of text, got {names!r}")
    count = REQUESTS if requests is None else _check.whole("requests", requests)
    if isinstance(what, Result):
        if rules is not None:
            raise ValueError("rules must come with a scenario, got a result, which has its own")
        if KINDS[what.scenario.kind].is_staged:
            return FilmPlayer(*run_film(what, count, called))
        rule = what.scenario.rule
        group = Group((rule.title,), rule, what)
        what = ServerComparison(what.scenario, {rule.title: rule}, (group,))
    elif isinstance(what, Scenario) and KINDS[what.kind].is_staged and rules is None:
        count = available(what, count) if requests is None else count
        warn_if_large(what, count)
        return FilmPlayer(*run_film(simulated(what, count, seed)[0], count, called))
    if called:
        raise ValueError(f"names must be of the requests of one run without tokens, got {called!r}")
    compared = comparison_of(what, rules, seed=seed)
    clip = lanes_clip(compared, requests)
    name = counted(len(compared.rules), KINDS[compared.scenario.kind].noun)
    return FilmPlayer(clip, name, lambda: Lanes(compared, clip.stretch))


def run_film(result: Result, requests: int, names: list[str]) -> tuple[Clip, str, Callable[[], Picture]]:
    """Return the clip of a run, its name, and its still."""
    film = RequestFilm.of(result)  # refuses what has no film
    around = window(result)
    found = request_clip(film, (around.begin_s, around.end_s), requests).from_first()
    found.lanes[0]["names"] = names
    name = counted(min(result.arrival_s.size, requests), "request")
    return found, name, lambda: plot(result, "timeline")
