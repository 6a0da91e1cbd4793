"""What a request takes alone: no run is faster, and an objective below it is known without one."""

import dataclasses
import re

import numpy as np
import pytest
from hypothesis import assume, given, settings
from oracles.token_plans import token_plans

import batchsim as bs
from batchsim.engines.compiled import token_engine
from batchsim.result.token_run import TokenRun
from batchsim.study.judgement import out_of_reach
from batchsim.study.tokens import alone_ms, first_unserved

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
        assert (run.measured[name][known] >= least_ms[known] * (1 - 1e-9)).all()


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
    best = bs.tune(LIGHT, bs.SLO(**limits), GRID)
    assert not best.met
    assert best.requests_simulated <= 20_000
    assert (best.candidates.requests <= 20_000).all()
    assert best.explain().startswith("No setting can meet the objective: ")
    assert re.search(words, best.out_of_reach)
    found = bs.capacity(LIGHT, bs.SLO(**limits))
    assert (found.met, found.requests_simulated) == (False, 0)


def test_nothing_is_out_of_reach_with_noise_or_above_what_one_takes_alone():
    assert out_of_reach(LIGHT, bs.SLO(ttft_p99_ms=400, tpot_p99_ms=30)) is None
    noisy = dataclasses.replace(LIGHT, service=LIGHT.service.with_noise(0.1))
    assert out_of_reach(noisy, bs.SLO(ttft_p99_ms=40)) is None


def test_longer_runs_end_before_a_request_that_can_never_be_served():
    from batchsim.engines.draws import Streams
    from batchsim.study.traffic import Traffic

    scenario = LIGHT.replace(kv_blocks=190)
    prompts, outputs, _ = Streams(scenario, 0).lengths()(50_000)
    first = int(np.argmax(prompts + outputs - 1 > 190 * 16))
    assert first > 0
    most = first_unserved([scenario, LIGHT], Streams(scenario, 0), 50_000)
    assert most == first
    assert Traffic(scenario, 10, 0, most).resized(10**6).requests == first
    assert first_unserved([LIGHT], Streams(LIGHT, 0), 1000) == np.inf
