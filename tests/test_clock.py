"""Time counts whole nanoseconds: instants that coincide on paper coincide in a run."""

import dataclasses
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracles.plans import WORKLOADS

import batchsim as bs
from batchsim._clock import (
    LATEST_S,
    TICK_S,
    between,
    between_ms,
    in_ms,
    later,
    ms_on_grid,
    not_before,
    on_grid,
)
from batchsim.engines.compiled.grid_runs import run_many, run_times
from batchsim.engines.draws import Streams, draw, draw_cached
from batchsim.engines.token_log import draw_tokens
from batchsim.scenario.rules.rule import NOTHING, START, WAIT, Rule, oldest_s
from batchsim.study.judgement import judge
from batchsim.study.slo import SLO
from batchsim.study.surface import surface

# By hand: periodic traffic of round numbers, in fractions.

NS = 10**9


def by_hand(arrival_ns, size, wait_ms, fixed_ms, per_item_ms, servers):
    """Return each request's start and finish in nanoseconds, by fractions alone."""
    wait_ns, fixed_ns, per_item_ns = (Fraction(str(ms)) * 10**6 for ms in (wait_ms, fixed_ms, per_item_ms))
    free_ns, head, times_ns = [Fraction(0)] * servers, 0, []
    while head < len(arrival_ns):
        ready_ns = arrival_ns[head] + wait_ns
        if head + size <= len(arrival_ns):
            ready_ns = min(ready_ns, arrival_ns[head + size - 1])
        start_ns = max(ready_ns, min(free_ns))
        taken = [at for at in arrival_ns[head : head + size] if at <= start_ns]
        finish_ns = start_ns + fixed_ns + per_item_ns * len(taken)
        free_ns[next(n for n, free in enumerate(free_ns) if free <= start_ns)] = finish_ns
        times_ns += [(start_ns, finish_ns)] * len(taken)
        head += len(taken)
    return times_ns


ROUND = [
    # rate, size, wait ms, fixed ms, ms an item, servers
    (1000, 4, 0, 3, 0, 1),
    (1000, 1, 0, 1, 0, 1),
    (1000, 8, 2, 5, 0, 1),
    (1000, 4, 1, 2, 0.5, 1),
    (500, 2, 0, 3, 0.5, 1),
    (100, 8, 30, 50, 0, 1),
    (2000, 8, 0.5, 3.5, 0, 1),
    (400, 4, 5, 7.5, 0, 1),
    (1000, 3, 0, 2, 0, 2),
    (800, 4, 2.5, 5, 0, 2),
    (250, 2, 4, 12, 0, 3),
    (10_000, 16, 0.3, 0.7, 0.1, 1),
    (3000, 4, 0, 1, 0, 1),  # a third of a ms from one to the next, rounded to nanoseconds
]


@pytest.mark.parametrize("engine", ["compiled", "simpy"])
@pytest.mark.parametrize("example", ROUND, ids=str)
def test_round_examples_are_what_a_hand_computes(example, engine):
    rate, size, wait_ms, fixed_ms, per_item_ms, servers = example
    rule, service = bs.SizeOrWait(size, wait_ms), bs.Affine(fixed_ms, per_item_ms)
    scenario = bs.Scenario(bs.Constant(rate), rule, service, servers=servers)
    result = bs.simulate(scenario, 1500, engine=engine)
    arrival_ns = [Fraction(round(Fraction((i + 1) * NS, rate))) for i in range(1500)]
    starts_ns, finishes_ns = zip(*by_hand(arrival_ns, *example[1:]), strict=True)
    # Fractions of whole numbers become the nearest floats.
    assert result.arrival_s.tolist() == [float(at / NS) for at in arrival_ns]
    assert result.start_s.tolist() == [float(at / NS) for at in starts_ns]
    assert result.finish_s.tolist() == [float(at / NS) for at in finishes_ns]
    mean_ms = float((sum(finishes_ns) - sum(arrival_ns)) / 1500 / 10**6)
    assert result.mean_latency_ms == pytest.approx(mean_ms, rel=1e-12)
    parts_ms = result.forming_ms + result.queueing_ms + result.computing_ms
    assert np.abs(parts_ms - result.latency_ms).max() <= 1e-6


