"""A sweep in a folder that is killed, interrupted, beside another, or whose executor ends."""

import contextlib
import itertools
import signal
import textwrap
import time
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from pathlib import Path

import pytest
from pandas.testing import assert_frame_equal
from runs import execute, processes
from sweeps import POINTS, files, stored, sweep

import batchsim as bs
from batchsim.study import sweep as sweeping

# Killed, interrupted, and beside another. Each runs in a process of its own.


CHILD = """
import os, signal, sys, threading, time
from concurrent.futures import Future, ThreadPoolExecutor
import batchsim as bs
from batchsim.study import store, sweep as sweeping

sweeping.SAVE_S, sweeping.LOCAL_S, sweeping.AWAY_S = 0.0, (0.0, 0.0), (0.0, 0.0)  # every point a file
sweeping.SILENT_S = float("inf")  # however long the test that waits for this process is kept waiting

def sweep(**how):
    base = bs.Scenario(bs.Poisson(800), bs.SizeOrWait(32, 10), bs.Affine(5, 0.25))
    service = [bs.Affine(5, 0.25), bs.Table({16: 3})]
    over = {"max_batch_size": [4, 16, 32], "max_wait_ms": [0, 2.5], "service": service}
    return sweeping.sweep(base, over, 300, engine="simpy", progress=False, out=sys.argv[1], **how)

class Stuck(ThreadPoolExecutor):
    "Computes five tasks, and never another."
    given = 0
    def submit(self, function, /, *args, **kwargs):
        self.given += 1
        return super().submit(function, *args, **kwargs) if self.given <= 5 else Future()

def kill_at(owner, name, call):
    "End this process, without a warning, as a function is called for the nth time."
    original, calls = getattr(owner, name), []
    def killing(*args, **kwargs):
        calls.append(name)
        if len(calls) == call:
            os.kill(os.getpid(), signal.SIGKILL)
        return original(*args, **kwargs)
    setattr(owner, name, killing)
"""


@contextlib.contextmanager
def child(folder, code):
    errors = f"{folder}.{next(NUMBERS)}.stderr"
    process = processes.Process(
        target=execute, args=(CHILD + textwrap.dedent(code), errors, str(folder)), daemon=True
    )
    process.errors = Path(errors)
    process.start()
    yield process
    process.join(120)
    assert process.exitcode is not None, "it took too long"


NUMBERS = itertools.count()


def wait_until(condition, process):
    end = time.monotonic() + 120
    while not condition():
        assert process.is_alive(), process.errors.read_text()
        assert time.monotonic() < end, "it took too long"
        time.sleep(0.01)


def test_a_sweep_killed_in_the_middle_goes_on_and_gives_the_same_table(tmp_path, undisturbed, computed):
    with child(tmp_path / "out", "sweep(executor=Stuck(2), workers=12)") as process:
        wait_until(lambda: len(files(tmp_path / "out")) >= 5, process)
        process.kill()
    assert process.exitcode == -signal.SIGKILL
    there = len(stored(tmp_path / "out"))
    assert there == 5
    table = sweep(out=tmp_path / "out")
    assert len(computed) == POINTS - there
    assert_frame_equal(table, undisturbed, check_exact=True)


def test_a_kill_at_the_worst_instants_loses_no_more_than_what_was_being_written(
    tmp_path, undisturbed, computed
):
    instants = {
        "description": 'kill_at(os, "replace", 1)',
        "after it": 'kill_at(os, "replace", 2)',
        "synced": 'kill_at(os, "replace", 6)',
        "unsynced": 'kill_at(os, "fsync", 7)',
        "merging": "store.MERGE = 4; kill_at(store.Path, 'unlink', 5 + 3)",
    }
    expected = {"description": 0, "after it": 0, "synced": 4, "unsynced": 2, "merging": 4}
    for name, code in instants.items():
        with child(tmp_path / name, f"{code}\nsweep(workers=1)") as process:
            pass
        assert process.exitcode == -signal.SIGKILL, (name, process.errors.read_text())
        computed.clear()
        assert_frame_equal(sweep(out=tmp_path / name), undisturbed, check_exact=True)
        assert len(computed) == POINTS - expected[name], name
        table = stored(tmp_path / name)
        assert len(table) == table.point.nunique() == POINTS


