"""The highest rate within an objective: against closed forms, and where there is none."""

import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from refusals import refusals
from scipy.optimize import brentq

import batchsim as bs
from batchsim import theory
from batchsim.study.capacity import TRIED, capacity, edge
from batchsim.study.judgement import Verdict, judge
from batchsim.study.slo import SLO

ONE_MS = bs.Affine(1, 0)
ONE_BY_ONE = bs.SizeOrWait(1, 0)
MM1 = bs.Scenario(bs.Poisson(1), ONE_BY_ONE, ONE_MS.with_noise(1, "exponential"))
MD1 = bs.Scenario(bs.Poisson(1), ONE_BY_ONE, ONE_MS)
BATCHES = bs.Scenario(bs.Poisson(1), bs.SizeOrWait(32, 0), bs.Affine(5, 0.25))
WAITING = BATCHES.replace(max_wait_ms=10)


def crossing_per_s(latency_ms, limit_ms, top_per_s):
    return brentq(lambda rate: latency_ms(rate) - limit_ms, 0.01 * top_per_s, 0.999 * top_per_s)


def loss_of_m_m_1_n(load, room):
    """Erlang's formula for one server and `room` requests in all."""
    return (1 - load) * load**room / (1 - load ** (room + 1))


# Oracles: where theory knows the latency at every rate, the highest rate follows.


CASES = {
    # The latency of M/M/1 is exponential with rate mu - lambda.
    "M/M/1, p99": (MM1, SLO(p99_ms=20), 1000 - math.log(100) / 0.020),
    "M/M/1, p50": (MM1, SLO(p50_ms=3), 1000 - math.log(2) / 0.003),
    "M/M/1, mean": (MM1, SLO(mean_ms=4), 1000 - 1 / 0.004),
    "M/M/1, attainment": (MM1, SLO(within_ms=10, attainment=0.98), 1000 - math.log(50) / 0.010),
    "M/M/1, the tighter of two": (MM1, SLO(p50_ms=50, p95_ms=12), 1000 - math.log(20) / 0.012),
    # Pollaczek and Khinchine: 1 + load / (2 (1 - load)) ms.
    "M/D/1, mean": (MD1, SLO(mean_ms=2), 1000 * 2 / 3),
    "M/D/1, p99": (
        MD1,
        SLO(p99_ms=8),
        crossing_per_s(lambda rate: theory.md1(rate, 1.0).percentile(99), 8, 1000),
    ),
    "M/M/2, p95": (
        MM1.replace(servers=2),
        SLO(p95_ms=6),
        crossing_per_s(lambda rate: theory.mmc(rate, 1.0, 2).percentile(95), 6, 2000),
    ),
    "batches, p95": (
        BATCHES,
        SLO(p95_ms=20),
        crossing_per_s(
            lambda rate: theory.expected(BATCHES.replace(rate_per_s=rate)).percentile(95), 20, 2461
        ),
    ),
    "M/M/1/11, loss": (
        MM1.replace(queue_limit=10),
        SLO(max_loss=0.01),
        1000 * brentq(lambda load: loss_of_m_m_1_n(load, 11) - 0.01, 0.01, 0.99),
    ),
}


@pytest.mark.parametrize(("scenario", "slo", "truth_per_s"), CASES.values(), ids=CASES)
def test_the_capacity_is_theory_s(scenario, slo, truth_per_s):
    found = capacity(scenario, slo, requests=60_000)
    assert found.rate_per_s == pytest.approx(truth_per_s, rel=0.04)
    assert found.low_per_s < truth_per_s < found.high_per_s


def test_the_bracket_holds_the_true_rate_of_most_seeds():
    # Both of its ends are of 95 % intervals: of 20 independent ones 19 or more hold the truth on average.
    truth_per_s = 1000 - math.log(20) / 0.010
    found = [capacity(MM1, SLO(p95_ms=10), seed, requests=20_000) for seed in range(20)]
    assert sum(each.low_per_s < truth_per_s < each.high_per_s for each in found) >= 17


