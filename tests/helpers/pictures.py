"""What tests of pictures look at: settings, looks, views in plain axes, and texts where they are drawn."""

import math
import warnings
from itertools import combinations

from matplotlib.axis import Tick
from matplotlib.figure import Figure
from matplotlib.text import Text

import batchsim as bs
from batchsim.study.surface import load_curve, surface
from batchsim.theory.expected import theory_curve
from batchsim.view.pictures.data import ViewData
from batchsim.view.pictures.live import LivePicture

LOOKS = [
    {}, {"size": "projector", "theme": "dark"}, {"width_px": 570}, {"width_px": 1500, "height_px": 900},
    {"width_px": 380, "height_px": 500, "alone": True}, {"width_px": 544, "height_px": 490, "theme": "dark"},
]  # fmt: skip
BASE = bs.Scenario(bs.Poisson(1500), bs.SizeOrWait(16, 5), bs.Affine(5, 0.25))
SIZES, WAITS = (1, 4, 16, 32), (0, 5, 20, math.inf)


def data_of(scenario, objective_ms=20.0, pinned=None, before=None, requests=3000):
    result = bs.simulate(scenario, requests)
    closed = isinstance(scenario.workload, bs.ClosedLoop)
    curve = load_curve(scenario, 500)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # so short a run has no interval for some numbers
        both = None if pinned is None else bs.compare(pinned.result, result)
    return ViewData(
        result=result,
        surface=surface(scenario, SIZES, SIZES if isinstance(scenario.rule, bs.AtLeast) else WAITS, 500),
        curve=curve,
        theory=None if closed else theory_curve(scenario, curve.x_values),
        objective_ms=objective_ms,
        before=before,
        pinned=pinned,
        comparison=both,
    )


def shown(data, large="latency", **look):
    """A live picture of data."""
    kind = {"mode": data.result.scenario.kind, "parts": data.parts}
    picture = LivePicture(**{"width_px": 860, "large": large} | kind | look)
    picture.show(data)
    return picture


def pixels(picture):
    return picture.pixels().copy()


def drawn(kind, data, large=True):
    """A view in axes of its own."""
    return kind().draw(Figure(figsize=(8, 6)).subplots(len(kind.PANELS), squeeze=False).ravel(), data, large)


def group(view, kind):
    """What a view shows of a kind, by the rest of its keys."""
    return {key[1]: artist for key, artist in view.shown.items() if isinstance(key, tuple) and key[0] == kind}


def coloured(view):
    """The colours of a map's cells."""
    return view.image.to_rgba(view.image.get_array())


def over(view, across, down, data):
    """What is at fractions of the first axes' width and height, from the top left."""
    place = view.ax.transAxes.transform((across, 1 - down))
    return view.spot(view.ax, *view.ax.transData.inverted().transform(place), data)


def names_of(ax):
    """The names of a legend."""
    legend = ax.get_legend()
    return [] if legend is None else [text.get_text() for text in legend.get_texts()]


def texts_in(part):
    """The texts of a figure that are drawn."""
    hidden = set()
    for ax in part.axes:
        for axis in (ax.xaxis, ax.yaxis):
            low, high = sorted(axis.get_view_interval())
            near, ticks = 1e-9 * (high - low), axis.get_major_ticks()
            for tick in (each for each in axis.get_children() if isinstance(each, Tick)):
                if not (ax.axison and tick in ticks and low - near <= tick.get_loc() <= high + near):
                    hidden |= {tick.label1, tick.label2}
            if not ax.axison:
                hidden |= {axis.label, axis.offsetText}
        legend = ax.get_legend()
        if legend is not None and not legend.get_visible():
            hidden |= {*legend.get_texts()}
    found = part.findobj(
        lambda each: (
            isinstance(each, Text) and each.get_visible() and each.get_text() and each.get_alpha() != 0
        )
    )
    return [text for text in found if text not in hidden]


def assert_texts_laid_out(picture, name=""):
    """No text is cut off, over another, or too small."""
    picture.pixels()
    renderer, px, wrong = picture.figure.canvas.get_renderer(), picture.ratio, []
    for key, part in picture.parts.items():
        with picture.styled():  # on which the number of ticks depends
            boxes = [(text, text.get_window_extent(renderer)) for text in texts_in(part)]
        place = part.bbox.padded(px)
        for text, box in boxes:
            if not (place.x0 <= box.x0 and box.x1 <= place.x1 and place.y0 <= box.y0 and box.y1 <= place.y1):
                wrong.append((key, "cut off", text.get_text(), box.extents.round(1), place.extents.round(1)))
            if text.get_clip_on() and text.get_clip_path() is not None:
                wrong.append((key, "cut off by its axes", text.get_text()))
            if text.get_fontsize() < 11.9:
                wrong.append((key, "small", text.get_text()))
        for (one, a), (other, b) in combinations(boxes, 2):
            across, up = min(a.x1, b.x1) - max(a.x0, b.x0), min(a.y1, b.y1) - max(a.y0, b.y0)
            if across > 3 * px and up > 3 * px:  # a box has room for descenders
                wrong.append((key, "over another", one.get_text(), other.get_text(), across, up))
    assert not wrong, (name, wrong)


def assert_all_within(figure):
    """No text of a figure is cut off, over another, or too small; return each with its box."""
    figure.canvas.draw()
    renderer = figure.canvas.get_renderer()
    boxes = [(text, text.get_window_extent(renderer)) for text in texts_in(figure)]
    for text, box in boxes:
        assert -1 <= box.x0 <= box.x1 <= figure.bbox.width + 1, text
        assert -1 <= box.y0 <= box.y1 <= figure.bbox.height + 1, text
        assert text.get_fontsize() * figure.dpi / 72 >= 11.9, text
    assert overlaps(boxes) == []
    return boxes


def overlaps(boxes):
    """Return the pairs of texts whose boxes overlap, but for the room for descenders."""
    found = []
    for (one, a), (other, b) in combinations(boxes, 2):
        across, up = min(a.x1, b.x1) - max(a.x0, b.x0), min(a.y1, b.y1) - max(a.y0, b.y0)
        if across > 3 and up > 4:
            found.append((one, other))
    return found
