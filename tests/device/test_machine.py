"""What other programs take of the processors, and what this one does not count as theirs."""

import os
import subprocess
import sys
import threading
import time

import psutil
import pytest

from batchsim.device import wall_clock as machine

SPIN = "import time\nend = time.monotonic() + 60\nwhile time.monotonic() < end: pass"


def spin(seconds):
    end_s = time.process_time() + seconds
    while time.process_time() < end_s:
        pass


def test_what_this_program_computes_is_not_others():
    others = machine.Others()
    own_s = machine._own_s()
    spin(0.3)
    assert machine._own_s() - own_s >= 0.25
    # Whatever the others do, before the share is asked for, meanwhile and after.
    passed_s = (time.perf_counter() - others.begin_s) * len(machine._processors())
    share = others.share()
    busy_s = machine._busy_s() - others.busy_s
    assert 0 <= share <= min(max(busy_s - 0.2, 0) / passed_s, 1)


def test_what_another_program_computes_is():
    others = machine.Others()
    with subprocess.Popen([sys.executable, "-c", SPIN]) as program:
        while program.poll() is None and psutil.Process(program.pid).cpu_times().user < 0.3:
            time.sleep(0.01)
        share = others.share()
        passed_s = (time.perf_counter() - others.begin_s) * len(machine._processors())
        program.kill()
    assert share >= 0.2 / passed_s


@pytest.mark.skipif(not hasattr(os, "sched_getscheduler"), reason="Linux alone schedules threads so")
def test_a_thread_that_is_woken_up_at_once_changes_no_other():
    found = []

    def thread():
        machine.wake_at_once()
        found.append(os.sched_getscheduler(0))

    before = os.sched_getscheduler(0)
    one = threading.Thread(target=thread)
    one.start()
    one.join()
    assert found[0] in (before, os.SCHED_RR)
    assert os.sched_getscheduler(0) == before


def test_what_other_guests_take_is_a_part_of_what_others_do():
    others = machine.Others()
    spin(0.05)
    others.stolen_s -= 0.03
    others.busy_s -= 0.03 + 0.5 * len(machine._processors())
    assert 0 < others.stolen() <= others.share() <= 1
