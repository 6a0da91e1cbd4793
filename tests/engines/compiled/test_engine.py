"""The compiled engine is the reference engine, bit for bit; its summaries are the columns' sums."""

import contextlib
import dataclasses
import io
import math
import signal
import sys
import textwrap
import threading
import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracles.agreement import assert_columns_equal
from oracles.plans import WORKLOADS
from refusals import refusals
from runs import in_python

import batchsim as bs
from batchsim._clock import between
from batchsim.engines.compiled import engine as compiled
from batchsim.engines.compiled import summaries
from batchsim.engines.draws import Streams, draw
from batchsim.engines.kinds import KINDS
from batchsim.engines.totals import BINS, Histogram, binned, middles_s

SCENARIO = bs.Scenario(bs.Poisson(1800), bs.SizeOrWait(32, 10), bs.Affine(5, 0.25))


# Two engines, one truth.


AT_ONCE = {"workload": bs.Trace(np.zeros(1000)), "timeout_ms": 1e9}


@pytest.mark.parametrize("keep", ["all", "summary"])
@pytest.mark.parametrize(
    "knobs", [{}, {"timeout_ms": 1e9}, AT_ONCE, {"workload": bs.ClosedLoop(160)}], ids=repr
)
def test_a_slice_is_of_bounded_work_however_many_the_servers_are(monkeypatch, knobs, keep):
    slices = []
    scenario = bs.Scenario(bs.Poisson(1e5), bs.SizeOrWait(1, 0), bs.Affine(1, 0), servers=160).replace(knobs)
    run = repr(bs.simulate(scenario, 1000, keep=keep).summary())
    monkeypatch.setattr(compiled, "SLICE", 1000)  # so that a slice is of 1000 / 11
    monkeypatch.setattr(compiled, "check_cancelled", slices.append)
    assert repr(bs.simulate(scenario, 1000, keep=keep).summary()) == run
    assert len(slices) > 5  # all servers start a batch at one instant of seven


def test_equal_when_a_batch_is_too_short_for_the_clock():
    # 1e-12 s after 1e6 s is no later as a float: the batch takes a tick of the clock instead.
    scenario = SCENARIO.replace(
        workload=bs.Trace([0.0, 1e6, 1e6, 1e6]), service=bs.Affine(1e-9, 0), max_batch_size=1, servers=2
    )
    runs = [bs.simulate(scenario, engine=engine) for engine in ("compiled", "simpy")]
    assert_columns_equal(runs[0].log, runs[1].log)
    assert (runs[0].finish_s > runs[0].start_s).all()


def test_equal_when_a_client_leaves_and_sends_again_at_the_same_instant():
    # Found by hypothesis: an alarm at the instant that it is set for must ring once more.
    scenario = bs.Scenario(bs.ClosedLoop(1), bs.SizeOrWait(2, 5), bs.Affine(1, 0), timeout_ms=0)
    runs = [bs.simulate(scenario, 4, engine=engine) for engine in ("compiled", "simpy")]
    assert_columns_equal(runs[0].log, runs[1].log)
    assert (runs[0].status == bs.Status.TIMED_OUT).all()


def test_auto_takes_the_compiled_engine():
    assert bs.simulate(SCENARIO, 10).engine == "compiled"
    assert bs.simulate(SCENARIO, 10, engine="simpy").engine == "simpy"


def test_auto_falls_back_to_simpy_for_a_model():
    assert bs.simulate(SCENARIO, model_fn=np.negative, inputs=[1.0, 2.0]).engine == "simpy"


# Summaries of any length.


@pytest.mark.parametrize("workload", WORKLOADS, ids=repr)
def test_a_summary_does_not_depend_on_the_chunks_at_all(workload):
    scenario = SCENARIO.replace(
        workload=workload, service=bs.Affine(2, 0.7).with_noise(0.5), timeout_ms=30, max_batch_size=7
    )
    one, other = (
        summaries.summarise(scenario, 20_000, Streams(scenario, 3), 500, chunk) for chunk in (20_000, 333)
    )
    for field in dataclasses.fields(one[0]):
        assert np.array_equal(getattr(one[0], field.name), getattr(other[0], field.name)), field.name
    assert np.array_equal(one[1].counts, other[1].counts)


@pytest.mark.parametrize("knobs", [{}, {"queue_limit": 20}, {"servers": 2, "timeout_ms": 12.0}], ids=repr)
def test_keep_summary_says_what_keep_all_says(knobs):
    scenario = SCENARIO.replace(**knobs)
    kept, summed = (bs.simulate(scenario, 300_000, 1, warmup=0.1, keep=keep) for keep in ("all", "summary"))
    for name, value in kept.summary().items():
        tolerance = 1e-3 if name.startswith("p") else 1e-9
        assert summed.summary()[name] == pytest.approx(value, rel=tolerance), name
    assert summed.percentile(99, unserved="inf") == pytest.approx(
        kept.percentile(99, unserved="inf"), rel=1e-3
    )
    # Those within 0.1 % of the objective may count or not.
    assert kept.attainment(20 * 0.999) <= summed.attainment(20) <= kept.attainment(20 * 1.001)
    assert kept.goodput_per_s(20 * 0.999) <= summed.goodput_per_s(20) <= kept.goodput_per_s(20 * 1.001)
    assert repr(summed)


