"""A recommendation in sentences: each number is the run's."""

import math
import re

import numpy as np
import pytest

import batchsim as bs
from batchsim import _format
from batchsim.study.recommendation import _because
from batchsim.study.slo import SLO
from batchsim.study.tune import tune

T4 = bs.Affine(5, 0.25)
POISSON = bs.Scenario(bs.Poisson(1400), bs.SizeOrWait(), T4)
SMALL = {"max_batch_size": [8, 16, 32], "max_wait_ms": [0, 2, 8]}


def test_the_explanation_says_why_batches_leave_and_that_the_wait_does_not_matter():
    found = tune(POISSON, SLO(p99_ms=50), {"max_batch_size": [12, 64], "max_wait_ms": [0, 8, 32]})
    text = found.explain()
    backlog = found.result.metrics.shares()["backlog_share"]
    why = f"{_format.percent(backlog)} of the batches leave because a server became free"
    assert f"The max wait hardly matters at 1,400/s: {why}" in text
    assert found.rule.max_wait_ms == 0


def test_the_explanation_says_that_the_wait_matters_where_it_does():
    scenario = POISSON.replace(rate_per_s=5000, servers=3)
    found = tune(scenario, SLO(p99_ms=20), {"max_batch_size": [24], "max_wait_ms": [4]})
    shares, text = found.result.metrics.shares(), found.explain()
    waited = (
        f"{_format.percent(shares['wait_share'])} of the batches leave because the oldest has waited 4 ms"
    )
    assert f"The max wait matters at 5,000/s: {waited}" in text
    assert f"{_format.percent(shares['full_share'])} because 24 requests have gathered, a full batch" in text
    twice, half = found.neighbours.itertuples()
    assert (twice.value, half.value) == (8, 2)
    assert twice.difference_ms_low > 1
    assert "The 3 servers were taken to have a device each" in text


def test_the_explanation_s_load_is_the_run_s():
    scenario = bs.Scenario(bs.Poisson(100), bs.SizeOrWait(), T4)
    found = tune(scenario, SLO(p99_ms=50), {"max_batch_size": [8], "max_wait_ms": [0]}, requests=20_000)
    text, shares = found.explain(), found.result.metrics.shares()
    assert f"busy {_format.percent(found.result.utilisation)} of the time" in text
    assert "Full batches would carry 1,143/s; compared with that, the load is 8.8%" in text
    at_once = f"{_format.percent(shares['wait_share'])} of the batches leave because a request came"
    assert f"{at_once} and a server is idle" in text
    assert "A max wait of 5.2 ms would change p99 by +" in text


def test_fewer_servers_that_might_do_are_told():
    # By theory the p99 of one server is 17.58 ms; of a run of 5,000 it is 17.2 (16.8 to 17.8).
    over = {"servers": [1, 2], "max_wait_ms": [0]}
    found = tune(POISSON, SLO(p99_ms=17.5), over, requests=5_000)
    assert found.met
    assert found.scenario.servers == 2
    row = found.candidates[found.candidates["servers"] == 1].iloc[0]
    assert row["outcome"] == "unclear"
    assert f"1 server might do: {row['why']}; a longer run might tell." in found.explain()
    assert "might do" not in tune(POISSON, SLO(p99_ms=15), over, requests=20_000).explain()


def test_the_optimum_is_not_told_where_the_mean_is_not_known():
    found = tune(POISSON, SLO(p99_ms=50), {"max_wait_ms": [2]}, requests=30)
    assert found.optimum is not None
    assert math.isnan(found.expected["mean_latency_ms"].low)
    assert "any policy" not in found.explain()


def test_percents_near_none_and_all_are_told():
    tiny = tune(POISSON.replace(rate_per_s=3), SLO(p99_ms=50), {"max_batch_size": [32]}, requests=2_000)
    assert "compared with that, the load is 0.13%." in tiny.explain()
    one = POISSON.replace(max_batch_size=1)
    missed = tune(one, SLO(p99_ms=5.5), {"max_wait_ms": [0]}, requests=20_000)
    assert re.search(r"objective with 99\.\d+% fewer requests, ", missed.explain())


def test_servers_that_share_a_device_are_said_to():
    scenario = POISSON.replace(servers=2, slowdown={1: 1.0, 2: 1.5})
    text = tune(scenario, SLO(p99_ms=50), SMALL, requests=5_000).explain()
    assert "The 2 servers share a device: when all compute, each takes 1.5 times as long as alone." in text