@pytest.mark.parametrize(
    ("slo", "truth_per_s", "seed"),
    [(SLO(p99_ms=30), 1000 - math.log(100) / 0.030, 32), (SLO(mean_ms=8), 1000 - 1 / 0.008, 41)],
    ids=["p99", "mean"],
)
def test_the_kindest_of_eighty_seeds_proves_no_rate_that_is_too_high(slo, truth_per_s, seed):
    # At 99 % a rate, these seeds of the first eighty called a rate met that is 0.2 and 0.4 % too high.
    assert capacity(MM1, slo, seed).low_per_s < truth_per_s


def test_as_many_rates_are_tried_as_the_level_of_each_is_made_for():
    for scenario, slo in ((MM1, SLO(p99_ms=30)), (MM1, SLO(mean_ms=8)), (WAITING, SLO(p99_ms=20))):
        assert len(capacity(scenario, slo, requests=20_000).probes) <= 1.2 * TRIED


def test_full_batches_of_clockwork_need_a_rate_at_which_they_fill():
    # The first of four waits 3 gaps and then computes 6 ms; within 36 ms that is from 100/s on.
    scenario = bs.Scenario(bs.Constant(1), bs.SizeOrWait(4, math.inf), bs.Affine(5, 0.25))
    found = capacity(scenario, SLO(p99_ms=36), requests=20_000)
    assert [probe.holds for probe in found.probes if probe.rate_per_s < 90] == [False] * 4
    assert "saturation" in found.limited_by
    assert "666.7/s" in found.limited_by
    assert 0.98 * 4 / 0.006 < found.rate_per_s < 4 / 0.006


# What the answer is.


@pytest.fixture(scope="module")
def waiting():
    return capacity(WAITING, SLO(p99_ms=20), requests=50_000)


def test_the_edges_are_in_order_and_no_further_apart_than_the_runs_tell(waiting):
    assert 0 < waiting.low_per_s <= waiting.rate_per_s <= waiting.high_per_s < WAITING.saturation_per_s
    assert waiting.met


@pytest.mark.parametrize(("end", "side"), [("low_per_s", "met"), ("high_per_s", "missed")])
def test_a_run_at_an_end_of_the_bracket_is_surely_on_its_side(waiting, end, side):
    run = bs.simulate(WAITING.replace(rate_per_s=getattr(waiting, end)), 50_000, warmup=0.1)
    expected = Verdict.MEETS if side == "met" else Verdict.FAILS
    assert judge(run, SLO(p99_ms=20)).verdict is expected


def test_the_estimate_crosses_the_limit_within_the_tolerance(waiting):
    p99 = [
        bs.simulate(WAITING.replace(rate_per_s=rate), 50_000, warmup=0.1).percentile(99)
        for rate in (waiting.rate_per_s, waiting.rate_per_s * 1.011)
    ]
    assert p99[0] <= 20 * (1 + 1e-9) < p99[1]  # a wait and a batch of 20 ms together, but for rounding


def test_the_frame_has_a_row_a_rate(waiting):
    frame = waiting.to_frame()
    assert frame["rate_per_s"].is_monotonic_increasing
    assert list(frame) == ["rate_per_s", "requests", "verdict", "p99_ms", "p99_ms_low", "p99_ms_high"]
    assert len(frame) == len(waiting.probes)
    assert waiting.requests_simulated == frame["requests"].sum()


def test_one_seed_gives_one_answer(waiting):
    again = capacity(WAITING, SLO(p99_ms=20), requests=50_000)
    assert repr(again) == repr(waiting)
    assert again.to_frame().equals(waiting.to_frame())
    assert repr(capacity(WAITING, SLO(p99_ms=20), seed=1, requests=50_000)) != repr(waiting)


def test_the_workload_s_own_rate_does_not_matter(waiting):
    again = capacity(WAITING.replace(rate_per_s=500), SLO(p99_ms=20), requests=50_000)
    assert again.rate_per_s == waiting.rate_per_s