def test_requests_that_come_as_a_batch_starts_are_in_it():
    # Alternately 3 leave after 5, 4 and 3 ms, and so on for ever: 4 ms on average.
    scenario = bs.Scenario(bs.Constant(1000), bs.SizeOrWait(4, 0), bs.Affine(3, 0))
    result = bs.simulate(scenario, 30_001)
    assert result.latency_ms[1:].mean() == pytest.approx(4.0, abs=1e-6)
    summary = bs.simulate(scenario, 30_001, keep="summary")
    assert summary.mean_latency_ms == pytest.approx(result.mean_latency_ms, rel=1e-12)


# The grid.

TICKS = st.integers(0, 2**22 * NS - 2)


@given(TICKS)
def test_the_grid_is_unambiguous_and_rises(ticks):
    time_s, next_s = ticks / NS, (ticks + 1) / NS
    assert on_grid(time_s) == time_s < next_s == on_grid(next_s)
    assert later(time_s, TICK_S) == next_s
    assert not_before(time_s) == time_s
    assert not_before(math.nextafter(time_s, math.inf)) == next_s


@given(st.floats(0, LATEST_S), st.floats(0, LATEST_S))
def test_rounding_keeps_the_order_and_moves_by_half_a_nanosecond(one_s, other_s):
    assert (on_grid(one_s) <= on_grid(other_s)) >= (one_s <= other_s)
    assert abs(Fraction(on_grid(one_s)) - Fraction(one_s)) <= Fraction(0.75e-9)
    assert 0 <= not_before(one_s) - one_s <= 1.5e-9
    assert on_grid(on_grid(one_s)) == on_grid(one_s)


@given(TICKS, st.data())
def test_sums_of_whole_nanoseconds_are_exact(ticks, data):
    part = data.draw(st.integers(0, ticks))
    assert later(part / NS, (ticks - part) / NS) == ticks / NS
    assert later(ticks / NS, -(ticks - part) / NS) == part / NS


def test_infinity_and_arrays_go_through():
    assert on_grid(math.inf) == later(math.inf, 1) == later(1, math.inf) == not_before(math.inf) == math.inf
    assert on_grid(np.array([0.1 + 0.2, math.inf])).tolist() == [0.3, math.inf]


@pytest.mark.parametrize("workload", [*WORKLOADS[:5], bs.Trace(np.arange(3000) / 7 + 1e-10)], ids=str)
def test_arrivals_are_on_the_grid_however_they_are_drawn(workload):
    scenario = bs.Scenario(workload, bs.SizeOrWait(4, 1), bs.Affine(1, 0))
    times_s = draw(scenario, 3000, 3).arrival_s
    assert np.array_equal(on_grid(times_s), times_s)
    assert (np.diff(times_s) >= 0).all()
    assert np.array_equal(draw(scenario, 1000, 3).arrival_s, times_s[:1000])
    assert np.array_equal(draw_cached(scenario, 3000, 3, 4).arrival_s, times_s)
    assert np.array_equal(np.concatenate([*Streams(scenario, 3).arrivals_s(3000, 77)]), times_s)


# A user's own rule need not know of the grid.


def decide_plain(now_s, waiting, idle, state, params):
    if now_s >= oldest_s(waiting) + params.wait_s:
        return START, min(waiting.length, params.max_batch_size), WAIT
    return NOTHING, 0, WAIT


def wake_plain(now_s, waiting, idle, state, params):
    return oldest_s(waiting) + params.wait_s


@dataclasses.dataclass(frozen=True)
class Plain(Rule):
    max_batch_size: int = 4
    wait_s: float = 0.1

    decide, wake_s = staticmethod(decide_plain), staticmethod(wake_plain)


