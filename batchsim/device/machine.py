"""The machine round a replay: what other programs take of it, and a thread that it wakes up at once."""

import os
import time
from contextlib import suppress

import psutil


class Others:
    """How much of the processors that this program may use others have used, since this was made."""

    def __init__(self) -> None:
        self.begin_s, self.busy_s, self.own_s = time.perf_counter(), _busy_s(), _own_s()
        self.stolen_s = _busy_s("steal")

    def share(self) -> float:
        """Return the part of their time that went to other programs, or to other guests of the host."""
        return self._of_all(_busy_s() - self.busy_s - (_own_s() - self.own_s))

    def stolen(self) -> float:
        """Return the part that went to other guests of the host alone, where the system tells (Linux)."""
        return self._of_all(_busy_s("steal") - self.stolen_s)

    def _of_all(self, seconds: float) -> float:
        passed_s = (time.perf_counter() - self.begin_s) * len(_processors())
        return min(max(seconds / passed_s, 0.0), 1.0)


def _processors() -> list[int]:
    every = range(psutil.cpu_count() or 1)
    return sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else list(every)


def _busy_s(*kinds: str) -> float:
    """Return the seconds of these kinds, by default of all that keep a processor busy."""
    each = psutil.cpu_times(percpu=True)
    kinds = kinds or ("user", "nice", "system", "irq", "softirq", "steal")  # a system may lack some
    return sum(getattr(each[cpu], kind, 0.0) for cpu in _processors() if cpu < len(each) for kind in kinds)


def _own_s() -> float:
    times = psutil.Process().cpu_times()
    return float(times.user + times.system)


def wake_at_once() -> None:
    """Let this thread run as soon as its sleep is over, where the system allows it (Linux, as root).

    Else it waits for its turn while a model computes on every processor: some milliseconds. Clients, for
    which it stands, have machines of their own.
    """
    with suppress(AttributeError, OSError):
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(os.sched_get_priority_min(os.SCHED_RR)))
