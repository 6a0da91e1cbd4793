"""Pictures pack into PNG without loss, and letters stand where matplotlib's own do."""

from base64 import b64decode
from io import BytesIO

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from IPython.core.interactiveshell import InteractiveShell
from IPython.core.pylabtools import select_figure_formats
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from PIL import Image

import batchsim as bs
from batchsim.view.canvas.lettering import Label, Lettering, width_em
from batchsim.view.canvas.picture import Picture, to_png


@given(st.integers(1, 9), st.integers(1, 9), st.integers(0, 2**32 - 1))
def test_any_pixels_can_be_to_png(rows, columns, seed):
    drawn = np.random.default_rng(seed).integers(0, 256, (rows, columns, 4), dtype=np.uint8)
    np.testing.assert_array_equal(np.asarray(Image.open(BytesIO(to_png(drawn)))), drawn[..., :3])


# Lettering.


@pytest.mark.parametrize("weight", ["normal", "bold"])
@pytest.mark.parametrize("align", ["left", "center", "right"])
def test_lettering_stands_where_matplotlibs_own_text_does(weight, align):
    inked = []
    for own in (False, True):
        picture = Picture(400, 60)
        with picture.styled():
            if own:
                transform = picture.px_transform
                picture.text(
                    200, 40, "Jump 0123", transform=transform, fontsize=24, fontweight=weight, ha=align
                )
            else:
                lettering = Lettering(picture, 24, "black", weight)
                lettering.show([Label("Jump 0123", 200, 40, align)])
        agg = FigureCanvasAgg(picture)
        agg.draw()
        rows, columns = np.nonzero(np.asarray(agg.buffer_rgba())[..., 0] < 128)
        inked.append([rows.min(), rows.max(), columns.min(), columns.max()])
    # Matplotlib rounds each letter to whole pixels.
    assert np.abs(np.subtract(*inked)).max() <= 2


def test_a_width_is_matplotlibs_own():
    figure = Figure(dpi=72)
    renderer = FigureCanvasAgg(figure).get_renderer()
    text = figure.text(0, 0, "batch of 32: 4096 to 4127", fontsize=100)
    assert 100 * width_em("batch of 32: 4096 to 4127") == pytest.approx(
        text.get_window_extent(renderer).width, rel=0.02
    )


# In a notebook, where pyplot may have been used before.


def shown_after_pyplot(figure):
    """What IPython shows of a figure once pyplot has given it a printer of figures, (rows, columns, 3)."""
    shell = InteractiveShell()
    select_figure_formats(shell, {"png"})
    data, _ = shell.display_formatter.format(figure)
    return np.asarray(Image.open(BytesIO(b64decode(data["image/png"]))).convert("RGB"))


def test_a_chart_shows_its_axes_numbers_and_labels_also_after_pyplot():
    rates = [200, 400]
    scenario = bs.Scenario(bs.Poisson(300), bs.SizeOrWait(8, 5), bs.Affine(5, 0.25))
    chart = bs.capacity_curves({"a": bs.sweep(scenario, {"rate_per_s": rates}, 2000, progress=False)})
    inked = []
    for visible in (True, False):
        for axis in (chart.axes[0].xaxis, chart.axes[0].yaxis):
            axis.set_tick_params(labelbottom=visible, labelleft=visible)
            axis.label.set_visible(visible)
        inked.append((shown_after_pyplot(chart) < 128).any(axis=2).sum())
    assert inked[0] > inked[1] + 500