def test_shared_devices_are_told_to_be_busy_beside_their_servers():
    scenario = POISSON.replace(servers=4, devices=1, rate_per_s=600)
    found = tune(scenario, SLO(p99_ms=500), {"max_wait_ms": [2]}, requests=5_000)
    device = _format.percent(found.result.device_utilisation)
    assert found.result.device_utilisation > found.result.utilisation
    assert f"on average; the device is busy {device}." in found.explain()
    own = tune(scenario.replace(devices=4), SLO(p99_ms=500), {"max_wait_ms": [2]}, requests=5_000)
    assert "for a device included" not in own.explain()


def test_an_at_least_rule_is_explained_by_its_least_size():
    scenario = POISSON.replace(rule=bs.AtLeast(4, 32))
    text = tune(scenario, SLO(p99_ms=50), {"min_batch_size": [4]}, requests=20_000).explain()
    assert "The min batch size" in text
    assert "A min batch size of 8 would change p99 by " in text
    assert "because the 4th request came" in text


def test_lost_requests_are_told():
    scenario = POISSON.replace(rate_per_s=2600, queue_limit=40)
    found = tune(scenario, SLO(p90_ms=50), SMALL, requests=20_000)
    lost = found.result.summary()["rejected"] / found.result.summary()["requests"]
    assert found.expected["loss"].value == pytest.approx(lost)
    assert f"{_format.number(lost * 100)} % of the requests are not served." in found.explain()


def test_traffic_that_drifts_is_told_and_its_numbers_decide_as_they_are():
    gaps_s = np.random.default_rng(3).exponential(np.repeat([1 / 400, 1 / 1500], 10_000))
    scenario = POISSON.replace(workload=bs.Trace(np.cumsum(gaps_s)))
    met, missed = (tune(scenario, SLO(p99_ms=ms), SMALL) for ms in (30, 10))
    assert met.met
    assert math.isnan(met.expected["p99_ms"].low)
    assert met.expected["p99_ms"].value == bs.simulate(met.scenario).percentile(99)
    assert re.search(r"The traffic drifts between \d+/s and [\d,]+/s", met.explain())
    assert not missed.met


def test_a_rule_of_another_kind_is_explained_in_its_own_words():
    rules = [bs.PreferredSizes((4, 8), 8, ms) for ms in (0, 4)]
    scenario = bs.Scenario(bs.Poisson(500), rules[1], T4)
    found = tune(scenario, SLO(p99_ms=50), {"rule": rules[1:]}, requests=20_000)
    text = found.explain()
    reasons = {f"{step.trigger.name.lower()}_share": step.because for step in rules[1].steps}
    for name, share in found.result.metrics.shares().items():
        if name in reasons and share > 0.005:
            why = f"{_format.percent(share)}( of the batches leave)? because {re.escape(reasons[name])}"
            assert re.search(why, text)
    assert found.neighbours["value"].tolist() == [8, 2]
    assert "A max wait of 8 ms would change p99 by " in text
    first = tune(scenario, SLO(p99_ms=50), {"rule": rules[:1]}, requests=20_000)
    assert first.neighbours["value"].tolist() == [5.2]


@pytest.mark.parametrize(
    "rule", [bs.SizeOrWait(8, 0), bs.AtLeast(2, 8), bs.PreferredSizes((2, 4), 8, 5)], ids=repr
)
def test_every_trigger_of_a_rule_has_its_reason(rule):
    for step in rule.steps:
        assert step.because in _because(rule, f"{step.trigger.name.lower()}_share")


# The neighbours of the choice: what a step of one knob changes, against long runs.


WAITS = POISSON.replace(rate_per_s=5000, servers=3, max_batch_size=24)


@pytest.fixture(scope="module")
def coarse():
    over = {"max_batch_size": [16, 24, 32], "max_wait_ms": [0, 8]}
    return tune(WAITS, SLO(p99_ms=60), over)


def rows(found, **values):
    frame = found.neighbours
    for name, value in values.items():
        frame = frame[frame[name] == value]
    return frame


