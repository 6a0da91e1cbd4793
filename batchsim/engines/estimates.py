"""How long a run takes, and how much memory, before it starts: large ones warn, too large ones are errors."""

import math
import mmap
import os
from contextlib import suppress
from pathlib import Path

from batchsim import _check
from batchsim.engines.folded_log import PIECE
from batchsim.engines.kinds import KINDS
from batchsim.engines.replicas import are_apart
from batchsim.scenario import OpenLoop, Scenario
from batchsim.scenario.lengths import points

BYTES_A_STEP = 210
DEFAULT_BYTES = 2**30  # of steps, where the number of requests is the default
# A request, an output token, and either in SimPy, with the judgement; an evaluation of an autoscaler; and a
# token for each server: a step looks at all.
REQUEST_S, TOKEN_S, SIMPY_S, EVALUATION_S, SERVER_S = 5e-8, 4e-8, 5e-5, 5e-5, 5e-9
LONG_S = 30.0  # a call that takes longer says so before it starts


def run_s(scenario: Scenario, requests: int, engine: str = "compiled") -> float:
    """Return about how long a run takes on one core."""
    items, each_s, scaling_s = float(requests), REQUEST_S, 0.0
    if scenario.tokens is not None:
        items *= float(points(scenario.tokens.output).mean())
        each_s = TOKEN_S + SERVER_S * scenario.all_servers
    if scenario.autoscale is not None and isinstance(scenario.workload, OpenLoop):
        rate_per_s = scenario.workload.offered_per_s or math.inf  # 0 of a trace of one request
        scaling_s = requests / rate_per_s / scenario.autoscale.every_s * EVALUATION_S
    return items * (SIMPY_S if engine == "simpy" or scenario.uncovered else each_s) + scaling_s


def warn_if_large(
    scenario: Scenario, requests: int, engine: str = "compiled", runs: float = 1, held: int = 1
) -> str:
    """Warn of so many runs, one after the other, that take long, or of so many held in half of the memory.

    Return what it says, "" for nothing.
    """
    seconds = runs * run_s(scenario, requests, engine)
    needed = held * bytes_of(scenario, requests, engine)
    free = free_bytes() if needed > 2**28 else math.inf
    over = max(seconds / LONG_S, 2 * needed / free)
    if over <= 1:
        return ""
    fewer = max(int(float(f"{0.95 * requests / over:.1e}")), 1)
    much = f"{needed / 2**30:,.1f} GiB of {free / 2**30:,.1f} GiB free"
    much = f"some {seconds:,.0f} s" if 2 * needed / free < 1 else much
    less = f"with requests={fewer} it is less than half a minute, and half of the free memory"
    _check.warn(said := f"{requests:,} requests take {much}: {less}")
    return said


def check_size(
    scenario: Scenario, count: int, engine: str, keep: str, replications: int, advice: str
) -> None:  # fmt: skip
    """Refuse runs that do not fit into memory, and warn before those that take long.

    `advice` is for who runs out of memory; without it nothing warns: a study does so once for all its runs.
    """
    if keep != "summary" or (scenario.most_replicas > 1 and not are_apart(scenario)):
        check_memory(scenario, count * replications, engine, advice if scenario.most_replicas == 1 else "")
    if advice:
        at_once = 1 if engine == "simpy" else min(os.cpu_count() or 1, replications)
        held = 0 if keep == "summary" else replications
        warn_if_large(scenario, count, engine, replications / at_once, held)


def check_memory(scenario: Scenario, requests: int, engine: str = "compiled", advice: str = "") -> None:
    """Raise MemoryError before drawing if this machine's memory cannot hold the run."""
    needed = bytes_of(scenario, requests, engine)
    if needed < 2**28:  # asking for the free memory takes longer than such a run
        return
    if needed > (free := free_bytes()):
        raise MemoryError(
            f"columns must fit in memory: {requests:,} requests need {needed / 2**30:,.1f} GiB, "
            f"got {free / 2**30:,.1f} GiB free{advice}"
        )


def bytes_of(scenario: Scenario, requests: int, engine: str = "compiled") -> int:
    """Return the memory that a run needs, its rows of steps excepted."""
    key = "routed" if engine == "compiled" and scenario.most_replicas > 1 else engine
    return requests * KINDS[scenario.kind].bytes_a_request[key]


def room_for_steps(keep: str, requests: int | None, others: int) -> float:
    """Return the most steps of token generation before a run folds them, beside so many other bytes."""
    if keep == "requests":
        return PIECE
    free = free_bytes()
    most = max(free / 2 - others, free / 8)
    return (most if requests is not None else min(most, DEFAULT_BYTES)) // BYTES_A_STEP


def free_bytes() -> float:
    """Return the free memory within all limits; without psutil (the extra `device`), half of all memory."""
    try:
        import psutil

        free: float = psutil.virtual_memory().available
    except ModuleNotFoundError:  # Windows has no sysconf
        pages = os.sysconf("SC_PHYS_PAGES") if hasattr(os, "sysconf") else math.inf
        free = pages * mmap.PAGESIZE / 2
    group = Path("/sys/fs/cgroup")
    with suppress(OSError, ValueError):
        # No control groups, or "max"; a container's limit is not the machine's.
        left = int((group / "memory.max").read_text()) - int((group / "memory.current").read_text())
        free = min(free, left)
    with suppress(OSError, ImportError):  # neither on Windows; macOS has no /proc
        import resource

        size, *_, data, _ = map(int, Path("/proc/self/statm").read_text().split())
        for limit, pages in ((resource.RLIMIT_AS, size), (resource.RLIMIT_DATA, data)):
            if (most := resource.getrlimit(limit)[0]) != resource.RLIM_INFINITY:
                free = min(free, most - pages * mmap.PAGESIZE)
    return max(free, 0)
