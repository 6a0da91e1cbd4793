"""Curves: what can be had of a grid of settings, and a number along one knob."""

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from batchsim.view.chart import Chart, axis_label, check_columns, different, scale, show_legend, texts
from batchsim.view.views import BLACK, BLUE, GREEN, GREY, ORANGE, PURPLE, SKY, VERMILION

if TYPE_CHECKING:
    from batchsim.study.recommendation import Recommendation

LABELLED = 8  # points of the frontier that have their setting beside them
LOOKS = (
    (BLUE, "-", "o"), (VERMILION, "--", "s"), (GREEN, "-.", "^"), (PURPLE, ":", "D"),
    (ORANGE, "-", "v"), (SKY, "--", "P"), (BLACK, "-.", "X"),
)  # fmt: skip
LATEST: dict[str, Any] = {
    "zorder": 5,
    "linestyle": "none",
    "markeredgecolor": BLACK,
}  # marks that lie on the lines


def frontier(
    found: "Recommendation | pandas.DataFrame", value: str | None = None, objective: float | None = None
) -> Chart:
    """Return a picture of what can be had: latency against capacity, for each number of servers.

    `found` is what `tune` or `sweep` returned. Lines join the settings of which none other is better in
    latency, capacity and servers alike; the others are grey. A star marks the recommended one. Of a sweep
    `value` is the latency, by default the p99; a recommendation says both it and the objective.

    >>> from batchsim import Affine, Poisson, Scenario, SizeOrWait
    >>> from batchsim.study.sweep import sweep
    >>> scenario = Scenario(Poisson(800), SizeOrWait(32, 10), Affine(5, 0.25))
    >>> frontier(sweep(scenario, {"max_batch_size": [8, 16, 32]}, 2000, progress=False))
    <Chart size 760x520 with 1 Axes>
    """
    front, star = None, None
    if isinstance(found, pandas.DataFrame):
        check_columns(found, "requests")
        frame, knobs = found, list(found.columns[: list(found.columns).index("requests")])
        value = "p99_ms" if value is None else value
    elif hasattr(found, "candidates"):
        frame, front, knobs, value = found.candidates, found.frontier, list(found.knobs), found.slo.latency[0]
        star = frame[frame["fate"].isin(["recommended", "nearest"])].iloc[0]
        objective = next((o.limit for o in found.slo.objectives if o.key == value), None)
    else:
        raise TypeError(f"found must be a Recommendation, or a DataFrame of a sweep, got {found!r}")
    check_columns(frame, value, "capacity_per_s")
    ran = frame[_feasible(frame, value)]
    if front is None:
        front = ran[_undominated(ran, value)]

    chart = Chart()
    ax = chart.add_subplot()
    handles: list[Any] = ax.plot(ran["capacity_per_s"], ran[value], ".", color=GREY, label="other settings")
    for number, (label, line) in enumerate(_by_servers(front)):
        colour, style, marker = LOOKS[number % len(LOOKS)]
        line = line.sort_values("capacity_per_s")
        handles += ax.plot(
            line["capacity_per_s"], line[value], style, marker=marker, color=colour, label=label,
            drawstyle="steps-pre",
        )  # fmt: skip
    title = "What can be had: low latency or much capacity"
    shown = [knob for knob in knobs if knob != "servers" and front[knob].nunique() > 1]
    if shown and len(front) <= LABELLED:
        title += f"\nbeside each point: {', '.join(map(axis_label, shown))}"
        for _, row in front.iterrows():
            at = row["capacity_per_s"], row[value]
            text = ", ".join(texts(row[knob] for knob in shown))
            ax.annotate(text, at, xytext=(6, 6), textcoords="offset points", fontsize=8)
    if star is not None and math.isfinite(star[value]):
        at, label = (star["capacity_per_s"], star[value]), star["fate"]
        handles += ax.plot(*at, "*", markersize=17, color=ORANGE, label=label, **LATEST)
    handles += _show_objective(ax, value, objective)
    scale(ax, ran[value], objective)
    ax.set(xlabel="capacity in full batches (requests per s)", ylabel=axis_label(value))
    ax.set_title(title, fontsize="medium")
    ax.margins(x=0.1)
    ax.grid(alpha=0.3)
    show_legend(chart, handles)
    return chart


