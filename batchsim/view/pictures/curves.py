"""Curves: a grid's trade-off, a metric along one knob, the latency on each server, a search's runs."""

import math
import textwrap
from collections.abc import Mapping
from dataclasses import replace
from itertools import cycle
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import ScalarFormatter

from batchsim._format import counted, duration, number
from batchsim.result.metrics import heading
from batchsim.servers.comparison import Group, ServerComparison
from batchsim.view.pictures import figures
from batchsim.view.pictures.picture import Picture
from batchsim.view.pictures.view import FROM_DATA
from batchsim.view.theme import BLACK, BLUE, GREEN, GREY, ORANGE, PURPLE, SKY, VERMILION

if TYPE_CHECKING:
    import pandas

    from batchsim.study.capacity import Capacity
    from batchsim.study.recommendation import Recommendation

ABOVE = 1.03  # of the height: where crosses are
LABELLED = 8  # the most points of a frontier with their settings as labels
STYLES = (
    (BLUE, "-", "o"), (VERMILION, "--", "s"), (GREEN, "-.", "^"), (PURPLE, ":", "D"),
    (ORANGE, "-", "v"), (SKY, "--", "P"), (BLACK, "-.", "X"),
)  # fmt: skip
HOLLOW: dict[str, Any] = {"markerfacecolor": "white", "zorder": 4}
ON_TOP: dict[str, Any] = {"zorder": 5, "linestyle": "none", "markeredgecolor": BLACK}  # marks on the lines


def frontier(
    settings: "Recommendation | pandas.DataFrame", value: str | None = None, objective: float | None = None,
    ax: Axes | None = None,
) -> Picture | Axes:  # fmt: skip
    """Return a picture of the trade-off: latency against the saturation rate, for each number of servers.

    `settings` is what `tune` or `sweep` returned. Lines join the Pareto frontier: the settings that no other
    beats in latency, saturation rate and servers together. Others are grey, except those that `tune` ran
    shorter than the recommended one, which a star marks. For a sweep, `value` is the latency, by default the
    p99 of all requests, where a lost request counts as infinitely late; a recommendation brings its own, and
    its objective.

    >>> from batchsim import Affine, Poisson, Scenario, SizeOrWait
    >>> from batchsim.study.sweep import sweep
    >>> scenario = Scenario(Poisson(800), SizeOrWait(32, 10), Affine(5, 0.25))
    >>> frontier(sweep(scenario, {"max_batch_size": [8, 16, 32]}, 2000, progress=False))
    <Picture size 760x520 with 1 Axes>
    """
    import pandas  # half a second, which the explorer's first picture does without

    best, front, x = None, None, "saturation_per_s"
    if isinstance(settings, pandas.DataFrame):
        figures.check_columns(settings, "requests")
        frame, knobs = settings, list(settings.columns[: list(settings.columns).index("requests")])
        value = figures.p99_of_all(settings) if value is None else value
    elif hasattr(settings, "candidates"):
        frame, front = settings.candidates, settings.frontier
        knobs, value = list(settings.knobs), settings.slo.latency[0]
        best = frame[frame["outcome"].isin(["recommended", "nearest"])].iloc[0]
        objective = next((o.limit for o in settings.slo.objectives if o.key == value), None)
    else:
        raise TypeError(f"settings must be a Recommendation, or a DataFrame of a sweep, got {settings!r}")
    figures.check_columns(frame, value, x)
    others = frame[_feasible(frame, value)]
    if front is None:
        front = others[_undominated(others, value)]
    if best is not None and "requests" in others:  # short runs have shorter queues, and more noise
        others = others[others["requests"] >= best["requests"]]

    with figures.axes(ax) as (ax, drawn_on):
        ax.plot(others[x], others[value], ".", color=GREY, label="other settings")
        groups = front.groupby("servers") if "servers" in front else [(0, front)]
        for (colour, style, marker), (servers, rows) in zip(cycle(STYLES), groups, strict=False):
            label, rows = counted(servers, "server") if servers else "Pareto frontier", rows.sort_values(x)
            steps: dict[str, Any] = {"color": colour, "marker": marker, "drawstyle": "steps-pre"}
            ax.plot(rows[x], rows[value], style, label=label, **steps)
        title = "The trade-off between latency and saturation rate"
        varied = [knob for knob in knobs if knob != "servers" and front[knob].nunique() > 1]
        if varied and len(front) <= LABELLED:
            title += f"\nbelow each point: {', '.join(map(heading, varied))}"
            box = {"facecolor": ax.get_facecolor(), "alpha": 0.8, "pad": 0.5, "linewidth": 0}
            for _, row in front.iterrows():
                text = ", ".join(figures.texts(row[knob] for knob in varied))
                # Below the point, as no setting with as many servers is.
                look = {"fontsize": 8, "ha": "center", "va": "top", "bbox": box, **FROM_DATA}
                ax.annotate(text, (row[x], row[value]), (0, -7), **look)
        answer = ""
        if best is not None and math.isfinite(best[value]):
            answer = best["outcome"]
            star: dict[str, Any] = {"markersize": 17, "color": ORANGE, "label": answer}
            ax.plot(best[x], best[value], "*", **star, **ON_TOP)
        ax.margins(x=0.1)
        _finish(ax, x, value, title, answer, objective)
    return drawn_on


