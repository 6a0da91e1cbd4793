"""The gaps between the tokens of requests: how long, and how many, as a fold over steps.

Nearly all tokens of a step follow a token of the same request at the end of the engine's step before: a step
needs one number, how many. Other gaps are late: after a preemption, a step of prompts alone, or a step whose
budget was too small. So a run's gaps take a few numbers a step, however many tokens there are.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from batchsim._clock import between
from batchsim._compat import reduceat
from batchsim.engines.totals import middles_s

BLOCK = 512  # steps whose gaps share one time, in a log without rows of steps


class Gaps(NamedTuple):
    """Rows of equal gaps: when they end, their length, and how many they are."""

    at_s: np.ndarray
    gap_s: np.ndarray
    counts: np.ndarray

    @classmethod
    def joined(cls, parts: Sequence["Gaps"]) -> "Gaps":
        """Return the rows of several parts."""
        return cls(*map(np.concatenate, zip(cls(*np.empty((3, 0))), *parts, strict=True)))


def merged_gaps(late: Sequence[np.ndarray]) -> np.ndarray:
    """Return rows as `LATE`, in order of step and time, those with both the same as one: shape (3, rows)."""
    rows = np.concatenate([np.empty((3, 0)), *late], axis=1)
    rows = rows[:, np.lexsort(rows[1::-1])]
    begins = np.flatnonzero(np.append(True, (np.diff(rows[:2]) != 0).any(axis=0))[: rows.shape[1]])
    counts = reduceat(np.add, rows[2], begins) if begins.size else np.empty(0)
    return np.array([*rows[:2, begins], counts])


class GapFold:
    """The gaps of steps, chunk after chunk."""

    def __init__(self) -> None:
        self._ended_s: dict[int, float] = {}  # when the last step of each engine ended

    def gaps(
        self, first: int, finish_s: np.ndarray, server: np.ndarray, count: np.ndarray, late: np.ndarray
    ) -> Gaps:
        """Return the gaps that end with the next steps, numbered from `first` on."""
        one = server.min(initial=0) == server.max(initial=0)  # then nothing needs another order
        order: Any = slice(None) if one else np.argsort(server, kind="stable")
        servers, ends_s, count = server[order], finish_s[order], count[order]
        before_s = np.empty_like(ends_s)
        before_s[1:] = ends_s[:-1]
        begins = np.flatnonzero(np.diff(servers, prepend=-1))
        for at, last in zip(begins, np.append(begins[1:], servers.size) - 1, strict=False):
            number = int(servers[at])
            before_s[at], self._ended_s[number] = self._ended_s.get(number, 0.0), float(ends_s[last])
        kept = count > 0
        at_s, counts = ends_s[kept], count[kept]
        late_s = finish_s[late[0].astype(np.int64) - first]
        regular = Gaps(at_s, between(before_s[kept], at_s), counts)
        return Gaps.joined([regular, Gaps(late_s, between(late[1], late_s), late[2])])


def in_blocks(gaps: Gaps) -> Gaps:
    """Return gaps to 0.1 %, as a histogram has them, with one time for those of `BLOCK` rows."""
    from batchsim.engines.compiled.token_folds import note_blocks  # Numba loads with it

    order, found = np.argsort(gaps.at_s, kind="stable"), np.empty((3, gaps.at_s.size))
    at_s, bins, counts = found[:, : note_blocks(*map(np.array, gaps), order, BLOCK, found)]
    return Gaps(at_s.copy(), middles_s()[bins.astype(np.int64)], counts.copy())