@pytest.mark.parametrize("wait_s", [0.0, 0.1, 0.0033, 1 / 3, 1e-10])
@pytest.mark.parametrize("workload", [bs.Constant(10), bs.Gamma(900, 3), bs.ClosedLoop(5)], ids=str)
def test_a_rule_that_adds_plain_floats_neither_spins_nor_breaks(workload, wait_s):
    scenario = bs.Scenario(workload, Plain(4, wait_s), bs.Affine(1, 1))
    fast, simpy = (bs.simulate(scenario, 300, engine=engine) for engine in ("compiled", "simpy"))
    assert np.array_equal(fast.finish_s, simpy.finish_s)
    oldest_s = fast.arrival_s[np.unique(fast.batch_index, return_index=True)[1]]
    assert (fast.batches.start_s >= oldest_s + wait_s).all()
    if workload == bs.Constant(10) and wait_s < 0.1:  # the server is idle when the wait is over
        assert (fast.batches.start_s - oldest_s - wait_s).max() <= 1.5e-9


# Beyond the grid.

SERVED = {"rule": bs.SizeOrWait(4, 1), "service": bs.Affine(1, 0)}


@pytest.mark.parametrize("keep", ["all", "summary"])
@pytest.mark.parametrize("first", [4194, 83_886])  # of the first chunk, and of another
def test_arrivals_beyond_the_grid_are_refused_with_what_would_do(keep, first):
    scenario = bs.Scenario(bs.Constant({4194: 0.001, 83_886: 0.02}[first]), **SERVED)
    with pytest.raises(ValueError, match=rf"^arrivals must be before 4,194,304 s .* the first {first:,} req"):
        bs.simulate(scenario, 100_000, keep=keep)
    assert bs.simulate(scenario, first, keep=keep).mean_latency_ms == pytest.approx(2)


@pytest.mark.parametrize("keep", ["all", "summary"])
@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("max_wait_ms", {"rule": bs.SizeOrWait(4, 5e9)}),
        ("deadline_ms", {"rule": bs.LearnedSizes(4, 5e9)}),
        ("timeout_ms", {"timeout_ms": 5e9}),
        ("think_s", {"workload": bs.ClosedLoop(4, 5e6)}),
        ("finish", {"service": bs.Affine(5e9, 0)}),
    ],
)
def test_durations_beyond_the_grid_are_refused(name, parts, keep):
    scenario = bs.Scenario(**({"workload": bs.Constant(10)} | SERVED | parts))
    with pytest.raises(ValueError, match=rf"{name}.* must be before 4,194,304 s"):
        bs.simulate(scenario, 10, keep=keep)


SLOW = bs.Scenario(bs.Constant(10), bs.SizeOrWait(1, 0), bs.Affine(1e9, 0))
TOKENS = bs.Scenario(bs.Constant(10), bs.Continuous(), bs.StepTime(1e9, 0, 0), tokens=bs.Tokens(5, 5))


@pytest.mark.parametrize("how", [{"engine": "simpy"}, {"engine": "compiled"}, {"keep": "summary"}], ids=str)
@pytest.mark.parametrize(
    "scenario", [SLOW, SLOW.replace(queue_limit=9), TOKENS], ids=["fast", "general", "tokens"]
)
def test_runs_that_end_beyond_the_grid_are_refused(scenario, how):
    with pytest.raises(ValueError, match=r"^finishes must be before 4,194,304 s .* take fewer requests"):
        bs.simulate(scenario, 10, **how)


def test_maps_know_which_cells_a_run_refuses():
    assert run_many(draw(SLOW, 10, 0), [SLOW.rule]).last_s > LATEST_S  # a map leaves this cell alone out
    with pytest.raises(ValueError, match=r"^finishes must be before"):
        run_times(draw_tokens(TOKENS, 10, 0))


# Durations: whole nanoseconds too, where they are compared.

TICKS = st.integers(0, int(LATEST_S * NS) - 1)


@given(first=TICKS, second=TICKS)
def test_a_duration_is_the_float_nearest_to_its_whole_nanoseconds(first, second):
    first, second = sorted((first, second))
    from_s, to_s, ticks = first / NS, second / NS, second - first
    assert between(from_s, to_s) == ticks / NS
    assert between_ms(from_s, to_s) == in_ms(ticks / NS) == ms_on_grid(ticks / 10**6) == ticks / 10**6


