"""What tests of live pictures look at: settings, looks, places and texts."""

from itertools import combinations

from matplotlib.text import Text

from batchsim.view.canvas.lettering import Lettering, width_em


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
