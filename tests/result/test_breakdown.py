"""Where a request's time went."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from runs import SECOND, busy_run, run

import batchsim as bs


def idle_time(result, until_s):
    """I(t): the seconds in [0, t] with at least one server idle, the slow and plain way."""
    b, servers = result.batches, result.scenario.servers
    corners = sorted({0.0, until_s, *b.start_s[b.start_s < until_s], *b.finish_s[b.finish_s < until_s]})
    total = 0.0
    for begin, end in itertools.pairwise(corners):
        middle = (begin + end) / 2
        busy = int(((b.start_s <= middle) & (middle < b.finish_s)).sum())
        total += (end - begin) * (busy < servers)
    return total


LOADS = st.sampled_from([1.0, 50.0, 300.0, 900.0, 3000.0])


@settings(max_examples=60)
@given(
    rate=LOADS,
    servers=st.integers(1, 4),
    size=st.integers(1, 8),
    wait_ms=st.sampled_from([0, 1.7, 20.0, math.inf]),
    cv=st.sampled_from([0, 0.8]),
    timeout_ms=st.sampled_from([None, 6.0]),
)
def test_the_three_parts_sum_to_the_latency(rate, servers, size, wait_ms, cv, timeout_ms):
    service = bs.Affine(4, 0.5).with_noise(cv)
    rule = bs.SizeOrWait(size, wait_ms)
    scenario = bs.Scenario(bs.Poisson(rate), rule, service, servers=servers, timeout_ms=timeout_ms)
    result = bs.simulate(scenario, 150)
    parts = np.array([result.forming_ms, result.queueing_ms, result.computing_ms])
    assert np.array_equal(np.isnan(parts), np.isnan([result.latency_ms] * 3))
    served = result.status == bs.Status.SERVED
    assert (parts[:, served] >= 0).all()
    np.testing.assert_allclose(parts[:, served].sum(axis=0), result.latency_ms[served], atol=1e-6, rtol=0)
    for request in np.flatnonzero(served)[::9]:
        arrival, start = result.arrival_s[request], result.start_s[request]
        forming = idle_time(result, start) - idle_time(result, arrival)
        assert result.forming_ms[request] / 1000 == pytest.approx(forming, abs=1e-9)


def test_a_lone_request_forms_for_its_wait_and_then_computes():
    result = run([0], 8, 2, 1)
    assert result.forming_ms.tolist() == [2000]
    assert result.queueing_ms.tolist() == [0]
    assert result.computing_ms.tolist() == [1000]
    assert result.latency_ms.tolist() == [3000]


def test_waiting_for_a_busy_server_is_queueing():
    result = run([0, 1], 1, 0, 4)
    assert result.forming_ms.tolist() == [0, 0]
    assert result.queueing_ms.tolist() == [0, 3000]


def test_waiting_past_the_release_is_queueing_then_forming():
    # The server is busy from 0 to 4; the second request, come at 1, waits for company until 9.
    result = run([0, 0, 1], 2, 8, 4)
    assert result.start_s.tolist() == [0, 0, 9]
    assert result.queueing_ms.tolist() == [0, 0, 3000]
    assert result.forming_ms.tolist() == [0, 0, 5000]


def test_with_two_servers_forming_and_queueing_can_alternate():
    service = bs.Affine(10 * SECOND, 0)
    scenario = bs.Scenario(
        bs.Trace([0, 0, 0, 0, 2]), bs.SizeOrWait(2, 7 * SECOND), service, servers=2, slowdown={1: 0.6, 2: 1}
    )
    result = bs.simulate(scenario)
    assert result.batches.start_s.tolist() == [0, 0, 9]
    assert result.batches.finish_s.tolist() == [6, 10, 19]
    # The last request waits from 2 to 9: both servers compute until 6, then one is idle.
    assert (result.queueing_ms[-1], result.forming_ms[-1], result.computing_ms[-1]) == (4000, 3000, 10000)


def test_forming_counts_only_the_time_that_a_server_is_idle():
    # The fifth request finds both servers computing until 3; then both idle until the sixth comes.
    scenario = bs.Scenario(
        bs.Trace([0, 0, 0, 0, 1, 4]), bs.SizeOrWait(2, math.inf), bs.Affine(3 * SECOND, 0), servers=2
    )
    result = bs.simulate(scenario)
    assert result.start_s.tolist() == [0, 0, 0, 0, 4, 4]
    assert result.queueing_ms.tolist() == [0, 0, 0, 0, 2000, 0]
    assert result.forming_ms.tolist() == [0, 0, 0, 0, 1000, 0]


def test_full_batches_of_one_never_form():
    result = busy_run(replace={"max_batch_size": 1, "rate_per_s": 300})
    assert result.forming_ms.max() == pytest.approx(0, abs=1e-6)
