import itertools
import json
import math
import pickle
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles.plans import scenarios_at_random

import batchsim as bs

NAN = math.nan
SECOND = 1000.0
FULL, TIMEOUT, BACKLOG = bs.Trigger.FULL, bs.Trigger.WAIT, bs.Trigger.BACKLOG
DRAIN, ENOUGH = bs.Trigger.DRAIN, bs.Trigger.ENOUGH


def run(times_s, size, wait_s, service_s, warmup=0.0, per_item_s=0.0, **knobs):
    rule = bs.SizeOrWait(size, wait_s * SECOND)
    service = bs.Affine(service_s * SECOND, per_item_s * SECOND)
    return bs.simulate(bs.Scenario(bs.Trace(times_s), rule, service, **knobs), warmup=warmup)


def busy_run(**knobs):
    scenario = bs.Scenario(bs.Poisson(900), bs.SizeOrWait(8, 5), bs.Affine(5, 0.5), servers=2)
    return bs.simulate(scenario.replace(knobs.pop("replace", {})), knobs.pop("requests", 3000), **knobs)


@pytest.fixture(scope="module")
def result():
    return busy_run()


@pytest.fixture(scope="module")
def lossy():
    limits = {"queue_limit": 20, "timeout_ms": 12, "rate_per_s": 2500}
    return busy_run(replace=limits, seed=1)


# Where the time goes.


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


# The columns.


def test_the_columns_have_a_row_a_request(lossy):
    for name in ("arrival_s", "start_s", "finish_s", "latency_ms", "forming_ms", "queueing_ms"):
        column = getattr(lossy, name)
        assert (column.shape, column.dtype) == ((3000,), float), name
    assert lossy.status.dtype == np.uint8
    assert lossy.batches.trigger.dtype == np.uint8
    assert lossy.batch_index.dtype == np.int64
    assert (np.diff(lossy.arrival_s) >= 0).all()


def test_who_is_not_served_has_no_times_and_no_batch(lossy):
    assert set(lossy.status) == {0, 1, 2}
    lost = lossy.status != bs.Status.SERVED
    for column in (lossy.start_s, lossy.finish_s, lossy.latency_ms, lossy.forming_ms, lossy.queueing_ms):
        assert np.array_equal(np.isnan(column), lost)
    assert np.array_equal(lossy.batch_index == -1, lost)


def test_the_batches_hold_the_requests(lossy):
    served = lossy.batch_index >= 0
    assert np.array_equal(np.bincount(lossy.batch_index[served]), lossy.batches.batch_size)
    assert np.array_equal(lossy.start_s[served], lossy.batches.start_s[lossy.batch_index[served]])
    assert np.array_equal(lossy.finish_s[served], lossy.batches.finish_s[lossy.batch_index[served]])
    assert len(lossy.batches) == lossy.batches.start_s.size
    assert lossy.batches.batch_size.max() <= 8


def test_batches_are_numbered_by_start_and_ties_by_server(result):
    b = result.batches
    order = np.lexsort((b.server, b.start_s))
    assert np.array_equal(order, np.arange(len(b)))


def test_no_server_computes_two_batches_at_once(result):
    b = result.batches
    for server in range(2):
        mine = b.server == server
        assert (b.start_s[mine][1:] >= b.finish_s[mine][:-1]).all()


# Why a batch left.


def test_the_triggers_of_the_textbook_rule():
    #  0, 1 full at 1; 2 by its timer at 4 (busy until 5, so backlog at 5); 9 by its timer at 11
    result = run([0, 1, 2, 9], 2, 2, 4)
    assert result.batches.start_s.tolist() == [1, 5, 11]
    assert result.batches.trigger.tolist() == [FULL, BACKLOG, TIMEOUT]


def test_full_comes_before_every_other_reason():
    result = run([0, 2], 2, 2, 1)  # full at its very deadline
    assert result.batches.trigger.tolist() == [FULL]
    result = run([0, 0, 0, 1, 1], 2, 0.5, 3)  # the second is full long after its deadline
    assert result.batches.start_s.tolist() == [0, 3, 6]
    assert result.batches.trigger.tolist() == [FULL, FULL, BACKLOG]


def test_the_drain_is_only_what_the_end_released():
    result = run([0, 1, 2], 2, math.inf, 5)
    assert result.batches.trigger.tolist() == [FULL, DRAIN]
    result = run([0, 1, 2], 2, 9, 5)
    assert result.batches.trigger.tolist() == [FULL, TIMEOUT]


