"""What a run of the explorer brings: the run, its heat map and its load curve."""

import math
import re

import pytest

import batchsim as bs
from batchsim.scenario.parameters import Parameter
from batchsim.view.explorer.runs import axis, sizes, waits


@pytest.fixture
def panel():
    return bs.explore(requests=300)


def test_the_map_is_of_the_same_traffic_as_the_run(panel):
    grid = panel.data.surface
    row, column = grid.y_values.index(10.0), grid.x_values.index(32)
    assert grid.p99_ms[row, column] == panel.result.percentile(99)


def test_the_map_reaches_every_batch_size_that_the_service_time_has():
    assert sizes(1) == (1,)
    for largest in range(1, 300):
        found = sizes(largest)
        assert found[-1] == largest
        assert list(found) == sorted(set(found))
    assert waits(2.0)[-2:] == (1.0, math.inf)


@pytest.mark.parametrize("link", ["fixed_ms=1e6", "per_item_ms=3e4&rule=at_least&min_batch_size=4"])
def test_the_longest_service_times_have_a_map_whose_waits_are_possible(link):
    panel = bs.explore(requests=300, link=link)
    assert panel.status.value == ""
    assert panel.result.mean_latency_ms > 1e6


def test_service_times_that_end_beyond_the_clock_are_refused_in_words():
    panel = bs.explore(requests=300, link="fixed_ms=1e12")
    assert "must be before 4,194,304 s (48.5 days)" in panel.status.value


def test_bursts_that_cannot_come_at_the_rate_of_full_batches_have_a_load_curve_all_the_same():
    # A cycle of 1.5 ms sees too few arrivals below 0.67 per s; full batches of 32 do 0.64 per s.
    link = "workload=onoff&mean_burst_s=0.0003&rate_per_s=2000&fixed_ms=50000&per_item_ms=5"
    panel = bs.explore(requests=300, link=link)
    assert panel.status.value == ""
    curve = panel.data.curve
    assert curve.saturation < curve.x_values[0]
    with pytest.raises(ValueError, match=re.escape("must see at least 0.001 arrivals")):
        panel.scenario.workload.with_rate(curve.saturation)


def test_bursts_without_any_possible_load_are_refused_in_words():
    link = "workload=onoff&mean_burst_s=0.0003&rate_per_s=2000&fixed_ms=500000&per_item_ms=5"
    panel = bs.explore(requests=300, link=link)
    assert "must see at least 0.001 arrivals, got" in panel.status.value


def test_the_axes_of_a_map_are_the_values_of_its_rules_two_knobs():
    assert axis(bs.AtLeast, "min_batch_size", 8, 100.0) == (1, 2, 3, 4, 6, 8)
    assert axis(bs.PreferredSizes, "max_wait_ms", 8, 100.0) == waits(100.0)


def test_another_axis_spans_its_slider():
    class Windowed:
        @classmethod
        def parameters(cls):
            return {"level": Parameter("Level", "About it", slider=(1, 23, 2))}

    assert axis(Windowed, "level", 8, 100.0) == tuple(range(1, 24, 2))
