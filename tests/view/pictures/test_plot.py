"""A result's pictures are ordinary figures of matplotlib: of all views, or of one in the caller's axes."""

import subprocess
import sys
from base64 import b64decode
from io import BytesIO

import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from pictures import assert_all_within
from PIL import Image

import batchsim as bs
from batchsim.view.pictures.data import ViewData
from batchsim.view.pictures.headline import as_line
from batchsim.view.pictures.plot import views_of_result
from batchsim.view.pictures.views import VIEWS

SCENARIO = bs.Scenario(bs.Poisson(1500), bs.SizeOrWait(8, 4), bs.Affine(5, 0.25), servers=2)
MORE = SCENARIO.replace(replicas=2, workload=bs.Poisson(1500).with_sizes(bs.Uniform(1, 9)))


@pytest.fixture(scope="module")
def result():
    return bs.simulate(SCENARIO, requests=2000)


@pytest.fixture(scope="module")
def frame():
    return bs.sweep(SCENARIO, {"max_batch_size": [2, 8], "max_wait_ms": [0, 5]}, 500, progress=False)


@pytest.fixture(scope="module")
def found():
    return bs.tune(SCENARIO, bs.SLO(p99_ms=40), {"max_batch_size": [4, 8]}, requests=5000)


# A figure of all views.


def test_plot_returns_a_figure_of_its_views_with_the_four_numbers_above_and_nothing_cut_off(
    result, token_cases
):
    for run in (result, bs.simulate(MORE, 2000), token_cases["short"].result):
        figure = bs.plot(run)
        assert isinstance(figure, Figure)
        assert figure.get_suptitle() == as_line(ViewData(run))
        assert all(ax.get_xlabel() for view in figure.views.values() for ax in view.axes[-1:])
        assert_all_within(figure)
        image = Image.open(BytesIO(figure._repr_png_()))
        assert image.size[0] == 1000
        assert len(np.unique(np.asarray(image.convert("L")))) > 50  # something is drawn
    assert [*bs.plot(result).views] == ["latency", "breakdown", "batches", "timeline"]
    assert [*bs.plot(token_cases["short"].result).views] == ["latency", "breakdown", "steps", "seats"]


def test_a_run_that_serves_nobody_can_be_drawn():
    nobody = bs.simulate(SCENARIO.replace(timeout_ms=0, max_wait_ms=10, max_batch_size=32), requests=5)
    assert nobody.summary()["served"] == 0
    assert bs.plot(nobody)._repr_png_()


# In the caller's axes.


def test_a_user_draws_two_results_and_a_map_in_axes_of_their_own(result, frame, tmp_path):
    with plt.style.context("seaborn-v0_8"):
        figure, (one, two, third) = plt.subplots(1, 3, figsize=(12, 4))
        slow = bs.simulate(SCENARIO.replace(max_wait_ms=9), 2000)
        assert bs.plot(result, "latency", ax=one) is one
        bs.plot(slow, "latency", ax=two)
        two.set_xscale("log")
        two.sharey(one)
        assert bs.heat_map(frame, "max_batch_size", "max_wait_ms", ax=third) is third
        one.set_title("As it is")
        figure.tight_layout()
        for kind, head in (("svg", b"<?xml"), ("pdf", b"%PDF")):
            figure.savefig(tmp_path / f"mine.{kind}")
            assert (tmp_path / f"mine.{kind}").read_bytes().startswith(head)
        assert to_hex(one.get_facecolor()) == to_hex(plt.rcParams["axes.facecolor"]) != "#ffffff"
    assert one.get_title() == "As it is"
    assert one.get_title("left") in ("", "Latency")
    assert two.get_xscale() == "log"
    percentiles = [line.get_xdata()[0] for line in two.lines if len(line.get_xdata()) == 2]
    assert slow.percentile(99) in percentiles
    assert (third.get_xlabel(), len(figure.axes)) == ("max batch size", 4)  # and the bar of the map's colours
    plt.close(figure)


