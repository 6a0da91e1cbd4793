"""Objectives, sweeps, comparisons, capacities and recommendations of token generation."""

import dataclasses
import math
import re

import numpy as np
import pytest
from hypothesis import assume, given, settings
from oracles.token_plans import token_plans
from refusals import refusals

import batchsim as bs
from batchsim.engines.compiled import token_engine
from batchsim.engines.draws import Streams
from batchsim.result.metrics import OF_FLEETS, TOKENS, metric
from batchsim.result.run_length import run_length
from batchsim.result.shares import percentile_metric
from batchsim.result.token_run import TokenRun
from batchsim.study.capacity import capacity
from batchsim.study.judgement import Verdict, judge, out_of_reach, percentile, share_within
from batchsim.study.search import Traffic
from batchsim.study.slo import SLO
from batchsim.study.surface import surface
from batchsim.study.sweep import columns_of, sweep
from batchsim.study.tokens import alone_ms, first_unserved
from batchsim.study.tune import tune

REAL = bs.StepTime(6.88, 9.997, 0.09631, 1.922e-4, 1.225e-6)
LENGTHS = bs.Tokens(bs.Lognormal(200, 1, at_most=1000), bs.Geometric(20))
SCENARIO = bs.Scenario(bs.Poisson(12), bs.Continuous(32, 512, kv_blocks=300), REAL, tokens=LENGTHS)
PLAIN = bs.Scenario(bs.Poisson(800), bs.SizeOrWait(32, 10), bs.Affine(5, 0.25))
# A request of one token on one seat is a batch of one: M/D/1.
ONE_BY_ONE = bs.Scenario(bs.Poisson(800), bs.Continuous(1), bs.StepTime(1, 0, 0), tokens=bs.Tokens(1, 1))
MD1 = bs.Scenario(bs.Poisson(800), bs.SizeOrWait(1, 0), bs.Affine(1, 0))


# Objectives.


def test_limits_on_tokens_are_objectives_after_those_on_latencies():
    slo = SLO(p99_ms=900, ttft_p50_ms=100, ttft_p99_ms=500, tpot_p99_ms=50, max_loss=0.1)
    assert [(each.key, each.limit, each.q, each.column) for each in slo.objectives] == [
        ("p99_ms", 900, 99, "latency_ms"),
        ("ttft_p50_ms", 100, 50, "ttft_ms"),
        ("ttft_p99_ms", 500, 99, "ttft_ms"),
        ("tpot_p99_ms", 50, 99, "tpot_ms"),
        ("loss", 0.1, None, "latency_ms"),
    ]
    assert eval(repr(slo)) == slo
    assert slo.latency.key == "p99_ms"
    assert dataclasses.replace(slo, p99_ms=None).latency.key == "ttft_p99_ms"
    assert SLO(tpot_p95_ms=9, mean_ms=5).latency.key == "tpot_p95_ms"
    assert percentile_metric(99.95, "tpot_ms").key == "tpot_p99.95_ms"


@refusals
def test_a_limit_that_is_none_is_refused():
    """
    SLO(ttft_p99_ms=0) -> ttft_p99_ms must be greater than 0, got 0
    SLO(tpot_p99_ms=math.nan) -> tpot_p99_ms must be a number, got nan
    SLO(tpot_p50_ms="5") -> TypeError: tpot_p50_ms must be a number, got '5'
    """


@pytest.mark.parametrize(
    "use",
    [
        lambda slo: capacity(PLAIN, slo),
        lambda slo: tune(PLAIN, slo, {"max_batch_size": [1, 2]}),
        lambda slo: judge(bs.simulate(PLAIN, 1000), slo),
    ],
)
def test_a_scenario_without_tokens_has_no_such_objective(use):
    with pytest.raises(ValueError, match="tpot_p99_ms needs a scenario with tokens"):
        use(SLO(p99_ms=5, tpot_p99_ms=50))


