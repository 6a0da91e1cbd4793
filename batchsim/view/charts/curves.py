"""Curves: what can be had of a grid of settings, and a number along one knob."""

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from batchsim._format import number as plain
from batchsim.view.canvas.theme import BLACK, BLUE, GREEN, GREY, ORANGE, PURPLE, SKY, VERMILION
from batchsim.view.charts.chart import (
    Chart,
    axis_label,
    check_columns,
    different,
    of_served_alone,
    p99_of_all,
    room_above,
    scale,
    show_legend,
    texts,
)

if TYPE_CHECKING:
    from batchsim.study.capacity import Capacity
    from batchsim.study.recommendation import Recommendation

AT_THE_TOP = 0.96  # of the height: where crosses are
LABELLED = 8  # points of the frontier that have their setting beside them
LOOKS = (
    (BLUE, "-", "o"), (VERMILION, "--", "s"), (GREEN, "-.", "^"), (PURPLE, ":", "D"),
    (ORANGE, "-", "v"), (SKY, "--", "P"), (BLACK, "-.", "X"),
)  # fmt: skip
HOLLOW: dict[str, Any] = {"markerfacecolor": "white", "zorder": 4}
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
    latency, capacity and servers alike; the others are grey, but for those that `tune` ran shorter than the
    recommended one, which a star marks. Of a sweep `value` is the latency, by default the p99 of all
    requests, in which one that is not served is infinitely late; a recommendation says both it and the
    objective.

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
        value = p99_of_all(found) if value is None else value
    elif hasattr(found, "candidates"):
        frame, front, knobs, value = found.candidates, found.frontier, list(found.knobs), found.slo.latency[0]
        star = frame[frame["fate"].isin(["recommended", "nearest"])].iloc[0]
        objective = next((o.limit for o in found.slo.objectives if o.key == value), None)
    else:
        raise TypeError(f"found must be a Recommendation, or a DataFrame of a sweep, got {found!r}")
    check_columns(frame, value, "saturation_per_s")
    ran = frame[_feasible(frame, value)]
    if front is None:
        front = ran[_undominated(ran, value)]
    if star is not None and "requests" in ran:  # a short run sees less of a queue, and more of chance
        ran = ran[ran["requests"] >= star["requests"]]

    chart = Chart()
    ax = chart.add_subplot()
    handles: list[Any] = ax.plot(ran["saturation_per_s"], ran[value], ".", color=GREY, label="other settings")
    for number, (label, line) in enumerate(_by_servers(front)):
        colour, style, marker = LOOKS[number % len(LOOKS)]
        line = line.sort_values("saturation_per_s")
        handles += ax.plot(
            line["saturation_per_s"], line[value], style, marker=marker, color=colour, label=label,
            drawstyle="steps-pre",
        )  # fmt: skip
    title = "What can be had: low latency or much capacity"
    shown = [knob for knob in knobs if knob != "servers" and front[knob].nunique() > 1]
    if shown and len(front) <= LABELLED:
        title += f"\nbeside each point: {', '.join(map(axis_label, shown))}"
        for _, row in front.iterrows():
            at = row["saturation_per_s"], row[value]
            text = ", ".join(texts(row[knob] for knob in shown))
            ax.annotate(text, at, xytext=(6, 6), textcoords="offset points", fontsize=8)
    if star is not None and math.isfinite(star[value]):
        at, label = (star["saturation_per_s"], star[value]), star["fate"]
        handles += ax.plot(*at, "*", markersize=17, color=ORANGE, label=label, **LATEST)
    handles += _show_objective(ax, value, objective)
    scale(ax, [*ran[value], *front[value]], objective)
    ax.set(xlabel="capacity in full batches (requests per s)", ylabel=axis_label(value))
    ax.set_title(title, fontsize="medium")
    ax.margins(x=0.1)
    ax.grid(alpha=0.3)
    show_legend(chart, handles)
    return chart


