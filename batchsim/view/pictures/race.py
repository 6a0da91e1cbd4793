"""The race of a search: the settings of each round with their intervals, the objective, and the ties."""

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

SPREAD = 0.32  # of the distance between rounds, on either side: settings stand side by side
MOST = 6.0  # times the lowest latency: slower settings stand at the upper edge


def race(found: "Recommendation", ax: Axes | None = None) -> Picture | Axes:
    """Return a picture of a search: a column for each round, and the full run with a fresh seed.

    Settings of a round are in order of their latency, with 95 % intervals where the run is long enough for
    one. Blue ones go on to the next, grey ones leave the race; those above the edge stand at it. The star is
    the recommended setting. Open circles: the p99 is not significantly above the lowest, as the explorer's
    map frames it; where there is no such map, the ties of the recommended one.
    """
    key, rounds, frame = found.slo.latency.key, found.rounds, found.candidates
    if not len(rounds):
        raise ValueError("a search must have a run to be drawn, got one without")
    chosen = frame.index[frame["outcome"].isin(["recommended", "nearest"])]
    framed, name_of_ring = frame["alike"], "not significantly above the lowest"
    if not framed.any():
        framed, name_of_ring = frame["outcome"] == "tied", "tied with the recommended"
    tied = set(frame.index[framed])
    limit_ms = next((each.limit for each in found.slo.objectives if each.key == key), math.nan)
    with charts.axes(ax) as (ax, drawn_on):
        lowest = float(np.nanmin(rounds[key].to_numpy()))
        highest = float(rounds[key].replace(math.inf, math.nan).max())
        top = max(min(MOST * lowest, highest), limit_ms if limit_ms <= MOST * lowest else 0.0)
        last = int(rounds["round"].max())
        labels, path = [], []
        for number, rows in rounds.groupby("round"):
            rows = rows.sort_values(key)
            places = number + np.linspace(-SPREAD, SPREAD, len(rows)) * (len(rows) > 1)
            following = rounds.loc[rounds["round"] == number + 1, "candidate"] if number < last else chosen
            stays = rows["candidate"].isin(following)
            for left, colour, label in ((False, GREY, "leaves the race"), (True, BLUE, "goes on")):
                these = (stays == left).to_numpy()
                values = np.minimum(rows[key].to_numpy()[these], top)
                ends = np.nan_to_num(
                    np.abs(rows[[f"{key}_low", f"{key}_high"]].to_numpy()[these].T - values), nan=0
                )
                named = label if number == 1 else None
                ax.errorbar(places[these], values, ends, fmt="o", ms=4, lw=1, color=colour, label=named)
            ring = rows["candidate"].isin(tied).to_numpy()
            ax.plot(
                places[ring], np.minimum(rows[key].to_numpy()[ring], top), "o", ms=9, mfc="none", mec=BLACK,
                label=name_of_ring if number == 1 and ring.any() else None,
            )  # fmt: skip
            mine = rows["candidate"].isin(chosen).to_numpy()
            path += [*zip(places[mine], rows[key].to_numpy()[mine], strict=True)]
            requests = int(rows["requests"].iloc[0])
            labels.append(f"round {number}: {counted(len(rows), 'setting')},\nruns of {requests:,}")
        path.append((len(labels) + 1, found.result.metrics.number(key)))
        value, low, high = found.expected[key] if key in found.expected else (path[-1][1], math.nan, math.nan)
        star: dict[str, Any] = {"fmt": "*", "ms": 16, "mec": BLACK, "color": ORANGE, "zorder": 5}
        ends = [[0.0], [0.0]] if math.isnan(low) else [[value - low], [high - value]]
        ax.plot(*np.array(path).T, ":", color=ORANGE, lw=1.2, zorder=1)
        name = "recommended" if found.met else "best so far" if found.provisional else "nearest"
        ax.errorbar([path[-1][0]], [path[-1][1]], ends, label=name, **star)
        if found.provisional:
            labels.append(f"last run,\n{found.result.arrival_s.size:,} requests")
        else:
            labels.append(f"full run, fresh seed,\n{found.result.arrival_s.size:,} requests")
        if math.isfinite(limit_ms) and limit_ms <= top:
            ax.axhline(limit_ms, color=VERMILION, lw=1.4, label=f"objective: {limit_ms:g}")
        ax.set_xticks(range(1, len(labels) + 1), labels)
        ax.set(ylabel=heading(key), xlim=(0.5, len(labels) + 0.5), ylim=(0, 1.1 * top))
        ax.set_title("The race of the settings")
        charts.show_legend(ax, ax.get_legend_handles_labels()[0])
    return drawn_on