def test_a_run_is_judged_by_its_first_tokens():
    run = bs.simulate(SCENARIO, 20_000, warmup=0.1)
    ttft_ms, tpot_ms = (run.percentile(99, column=name) for name in ("ttft_ms", "tpot_ms"))
    for factor, verdict in ((0.5, Verdict.FAILS), (1.0, Verdict.UNCLEAR), (2.0, Verdict.MEETS)):
        judgement = judge(run, SLO(ttft_p99_ms=factor * ttft_ms, tpot_p99_ms=3 * tpot_ms))
        assert judgement.verdict is verdict
        assert [each.value for each in judgement.estimates.values()] == [ttft_ms, tpot_ms]
        assert judgement.excess == pytest.approx(1 / factor)


def test_a_request_that_is_lost_has_an_infinite_ttft_and_tpot():
    lossy = SCENARIO.replace(rate_per_s=60, timeout_ms=400)
    run = bs.simulate(lossy, 5000)
    lost = (run.status != bs.Status.SERVED).mean()
    assert 0.1 < lost < 0.9
    for column in ("ttft_ms", "tpot_ms"):
        assert percentile(run, 99, column=column).value == math.inf
        values = np.where(run.status == bs.Status.SERVED, getattr(run, column), math.inf)
        values = np.sort(values[~np.isnan(values)])  # an answer of one token has no TPOT
        q = 40 * (1 - lost)
        # NumPy cannot interpolate beside infinities.
        expected = np.percentile(
            values[values < math.inf], 100 * q / 100 * (values.size - 1) / ((values < math.inf).sum() - 1)
        )
        assert percentile(run, q, column=column).value == pytest.approx(expected)
        limit_ms = float(np.median(values[values < math.inf]))
        share = share_within(run, limit_ms, column=column)
        assert share.value == (values <= limit_ms * (1 + 1e-9)).mean()
        assert share.low < share.value < share.high
    assert judge(run, SLO(ttft_p99_ms=1e6)).verdict is Verdict.FAILS


# Sweeps and comparisons.


def test_a_sweep_of_tokens_has_their_numbers_and_intervals():
    over = {
        "rate_per_s": [8, 14],
        "max_num_seqs": [4, 32],
        "max_num_batched_tokens": [256],
        "kv_blocks": [100, 300],
    }
    table = sweep(SCENARIO, over, 3000, progress=False)
    assert [*table] == [*over, *columns_of(SCENARIO, over), "infeasible"]
    for _, row in table.iterrows():
        run = bs.simulate(SCENARIO.replace({knob: int(row[knob]) for knob in over}), 3000)
        summary = run.summary()
        assert all(row[key] == summary[key] for key in {*TOKENS} - {*OF_FLEETS})
        low, high = run.intervals(["mean_tpot_ms"])["mean_tpot_ms"]
        assert [row.mean_tpot_ms_low, row.mean_tpot_ms_high] == pytest.approx([low, high], nan_ok=True)
    assert table.mean_tpot_ms_low.notna().any()
    assert [*sweep(PLAIN, {"max_wait_ms": [1]}, 500, progress=False)] == [
        "max_wait_ms",
        *columns_of(PLAIN, []),
        "infeasible",
    ]


def test_a_point_that_can_never_serve_a_request_says_why(tmp_path):
    over = {"kv_blocks": [20, 300]}
    table = sweep(SCENARIO, over, 500, progress=False, out=tmp_path / "sweep")
    assert "20 blocks of a server, got" in table.infeasible[0]
    assert table[[*TOKENS]].isna().all(axis=1).tolist() == [True, False]
    again = sweep(SCENARIO, over, 500, progress=False, out=tmp_path / "sweep")
    assert again.equals(table)


def test_two_runs_of_tokens_are_compared_by_ttft_and_tpot_too():
    a, b = (bs.simulate(SCENARIO.replace(max_num_batched_tokens=tokens), 8000) for tokens in (512, 128))
    rows = bs.compare(a, b, silent=True)
    assert rows["mean_ttft_ms"].low > 0  # smaller chunks: later first tokens, and shorter steps
    assert rows["tpot_p99"].high < 0
    assert rows["tpot_p99"].difference == b.summary()["tpot_p99_ms"] - a.summary()["tpot_p99_ms"]
    assert bs.compare(a, b, "ttft_p90", silent=True)["ttft_p90"].a == a.percentile(90, column="ttft_ms")
    plain = bs.simulate(PLAIN, 8000)
    assert "mean_ttft_ms" not in bs.compare(plain, plain).rows
    for other in (plain, a):
        with pytest.raises(ValueError, match="tokens are needed"):
            bs.compare(plain, other, "mean_ttft_ms")