def test_every_picture_of_studies_is_drawn_into_axes_of_the_caller(frame, found):
    rates = bs.sweep(SCENARIO, {"rate_per_s": [500, 1000]}, 500, progress=False)
    servers = bs.compare_servers(SCENARIO, {"a": bs.SizeOrWait(8, 2), "b": bs.SizeOrWait(4, 2)}, requests=500)
    draws = (
        lambda ax: bs.heat_map(frame, "max_batch_size", "max_wait_ms", ax=ax),
        lambda ax: bs.frontier(frame, ax=ax),
        lambda ax: bs.capacity_curves(rates, ax=ax),
        lambda ax: bs.plot(found, ax=ax),
        lambda ax: bs.plot(servers, ax=ax),
    )
    figure = Figure()
    for draw, ax in zip(draws, figure.subplots(1, 5), strict=True):
        assert draw(ax) is ax
        assert ax.has_data()
        before = ax.get_ylim()
        ax.plot(ax.get_xlim(), [before[1]] * 2)
        assert ax.get_ylim() == before
        ax.set_yscale("log")
        figure.canvas.draw()
        assert 0 < ax.get_ylim()[1] / 1e3 < ax.get_ylim()[0] < ax.get_ylim()[1]
        with pytest.raises(TypeError, match=r"ax must be matplotlib Axes, got 3"):
            draw(3)
        assert_title_is_replaced(draw(None).axes[0])


def assert_title_is_replaced(ax):
    """A reader's title takes the place of ours."""
    assert ax.get_title()
    ax.set_title("Mine")
    assert ax.get_title() == "Mine"
    assert [ax.get_title(at) for at in ("left", "center", "right")] == ["Mine", "", ""]


def assert_owned(ax):
    """Axes keep their limits, until a logarithmic scale has those of what is drawn."""
    before = ax.axis()
    ax.figure.canvas.draw()
    assert ax.axis() == before
    ax.set(xscale="log", yscale="log")
    ax.figure.canvas.draw()
    most = ax.dataLim.max
    for ends, were, high in zip((ax.get_xlim(), ax.get_ylim()), (before[:2], before[2:]), most, strict=True):
        assert np.sign(np.diff(ends)) == np.sign(np.diff(were))
        assert 0 < min(ends) < high <= max(ends) * (1 + 1e-12)  # to which old versions of matplotlib round
        assert max(ends) < 1e6 * min(ends)  # else what is drawn has no room


@pytest.mark.parametrize("at_first", [False, True])
@pytest.mark.parametrize("kind", VIEWS)
def test_the_axes_of_any_view_may_be_logarithmic(token_cases, kind, at_first):
    run = token_cases["short"].result if kind == "tokens" else bs.simulate(MORE, 500)
    for view in views_of_result(run):
        ax = Figure().subplots()
        if at_first:
            ax.set(xscale="log", yscale="log")
        bs.plot(run, view, ax=ax)
        assert_owned(ax)


@pytest.mark.parametrize("view", ["latency", "breakdown", "batches", "timeline", "sizes", "replicas"])
def test_one_view_has_a_figure_of_its_own(view):
    figure = bs.plot(bs.simulate(MORE, 1000), view)
    assert len(figure.axes) == 1
    assert figure.words
    assert_all_within(figure)
    assert_title_is_replaced(figure.axes[0])


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (("latensy",), ValueError, r"view must be 'latency' or .*, got 'latensy'; did you mean 'latency'\?"),
        (("map",), ValueError, "view must be 'latency' or 'breakdown' or 'batches' or 'timeline', got 'map'"),
        ((3,), ValueError, "view must be 'latency' or .*, got 3"),
        (("latency", 3), TypeError, "ax must be matplotlib Axes, got 3"),
        ((None, Figure().subplots()), ValueError, "ax must come with a view, 'latency' or .*, got no view"),
    ],
)
def test_what_cannot_be_drawn_is_refused_in_one_line(result, arguments, error, message):
    view, *ax = arguments
    with pytest.raises(error, match=message) as refusal:
        bs.plot(result, view, ax=ax[0] if ax else None)
    assert "\n" not in str(refusal.value)


def test_a_run_without_columns_is_not_drawn_and_a_study_has_no_views(token_cases, found):
    with pytest.raises(ValueError, match="must have columns to be drawn, got one with keep='summary'"):
        bs.plot(bs.simulate(SCENARIO, 100, keep="summary"))
    with pytest.raises(ValueError, match="theory must be False"):
        bs.plot(token_cases["short"].result, theory=True)
    with pytest.raises(ValueError, match="view must be None for a Recommendation, got 'latency'"):
        bs.plot(found, "latency")
    with pytest.raises(ValueError, match="theory must be left out for a Recommendation, got True"):
        bs.plot(found, theory=True)
    with pytest.raises(TypeError, match="result must be a Result or a Measurement, got 3"):
        bs.plot(3)