@settings(max_examples=6)
@given(limit_ms=st.floats(16, 40), looser=st.floats(1, 2))
def test_a_looser_objective_has_no_lower_capacity(limit_ms, looser):
    tight, loose = (
        capacity(WAITING, SLO(p95_ms=ms), requests=8_000).rate_per_s for ms in (limit_ms, limit_ms * looser)
    )
    assert tight <= loose * 1.01


def test_a_wait_that_breaks_the_objective_at_low_rates_is_noticed():
    # Alone, a request waits 10 ms and computes 5.25.
    rule = bs.SizeOrWait(8, 10)
    found = capacity(bs.Scenario(bs.Poisson(1), rule, bs.Affine(5, 0.25)), SLO(mean_ms=12.5), requests=20_000)
    lowest, *_ = found.probes
    assert not lowest.holds
    for rate, inside in ((lowest.rate_per_s, False), (found.low_per_s, True), (found.rate_per_s, True)):
        run = bs.simulate(found.scenario.replace(rate_per_s=rate), 20_000, warmup=0.1)
        assert (run.mean_latency_ms <= 12.5) is inside


def test_an_objective_below_the_service_time_has_no_rate():
    found = capacity(BATCHES, SLO(p50_ms=5), requests=20_000)
    assert not found.met
    assert found.rate_per_s == 0
    assert math.isnan(found.low_per_s)
    assert math.isnan(found.high_per_s)
    assert found.limited_by.startswith("at best p50 5.25 ms")
    assert repr(found).startswith("Capacity: no rate has p50 at most 5 ms; at best")


def test_a_range_of_rates_between_those_looked_at_first_is_found():
    # Within 12.2 ms on average only where batches of 8 fill before the wait is over, and the server keeps up.
    scenario = bs.Scenario(bs.Poisson(1), bs.SizeOrWait(8, 10), bs.Affine(5, 0.25))
    curve = [
        bs.simulate(scenario.replace(rate_per_s=rate), 20_000, warmup=0.1).mean_latency_ms
        for rate in np.arange(500, 1000, 10)
    ]
    found = capacity(scenario, SLO(mean_ms=min(curve) * 1.0005), requests=20_000)
    assert found.met
    below = max(
        probe.rate_per_s for probe in found.probes if not probe.holds and probe.rate_per_s < found.rate_per_s
    )
    assert found.rate_per_s / below < 1.2


def test_rates_with_too_few_requests_for_a_throughput_do_not_hold():
    found = capacity(BATCHES, SLO(p99_ms=20, min_throughput_per_s=300), requests=20_000)
    assert found.met
    assert all(probe.holds == (300 <= probe.rate_per_s <= found.rate_per_s) for probe in found.probes)


@pytest.mark.parametrize("name", ["lowest_per_s", "lowest_by"])
def test_the_lower_edge_says_what_to_use_instead(waiting, name):
    with pytest.raises(AttributeError, match=f"no attribute '{name}'; it was removed: `probes` has"):
        getattr(waiting, name)


def test_runs_at_very_low_rates_end_before_the_longest_time():
    slow = MM1.replace(service=bs.Affine(2000, 0).with_noise(1, "exponential"))
    found = capacity(slow, SLO(p99_ms=50_000))
    assert found.low_per_s < 0.5 - math.log(100) / 50 < found.high_per_s
    first, *_, last = (probe for probe in found.probes if probe.requests)
    assert first.requests / first.rate_per_s < 2**22
    assert first.requests < 2000
    assert last.requests >= 5000


@pytest.mark.parametrize("requests", [1, 100, 400])
def test_what_is_not_known_is_not_said(requests):
    found = capacity(BATCHES, SLO(p99_ms=20), requests=requests)
    assert math.isnan(found.low_per_s)
    assert "unknown" not in repr(found)
    assert "met at" not in repr(found)