def test_a_summary_has_no_columns_and_says_so():
    result = bs.simulate(SCENARIO, 1000, keep="summary")
    with pytest.raises(ValueError, match="columns must be kept to be read, got a run with keep='summary'"):
        _ = result.arrival_s


@given(ticks=st.lists(st.integers(1, 10**15) | st.integers(1, 10**5), min_size=1, max_size=20))
def test_a_histogram_knows_durations_to_a_thousandth_and_is_exact_at_limits_of_four_digits(ticks):
    bins = binned(np.array(ticks) / 1e9)
    assert np.allclose(1e9 * middles_s()[bins], ticks, rtol=1.0001e-3, atol=0)
    counts = Histogram(np.bincount(bins, minlength=BINS))
    for limit in (int(float(f"{tick:.3e}")) for tick in ticks):  # the duration itself, if of four digits
        assert counts.within(limit / 1e6) == sum(tick <= limit for tick in ticks)


@pytest.mark.parametrize("fixed_ms", [2e-6, 0.0047, 5, 9999.9995, 3e6])
def test_the_loops_find_the_bins_of_a_histogram(fixed_ms):
    # One server that is loaded 20 times: latencies from one service to 1,000 of them, over four decades.
    scenario = bs.Scenario(bs.Poisson(2e4 / fixed_ms), bs.SizeOrWait(1, 0), bs.Affine(fixed_ms, 0))
    run, summary = bs.simulate(scenario, 1000), bs.simulate(scenario, 1000, keep="summary")
    counts = np.bincount(binned(between(run.arrival_s, run.finish_s)), minlength=BINS)
    assert np.array_equal(summary.runs[0].sums[1].counts, counts)


def test_overload_does_not_use_up_memory():
    overloaded = SCENARIO.replace(rate_per_s=50_000)
    windows = summaries._fast_windows(overloaded, 400_000, Streams(overloaded, 0), 10_000)
    waiting = [10_000 * (k + 1) - window.numbers.stop for k, window in enumerate(windows)]
    assert len(waiting) == 40
    assert max(waiting) < 32


# Replications.


@pytest.mark.parametrize("engine", ["compiled", "simpy"])
def test_number_0_is_the_plain_run_and_the_others_are_not(engine):
    pooled = bs.simulate(SCENARIO, 500, seed=3, replications=3, engine=engine)
    assert_columns_equal(pooled.replications[0].log, bs.simulate(SCENARIO, 500, seed=3).log)
    firsts = {float(run.arrival_s[0]) for run in pooled.replications}
    assert len(firsts) == 3


@pytest.mark.parametrize("keep", ["all", "summary"])
def test_the_summary_is_of_all_replications_together(keep):
    pooled = bs.simulate(SCENARIO, 2000, replications=4, keep=keep, warmup=0.1)
    runs = pooled.replications
    assert pooled.summary()["requests"] == sum(run.summary()["requests"] for run in runs)
    assert pooled.mean_latency_ms == pytest.approx(np.mean([run.mean_latency_ms for run in runs]))
    assert min(run.percentile(99) for run in runs) < pooled.percentile(99)
    assert pooled.percentile(99) < max(run.percentile(99) for run in runs)
    lengths = [run.summary()["served"] / run.throughput_per_s for run in runs]
    assert pooled.throughput_per_s == pytest.approx(
        np.average([run.throughput_per_s for run in runs], weights=lengths), rel=1e-3
    )


def test_pooled_columns_follow_each_other():
    pooled = bs.simulate(SCENARIO.replace(servers=2), 300, replications=3)
    for name in ("arrival_s", "finish_s", "forming_ms", "queueing_ms", "latency_ms"):
        expected = np.concatenate([getattr(run, name) for run in pooled.replications])
        assert np.array_equal(getattr(pooled, name), expected), name
    triggers = np.concatenate([run.batches.trigger for run in pooled.replications])
    assert np.array_equal(pooled.batches.trigger, triggers)
    assert pooled.story(299 + 5) == pooled.replications[1].story(4)
    assert len(pooled.to_frame()) == 900


def test_a_single_run_is_its_own_replication():
    result = bs.simulate(SCENARIO, 100)
    assert result.replications == (result,)


def test_a_replication_that_is_halted_stops_at_its_next_slice():
    halt = threading.Event()
    halt.set()
    with pytest.raises(InterruptedError):
        compiled.run(draw(SCENARIO, 1000, 0), halt)
    for skip in (0, 900):
        with pytest.raises(InterruptedError):
            summaries.summarise(SCENARIO, 1000, Streams(SCENARIO, 0), skip, cancelled=halt)
    with pytest.raises(InterruptedError):
        draw(SCENARIO, 1000, 0, cancelled=halt)


