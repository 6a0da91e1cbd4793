"""What tests of live pictures look at: settings, looks, places and texts."""

import math
import warnings
from itertools import combinations

from matplotlib.text import Text

import batchsim as bs
from batchsim.study.surface import load_curve, surface
from batchsim.theory.expected import theory_curve
from batchsim.view.canvas.lettering import Lettering, width_em
from batchsim.view.pictures.data import ViewData
from batchsim.view.pictures.live import LivePicture
from batchsim.view.pictures.views import views_of


def pixels(picture):
    return picture.pixels().copy()


def assert_drawn_within_places(picture):
    """Each tile draws on its own pixels alone."""
    frame, renderer = picture._frame(), picture.agg.get_renderer()
    for tile in picture.tiles:
        frame[:] = 255
        tile.draw_fixed(renderer)
        tile.draw_moving(renderer)
        frame[tile.region] = 255
        assert (frame[..., :3] == 255).all()


def places_of(tile, picture):
    """Each text of a view with its rectangle in CSS pixels: (text, left, top, right, bottom)."""
    renderer, ratio = picture.agg.get_renderer(), picture.ratio
    for artist in (*tile.fixed, *tile.moving):
        if isinstance(artist, Lettering):
            for label in artist.labels:
                width = artist.font_px * width_em(label.text)
                left = label.x - width * {"left": 0, "center": 0.5, "right": 1}[label.align]
                yield label.text, left, label.y - 0.76 * artist.font_px, left + width, label.y
        elif isinstance(artist, Text) and artist.get_text():
            box = artist.get_window_extent(renderer)
            top, bottom = picture.height_px - box.y1 / ratio, picture.height_px - box.y0 / ratio
            yield artist.get_text(), box.x0 / ratio, top, box.x1 / ratio, bottom


def assert_texts_laid_out(picture, name):
    """No text is over another or too small."""
    for tile in picture.tiles:
        tile.refresh()  # all that drawing it does to texts
        for one, other in combinations(list(places_of(tile, picture)), 2):
            apart = one[3] <= other[1] or other[3] <= one[1] or one[4] <= other[2] or other[4] <= one[2]
            assert apart, (name, one, other)
        for artist in (*tile.fixed, *tile.moving):
            if isinstance(artist, Lettering) and artist.labels:
                assert artist.font_px >= 11.9, (name, artist.labels)
            elif isinstance(artist, Text) and artist.get_text():
                assert artist.get_fontsize() >= 11.9, (name, artist.get_text())


LOOKS = [
    {}, {"size": "projector", "theme": "dark"}, {"width_px": 570}, {"width_px": 1500, "height_px": 900},
    {"width_px": 380, "height_px": 500, "alone": True},
]  # fmt: skip


def over(view, across, down, data):
    box = view.plot_box
    return view.spot(box.left + across * box.width, box.top + down * box.height, data)


LEAST = {"width_px": 544, "height_px": 470}  # with less, the large view is alone
BASE = bs.Scenario(bs.Poisson(1500), bs.SizeOrWait(16, 5), bs.Affine(5, 0.25))
ALWAYS = sorted(views_of("requests"))
SIZES, WAITS = (1, 4, 16, 32), (0, 5, 20, math.inf)


def data_of(scenario, objective_ms=20.0, pinned=None, before=None, requests=3000, compared=True):
    result = bs.simulate(scenario, requests)
    closed = isinstance(scenario.workload, bs.ClosedLoop)
    y_values = SIZES if isinstance(scenario.rule, bs.AtLeast) else WAITS
    curve = load_curve(scenario, 500)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # so short a run has no interval for some numbers
        both = bs.compare(pinned.result, result) if pinned is not None and compared else None
    return ViewData(
        result=result,
        surface=surface(scenario, SIZES, y_values, 500),
        curve=curve,
        theory=None if closed else theory_curve(scenario, curve.x_values),
        objective_ms=objective_ms,
        before=before,
        pinned=pinned,
        comparison=both,
    )


def shown(data, width_px=860, large="latency", **look):
    picture = LivePicture(width_px, large=large, **look)
    picture.show(data)
    return picture


def enlarged(data, kind, **look):
    """The large view of that kind."""
    return shown(data, large=kind.KEY, **look).view(kind)
