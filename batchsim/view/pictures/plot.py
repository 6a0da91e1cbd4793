"""A still picture of one result."""

import math
from typing import overload

from batchsim._format import fixed
from batchsim.device.fidelity import Fidelity
from batchsim.measured.measurement import Measurement
from batchsim.result import Result
from batchsim.servers.comparison import ServerComparison
from batchsim.view.canvas.picture import Box, Tile
from batchsim.view.canvas.theme import PAGE
from batchsim.view.pictures.batches import BatchView
from batchsim.view.pictures.breakdown import BreakdownView, TokenBreakdownView
from batchsim.view.pictures.chart import Chart
from batchsim.view.pictures.data import TokenViewData, ViewData
from batchsim.view.pictures.latency import PERCENTILES, LatencyView
from batchsim.view.pictures.measured import measured, overlay
from batchsim.view.pictures.seats import SeatsView
from batchsim.view.pictures.steps import StepsView
from batchsim.view.pictures.timeline import TimelineView
from batchsim.view.pictures.token_latency import TokenLatencyView
from batchsim.view.pictures.view import RunPicture, View

WIDTH_PX, HEIGHT_PX, LINE_PX = 1000, 640, 26  # the line is what theory says, below the views
VIEWS: tuple[type[View], ...] = (LatencyView, BreakdownView, BatchView, TimelineView)
TOKEN_VIEWS: tuple[type[View], ...] = (TokenLatencyView, TokenBreakdownView, StepsView, SeatsView)


class Plot(RunPicture):
    """Latency, where the time goes, batches and a timeline of one result; of tokens, steps and seats."""

    def __init__(self, result: Result, theory: bool = False) -> None:
        super().__init__(WIDTH_PX, HEIGHT_PX, font_px=PAGE.font_px)
        row_px, wide = (HEIGHT_PX - LINE_PX * theory) // 2, WIDTH_PX // 2
        boxes = (Box(x, y, wide, row_px) for y in (0, row_px) for x in (0, wide))
        tokens = result.scenario.tokens is not None
        kinds, data = (TOKEN_VIEWS, TokenViewData(result)) if tokens else (VIEWS, ViewData(result))
        self.add_views([(kind, box, True) for kind, box in zip(kinds, boxes, strict=True)], PAGE.line_px)
        with self.styled():
            self.show(data)
            if not tokens and not data.overloaded:  # without an interval a percentile has no band
                intervals = result.intervals([f"p{q}_ms" for q in PERCENTILES])
                self.view(LatencyView).show_intervals(intervals)
            if theory:
                below, em_px = Box(0, 2 * row_px, WIDTH_PX, LINE_PX), self.font_px
                at, text = (em_px, below.bottom - 0.8 * em_px), self._show_theory(data)
                self.theory = Tile(self, below).add_text(*at, text, color=self.theme.ink)

    def _show_theory(self, data: ViewData) -> str:
        """Draw what theory expects of a result's scenario, and return what there is to say of it."""
        from batchsim.theory import Answer, expected

        try:
            answer = expected(data.result.scenario)
        except ValueError as unstable:
            return f"no steady state: {unstable}"
        if not answer:
            return repr(answer)
        assert isinstance(answer, Answer)
        if not data.overloaded:
            self.view(LatencyView).show_theory(answer)
        self.view(BatchView).show_theory(answer)
        low, high = data.result.intervals(["mean_latency_ms"])["mean_latency_ms"]
        kind = "theory" if answer.exact else "approximately"
        surely = "" if math.isnan(low) else f", 95% interval {fixed(low, 4)} to {fixed(high, 4)} ms"
        theory = f"{kind}, {answer.model}: mean latency {fixed(answer.mean_latency_ms, 4)} ms"
        return f"{theory}; this run: {fixed(data.result.mean_latency_ms, 4)} ms{surely}"


@overload
def plot(result: Measurement | Fidelity | ServerComparison) -> Chart: ...
@overload
def plot(result: Result, theory: bool = False) -> Plot: ...
def plot(result: Result | Measurement | Fidelity | ServerComparison, theory: bool = False) -> Plot | Chart:
    """Return a figure of a result: latency, where the time goes, batches, and a timeline.

    Of token generation: TTFT, TPOT and answers, where the time goes, steps and memory, and the seats.
    Of what `compare_servers` returns, the latency on each server, from the median to the tail.

    Bands round the percentiles are their 95 % intervals. `theory=True` adds as a dotted line what queueing
    theory expects, or says below why it expects nothing. Of an overloaded run the growing queue is drawn
    instead of the latencies. Of a Measurement, its curve and samples are drawn, and the device's roofline; of
    what `device.compare_with_simulation` returned, the latencies and batches of both runs.

    >>> from batchsim import Affine, Poisson, Scenario, SizeOrWait, simulate
    >>> result = simulate(Scenario(Poisson(800), SizeOrWait(32, 0), Affine(5, 0.25)), requests=5000)
    >>> plot(result, theory=True)
    <Plot size 1000x640 with 4 Axes>
    """
    if isinstance(result, ServerComparison):
        from batchsim.view.pictures.curves import server_curves  # and with it pandas

        return server_curves(result)
    if isinstance(result, Measurement | Fidelity):
        if theory:
            raise ValueError(f"theory must be False for a {type(result).__name__}, got True")
        return measured(result) if isinstance(result, Measurement) else overlay(result)
    if not isinstance(result, Result):
        raise TypeError(f"result must be a Result or a Measurement, got {result!r}")
    if not result.has_columns:
        raise ValueError("a result must have columns to be drawn, got one with keep='summary'")
    if theory and result.scenario.tokens is not None:
        raise ValueError("theory must be False for a result of token generation, got True")
    if result.scenario.tokens is not None:
        _ = result.steps  # ValueError where they are folded, before anything is drawn
    return Plot(result, theory)
