"""One stretch of traffic under several rules: a lane each, over one time axis."""

import math
from collections.abc import Mapping

import numpy as np

from batchsim import _check
from batchsim.result import Result
from batchsim.scenario import Rule, Scenario
from batchsim.servers.comparison import ServerComparison, compare_servers
from batchsim.view.canvas.axes import nice
from batchsim.view.canvas.picture import Picture
from batchsim.view.canvas.theme import LIGHT, PAGE, THEMES, Theme, named
from batchsim.view.film.lanes_view import LanesView
from batchsim.view.film.snapshot import PlayRange
from batchsim.view.film.token_lanes import TokenLanesView

WIDTH_PX = 960
KINDS = {"requests": LanesView, "tokens": TokenLanesView}  # by the scenario's kind


class Lanes(Picture):
    """A comparison of servers as lanes over one time axis; `stage` draws it until a moment."""

    def __init__(
        self, comparison: ServerComparison, stretch: PlayRange, width_px: int = WIDTH_PX, ratio: float = 1.0,
        theme: Theme = LIGHT,
    ) -> None:  # fmt: skip
        em = PAGE.em_px(width_px)
        view = KINDS[comparison.scenario.kind]
        height = view.height_em(comparison, stretch, theme, width_px / em)
        super().__init__(width_px, round(height * em), ratio, theme, em)
        self.comparison = comparison
        with self.styled():
            self.stage = view(self, comparison, stretch)

    @property
    def words(self) -> str:
        """A description of the picture."""
        return self.stage.words


def stretch_of(
    comparison: ServerComparison, begin_s: float | None, length_s: float | None, requests: int | None = None
) -> PlayRange:
    """Return the stretch to show: by default some requests from the middle of the trace.

    For token generation, it begins at 0 if a queue grows without bound, as rules then serve different
    requests later; and it ends at the last answer if all requests are shown.
    """
    arrival_s, view = comparison.groups[0].result.arrival_s, KINDS[comparison.scenario.kind]
    requests = requests or view.shown
    first = min(arrival_s.size // 2, max(arrival_s.size - requests, 0))
    grows = not all(group.stable for group in comparison.groups)
    begin, end = float(arrival_s[first]), max(_last_s(group.result) for group in comparison.groups)
    if view.answers_last:  # answers take seconds: round to tenths
        begin = 0.0 if grows else math.floor(10 * begin) / 10
    if begin_s is not None:
        begin = float(_check.real("begin_s", begin_s, at_least=0))
        if begin >= end:
            raise ValueError(f"begin_s must be before the last answer, at {end:.4g} s, got {begin:.6g}")
    if length_s is None:
        last = min(int(arrival_s.searchsorted(begin)) + requests, arrival_s.size - 1)
        whole = view.answers_last and arrival_s.size <= requests
        length_s = nice(max((end if whole else float(arrival_s[last])) - begin, 1e-3))
    length = float(_check.real("length_s", length_s, above=0))
    return PlayRange(begin, begin + length)


def _last_s(result: Result) -> float:
    """Return when the last answer comes, or the last request if there is no answer."""
    return max(float(result.arrival_s[-1]), float(np.nanmax(result.finish_s, initial=0.0)))


def comparison_of(
    what: ServerComparison | Scenario, rules: Mapping[str, Rule] | None, requests: int | None = None,
    seed: int = 0,
) -> ServerComparison:  # fmt: skip
    """Return a comparison for lanes: the given one, or that of a scenario under rules by name."""
    if isinstance(what, Scenario):
        view = KINDS[what.kind]
        rules = view.usual_rules(what) if rules is None else rules
        if not rules:
            raise ValueError(f"rules must have at least one, got {rules!r}")
        return compare_servers(what, rules, requests=requests or view.simulated, seed=seed)
    if rules is not None:
        raise ValueError("rules must come with a scenario, got a comparison, which has its own")
    return what


def lanes(
    what: ServerComparison | Scenario, rules: Mapping[str, Rule] | None = None, begin_s: float | None = None,
    length_s: float | None = None, width_px: int = WIDTH_PX, theme: str = "light",
) -> Lanes:  # fmt: skip
    """Return a picture of one stretch of traffic under several rules, a lane each.

    `what` is the return value of `compare_servers`, or a scenario with the `rules` to compare, by name. A
    lane shows the length of the queue (forming while a server is idle, otherwise queueing), and below it the
    batches with their sizes. The stretch begins at `begin_s` and lasts `length_s`, by default about 60
    requests from the middle. `words` describes the picture.

    With tokens a lane has a row for each seat. A prompt fills the height of its row; a step that makes one
    token is lower. Seats are hatched if they are empty while others compute, or if they belong to a whole
    batch and their answer is complete. The numbers of the whole run are on the left. Without `rules`, the
    lanes compare whole batches, size or wait, and continuous batching.

    >>> from batchsim import Affine, FrozenBatches, Poisson, Scenario, SizeOrWait
    >>> scenario = Scenario(Poisson(80), SizeOrWait(), Affine(47, 3.6))
    >>> lanes(scenario, {"grows": SizeOrWait(32, 50), "frozen": FrozenBatches(32, 60)}, length_s=1)
    <Lanes size 960x265 with 1 Axes>
    """
    if not isinstance(what, (ServerComparison, Scenario)):
        raise TypeError(f"lanes takes a Scenario or what compare_servers returns, got {what!r}")
    compared = comparison_of(what, rules)
    _check.whole("width_px", width_px, at_least=320)
    return Lanes(
        compared, stretch_of(compared, begin_s, length_s), width_px, theme=named("theme", theme, THEMES)
    )
