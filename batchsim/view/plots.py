"""Pictures: a figure of several views, and that of one result."""

import math
from collections.abc import Callable
from io import BytesIO
from typing import Any

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.gridspec import SubplotSpec
from PIL import Image

from batchsim.result import Result
from batchsim.view.views import GREEN, BatchView, LatencyView, PartsView, TimelineView, View, interval


class Picture(Figure):
    """A figure without pyplot that shows itself in a notebook and renders fast."""

    def __init__(
        self, views: list[Callable[[Figure, SubplotSpec], View]], bottom: float = 0.08, **options: Any
    ) -> None:
        super().__init__(**options)
        self.agg = FigureCanvasAgg(self)
        columns = math.ceil(math.sqrt(len(views)))
        # Fixed margins: a layout that is found anew each time is slow, and jumps.
        margins = {"left": 0.07, "right": 0.97, "bottom": bottom, "top": 0.95, "wspace": 0.2, "hspace": 0.33}
        grid = self.add_gridspec(math.ceil(len(views) / columns), columns, **margins)
        self.views = [view(self, grid[i // columns, i % columns]) for i, view in enumerate(views)]

    def show_result(self, result: Result) -> None:
        """Update every view."""
        for view in self.views:
            view.update(result)

    def png(self) -> bytes:
        """Return the figure as PNG, packed lightly: speed matters more than size here."""
        self.agg.draw()
        packed = BytesIO()
        Image.fromarray(np.asarray(self.agg.buffer_rgba())).save(packed, "PNG", compress_level=1)
        return packed.getvalue()

    def _repr_png_(self) -> bytes:
        packed = BytesIO()
        self.savefig(packed, format="png")
        return packed.getvalue()


def plot(result: Result, theory: bool = False) -> Picture:
    """Return a figure of a result: latency, where the time goes, batches, and a timeline.

    Bands round the percentiles are their 95 % intervals. `theory=True` draws what queueing theory
    expects over it, in green, or says below why it expects nothing.

    >>> from batchsim import Affine, Poisson, Scenario, SizeOrWait, simulate
    >>> result = simulate(Scenario(Poisson(800), SizeOrWait(32, 0), Affine(5, 0.25)), requests=5000)
    >>> plot(result, theory=True)
    <Picture size 1000x640 with 4 Axes>
    """
    if not isinstance(result, Result):
        raise TypeError(f"result must be a Result, got {result!r}")
    if result.columns is None:
        raise ValueError("a result must have columns to be drawn, got one with keep='summary'")
    views: list[Callable[[Figure, SubplotSpec], View]] = [LatencyView, PartsView, BatchView, TimelineView]
    picture = Picture(views, bottom=0.12 if theory else 0.08, figsize=(10, 6.4), dpi=100)
    picture.show_result(result)
    for view in picture.views:
        if isinstance(view, LatencyView):
            view.show_intervals(result)
    if theory:
        picture.text(0.01, 0.008, _show_theory(picture, result), color=GREEN, fontsize="small")
    return picture


def _show_theory(picture: Picture, result: Result) -> str:
    """Draw what theory expects of a result's scenario, and return what there is to say of it."""
    from batchsim.theory import Answer, expected

    try:
        answer = expected(result.scenario)
    except ValueError as unstable:
        return f"no steady state: {unstable}"
    if not answer:
        return repr(answer)
    assert isinstance(answer, Answer)
    for view in picture.views:
        if isinstance(view, (LatencyView, BatchView)):
            view.show_theory(answer)
    low, high = interval(result, "mean_latency_ms")
    kind = "theory" if answer.exact else "approximately"
    sure = "" if math.isnan(low) else f", 95 % interval {low:.4g} to {high:.4g} ms"
    return (
        f"{kind}, {answer.model}: mean latency {answer.mean_latency_ms:.4g} ms; "
        f"this run: {result.mean_latency_ms:.4g} ms{sure}"
    )
