"""Threads that share a queue: who is served, by whom and why."""

import threading
import time

import numpy as np
import pytest

import batchsim as bs
from batchsim.engines.draws import draw
from batchsim.measured.replay import WallClock

AT_ONCE = bs.Trace(np.zeros(10))
SERVICE = bs.Affine(1, 0.1)


def clock_of(model, rule, workload=AT_ONCE, **knobs):
    scenario = bs.Scenario(workload, rule, SERVICE, **knobs)
    count = workload.max_requests
    return WallClock(draw(scenario, count, seed=0), model, np.arange(count))


def run(model, rule, workload=AT_ONCE, **knobs):
    return clock_of(model, rule, workload, **knobs).run()


def triggers(log):
    return [bs.Trigger(trigger) for trigger in log.batch_trigger]


def test_full_batches_leave_in_order_of_arrival_and_the_end_drains_the_rest():
    log = run(np.negative, bs.SizeOrWait(4, float("inf")))
    assert log.batch_size.tolist() == [4, 4, 2]
    assert triggers(log) == [bs.Trigger.FULL, bs.Trigger.FULL, bs.Trigger.DRAIN]
    assert log.batch_index.tolist() == [0] * 4 + [1] * 4 + [2] * 2
    assert log.outputs == (-np.arange(10)).tolist()
    assert (log.batch_start_s[1:] >= log.batch_finish_s[:-1]).all()


@pytest.mark.parametrize("wait_ms", [0, 3])
@pytest.mark.parametrize("rule", [bs.SizeOrWait, bs.PullThenWait, lambda b, t: bs.PreferredSizes([2], b, t)])
def test_a_lone_request_leaves_when_its_wait_is_over_and_not_before(rule, wait_ms):
    log = run(np.negative, rule(4, wait_ms), bs.Trace([0.0]))
    assert triggers(log) == [bs.Trigger.WAIT]
    assert log.batch_start_s[0] >= log.arrival_s[0] + wait_ms / 1000


def test_who_was_due_while_the_server_computed_is_backlog():
    def model(batch):
        time.sleep(0.003)
        return batch

    log = run(model, bs.SizeOrWait(1000, 1), bs.Trace(np.linspace(0, 0.02, 10)))
    for batch in range(1, log.batch_size.size):
        due_s = log.arrival_s[log.batch_index == batch][0] + 0.001
        late = due_s < log.batch_finish_s[batch - 1]
        assert triggers(log)[batch] == (bs.Trigger.BACKLOG if late else bs.Trigger.WAIT)


def test_a_rule_that_learns_is_told_of_every_batch():
    told = []

    class Told(bs.LearnedCork):
        finished = staticmethod(lambda now_s, size, seconds, state, params: told.append((size, seconds > 0)))

    log = run(np.negative, Told(max_batch_size=4))
    assert told == [(size, True) for size in log.batch_size]


def test_servers_compute_at_the_same_time():
    both = threading.Barrier(2, timeout=300)  # broken, and so a failure, if a batch stays alone

    def model(batch):
        both.wait()
        return batch

    log = run(model, bs.SizeOrWait(1, 0), servers=2)
    assert (log.status == bs.Status.SERVED).all()
    assert sorted(log.batch_server.tolist()) == [0] * 5 + [1] * 5
    assert (np.diff(log.batch_start_s) >= 0).all()


def until_all_have_come(clock):
    def model(batch):
        while not clock.line.ended:
            time.sleep(0.0001)
        return batch

    return model


def test_a_full_queue_rejects():
    clock = clock_of(lambda batch: model(batch), bs.SizeOrWait(1, 0), queue_limit=2)
    model = until_all_have_come(clock)
    log = clock.run()
    counts = np.bincount(log.status, minlength=4)
    assert counts.sum() == 10
    assert 2 <= counts[bs.Status.SERVED] <= 3
    assert counts[bs.Status.REJECTED] == 10 - counts[bs.Status.SERVED]
    assert log.batch_size.tolist() == [1] * counts[bs.Status.SERVED]


def test_who_has_waited_too_long_leaves():
    clock = clock_of(lambda batch: model(batch), bs.SizeOrWait(1, 0), timeout_ms=0.001)
    model = until_all_have_come(clock)
    log = clock.run()
    counts = np.bincount(log.status, minlength=4)
    assert counts[bs.Status.SERVED] <= 1
    assert counts[bs.Status.TIMED_OUT] == 10 - counts[bs.Status.SERVED]


def test_an_error_of_the_rule_itself_is_raised():
    class Broken(bs.LearnedCork):
        def decide(now_s, waiting, idle, state, params):
            raise ArithmeticError("a rule with a mistake")

        decide = staticmethod(decide)

    with pytest.raises(ArithmeticError, match="a mistake"):
        run(np.negative, Broken(max_batch_size=4))


def test_no_thread_is_left_behind():
    before = threading.active_count()
    run(np.negative, bs.SizeOrWait(4, 1), servers=3)
    assert threading.active_count() == before
