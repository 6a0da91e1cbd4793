"""A picture in a notebook: its words, which a notebook keeps, and that all of it is shown."""

from base64 import b64decode
from io import BytesIO

import matplotlib.pyplot as plt
import numpy as np
import pytest
from IPython.core.interactiveshell import InteractiveShell
from IPython.core.pylabtools import select_figure_formats
from matplotlib.figure import Figure
from PIL import Image

import batchsim as bs
from batchsim.teaching.output_capture import with_words
from batchsim.view.pictures.picture import described

BUSY = bs.Scenario(bs.Poisson(800), bs.SizeOrWait(8, 5), bs.Affine(5, 0.5), servers=2)
CALM = BUSY.replace(rate_per_s=300)


def drawn(draw, **labels):
    figure = Figure()
    draw(figure.add_subplot(**labels))
    return described(figure)


@pytest.mark.parametrize(
    ("draw", "words"),
    [
        (lambda ax: ax.plot([1, 2, 3], [5, 1, 9.5], label="a"), "a: from 5 to 9.5, at least 1, at most 9.5."),
        (lambda ax: ax.plot([1], [5], "o", label="here"), "here: a mark."),
        (lambda ax: ax.plot([1], [5], linestyle="none", label="not\ndrawn"), "not drawn."),
        (lambda ax: ax.axvline(11, label="exact"), "exact: at x 11."),
        (lambda ax: ax.axhline(25, label="objective"), "objective: at y 25."),
        (lambda ax: ax.plot([1, 2], [np.nan, np.inf], label="gone"), "gone: no numbers."),
        (lambda ax: ax.bar([1, 2, 3], [5, 6, 7], label="b"), "b: 3 bars, at least 5, at most 7."),
        (lambda ax: ax.barh([1, 2], [5, 6], label="b"), "b: 2 bars, at least 5, at most 6."),
        (lambda ax: ax.scatter([1, 2], [3, 4], label="runs"), "runs: 2 points."),
        (lambda ax: ax.hlines([1, 2], 3, 4, label="intervals"), "intervals: 2 lines."),
        (
            lambda ax: ax.pcolormesh([[1.5, 2], [3, np.nan]]),
            "a map in colours of 3 values, at least 1.5, at most 3.",
        ),
        (lambda ax: ax.imshow([[1, 2]]), "a map in colours."),
        (lambda ax: ax.plot([1, 2], [3, 4]), ""),  # without a name, it says nothing that one could read
    ],
)
def test_a_series_is_described_by_its_name_and_its_numbers(draw, words):
    assert drawn(draw) == words


def test_axes_are_described_by_their_title_and_what_is_over_what():
    assert drawn(lambda ax: None, title="Night", xlabel="rate", ylabel="p99") == "Night: p99 over rate."
    assert drawn(lambda ax: None, xlabel="latency (ms)") == "latency (ms)."
    figure, axes = plt.subplots(1, 3)
    figure.suptitle("Both")
    axes[0].set_title("one")
    axes[1].set_title("two")
    axes[2].set(title="hidden", visible=False)
    assert described(figure) == "Both. one. two."
    plt.close(figure)


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: bs.plot(bs.simulate(BUSY, 3000)), ["p99", "Batch"]),
        (
            lambda: bs.lanes(BUSY, {"waits": bs.SizeOrWait(8, 5), "never": bs.SizeOrWait(8, 0)}),
            ["waits: p99", "never: p99", "at most"],
        ),
        (
            lambda: bs.heat_map(
                bs.sweep(CALM, {"max_batch_size": [2, 8], "max_wait_ms": [0, 5]}, 2000, progress=False),
                "max_batch_size",
                "max_wait_ms",
            ),
            ["max", "lowest: 10.8 at 2, 5: a mark", "a map in colours of 4 values, at least 10.8"],
        ),
    ],
)
def test_every_picture_of_ours_tells_a_notebook_its_words(make, told):
    picture = make()
    data, metadata = picture._repr_mimebundle_()
    assert data == {}, "each front end draws it as it draws any"
    alt = metadata["image/png"]["alt"]
    assert metadata["needs_background"] == "light", "dark pages of lessons invert it"
    assert alt == picture.words
    assert [word for word in told if word not in alt] == []


def test_a_notebook_keeps_the_words_of_any_figure_that_it_draws():
    shell = InteractiveShell()
    formatter = shell.display_formatter.mimebundle_formatter
    formatter.for_type_by_name("matplotlib.figure", "Figure", with_words)
    shell.display_formatter.formatters["image/png"].enabled = True
    shell.display_formatter.formatters["image/png"].for_type(Figure, lambda figure: b"drawn")
    figure = Figure()
    figure.add_subplot(title="A busy hour")
    data, metadata = shell.display_formatter.format(figure)
    assert data["image/png"] == b"drawn"
    assert metadata["image/png"] == {"alt": "A busy hour."}
    assert metadata["needs_background"] == "light"
    figure.set_facecolor("black")
    assert "needs_background" not in shell.display_formatter.format(figure)[1], "a page need not make it dark"


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
    assert inked[0] > inked[1] + 300
