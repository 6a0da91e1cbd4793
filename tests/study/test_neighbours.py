"""The neighbours of the choice: what a step of one knob changes, against long runs."""

import math

import pytest

import batchsim as bs
from batchsim import _format
from batchsim.study.slo import SLO
from batchsim.study.tune import tune

POISSON = bs.Scenario(bs.Poisson(1400), bs.SizeOrWait(), bs.Affine(5, 0.25))
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
