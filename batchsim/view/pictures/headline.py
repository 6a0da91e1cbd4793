"""The four main numbers of a run: latencies against their objectives, throughput, and load."""

import math
from collections.abc import Callable
from html import escape
from typing import NamedTuple

from batchsim._format import duration, fixed, number, percent, rounded_unit_of, typed_duration
from batchsim.result.metrics import DEVICE_WAIT, LATENCY, TPOT, TTFT, percentile_key
from batchsim.scenario import ClosedLoop
from batchsim.view.pictures.data import NAMED, ViewData

UP, DOWN, SAME = "\N{BLACK UP-POINTING TRIANGLE}", "\N{BLACK DOWN-POINTING TRIANGLE}", "unchanged"
LIMIT = "\N{LESS-THAN OR EQUAL TO}"
MET, MISSED = "\N{CHECK MARK}", "\N{BALLOT X}"
Writer = Callable[[float], str]
OF_ENERGY = {"token": "joules_per_token", "request": "joules_per_request"}


class Figure(NamedTuple):
    """A number: its name, value, unit, interval, and change since the last move.

    `levels` replaces the interval: the numbers of the priority levels. `beside` is another number of the same
    thing. An `alert` is a missed objective or an overload.
    """

    name: str
    value: str
    unit: str
    interval: str = ""
    change: str = ""
    levels: str = ""
    beside: str = ""
    alert: bool = False

    @property
    def notes(self) -> str:
        """What stands below the number."""
        return "  ".join(filter(None, (self.levels or self.interval, self.change)))


def as_html(data: ViewData) -> str:
    """Return the four numbers for a page."""
    figures = FIGURES[data.result.scenario.kind](data)
    has_line = any(each.beside for each in figures)  # then all have one, so that numbers stay where they are
    parts = []
    for figure in figures:
        look = "batchsim-number batchsim-missed" if figure.alert else "batchsim-number"
        number = f"<b>{escape(figure.value)}</b> <span>{escape(figure.unit)}</span>"
        notes = map(escape, (figure.notes, *[figure.beside] * has_line))
        lines = "".join(f"<div>{text}</div>" for text in (escape(figure.name), number, *notes))
        parts.append(f'<div class="{look}">{lines}</div>')
    return "".join(parts)


def as_line(data: ViewData) -> str:
    """Return the four numbers as a line of text, above a still picture."""
    found = FIGURES[data.result.scenario.kind](data)
    texts = (" ".join(filter(None, (each.name, each.value, each.unit))) for each in found)
    both = zip(texts, found, strict=True)
    return "     ".join(", ".join(filter(None, (text, each.beside))) for text, each in both)


def figures_of(data: ViewData) -> list[Figure]:
    """Return the four figures of a run."""
    figures = [latency_figure(data, q)._replace(levels=levels(data, q)) for q in (50, 99)]
    return [*figures, rate_figure(data, "throughput", "throughput_per_s"), load_figure(data)]


def rate_figure(data: ViewData, name: str, key: str) -> Figure:
    """Return a metric that is a rate per second, by its key; beside it, the energy that it takes."""
    before, value = data.before, data.summary[key]
    change = change_of(value, None if before is None else before.summary[key], digits)
    joules = {of: data.summary[of_one] for of, of_one in OF_ENERGY.items() if of_one in data.summary}
    energy = ", ".join(f"{number(each)} a {of}" for of, each in joules.items()).replace(" a ", " J a ", 1)
    between = _between(data.intervals.get(key), digits)
    return Figure(name, digits(value), "per s", between, change, beside=energy)


def load_figure(data: ViewData) -> Figure:
    """Return the load; for a closed loop, which has no load, the utilisation of the servers."""
    result, s, before = data.result, data.summary, data.before
    if isinstance(result.scenario.workload, ClosedLoop):
        busy = s["utilisation"]
        old = None if before is None else before.summary["utilisation"]
        return Figure("servers busy", percent(busy), "", "", _points(busy, old), beside=_devices(data))
    load, old = result.scenario.load, None
    if before is not None and not isinstance(before.result.scenario.workload, ClosedLoop):
        old = before.result.scenario.load
    name = "load" if load < 1 else f"load {MISSED} overloaded"
    of = f"of {digits(result.scenario.full_batches_per_s)}/s"
    return Figure(name, percent(load), "", of, _points(load, old), beside=_devices(data), alert=load >= 1)


def _devices(data: ViewData) -> str:
    """Return how busy the devices are that servers share, "" where they share none."""
    return f"devices {percent(data.summary['device_utilisation'])}" if data.has(DEVICE_WAIT) else ""


