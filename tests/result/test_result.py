"""A result: columns, frame, print."""

import json
import math
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles.plans import scenarios_at_random
from runs import busy_run, lossy_run, run

import batchsim as bs

FULL, WAIT, BACKLOG = bs.Trigger.FULL, bs.Trigger.WAIT, bs.Trigger.BACKLOG
DRAIN = bs.Trigger.DRAIN


@pytest.fixture(scope="module")
def result():
    return busy_run()


@pytest.fixture(scope="module")
def lossy():
    return lossy_run()


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
    assert result.batches.trigger.tolist() == [FULL, BACKLOG, WAIT]


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
    assert result.batches.trigger.tolist() == [FULL, WAIT]


def test_the_enums_are_ints_with_names():
    assert [state.name for state in bs.Status] == ["SERVED", "REJECTED", "TIMED_OUT", "FAILED"]
    assert [reason.name for reason in bs.Trigger] == ["FULL", "WAIT", "BACKLOG", "DRAIN", "ENOUGH"]
    assert bs.Trigger(0) == 0


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


def test_answers_of_one_token_print_that_nothing_is_between_their_tokens():
    scenario = bs.Scenario(
        bs.Poisson(5), bs.Continuous(8), bs.StepTime(7, 10, 0.1), tokens=bs.Tokens(100, output=1)
    )
    result = bs.simulate(scenario, 200)
    lines = repr(result).splitlines()
    found = [line.split(maxsplit=1) for line in lines if line.split()[0] in ("TPOT", "ITL")]
    assert found == [["TPOT", "none: each answer has one token"], ["ITL", "none: each answer has one token"]]
    fewer = bs.simulate(scenario.replace(max_num_seqs=4), 200)
    assert "nan" not in repr(result) + repr(bs.compare(result, fewer, silent=True))


@pytest.mark.parametrize(
    ("rate_per_s", "watts", "price", "line"),
    [
        (0.001, 700, 1e6, "per million requests, 698,813 J a request"),
        (100_000, 1e-6, 1e-6, "0.0000002084 per million requests, 0.000000001125 J a request"),
    ],
)
def test_a_cost_prints_in_digits_however_large_or_small_it_is(rate_per_s, watts, price, line):
    power = {"watts": {1: watts, 4: 1.5 * watts}, "price_per_hour": price}
    scenario = bs.Scenario(bs.Poisson(rate_per_s), bs.SizeOrWait(4, 2), bs.Affine(1, 0.5), **power)
    text = repr(bs.simulate(scenario, 200))
    assert line in text
    assert "e+" not in text
    assert "e-" not in text


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
    result = bs.simulate(bs.Scenario(bs.Poisson(800), bs.SizeOrWait(8, 5), bs.Affine(5, 0.25)), 15_000)
    expected = result.summary(), result.interval("p99")
    again = pickle.loads(pickle.dumps(result))
    assert (again.summary(), again.interval("p99")) == expected
    assert np.array_equal(again.finish_s, result.finish_s)


@settings(max_examples=80)
@given(scenarios_at_random(), st.sampled_from([0, 0.3]))
def test_the_summary_is_that_of_the_columns_and_the_same_from_both_engines(scenario, warmup):
    simpy, compiled = (bs.simulate(scenario, 200, 3, engine, warmup) for engine in ("simpy", "compiled"))
    summary = compiled.summary()
    assert json.dumps(simpy.summary()) == json.dumps(summary)
    for part in ("latency", "forming", "queueing", "computing"):
        column = getattr(compiled, f"{part}_ms")[compiled.warmup_requests :]
        if not np.isnan(column).all():
            assert summary[f"mean_{part}_ms"] == pytest.approx(np.nanmean(column), rel=1e-9, abs=1e-9)


# Several runs.


def test_one_run_is_asked_for_by_name_and_several_are_refused():
    one, several = busy_run(requests=100), busy_run(requests=100, replications=3)
    assert one.run is one.runs[0]
    assert one.replications == (one,)
    with pytest.raises(ValueError, match="got 3 replications"):
        several.run  # noqa: B018
    assert [len(each.runs) for each in several.replications] == [1, 1, 1]


def test_the_metrics_of_replications_are_computed_once():
    several = busy_run(requests=100, replications=2)
    assert several.replications[1].metrics is several.runs[1].metrics


def test_a_summary_has_no_columns():
    for replications in (1, 2):
        result = busy_run(requests=100, keep="summary", replications=replications)
        assert not result.has_columns
        with pytest.raises(ValueError, match="keep='summary'"):
            result.latency_ms  # noqa: B018