# How long a run must be.


def test_one_token_on_one_seat_forgets_as_slowly_as_a_batch_of_one():
    for load in (0.3, 0.8, 0.99):
        one, other = (run_length(each.replace(rate_per_s=1000 * load)) for each in (ONE_BY_ONE, MD1))
        assert one.relaxation == other.relaxation


def test_runs_are_the_longer_the_more_lengths_vary_and_the_more_run_at_once():
    fixed, plain, heavy, busy = (
        run_length(SCENARIO.replace(changes)).needed(metric("mean_ttft_ms"))
        for changes in (
            {"tokens": bs.Tokens(200, 20)},
            {},
            {"tokens": bs.Tokens(bs.Lognormal(200, 3), bs.Geometric(20))},
            {"rate_per_s": 30},
        )
    )
    assert fixed < plain < min(heavy, busy)
    # Thousands run at once, and nobody waits: a run has to see them come and go.
    crowd = bs.Scenario(
        bs.Poisson(5000), bs.Continuous(10**6, 10**6), bs.StepTime(10, 0, 0), tokens=bs.Tokens(1, 100)
    )
    assert run_length(crowd).relaxation == pytest.approx(5000, rel=0.01)
    assert run_length(SCENARIO.replace(rate_per_s=500)).relaxation == math.inf
    assert run_length(SCENARIO.replace(workload=bs.ClosedLoop(8))).cycle == 400


def test_an_overloaded_run_has_no_interval_of_its_ttft():
    run = bs.simulate(SCENARIO.replace(rate_per_s=80), 2000)
    with pytest.warns(UserWarning, match="needs a queue that stays finite, got load 2"):
        assert all(map(math.isnan, run.interval("ttft_p99")))


# Capacity and the best setting.


def test_the_capacity_of_one_seat_is_that_of_a_batch_of_one():
    one = capacity(ONE_BY_ONE, SLO(ttft_p99_ms=6), requests=8000)
    other = capacity(MD1, SLO(p99_ms=6), requests=8000)
    assert one.rate_per_s == other.rate_per_s > 500
    assert [one.low_per_s, one.high_per_s] == pytest.approx([other.low_per_s, other.high_per_s], nan_ok=True)


def test_the_capacity_is_the_lower_of_two_limits():
    both = SLO(ttft_p99_ms=300, tpot_p99_ms=45)
    rates = [capacity(SCENARIO, slo, requests=4000, tolerance=0.03).rate_per_s for slo in (
        SLO(ttft_p99_ms=300), SLO(tpot_p99_ms=45), both
    )]  # fmt: skip
    assert rates[2] == pytest.approx(min(rates[:2]), rel=0.05)
    assert rates[0] != pytest.approx(rates[1], rel=0.05)
    assert "tpot_p99_ms" in capacity(SCENARIO, both, requests=2000, tolerance=0.3).to_frame()


@pytest.fixture(scope="module")
def best():
    over = {"max_num_seqs": [2, 16, 32], "max_num_batched_tokens": [64, 256, 1024], "kv_blocks": [40, 300]}
    return tune(SCENARIO, SLO(ttft_p99_ms=500, tpot_p99_ms=34), over, requests=20_000)


def test_a_setting_is_found_for_both_limits(best):
    assert best.met
    full = bs.simulate(best.scenario, 20_000, seed=1_000_000, warmup=0.1)
    for key, limit_ms in (("ttft_p99_ms", 500), ("tpot_p99_ms", 34)):
        assert best.expected[key].value == full.summary()[key]
        assert best.expected[key].high <= limit_ms
    # By the whole grid: no other that surely meets both is surely faster.
    for _, row in best.candidates.iterrows():
        if row.outcome in ("refused", "unstable"):
            continue
        other = bs.simulate(
            SCENARIO.replace({knob: int(row[knob]) for knob in best.knobs}), 20_000, 1_000_000, warmup=0.1
        )
        if judge(other, best.slo).meets:
            assert bs.compare(full, other, "ttft_p99", silent=True)["ttft_p99"].high >= 0


