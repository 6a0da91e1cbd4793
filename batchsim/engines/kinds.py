"""The kinds of run: what each draws, which loops run it, its memory, and how its saturation rate is measured.

A scenario's `kind` is a key of `KINDS`. The modules of the loops load SimPy or Numba, so they are imported on
first use.
"""

import math
import mmap
import os
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from batchsim.engines.draws import draw
from batchsim.engines.folded_log import PIECE
from batchsim.engines.full_batches import measured
from batchsim.engines.log import Log
from batchsim.engines.saturation import saturated
from batchsim.engines.token_log import draw_tokens
from batchsim.scenario import Scenario
from batchsim.scenario.saturation import MEASURES


class Kind(NamedTuple):
    """What differs between kinds of run."""

    draw: Callable[..., Any]  # takes a scenario, requests, seed, replication, and `cancelled`
    loops: dict[str, tuple[str, str]]  # by engine: the module, and its function from a plan to a log
    sums: str  # the module whose `summarise` runs in little memory
    # Peak memory by engine, measured with the summary taken; "routed": of the compiled one, with replicas.
    bytes_a_request: dict[str, int]
    takes_model: bool  # whether a `model_fn` may compute the batches
    folds: bool  # whether `run` folds a log with more than `room` rows of steps

    def run(self, engine: str, plan: Any, **options: Any) -> Log:
        """Run a plan by "simpy" or "compiled"."""
        module, run = self.loops[engine]
        log: Log = getattr(_module(module), run)(plan, **options)
        return log.checked()

    def summarise(self, *run: Any, **options: Any) -> tuple[Any, ...]:
        """Run a scenario; return the sums and the histograms of its requests."""
        found: tuple[Any, ...] = _module(self.sums).summarise(*run, **options)
        return found


def _module(name: str) -> Any:
    return import_module(f"batchsim.engines.{name}")


KINDS = {
    "requests": Kind(
        draw, {"simpy": ("reference.router", "run"), "compiled": ("compiled.routed", "run")},
        "compiled.summaries",
        {"simpy": 510, "compiled": 230, "routed": 240},  # in batches of one, which need most
        takes_model=True, folds=False,
    ),
    "tokens": Kind(
        draw_tokens,
        {"simpy": ("reference.router", "run_tokens"), "compiled": ("compiled.token_routed", "run")},
        "compiled.token_summaries", {"simpy": 400, "compiled": 400, "routed": 700},  # without steps
        takes_model=False, folds=True,
    ),
}  # fmt: skip
MEASURES["tokens"], MEASURES["requests"] = saturated, measured


# How much memory a run takes.

BYTES_A_STEP = 210
DEFAULT_BYTES = 2**30  # of steps, where the number of requests is the default


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


def room_for_steps(keep: str, requests: int | None) -> float:
    """Return the most steps of token generation before a run folds them."""
    if keep == "requests":
        return PIECE
    most = free_bytes() / 2
    return (most if requests is not None else min(most, DEFAULT_BYTES)) // BYTES_A_STEP


def free_bytes() -> float:
    """Return the free memory; without psutil (the extra `device`), half of all memory."""
    try:
        import psutil

        free: float = psutil.virtual_memory().available
    except ModuleNotFoundError:  # Windows has no sysconf
        pages = os.sysconf("SC_PHYS_PAGES") if hasattr(os, "sysconf") else math.inf
        free = pages * mmap.PAGESIZE / 2
    group = Path("/sys/fs/cgroup")
    with suppress(OSError, ValueError):  # no control groups, or "max": no limit of a container
        left = int((group / "memory.max").read_text()) - int((group / "memory.current").read_text())
        free = min(free, left)
    return free
