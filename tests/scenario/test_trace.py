"""A trace in memory, and its bursts."""

import copy
import math
import pickle

import numpy as np
import pytest
from refusals import refusals

import batchsim as bs


def test_a_trace_starts_at_0_and_keeps_its_gaps():
    trace = bs.Trace([100, 100, 100.5, 103])
    assert trace.times_s.tolist() == [0, 0, 0.5, 3]
    assert trace.offered_per_s == 1
    assert trace.max_requests == 4
    assert repr(trace) == "Trace(4 arrivals in 3 s, 1/s)"
    assert repr(bs.Trace([7])) == "Trace(1 arrival in 0 s, 0/s)"


def test_a_trace_is_its_own_copy_and_cannot_be_changed():
    times = np.array([0.0, 1.0])
    trace = bs.Trace(times)
    times[1] = 99
    assert trace.times_s[1] == 1
    with pytest.raises(ValueError, match="read-only"):
        trace.times_s[1] = 5


def test_traces_of_the_same_times_are_equal():
    assert bs.Trace([0, 1]) == bs.Trace([5.0, 6.0])
    assert hash(bs.Trace([0, 1])) == hash(bs.Trace([5.0, 6.0]))
    assert bs.Trace([0, 1]) != bs.Trace([0, 2])
    assert bs.Trace([0, 1]) != bs.Poisson(1)
    sized = bs.Trace([0, 1]).with_sizes([3, 4])
    assert sized == bs.Trace([5, 6]).with_sizes([3, 4])
    for other in (
        bs.Trace([0, 1]),
        bs.Trace([0, 1]).with_sizes([3, 5]),
        sized.with_priorities({1: 0.5, 2: 0.5}),
    ):
        assert sized != other


def test_a_trace_of_one_moment_has_no_rate_to_scale():
    assert bs.Trace([3]).offered_per_s == 0
    assert bs.Trace([3, 3]).offered_per_s == math.inf
    for times in ([3], [3, 3]):
        with pytest.raises(ValueError, match="a Trace must span some time to be scaled to a rate"):
            bs.Trace(times).with_rate(5)


@refusals
def test_a_trace_refuses():
    """
    bs.Trace([]) -> times_s must not be empty
    bs.Trace([0, 2, 1]) -> times_s must be sorted, got 1.0 after 2.0 at index 2
    bs.Trace([0, math.nan]) -> times_s must be finite, got nan at index 1
    bs.Trace([0, math.inf]) -> times_s must be finite, got inf at index 1
    bs.Trace([[0, 1]]) -> times_s must be one-dimensional, got shape (1, 2)
    bs.Trace(5) -> times_s must be one-dimensional, got shape ()
    bs.Trace([[0], [1, 2]]) -> TypeError: times_s must be numbers of seconds
    bs.Trace(["0", "1"]) -> TypeError: times_s must be numbers of seconds
    bs.Trace("01") -> TypeError: times_s must be numbers of seconds
    bs.Trace([1j]) -> TypeError: times_s must be numbers of seconds
    bs.Trace([None, "x"]) -> TypeError: times_s must be numbers of seconds
    bs.Trace(np.array(["2024-01-01"], "datetime64[ns]")) -> TypeError: times_s must be numbers of seconds
    """


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda trace: pickle.loads(pickle.dumps(trace))])
def test_a_copied_trace_is_equal_and_still_read_only(copied):
    trace = copied(bs.Trace([1.0, 2.0]))
    assert trace == bs.Trace([1.0, 2.0])
    assert not trace.times_s.flags.writeable


# Bursts.


def drawn(workload, requests, seed=0):
    """A trace of a workload's arrivals."""
    (times_s,) = workload.chunks_s(np.random.SeedSequence(seed), requests, requests)
    return bs.Trace(times_s)


@pytest.mark.parametrize(
    "workload",
    [
        bs.Poisson(800), bs.Constant(800), bs.Gamma(800, 0.3), bs.Gamma(800, 3),
        bs.OnOff(6000, 600, 0.05, 0.15), bs.OnOff(5000, 1500, 0.01, 0.01),
    ],
    ids=repr,
)  # fmt: skip
def test_a_long_trace_has_the_dispersion_of_what_it_was_drawn_from(workload):
    for seed in range(3):
        found = drawn(workload, 1_000_000, seed).dispersion
        # Rather too large: the index of the longest windows comes from a few dozen of them.
        assert 0.65 * workload.dispersion <= found <= 1.6 * workload.dispersion + 0.01


def test_a_short_trace_has_the_dispersion_of_independent_gaps():
    for cv in (0.5, 1, 2):
        assert drawn(bs.Gamma(800, cv), 400).dispersion == pytest.approx(cv**2, rel=0.4)


def test_a_trace_shows_how_many_requests_its_bursts_have():
    # On and off, 200 ms of 1,950/s are 390 requests.
    found = [drawn(bs.OnOff(6000, 600, 0.05, 0.15), 300_000, seed).burst_requests for seed in range(9)]
    assert 195 <= np.median(found) <= 780
    assert np.median([drawn(bs.Poisson(800), 100_000, seed).burst_requests for seed in range(9)]) == 0


def test_timestamps_of_whole_seconds_are_no_bursts():
    # A hundred arrivals at each second, all at once: their gaps vary, their number does not.
    assert bs.Trace(np.repeat(np.arange(1000.0), 100)).dispersion < 30
    assert bs.Trace(np.repeat(np.arange(100_000.0), 10)).dispersion < 1


def test_the_dispersion_of_a_trace_does_not_depend_on_its_rate():
    trace = drawn(bs.OnOff(6000, 600, 0.05, 0.15), 50_000)
    slower = trace.with_rate(3)
    assert slower.dispersion == pytest.approx(trace.dispersion, rel=0.02)
    assert slower.burst_requests == trace.burst_requests


@pytest.mark.parametrize("requests", [10_000, 30_000])
def test_a_trace_of_bursts_that_is_too_short_has_no_interval(requests):
    bursts = bs.OnOff(6000, 600, 0.05, 0.15)
    for seed in range(20):
        scenario = bs.Scenario(drawn(bursts, requests, seed), bs.SizeOrWait(32, 0), bs.Affine(5, 0.25))
        for key, (low, _) in bs.simulate(scenario).intervals(["mean_latency_ms", "p95"]).items():
            assert math.isnan(low), key


def test_intervals_of_traces_that_are_just_long_enough_hold_the_truth():
    # M/D/1 at load 0.9: a trace that happens to be of load 0.89 asks for fewer requests.
    truth_ms = 1 + 0.9 / (2 * 0.1)
    for requests in (30_000, 36_000):
        held = given = 0
        for seed in range(60):
            trace = drawn(bs.Poisson(900), requests, seed)
            low, high = bs.simulate(bs.Scenario(trace, bs.SizeOrWait(1, 0), bs.Affine(1, 0))).intervals(
                ["mean_latency_ms"]
            )["mean_latency_ms"]
            given += not math.isnan(low)
            held += low <= truth_ms <= high
        assert given >= 15
        assert held / given >= 0.93
