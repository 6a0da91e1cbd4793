"""What a run costs is said before it starts."""

import os
import sys
from pathlib import Path

import pytest
import runs

import batchsim as bs
from batchsim.engines import estimates
from batchsim.measured.load_stages import Stage
from batchsim.measured.load_tests import LoadTest
from batchsim.study.surface import load_curve, surface

CHAT = bs.Scenario(bs.Poisson(9), bs.Continuous(), bs.StepTime(1, 8, 0.1), tokens=bs.Tokens(100, 900))
LONG = {"latency_ms": {"mean": 9e3}, "ttft_ms": {"mean": 9.0}, "prompt_tokens": 100, "output_tokens": 900}
LONG_TEST = LoadTest("mine", "1", tuple(Stage(20_000, asked_per_s=at, **LONG) for at in range(1, 11)))
PLAIN = bs.Scenario(bs.Poisson(0.1), bs.SizeOrWait(8, 5), bs.Affine(5, 0.25))
SCALED = PLAIN.replace(autoscale=bs.Autoscale("queue", most=4, every_s=0.001))
LARGE = [
    (lambda: bs.simulate(CHAT.replace(servers=100)), r"100,000 requests take some 49 s: with requests=59000"),
    (lambda: bs.simulate(CHAT, 5_000_000, keep="summary"), "some 20"),
    (lambda: bs.simulate(PLAIN, 2_000_000_000, keep="summary"), "some 100 s: with requests=570000000"),
    (lambda: bs.simulate(PLAIN, 700_000, engine="simpy"), "some 35 s"),
    (lambda: bs.simulate(PLAIN, 350_000, engine="simpy", replications=2), "some 35 s"),
    (lambda: bs.simulate(PLAIN, 6_000_000), "1.3 GiB of 2.0 GiB free: with requests=4400000 it"),
    (lambda: bs.simulate(SCALED, 10_000), "some 5,000 s"),
    (lambda: bs.sweep(CHAT, {"servers": [*range(1, 99)]}, workers=2), "some "),
    (lambda: bs.tune(CHAT, bs.SLO(p99_ms=9), {"max_num_seqs": [*range(1, 41)]}, 10**6), "some "),
    (lambda: bs.capacity(CHAT, bs.SLO(p99_ms=9)), "some 40 s"),
    (lambda: bs.sweep(PLAIN, {"servers": [1, 2, 3]}, 2_000_000, workers=3), "1.3 GiB of 2.0 GiB free"),
    (lambda: bs.capacity(PLAIN, bs.SLO(p99_ms=9), requests=6_000_000), "1.3 GiB of 2.0 GiB free"),
    (
        lambda: surface(PLAIN, [*range(1, 101)], [0, *range(1, 100)], 130_000),
        "130,000 requests take some 32 s",
    ),
    (lambda: surface(CHAT, [*range(1, 101)], [*range(1, 101)], 100_000), "100,000 requests take some"),
    (lambda: load_curve(CHAT, 500_000), "500,000 requests take some"),
    (lambda: bs.compare_servers(PLAIN, ["triton", "torchserve"], requests=4_000_000), "1.7 GiB of 2.0 GiB"),
    (lambda: bs.compare_routing(PLAIN.replace(replicas=9), requests=1_000_000), "GiB of 2.0 GiB free"),
    (lambda: bs.film(PLAIN, 6_000_000), "1.3 GiB of 2.0 GiB free"),
    (lambda: bs.calibrate(LONG_TEST, bs.Continuous()), "10 stages of up to 20,000 requests take some "),
]


@pytest.mark.parametrize(("call", "said"), LARGE)
def test_what_takes_long_or_much_memory_says_so_before_it_starts(monkeypatch, call, said):
    monkeypatch.setattr(estimates, "free_bytes", lambda: 2.0**31)
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    with pytest.raises(UserWarning, match=said):  # as an error, a warning stops the call
        call()


def test_an_explorer_says_so_too(monkeypatch):
    monkeypatch.setattr(estimates, "free_bytes", lambda: 2.0**29)
    with pytest.warns(UserWarning, match=r"0.3 GiB of 0.5 GiB free"):
        bs.explore(PLAIN.replace(rate_per_s=800), requests=1_300_000)


@pytest.mark.parametrize("workload", [bs.Poisson(10), bs.ClosedLoop(9, 1)])
@pytest.mark.parametrize("rule", [bs.SizeOrWait(8, 5), bs.AtLeast(2, 8)])
def test_a_summary_beyond_the_clock_is_refused(workload, rule):  # it wrote outside of its histogram
    slow = bs.Scenario(workload, rule, bs.Affine(1e9, 1))
    with pytest.raises(ValueError, match="finishes must be before"):
        bs.simulate(slow, 10_000, keep="summary")


def test_an_autoscaler_that_looks_too_often_is_refused_before_the_run(monkeypatch):
    monkeypatch.setattr("batchsim.engines.autoscaling.Scaler.evaluate", lambda *_: pytest.fail("it ran"))
    monkeypatch.setattr(estimates, "warn_if_large", lambda *_: None)
    for engine in ("simpy", "compiled"):
        with pytest.raises(ValueError, match="at most 1,000,000 evaluations"):
            bs.simulate(SCALED, 200, engine=engine)


def measured(limit, place, found):
    """In a process that may allocate 100 MB more: its free memory."""
    import resource

    pages = int(Path("/proc/self/statm").read_text().split()[place])
    most = pages * resource.getpagesize() + 10**8
    resource.setrlimit(getattr(resource, limit), (most, most))
    found.put(estimates.free_bytes())


@pytest.mark.skipif(sys.platform != "linux", reason="limits as on Linux")
@pytest.mark.parametrize(("limit", "place"), [("RLIMIT_AS", 0), ("RLIMIT_DATA", 5)])
def test_a_limit_of_the_process_is_the_free_memory(limit, place):
    found = runs.processes.Queue()
    process = runs.processes.Process(target=measured, args=(limit, place, found))
    process.start()
    assert 5e7 < found.get(timeout=60) <= 10**8
    process.join()


def test_steps_have_the_room_that_columns_leave(monkeypatch):
    monkeypatch.setattr(estimates, "free_bytes", lambda: 2.0**29)
    assert estimates.room_for_steps("all", 10, 2**27) == 2**27 // estimates.BYTES_A_STEP
    assert estimates.room_for_steps("all", 10, 2**30) == 2**26 // estimates.BYTES_A_STEP