def test_a_setting_in_which_a_request_never_fits_is_refused(best):
    refused = best.candidates[best.candidates.kv_blocks == 40]
    assert refused.outcome.eq("refused").all()
    assert refused.why.str.contains("must fit into the memory, 40 blocks").all()
    assert {"mean_ttft_ms", "mean_tpot_ms", "preempted_share"} <= {*best.candidates}


def test_a_recommendation_is_explained_in_words_of_tokens(best):
    text = best.explain()
    assert all(word in text for word in ("TTFT p99", "TPOT p99", "rows on average", "are preempted"))
    assert re.search(r"The step budget (hardly )?matters at \S+: with more, a prompt needs fewer steps", text)
    assert "0% of the requests" not in text
    assert best.optimum is None
    assert "tokens" in best.no_optimum
    with pytest.raises(ValueError, match="over must not change the tokens"):
        tune(SCENARIO, SLO(ttft_p99_ms=500), {"tokens.prompt": [5, 9]}, requests=1000)


def test_what_would_help_is_a_faster_model():
    found = tune(SCENARIO, SLO(ttft_p99_ms=75), {"max_num_seqs": [32]}, requests=3000)
    assert not found.met
    (faster,) = [remedy for remedy in found.remedies if remedy.knob == "service"]
    assert 1.2 < faster.value < 5
    step = SCENARIO.service.scaled(1 / faster.value, 1)
    assert step.ms(100, 5, 7) == pytest.approx(SCENARIO.service.ms(100, 5, 7) / faster.value)


# The share of requests within several limits at once.


def test_an_attainment_of_tokens_is_the_share_within_all_its_limits():
    slo = SLO(ttft_ms=150, tpot_ms=25.5, within_ms=900, attainment=0.9)
    (objective,) = slo.objectives
    assert objective == ("within_latency_900_ttft_150_tpot_25.5", 0.9, None)
    assert (objective.at_most, objective.share, objective.sees_loss) == (False, 0.9, True)
    assert str(slo) == "share within latency 900 ms and TTFT 150 ms and TPOT 25.5 ms at least 90 %"
    assert eval(repr(slo)) == slo
    for run in (
        bs.simulate(SCENARIO, 9000, warmup=0.1),
        bs.simulate(SCENARIO.replace(rate_per_s=25, timeout_ms=60), 9000),
        bs.simulate(SCENARIO, 3000, replications=4, warmup=0.1),
    ):
        judgement = judge(run, slo)
        ((value, low, high),) = judgement.estimates.values()
        assert value == run.attainment(900, ttft_ms=150, tpot_ms=25.5)
        assert low < value < high
        for factor, verdict in ((0.5, Verdict.MEETS), (1.0, Verdict.UNCLEAR)):
            assert judge(run, dataclasses.replace(slo, attainment=factor * value)).verdict is verdict
    with pytest.raises(ValueError, match="need columns, got a run with keep='summary'"):
        judge(bs.simulate(SCENARIO, 3000, keep="summary"), slo)


def test_one_limit_is_the_percentile_said_otherwise():
    run = bs.simulate(SCENARIO, 9000, warmup=0.1)
    at_ms = run.percentile(90, column="ttft_ms")
    for factor, verdict in ((0.7, Verdict.FAILS), (1.4, Verdict.MEETS)):
        for slo in (
            SLO(ttft_ms=factor * at_ms, attainment=0.9),
            SLO(ttft_ms=factor * at_ms, tpot_ms=1e9, attainment=0.9),
        ):
            assert judge(run, slo).verdict is verdict


def test_the_goodput_is_a_capacity_and_a_setting_is_found_for_it():
    slo = SLO(ttft_ms=200, tpot_ms=30, attainment=0.9)
    found = capacity(SCENARIO, slo, requests=4000, tolerance=0.03)
    below, above = (
        bs.simulate(SCENARIO.replace(rate_per_s=found.rate_per_s * factor), 20_000, warmup=0.1)
        for factor in (0.85, 1.15)
    )
    assert below.attainment(ttft_ms=200, tpot_ms=30) > 0.9 > above.attainment(ttft_ms=200, tpot_ms=30)
    best = tune(SCENARIO, slo, {"max_num_seqs": [4, 32], "max_num_batched_tokens": [128, 512]}, requests=9000)
    assert best.met
    assert best.result.attainment(ttft_ms=200, tpot_ms=30) > 0.9
    assert "share within TTFT 200 ms and TPOT 30 ms" in best.explain()