def test_rounding_does_not_break_an_objective_that_is_met_to_the_millisecond():
    # Every request waits 10 ms and computes 6: 16 ms, or 16.000000000000014 as floats go.
    scenario = bs.Scenario(bs.Constant(1), bs.SizeOrWait(32, 10), bs.Affine(6, 0))
    found = capacity(scenario, SLO(p99_ms=16), requests=20_000)
    assert all(probe.holds for probe in found.probes if probe.rate_per_s <= 50)
    assert found.rate_per_s > 50


def test_a_trace_is_taken_as_it_is():
    # Its load doubles half way: no interval is to be had, but each run has its number.
    gaps_s = np.random.default_rng(3).exponential(np.repeat([1 / 400, 1 / 800], 10_000))
    scenario = bs.Scenario(bs.Trace(np.cumsum(gaps_s)), bs.SizeOrWait(32, 0), bs.Affine(5, 0.25))
    found = capacity(scenario, SLO(p99_ms=20))
    met, missed = (
        bs.simulate(scenario.replace(rate_per_s=rate)).percentile(99)
        for rate in (found.low_per_s, found.high_per_s)
    )
    assert met <= 20 < missed
    assert found.probes[0].requests == 20_000


# Bad input.


def test_the_bracket_begins_above_every_rate_that_misses(monkeypatch):
    def probe(scenario, slo, seed, requests, rate_per_s):
        load = rate_per_s / scenario.saturation_per_s
        meets = load < 0.2 or 0.3 < load < 0.5
        holds = meets or 0.6 < load < 0.8  # there, the run cannot tell
        judgement = SimpleNamespace(meets=meets)
        return SimpleNamespace(
            rate_per_s=rate_per_s, requests=1, holds=holds, fails=not holds, judgement=judgement
        ), 1

    monkeypatch.setattr("batchsim.study.capacity.probed", probe)
    found = capacity(MD1, SLO(p99_ms=5))
    assert found.rate_per_s == pytest.approx(0.8 * MD1.saturation_per_s, rel=0.01)
    assert math.isnan(found.low_per_s)


CLOSED = bs.Scenario(bs.ClosedLoop(4), ONE_BY_ONE, ONE_MS)


@refusals
def test_capacity_refuses():
    """
    capacity(CLOSED, SLO(p99_ms=5)) -> the workload must be open, ..., got ClosedLoop
    capacity(MD1, 50) -> TypeError: slo must be an SLO, as SLO(p99_ms=50), got 50
    capacity("MD1", SLO(p99_ms=5)) -> TypeError: scenario must be a Scenario, got 'MD1'
    capacity(MD1, SLO(min_throughput_per_s=5)) -> a latency or a loss, which limits the rate
    capacity(MD1.replace(timeout_ms=5), SLO(mean_ms=5))
        -> with a timeout_ms needs max_loss or a percentile too
    capacity(MD1, SLO(p99_ms=5), requests=0) -> requests must be at least 1, got 0
    capacity(MD1, SLO(p99_ms=5), seed=-1) -> seed must be at least 0, got -1
    capacity(MD1, SLO(p99_ms=5), tolerance=0) -> tolerance must be at least 0.0001, got 0
    capacity(MD1.replace(workload=bs.Trace([0, 1, 2])), SLO(p99_ms=5), requests=4)
        -> requests must be at most the trace's 3, got 4
    capacity(MD1.replace(workload=bs.Trace([1.0, 1.0])), SLO(p99_ms=5))
        -> a Trace must span some time to be scaled
    capacity(MM1, SLO(p99_ms=20), requests=10**12) -> MemoryError: 1,000,000,000,000 requests need
    """


@given(inside=st.floats(1e-3, 1e3), truth=st.floats(1, 100), tolerance=st.floats(1e-3, 0.5))
def test_an_edge_is_found_within_the_tolerance(inside, truth, tolerance):
    at = inside * truth
    left, right = edge(inside, inside * 100.001, lambda value: value <= at, tolerance)
    assert left <= at <= right <= left * (1 + tolerance) * (1 + 1e-12)
    right, left = edge(inside * 100.001, inside * 0.99, lambda value: value > at, tolerance)
    assert left <= at <= right <= left * (1 + tolerance) * (1 + 1e-12)


