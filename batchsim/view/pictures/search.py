"""A search: all settings with their intervals, the objective, the ties, and the run with a fresh seed."""

import math
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.axes import Axes

from batchsim._format import counted
from batchsim.result.metrics import heading
from batchsim.view.pictures import chart as charts
from batchsim.view.pictures.picture import Picture
from batchsim.view.theme import BLACK, BLUE, GREY, ORANGE, VERMILION

if TYPE_CHECKING:
    from batchsim.study.recommendation import Recommendation

SPREAD = 0.4  # of the distance between columns, on either side: settings stand side by side
MOST = 6.0  # times the lowest latency: slower settings stand at the upper edge


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
    with charts.axes(ax) as (ax, drawn_on):
        lowest = float(np.nanmin(frame[key].to_numpy()))
        highest = float(frame[key].replace(math.inf, math.nan).max())
        top = max(min(MOST * lowest, highest), limit_ms if limit_ms <= MOST * lowest else 0.0)
        labels, path = list[str](), list[Any]()
        for requests, rows in frame.groupby("requests"):
            rows = rows.sort_values(key)
            places = len(labels) + 1 + np.linspace(-SPREAD, SPREAD, len(rows)) * (len(rows) > 1)
            values_ms = np.minimum(rows[key].to_numpy(), top)
            ends_ms = np.abs(rows[[f"{key}_low", f"{key}_high"]].to_numpy().T - values_ms)
            fails = (rows["outcome"] == "fails").to_numpy()
            for these, colour, label in ((fails, GREY, "fails"), (~fails, BLUE, "does not clearly fail")):
                known = np.nan_to_num(ends_ms[:, these], nan=0)
                bars: dict[str, Any] = {"fmt": "o", "ms": 4, "lw": 1, "color": colour}
                bars |= {"label": label} if these.any() and not labels else {}
                ax.errorbar(places[these], values_ms[these], known, **bars)
            tied = (rows["outcome"] == "tied").to_numpy()
            ring = "tied with the recommended" if tied.any() else None
            ax.plot(places[tied], values_ms[tied], "o", ms=9, mfc="none", mec=BLACK, label=ring)
            mine = chosen[rows.index].to_numpy()
            path += [*zip(places[mine], values_ms[mine], strict=True)]
            labels.append(f"{counted(len(rows), 'setting')},\nruns of {requests:,}")
        path.append((len(labels) + 1, found.result.metrics.number(key)))
        value, low, high = found.expected[key] if key in found.expected else (path[-1][1], math.nan, math.nan)
        star: dict[str, Any] = {"fmt": "*", "ms": 16, "mec": BLACK, "color": ORANGE, "zorder": 5}
        ends = [[0.0], [0.0]] if math.isnan(low) else [[value - low], [high - value]]
        ax.plot(*np.array(path).T, ":", color=ORANGE, lw=1.2, zorder=1)
        name = "recommended" if found.met else "best so far" if found.provisional else "nearest"
        ax.errorbar([path[-1][0]], [path[-1][1]], ends, label=name, **star)
        last = "last run" if found.provisional else "full run, fresh seed"
        labels.append(f"{last},\n{found.result.arrival_s.size:,} requests")
        if math.isfinite(limit_ms) and limit_ms <= top:
            ax.axhline(limit_ms, color=VERMILION, lw=1.4, label=f"objective: {limit_ms:g}")
        ax.set_xticks(range(1, len(labels) + 1), labels)
        ax.set(ylabel=heading(key), xlim=(0.5, len(labels) + 0.5), ylim=(0, 1.1 * top))
        ax.set_title("The search among the settings")
        charts.show_legend(ax, ax.get_legend_handles_labels()[0])
    return drawn_on
