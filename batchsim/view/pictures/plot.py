"""A still picture of one result."""

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any, overload

from matplotlib.axes import Axes

from batchsim import _check
from batchsim._format import fixed
from batchsim.measured.fidelity import Fidelity
from batchsim.measured.measurement import Measurement
from batchsim.result import Result
from batchsim.servers.comparison import ServerComparison
from batchsim.study.calibration import Calibration
from batchsim.view.pictures.curves import search, server_curves
from batchsim.view.pictures.data import ViewData, parts_shown
from batchsim.view.pictures.headline import as_line
from batchsim.view.pictures.measured import calibrated, measured, overlay
from batchsim.view.pictures.picture import Picture, styled
from batchsim.view.pictures.view import View
from batchsim.view.pictures.views import in_words, views_of
from batchsim.view.theme import LIGHT

if TYPE_CHECKING:
    from batchsim.study.recommendation import Recommendation

WIDTH, ROW, DPI = 10.0, 3.2, 100  # inches, and pixels in one
SINGLE = 7.6, 4.4  # inches
FONT, LINE = 8.6, 1.15  # points
OTHERS: dict[type, Any] = {
    ServerComparison: server_curves, Measurement: measured, Calibration: calibrated, Fidelity: overlay,
}  # fmt: skip


def run_picture(result: Result, theory: bool) -> Picture:
    """Return the views that need only a result, in two columns, with its four numbers above them."""
    (data, line), classes = _still(result, theory), views_of_result(result)
    rows = math.ceil(len(classes) / 2)
    with styled(LIGHT, FONT, LINE):
        picture = Picture(figsize=(WIDTH, rows * ROW), dpi=DPI, layout="constrained")
        picture.suptitle(as_line(data), x=0.01, ha="left", fontweight="normal")
        grid = picture.add_gridspec(rows, 2)
        views = {}
        for at, (key, view_class) in enumerate(classes.items()):
            # The last of an odd number has both columns.
            cell = grid[at // 2, at % 2] if at % 2 or at + 1 < len(classes) else grid[at // 2, :]
            count = len(view_class.PANELS)
            if view_class.BESIDE:
                inner = cell.subgridspec(1, count)
            else:
                inner = cell.subgridspec(count, 1, height_ratios=view_class.PANELS)
            views[key] = view_class().draw([picture.add_subplot(inner[at]) for at in range(count)], data)
        words = in_words(views.values(), data)
        if theory:
            picture.supxlabel(line, x=0.01, ha="left", fontsize=FONT)
            words += f" {line[0].upper()}{line[1:]}."
        for view in views.values():
            view.leave()
    picture.words, picture.views = words, views
    return picture


def views_of_result(result: Result) -> dict[str, type[View]]:
    """Return the views that need only a result, by their keys, in the order of `bs.plot`."""
    views = views_of(result.scenario.kind, parts_shown(result.scenario)).items()
    shown = [(key, view) for key, view in views if view.RANK is not None]
    return dict(sorted(shown, key=lambda pair: pair[1].RANK or 0))


def _still(result: Result, theory: bool) -> tuple[ViewData, str]:
    """Return the data of a still picture, and in words what theory expects of the scenario, if asked."""
    data = ViewData(result, is_still=True)
    if not theory:
        return data, ""
    from batchsim.theory import Answer, expected

    try:
        answer = expected(result.scenario)
    except ValueError as unstable:
        return data, f"no steady state: {unstable}"
    if not answer:
        return data, repr(answer)
    assert isinstance(answer, Answer)
    low, high = result.intervals(["mean_latency_ms"])["mean_latency_ms"]
    how = "theory" if answer.exact else "approximately"
    surely = "" if math.isnan(low) else f", 95% interval {fixed(low, 4)} to {fixed(high, 4)} ms"
    words = f"{how}, {answer.model}: mean latency {fixed(answer.mean_latency_ms, 4)} ms"
    words += f"; this run: {fixed(result.mean_latency_ms, 4)} ms{surely}"
    return replace(data, answer=answer), words


@overload
def plot(result: Any, view: str | None = None, *, ax: None = None, theory: bool = False) -> Picture: ...
@overload
def plot(result: Any, view: str | None = None, *, ax: Axes, theory: bool = False) -> Axes: ...
def plot(
    result: "Result | Measurement | Calibration | Fidelity | ServerComparison | Recommendation",
    view: str | None = None, *, ax: Axes | None = None, theory: bool = False,
) -> Picture | Axes:  # fmt: skip
    """Return a figure of a result: latency, where the time goes, batches, and a timeline; or one `view`.

    A result of token generation shows TTFT, TPOT and answers, where the time goes, steps and memory, and the
    seats. An overloaded run shows its growing queue instead of latencies. Bands around the percentiles are
    their 95 % intervals. Requests with sizes add their batches, and the latency by size; several replicas add
    the load and the batch size of each. `theory=True` adds what queueing theory expects as a dotted line, or
    the reason why it expects nothing.

    `view` is "latency", "breakdown", "batches", "timeline", "sizes", "replicas", "steps" or "seats": it is
    drawn into `ax`, under your settings of matplotlib, and the axes are returned; without `ax`, a figure is.
    Other results have other figures, those of `tune` and `compare_servers` with an `ax`, too:

    - from `tune`: all settings of the search, and the full run with a fresh seed;
    - from `compare_servers`: the latency on each server, from the median to the tail;
    - a Measurement: its curve, its samples, and the device's roofline;
    - from `calibrate`: each stage of the load test, measured and simulated;
    - from `device.compare_with_simulation`: the latencies and batches of both runs.

    >>> from batchsim import Affine, Poisson, Scenario, SizeOrWait, simulate
    >>> result = simulate(Scenario(Poisson(800), SizeOrWait(32, 0), Affine(5, 0.25)), requests=5000)
    >>> plot(result, theory=True)
    <Picture size 1000x640 with 4 Axes>
    >>> from matplotlib.figure import Figure
    >>> plot(result, "latency", ax=Figure().subplots()).get_xlabel()
    'latency (ms)'
    """
    if not isinstance(result, Result):
        if view is not None:
            raise ValueError(f"view must be None for a {type(result).__name__}, got {view!r}")
        return _other_picture(result, theory, ax)
    if not result.has_columns:
        raise ValueError("a result must have columns to be drawn, got one with keep='summary'")
    if theory and result.scenario.kind == "tokens":
        raise ValueError("theory must be False for a result of token generation, got True")
    if result.scenario.kind == "tokens":
        _ = result.steps  # ValueError before anything is drawn, if the log is folded
    if view is None:
        if ax is not None:
            raise ValueError(f"ax must come with a view, {_known(result)}, got no view")
        return run_picture(result, theory)
    classes = views_of_result(result)
    if view not in classes:
        hint = _check.nearest(view, classes, True) if isinstance(view, str) else ""
        raise ValueError(f"view must be {_known(result)}, got {view!r}{hint}")
    if ax is not None:
        _check.instance("ax", ax, Axes, "matplotlib Axes")
        _draw(classes[view], ax, _still(result, theory)[0])
        return ax
    with styled(LIGHT, FONT, LINE):
        picture = Picture(figsize=SINGLE, dpi=DPI, layout="constrained")
        picture.words = _draw(classes[view], picture.subplots(), _still(result, theory)[0])
    return picture


def _known(result: Result) -> str:
    return " or ".join(map(repr, views_of_result(result)))


def _draw(view_class: type[View], ax: Axes, data: ViewData) -> str:
    """Draw a view and return it in words."""
    view = view_class().draw(ax, data)
    view.leave()
    return in_words([view], data)


def _other_picture(result: Any, theory: bool, ax: Axes | None) -> Picture | Axes:
    """Return the figure of what is not a Result."""
    draw = next((draw for kind, draw in OTHERS.items() if isinstance(result, kind)), None)
    if draw is None and not hasattr(result, "candidates"):
        raise TypeError(f"result must be a Result or a Measurement, got {result!r}")
    draw = draw or search
    has_ax = draw in (search, server_curves)
    for name, given in (("theory", theory), ("ax", not has_ax and ax)):
        if given:
            raise ValueError(f"{name} must be left out for a {type(result).__name__}, got {given!r}")
    return draw(result, ax) if has_ax else draw(result)