# Autoscalers.

AUTO = bs.Autoscale("queue", target=4, least=1, most=4, startup_s=0.05, every_s=0.05)
SCALED = bs.Scenario(bs.Poisson(900), bs.SizeOrWait(8, 2), bs.Affine(2, 0.25), autoscale=AUTO)
ENGINES = bs.Scenario(
    bs.Poisson(9), bs.Continuous(4, 64, chunked=False), bs.StepTime(4, 4, 0.05), tokens=bs.Tokens(40, 10),
    autoscale=replace(AUTO, signal="utilisation", target=0.7, most=2, startup_s=0.0, every_s=4.0),
)  # fmt: skip


def test_an_autoscaler_of_a_fixed_number_has_the_capacity_of_so_many_replicas():
    fixed = SCALED.replace(autoscale=replace(AUTO, least=3, most=3))
    three = SCALED.replace(autoscale=None, replicas=3)
    found, expected = (capacity(each, SLO(p99_ms=12), requests=3000) for each in (fixed, three))
    assert found.rate_per_s == pytest.approx(expected.rate_per_s, rel=0.011)
    assert expected.rate_per_s < 6000


@pytest.mark.parametrize(("scenario", "slo"), [(SCALED, SLO(p99_ms=20)), (ENGINES, SLO(ttft_p99_ms=60))])
def test_the_capacity_of_an_autoscaled_scenario_is_one_that_its_most_replicas_carry(scenario, slo):
    found = capacity(scenario, slo, requests=2000, tolerance=0.05)
    assert 0.1 * scenario.saturation_per_s < found.rate_per_s < scenario.saturation_per_s
    for rate_per_s, met in ((0.9 * found.rate_per_s, True), (1.3 * found.rate_per_s, False)):
        at = scenario.replace(rate_per_s=rate_per_s)
        assert (judge(bs.simulate(at, 20_000, seed=5, warmup=0.1), slo).excess <= 1) == met


def test_a_run_that_ends_before_the_autoscaler_acts_shows_no_capacity():
    slow = SCALED.replace(autoscale=bs.Autoscale(most=4))
    found = capacity(slow, SLO(p99_ms=20))
    assert math.isnan(found.rate_per_s)
    assert found.probes == ()
    assert "reacts within 45 s takes requests=3600000 at 8,000/s, got 100000" in repr(found)


@pytest.mark.parametrize(
    ("scenario", "slo", "over", "met"),
    [
        (SCALED, SLO(p99_ms=60), {"max_batch_size": [4, 8]}, True),
        (SCALED, SLO(p99_ms=3), {"max_batch_size": [4, 8]}, False),
        (SCALED.replace(rate_per_s=9000), SLO(p99_ms=60), {"max_batch_size": [4, 8]}, False),
        (ENGINES, SLO(ttft_p99_ms=500), {"max_num_seqs": [2, 4]}, True),
        (ENGINES.replace(rate_per_s=150), SLO(ttft_p99_ms=25), {"max_num_seqs": [2, 4]}, False),
    ],
)
def test_autoscaled_scenarios_are_tuned_whether_or_not_the_objective_is_met(scenario, slo, over, met):
    found = bs.tune(scenario, slo, over, requests=600, progress=False)
    assert not (found.met and not met)
    assert found.met or found.remedies
    assert found.explain()


def test_the_capacity_of_a_trace_is_said_as_a_part_of_its_traffic():
    traced = WAITING.replace(workload=bs.Trace([each / 100 for each in range(20_000)]))
    found = capacity(traced, SLO(p99_ms=20))
    assert f"{found.rate_per_s / 100:.3g} times the traffic of the trace" in repr(found)