def latency_figure(data: ViewData, q: int, column: str = LATENCY) -> Figure:
    """Return a percentile of a column of durations, a p99 against its objective."""
    name, value, missed = f"p{q}", data.percentile_of_all(q, column), False
    objective_ms = data.limits_ms.get(column) if q == 99 else None
    grows = data.overloaded and column != TPOT  # the time of a step does not depend on the queue
    if objective_ms is not None:
        missed = value > objective_ms or grows  # NaN, a TPOT of no request, meets it
        name += f" {MISSED} > " if missed else f" {MET} {LIMIT} "
        name += typed_duration(objective_ms)
    if grows:
        return Figure(name, "grows", "", "no steady state", alert=True)
    if math.isnan(value):
        reason = "there is none" if data.summary["served"] else "none is served"
        return Figure(name, "\N{EN DASH}", "", reason)
    unit, ms = rounded_unit_of(value)
    if math.isinf(value):
        return Figure(name, "∞", "", f"{percent(data.loss)} are lost", alert=missed)

    def write(duration_ms: float) -> str:
        return fixed(duration_ms / ms)

    before, old = data.before, None
    if before is not None and (column == TPOT or not before.overloaded):
        old = before.percentile_of_all(q, column)
    change = change_of(value, old, write)
    # The intervals of percentiles ignore lost requests.
    interval = None if data.loss else data.intervals.get(percentile_key(q, column))
    return Figure(name, write(value), unit, _between(interval, write), change, alert=missed)


def levels(data: ViewData, q: int) -> str:
    """Return the p50 or the p99 of each priority level; "" without several."""
    found = {level: both[q == 99] for level, both in data.levels_ms.items()}
    texts = {level: "grows" if data.overloaded else "lost" for level, ms in found.items() if math.isinf(ms)}
    texts |= {level: duration(ms) for level, ms in found.items() if math.isfinite(ms)}
    return ", ".join(f"level {level} {texts[level]}" for level in found if level in texts)


def digits(per_s: float) -> str:
    """Return a rate per second with the digits of a figure, without its unit."""
    return fixed(per_s) if per_s < 100 else f"{per_s:,.0f}"


def _between(interval: tuple[float, float] | None, write: Writer) -> str:
    """Return an interval in words; "" if the run is too short for one."""
    if interval is None or math.isnan(interval[0]):
        return ""
    return f"{write(interval[0])} to {write(interval[1])}"


def change_of(value: float, before: float | None, write: Writer, apart: Writer | None = None) -> str:
    """Return the visible change of a figure, the difference by `apart`; "" without an earlier one."""
    if before is None or not math.isfinite(before) or not math.isfinite(value):
        return ""
    difference = value - before
    if write(value) == write(before):
        return SAME
    return f"{UP if difference > 0 else DOWN} {(apart or write)(abs(difference))}"


def _points(value: float, before: float | None) -> str:
    def points(share: float) -> str:
        text = number(100 * share, 2)
        return f"{text} point" + "s" * (text != "1")

    return change_of(value, before, percent, points)


def token_figures_of(data: ViewData) -> list[Figure]:
    """Return the p99 of TTFT and of TPOT, the tokens per second, and the goodput.

    The load replaces the goodput without objectives, and for an overloaded run, whose goodput depends on its
    length.
    """
    figures = [_p99(data, column) for column in (TTFT, TPOT)]
    figures.append(rate_figure(data, "output tokens", "output_tokens_per_s"))
    preempted = float(data.summary["preempted_share"])
    beside = f"{percent(preempted)} preempted" if preempted > 0 else ""
    if data.overloaded or not data.limits_ms:
        return [*figures, load_figure(data)._replace(beside=beside)]
    before, value = data.before, data.goodput_per_s
    old = before.goodput_per_s if before is not None and not before.overloaded else None
    within = f"{percent(data.attainment)} in time"
    change = change_of(value, old, digits)
    return [*figures, Figure("goodput", digits(value), "per s", within, change, beside=beside)]


def _p99(data: ViewData, column: str) -> Figure:
    """Return the p99 of a column against its objective, followed by the p50."""
    figure, p50_ms = latency_figure(data, 99, column), data.percentile_of_all(50, column)
    beside = f"p50 {duration(p50_ms)}" * bool(figure.unit)
    return figure._replace(name=f"{NAMED[column]} {figure.name}", beside=beside)


FIGURES: dict[str, Callable[[ViewData], list[Figure]]] = {"requests": figures_of, "tokens": token_figures_of}