def test_the_enums_are_ints_with_names():
    assert [state.name for state in bs.Status] == ["SERVED", "REJECTED", "TIMED_OUT"]
    assert [reason.name for reason in bs.Trigger] == ["FULL", "WAIT", "BACKLOG", "DRAIN", "ENOUGH"]
    assert bs.Trigger(0) == 0


# Percentiles.


@given(q=st.floats(0, 100))
def test_percentiles_are_numpys_linear(result, q):
    assert result.percentile(q) == np.percentile(result.latency_ms, q)


def test_percentiles_are_over_the_served(lossy):
    latencies = lossy.latency_ms[lossy.status == bs.Status.SERVED]
    for q in (0, 1, 50, 99, 100):
        assert lossy.percentile(q) == np.percentile(latencies, q)


def test_the_unserved_can_count_as_infinitely_late():
    # Latencies 1 s each for two, the other two are rejected: ranks 0, 1 finite.
    result = run([0, 0, 0, 0], 2, 0, 1, queue_limit=2)
    assert result.percentile(99) == 1000
    assert result.percentile(0, unserved="inf") == 1000
    assert result.percentile(100 / 3, unserved="inf") == pytest.approx(1000)
    assert result.percentile(34, unserved="inf") == math.inf
    assert result.percentile(50, unserved="inf") == math.inf
    assert result.percentile(100, unserved="inf") == math.inf


@given(q=st.floats(0, 100))
def test_unserved_percentiles_are_numpys_where_they_are_finite(lossy, q):
    latencies = np.where(np.isnan(lossy.latency_ms), 1e12, lossy.latency_ms)
    expected = np.percentile(latencies, q)
    got = lossy.percentile(q, unserved="inf")
    if expected < 1e6:
        assert got == pytest.approx(expected, rel=1e-12)
    else:
        assert got == math.inf


def test_with_everyone_served_the_unserved_change_nothing(result):
    for q in (0, 37.3, 99, 100):
        assert result.percentile(q, unserved="inf") == result.percentile(q)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ((101,), ValueError, "q must be at most 100, got 101"),
        ((-1,), ValueError, "q must be at least 0, got -1"),
        ((NAN,), ValueError, "q must be a number, got nan"),
        (("p99",), TypeError, "q must be a number, got 'p99'"),
    ],
)
def test_a_percentile_refuses(result, arguments, error, message):
    with pytest.raises(error, match=message):
        result.percentile(*arguments)
    with pytest.raises(ValueError, match="unserved must be 'ignore' or 'inf', got 'drop'"):
        result.percentile(50, unserved="drop")


# The window.


def test_without_a_warm_up_the_window_is_from_0_to_the_last_finish():
    result = run([0, 2, 4, 6], 1, 0, 1)
    assert result.throughput_per_s == 4 / 7
    assert result.utilisation == 4 / 7
    # A trace starts at 0; other workloads do not, and their window does.
    late = bs.simulate(
        bs.Scenario(bs.Constant(0.1), bs.SizeOrWait(1, 0), bs.Affine(5 * SECOND, 0)), 2, engine="simpy"
    )
    assert late.arrival_s.tolist() == [10, 20]
    assert late.throughput_per_s == 2 / 25
    assert late.utilisation == 10 / 25


def test_with_a_warm_up_the_window_starts_at_the_first_kept_arrival():
    # Busy 0..3 and 3..6 and 6..9 and 10..13; the first kept arrival is that of 2.
    result = run([0, 1, 2, 10], 1, 0, 3, warmup=0.5)
    assert result.start_s.tolist() == [0, 3, 6, 10]
    assert result.throughput_per_s == 4 / 11  # all four finish in [2, 13]
    assert result.utilisation == pytest.approx(10 / 11)  # 2..9 and 10..13
    assert result.mean_latency_ms == (7000 + 3000) / 2
    assert result.percentile(100) == 7000
    assert result.summary()["requests"] == 2
    assert result.summary()["batches"] == 3  # those that start in the window
    assert result.arrival_s.size == 4  # the columns stay whole


def test_a_finish_before_the_window_does_not_count():
    result = run([0, 1, 5, 10], 1, 0, 1, warmup=0.5)
    assert result.throughput_per_s == 2 / 6
    assert result.utilisation == 2 / 6


def test_a_warm_up_too_small_to_drop_a_request_drops_nothing():
    result = run([0, 2], 1, 0, 1, warmup=0.4)
    assert result.summary() == run([0, 2], 1, 0, 1).summary()


def test_utilisation_is_per_server():
    result = run([0, 0, 4], 1, 0, 2, servers=2)
    assert result.utilisation == (2 + 2 + 2) / (2 * 6)