def capacity_curves(
    frames: "pandas.DataFrame | Capacity | Mapping[str, pandas.DataFrame | Capacity]",
    x: str = "rate_per_s",
    value: str | None = None,
    objective: float | None = None,
) -> Chart:
    """Return a picture of a number along one knob, as the rate: a line for each of {label: frame}.

    A frame is what `sweep` returned, or `Capacity.to_frame()`, with one row for each value of `x`. Bands are
    95 % intervals. Points without a steady state have no number: they are crosses at the top. Diamonds mark
    where a line crosses the objective, by interpolation between two points; of a `Capacity` itself they mark
    its `rate_per_s` (and `lowest_per_s`), and its line is of the whole runs. By default `value` is the p99
    of all requests, in which one that is not served is infinitely late. Points of another latency that is of
    the served alone are hollow, and have no diamonds beside them.

    >>> from batchsim import Affine, Poisson, Scenario, SizeOrWait
    >>> from batchsim.study.sweep import sweep
    >>> scenario = Scenario(Poisson(800), SizeOrWait(32, 10), Affine(5, 0.25))
    >>> frame = sweep(scenario, {"rate_per_s": [500, 1000, 2000]}, 2000, progress=False)
    >>> capacity_curves({"a wait of 10 ms": frame}, objective=20)
    <Chart size 760x520 with 1 Axes>
    """
    given: dict[str, Any] = dict(frames) if isinstance(frames, Mapping) else {"": frames}
    if not given:
        raise ValueError("frames must have at least one, got none")
    found = {name: each for name, each in given.items() if hasattr(each, "probes")}
    named: dict[str, pandas.DataFrame] = {
        name: _whole_runs(each) if name in found else each for name, each in given.items()
    }
    if value is None:
        searched = [each.slo.objectives[0].key for each in found.values()]
        value = searched[0] if searched else p99_of_all(*named.values())
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
    highest, hollows, losing = -math.inf, 0, False
    for number, (name, frame) in enumerate(named.items()):
        colour, style, marker = LOOKS[number % len(LOOKS)]
        place = np.array([each if numeric else levels.index(each) for each in frame[x]], float)
        order = np.argsort(place)
        frame, place = frame.iloc[order], place[order]
        there = _feasible(frame, value)
        at, numbers, label = place[there], frame[value].to_numpy(float)[there], name or axis_label(value)
        partial = of_served_alone(frame, value)[there]
        if name in found and x == "rate_per_s":
            edges = [edge for edge in (found[name].lowest_per_s, found[name].rate_per_s) if edge > 0]
            label += f"; capacity {' to '.join(plain(edge, 4) for edge in edges)}/s" if edges else ""
            ax.plot(edges, np.interp(edges, at, numbers), "D", color=colour, **LATEST)
        elif numeric and objective is not None and (crossings := _crossings(at, numbers, objective, partial)):
            label += f"; {objective:g} at {', '.join(plain(crossing, 4) for crossing in crossings)}"
            ax.plot(crossings, np.full(len(crossings), objective), "D", color=colour, **LATEST)
        handles += ax.plot(at, numbers, style, marker=marker, markersize=4, color=colour, label=label)
        drawn += numbers.tolist()
        if partial.any():
            ax.plot(at[partial], numbers[partial], marker, color=colour, markersize=4, **HOLLOW)
        hollows += int(partial.sum())
        band = _band(frame, value)
        if band is not None:
            low, high = band[0][there], band[1][there]
            ax.fill_between(at, low, high, color=colour, alpha=0.18, linewidth=0)
            highest = max([highest, *high[np.isfinite(high)]])
        top = np.full(place[~there].size, AT_THE_TOP)
        ax.plot(place[~there], top, "x", color=colour, transform=ax.get_xaxis_transform())
        losing |= bool(np.isposinf(frame[value].to_numpy(float)).any())
    crossed = len(drawn) < sum(map(len, named.values()))
    if crossed:
        label = "overloaded, or not possible" + (", or too many requests lost" if losing else "")
        handles.append(Line2D([], [], color=BLACK, marker="x", linestyle="none", label=label))
    if hollows:
        label = "of the served alone: others are lost"
        handles.append(Line2D([], [], color=BLACK, marker="o", linestyle="none", label=label, **HOLLOW))
    handles += _show_objective(ax, value, objective)
    scale(ax, drawn, objective)
    if crossed and (drawn or objective is not None):
        room_above(ax, max([highest, *drawn, *([] if objective is None else [objective])]))
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


def _whole_runs(found: "Capacity") -> pandas.DataFrame:
    """Return a capacity's runs of full length: short ones see less of a queue."""
    frame = found.to_frame()
    return frame[frame["requests"] == frame["requests"].max()]


def _band(frame: pandas.DataFrame, value: str) -> tuple[np.ndarray, np.ndarray] | None:
    """Return the ends of the 95 % intervals; the p99 of all requests has that of the served if all are."""
    key = "p99_ms" if value == "p99_all_ms" else value
    if f"{key}_low" not in frame:
        return None
    low, high = (frame[f"{key}_{end}"].to_numpy(float) for end in ("low", "high"))
    same = (frame[key] == frame[value]).to_numpy()
    return np.where(same, low, math.nan), np.where(same, high, math.nan)


def _undominated(frame: pandas.DataFrame, value: str) -> np.ndarray:
    """Return which rows no other is at least as good as in all, and better in one."""
    costs = np.stack([frame[value], -frame["saturation_per_s"], frame.get("servers", frame[value])], axis=-1)
    better = [((costs <= row).all(axis=1) & (costs < row).any(axis=1)).any() for row in costs]
    return ~np.array(better, dtype=bool)


def _by_servers(front: pandas.DataFrame) -> "list[tuple[str, pandas.DataFrame]]":
    if "servers" not in front:
        return [("Pareto frontier", front)]
    return [
        (f"{count} server{'' if count == 1 else 's'}", front[front["servers"] == count])
        for count in different(front["servers"])
    ]


def _crossings(x: np.ndarray, numbers: np.ndarray, objective: float, partial: np.ndarray) -> list[float]:
    """Return where the line through the points crosses the objective, but for lines to or from a part.

    >>> _crossings(np.array([1.0, 2.0, 4.0]), np.array([5.0, 15.0, 5.0]), 10, np.array([False] * 3))
    [1.5, 3.0]
    """
    above = numbers > objective
    before = np.flatnonzero((above[1:] != above[:-1]) & ~partial[1:] & ~partial[:-1])
    share = (objective - numbers[before]) / (numbers[before + 1] - numbers[before])
    return (x[before] + share * (x[before + 1] - x[before])).tolist()


def _show_objective(ax: Axes, value: str, objective: float | None) -> list[Any]:
    if objective is None:
        return []
    name = f"objective: {axis_label(value)} = {objective:g}"
    return [ax.axhline(objective, color=BLACK, linewidth=1.2, linestyle=(0, (6, 3)), label=name)]
