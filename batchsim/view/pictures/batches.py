"""How large the batches are, and why they left."""

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from batchsim._format import fixed, number, percent
from batchsim.result import Result
from batchsim.scenario.rules import Rule, Trigger
from batchsim.view.canvas.axes import nice
from batchsim.view.pictures.data import ViewData
from batchsim.view.pictures.view import Entry, Spot, StackedView

if TYPE_CHECKING:
    from batchsim.theory import Answer


# Colour and hatch; the rule's steps have the names of the triggers.
TRIGGERS = {
    Trigger.FULL: ("sky", ""), Trigger.ENOUGH: ("sky", ".."), Trigger.WAIT: ("orange", "//"),
    Trigger.BACKLOG: ("purple", "\\\\"), Trigger.DRAIN: ("faint", "xx"),
}  # fmt: skip
MOST_BARS = 64


class BatchView(StackedView):
    """The distribution of batch sizes, each bar divided by why its batches left."""

    KEY, NAME, SHORT = "batches", "Batch sizes, by why they left", "Batch sizes (%)"
    RANK = 2
    ROWS, SMALL_ROWS = 2, 2

    def add_artists(self) -> None:
        self.plot_box = self.axes_box()
        size = "batch size (requests)" if self.large else "batch size"
        self.ax = self.add_plot(self.plot_box, size, "batches (%)" * self.large)
        self.ax.xaxis.get_major_locator().set_params(integer=True)  # type: ignore[call-arg]
        self.add_bars(self.ax, TRIGGERS)

    def update(self, data: ViewData) -> None:
        results = [each.result for each in (data, data.other) if each is not None]
        edges = bar_edges(max(result.scenario.rule.largest_batch for result in results))
        shares, *of_other = (by_trigger(result, edges) for result in results)
        other = (of_other[0].sum(axis=0), edges) if of_other else None
        highest = self.show_bars(shares[list(TRIGGERS)], edges, other, self.other_style(data))
        self.set_limits(self.ax, x=(0.5, float(edges[-1])), y=(0, min(nice(1.05 * highest), 100)))
        rule, kinds = data.result.scenario.rule, [kind for kind in self.styles if shares[kind].any()]
        entries = [Entry(label_of(rule, kind), self.styles[kind]) for kind in kinds]
        mean = f"mean {fixed(data.summary['mean_batch_size'])}"
        self.show_legend([*entries, Entry("mean 00.00", value=mean)])

    def spot(self, x_px: float, y_px: float, data: ViewData) -> Spot | None:
        (low, high), across = self.ax.get_xlim(), self.across(x_px, y_px)
        edges = bar_edges(data.result.scenario.rule.largest_batch)
        if across is None or (size := low + (high - low) * across) >= edges[-1]:
            return None
        bar = int(np.searchsorted(edges, size, side="right")) - 1
        shares = by_trigger(data.result, edges)[:, bar]
        first, last = math.ceil(edges[bar]), math.floor(edges[bar + 1])
        name = f"Batches of {first}" if first == last else f"Batches of {first} to {last}"
        rule = data.result.scenario.rule
        why = [f"{label_of(rule, kind)} {number(shares[kind])} %" for kind in TRIGGERS if shares[kind]]
        return Spot(
            self.KEY, f"{name}: {number(shares.sum())} % of all" + (f" ({', '.join(why)})" if why else "")
        )

    def describe(self, data: ViewData) -> list[str]:
        s = data.summary
        if not s["served"]:
            return []
        shares = {trigger: s.get(f"{trigger.name.lower()}_share", 0.0) for trigger in Trigger}
        because = {step.trigger: step.because for step in reversed(data.result.scenario.rule.steps)}
        reasons = ", ".join(
            f"{percent(share)} because {because.get(trigger, f'of the {trigger.name.lower()}')}"
            for trigger, share in sorted(shares.items(), key=lambda pair: -pair[1])
            if share
        )
        return [f"Batches hold {number(s['mean_batch_size'])} requests on average and leave: {reasons}."]

    def show_theory(self, answer: "Answer", data: ViewData) -> None:
        """Mark the share of each batch size that theory expects, if it gives one."""
        edges = np.asarray(self.bars[Trigger.FULL].get_data()[1])
        if answer.batch_size_pmf is None or edges[1] - edges[0] > 1:
            return
        style: dict[str, Any] = {"marker": "o", "linestyle": "none", "color": self.theme.ink}
        sizes, expected = np.arange(1, answer.batch_size_pmf.size), 100 * answer.batch_size_pmf[1:]
        self.set_moving(*self.ax.plot(sizes, expected, markersize=3.5, zorder=4, **style))
        *names, mean = self.entries
        self.show_legend([*names, Entry("theory", style | {"markersize": 5}), mean])


def label_of(rule: Rule, trigger: Trigger) -> str:
    """Return a rule's name for a trigger.

    >>> from batchsim import SizeOrWait
    >>> label_of(SizeOrWait(8, 5), Trigger.BACKLOG)
    'server became free'
    """
    labels = (step.label for step in rule.steps if step.trigger == trigger)
    return next(labels, trigger.name.lower())


def bar_edges(largest: int) -> np.ndarray:
    """Return the edges of bars for batch sizes 1 to `largest`: a bar for each size, or for several.

    >>> bar_edges(3), bar_edges(65_536)[:2]
    (array([0.5, 1.5, 2.5, 3.5]), array([5.0000e-01, 1.0245e+03]))
    """
    step = math.ceil(largest / MOST_BARS)
    return 0.5 + step * np.arange(math.ceil(largest / step) + 1.0)


def by_trigger(result: Result, edges: np.ndarray) -> np.ndarray:
    """Return the percentage of the batches of each size that left by each trigger, shape (triggers, bars)."""
    bars, step = edges.size - 1, int(edges[1] - edges[0])
    bar = (result.batches.batch_size - 1) // step
    kinds = result.batches.trigger.astype(np.intp) * bars + bar
    counts = np.bincount(kinds, minlength=len(Trigger) * bars).reshape(len(Trigger), bars)
    return 100 * counts / max(len(result.batches), 1)