def test_the_warm_up_changes_no_column():
    whole, cut = busy_run(), busy_run(warmup=0.3)
    assert np.array_equal(whole.finish_s, cut.finish_s)
    assert cut.mean_latency_ms == pytest.approx(whole.latency_ms[900:].mean(), rel=1e-12)
    assert cut.percentile(95) == np.percentile(whole.latency_ms[900:], 95)


def test_the_mean_batch_size_is_over_batches():
    result = run([0, 0, 0, 5], 4, 1, 1)
    assert result.batches.batch_size.tolist() == [3, 1]
    assert result.mean_batch_size == 2


# Objectives.


def test_attainment_is_the_share_of_requests_served_within_the_objective():
    # Latencies 1, 2, 3 s; the fourth is rejected.
    result = run([0, 0, 0, 0], 1, 0, 1, queue_limit=3)
    assert result.latency_ms[:3].tolist() == [1000, 2000, 3000]
    assert [result.attainment(ms) for ms in (0, 999, 1000, 2500, 3000)] == [0, 0, 0.25, 0.5, 0.75]
    assert [result.goodput_per_s(ms) for ms in (999, 1000, 3000)] == [0, 1 / 3, 1]
    with pytest.raises(ValueError, match="objective_ms must be at least 0, got -1"):
        result.attainment(-1)
    with pytest.raises(ValueError, match="objective_ms must be a number, got nan"):
        result.goodput_per_s(NAN)


def test_attainment_and_goodput_agree_with_the_percentile_and_the_throughput(lossy):
    assert lossy.goodput_per_s(1e9) == lossy.throughput_per_s
    p40 = lossy.percentile(40, unserved="inf")
    assert lossy.attainment(p40) == pytest.approx(0.4, abs=0.005)


# The summary.


@pytest.mark.parametrize("which", ["result", "lossy", "closed", "at_least", "numpy"])
def test_the_summary_is_of_plain_numbers(which, request):
    if which == "closed":
        made = busy_run(replace={"workload": bs.ClosedLoop(9)}, warmup=0.1)
    elif which == "at_least":
        made = busy_run(replace={"rule": bs.AtLeast(2, 8)})
    elif which == "numpy":
        made = busy_run(replace={"rate_per_s": np.float64(900), "max_batch_size": np.int64(8)})
    else:
        made = request.getfixturevalue(which)
    summary = made.summary()
    assert {type(value) for value in summary.values()} <= {int, float, bool}
    assert json.loads(json.dumps(summary)).keys() == summary.keys()


def test_the_summary_says_what_the_result_does(lossy):
    s = lossy.summary()
    assert (s["requests"], s["served"], s["rejected"], s["timed_out"]) == (
        3000,
        *(int((lossy.status == state).sum()) for state in bs.Status),
    )
    assert s["offered_per_s"] == 2500
    assert s["saturation_per_s"] == lossy.scenario.saturation_per_s
    assert s["load"] == lossy.scenario.load
    assert s["throughput_per_s"] == lossy.throughput_per_s
    assert s["utilisation"] == lossy.utilisation
    assert s["mean_latency_ms"] == lossy.mean_latency_ms
    assert (s["p50_ms"], s["p99_ms"]) == (lossy.percentile(50), lossy.percentile(99))
    assert s["mean_forming_ms"] + s["mean_queueing_ms"] + s["mean_computing_ms"] == pytest.approx(
        s["mean_latency_ms"], abs=1e-6
    )
    assert s["batches"] == len(lossy.batches)
    shares = [value for name, value in s.items() if name.endswith("_share")]
    assert sum(shares) == pytest.approx(1)


def test_an_overload_runs_and_says_that_it_is_unstable():
    flooded = busy_run(replace={"rate_per_s": 5000})
    s = flooded.summary()
    assert s["stable"] is False
    assert s["saturation_per_s"] == pytest.approx(2 * 8 / 0.009)
    assert s["load"] == pytest.approx(5000 * 0.009 / 16)
    for text in (repr(flooded), flooded._repr_html_()):
        assert "UNSTABLE" in text
        assert "load 2.81" in text
        assert "1777.8/s" in text
    calm = busy_run()
    assert calm.summary()["stable"] is True
    assert "UNSTABLE" not in repr(calm)