def test_each_knob_steps_to_its_neighbours_in_the_grid_and_halfway_and_the_wait_to_twice_and_half():
    found = tune(
        WAITS.replace(max_wait_ms=4), SLO(p99_ms=60), {"max_batch_size": [16, 24, 54], "servers": [3]}
    )
    steps = [*zip(*(found.neighbours[name] for name in ("knob", "step", "value")), strict=True)]
    size = found.rule.max_batch_size
    around = {16: [("next", 24), ("halfway", 20)], 54: [("next", 24), ("halfway", 36)]}
    around[24] = [("next", 16), ("halfway", 20), ("next", 54), ("halfway", 36)]
    expected = [("max_batch_size", *each) for each in around[size]]
    assert steps == [*expected, ("max_wait_ms", "twice", 8), ("max_wait_ms", "half", 2)]


def test_differences_are_those_of_long_runs(coarse):
    for row in coarse.neighbours.itertuples():
        one, other = (
            bs.simulate(scenario, 1_000_000, seed=9).percentile(99)
            for scenario in (coarse.scenario, coarse.scenario.replace({row.knob: row.value}))
        )
        assert row.difference_ms_low <= other - one <= row.difference_ms_high
        assert row.difference_ms_low <= row.difference_ms <= row.difference_ms_high
        assert row.p99_ms == pytest.approx(other, rel=0.05)
        assert row.meets


def test_neighbours_in_the_grid_have_the_numbers_of_the_search(coarse):
    known = {**coarse.knobs}
    for row in rows(coarse, step="next").itertuples():
        knobs = known | {row.knob: row.value}
        frame = coarse.candidates
        for name, value in knobs.items():
            frame = frame[frame[name] == value]
        assert frame["p99_ms"].tolist() == [row.p99_ms]


def test_a_grid_that_is_too_coarse_around_the_choice_is_said():
    found = tune(WAITS, SLO(p99_ms=60), {"max_wait_ms": [0, 8]})
    runs = {ms: bs.simulate(WAITS.replace(max_wait_ms=ms), 300_000).percentile(99) for ms in (0, 4, 8)}
    (better,) = rows(found, step="halfway").itertuples()
    assert better.value == 4
    assert 0 > better.difference_ms_high > runs[4] - runs[found.knobs["max_wait_ms"]]
    assert "The grid is too coarse around it: with max_wait_ms=4.0 its p99 is at least" in found.explain()
    fine = tune(WAITS, SLO(p99_ms=60), {"max_wait_ms": [3.4, 3.5, 3.6]})
    assert "too coarse" not in fine.explain()


def test_what_another_wait_changes_is_told_in_words():
    found = tune(POISSON, SLO(p99_ms=50), {"max_batch_size": [12, 64], "max_wait_ms": [0, 8, 32]})
    (row,) = rows(found, step="some").itertuples()
    assert row.value == 5.2  # as long as a request alone computes
    assert (
        f"A max wait of 5.2 ms would change p99 by {_format.signed(row.difference_ms)} ms" in found.explain()
    )
    assert row.difference_ms_low <= 0 <= row.difference_ms_high
    assert "The max wait hardly matters at 1,400/s" in found.explain()


def test_steps_whose_difference_no_run_tells_have_no_interval():
    overload = bs.Scenario(bs.Poisson(4000), bs.SizeOrWait(8, 2), bs.Affine(5, 0.25), queue_limit=40)
    for scenario, requests in ((overload, 20_000), (POISSON, 50)):
        found = tune(scenario, SLO(p99_ms=50), {"max_wait_ms": [2]}, requests=requests)
        assert len(found.neighbours) == 2
        assert found.neighbours["difference_ms_low"].isna().all()
        assert "The max wait" not in found.explain()
        assert "would change" not in found.explain()
        assert "unknown" not in found.explain()


def test_a_setting_that_never_ran_in_the_search_has_no_neighbours():
    found = tune(POISSON.replace(rate_per_s=9000), SLO(p99_ms=50), {"max_wait_ms": [0, 2]}, requests=5000)
    assert not len(found.neighbours)
    assert math.isfinite(found.expected["p99_ms"].value)


@pytest.mark.parametrize("name", ["between", "alike", "effects", "rounds", "saved", "grid_requests"])
def test_what_the_table_replaces_says_so(coarse, name):
    with pytest.raises(AttributeError, match=f"no attribute '{name}'; it was removed: "):
        getattr(coarse, name)
    assert not hasattr(coarse, name)