def _finish(
    ax: Axes, x: str, value: str, title: str, answer: str, objective: float | None, pad_pt: float = 6
) -> None:
    """Give axes their scale, which holds what is drawn and the objective, and name what they show."""
    if objective is not None:
        ax.axhline(objective, color=VERMILION, linewidth=1.4, label=f"objective: {objective:g}")
    figures.scale(ax)
    ax.set(xlabel=heading(x), ylabel=heading(value))
    if isinstance(ax.xaxis.get_major_formatter(), ScalarFormatter):  # of numbers, not of names
        ax.xaxis.set_major_formatter("{x:,g}")
    ax.set_title(title, pad=pad_pt)
    figures.name_lines(ax, answer)


def capacity_curves(
    frames: "pandas.DataFrame | Capacity | Mapping[str, pandas.DataFrame | Capacity]",
    x: str = "rate_per_s", value: str | None = None, objective: float | None = None,
    ax: Axes | None = None,
) -> Picture | Axes:  # fmt: skip
    """Return a picture of a metric along one knob, such as the rate: a line for each of {label: frame}.

    A frame is what `sweep` returned, or `Capacity.to_frame()`, with one row for each value of `x`. Bands are
    95 % intervals. Points without a steady state have no number: crosses above the axes. Diamonds mark
    where a line crosses the objective, interpolated between two points; for a `Capacity` itself they mark its
    `rate_per_s`, and its line shows the runs of full length. By default `value` is the p99 of all requests,
    where a lost request counts as infinitely late. Points of another latency are hollow if requests are lost,
    and lines next to them have no diamonds.

    >>> from batchsim import Affine, Poisson, Scenario, SizeOrWait
    >>> from batchsim.study.sweep import sweep
    >>> scenario = Scenario(Poisson(800), SizeOrWait(32, 10), Affine(5, 0.25))
    >>> frame = sweep(scenario, {"rate_per_s": [500, 1000, 2000]}, 2000, progress=False)
    >>> capacity_curves({"a wait of 10 ms": frame}, objective=20)
    <Picture size 760x520 with 1 Axes>
    """
    given: dict[str, Any] = dict(frames) if isinstance(frames, Mapping) else {"": frames}
    if not given:
        raise ValueError("frames must have at least one, got none")
    capacities = {name: each for name, each in given.items() if hasattr(each, "probes")}
    # Only a capacity's runs of full length: short ones have shorter queues.
    runs = {name: each.to_frame() for name, each in capacities.items()}
    whole = {name: frame[frame["requests"] == frame["requests"].max()] for name, frame in runs.items()}
    named: dict[str, pandas.DataFrame] = given | whole
    if value is None:
        keys = [each.slo.objectives[0].key for each in capacities.values()]
        value = keys[0] if keys else figures.p99_of_all(*named.values())
    for name, frame in named.items():
        figures.check_columns(frame, x, value)
        if frame[x].duplicated().any():
            curve = f"a curve of {name!r}" if name else "a curve"
            raise ValueError(f"{curve} must have one row for each {x}: choose among the other knobs")
    levels = figures.distinct(each for frame in named.values() for each in frame[x])
    numeric = all(isinstance(level, (int, float)) and math.isfinite(level) for level in levels)
    with figures.axes(ax) as (ax, drawn_on):
        reach: dict[str, float] = {}  # up to where each line keeps the objective
        losing = any(np.isposinf(frame[value].to_numpy(float)).any() for frame in named.values())
        lost = ", or too many requests lost" if losing else ""
        notes = {
            "x": f"overloaded,\nor not possible{lost}",
            "o": "of the served requests alone:\nothers are lost",
        }
        for (colour, style, marker), (name, frame) in zip(cycle(STYLES), named.items(), strict=False):
            place = np.array([each if numeric else levels.index(each) for each in frame[x]], float)
            order = np.argsort(place)
            place, frame = place[order], frame.iloc[order]
            there = _feasible(frame, value)
            at, numbers, label = place[there], frame[value].to_numpy(float)[there], name or heading(value)
            partial = figures.of_served_alone(frame, value)[there]
            ends, words = [], ""  # where the objective is kept no more
            if name in capacities and x == "rate_per_s":
                ends, words = [rate for rate in (capacities[name].rate_per_s,) if rate > 0], "capacity {}/s"
            elif numeric and objective is not None:
                ends, words = _crossings(at, numbers, objective, partial), f"{objective:g} at {{}}"
            if ends:
                label += "\n" + words.format(", ".join(number(end, 4) for end in ends))
                reach[label] = max(ends)
                ax.plot(ends, np.interp(ends, at, numbers), "D", color=colour, **ON_TOP)
            ax.plot(at, numbers, style, marker=marker, markersize=4, color=colour, label=label)
            if partial.any():
                note = HOLLOW | {"label": notes.pop("o", ""), "color": colour, "marker": marker}
                ax.plot(at[partial], numbers[partial], linestyle="none", markersize=4, **note)
            if (band := _band(frame[there], value)) is not None:
                ax.fill_between(at, *band, color=colour, alpha=0.18, linewidth=0)
            if not there.all():
                note = {"label": notes.pop("x", ""), "transform": ax.get_xaxis_transform(), "clip_on": False}
                ax.plot(place[~there], np.full(np.sum(~there), ABOVE), "x", mew=1, color=colour, **note)
        if not numeric:
            ax.set_xticks(range(len(levels)), figures.texts(levels))
        answer = max(reach, key=lambda label: reach[label]) if len(named) > 1 and reach else ""
        pad_pt = 6 if "x" in notes else 18  # crosses have room below the title
        _finish(ax, x, value, f"{heading(value)} by {heading(x)}", answer, objective, pad_pt)
    return drawn_on


