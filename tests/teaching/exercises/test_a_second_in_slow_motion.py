"""The exercises of lesson 03, and that its simulation from scratch does what batchsim's engines do."""

import matplotlib
import numpy as np
import pytest
from wrong_answers.a_second_in_slow_motion import MISTAKES, split

import batchsim as bs
from batchsim.teaching import EXERCISES, check
from batchsim.teaching.exercises import a_second_in_slow_motion as slow


def told(capsys, exercise, answer):
    check(exercise, answer)
    return capsys.readouterr().out


def lesson():
    """Return what the solved lesson's cells define, without its pictures and predictions."""
    from lesson_cells import NOTEBOOKS, code, read, say

    namespace = {"display": lambda *_: None}
    for cell in code(read(NOTEBOOKS / "solutions" / "03-a-second-in-slow-motion.ipynb")):
        if not cell.source.startswith("predict(") and "bs.film(" not in cell.source:
            say(cell.source, namespace)
    namespace["plt"].close("all")
    return namespace


@pytest.fixture(scope="module")
def taught():
    with pytest.MonkeyPatch.context() as patch, matplotlib.rc_context():
        patch.setenv("MPLBACKEND", "agg")
        yield lesson()


def test_the_exercises_ask_about_the_ten_requests_of_the_lesson(taught):
    assert tuple(taught["ARRIVALS_MS"]) == slow.ARRIVALS_MS
    assert (taught["MAX_BATCH_SIZE"], taught["MAX_WAIT_MS"]) == (slow.MAX_BATCH_SIZE, slow.MAX_WAIT_MS)
    assert bs.Affine(taught["FIXED_MS"], taught["PER_ITEM_MS"]) == slow.SERVICE


@pytest.mark.parametrize("servers", [1, 2])
@pytest.mark.parametrize("seed", range(5))
def test_the_simulation_from_scratch_gives_batchsims_numbers(taught, servers, seed):
    arrivals_ms = np.random.default_rng(seed).exponential(4, size=40).cumsum()  # no two things at one instant
    arrivals_ms -= arrivals_ms[0]  # as a trace starts
    rows = taught["run"](arrivals_ms.tolist(), servers=servers)
    rule = bs.SizeOrWait(slow.MAX_BATCH_SIZE, slow.MAX_WAIT_MS)
    scenario = bs.Scenario(bs.Trace(arrivals_ms / 1000), rule, slow.SERVICE, servers=servers)
    result = bs.simulate(scenario, engine="simpy")
    start_ms, finish_ms = np.array([rows[number] for number in range(40)]).T
    np.testing.assert_allclose(start_ms, 1000 * result.start_s, rtol=0, atol=1e-6)
    np.testing.assert_allclose(finish_ms, 1000 * result.finish_s, rtol=0, atol=1e-6)


def test_the_ten_requests_leave_for_every_reason():
    triggers = {bs.Trigger(trigger).name for trigger in slow.run().batches.trigger}
    assert triggers == {"FULL", "WAIT", "BACKLOG"}


def test_nothing_of_the_ten_depends_on_the_order_within_an_instant():
    result = slow.run()
    arrivals_s = result.arrival_s.tolist()
    oldest = np.unique(result.batch_index, return_index=True)[1]
    deadlines_s = [arrivals_s[request] + slow.MAX_WAIT_MS / 1000 for request in oldest]
    taken_s = {round(time_s, 9) for time_s in result.batches.finish_s}
    assert taken_s.isdisjoint(round(time_s, 9) for time_s in arrivals_s + deadlines_s)


# 03.1, by hand.


def test_the_eleventh_request_waits_for_the_server_and_computes_alone(capsys):
    assert EXERCISES["03.1"].right() == (35 - 30) + 6
    assert told(capsys, "03.1", 11).startswith("Right: its wait is over at 34 ms")


# 03.2, a function.


def test_the_right_split_is_right(capsys):
    assert told(capsys, "03.2", split).startswith("Right: in ")
    assert told(capsys, "03.2", lambda *times_ms: list(split(*times_ms))).startswith("Right: in ")
    assert told(capsys, "03.2", lambda *times_ms: np.array(split(*times_ms))).startswith("Right: in ")


def test_the_hidden_cases_know_every_kind_of_wait():
    parts_ms = np.array([case.parts_ms for case in EXERCISES["03.2"].cases(["split"])])
    forming, queueing, _ = parts_ms.T > 0
    for kind in (forming & queueing, forming & ~queueing, ~forming & queueing, ~forming & ~queueing):
        assert kind.sum() >= 3


@pytest.mark.parametrize(("answer", "case", "hint"), MISTAKES)
def test_a_usual_mistake_in_a_split_is_told_by_its_smallest_case(capsys, answer, case, hint):
    said = told(capsys, "03.2", answer)
    assert said.startswith(f"Not yet: take {case}.\n")
    assert hint in said


def test_a_split_left_open_and_one_that_is_no_function(capsys):
    def unwritten(arrival_ms, start_ms, finish_ms, free_ms):
        """Return forming, queueing and computing."""
        ...

    assert told(capsys, "03.2", unwritten).startswith("Not answered yet: ")
    assert "must be the function itself" in told(capsys, "03.2", (2, 0, 8))


# 03.3, a simulation extended.


def test_the_mean_of_a_short_queue_is_that_of_those_who_are_served(capsys):
    latencies_ms = [11, 10, 12, 12, 11, 11, 8]  # by hand
    assert EXERCISES["03.3"].right() == pytest.approx(np.mean(latencies_ms))
    assert told(capsys, "03.3", 10.71).startswith("Right: 3 of the ten are rejected")
