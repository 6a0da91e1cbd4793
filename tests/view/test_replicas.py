"""Replicas in pictures, in the film and in the explorer: each shows what the result has."""

import re

import numpy as np
import pytest

import batchsim as bs
from batchsim._format import duration, number, percent
from batchsim.view.explorer.kinds import relevant
from batchsim.view.explorer.state import DEFAULT, State
from batchsim.view.film.lane_kinds import RequestLanes
from batchsim.view.film.snapshot import Film
from batchsim.view.film.window import request_window
from batchsim.view.pictures.data import ViewData
from batchsim.view.pictures.live import LivePicture
from batchsim.view.pictures.replicas import ReplicasView

FOUR = bs.Scenario(
    bs.Poisson(4000), bs.SizeOrWait(8, 5), bs.Affine(1.85, 0.15), servers=2, replicas=4, routing="fill_first"
)


@pytest.fixture(scope="module")
def result():
    return bs.simulate(FOUR, 5000, seed=1)


def test_a_plot_has_bars_of_the_load_and_the_batch_size_of_each_replica(result):
    (view,) = (each for each in bs.plot(result).views if isinstance(each, ReplicasView))
    of_each = result.by_replica()
    assert view.bars[0].get_data().values[::2] == pytest.approx(100 * of_each["utilisation"])
    assert view.bars[1].get_data().values[::2] == pytest.approx(of_each["mean_batch_size"].fillna(0))
    assert ReplicasView not in map(type, bs.plot(bs.simulate(FOUR.replace(replicas=1), 500)).views)


def test_the_view_of_tokens_has_the_same_columns():
    tokens = bs.Tokens(bs.Geometric(300), bs.Geometric(40))
    scenario = bs.Scenario(bs.Poisson(40), bs.Continuous(16), bs.StepTime(7, 10, 0.1), tokens=tokens)
    result = bs.simulate(scenario.replace(replicas=3, routing="least_tokens"), 500)
    (view,) = (each for each in bs.plot(result).views if isinstance(each, ReplicasView))
    of_each, data = result.by_replica(), ViewData(result)
    assert view.bars[0].get_data().values[::2] == pytest.approx(100 * of_each["utilisation"])
    assert view.bars[1].get_data().values[::2] == pytest.approx(of_each["mean_batch_size"])
    assert f"p99 {duration(of_each['p99_ms'][1])}" in view.spot(*middle(view.boxes[0]), data).text
    panel = bs.explore(scenario, requests=100)
    assert "replicas" not in dict(panel.large.options).values()
    panel.controls["token_replicas"].value = 2
    panel.large.value = "replicas"
    assert "Each of 2 replicas is" in panel.readout.value


def middle(box):
    return box.left + box.width / 2, box.top + box.height / 2


def test_the_view_says_the_extremes_and_the_numbers_of_the_replica_under_the_pointer(result):
    data, picture = ViewData(result), LivePicture(large="replicas", parts=("by_replica",))
    picture.show(data)
    of_each, view = result.by_replica(), picture.view(ReplicasView)
    busy = 100 * of_each["utilisation"]
    said = re.search(r"4 replicas is between (\d+)% and (\d+)% busy", picture.describe(data))
    assert [*map(float, said.groups())] == pytest.approx([busy.min(), busy.max()], abs=1)
    for box in view.boxes:
        for k in range(4):
            spot = view.spot(box.left + (k + 0.5) * box.width / 4, box.top + 20, data)
            assert spot.text.startswith(f"Replica {k}: {percent(of_each['share'][k])} of the requests, ")
            assert f"{number(of_each['mean_batch_size'][k])}" in spot.text or not of_each["batches"][k]


def test_the_views_fill_the_picture_with_and_without_one_of_replicas():
    for parts in ((), ("by_replica",), ("sizes", "by_replica")):
        live = LivePicture(parts=parts)
        areas = [view.box.width * view.box.height for view in live.views]
        assert len(areas) == 6 + len(parts)
        assert sum(areas) == live.width_px * (live.height_px - live.headline.box.bottom)


def test_a_snapshot_counts_who_waits_at_each_replica_and_forms_where_a_server_is_idle(result):
    film = Film(result)
    for time_s in film.instants[100:2000:37]:
        now = film.snapshot(float(time_s))
        waits = (result.arrival_s <= time_s) & (result.start_s > time_s)
        assert now.at_replicas.tolist() == np.bincount(result.replica[waits], minlength=4).tolist()
        runs = (result.batches.start_s <= time_s) & (result.batches.finish_s > time_s)
        idle = np.bincount(result.batches.server[runs] // 2, minlength=4) < 2
        assert now.forming == bool((idle & (now.at_replicas > 0)).any())


def test_a_lane_forms_while_a_replica_with_requests_has_an_idle_server(result):
    film, middle_s = Film(result), float(result.arrival_s[2500])
    (lane,) = request_window(film, (middle_s, middle_s)).lanes
    begin_s, until_s = request_window(film, (middle_s, middle_s)).stretch
    for time_s, count, name in zip(*RequestLanes.waiting(lane), strict=True):
        if begin_s < time_s < until_s:
            now = film.snapshot(float(time_s))
            assert count == now.waiting.size
            assert not count or name == ("forming" if now.forming else "queueing")


@pytest.mark.parametrize("routing", ["two_choices", "fill_first", bs.routing.ByKey(50, 1.2)], ids=str)
def test_controls_express_replicas_and_their_routing(routing):
    scenario = FOUR.replace(routing=routing, stale_ms=0 if isinstance(routing, bs.routing.ByKey) else 3)
    state = State.of(scenario)
    assert state.scenario() == scenario
    assert State.from_link(state.to_link()) == state
    names = {"bs": bs, "print": lambda _: None}
    exec(state.python(200), names)
    assert names["scenario"] == scenario


def test_controls_of_a_router_are_there_with_several_replicas_only():
    shown = {
        (replicas, routing): {name for name in ("routing", "stale_ms", "keys") if relevant(name, values)}
        for replicas, routing in ((1, "two_choices"), (4, "two_choices"), (4, "random"), (4, "by_key"))
        for values in [vars(DEFAULT.replace(replicas=replicas, routing=routing))]
    }
    assert list(shown.values()) == [set(), {"routing", "stale_ms"}, {"routing"}, {"routing", "keys"}]


def test_what_controls_cannot_express_is_refused_and_clients_at_replicas_are_run():
    with pytest.raises(ValueError, match="autoscale must be None to be explored"):
        State.of(FOUR.replace(autoscale=bs.Autoscale("queue", most=8)))
    with pytest.raises(ValueError, match="with a number of keys"):
        State.of(FOUR.replace(routing=bs.routing.ByKey([1, 2] * 50)))
    panel = bs.explore(FOUR.replace(workload=bs.ClosedLoop(40, 0.01)), requests=300)
    assert panel.result.scenario.replicas == 4
    assert panel.data.surface is None
