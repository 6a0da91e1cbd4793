"""Replicas behind a router: the load and the batch size of each."""

import numpy as np
from matplotlib.axes import Axes

from batchsim._format import duration, fixed, number, percent
from batchsim.view.pictures.data import ViewData
from batchsim.view.pictures.view import DASHED, Spot, Style, View
from batchsim.view.scales import nice

WIDTH = 0.8  # of a bar
COLUMNS = {"utilisation": 100.0, "mean_batch_size": 1.0}  # of the plots, and their units


def _apart(heights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return bars with gaps between them."""
    values = np.zeros(2 * heights.size - 1)
    values[::2] = heights
    return values, (np.arange(heights.size)[:, None] + [-WIDTH / 2, WIDTH / 2]).ravel()


class ReplicasView(View):
    """Bars by replica: how busy each is, and, if the view is large, how many requests its batches hold."""

    KEY, NAME, SHORT = "replicas", "Load and batch size by replica", "Load by replica"
    RANK, NEEDS, LACKS = 5, "by_replica", "only for several replicas"
    PANELS, BESIDE, WHOLE = (1.0, 1.0), True, True

    def make(self) -> None:
        labels = "server time that computes (%)" if self.large else "busy (%)", "mean batch size"
        for ax, label in zip(self.axes, labels, strict=False):
            ax.set(ylabel=label, xlabel="replica")

    def update(self, data: ViewData) -> None:
        other = data.other if data.other is not None and data.other.by_replica is not None else None
        of_all = 100 * data.summary["utilisation"], data.summary["mean_batch_size"]
        count = len(data.by_replica["utilisation"])
        most = max(count, len(other.by_replica["utilisation"]) if other is not None else 0)
        for (column, unit), mean, ax in zip(COLUMNS.items(), of_all, self.axes, strict=False):
            heights = unit * np.nan_to_num(data.by_replica[column])
            self.stairs((column, "now"), *_apart(heights), 0, ax, **self.filled("blue"))
            average = self.style("ink", DASHED, 0.7)
            self.plot((column, "mean"), [-0.5, count - 0.5], [mean] * 2, ax, zorder=4, **average)
            before = None if other is None else _apart(unit * np.nan_to_num(other.by_replica[column]))
            highest = max(self.outline(before, data, (column, "other"), ax), float(heights.max(initial=1.0)))
            top = 100.0 if column == "utilisation" else nice(1.15 * highest)
            self.limits(ax, x=(-0.5, most - 0.5), y=(0, top))
        name: Style = {"ha": "right", "va": "bottom"}
        self.annotate("mean", "all replicas" * self.large, count - 0.5, of_all[0], up=0.2, **name)
        self.note("imbalance", f"imbalance {fixed(data.result.imbalance)}", ax=self.axes[-1])

    def spot(self, ax: Axes, x: float, y: float, data: ViewData) -> Spot | None:
        k, columns = round(x), data.by_replica
        if not 0 <= k < len(columns["utilisation"]):
            return None
        row = {name: float(column[k]) for name, column in columns.items()}
        batches = f"batches of {number(row['mean_batch_size'])}" if row["batches"] else "no batch"
        p99 = f", p99 {duration(row['p99_ms'])}" if row["served"] else ""
        said = f"{percent(row['share'])} of the requests, {percent(row['utilisation'])} busy, {batches}{p99}"
        return Spot(self.KEY, f"Replica {k}: {said}")

    def describe(self, data: ViewData) -> list[str]:
        busy, sizes = (data.by_replica[name] for name in COLUMNS)
        if not np.isfinite(sizes).any():
            return []
        ends = [(percent(float(f(busy)))) for f in (np.min, np.max)]
        sized = [number(float(f(sizes))) for f in (np.nanmin, np.nanmax)]
        load = f"is {ends[0]} busy" if ends[0] == ends[1] else f"is between {ends[0]} and {ends[1]} busy"
        size = sized[0] if sized[0] == sized[1] else f"between {sized[0]} and {sized[1]}"
        return [f"Each of {busy.size:,} replicas {load}; their mean batch size is {size}."]