# First use, Ctrl-C, and what is refused.


@pytest.mark.usefixtures("compiled_before")
def test_of_what_is_on_disk_nothing_is_said():
    """What the first run on a new machine says: tests/study/test_surface.py."""
    code = """
        import batchsim as bs
        scenario = bs.Scenario(bs.Poisson(100), bs.SizeOrWait(4, 10), bs.Affine(5, 1))
        for one in (scenario, scenario.replace(timeout_ms=50)):
            for keep in ("all", "summary"):
                print(bs.simulate(one, 100, keep=keep).engine)
    """
    assert in_python(code).communicate() == ("compiled\n" * 4, "")


def test_without_a_compiler_the_loops_are_plain_python_and_all_is_the_same():
    code = """
        import batchsim as bs
        base = bs.Scenario(bs.Poisson(300), bs.SizeOrWait(4, 10), bs.Affine(5, 1))
        others = {"timeout_ms": 20}, {"workload": bs.ClosedLoop(9)}, {"rule": bs.PreferredSizes([2, 4], 4, 5)}
        for scenario in (base, *map(base.replace, others)):
            print(bs.simulate(scenario, 100, keep="summary").mean_latency_ms)
        panel = bs.explore(base.replace(timeout_ms=20), requests=100)
        print(panel.result.percentile(99), repr(panel.status.value))
    """
    plain = in_python(code, NUMBA_DISABLE_JIT="1")
    with contextlib.redirect_stdout(io.StringIO()) as compiled:
        exec(textwrap.dedent(code), {})
    out, said = plain.communicate()
    assert (out, said) == (compiled.getvalue(), "")
    assert out.endswith(" ''\n")


@pytest.mark.usefixtures("compiled_before")
@pytest.mark.skipif(sys.platform == "win32", reason="sends a Unix signal")
def test_ctrl_c_stops_a_long_run_and_the_process_lives_on():
    code = """
        import itertools, signal, warnings
        signal.signal(signal.SIGINT, signal.default_int_handler)  # background jobs inherit that it is ignored
        import batchsim as bs
        warnings.simplefilter("ignore")  # it is long
        plain = bs.Scenario(bs.Poisson(1000), bs.SizeOrWait(32, 10), bs.Affine(5, 0.25))
        for scenario, replications in itertools.product((plain, plain.replace(timeout_ms=1000)), (1, 2)):
            bs.simulate(scenario, 1000, keep="summary")
            try:
                print("ready", flush=True)
                bs.simulate(scenario, 10**12, keep="summary", replications=replications)
            except KeyboardInterrupt:
                print(bs.simulate(scenario, 1000).summary()["served"], flush=True)
    """
    process = in_python(code)
    watchdog = threading.Timer(300, process.kill)  # of a run that goes on
    watchdog.start()
    for _ in range(4):  # it lives on each time
        assert process.stdout.readline() == "ready\n", process.stderr.read()
        time.sleep(0.3)
        process.send_signal(signal.SIGINT)
        assert process.stdout.readline() == "1000\n", "the run went on"
    assert process.communicate() == ("", "")
    watchdog.cancel()
    assert process.returncode == 0


@refusals
def test_bad_input_is_refused():
    """
    bs.simulate(SCENARIO, engine="simpi")
        -> engine must be one of auto, compiled, simpy, got 'simpi'; did you mean 'simpy'?
    bs.simulate(SCENARIO, keep="some") -> keep must be one of all, requests, summary, got 'some'
    bs.simulate(SCENARIO, replications=0) -> replications must be at least 1, got 0
    bs.simulate(SCENARIO, engine="compiled", model_fn=np.negative, inputs=[1.0])
        -> engine 'compiled' does not cover a model_fn: use engine='simpy'
    bs.simulate(SCENARIO, engine="simpy", keep="summary")
        -> keep='summary' needs the compiled engine, got engine='simpy'
    bs.simulate(SCENARIO, keep="summary", model_fn=np.negative, inputs=[1.0])
        -> keep='summary' needs the compiled engine, which does not cover a model_fn
    bs.simulate(SCENARIO, replications=2, model_fn=np.negative, inputs=[1.0])
        -> a model_fn must run in one replication, got replications=2
    """


def test_more_requests_than_memory_holds_are_refused_before_anything_is_drawn(monkeypatch):
    refuses = KINDS["requests"]._replace(draw=lambda *_: pytest.fail("drawn"))
    monkeypatch.setitem(KINDS, "requests", refuses)
    message = r"1,000,000,000,000 requests need [\d,.]+ GiB, got [\d,.]+ GiB free; keep='summary' runs any"
    with pytest.raises(MemoryError, match=message):
        bs.simulate(SCENARIO, 10**12)
    assert math.isfinite(bs.simulate(SCENARIO, 1000, keep="summary").percentile(99))
