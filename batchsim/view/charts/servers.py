"""The latency of the same traffic on several servers, from the median to the tail."""

from itertools import cycle
from typing import Any

import numpy as np
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedFormatter, FixedLocator, NullLocator

from batchsim._format import duration
from batchsim.result.metrics import heading
from batchsim.servers.comparison import Group, ServerComparison
from batchsim.view.canvas.lettering import apart
from batchsim.view.canvas.theme import BLACK
from batchsim.view.charts import chart as charts
from batchsim.view.charts.chart import Chart
from batchsim.view.charts.curves import STYLES

MARKED = (0, 50, 90, 99, 99.9)  # percentiles
LEAD_PX = 26.0  # from the axes to the names
LINE_PX, WRAP = 17.0, 24  # of a label: the height of a line, and its letters


def _wrapped(group: Group) -> str:
    """Return the names of a group, in lines, with its p99."""
    lines = [""]
    for name in group.names:
        text = f"{lines[-1]}, {name}" if lines[-1] else name
        if lines[-1] and len(text) > WRAP:
            lines[-1] += ","
            lines.append(name)
        else:
            lines[-1] = text
    p99 = f"p99 {duration(group.result.percentile(99))}" if group.stable else "its queue grows\nwithout bound"
    return "\n".join([*lines, p99])


def server_curves(comparison: ServerComparison) -> Chart:
    """Return a picture of the latency at each percentile, a line for servers whose rules are the same.

    Each line is named where it ends. Servers whose queue grows without bound have a name, and no line.
    """
    chart = Chart()
    chart.set_size_inches(9.6, 5.2)
    ax = chart.add_subplot()
    reached = min(group.result.metrics.served for group in comparison.groups)
    shown = [q for q in MARKED if q == 0 or (1 - q / 100) * reached >= 10]  # of fewer it is chance
    # The tail has as much room as the rest: each tenth of the requests.
    places = np.linspace(0, -np.log10(1 - shown[-1] / 100), 200)
    qs = 100 * (1 - 10**-places)
    ends, styles, labels, drawn = [], [], [], []
    for (colour, style, _), group in zip(cycle(STYLES), comparison.groups, strict=False):
        styles.append((colour, style))
        labels.append(_wrapped(group))
        if group.stable:
            latencies = group.result.metrics.percentiles(qs)
            said = labels[-1].replace("\n", " ")  # for the ear: the eye reads it at the line's end
            ax.plot(places, latencies, style, color=colour, linewidth=1.8, label=said)
            drawn += [float(latencies[0]), float(latencies[-1])]
            ends.append(float(latencies[-1]))
        else:
            ends.append(np.inf)
    charts.scale(ax, drawn)
    if not drawn:
        ax.set_yticks([])
    charts.room_above(ax, max(drawn, default=1.0))
    marks = [-np.log10(1 - q / 100) for q in shown]
    ax.xaxis.set_major_locator(FixedLocator(marks))
    ax.xaxis.set_minor_locator(NullLocator())
    ax.xaxis.set_major_formatter(FixedFormatter(["best", *(f"p{q:g}" for q in shown[1:])]))
    ax.set(xlim=(0, places[-1]), xlabel="percentile of the requests", ylabel=heading("latency_ms"))
    ax.set_title(f"The same traffic, {len(comparison.rules)} servers", fontsize="medium")
    ax.grid(alpha=0.3)
    names = [chart.text(0, 0, label, va="center", color=BLACK, fontsize=9) for label in labels]
    wide, tall = chart.bbox.size
    beside = LEAD_PX + max(name.get_window_extent().width for name in names)  # the layout adds an edge
    for name in names:
        name.set_in_layout(False)
    chart.set_layout_engine("constrained", rect=(0, 0, 1 - beside / wide, 1))
    chart.draw_without_rendering()  # the layout: labels are placed in pixels
    box = ax.get_window_extent()
    tops = [ax.transData.transform((0, end))[1] if np.isfinite(end) else box.y1 for end in ends]
    lines = LINE_PX * max(label.count("\n") + 1 for label in labels)
    low, high = 0.6 * lines, chart.bbox.height - 0.6 * lines
    for y, moved, (colour, style), name in zip(
        tops, apart(tops, lines, low, high), styles, names, strict=True
    ):
        at, left = (box.x1 + 2) / wide, (box.x1 + LEAD_PX) / wide
        line: dict[str, Any] = {"color": colour, "linestyle": style}
        lead = Line2D([at, left - 4 / wide], [y / tall, moved / tall], **line)
        chart.add_artist(lead)
        lead.set_in_layout(False)
        name.set_position((left, moved / tall))
    return chart
