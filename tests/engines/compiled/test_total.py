"""The sums of a run: each batch is added once, with its requests, to the parts in which it falls."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import batchsim as bs
from batchsim.engines.compiled.total import sums_of
from batchsim.engines.draws import Streams, draw
from batchsim.result.sections import section_edges

SERVICE = bs.Affine(4, 0.5)
TRAFFIC = [
    bs.Poisson(300), bs.Poisson(2500), bs.Gamma(900, 3), bs.OnOff(3000, 100, 0.02, 0.05),
    bs.Trace([0, 0, 0, 0.001, 0.001, 0.2]), bs.Constant(1000),
]  # fmt: skip


def totals_of(run, skip, in_turn):
    cuts, edges_s = section_edges(run.log, skip, None)
    total = sums_of(run.log, run.scenario, edges_s, cuts, run.device_time, run.units, in_turn)
    return total.whole(np.diff(cuts), np.diff(edges_s))


@settings(max_examples=60)
@given(
    workload=st.sampled_from(TRAFFIC),
    servers=st.integers(1, 4),
    size=st.integers(1, 8),
    wait_ms=st.sampled_from([0, 1.7, 20.0, math.inf]),
    skip=st.integers(0, 5),
    others=st.sampled_from([{}, {"devices": 1, "host_ms": 1.0}, {"watts": {1: 50.0, 8: 300.0}}]),
)
def test_under_a_threshold_rule_forming_needs_no_history(workload, servers, size, wait_ms, skip, others):
    if "devices" in others and servers == 1:
        others = {}
    service = SERVICE.with_noise(0.4).compiling({8: 30})
    scenario = bs.Scenario(workload, bs.SizeOrWait(size, wait_ms), service, servers=servers, **others)
    run = bs.simulate(scenario, 6 if isinstance(workload, bs.Trace) else 200).runs[0]
    assert run.serves_in_turn
    quick, thorough = (vars(totals_of(run, skip, in_turn)) for in_turn in (True, False))
    for name, column in quick.items():
        assert np.array_equal(column, thorough[name]), name


@pytest.mark.parametrize("skip", [0, 40])
def test_each_replica_compiles_its_own_shapes(skip):
    service = SERVICE.compiling({4: 50, 8: 90})
    scenario = bs.Scenario(
        bs.Poisson(1500), bs.SizeOrWait(8, 3), service, replicas=3, servers=2, devices=1, host_ms=1
    )
    run = bs.simulate(scenario, 400).runs[0]
    from_s = float(run.log.arrival_s[skip]) if skip else 0.0
    seconds, shapes = service.cold_start(8)
    ready_s, free_s, off_s, waits_s = {}, {}, 0.0, []
    for start_s, finish_s, size, server in zip(
        *(getattr(run.log, f"batch_{name}") for name in ("start_s", "finish_s", "size", "server")),
        strict=True,
    ):
        shape = server // 2, shapes[size]
        asked_s = max(start_s, ready_s.setdefault(shape, start_s + seconds[size])) + 0.001
        begin_s = max(asked_s, free_s.get(server // 2, 0.0))
        free_s[server // 2] = finish_s
        off_s += max(begin_s - max(start_s, from_s), 0.0)
        waits_s.append(begin_s - asked_s)
    totals = totals_of(run, skip, in_turn=False)
    assert len({shape for _, shape in ready_s}) < len(ready_s)  # several replicas compile the same shape
    assert totals.off_device_s.sum() == pytest.approx(off_s, rel=1e-9)
    waited_s = np.array(waits_s)[run.log.batch_index[skip:]].sum()
    assert totals.device_wait_s.sum() == pytest.approx(waited_s, rel=1e-9)
    summed = bs.simulate(scenario, 400, keep="summary", warmup=skip / 400)
    assert summed.metrics.totals.off_device_s == pytest.approx(off_s, rel=1e-9)


@pytest.mark.parametrize("workload", [bs.Poisson(812.5), bs.Gamma(97, 2.5)])
def test_gaps_are_added_up_as_the_workload_itself_does(workload):
    scenario = bs.Scenario(workload, bs.SizeOrWait(4, 1), SERVICE)
    (seed,) = np.random.SeedSequence(5).spawn(1)
    times_s = np.concatenate([*workload.chunks_s(seed, 3000, 701)])
    for room in (None, np.empty(77)):
        chunks = [chunk.copy() for chunk in Streams(scenario, 5).arrivals_s(3000, 77, room)]
        assert np.array_equal(np.concatenate(chunks), np.round(times_s * 1e9) / 1e9)


def test_a_workload_with_chunks_of_its_own_is_asked_for_these():
    class Doubled(bs.Poisson):
        def chunks_s(self, seed, requests, size):
            return (2 * times_s for times_s in super().chunks_s(seed, requests, size))

    scenario = bs.Scenario(bs.Poisson(100), bs.SizeOrWait(4, 1), SERVICE)
    slow, fast = (
        draw(scenario.replace(workload=each(100)), 500, 1).arrival_s for each in (Doubled, bs.Poisson)
    )
    assert np.allclose(slow, 2 * fast, rtol=0, atol=2e-9)