def _feasible(frame: "pandas.DataFrame", value: str) -> np.ndarray:
    there = np.isfinite(frame[value].to_numpy(float))
    return there & (frame["infeasible"] == "").to_numpy() if "infeasible" in frame else there


def _band(frame: "pandas.DataFrame", value: str) -> tuple[np.ndarray, np.ndarray] | None:
    """Return the ends of the 95 % intervals; the p99 of all requests has that of the served if all are."""
    key = "p99_ms" if value == "p99_all_ms" else value
    if f"{key}_low" not in frame:
        return None
    low, high = (frame[f"{key}_{end}"].to_numpy(float) for end in ("low", "high"))
    same = (frame[key] == frame[value]).to_numpy()
    return np.where(same, low, math.nan), np.where(same, high, math.nan)


def _undominated(frame: "pandas.DataFrame", value: str) -> np.ndarray:
    """Return which rows no other dominates, being as good in everything and better in something."""
    costs = np.stack([frame[value], -frame["saturation_per_s"], frame.get("servers", frame[value])], axis=-1)
    better = [((costs <= row).all(axis=1) & (costs < row).any(axis=1)).any() for row in costs]
    return ~np.array(better, dtype=bool)


def _crossings(x: np.ndarray, numbers: np.ndarray, objective: float, partial: np.ndarray) -> list[float]:
    """Return where the line through the points crosses the objective, except beside a partial point.

    >>> _crossings(np.array([1.0, 2.0, 4.0]), np.array([5.0, 15.0, 5.0]), 10, np.array([False] * 3))
    [1.5, 3.0]
    """
    above = numbers > objective
    before = np.flatnonzero((above[1:] != above[:-1]) & ~partial[1:] & ~partial[:-1])
    share = (objective - numbers[before]) / (numbers[before + 1] - numbers[before])
    return (x[before] + share * (x[before + 1] - x[before])).tolist()


MARKED = (0, 50, 90, 99, 99.9)  # percentiles
WRAP = 24  # letters of a line


def _wrapped(group: Group) -> str:
    """Return the names of a group, in lines, with its p99."""
    names = textwrap.fill(", ".join(group.names), WRAP, break_long_words=False, break_on_hyphens=False)
    p99 = f"p99 {duration(group.result.percentile(99))}" if group.stable else "its queue grows\nwithout bound"
    return f"{names}\n{p99}"