# Theory and intervals, drawn over a result.


def spans(ax):
    """The bands of an axes, as (from, to)."""
    return [
        (patch.get_x(), patch.get_x() + patch.get_width())
        for patch in ax.patches
        if patch.get_alpha() == 0.18
    ]


def test_the_percentiles_have_their_intervals_as_bands_if_there_are_any():
    result = bs.simulate(SCENARIO, 20_000)
    ax = bs.plot(result, "latency", ax=Figure().subplots())
    assert spans(ax) == [pytest.approx(result.interval(f"p{q}")) for q in (50, 99)]
    assert spans(bs.plot(bs.simulate(SCENARIO, 100), "latency", ax=Figure().subplots())) == []


def drawn_with_theory(scenario, requests=5000):
    picture = bs.plot(bs.simulate(scenario, requests), theory=True)
    return picture, picture.get_supxlabel()


def test_an_overloaded_run_has_its_queue_and_no_band_of_a_percentile():
    picture, text = drawn_with_theory(SCENARIO.replace(rate_per_s=4000), 20_000)
    latency = picture.views["latency"]
    assert "Overloaded" in latency.heading.get_text()
    assert "queue" in latency.shown
    assert spans(latency.ax) == []
    assert text.startswith("no steady state")


GREEDY = bs.Scenario(bs.Poisson(800), bs.SizeOrWait(16, 0), bs.Affine(5, 0.25))


def test_the_distribution_of_theory_is_drawn_over_the_simulated_one():
    picture, text = drawn_with_theory(GREEDY, 50_000)
    latency = picture.views["latency"]
    bars, expected = (latency.shown[key].get_data().values for key in ("bars", "expected"))
    assert expected == pytest.approx(bars, abs=0.3)
    assert picture.views["batches"].shown["theory"].get_ydata().sum() == pytest.approx(100)
    assert "mean latency 9.656 ms" in text


@pytest.mark.parametrize(
    ("knobs", "text"),
    [
        ({"max_wait_ms": 5}, "theory, M/D^(1,16)/1"),
        ({"max_wait_ms": 50}, "no theory applies"),
        ({"rate_per_s": 5000}, "no steady state: the load must be below 1"),
        ({"workload": bs.Gamma(100, 2), "max_batch_size": 1}, "theory, GI/D/1"),
    ],
)
def test_what_theory_says_stands_below_or_why_it_says_nothing(knobs, text):
    picture, shown = drawn_with_theory(GREEDY.replace(knobs))
    assert text in shown
    assert text.partition(":")[0][1:] in picture.words
    assert_all_within(picture)


def test_theory_that_has_no_distribution_leaves_the_mean():
    scenario = bs.Scenario(bs.Gamma(90, 2), bs.SizeOrWait(1, 0), bs.Affine(10, 0))
    picture, text = drawn_with_theory(scenario, 100)
    line = picture.views["latency"].shown["theory"]
    assert f"GI/D/1: mean latency {line.get_xdata()[0]:.4g} ms" in text
    assert "nan" not in text


INLINE = """
from IPython.core.interactiveshell import InteractiveShell
from IPython.core.pylabtools import select_figure_formats
import batchsim as bs
shell = InteractiveShell.instance()
select_figure_formats(shell, {"png"}, bbox_inches="tight")  # as pyplot does in a notebook, for every Figure
scenario = bs.Scenario(bs.Poisson(800), bs.SizeOrWait(32, 0), bs.Affine(5, 0.25))
plot = bs.plot(bs.simulate(scenario, 2000))
print(shell.display_formatter.format(plot)[0]["image/png"])
"""


def test_a_kernel_in_which_others_have_drawn_shows_all_of_a_plot():
    said = subprocess.run([sys.executable, "-c", INLINE], capture_output=True, check=True, timeout=120).stdout
    theirs = np.asarray(Image.open(BytesIO(b64decode(said))).convert("L"))
    scenario = bs.Scenario(bs.Poisson(800), bs.SizeOrWait(32, 0), bs.Affine(5, 0.25))
    mine = np.asarray(Image.open(BytesIO(bs.plot(bs.simulate(scenario, 2000)).png())).convert("L"))
    assert np.abs((theirs < 250).sum() / (mine < 250).sum() - 1) < 0.02  # whatever their margins
