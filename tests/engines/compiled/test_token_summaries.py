"""keep="summary" of token generation: the kept run's numbers, in windows of any size."""

import numpy as np
import pytest
from oracles.agreement import assert_summaries_close

import batchsim as bs
from batchsim.engines.compiled import token_summaries
from batchsim.engines.draws import Streams
from batchsim.engines.token_log import TokenLog
from batchsim.result.token_run import TokenRun

REAL = bs.StepTime(6.88, 9.997, 0.09631, 1.922e-4, 1.225e-6)
SCENARIO = bs.Scenario(
    bs.Poisson(15), bs.Continuous(32, 512, kv_blocks=150), REAL.with_noise(0.1),
    tokens=bs.Tokens(bs.Lognormal(200, 1, at_most=1000), bs.Geometric(20)),
)  # fmt: skip


def summarised(scenario, requests, seed, chunk, warmup=0.0):
    streams, skip = Streams(scenario, seed), int(warmup * requests)
    sums = token_summaries.summarise(scenario, requests, streams, skip, chunk)
    return TokenRun(scenario, sums=sums, warmup=warmup).metrics.summary(drifting=False)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"servers": 2, "rate_per_s": 30},
        {"rule": bs.SizeOrWait(8, 100), "timeout_ms": 3000},
        {"workload": bs.ClosedLoop(60, 0.5), "queue_limit": 5},
    ],
    ids=["plain", "two engines", "whole", "clients"],
)
def test_a_summary_is_that_of_the_kept_run(changes):
    scenario = SCENARIO.replace(changes)
    kept = bs.simulate(scenario, 3000, seed=1, warmup=0.1)
    summary = bs.simulate(scenario, 3000, seed=1, warmup=0.1, keep="summary")
    assert_summaries_close(summary.summary(), kept.summary())
    assert_summaries_close(summarised(scenario, 3000, 1, chunk=90, warmup=0.1), kept.summary())


@pytest.mark.parametrize(("servers", "cv"), [(1, 0.2), (3, 3.0)])
def test_no_wait_is_queueing_while_an_engine_is_idle(servers, cv):
    rule = bs.SizeOrWait(64, 137.0)
    scenario = SCENARIO.replace(workload=bs.Gamma(0.05, cv), rule=rule, servers=servers)
    summary = bs.simulate(scenario, 300, keep="summary").summary()
    assert summary["mean_queueing_ms"] == 0.0
    assert summary["mean_forming_ms"] == pytest.approx(bs.simulate(scenario, 300).forming_ms.mean())


def test_it_keeps_no_columns_and_replications_give_intervals():
    result = bs.simulate(SCENARIO, 1000, keep="summary")
    for name in ("ttft_ms", "steps", "preemptions", "prefill_ms"):
        with pytest.raises(ValueError, match="columns must be kept"):
            getattr(result, name)
    several = bs.simulate(SCENARIO, 2500, keep="summary", replications=4)
    kept = bs.simulate(SCENARIO, 2500, replications=4)
    for key in ("mean_ttft_ms", "mean_tpot_ms", "output_tokens_per_s"):
        assert several.interval(key) == pytest.approx(kept.interval(key), rel=1e-6)


def test_memory_does_not_grow_with_the_run():
    windows = token_summaries._windows(SCENARIO, 20_000, Streams(SCENARIO, 0), 500, None)
    assert max(window.requests.prompt.size for window in windows) < 1500


def test_a_request_that_never_fits_is_refused_before_the_run():
    tight = SCENARIO.replace(kv_blocks=40, tokens=bs.Tokens.sample([(100, 5)] * 999 + [(700, 5)]))
    for keep in ("all", "summary"):
        with pytest.raises(ValueError, match="704 tokens, 44 blocks, of request 999"):
            bs.simulate(tight, 1000, keep=keep)
    uncut = SCENARIO.replace(chunked=False, kv_blocks=None, tokens=tight.tokens)
    with pytest.raises(ValueError, match="700 tokens of request 999"):
        summarised(uncut, 1000, 0, chunk=64)


def test_a_summary_is_saved_and_loaded(tmp_path):
    result = bs.simulate(SCENARIO, 500, keep="summary", warmup=0.1)
    result.save(tmp_path / "run.npz")
    loaded = bs.Result.load(tmp_path / "run.npz")
    assert repr(loaded.summary()) == repr(result.summary())
    arrays = dict(np.load(tmp_path / "run.npz"))
    arrays["0/TokenHistograms/ttft_ms"][0] += 1
    np.savez(tmp_path / "edited.npz", **arrays)
    with pytest.raises(ValueError, match="counts of ttft_ms must add up to 450, got 451"):
        bs.Result.load(tmp_path / "edited.npz")
    assert TokenLog.__name__ not in str(sorted(arrays))