def server_curves(comparison: ServerComparison, ax: Axes | None = None) -> Picture | Axes:
    """Return a picture of the latency at each percentile, a line for servers whose rules are the same.

    Each line is named where it ends. Servers whose queue grows without bound have a name at the top.
    """
    with figures.axes(ax) as (ax, drawn_on):
        reached = min(group.result.metrics.served for group in comparison.groups)
        shown = [q for q in MARKED if q == 0 or (1 - q / 100) * reached >= 10]  # beyond, it is chance
        # On this logarithmic scale, each further nine of the percentile takes the same room.
        places = np.linspace(0, -np.log10(1 - shown[-1] / 100), 200)
        lines: dict[Any, tuple[Group, np.ndarray]] = {}  # equal ones are one, with the names of all
        for group in comparison.groups:
            latencies = group.result.metrics.percentiles(100 * (1 - 10**-places))
            key = latencies.tobytes() if group.stable else group.names
            names = lines[key][0].names if key in lines else ()
            lines[key] = replace(group, names=(*names, *group.names)), latencies
        for (colour, style, _), (group, latencies) in zip(cycle(STYLES), lines.values(), strict=False):
            if group.stable:
                ax.plot(places, latencies, style, color=colour, label=_wrapped(group))
            else:
                top: dict[str, Any] = {"transform": ax.get_xaxis_transform(), "label": _wrapped(group)}
                ax.plot(places[-1], 1, linestyle="none", color=colour, **top)
        figures.scale(ax)
        if not any(group.stable for group in comparison.groups):
            ax.set_yticks([])
        marks = [-np.log10(1 - q / 100) for q in shown]
        ax.set_xticks(marks, ["best", *(f"p{q:g}" for q in shown[1:])])
        ax.set(xlim=(0, places[-1]), xlabel="percentile of the requests", ylabel=heading("latency_ms"))
        ax.set_title(f"The same traffic, {len(comparison.rules)} servers")
        figures.name_lines(ax)
    return drawn_on


SPREAD = 0.4  # of the distance between columns, on either side: settings stand side by side
MOST = 6.0  # times the lowest latency: slower settings stand at the top
HEAD = 1.1  # height of the axes, in tops


def search(found: "Recommendation", ax: Axes | None = None) -> Picture | Axes:
    """Return a picture of a search: a column for each length of its runs, and the run with a fresh seed.

    Settings of a column are in order of their latency, with 95 % intervals where the run is long enough for
    one; those above the edge stand at it. Grey ones fail. Open circles: ties of the recommended setting,
    which the star is.
    """
    key, frame = found.slo.latency.key, found.candidates
    frame = frame[frame["requests"] > 0]
    if not len(frame):
        raise ValueError("a search must have a run to be drawn, got one without")
    chosen = frame["outcome"].isin(["recommended", "nearest"])
    limit_ms = next((each.limit for each in found.slo.objectives if each.key == key), math.nan)
    with figures.axes(ax) as (ax, drawn_on):
        lowest = float(np.nanmin(frame[key].to_numpy()))
        highest = float(frame[key].replace(math.inf, math.nan).max())
        top = max(min(MOST * lowest, highest), limit_ms if limit_ms <= MOST * lowest else 0.0)
        labels, path = list[str](), list[Any]()
        for requests, rows in frame.groupby("requests"):
            rows = rows.sort_values(key)
            places = len(labels) + 1 + np.linspace(-SPREAD, SPREAD, len(rows)) * (len(rows) > 1)
            values_ms = np.minimum(rows[key].to_numpy(), top)
            fails, tied = ((rows["outcome"] == outcome).to_numpy() for outcome in ("fails", "tied"))
            for these, colour, label in ((fails, GREY, "fails"), (~fails, BLUE, "does not clearly fail")):
                ends_ms = rows[these][[f"{key}_low", f"{key}_high"]].to_numpy().T
                ax.vlines(places[these], *np.minimum(ends_ms, HEAD * top), color=colour, lw=1)
                label *= bool(these.any())
                ax.plot(places[these], values_ms[these], "o", ms=4, color=colour, label=label)
            label = "tied with the recommended" * bool(tied.any())
            ax.plot(places[tied], values_ms[tied], "o", ms=9, mfc="none", mec=BLACK, label=label)
            mine = chosen[rows.index].to_numpy()
            path += [*zip(places[mine], values_ms[mine], strict=True)]
            labels.append(f"{counted(len(rows), 'setting')},\nruns of {requests:,}")
        path.append((len(labels) + 1, found.result.metrics.number(key)))
        _, *ends = found.expected.get(key, (math.nan,) * 3)
        ax.vlines(path[-1][0], *np.minimum(ends, HEAD * top), color=ORANGE, lw=1)
        ax.plot(*np.array(path).T, ":", color=ORANGE, lw=1.2, zorder=1)
        name = "recommended" if found.met else "best so far" if found.provisional else "nearest"
        ax.plot(*path[-1], "*", ms=16, color=ORANGE, label=name, **ON_TOP)
        last = "last run" if found.provisional else "full run, fresh seed"
        labels.append(f"{last},\n{found.result.arrival_s.size:,} requests")
        if math.isfinite(limit_ms) and limit_ms <= top:
            ax.axhline(limit_ms, color=VERMILION, lw=1.4, label=f"objective: {limit_ms:g}")
        ax.set_xticks(range(1, len(labels) + 1), labels)
        ax.set(ylabel=heading(key), xlim=(0.5, len(labels) + 0.5), ylim=(0, HEAD * top))
        ax.set_title("The search among the settings")
        figures.show_legend(ax, ax.get_legend_handles_labels()[0])
    return drawn_on
