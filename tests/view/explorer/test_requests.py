"""Requests with sizes in the explorer: their controls, their service times, and limits as axes of the map."""

import pytest
from hands import looked_at

import batchsim as bs
from batchsim.study.surface import surface
from batchsim.view.explorer.control import rows_of
from batchsim.view.explorer.kinds import relevant
from batchsim.view.explorer.options import SERVICES
from batchsim.view.explorer.requests import MAPS
from batchsim.view.explorer.state import State

SIZES = bs.Lognormal(80, cv=1, at_most=512)
POISSON = bs.Poisson(150).with_sizes(SIZES)
PADDED = bs.PaddedTime(5, 0.25, 0.01)
TABLE = bs.SizeTable([1, 8, 32], [64, 128, 300], [[1, 2.5, 5], [3, 5, 9], [8, 12, 1 / 3]])
LIMIT = bs.SizeOrWait(16, 20, max_batch_units=4096, units="summed")
SCENARIOS = {
    "a limit": bs.Scenario(POISSON, LIMIT, PADDED, oversize_action="truncate"),
    "lengths": bs.Scenario(POISSON, bs.SizeOrWait(16, 20), PADDED.padded_to([4, 16], [128, 512])),
    "packed": bs.Scenario(
        bs.Poisson(90).with_sizes(bs.Geometric(70, 300), "pixels"),
        bs.FrozenBatches(16, 20, max_batch_units=999),
        bs.PackedTime(5, 0.25, 0.01, 1e-5),
    ),
    "by count": bs.Scenario(bs.Poisson(90).with_sizes(bs.Uniform(9, 9)), LIMIT, bs.Affine(5, 1)),
    "buckets": bs.Scenario(POISSON, bs.Buckets([64, 600], 8, 5, max_batch_units=2000), PADDED),
    "sorted": bs.Scenario(POISSON.with_priorities({1: 1}), bs.SortedWindow(8, 5, window=64), PADDED),
    "table": bs.Scenario(POISSON, LIMIT, bs.SizeTable([1, 16], [64, 512], [[2, 3], [4, 9]]).with_noise(0.1)),
    "in advance": bs.Scenario(POISSON, bs.servers.tei(4096, 16), PADDED),
    "listed": bs.Scenario(bs.Poisson(90).with_sizes(list(range(10, 410))), LIMIT, PADDED),
    "a trace": bs.Scenario(bs.Trace([0.01 * i for i in range(400)], sizes=range(10, 410)), LIMIT, PADDED),
}


@pytest.mark.parametrize("name", SCENARIOS)
def test_the_controls_have_a_scenario_with_sizes_and_its_python_makes_it(name):
    scenario = SCENARIOS[name]
    panel = looked_at(bs.explore(scenario, requests=400))
    assert panel.scenario == scenario
    assert panel.session.status == ("", False)
    assert panel.data.surface is not None
    names = {"traffic": scenario.workload}
    exec(panel.session.python().partition("result =")[0], names)
    assert names["scenario"] == scenario
    link = panel.session.link()
    assert bs.explore(scenario if "given" in link else None, requests=400, link=link).scenario == scenario


def test_sizes_come_and_go_with_the_parts_that_need_them():
    panel = bs.explore(bs.PackedTime(5, 0.25, 0.01), requests=400)
    assert panel.scenario.workload.sizes == SIZES
    controls = panel.controls
    controls["sizes"].value = "none"
    assert panel.scenario.service == bs.Affine(5, 0.25)
    controls["service"].value = SERVICES["padded"].label
    assert panel.scenario.service == PADDED
    controls["max_batch_units"].value = 2000
    controls["rule"].value = "buckets"
    assert panel.scenario.rule.max_batch_units == 2000
    controls["max_batch_size"].value = 4  # edges are no batch sizes
    assert panel.scenario.rule.edges == (64, 512)
    with pytest.raises(ValueError, match="the largest size must be at most the last edge of the buckets"):
        controls["size_most"].value = 600
    controls["sizes"].value = "none"
    assert panel.scenario.rule == bs.SizeOrWait(4, panel.state.max_wait_ms)  # its limit needs sizes, too
    controls["rule"].value = "sorted_window"
    assert panel.scenario.workload.sizes == SIZES
    assert panel.session.status == ("", False)


def test_a_limit_in_units_is_an_axis_of_the_map():
    panel = bs.explore(SCENARIOS["a limit"], requests=1000)
    for name, axes in list(MAPS.items())[1:]:
        panel.controls["request_map"].value = name
        surface = panel.data.surface
        assert (surface.x, surface.y) == axes
        row, column = 2, 3
        rule = surface.rules[row * len(surface.x_values) + column]
        assert getattr(rule, axes[0]) == surface.x_values[column]
        assert getattr(rule, axes[1]) == surface.y_values[row]
        alone = bs.simulate(panel.scenario.replace({"rule": rule}), 1000, seed=0, warmup=0)
        assert alone.percentile(99) == pytest.approx(surface.p99_ms[row, column])
    panel.screen._press("up")
    assert panel.state.max_batch_units == 6144  # the next row
    panel.controls["sizes"].value = "none"
    assert panel.data.surface.x == "max_batch_size"


