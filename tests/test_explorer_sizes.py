"""Requests with sizes in the explorer: their controls, their service times, and limits as axes of the map."""

import pytest

import batchsim as bs
from batchsim.view.explorer.requests import MAPS, SERVICES

SIZES = bs.Lognormal(80, cv=1, at_most=512)
POISSON = bs.Poisson(150).with_sizes(SIZES)
PADDED = bs.PaddedTime(5, 0.25, 0.01)
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
    "listed": bs.Scenario(bs.Poisson(90).with_sizes(list(range(10, 410))), LIMIT, PADDED),
    "a trace": bs.Scenario(bs.Trace([0.01 * i for i in range(400)], sizes=range(10, 410)), LIMIT, PADDED),
}


@pytest.mark.parametrize("name", SCENARIOS)
def test_the_controls_have_a_scenario_with_sizes_and_its_python_makes_it(name):
    scenario = SCENARIOS[name]
    panel = bs.explore(scenario, requests=400)
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


def test_tokens_refuse_sizes_and_limits_in_units():
    tokens = {"tokens": bs.Tokens(9, 3), "service": bs.StepTime(10, 0, 0)}
    with pytest.raises(ValueError, match="by number as rule, got SizeOrWait"):
        bs.Scenario(bs.Poisson(5), LIMIT, **tokens)
    with pytest.raises(ValueError, match="tokens cover neither priorities nor sizes"):
        bs.explore(bs.StepTime(10, 0, 0), POISSON)