# By hand: with enough servers no batch waits, so the oldest request of each takes the wait and the service.
LONGEST = [(10, 6, 16), (7.3, 4.4, 11.7), (0.7, 0.1, 0.8), (0.1, 0.2, 0.3), (33.3, 66.6, 99.9)]


@pytest.mark.parametrize(("wait_ms", "service_ms", "longest_ms"), LONGEST)
@pytest.mark.parametrize("options", [{}, {"engine": "simpy"}, {"keep": "summary"}], ids=str)
def test_all_requests_are_within_the_longest_latency_by_hand(wait_ms, service_ms, longest_ms, options):
    scenario = bs.Scenario(
        bs.Poisson(3000 / longest_ms), bs.SizeOrWait(64, wait_ms), bs.Affine(service_ms, 0), servers=8
    )
    result = bs.simulate(scenario, 2000, **options)
    assert result.attainment(longest_ms) == result.attainment(wait_ms + service_ms) == 1
    assert result.attainment(0.999 * longest_ms) < 0.8  # the oldest of each batch has that very latency
    if not options:
        assert result.latency_ms.max() == longest_ms
        assert judge(result, SLO(p99_ms=longest_ms)).excess <= 1
        assert surface(scenario, [64], [wait_ms], 2000).p99_ms == longest_ms


def test_time_per_token_and_gaps_are_on_the_grid():
    # Steps of 10.7 ms whatever they hold: each gap is one step, in a run that is not at a whole time.
    scenario = bs.Scenario(bs.Poisson(3), bs.Continuous(), bs.StepTime(10.7, 0, 0), tokens=bs.Tokens(100, 40))
    result = bs.simulate(scenario, 500)
    assert set(result.tpot_ms) == {10.7}
    assert result.percentile(0) == 428
    assert judge(result, SLO(tpot_p99_ms=10.7, itl_p99_ms=10.7, stall_p99_ms=10.7)).excess == 1
    for options in ({}, {"keep": "summary"}, {"engine": "simpy"}):
        each = bs.simulate(scenario, 500, **options)
        assert each.attainment(tpot_ms=10.7) == 1
        assert each.attainment(tpot_ms=10.69) == 0


def test_a_mean_that_is_just_its_limit_meets_it():
    scenario = bs.Scenario(bs.Constant(3), bs.SizeOrWait(1, 0), bs.Affine(12.3, 0))
    result = bs.simulate(scenario, 3001)
    assert result.mean_latency_ms != 12.3  # the sum of 3,001 floats is not exact
    assert judge(result, SLO(mean_ms=12.3)).excess == judge(result, SLO(mean_ms=41 * 0.3)).excess == 1
    assert judge(result, SLO(mean_ms=12.299999)).excess > 1


@pytest.mark.parametrize("keep", ["all", "summary"])
@pytest.mark.parametrize("warmup", [0, 0.1, 0.5])
def test_a_batch_that_ends_as_the_window_begins_is_not_of_it(warmup, keep):
    # One request and one answer every 10 ms, at the same instants: 100/s in any window.
    scenario = bs.Scenario(bs.Constant(100), bs.SizeOrWait(1, 0), bs.Affine(10, 0))
    result = bs.simulate(scenario, 200, warmup=warmup, keep=keep)
    kept = round(200 * (1 - warmup))
    expected = kept / ((kept + (not warmup)) / 100)  # without a warm-up the window begins at 0 s
    assert result.throughput_per_s == pytest.approx(expected, rel=1e-12)
    if keep == "all":
        assert result.runs[0].sections.totals.finished.sum() == kept
        assert set(np.diff(result.runs[0].sections.totals.finished)) <= {-1, 0, 1}


def test_the_signal_of_an_autoscaler_is_on_the_grid():
    auto = bs.Autoscale("p99", target=15.4, least=1, most=2, every_s=1, startup_s=0)
    scenario = bs.Scenario(bs.Poisson(5), bs.SizeOrWait(9, 0), bs.Affine(15.4, 0), autoscale=auto, servers=8)
    for engine in ("simpy", "compiled"):
        signals = bs.simulate(scenario, 300, engine=engine).log.scaling[1:, 1]
        assert set(signals[~np.isnan(signals)]) == {15.4}