def test_a_given_table_stays_on_offer_and_bounds_the_sizes():
    panel = bs.explore(TABLE, requests=400)
    assert panel.scenario.service == TABLE
    assert panel.scenario.workload.sizes == bs.Lognormal(80, 1, at_most=300)
    assert panel.controls["max_batch_size"].range.high == 32
    assert not relevant("padding", vars(panel.state))  # the table has its own sizes
    given = panel.controls["service"].value
    panel.controls["service"].value = SERVICES["padded"].label
    panel.controls["padding"].value = (4, 64)
    panel.controls["service"].value = given
    assert (panel.scenario.service, panel.session.status) == (TABLE, ("", False))
    panel.controls["sizes"].value = "none"
    assert panel.scenario.service == bs.Affine(5, 0.25)
    state = State(sizes="lognormal", size_most=300, service="size_table", size_table=rows_of(TABLE))
    again = bs.explore(requests=400, link=state.to_link())
    with pytest.raises(ValueError, match="at most the service's largest length, 300, got 512"):
        again.controls["size_most"].value = 512
    again.controls["max_wait_ms"].value = 3
    assert again.scenario.service == TABLE
    with pytest.raises(ValueError, match="batch_sizes must not be empty"):
        State(service="size_table", sizes="lognormal").scenario()
    with pytest.raises(ValueError, match="times_ms must have 1 rows of 2"):
        State.from_link("size_table=0:64:512,8:3")


def test_an_explorer_of_tei_begins_with_its_rule_and_with_sizes():
    rule = bs.servers.tei(max_batch_tokens=8192)
    panel = bs.explore(rule, requests=1000)
    assert (panel.scenario.rule, panel.scenario.workload.sizes) == (rule, SIZES)
    assert bs.explore(rule, POISSON, requests=400).scenario.workload == POISSON
    assert bs.explore(requests=1000, link=panel.session.link()).scenario == panel.scenario
    surface = panel.data.surface
    assert (surface.x, surface.y) == ("max_batch_size", "max_batch_units")
    assert not relevant("request_map", vars(panel.state))
    panel.screen._press("down")
    assert panel.state.max_batch_units == 6144
    panel.controls["units"].value = "padded"
    assert panel.scenario.rule == bs.PrefetchedBatches(512, max_batch_units=6144, units="padded")
    panel.turn_to(panel.play)
    (lane,) = panel.play.player.clip.lanes
    assert len(lane["arrival_s"])
    panel.controls["sizes"].value = "none"
    assert panel.scenario.rule == bs.SizeOrWait(512, 10)
    panel.session.reset()
    assert panel.scenario.rule == rule
    assert len(bs.sweep(panel.scenario, {"max_batch_units": [2048, 8192]}, requests=1000)) == 2
    without = bs.explore(bs.Scenario(bs.Poisson(90), bs.PrefetchedBatches(8), bs.Affine(5, 1)), requests=400)
    assert without.data.surface is None  # no units, no limit to draw


@pytest.mark.parametrize("rule", [bs.servers.triton(8), bs.servers.vllm(), LIMIT], ids=repr)
def test_an_explorer_begins_with_any_rule(rule):
    panel = looked_at(bs.explore(rule, requests=100))
    assert panel.scenario.rule == rule
    _, alert = panel.session.status
    assert not alert


def test_tokens_refuse_sizes_and_limits_in_units():
    tokens = {"tokens": bs.Tokens(9, 3), "service": bs.StepTime(10, 0, 0)}
    with pytest.raises(ValueError, match="by number as rule, got SizeOrWait"):
        bs.Scenario(bs.Poisson(5), LIMIT, **tokens)
    with pytest.raises(ValueError, match="tokens have lengths of their own instead of sizes"):
        bs.explore(bs.StepTime(10, 0, 0), POISSON)


@pytest.mark.parametrize("request_map", MAPS)
def test_every_map_of_requests_with_sizes_has_numbers_before_a_limit_is_set(request_map):
    panel = bs.explore(requests=400)
    panel.controls["sizes"].value = "lognormal"
    panel.controls["request_map"].value = request_map
    assert panel.session.status == ("", False)
    assert (panel.data.surface.x, panel.data.surface.y) == (MAPS[request_map] or bs.SizeOrWait.map_knobs)


def test_requests_that_all_exceed_the_limit_in_units_are_explored_as_they_are_simulated():
    rule = bs.SizeOrWait(8, 0, max_batch_units=150)
    scenario = bs.Scenario(POISSON.with_sizes(bs.Uniform(160, 160)), rule, bs.Affine(2, 0.7))
    panel = bs.explore(scenario, requests=60)
    assert panel.result.scenario == scenario
    assert panel.result.summary() == pytest.approx(bs.simulate(scenario, 60).summary(), nan_ok=True)
    assert panel.status.value == ""


@pytest.mark.parametrize("replicas", [1, 2])
def test_a_map_over_limits_has_the_p99_of_each_setting_by_itself(replicas):
    scenario = bs.Scenario(
        bs.Poisson(400).with_sizes(SIZES),
        bs.SizeOrWait(16, 5),
        bs.PaddedTime(2, 0.1, 0.005),
        replicas=replicas,
    )
    sizes, limits = [4, 16], [200, 600, 2000]  # the lowest rejects some requests
    found = surface(scenario, sizes, limits, 2000, knobs=("max_batch_size", "max_batch_units"))
    for row, most in enumerate(limits):
        for column, size in enumerate(sizes):
            one = bs.simulate(scenario.replace(max_batch_size=size, max_batch_units=most), 2000)
            assert found.p99_ms[row, column] == one.percentile(99, unserved="inf")
