"""The log of a run: what an engine returns."""

import math
import threading
from collections.abc import Sequence
from contextvars import ContextVar
from dataclasses import dataclass, fields
from enum import IntEnum
from typing import Any, ClassVar, Self

import numpy as np

from batchsim._clock import check_time
from batchsim._compat import repeat


class Status(IntEnum):
    """The end of a request."""

    SERVED = 0
    REJECTED = 1  # the queue was at its limit
    TIMED_OUT = 2  # its timeout was over
    FAILED = 3  # only in a replay: the model raised on its batch, or the run was stopped first


@dataclass(frozen=True, eq=False)
class Log:
    """What happened: a row for each request in order of arrival, and for each batch in order of start."""

    # Columns that number rows, -1 for none: which property counts these rows.
    NUMBERS: ClassVar[dict[str, str]] = {"batch_index": "steps"}
    # Columns whose rows are not requests, and what their rows are.
    ROWS: ClassVar[dict[str, str]] = {
        f"batch_{name}": "steps" for name in ("start_s", "finish_s", "size", "server", "trigger")
    } | {"outputs": "", "scaling": ""}

    arrival_s: np.ndarray
    batch_index: np.ndarray  # -1: not served
    status: np.ndarray  # uint8 of `Status`
    batch_start_s: np.ndarray
    batch_finish_s: np.ndarray
    batch_size: np.ndarray
    batch_server: np.ndarray
    batch_trigger: np.ndarray  # uint8 of `Trigger`
    priority: np.ndarray | None = None  # uint8, the level of each request; None without priorities
    outputs: list[Any] | None = None
    size: np.ndarray | None = None  # of each request, as it was sent; None without sizes
    replica: np.ndarray | None = None  # uint16, where the router sent each request; None with one replica
    # A row for each evaluation of an autoscaler, from time 0 on: when, its signal, and how many replicas are
    # asked for, and up; None without one.
    scaling: np.ndarray | None = None

    @property
    def requests(self) -> int:
        """How many requests there were."""
        return self.arrival_s.size

    @property
    def steps(self) -> int:
        """How many batches, or steps of token generation, there were."""
        return self.batch_start_s.size

    def checked(self) -> Self:
        """Return the log, or raise ValueError if a time is later than the clock counts."""
        check_time("finishes", max(float(self.arrival_s[-1]), self.last_s), "take fewer requests")
        return self

    @property
    def last_s(self) -> float:
        """When the last batch finishes; 0 without one."""
        return float(self.batch_finish_s.max(initial=0.0))

    @classmethod
    def join(cls, logs: Sequence["Log"]) -> Self:
        """Return the logs of several runs as one, with their rows numbered through."""
        columns = {f.name: [getattr(log, f.name) for log in logs] for f in fields(cls) if f.name != "outputs"}
        joined: dict[str, Any] = {
            name: np.concatenate(column)
            for name, column in columns.items()
            if all(each is not None for each in column)
        }
        for name, counted in cls.NUMBERS.items():
            if name in joined:
                before = np.cumsum([0, *(getattr(log, counted) for log in logs[:-1])])
                shift = repeat(before, [column.size for column in columns[name]])
                joined[name] = np.where(joined[name] < 0, -1, joined[name] + shift)
        return cls(**joined)


def warmup_requests(fraction: float, requests: int) -> int:
    """Return how many requests a warm-up drops.

    >>> warmup_requests(0.29, 100)  # although 0.29 * 100 is 28.999999999999996
    29
    """
    return min(math.floor(fraction * requests + 1e-9), requests - 1)


# Set by a job with several threads: the event that stops the runs of all of them.
CANCELLED: ContextVar[threading.Event | None] = ContextVar("cancelled", default=None)


def check_cancelled(cancelled: threading.Event | None) -> None:
    """Raise InterruptedError if `cancelled` is set."""
    if cancelled is not None and cancelled.is_set():
        raise InterruptedError("another run was stopped")
