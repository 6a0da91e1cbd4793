"""How large the batches are, and why they left.

A view draws into axes of matplotlib: `make` prepares them, `update` draws the numbers of a run, `spot` says
what is under the pointer, and `describe` says the same in words. `View` has what all views do alike: limits,
legends, texts, and the look of a theme (`self.look`).
"""

import math

import numpy as np
from matplotlib.axes import Axes

from batchsim._format import counted, fixed, number, percent
from batchsim.result.distributions import bar_edges, by_trigger
from batchsim.scenario.rules import Rule, Trigger
from batchsim.view.pictures.data import ViewData
from batchsim.view.pictures.view import Spot, View
from batchsim.view.scales import nice

# Their colours and hatches; the rule's steps have the names of the triggers.
TRIGGERS = {
    Trigger.FULL: ("blue", ""), Trigger.ENOUGH: ("sky", ".."), Trigger.WAIT: ("orange", ""),
    Trigger.BACKLOG: ("purple", ""), Trigger.DRAIN: ("faint", ""),
}  # fmt: skip


class BatchView(View):
    """The distribution of batch sizes, each bar divided by why its batches left."""

    KEY, NAME, SHORT = "batches", "Batch sizes, by why they left", "Batch sizes"
    RANK, WHOLE = 2, True

    def make(self) -> None:
        self.ax.set(xlabel="batch size (requests)" if self.large else "batch size", ylabel="batches (%)")

    def update(self, data: ViewData) -> None:
        results = [each.result for each in (data, data.other) if each is not None]
        edges = bar_edges(max(result.scenario.rule.largest_batch for result in results))
        shares, *of_other = (by_trigger(result, edges) for result in results)
        other = (of_other[0].sum(axis=0), edges) if of_other else None
        rule = data.result.scenario.rule
        styles = {
            kind: self.filled(*fill) | {"label": label_of(rule, kind)} for kind, fill in TRIGGERS.items()
        }
        highest = self.stack(styles, shares[list(TRIGGERS)], edges, other, data)
        self.limits(self.ax, x=(0.5, float(edges[-1])), y=(0, min(nice(1.05 * highest), 100)))
        if data.answer is not None and data.answer.batch_size_pmf is not None and edges[1] - edges[0] <= 1:
            expected = 100 * data.answer.batch_size_pmf[1:]
            dots = self.mark("o", 2, "ink", label="theory")
            self.plot("theory", np.arange(1, expected.size + 1), expected, **dots)
        self.legend()
        self.note("mean", f"mean {fixed(data.summary['mean_batch_size'])}")

    def spot(self, ax: Axes, x: float, y: float, data: ViewData) -> Spot | None:
        edges = bar_edges(data.result.scenario.rule.largest_batch)
        if not edges[0] <= x < edges[-1]:
            return None
        bar = int(np.searchsorted(edges, x, side="right")) - 1
        shares = by_trigger(data.result, edges)[:, bar]
        first, last = math.ceil(edges[bar]), math.floor(edges[bar + 1])
        name = f"Batches of {first}" if first == last else f"Batches of {first} to {last}"
        rule = data.result.scenario.rule
        why = [f"{label_of(rule, kind)} {number(shares[kind])} %" for kind in TRIGGERS if shares[kind]]
        parts = f" ({', '.join(why)})" if why else ""
        return Spot(self.KEY, f"{name}: {number(shares.sum())} % of all{parts}")

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
        return [f"Batches hold {counted(s['mean_batch_size'], 'request')} on average and leave: {reasons}."]


def label_of(rule: Rule, trigger: Trigger) -> str:
    """Return a rule's name for a trigger.

    >>> from batchsim import SizeOrWait
    >>> label_of(SizeOrWait(8, 5), Trigger.BACKLOG)
    'server became free'
    """
    labels = (step.label for step in rule.steps if step.trigger == trigger)
    return next(labels, trigger.name.lower())