@pytest.mark.parametrize(
    ("knobs", "words"),
    [
        ({"ttft_ms": 200}, "ttft_ms needs an attainment"),
        ({"tpot_ms": 20, "ttft_p99_ms": 5}, "tpot_ms needs an attainment"),
        ({"ttft_ms": 200, "attainment": 1.0}, "a fraction less than 1, got 1.0"),
        ({"ttft_ms": -2, "attainment": 0.9}, "ttft_ms must be greater than 0, got -2"),
    ],
)
def test_an_attainment_that_says_nothing_is_refused(knobs, words):
    with pytest.raises(ValueError, match=words):
        SLO(**knobs)
    with pytest.raises(ValueError, match=r"needs? a scenario with tokens"):
        capacity(PLAIN, SLO(ttft_ms=200, attainment=0.9))


def test_a_tpot_that_no_answer_has_has_no_interval():
    scenario = bs.Scenario(
        bs.Poisson(4), bs.Continuous(), bs.published("llama-3.1-8b/rtx-4090"), tokens=bs.Tokens(100, 1)
    )
    run = bs.simulate(scenario, 20_000)
    for key in ("tpot_p99_ms", "mean_tpot_ms"):
        assert "got none" in run.intervals([key])[key].reason


def test_a_map_tells_settings_with_other_captured_sizes_apart():
    """No run takes more than 14 seats, but 14 leave only 8 sizes captured, and 16 leave 16."""
    step = bs.StepTime(20, 1, 0.1, captured=(1, 2, 4, 8, 16), beyond_ms=45)
    tokens = bs.Tokens(2, bs.Geometric(30, at_most=60))
    scenario = bs.Scenario(bs.Poisson(6), bs.Continuous(16, 2048), step, tokens=tokens)
    seats, values = (14, 15, 16, 20), []
    found = surface(scenario, seats, [512, 2048], requests=300)
    for each in seats:
        run = bs.simulate(scenario.replace(max_num_seqs=each), 300)
        assert 8 < run.token_log.most_running <= 14
        values.append(run.percentile(99, column="ttft_ms"))
    assert found.ttft_p99_ms[1] == pytest.approx(values)
    assert values[0] == values[1] > values[2] == values[3]


# The time of a request alone, and objectives below it.

LIGHT = bs.Scenario(
    bs.Poisson(0.2), bs.Continuous(64, 2048), bs.StepTime(6.88, 9.997, 0.09631, 1.922e-4, 1.225e-6),
    tokens=bs.Tokens(bs.Lognormal(800, 1.2, at_most=3000), bs.Geometric(20)),
)  # fmt: skip
GRID = {"max_num_seqs": [8, 64], "max_num_batched_tokens": [512, 2048]}


@settings(max_examples=150)
@given(token_plans())
def test_no_request_of_any_run_is_faster_than_alone(plan):
    assume(plan.scenario.service.noise is None)
    run = TokenRun(plan.scenario, token_engine.run(plan))
    for name, least_ms in alone_ms(plan.scenario, plan.prompts, plan.outputs).items():
        known = ~np.isnan(run.measured[name])
        rounded_ms = 1e-6 * (1 + plan.outputs)  # each step ends at a nanosecond of the clock
        assert (run.measured[name] >= least_ms * (1 - 1e-9) - rounded_ms)[known].all()


def test_a_request_that_is_alone_takes_what_it_takes_alone():
    tokens = bs.Tokens(3000, 50)
    run = bs.simulate(LIGHT.replace(tokens=tokens, workload=bs.ClosedLoop(1, 0.0)), 5)
    least = alone_ms(LIGHT, run.prompt_tokens, run.output_tokens)
    assert run.ttft_ms == pytest.approx(least["ttft_ms"], rel=1e-4)
    assert run.tpot_ms == pytest.approx(least["tpot_ms"], rel=1e-4)


