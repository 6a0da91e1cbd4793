"""A still picture of one result."""

import math
from typing import TYPE_CHECKING, overload

from batchsim._format import fixed
from batchsim.device.fidelity import Fidelity
from batchsim.measured.measurement import Measurement
from batchsim.result import Result
from batchsim.servers.comparison import ServerComparison
from batchsim.study.calibration import Calibration
from batchsim.view.canvas.picture import Box, Tile
from batchsim.view.canvas.theme import PAGE
from batchsim.view.pictures.chart import Chart
from batchsim.view.pictures.data import ViewData, parts_of
from batchsim.view.pictures.measured import calibrated, measured, overlay
from batchsim.view.pictures.views import RunPicture, views_of

if TYPE_CHECKING:
    from batchsim.study.recommendation import Recommendation

WIDTH_PX, ROW_PX, LINE_PX = 1000, 320, 26  # the line is the theory's, below the views


class Plot(RunPicture):
    """The views that need only a result, in two columns."""

    def __init__(self, result: Result, theory: bool = False) -> None:
        views = [*views_of(result.scenario.kind, parts_of(result.scenario)).values()]
        views = [view for view in views if view.RANK is not None]
        views.sort(key=lambda view: view.RANK or 0)
        rows, data = math.ceil(len(views) / 2), ViewData(result)
        super().__init__(WIDTH_PX, rows * ROW_PX, font_px=PAGE.font_px)
        row_px, wide = (rows * ROW_PX - LINE_PX * theory) // rows, WIDTH_PX // 2
        boxes = [Box(x, y * row_px, wide, row_px) for y in range(rows) for x in (0, wide)]
        if len(views) % 2:  # the last has both columns
            boxes[len(views) - 1] = Box(0, boxes[-1].top, WIDTH_PX, row_px)
        self.add_views([(view, box, True) for view, box in zip(views, boxes, strict=False)], PAGE.line_px)
        with self.styled():
            self.show(data)
            for view in self.views:
                view.show_intervals(data)
            if theory:
                below, em_px = Box(0, rows * row_px, WIDTH_PX, LINE_PX), self.font_px
                at, text = (em_px, below.bottom - 0.8 * em_px), self._show_theory(data)
                self.theory = Tile(self, below).add_text(*at, text, color=self.theme.ink)

    def _show_theory(self, data: ViewData) -> str:
        """Draw what theory expects of the scenario, and return it in words."""
        from batchsim.theory import Answer, expected

        try:
            answer = expected(data.result.scenario)
        except ValueError as unstable:
            return f"no steady state: {unstable}"
        if not answer:
            return repr(answer)
        assert isinstance(answer, Answer)
        for view in self.views:
            view.show_theory(answer, data)
        low, high = data.result.intervals(["mean_latency_ms"])["mean_latency_ms"]
        kind = "theory" if answer.exact else "approximately"
        surely = "" if math.isnan(low) else f", 95% interval {fixed(low, 4)} to {fixed(high, 4)} ms"
        theory = f"{kind}, {answer.model}: mean latency {fixed(answer.mean_latency_ms, 4)} ms"
        return f"{theory}; this run: {fixed(data.result.mean_latency_ms, 4)} ms{surely}"


@overload
def plot(result: "Measurement | Calibration | Fidelity | ServerComparison | Recommendation") -> Chart: ...
@overload
def plot(result: Result, theory: bool = False) -> Plot: ...
def plot(
    result: "Result | Measurement | Calibration | Fidelity | ServerComparison | Recommendation",
    theory: bool = False,
) -> Plot | Chart:
    """Return a figure of a result: latency, where the time goes, batches, and a timeline.

    A result of token generation shows TTFT, TPOT and answers, where the time goes, steps and memory, and the
    seats. An overloaded run shows its growing queue instead of latencies. Bands around the percentiles are
    their 95 % intervals. Requests with sizes add their batches, and the latency by size;
    several replicas add the load and the batch size of each. `theory=True` adds
    what queueing theory expects as a dotted line, or the reason why it expects nothing. Other
    results have other figures:

    - from `tune`: the race of the settings, round by round, to the full run with a fresh seed;
    - from `compare_servers`: the latency on each server, from the median to the tail;
    - a Measurement: its curve, its samples, and the device's roofline;
    - from `calibrate`: each stage of the load test, measured and simulated;
    - from `device.compare_with_simulation`: the latencies and batches of both runs.

    >>> from batchsim import Affine, Poisson, Scenario, SizeOrWait, simulate
    >>> result = simulate(Scenario(Poisson(800), SizeOrWait(32, 0), Affine(5, 0.25)), requests=5000)
    >>> plot(result, theory=True)
    <Plot size 1000x640 with 4 Axes>
    """
    if isinstance(result, ServerComparison):
        from batchsim.view.pictures.curves import server_curves  # and with it pandas

        return server_curves(result)
    if not isinstance(result, Result | Measurement | Calibration | Fidelity) and hasattr(result, "rounds"):
        from batchsim.view.pictures.race import race

        return race(result)
    if isinstance(result, Measurement | Calibration | Fidelity):
        if theory:
            raise ValueError(f"theory must be False for a {type(result).__name__}, got True")
        if isinstance(result, Calibration):
            return calibrated(result)
        return measured(result) if isinstance(result, Measurement) else overlay(result)
    if not isinstance(result, Result):
        raise TypeError(f"result must be a Result or a Measurement, got {result!r}")
    if not result.has_columns:
        raise ValueError("a result must have columns to be drawn, got one with keep='summary'")
    if theory and result.scenario.kind == "tokens":
        raise ValueError("theory must be False for a result of token generation, got True")
    if result.scenario.kind == "tokens":
        _ = result.steps  # ValueError before anything is drawn, if the log is folded
    return Plot(result, theory)
