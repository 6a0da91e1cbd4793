"""A and B: their differences, their goodput, and how sure these are."""

import dataclasses
import math
import re

import pytest

import batchsim as bs
from batchsim._format import signed
from batchsim.result.comparison import compare
from batchsim.view.explorer.state import DEFAULT, DEFAULTS
from batchsim.view.explorer.tokens import goodput_difference
from batchsim.view.pictures.data import ViewData


def test_a_pinned_setting_is_compared_pair_by_pair():
    panel = bs.explore(requests=20_000)
    a = panel.result
    panel.compare.pin.click()
    panel.controls["max_wait_ms"].value = 0
    row = bs.compare(a, panel.result)["p99"]
    assert signed(row.difference) in panel.compare.table.value
    assert f"{signed(row.low)} to {signed(row.high)}" in panel.compare.table.value
    assert "differs" in panel.compare.table.value
    assert "p99 of B is" in panel.readout.value
    assert panel.data.pinned.result is a


def test_a_and_b_exchange_and_a_is_forgotten_when_it_is_unpinned(panel):
    panel.compare.pin.click()
    panel.controls["max_wait_ms"].value = 0
    panel.compare.swap.click()
    assert panel.state == DEFAULT
    assert panel.data.pinned.result.scenario.rule.max_wait_ms == 0
    panel.compare.unpin.click()
    assert panel.data.pinned is None
    assert "B is" not in panel.readout.value


def test_a_and_b_do_not_exchange_before_a_prediction_is_revealed(panel):
    panel.compare.pin.click()
    a = panel.session.pinned
    panel.controls["max_wait_ms"].value = 0
    panel.predict.predicting.value = True
    panel.controls["max_wait_ms"].value = 50
    panel.compare.swap.click()
    assert panel.state.max_wait_ms == 50
    assert panel.session.pinned is a
    panel.predict.predicting.value = False
    panel.compare.swap.click()
    assert panel.state == DEFAULT


def test_settings_of_different_traffic_are_shown_together_but_not_paired(panel):
    panel.compare.pin.click()
    panel.controls["seed"].value = 3
    assert panel.status.value == ""
    assert panel.data.comparison is None
    assert "got seeds 0 and 3" in panel.compare.table.value


def test_an_overloaded_b_has_no_steady_state_to_compare(panel):
    panel.compare.pin.click()
    panel.controls["max_batch_size"].value = 1
    assert panel.status.value == ""
    assert "no steady state" in panel.compare.table.value


def test_a_and_b_are_named_by_what_differs():
    panel = bs.explore(requests=300, link="rate_per_s=500&service=curve&curve=1:2.4,32:6.7")
    panel.compare.pin.click()
    assert "A and B are one setting." in panel.compare.table.value
    panel.controls["max_wait_ms"].value = 3
    assert "A: <code>max_wait_ms=10</code><br>B: <code>max_wait_ms=3</code>" in panel.compare.table.value
    panel.move_to(DEFAULT)
    assert "rate_per_s=500" in panel.compare.table.value
    assert "rate_per_s=1000" in panel.compare.table.value


@pytest.mark.parametrize(("a", "b"), [(None, 0), (0, None), (0, 0.1)])
def test_a_setting_that_serves_no_requests_is_not_compared_in_nan(panel, a, b):
    panel.controls["timeout_ms"].value = a
    panel.compare.pin.click()
    panel.controls["timeout_ms"].value = b
    assert panel.status.value == ""
    assert "no latency to compare" in panel.compare.table.value
    assert not re.search(r"\bnan\b", panel.screen.alt + panel.compare.table.value)


SCENARIO = DEFAULTS["tokens"].scenario()


def data(requests, **changes):
    result = bs.simulate(SCENARIO.replace(**changes), requests)
    return ViewData(result, ttft_ms=400, tpot_ms=45)


def compared(a, b):
    comparison = compare(a.result, b.result, ["output_tokens_per_s"], silent=True)
    return goodput_difference(dataclasses.replace(b, pinned=a, comparison=comparison))


def test_it_is_that_of_each_run_and_their_difference_has_an_interval():
    a, b = data(20_000), data(20_000, max_num_batched_tokens=192)
    row = compared(a, b)
    assert (row.a, row.b) == (pytest.approx(a.goodput_per_s), pytest.approx(b.goodput_per_s))
    assert row.difference == row.b - row.a
    assert row.low < row.difference < row.high < 0


def test_two_that_are_the_same_do_not_differ():
    row = compared(data(20_000), data(20_000))
    assert (row.difference, row.low, row.high) == (0, 0, 0)


def test_a_run_that_is_too_short_has_no_interval_and_one_without_objectives_no_goodput():
    a, b = data(200), data(200, max_num_seqs=30)
    assert math.isnan(compared(a, b).low)
    assert goodput_difference(dataclasses.replace(b, pinned=a, ttft_ms=None, tpot_ms=None)) is None