def capacity_curves(
    frames: "pandas.DataFrame | Mapping[str, pandas.DataFrame]",
    x: str = "rate_per_s",
    value: str = "p99_ms",
    objective: float | None = None,
) -> Chart:
    """Return a picture of a number along one knob, as the rate: a line for each of {label: frame}.

    A frame is what `sweep` returned, or `Capacity.to_frame()`, with one row for each value of `x`. Bands are
    95 % intervals. Points without a steady state have no number: they are crosses at the top. Diamonds mark
    where a line crosses the objective, by interpolation between two points.

    >>> from batchsim import Affine, Poisson, Scenario, SizeOrWait
    >>> from batchsim.study.sweep import sweep
    >>> scenario = Scenario(Poisson(800), SizeOrWait(32, 10), Affine(5, 0.25))
    >>> frame = sweep(scenario, {"rate_per_s": [500, 1000, 2000]}, 2000, progress=False)
    >>> capacity_curves({"a wait of 10 ms": frame}, objective=20)
    <Chart size 760x520 with 1 Axes>
    """
    named = dict(frames) if isinstance(frames, Mapping) else {"": frames}
    if not named:
        raise ValueError("frames must have at least one, got none")
    for name, frame in named.items():
        check_columns(frame, x, value)
        if frame[x].duplicated().any():
            which = f" of {name!r}" if name else ""
            raise ValueError(f"a curve{which} must have one row for each {x}: choose among the other knobs")
    levels = different(each for frame in named.values() for each in frame[x])
    numeric = all(isinstance(level, (int, float)) and math.isfinite(level) for level in levels)
    chart = Chart()
    ax = chart.add_subplot()
    handles: list[Any] = []
    drawn: list[float] = []
    for number, (name, frame) in enumerate(named.items()):
        colour, style, marker = LOOKS[number % len(LOOKS)]
        place = np.array([each if numeric else levels.index(each) for each in frame[x]], float)
        order = np.argsort(place)
        frame, place = frame.iloc[order], place[order]
        there = _feasible(frame, value)
        at, numbers, label = place[there], frame[value].to_numpy(float)[there], name or axis_label(value)
        crossings = _crossings(at, numbers, objective) if numeric and objective is not None else []
        if crossings:
            label += f"; {objective:g} at {', '.join(f'{crossing:,.4g}' for crossing in crossings)}"
            ax.plot(crossings, np.full(len(crossings), objective), "D", color=colour, **LATEST)
        handles += ax.plot(at, numbers, style, marker=marker, markersize=4, color=colour, label=label)
        drawn += numbers.tolist()
        if f"{value}_low" in frame:
            low, high = (frame[f"{value}_{end}"].to_numpy(float)[there] for end in ("low", "high"))
            ax.fill_between(at, low, high, color=colour, alpha=0.18, linewidth=0)
        top = np.full(place[~there].size, 0.97)
        ax.plot(place[~there], top, "x", color=colour, transform=ax.get_xaxis_transform())
    if len(drawn) < sum(map(len, named.values())):
        label = "overloaded, or not possible"
        handles.append(Line2D([], [], color=BLACK, marker="x", linestyle="none", label=label))
    handles += _show_objective(ax, value, objective)
    scale(ax, drawn, objective)
    if not numeric:
        ax.set_xticks(range(len(levels)), texts(levels))
    ax.set(xlabel=axis_label(x), ylabel=axis_label(value))
    ax.set_title(f"{axis_label(value)} by {axis_label(x)}", fontsize="medium")
    ax.grid(alpha=0.3)
    show_legend(chart, handles)
    return chart


def _feasible(frame: pandas.DataFrame, value: str) -> np.ndarray:
    """Return which rows have a steady state, and a number."""
    there = np.isfinite(frame[value].to_numpy(float))
    return there & (frame["infeasible"] == "").to_numpy() if "infeasible" in frame else there


def _undominated(frame: pandas.DataFrame, value: str) -> np.ndarray:
    """Return which rows no other is at least as good as in all, and better in one."""
    costs = np.stack([frame[value], -frame["capacity_per_s"], frame.get("servers", frame[value])], axis=-1)
    better = [((costs <= row).all(axis=1) & (costs < row).any(axis=1)).any() for row in costs]
    return ~np.array(better, dtype=bool)


def _by_servers(front: pandas.DataFrame) -> "list[tuple[str, pandas.DataFrame]]":
    if "servers" not in front:
        return [("Pareto frontier", front)]
    return [
        (f"{count} server{'' if count == 1 else 's'}", front[front["servers"] == count])
        for count in different(front["servers"])
    ]


def _crossings(x: np.ndarray, numbers: np.ndarray, objective: float) -> list[float]:
    """Return where the line through the points crosses the objective.

    >>> _crossings(np.array([1.0, 2.0, 4.0]), np.array([5.0, 15.0, 5.0]), 10)
    [1.5, 3.0]
    """
    above = numbers > objective
    before = np.flatnonzero(above[1:] != above[:-1])
    share = (objective - numbers[before]) / (numbers[before + 1] - numbers[before])
    return (x[before] + share * (x[before + 1] - x[before])).tolist()


def _show_objective(ax: Axes, value: str, objective: float | None) -> list[Any]:
    if objective is None:
        return []
    name = f"objective: {axis_label(value)} = {objective:g}"
    return [ax.axhline(objective, color=BLACK, linewidth=1.2, linestyle=(0, (6, 3)), label=name)]
