"""Runs of tokens whose steps do not fit in memory: everything but the steps is there, and is the same."""

import numpy as np
import pytest
from oracles.agreement import assert_requests_equal

import batchsim as bs
from batchsim.engines import estimates, folded_log
from batchsim.engines.folded_log import FoldedLog

SCENARIO = bs.Scenario(
    bs.Poisson(15), bs.Continuous(32, 512, kv_blocks=150), bs.StepTime(6.88, 9.997, 0.09631).with_noise(0.1),
    servers=2, tokens=bs.Tokens(bs.Lognormal(200, 1, at_most=1000), bs.Geometric(20)),
)  # fmt: skip


@pytest.fixture
def little_memory(monkeypatch):
    """Room for 5,000 steps in default calls, and for none in sweeps and searches."""
    monkeypatch.setattr(estimates, "DEFAULT_BYTES", 5000 * estimates.BYTES_A_STEP)
    for module in (estimates, folded_log):
        monkeypatch.setattr(module, "PIECE", 64)


def test_a_default_call_says_how_many_requests_would_keep_their_steps(little_memory, monkeypatch):
    monkeypatch.setitem(bs.simulate.__globals__, "DEFAULT_REQUESTS", 6000)
    with pytest.warns(UserWarning, match=r"result\.steps has no rows.*requests=\d+ keeps") as caught:
        result = bs.simulate(SCENARIO)
    assert "\n" not in str(caught[0].message)
    with pytest.raises(ValueError, match="steps must be kept to be read"):
        _ = result.steps
    with pytest.raises(ValueError, match="steps must be kept"):
        _ = result.batches
    with pytest.raises(ValueError, match="steps must be kept"):
        bs.plot(result)
    whole = bs.simulate(SCENARIO, 6000)
    assert_requests_equal(result, whole)
    for name, value in whole.summary().items():  # a folded log has percentiles of gaps to 0.1 %
        assert result.summary()[name] == pytest.approx(value, rel=1e-3 if "itl_p" in name else 1e-12), name
    assert result.interval("ttft_p50") == pytest.approx(whole.interval("ttft_p50"), rel=1e-9)
    assert (result.to_frame()["server"] == whole.to_frame()["server"]).all()
    fewer = int(str(caught[0].message).partition("requests=")[2].split()[0])
    monkeypatch.setitem(bs.simulate.__globals__, "DEFAULT_REQUESTS", fewer)
    assert 3000 < len(bs.simulate(SCENARIO).steps) <= 5000


def test_the_number_of_requests_gets_the_memory_that_is_free(monkeypatch):
    monkeypatch.setattr(estimates, "free_bytes", lambda: 1000 * estimates.BYTES_A_STEP)
    with pytest.warns(UserWarning, match="requests="):
        assert isinstance(bs.simulate(SCENARIO, 2000).log, FoldedLog)
    assert not isinstance(bs.simulate(SCENARIO, 20).log, FoldedLog)


@pytest.mark.parametrize("replicas", [1, 3])
def test_replications_without_rows_of_steps_are_joined_saved_and_loaded(little_memory, tmp_path, replicas):
    scenario = SCENARIO.replace(replicas=replicas)
    whole = bs.simulate(scenario, 300, replications=2)
    result = bs.simulate(scenario, 300, replications=2, keep="requests")
    assert isinstance(result.log, FoldedLog)
    assert_requests_equal(result, whole)
    if replicas == 1:
        np.testing.assert_array_equal(result.log.last_step, whole.log.last_step)
    assert (result.to_frame()["server"] == whole.to_frame()["server"]).all()
    result.save(tmp_path / "run.npz")
    again = bs.Result.load(tmp_path / "run.npz")
    assert_requests_equal(again, result)
    assert again.summary() == result.summary()


def test_whole_batches_are_there_without_their_steps(little_memory):
    scenario = SCENARIO.replace(rule=bs.SizeOrWait(4, 30))
    whole, result = (bs.simulate(scenario, 300, keep=keep) for keep in ("all", "requests"))
    assert isinstance(result.log, FoldedLog)
    for name, column in vars(whole.batches).items():
        np.testing.assert_array_equal(getattr(result.batches, name), column, name)


@pytest.mark.parametrize("engine", ["compiled", "simpy"])
@pytest.mark.parametrize(
    "knobs",
    [
        {}, {"replicas": 3, "rate_per_s": 40}, {"rule": bs.SizeOrWait(4, 30)},
        {"rule": bs.Continuous(8, 256, first="prefill", kv_blocks=100)},
        {"queue_limit": 3, "timeout_ms": 200, "rate_per_s": 40},
        {"workload": bs.ClosedLoop(20, 0.1)},
        {"workload": bs.Constant(20), "service": bs.StepTime(5, 0, 0)},  # steps end as requests come
        {"rate_per_s": 40, "autoscale": bs.Autoscale(most=3, every_s=1, startup_s=1)},
    ],
    ids=str,
)  # fmt: skip
def test_energy_and_the_mean_gap_are_those_of_the_steps_in_the_run_and_in_each_section(
    little_memory, knobs, engine
):
    scenario = SCENARIO.replace(watts={0: 60, 1: 200, 8: 400, 32: 500}, price_per_hour=2).replace(knobs)
    whole, result = (
        bs.simulate(scenario, 300, keep=keep, engine=engine, warmup=0.21) for keep in ("all", "requests")
    )
    assert isinstance(result.log, FoldedLog)
    of_energy = "joules_per_request", "joules_per_token"
    for key in (*of_energy, "mean_itl_ms", "mean_batch_size", "cost_per_million", "utilisation"):
        assert result.summary()[key] == pytest.approx(whole.summary()[key], rel=1e-12), key
        of_sections = (each.run.sections.numbers[key] for each in (result, whole))
        np.testing.assert_allclose(*of_sections, rtol=1e-9, err_msg=key)
    of_request, of_token = (whole.summary()[key] for key in of_energy)
    finished = whole.metrics.totals.finished
    assert of_token * whole.metrics.totals.output_tokens == pytest.approx(of_request * finished)
    assert not {*of_energy} & {*bs.simulate(scenario.replace(watts=None), 20).summary()}


def test_sweeps_and_searches_keep_no_steps(little_memory):
    over, slo = {"max_num_seqs": [8, 32]}, bs.SLO(ttft_p99_ms=5000)
    table = bs.sweep(SCENARIO, over, 1000, progress=False)
    assert table.mean_ttft_ms[1] == bs.simulate(SCENARIO, 1000).summary()["mean_ttft_ms"]
    assert isinstance(bs.tune(SCENARIO, slo, over, 1000).result.log, FoldedLog)


def test_without_tokens_requests_are_all_there_is_to_keep():
    scenario = bs.Scenario(bs.Poisson(800), bs.SizeOrWait(32, 10), bs.Affine(5, 0.25))
    assert len(bs.simulate(scenario, 100, keep="requests").batches) > 0
