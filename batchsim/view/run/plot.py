"""A still picture of one result."""

import math

from batchsim.result import Result
from batchsim.view.canvas.picture import Box, Picture, Tile
from batchsim.view.canvas.theme import PAGE
from batchsim.view.canvas.view import interval, overloaded
from batchsim.view.run.batches import BatchView, TimelineView
from batchsim.view.run.breakdown import PartsView
from batchsim.view.run.latency import LatencyView
from batchsim.view.run.ranked import Ranked

WIDTH_PX, HEIGHT_PX, LINE_PX = 1000, 640, 26  # the line is what stands below of theory


class Plot(Picture):
    """Latency, where the time goes, batches and a timeline of one result."""

    def __init__(self, result: Result, theory: bool = False) -> None:
        super().__init__(WIDTH_PX, HEIGHT_PX, font_px=PAGE.font_px)
        width, height = WIDTH_PX // 2, (HEIGHT_PX - LINE_PX * theory) // 2
        boxes = [Box(x, y, width, height) for y in (0, height) for x in (0, width)]
        with self.look():
            self.latency = LatencyView(self, boxes[0])
            self.parts = PartsView(self, boxes[1])
            self.batches = BatchView(self, boxes[2])
            self.timeline = TimelineView(self, boxes[3])
            ranked = Ranked(result)
            self.latency.update(result, ranked)
            self.parts.update(result, ranked)
            self.batches.update(result)
            self.timeline.update(result)
            if not overloaded(result):
                self.latency.show_intervals(result)
            if theory:
                below, em_px = Box(0, 2 * height, WIDTH_PX, LINE_PX), self.font_px
                words = self._show_theory(result)
                self.told = Tile(self, below).add_text(
                    em_px, below.bottom - 0.8 * em_px, words, color=self.theme.green
                )

    def _show_theory(self, result: Result) -> str:
        """Draw what theory expects of a result's scenario, and return what there is to say of it."""
        from batchsim.theory import Answer, expected

        try:
            answer = expected(result.scenario)
        except ValueError as unstable:
            return f"no steady state: {unstable}"
        if not answer:
            return repr(answer)
        assert isinstance(answer, Answer)
        if not overloaded(result):
            self.latency.show_theory(answer)
        self.batches.show_theory(answer)
        low, high = interval(result, "mean_latency_ms")
        kind = "theory" if answer.exact else "approximately"
        sure = "" if math.isnan(low) else f", 95 % interval {low:.4g} to {high:.4g} ms"
        return (
            f"{kind}, {answer.model}: mean latency {answer.mean_latency_ms:.4g} ms; "
            f"this run: {result.mean_latency_ms:.4g} ms{sure}"
        )


def plot(result: Result, theory: bool = False) -> Plot:
    """Return a figure of a result: latency, where the time goes, batches, and a timeline.

    Bands round the percentiles are their 95 % intervals. `theory=True` draws what queueing theory
    expects over it, in green, or says below why it expects nothing. Of an overloaded run the growing queue
    stands in the place of the latencies.

    >>> from batchsim import Affine, Poisson, Scenario, SizeOrWait, simulate
    >>> result = simulate(Scenario(Poisson(800), SizeOrWait(32, 0), Affine(5, 0.25)), requests=5000)
    >>> plot(result, theory=True)
    <Plot size 1000x640 with 4 Axes>
    """
    if not isinstance(result, Result):
        raise TypeError(f"result must be a Result, got {result!r}")
    if not result.has_columns:
        raise ValueError("a result must have columns to be drawn, got one with keep='summary'")
    return Plot(result, theory)
