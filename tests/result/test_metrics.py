"""The metrics: the table, and the numbers."""

import json
import math
import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from refusals import refusals
from runs import SECOND, busy_run, lossy_run, run

import batchsim as bs
from batchsim.result.metrics import METRICS, OrderStatistics, described, metric

NAN = math.nan


@pytest.fixture(scope="module")
def result():
    return busy_run()


@pytest.fixture(scope="module")
def lossy():
    return lossy_run()


# Percentiles.


@given(q=st.floats(0, 100))
def test_percentiles_are_numpys_linear(result, q):
    assert result.percentile(q) == np.percentile(result.latency_ms, q)


@given(qs=st.lists(st.floats(0, 100), min_size=1), unserved=st.sampled_from(["ignore", "inf"]))
def test_many_percentiles_at_once_are_those_one_by_one(lossy, qs, unserved):
    one_by_one = [lossy.percentile(q, unserved=unserved) for q in qs]
    assert lossy.metrics.percentiles(np.array(qs), unserved).tolist() == one_by_one


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
    with pytest.raises(ValueError, match="unserved must be one of ignore, inf, got 'drop'"):
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
    counts = [int((lossy.status == state).sum()) for state in bs.Status]
    assert [
        s["served"],
        s["rejected"],
        s["timed_out"],
        0,
    ] == counts  # only a real run has requests that failed
    assert s["requests"] == sum(counts) == 3000
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


# The table.


@pytest.mark.parametrize("replications", [1, 3])
def test_every_number_of_a_summary_has_its_line_in_the_table(replications):
    summary = busy_run(replications=replications).summary()
    assert [key for key in METRICS if key in summary] == list(summary)
    for key in summary:
        line = METRICS[key]
        assert line.label
        assert line.unit == ("ms" if key.endswith("_ms") else "per s" if key.endswith("_per_s") else "")
        assert line.better in (None, "lower", "higher")


def test_a_metric_has_a_label_and_a_unit():
    keys = ("mean_latency_ms", "p99_ms", "throughput_per_s", "p99_all_ms")
    labels = ["mean latency", "p99", "throughput", "p99 of all requests"]
    assert [described(key).label for key in keys] == labels
    assert [described(key).unit for key in ("p99", "throughput_per_s", "loss")] == ["ms", "per s", ""]
    assert (described("rate_per_s").label, described("rate_per_s").unit) == ("rate", "per s")
    assert (described("servers").label, described("servers").unit) == ("servers", "")


def test_any_percentile_is_a_metric_by_its_short_and_its_long_name():
    assert metric("p99") is metric("p99_ms") is METRICS["p99_ms"]
    assert metric("p99.95_ms") == metric("p99.95")
    assert (metric("p99.95").q, metric("p99.95").label, metric("p99.95").better) == (99.95, "p99.95", "lower")


@refusals
def test_what_is_no_metric_is_refused():
    """
    metric("p101") -> at most 100, got 101
    metric("throughput") -> got 'throughput'; did you mean 'throughput_per_s'
    metric(99) -> TypeError: named by text, got 99
    """


def test_order_statistics_of_values_next_to_each_other():
    assert OrderStatistics(np.array([5e-324, 0.0])).at_ranks_ms(np.array([1, 0])).tolist() == [5e-324, 0.0]


@given(values=st.lists(st.floats(0, 1e6), min_size=1, max_size=300), data=st.data())
def test_order_statistics_are_those_of_the_sorted_values(values, data):
    order = OrderStatistics(np.array(values))
    for _ in range(2):  # the second ranks may share buckets with the first
        ranks = data.draw(st.lists(st.integers(0, len(values) - 1), min_size=1))
        assert order.at_ranks_ms(np.array(ranks)).tolist() == [sorted(values)[rank] for rank in ranks]
    assert order.within(values[0]) == sum(value <= values[0] for value in values)


def test_an_empty_window_has_no_throughput_and_nothing_is_busy_also_with_an_autoscaler():
    lost = bs.Scenario(bs.Trace([0.0]), bs.SizeOrWait(2, 50), bs.Affine(5, 1), timeout_ms=10)
    tokens = bs.Scenario(
        bs.Trace([0.0]), bs.SizeOrWait(2, 50), bs.StepTime(5, 1, 0.1), timeout_ms=10, tokens=bs.Tokens(5, 3)
    )
    for scenario in (lost, lost.replace(autoscale=bs.Autoscale(most=2)), tokens):
        found = bs.simulate(scenario).summary()
        assert (found["served"], found["utilisation"], found["throughput_per_s"]) == (0, 0, 0)
        assert found.get("output_tokens_per_s", 0) == 0