def test_ctrl_c_keeps_what_is_finished_and_starts_nothing_more(tmp_path, undisturbed, computed):
    code = """
    signal.signal(signal.SIGINT, signal.default_int_handler)  # background jobs inherit that it is ignored
    sweeping.SAVE_S = 1e9  # so that only the way out saves
    original, calls = sweeping.compute, []
    def compute(*args):
        calls.append(args)
        if len(calls) == 5:
            os.kill(os.getpid(), signal.SIGINT)
            sweeping.CANCELLED.get().wait(300)  # until it is heard
        return original(*args)
    sweeping.compute = compute
    try:
        sweep(workers=1)
    except KeyboardInterrupt:
        for thread in threading.enumerate():
            if thread.name.startswith("sweep"):
                thread.join()
        print("interrupted in call", len(calls), file=sys.stderr)
    """
    with child(tmp_path / "out", code) as process:
        pass
    assert (process.exitcode, process.errors.read_text()) == (0, "interrupted in call 5\n")
    assert len(stored(tmp_path / "out")) == 4
    assert_frame_equal(sweep(out=tmp_path / "out"), undisturbed, check_exact=True)
    assert len(computed) == POINTS - 4


def test_several_processes_may_sweep_into_one_folder_at_once(tmp_path, undisturbed, computed):
    code = """
    store.MERGE = 2
    open(sys.argv[1] + f".{os.getpid()}", "w").close()
    while not os.path.exists(sys.argv[1] + ".go"):
        time.sleep(0.001)
    sweep()
    """
    with contextlib.ExitStack() as stack:
        started = [stack.enter_context(child(tmp_path / "out", code)) for _ in range(3)]
        for process in started:
            wait_until((tmp_path / f"out.{process.pid}").exists, process)
        (tmp_path / "out.go").touch()
    for process in started:
        assert (process.exitcode, process.errors.read_text()) == (0, "")
    assert_frame_equal(sweep(out=tmp_path / "out"), undisturbed, check_exact=True)
    assert computed == []
    table = stored(tmp_path / "out")
    assert len(table) == table.point.nunique() == POINTS


# An executor that ends, or never begins.


class Leaving(ThreadPoolExecutor):
    """Computes five tasks, and is then shut down, as a client whose scheduler is gone."""

    given = 0

    def submit(self, function, /, *args, **kwargs):
        self.given += 1
        if self.given <= 5:
            return super().submit(function, *args, **kwargs)
        future = Future()
        future.cancel()
        future.set_running_or_notify_cancel()
        return future


class Full(ThreadPoolExecutor):
    def submit(self, function, /, *args, **kwargs):
        raise OSError("too many files")


class Silent(Executor):
    def submit(self, function, /, *args, **kwargs):
        return Future()


def test_an_executor_that_ends_too_soon_is_named_with_what_is_kept(
    tmp_path, undisturbed, computed, monkeypatch
):
    monkeypatch.setattr(sweeping, "AWAY_S", (0.0, 0.0))
    with Leaving(1) as leaving, pytest.raises(RuntimeError, match="CancelledError") as error:
        sweep(executor=leaving, workers=1, out=tmp_path)
    there = len(stored(tmp_path))
    assert f"the {there} points there are kept" in str(error.value)
    assert there > 0
    computed.clear()
    assert_frame_equal(sweep(out=tmp_path), undisturbed, check_exact=True)
    assert len(computed) == POINTS - there
    with Leaving(1) as leaving, pytest.raises(RuntimeError, match="out= would keep"):
        sweep(executor=leaving, workers=1)
    with Full(1) as full, pytest.raises(RuntimeError, match="got OSError; out= would keep"):
        sweep(executor=full)


def test_an_executor_from_which_nothing_comes_is_warned_of(monkeypatch):
    monkeypatch.setattr(sweeping, "SAVE_S", 0.0)
    monkeypatch.setattr(sweeping, "SILENT_S", 0.0)
    with pytest.raises(UserWarning, match=f"workers, and that they have batchsim {bs.__version__}"):
        sweep(executor=Silent())
