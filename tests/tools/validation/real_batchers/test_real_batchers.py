"""Presets beside the batchers of real servers: those packages that are installed, on a clock that jumps."""

import contextlib
import importlib.util
import queue
import threading

import numpy as np
import pytest
from validation.real_batchers.cases import CASES, Case
from validation.real_batchers.clocks import Jumping, Machine
from validation.real_batchers.comparison import Comparison, Numbers, compare, distance
from validation.real_batchers.tables import SCALE, TABLES, line

import batchsim as bs

PACKAGES = {"ray_serve": "ray"}
NUMBERS = Numbers(10.0, 20.0, 4.0)
FAST = [case for case in CASES if case.on != "machine"]


@pytest.mark.filterwarnings("ignore")  # they are the packages' own
@pytest.mark.parametrize("case", FAST, ids=lambda case: f"{case}, {case.rate_per_s}/s")
def test_a_preset_starts_each_batch_when_the_servers_own_code_does(case):
    package = PACKAGES.get(case.server, case.server)
    if case.server != "textbook" and importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed: make fidelity-servers runs it")
    found = case.compare(Jumping, 500)
    if case.known:
        assert case.server in ("batched", "ray_serve")
        assert found.apart < 0.3
        return
    assert found.verdict == "agrees"
    # The textbook's batcher is polled, so that a tie here and there falls differently.
    assert max(abs(error) for error in found.errors) < (0.01 if case.server == "textbook" else 2e-5)
    assert found.same > (0.8 if case.server == "textbook" else 0.999)


def test_on_the_machines_clock_requests_are_as_late_and_calls_as_long_as_it_says():
    case = Case("textbook", {"max_batch_size": 4, "max_wait_ms": 1}, 1000)
    arrival_s = case.arrival_s(50)
    clock = Machine(arrival_s.tolist())
    desk = case.replay(clock, arrival_s)
    assert sum(desk.sizes) == 50
    assert (desk.late_s >= 0).all()
    assert min(desk.overrun_s) >= 0
    assert (desk.finish_s - desk.start_s >= case.service(1)).all()
    found = compare(desk, bs.simulate(case.scenario(bs.Trace(arrival_s))), case.shifted)
    assert found.shift > 0
    assert found.late > 0


def test_a_case_with_longer_times_is_the_same_case():
    case = Case("litserve", {"max_batch_size": 8, "batch_timeout": 0.002}, 1500)
    slow = case.times(SCALE)
    assert slow.settings == {"max_batch_size": 8, "batch_timeout": pytest.approx(0.002 * SCALE)}
    fast, slowly = (bs.simulate(each.scenario(bs.Trace(each.arrival_s(300)))) for each in (case, slow))
    assert slowly.latency_ms == pytest.approx(SCALE * fast.latency_ms)
    assert (slowly.batches.batch_size == fast.batches.batch_size).all()


@pytest.mark.parametrize(
    ("simulated", "shift", "late", "verdict"),
    [
        (Numbers(10.4, 21.9, 3.9), 0, 0, "agrees"),
        (Numbers(10.6, 20.0, 4.0), 0, 0, "differs"),
        (Numbers(10.0, 22.5, 4.0), 0, 0, "differs"),
        (Numbers(10.0, 20.0, 4.3), 0, 0, "differs"),
        (Numbers(10.6, 20.0, 4.0), 0.03, 0, "disturbed"),
        (Numbers(10.0, 20.0, 4.0), 0, 0.11, "disturbed"),
    ],
)
def test_a_disturbed_run_is_told_from_a_wrong_rule(simulated, shift, late, verdict):
    assert Comparison(NUMBERS, simulated, 0.0, 1.0, shift, late).verdict == verdict


def test_a_wrong_preset_is_seen():
    case = Case("textbook", {"max_batch_size": 8, "max_wait_ms": 4}, 500)
    arrival_s = case.arrival_s(500)
    desk = case.replay(Jumping(arrival_s.tolist()), arrival_s)
    rule = bs.PullThenWait(8, 4)
    wrong = compare(desk, bs.simulate(bs.Scenario(bs.Trace(arrival_s), rule, case.service)))
    assert wrong.verdict == "differs"
    assert wrong.same < 0.5
    assert "**DIFFERS**" in line(case, wrong, "")


def test_the_distance_of_two_distributions_of_sizes():
    assert distance([1, 2, 3, 4], [4, 3, 2, 1]) == 0
    assert distance([1, 1, 2], [2, 2, 2]) == pytest.approx(2 / 3)
    assert distance([1], [5]) == 1


def test_requests_come_while_somebody_sleeps_on_the_jumping_clock():
    came, clock = [], Jumping([0.0, 1.0, 1.0, 3.0])
    clock.open_door(lambda request: came.append((request, clock.now())))
    clock.sleep(2)
    assert [(request, round(at_s, 6)) for request, at_s in came] == [(0, 0), (1, 1), (2, 1)]
    assert clock.now() == pytest.approx(2)
    assert np.isclose(clock.next_s(), 3)


def test_of_several_threads_on_the_jumping_clock_who_has_waited_longest_gets_the_next_request():
    clock = Jumping([1.0, 2.0, 2.5]).of_threads(2)
    requests, got = clock.queue(), []
    clock.open_door(requests.put)

    def work(name, timeout_s):
        clock.begin()
        while clock.now() < 4:
            with contextlib.suppress(queue.Empty):
                got.append((name, requests.get(timeout_s), round(clock.now(), 6)))
        clock.leave()

    threads = [threading.Thread(target=work, args=each) for each in (("a", 9), ("b", 1.5))]
    for already, each in enumerate(threads):
        while clock.missing > 2 - already:
            pass
        each.start()
    for each in threads:
        each.join()
    # a waits again from 1 on, b from 1.5: a gets the second request, and b the third.
    assert got == [("a", 0, 1.0), ("a", 1, 2.0), ("b", 2, 2.5)]


def test_the_tables_of_the_servers_own_code_have_a_row_for_each_case():
    text = TABLES.read_text()
    for case in CASES:
        assert text.count(f"| {case} | {case.rate_per_s:g} |") == {"both": 2}.get(case.on, 1)
    assert "DIFFERS" not in text
