"""Every knob of the explorer: its words, what it means, when it matters, and how far it slides."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import ipywidgets as widgets

from batchsim.view.explorer.state import State

LARGEST_SLID = 64  # sizes beyond it can be typed


class RangeFirst(widgets.Widget):
    """A slider that tells a page its range before its value, which the page would put into the last one."""

    def send_state(self, key: str | Iterable[str] | None = None) -> None:
        """Send what has changed, the value as the last."""
        if key is not None and not isinstance(key, str):
            key = sorted(key, key=lambda name: (name == "value", name))
        super().send_state(key)


class Linear(RangeFirst, widgets.FloatSlider):
    """A slider of evenly spaced values."""


class Log(RangeFirst, widgets.FloatLogSlider):
    """A slider of powers of ten."""


class Whole(RangeFirst, widgets.IntSlider):
    """A slider of whole numbers."""


def _always(_: State) -> bool:
    return True


@dataclass(frozen=True)
class Spec:
    """A knob's words, and its slider if it has one: else it is typed. A log slider's ends are exponents."""

    label: str
    tip: str
    kind: type[widgets.Widget] | None = None
    low: float = 0
    high: float = 1
    step: float = 1
    matters: Callable[[State], bool] = _always

    def slider(self) -> Any:
        """Return a new slider, None if the knob is typed."""
        return self.kind and self.kind(min=self.low, max=self.high, step=self.step)


KNOBS = {
    "rate_per_s": Spec(
        "Arrival rate (per s)",
        "Requests that arrive in a second, on average",
        Log,
        0,
        4,
        0.01,
        matters=lambda s: s.workload != "closed",
    ),
    "clients": Spec(
        "Clients",
        "So many send, wait for the answer, think, and send again",
        Whole,
        1,
        256,
        matters=lambda s: s.workload == "closed",
    ),
    "max_batch_size": Spec(
        "Largest batch size", "A batch leaves at once when it holds so many", Whole, 1, LARGEST_SLID
    ),
    "min_batch_size": Spec(
        "Smallest batch size",
        "An idle server waits for so many",
        Whole,
        1,
        LARGEST_SLID,
        matters=lambda s: s.rule == "at_least",
    ),
    "max_wait_ms": Spec(
        "Longest wait (ms)",
        "How long the oldest request waits for company",
        Linear,
        0,
        100,
        0.5,
        matters=lambda s: s.rule == "size_or_wait",
    ),
    "objective_ms": Spec(
        "Objective: p99 (ms)",
        "99 of 100 requests shall be answered within so long; empty: none",
        Log,
        -1,
        4,
        0.01,
    ),
    "cv": Spec(
        "Burstiness (CV)",
        "Standard deviation of the gaps over their mean: 1 is random",
        Log,
        -1,
        1,
        0.01,
        matters=lambda s: s.workload == "gamma",
    ),
    "burst_factor": Spec(
        "Burst rate (x mean)",
        "How many times the mean rate; between bursts nobody comes",
        Linear,
        1.1,
        20,
        0.1,
        matters=lambda s: s.workload == "onoff",
    ),
    "mean_burst_s": Spec(
        "Mean burst (s)",
        "How long a burst lasts, on average",
        Log,
        -3,
        2,
        0.01,
        matters=lambda s: s.workload == "onoff",
    ),
    "peak_to_mean": Spec(
        "Peak over mean",
        "1 is flat, 2 leaves nothing at night",
        Linear,
        1,
        2,
        0.05,
        matters=lambda s: s.workload == "diurnal",
    ),
    "period_s": Spec(
        "Length of a day (s)",
        "A day, compressed into so many seconds",
        Log,
        0,
        3,
        0.01,
        matters=lambda s: s.workload == "diurnal",
    ),
    "think_ms": Spec(
        "Thinking time (ms)",
        "Between an answer and the client's next request, on average",
        Linear,
        0,
        1000,
        1,
        matters=lambda s: s.workload == "closed",
    ),
    "fixed_ms": Spec(
        "Fixed cost (ms)",
        "What every batch costs, however small",
        Linear,
        0,
        50,
        0.5,
        matters=lambda s: s.service == "affine",
    ),
    "per_item_ms": Spec(
        "Cost per item (ms)",
        "What each request adds to its batch",
        Linear,
        0,
        5,
        0.01,
        matters=lambda s: s.service == "affine",
    ),
    "noise_cv": Spec(
        "Noise (CV)",
        "How much equal batches differ in time: standard deviation over mean",
        Linear,
        0,
        2,
        0.05,
    ),
    "padding": Spec(
        "Padded to sizes", "A batch costs what the next of these sizes does, as 1, 2, 4, 8; empty: its own"
    ),
    "servers": Spec("Servers", "Model instances, each computing one batch at a time", Whole, 1, 8),
    "sharing": Spec(
        "Slowdown by sharing",
        "Each further busy server slows all by this part: 0 is a device each",
        Linear,
        0,
        1,
        0.05,
        matters=lambda s: s.servers > 1,
    ),
    "queue_limit": Spec("Queue limit", "Who finds so many waiting is turned away; empty: nobody is"),
    "timeout_ms": Spec("Timeout (ms)", "Who has waited so long leaves the queue; empty: nobody does"),
    "seed": Spec("Seed", "One seed is one traffic: who types the same sees the same"),
}