def test_a_run_in_which_nothing_was_served_says_so_quietly():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for warmup in (0.0, 0.5):
            result = run([0, 1, 2], 4, 5, 1, warmup=warmup, timeout_ms=1)
            s = result.summary()
            assert len(result.batches) == 0
            assert s["served"] == 0
            assert s["timed_out"] == s["requests"] > 0
            assert (s["throughput_per_s"], s["utilisation"], s["batches"]) == (0, 0, 0)
            for name in ("mean_latency_ms", "p50_ms", "p99_ms", "mean_batch_size", "mean_forming_ms"):
                assert math.isnan(s[name]), name
            assert math.isnan(result.percentile(50))
            assert result.percentile(0, unserved="inf") == math.inf
            assert (result.attainment(1e9), result.goodput_per_s(1e9)) == (0, 0)
            assert np.isnan(result.forming_ms).all()
            assert np.isnan(result.start_s).all()
            assert "3" in repr(result) or "2" in repr(result)
            assert result._repr_html_()
            assert len(result.to_frame()) == 3


def test_rejections_after_the_last_finish_do_not_break_the_breakdown():
    result = run([0, 1, 50, 50], 1, 0, 1, queue_limit=1, timeout_ms=0)
    assert result.status.tolist() == [0, 0, 0, 1]
    assert result.forming_ms[:3].tolist() == [0, 0, 0]


# A frame.


def test_a_frame_has_a_row_a_request_and_names_for_codes(lossy, result):
    frame = lossy.to_frame()
    assert list(frame.columns) == [
        "arrival_s",
        "start_s",
        "finish_s",
        "latency_ms",
        "forming_ms",
        "queueing_ms",
        "computing_ms",
        "batch_index",
        "batch_size",
        "server",
        "trigger",
        "status",
    ]
    assert len(frame) == 3000
    assert set(frame.status) == {"served", "rejected", "timed_out"}
    assert set(frame.trigger) == {"full", ""}
    served = frame[frame.status == "served"]
    assert np.array_equal(served.batch_size, lossy.batches.batch_size[served.batch_index])
    assert np.array_equal(served.server, lossy.batches.server[served.batch_index])
    lost = frame[frame.status != "served"]
    assert (lost.batch_size == 0).all()
    assert (lost.server == -1).all()
    assert (lost.trigger == "").all()
    assert set(result.to_frame().trigger) == {"full", "wait", "backlog"}


# How it prints.


def test_the_repr_says_the_main_figures_on_a_few_lines(lossy):
    text = repr(lossy)
    s = lossy.summary()
    assert len(text.splitlines()) <= 8
    assert f"{s['served']:,} served, {s['rejected']:,} rejected, {s['timed_out']:,} timed out" in text
    assert f"p99 {s['p99_ms']:.2f}" in text
    assert repr(lossy.batches) == f"Batches({len(lossy.batches):,} batches)"


def test_the_html_is_a_table_of_the_same_figures(result):
    html = result._repr_html_()
    assert html.startswith("<table>")
    assert html.count("<tr>") == html.count("</tr>") == len(repr(result).splitlines()) - 1
    assert f"p99 {result.percentile(99):.2f}" in html


def test_a_closed_loop_prints_without_a_load():
    closed = busy_run(replace={"workload": bs.ClosedLoop(9)})
    assert "closed loop" in repr(closed)
    assert "nan" not in repr(closed)


@pytest.mark.parametrize("keep", ["all", "summary"])
def test_a_warm_up_always_leaves_a_request(keep):
    result = bs.simulate(
        bs.Scenario(bs.Poisson(800), bs.SizeOrWait(32, 10), bs.Affine(5, 0.25)),
        10,
        warmup=1 - 1e-12,
        keep=keep,
    )
    assert result.summary()["served"] == 1


def test_a_result_pickles_also_after_it_was_read():
    result = bs.simulate(bs.Scenario(bs.Poisson(800), bs.SizeOrWait(8, 5), bs.Affine(5, 0.25)), 5000)
    expected = result.summary(), result.interval("p99")
    again = pickle.loads(pickle.dumps(result))
    assert (again.summary(), again.interval("p99")) == expected
    assert np.array_equal(again.finish_s, result.finish_s)


@settings(max_examples=150)
@given(scenarios_at_random(), st.sampled_from([0, 0.3]))
def test_the_summary_is_that_of_the_columns_and_the_same_from_both_engines(scenario, warmup):
    simpy, compiled = (bs.simulate(scenario, 200, 3, engine, warmup) for engine in ("simpy", "compiled"))
    summary = compiled.summary()
    assert json.dumps(simpy.summary()) == json.dumps(summary)
    for part in ("latency", "forming", "queueing", "computing"):
        column = getattr(compiled, f"{part}_ms")[compiled.warmup_requests :]
        if not np.isnan(column).all():
            assert summary[f"mean_{part}_ms"] == pytest.approx(np.nanmean(column), rel=1e-9, abs=1e-9)
