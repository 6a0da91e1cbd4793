"""Energy and cost by batch size, drawn: curves of full batches, and dots of the run."""

import numpy as np
import pytest
from pictures import drawn, names_of
from token_pictures import TOKENS

import batchsim as bs
from batchsim.result.costs import costs_of
from batchsim.view.pictures.costs import CostView
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


def test_the_dots_are_the_run_and_an_idle_server_lifts_the_energy():
    data = data_of(PAID, before=data_of(PAID.replace(rate_per_s=600)))
    view, found = drawn(CostView, data), costs_of(data.result)
    for kind, key in (("energy", "joules_per_request"), ("cost", "cost_per_million")):
        assert view.shown[kind].get_ydata()[0] == 100
        x, y = dot(view.shown[kind, "now"])
        assert x == data.summary["mean_batch_size"]
        assert y * found.each[kind][0] / 100 == pytest.approx(data.summary[key])
        assert y > np.interp(x, found.sizes, view.shown[kind].get_ydata())
    assert {("energy", "other"), ("cost", "other")} <= view.shown.keys()
    assert names_of(view.ax) == ["energy", "cost", "this run, with its idle time"]
    assert (
        view.shown["costs"]
        .get_text()
        .startswith(f"\N{BLACK DIAMOND} energy {found.run['energy']:.3g} J a request")
    )


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
    assert names_of(view.ax)[:-1] == [*costs_of(data.result).each] == kinds
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
