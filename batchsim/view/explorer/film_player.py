"""A film that stands alone in a cell: requests through queue and servers, or rules side by side."""

import base64
from collections.abc import Callable, Mapping
from typing import Any

from batchsim import _check
from batchsim._format import counted
from batchsim.result import Result
from batchsim.scenario import Rule, Scenario
from batchsim.servers.comparison import Group, ServerComparison
from batchsim.simulate import available, simulated
from batchsim.view.explorer.player import Player
from batchsim.view.film.film import REQUESTS, RequestFilm
from batchsim.view.film.lane_kinds import KINDS, comparison_of, lanes_window
from batchsim.view.film.window import Window, request_window
from batchsim.view.pictures.lanes import Lanes
from batchsim.view.pictures.live import moment_picture
from batchsim.view.pictures.moments import window
from batchsim.view.pictures.picture import PNG, Picture


class FilmPlayer(Player):
    """The film of a run, or of several; `still` draws the picture that a notebook keeps."""

    def __init__(self, window: Window, name: str, still: Callable[[], Picture]) -> None:
        super().__init__()
        self.name, self.still = name, still
        self.load(window)

    def __repr__(self) -> str:
        return f"Film of {self.name}, at {self.time_ms:.7g} ms"

    def _repr_mimebundle_(self, **options: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the widget, and a picture with a description for front ends without widgets."""
        bundle: dict[str, Any] = (super()._repr_mimebundle_(**options) or ({}, {}))[0]
        picture = self.still()
        return bundle | {PNG: base64.b64encode(picture.png()).decode()}, {PNG: {"alt": picture.words}}


def film(
    scenario_or_result: Scenario | Result | ServerComparison, requests: int | None = None, seed: int = 0,
    rules: Mapping[str, Rule] | None = None,
) -> FilmPlayer:  # fmt: skip
    """Return a film of a run: requests flow through the queue into the servers, above a timeline.

    For a scenario, it simulates the first `requests` requests, by default 200; for a result, it plays about
    as many from the middle. For the return value of `compare_servers`, or a scenario with `rules` by name, it
    plays about 60 under each rule, side by side. With tokens it plays the picture of `bs.lanes`: about 30
    requests under each rule, one row per seat.

    Show it as the last line of a cell. Without a page, set `time_ms` or call `next`, and read `words`.
    ValueError for a result without columns or with several replications.

    >>> from batchsim import Affine, Constant, Scenario, SizeOrWait
    >>> player = film(Scenario(Constant(1000), SizeOrWait(4, 10), Affine(5, 0.25)), requests=20)
    >>> player.time_ms = 2.5
    >>> player.words
    'At 2.5 ms: waiting for company; 2 waiting, the oldest for 1.5 ms; server idle; 2 arrived, 0 served, ...
    >>> player.next()
    >>> player.time_ms
    3.0
    """
    what = scenario_or_result
    if not isinstance(what, (Scenario, Result, ServerComparison)):
        raise TypeError(f"film takes a Scenario, a Result or what compare_servers returns, got {what!r}")
    count = REQUESTS if requests is None else _check.whole("requests", requests)
    if isinstance(what, Result):
        if rules is not None:
            raise ValueError("rules must come with a scenario, got a result, which has its own")
        if KINDS[what.scenario.kind].is_staged:
            return FilmPlayer(*run_film(what, count))
        rule = what.scenario.rule
        group = Group((rule.title,), rule, what)
        what = ServerComparison(what.scenario, {rule.title: rule}, (group,))
    elif isinstance(what, Scenario) and KINDS[what.kind].is_staged and rules is None:
        count = available(what, count) if requests is None else count
        return FilmPlayer(*run_film(simulated(what, count, seed)[0], count))
    compared = comparison_of(what, rules, seed=seed)
    window = lanes_window(compared, requests)
    name = counted(len(compared.rules), KINDS[compared.scenario.kind].noun)
    return FilmPlayer(window, name, lambda: Lanes(compared, window.stretch))


def run_film(result: Result, requests: int) -> tuple[Window, str, Callable[[], Picture]]:
    """Return the window of a run, its name, and its still."""
    film = RequestFilm.of(result)  # refuses what has no film
    around = window(result)
    found = request_window(film, (around.begin_s, around.end_s), requests)
    name = counted(min(result.arrival_s.size, requests), "request")
    return found, name, lambda: moment_picture(result)