@pytest.mark.parametrize(
    ("limits", "words"),
    [
        ({"ttft_p99_ms": 40}, r"TTFT p99 is at least 3\d\d(\.\d)? ms"),
        ({"tpot_p50_ms": 5}, "TPOT p50 is at least 1[67]"),
        ({"mean_ms": 100}, "mean latency is at least"),
        ({"ttft_ms": 40, "attainment": 0.9}, "is at most"),
    ],
)
def test_an_objective_that_no_setting_can_meet_takes_no_full_run(limits, words):
    best = bs.tune(LIGHT, bs.SLO(**limits), GRID, requests=20_000)
    assert not best.met
    assert best.requests_simulated <= 20_000
    assert (best.candidates.requests <= 20_000).all()
    assert best.explain().startswith("No setting can meet the objective: ")
    assert re.search(words, best.out_of_reach)
    found = bs.capacity(LIGHT, bs.SLO(**limits))
    assert (found.met, found.requests_simulated) == (False, 0)


FIVE = bs.Scenario(
    bs.Poisson(20), bs.Continuous(8), bs.StepTime(5, 0, 0), tokens=bs.Tokens(10, bs.Uniform(1, 3))
)  # every step takes 5 ms, and so does every gap between tokens


@pytest.mark.parametrize("limit", ["itl_p99_ms", "stall_p99_ms", "tpot_p99_ms"])
def test_a_search_tells_whether_the_times_between_tokens_are_within_a_limit(limit):
    for ms in (4.9, 5.1):
        slo = bs.SLO(**{limit: ms})
        best = bs.tune(FIVE, slo, {"max_num_seqs": [4, 8]}, 4000, progress=False)
        assert best.met == (ms > 5)
        assert next(iter(best.judgement.estimates.values())).value == pytest.approx(5)
    assert bs.capacity(FIVE, slo, requests=1000).met


@pytest.mark.parametrize("limit", ["itl_p95_ms", "stall_p99_ms", "tpot_p50_ms"])
def test_answers_of_one_token_have_no_times_between_tokens_to_limit(limit):
    scenario = FIVE.replace(output=1)
    for search in (bs.capacity, lambda *args: bs.tune(*args, {"max_num_seqs": [4, 8]})):
        with pytest.raises(
            ValueError, match=rf"{limit} needs answers of several tokens, got Tokens\(prompt=10"
        ):
            search(scenario, bs.SLO(**{limit: 9}))


@pytest.mark.parametrize("output", [1, bs.Uniform(1, 1), bs.Uniform(1, 3)], ids=repr)
def test_an_answer_of_one_token_keeps_any_limit_on_tpot_in_a_search_too(output):
    scenario, slo = FIVE.replace(output=output), bs.SLO(tpot_ms=1, attainment=0.3)
    result = bs.simulate(scenario, 10_000)
    (estimate,) = judge(result, slo).estimates.values()
    assert estimate.value == result.attainment(tpot_ms=1) == (result.output_tokens == 1).mean()
    assert out_of_reach(scenario, slo) is None
    assert bs.capacity(scenario, slo, requests=5000).met
    assert bs.tune(scenario, slo, {"max_num_seqs": [4, 8]}, 20_000, progress=False).met


def test_nothing_is_out_of_reach_with_noise_or_above_what_one_takes_alone():
    assert out_of_reach(LIGHT, bs.SLO(ttft_p99_ms=400, tpot_p99_ms=30)) is None
    noisy = dataclasses.replace(LIGHT, service=LIGHT.service.with_noise(0.1))
    assert out_of_reach(noisy, bs.SLO(ttft_p99_ms=40)) is None


def test_longer_runs_end_before_a_request_that_can_never_be_served():
    scenario = LIGHT.replace(kv_blocks=190)
    prompts, outputs, _ = Streams(scenario, 0).lengths()(50_000)
    first = int(np.argmax(prompts + outputs - 1 > 190 * 16))
    assert first > 0
    most = first_unserved([scenario, LIGHT], Streams(scenario, 0), 50_000)
    assert most == first
    assert Traffic(scenario, 10, 0, most).resized(10**6).requests == first
    assert first_unserved([LIGHT], Streams(LIGHT, 0), 1000) == np.inf
