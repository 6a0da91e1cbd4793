"""The trade-off among settings: latency, saturation rate and servers."""

import numpy as np

import batchsim as bs
from batchsim.study.slo import SLO
from batchsim.study.tune import tune

T4 = bs.Affine(5, 0.25)
POISSON = bs.Scenario(bs.Poisson(1400), bs.SizeOrWait(), T4)
SIZES, WAITS = [1, 4, 8, 12, 16, 24, 32, 48, 64], [0, 0.5, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32]
GRID = {"max_batch_size": SIZES, "max_wait_ms": WAITS}


def test_nothing_on_the_frontier_is_better_than_another_in_all():
    rows = tune(
        POISSON.replace(rate_per_s=5000),
        SLO(p99_ms=25),
        {"servers": [2, 3, 4], "max_batch_size": [12, 16, 24, 32, 64], "max_wait_ms": WAITS},
        requests=20_000,
    ).frontier
    assert len(rows) >= 4
    assert rows["p99_ms"].is_monotonic_increasing
    costs = np.stack([rows["p99_ms"], -rows["saturation_per_s"], rows["servers"]], axis=1)
    for number, row in enumerate(costs):
        better = (costs <= row).all(axis=1) & (costs < row).any(axis=1)
        assert rows["outcome"][number] == "recommended" or not better.any()
    assert (rows["outcome"] == "recommended").any()


def test_the_frontier_is_of_full_runs(shared_data):
    # A trace whose load is near to the capacity: a short run misses its worst hour.
    trace = bs.Trace.from_csv(shared_data / "traces" / "AzureLLMInferenceTrace_conv.csv", speedup=300)
    scenario = bs.Scenario(trace, bs.SizeOrWait(), bs.published("gpunet-175ms/v100-32gb/fp16"))
    over = {"max_batch_size": [4, 8, 16, 32, 64], "max_wait_ms": [0, 2, 5, 10]}
    found = tune(scenario, SLO(p99_ms=1333), over)
    assert found.met
    for frame in (found.frontier, tune(POISSON, SLO(p99_ms=50), GRID, requests=20_000).frontier):
        assert frame["requests"].nunique() == 1
    for _, row in found.frontier.iterrows():
        point = scenario.replace(max_batch_size=row["max_batch_size"], max_wait_ms=row["max_wait_ms"])
        assert row["p99_ms"] == bs.simulate(point).percentile(99)


def test_settings_that_cannot_be_told_apart_are_on_the_frontier_once():
    # At 300/s batches of 16 hardly ever fill, so that those of 64 differ in their capacity alone.
    over = {"max_batch_size": [16, 64], "max_wait_ms": [0, 5]}
    found = tune(POISSON.replace(rate_per_s=300), SLO(p99_ms=50), over, requests=20_000)
    assert found.frontier["outcome"].tolist() == ["recommended"]
    assert (found.frontier["requests"] == 20_000).all()
