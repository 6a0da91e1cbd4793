"""What a lesson draws answers its question, and can be read."""

import re

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.container import BarContainer
from matplotlib.figure import Figure
from matplotlib.path import Path
from matplotlib.text import Annotation
from pictures import overlaps, texts_in

# What a question asks about, and how an outcome names it.
METRICS = {
    r"\bp99\b|promise": r"\bp99|percentile",
    r"mean latency|latency on average": "mean",
    "latency": "latency|ms",
    "TTFT": "TTFT",
    "TPOT": "TPOT",
    "tokens per second": "tokens/s",
    "replicas": "replicas",
    "how do padding": "padding",
}


def figures_in(values):
    return [each for each in values if isinstance(each, Figure)]


def words_of(value):
    """Return every text of a figure, of a table, or of another object."""
    if isinstance(value, Figure):
        return " ".join(text.get_text() for text in value.findobj(lambda each: hasattr(each, "get_text")))
    return value._repr_html_() if hasattr(value, "_repr_html_") else repr(value)


def missing_metrics(question, values, printed):
    """Return what a question asks about and its outcome does not show: its pictures, if it has any."""
    shown = figures_in(values) or [printed, *values]
    words = " ".join(each if each is printed else words_of(each) for each in shown)
    asked = {named for asks, named in METRICS.items() if re.search(asks, question)}
    return [named for named in asked if not re.search(named, words)]


def curves_of(ax):
    """Return the lines of axes in pixels, those of one point left out."""
    lines = [line for line in ax.lines if line.get_linestyle() not in ("None", "", " ")]
    points = [line.get_transform().transform(line.get_xydata().astype(float)) for line in lines]
    return [Path(each) for each in (one[np.isfinite(one).all(axis=1)] for one in points) if len(each) > 1]


def faults(figure):
    """Return what cannot be read in a figure."""
    canvas, found = FigureCanvasAgg(figure), []
    canvas.draw()
    renderer = canvas.get_renderer()
    boxes = [(text, text.get_window_extent(renderer)) for text in texts_in(figure)]
    found += [("over another", one.get_text(), other.get_text()) for one, other in overlaps(boxes)]
    for text, box in boxes:
        if not (-1 <= box.x0 <= box.x1 <= figure.bbox.width + 1):
            found.append(("cut off", text.get_text()))
    for ax in figure.axes:
        for bars in (each for each in ax.containers if isinstance(each, BarContainer)):
            axis = ax.xaxis if bars.orientation == "horizontal" else ax.yaxis
            if axis.get_scale() != "linear":
                found.append(("bars on a scale that is not linear", ax.get_title()))
        marks = [line for line in ax.lines if line.get_marker() not in ("None", "", " ", "|", None)]
        points = [ax.transData.transform(line.get_xydata().astype(float)) for line in marks]
        for text, box in boxes:
            if isinstance(text, Annotation) and text.axes is ax and text.get_bbox_patch() is None:
                hit = [
                    ((place > (box.x0, box.y0)) & (place < (box.x1, box.y1))).all(axis=1) for place in points
                ]
                if any(map(np.any, hit)):
                    found.append(("over a mark", text.get_text()))
                if any(curve.intersects_bbox(box.padded(-2), filled=False) for curve in curves_of(ax)):
                    found.append(("over a line", text.get_text()))
        shown = [axis for axis in (ax.xaxis, ax.yaxis) if axis.get_visible()]
        inside = [(axis.get_view_interval(), axis) for axis in shown]
        ticks = [
            tick.label1.get_text()
            for ends, axis in inside
            for tick in axis.get_major_ticks()
            if min(ends) <= tick.get_loc() <= max(ends)
        ]
        found += [("without separators", each) for each in ticks if re.match(r"\d{4,}", each)]
        columns = [text.get_text() for text in ax.texts if re.fullmatch(r"[\d,]+(\.\d+)?", text.get_text())]
        bars = any(isinstance(each, BarContainer) for each in ax.containers)
        if bars and len({len(each.partition(".")[2]) for each in columns}) > 1:
            found.append(("decimals differ", columns))
    return found
