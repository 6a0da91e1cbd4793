"""Ranges of knobs: an adaptive search of them."""

import pytest
from refusals import refusals

import batchsim as bs
from batchsim.study.slo import SLO
from batchsim.study.tune import tune

POISSON = bs.Scenario(bs.Poisson(1400), bs.SizeOrWait(), bs.Affine(5, 0.25))
RARE = pytest.mark.rare("runs a fine grid beside the search, as for Poisson traffic")


@pytest.mark.parametrize(
    ("workload", "limit"),
    [
        pytest.param(bs.Poisson(2000), SLO(p99_ms=40), id="Poisson"),
        pytest.param(bs.Gamma(2000, 0.3), SLO(mean_ms=30), id="regular", marks=RARE),
        pytest.param(bs.Gamma(1200, 1.5), SLO(p99_ms=60), id="bursty", marks=RARE),
    ],
)
def test_a_search_of_ranges_is_near_the_best_of_a_fine_grid_for_less_than_a_tenth(workload, limit):
    scenario, key = POISSON.replace(workload=workload), limit.latency.key
    grid = {"max_batch_size": list(range(2, 65, 2)), "max_wait_ms": [round(0.5 * n, 1) for n in range(41)]}
    table = bs.sweep(scenario, grid, 20_000, progress=False)
    best = table[table.stable][key].min()
    over = {"max_batch_size": bs.Range(1, 64, "log"), "max_wait_ms": bs.Range(0, 20)}
    found = tune(scenario, limit, over, requests=20_000)
    chosen = bs.simulate(found.scenario, 20_000).metrics.number(key)
    assert found.met
    assert chosen <= 1.05 * best
    assert found.requests_simulated <= 20_000 * table.stable.sum() / 10
    assert len(found.candidates) <= 400
    assert found.candidates["max_batch_size"].between(1, 64).all()


def test_five_knobs_of_eight_values_take_a_tenth_of_the_grid_s_requests_at_most():
    # Each of the last three makes every request later: the best of 8 ** 5 settings has the least of each.
    scenario = POISSON.replace(workload=bs.Gamma(1400, 1.5), host_ms=0.1)
    last = {"fixed_ms": (4.0, 7.5), "per_item_ms": (0.2, 0.9), "host_ms": (0.0, 0.7)}
    grid = {"max_batch_size": [1, 2, 4, 8, 16, 32, 64, 128], "max_wait_ms": [0, 1, 2, 4, 8, 12, 16, 20]}
    least = scenario.replace({name: low for name, (low, _) in last.items()})
    table = bs.sweep(least, grid, 20_000, progress=False)
    over = {"max_batch_size": bs.Range(1, 128, "log"), "max_wait_ms": bs.Range(0, 20)}
    over |= {name: bs.Range(*ends) for name, ends in last.items()}
    found = tune(scenario, SLO(p99_ms=60), over, requests=20_000)
    assert found.met
    assert bs.simulate(found.scenario, 20_000).percentile(99) <= 1.05 * table[table.stable].p99_ms.min()
    assert found.requests_simulated <= 20_000 * 8**5 / 10


def test_lists_and_ranges_mix_and_the_fewest_servers_win():
    over = {"servers": [1, 2, 3], "max_batch_size": bs.Range(4, 64, "log")}
    found = tune(POISSON.replace(rate_per_s=4000, max_wait_ms=0), SLO(p99_ms=25), over, requests=20_000)
    assert found.met
    assert found.scenario.servers == 2
    assert set(found.candidates["servers"]) == {1, 2, 3}


@refusals
def test_a_range_is_refused_if_it_has_no_values():
    """
    bs.Range(256, 1, "log") -> high must be greater than 256, got 1
    bs.Range(1, 1, "linear") -> high must be greater than 1, got 1
    bs.Range(0, 5, "log") -> low of a log range must be greater than 0, got 0
    bs.Range(0, 5, "logarithmic") -> scale must be one of linear, log
    tune(POISSON, SLO(p99_ms=40), {"max_wait": bs.Range(0, 5)}, 2000) -> did you mean 'max_wait_ms'
    """


@pytest.mark.parametrize(
    ("name", "low", "high", "message"),
    [
        ("max_wait_ms", -5, 20, "of max_wait_ms must be possible, got -5 to 20: .* at least 0, got -5"),
        ("max_batch_size", 1, 128, "got 1 to 128: .* at most the Table's largest size, 64, got"),
    ],
)
def test_a_range_whose_end_no_setting_can_have_is_refused(name, low, high, message):
    scenario = POISSON.replace(service=bs.Table({1: 5.25, 64: 21}))
    with pytest.raises(ValueError, match=message):
        tune(scenario, SLO(p99_ms=50), {"servers": [1, 2], name: bs.Range(low, high)}, requests=2000)


def test_settings_of_ranges_that_the_scenario_refuses_are_reported():
    scenario = bs.Scenario(bs.Poisson(900), bs.AtLeast(1, 16), bs.Affine(3, 0.15))
    over = {"min_batch_size": bs.Range(1, 32), "max_batch_size": bs.Range(4, 32)}
    frame = tune(scenario, SLO(p99_ms=50), over, requests=2000).candidates
    refused = frame["outcome"] == "refused"
    assert (refused == (frame["min_batch_size"] > frame["max_batch_size"])).all()
    assert 0 < refused.sum() < len(frame)
    assert frame["why"][refused].str.startswith("min_batch_size must be at most max_batch_size, ").all()
