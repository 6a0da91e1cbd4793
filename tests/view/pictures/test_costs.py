"""Energy and cost by batch size: the curves are full batches without a pause, the dots are the run."""

import math

import numpy as np
import pytest
from pictures import drawn, names_of
from token_pictures import TOKENS

import batchsim as bs
from batchsim.view.pictures.costs import CostView, costs_of
from batchsim.view.pictures.data import ViewData
from batchsim.view.pictures.live import LivePicture

WATTS = {0: 60, 1: 100, 8: 240, 32: 300}
PLAIN = bs.Scenario(bs.Poisson(300), bs.SizeOrWait(16, 5), bs.Affine(5, 0.25))
PAID = PLAIN.replace(watts=WATTS, price_per_hour=3)


def data_of(scenario, requests=1000, **more):
    return ViewData(bs.simulate(scenario, requests), **more)


def dot(line):
    (x,), (y,) = line.get_data()
    return float(x), float(y)


@pytest.mark.parametrize("size", [1, 4, 16])
def test_full_batches_without_a_pause_are_on_the_curves(size):
    full = bs.SizeOrWait(size, math.inf)
    data = data_of(PAID.replace({"workload": bs.ClosedLoop(size), "rule": full}), 100 * size)
    found = costs_of(data)
    assert found.sizes[-1] == size
    assert found.ms[-1] == pytest.approx(5 + 0.25 * size)
    for kind, key in (("energy", "joules_per_request"), ("cost", "cost_per_million")):
        assert found.run[kind] == pytest.approx(data.summary[key])
        assert found.each[kind][-1] == pytest.approx(found.run[kind], rel=1e-9)


def test_engines_with_all_seats_taken_are_on_the_curves_of_tokens():
    step = bs.StepTime(fixed_ms=2, weights_ms=8, per_token_ms=0.1, per_read_ms=0.001)
    scenario = bs.Scenario(
        bs.ClosedLoop(8), bs.Continuous(8), step, tokens=bs.Tokens(1, 300), watts=WATTS, price_per_hour=3
    )
    data = data_of(scenario, 80)
    found = costs_of(data)
    assert found.unit == "token"
    for kind in ("energy", "cost"):
        assert found.each[kind][-1] == pytest.approx(found.run[kind], rel=0.005)
    assert found.ms[-1] == pytest.approx(np.diff(data.result.steps.finish_s).mean() * 1000, rel=0.005)


def test_a_captured_size_above_the_seats_is_not_on_the_curves_of_tokens():
    step = bs.StepTime(2, 8, 0.1, captured=(1, 2, 4, 8), beyond_ms=60)
    scenario = bs.Scenario(
        bs.ClosedLoop(6), bs.Continuous(6), step, tokens=bs.Tokens(1, 300), watts=WATTS, price_per_hour=3
    )
    data = data_of(scenario, 60)
    found = costs_of(data)
    assert found.ms.tolist() == pytest.approx([10, 10, 10, 10, 60, 60])
    assert found.ms[-1] == pytest.approx(np.diff(data.result.steps.finish_s).mean() * 1000, rel=0.005)


def test_the_dots_are_the_run_and_an_idle_server_lifts_the_energy():
    data = data_of(PAID, before=data_of(PAID.replace(rate_per_s=600)))
    view, found = drawn(CostView, data), costs_of(data)
    for kind, key in (("energy", "joules_per_request"), ("cost", "cost_per_million")):
        assert view.lines[kind].get_ydata()[0] == 100
        x, y = dot(view.dots[kind])
        assert x == data.summary["mean_batch_size"]
        assert y * found.each[kind][0] / 100 == pytest.approx(data.summary[key])
        assert y > np.interp(x, found.sizes, view.lines[kind].get_ydata())
    assert len(view.other_dots.get_xdata()) == 2
    assert view.other_dots.get_visible()
    assert names_of(view.ax) == ["energy", "cost", "this run, with its idle time"]
    assert view.costs.get_text().startswith(f"\N{BLACK DIAMOND} energy {found.run['energy']:.3g} J a request")


@pytest.mark.parametrize(
    ("changes", "kinds"),
    [
        ({"price_per_hour": None}, ["energy"]),
        ({"watts": None}, ["cost"]),
        ({"watts": {1: 0.0, 8: 0.0}}, ["cost"]),
        ({"price_per_hour": 0}, ["energy"]),
    ],
)
def test_only_what_is_known_is_drawn(changes, kinds):
    data = data_of(PAID.replace(changes))
    view = drawn(CostView, data)
    assert names_of(view.ax)[:-1] == [*costs_of(data).each] == kinds
    assert len(view.describe(data)) == 1


@pytest.mark.parametrize("plain", [PLAIN, TOKENS], ids=["requests", "tokens"])
def test_pictures_have_the_view_where_servers_have_a_price_or_watts(plain):
    paid = bs.simulate(plain.replace(watts=WATTS), 300)
    assert [*bs.plot(paid).views].count("costs") == 1
    assert "costs" not in bs.plot(bs.simulate(plain, 300)).views
    kind = paid.scenario.kind
    for parts in (("paid",), ()):
        assert ("costs" in LivePicture(mode=kind, parts=parts).views) == bool(parts)
    words = bs.plot(paid).words
    assert f"The energy is {'0' if kind == 'tokens' else ''}" in words
    assert "in this run; alone," in words


def test_the_pointer_says_what_a_batch_takes():
    data = data_of(PAID)
    view = drawn(CostView, data)
    said = view.spot(view.ax, 8.1, 50, data).text
    assert said == "Batches of 8 without a pause: 7.00 ms each, 0.21 J a request, 0.729 per million requests"


def test_a_run_that_serves_nobody_has_curves_and_no_words():
    data = data_of(PAID.replace(timeout_ms=0), 5)
    assert not data.summary["served"]
    assert drawn(CostView, data).describe(data) == []


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("wide", [390, 1000])
def test_it_is_drawn_in_both_themes_and_on_a_phone(theme, wide):
    picture = LivePicture(wide, 480, theme=theme, large="costs", parts=("paid",))
    picture.show(data_of(PAID, before=data_of(PLAIN)))
    assert np.ptp(picture.pixels()) > 100


def test_a_sweep_maps_the_energy_of_a_request_and_stars_the_least():
    over = {"max_batch_size": [4, 8, 16], "max_wait_ms": [0, 10, 40]}
    frame = bs.sweep(PAID, over, 2000, progress=False)
    picture = bs.heat_map(frame, value="joules_per_request")
    assert "energy per request (J)" in [ax.get_ylabel() for ax in picture.axes]
    (star,) = (line for line in picture.axes[0].lines if line.get_marker() == "*")
    best = frame.loc[frame.joules_per_request.idxmin()]
    places = [sorted(set(frame[knob])).index(best[knob]) for knob in over]
    assert [int(each[0]) for each in star.get_data()] == places  # in its cell
    assert frame.max_wait_ms[frame.joules_per_request.idxmin()] == 40
