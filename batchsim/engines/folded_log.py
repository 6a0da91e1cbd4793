"""The steps of a run of token generation: rows while they fit in memory, else what metrics need of them."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from batchsim.engines.gaps import GapFold, Gaps, in_blocks, merged_gaps
from batchsim.engines.token_log import LATE, NO_TRIGGER, STEPS, TokenLog

PIECE = 1 << 17  # steps that are folded at once
SPAN = STEPS[:5]  # the columns of batches
KEPT = (*SPAN, "step_gaps")  # the columns that are folded
# Columns of what was before the request came, and the sums of `TokenTotals` that they make.
BEFORE = {"steps_before": "batches", "rows_before": "items", "gaps_before": "gaps", "gaps_before_s": "itl_s"}
BEFORE |= {"joules_before": "joules"}
Watts = Callable[[np.ndarray], np.ndarray]  # as `Scenario.watts_at`
_KINDS: dict[str, Any] = {"batch_start_s": float, "batch_finish_s": float, "batch_trigger": np.uint8}


@dataclass(frozen=True, eq=False, kw_only=True)
class FoldedLog(TokenLog):
    """A log without rows of steps: requests have their times, and how much was computed before they came.

    The columns of batches have a row a whole batch, or under `Continuous` a row for each time that an engine
    computes without a pause. `batch_index`, `token_step` and `last_step` still number the steps. The columns
    `..._before` end with one row more, the total of the run. With replicas, steps are numbered replica after
    replica.
    """

    ROWS: ClassVar = TokenLog.ROWS | {
        **dict.fromkeys(STEPS[len(SPAN) :], "folded"),  # these have no rows
        **dict.fromkeys((*BEFORE, "most_at_once"), ""),
        **dict.fromkeys(("gaps_at_s", "gaps_s", "gaps_count"), "gaps"),
    }

    start_s: np.ndarray
    first_token_s: np.ndarray
    finish_s: np.ndarray
    server: np.ndarray  # of the last step; -1: not served
    steps_before: np.ndarray  # that began before the request came
    rows_before: np.ndarray  # of those steps
    most_at_once: np.ndarray  # requests that an engine ran, shape (1,)
    # The gaps between tokens that ended by the time the request came, their sum, and the energy of the steps
    # that had ended; None in older files, and the energy where `watts` is.
    gaps_before: np.ndarray | None = None
    gaps_before_s: np.ndarray | None = None
    joules_before: np.ndarray | None = None
    # Gaps between tokens, as `gaps.in_blocks`; None in older files.
    gaps_at_s: np.ndarray | None = None
    gaps_s: np.ndarray | None = None
    gaps_count: np.ndarray | None = None

    @property
    def steps(self) -> int:
        return int(self.steps_before[-1])

    @property
    def most_running(self) -> int:
        return int(self.most_at_once.max())


class Progress(NamedTuple):
    """How far the requests are that have come so far: their columns, as in a `TokenLog`."""

    arrival_s: np.ndarray
    first_step: np.ndarray
    token_step: np.ndarray
    last_step: np.ndarray


class StepRows:
    """The rows of a run's steps; beyond `room` steps they are folded during the run.

    For one of several replicas, `arrival_s` holds the arrivals at all of them. `watts`: what a server draws
    in steps of so many rows; None: it is not asked for.
    """

    def __init__(
        self, room: float, requests: int, arrival_s: np.ndarray | None = None, watts: Watts | None = None
    ) -> None:
        self.room, self.count, self.most_running = room, 0, 0
        self.arrival_s, self.watts = arrival_s, watts
        self.pieces: list[dict[str, np.ndarray]] = []  # of steps that are not folded
        self.folded = 0  # steps
        self.rows = self.came = 0  # rows of these steps, and requests that came before the last of them began
        self.times_s = np.full((3, requests), math.nan)  # start, first token, finish
        self.server = np.full(requests, -1)
        every = requests if arrival_s is None else arrival_s.size
        self.before = np.zeros((2, every + 1), np.int64)  # steps and rows
        amounts = 2 if watts is None else 3  # gaps, their sum, and joules
        self.ended_before = np.zeros((amounts, every + 1))
        # What ended so far, and in order of time what ends later, which is not before every further arrival.
        self.ended, self.ending = np.zeros(amounts), np.empty((1 + amounts, 0))
        self.spans: list[list[np.ndarray]] = []  # columns as SPAN, and the number of the first step
        self.late: list[np.ndarray] = [np.empty((3, 0))]  # rows as `LATE` that are not folded
        self.gap_fold, self.gaps = GapFold(), list[Gaps]()
        self.open: list[np.ndarray] = [np.empty(0, _KINDS.get(name, np.int64)) for name in (*SPAN, "number")]

    def add(self, columns: Sequence[Any], late: Any) -> None:
        """Add the next steps, in the order of STEPS, and their rows of `LATE`."""
        names = KEPT if self.folds else STEPS
        piece = {
            name: np.array(column, _KINDS.get(name, np.int64))
            for name, column in zip(STEPS, columns, strict=True) if name in names
        }  # fmt: skip
        self.pieces.append(piece)
        if np.size(late):
            self.late.append(np.array(late, float))
        self.most_running = max(
            self.most_running, int(np.max(columns[STEPS.index("step_running")], initial=0))
        )
        self.count += piece[SPAN[0]].size

    @property
    def folds(self) -> bool:
        """Whether there are more steps than there is room for."""
        return self.count > self.room

    @property
    def due(self) -> bool:
        """Whether it is time to fold."""
        return self.folds and self.count - self.folded >= PIECE

    def fold(self, known: Progress, until: int) -> None:
        """Fold the steps that have ended, those before number `until`."""
        first, last = self.folded, until
        if last == first:
            return
        columns = {name: np.concatenate([piece[name] for piece in self.pieces]) for name in KEPT}
        self.pieces = [{name: column[last - first :] for name, column in columns.items()}]
        start_s, finish_s, rows, server, trigger, gaps = (
            column[: last - first] for column in columns.values()
        )
        late = merged_gaps(self.late)
        self.late = [late[:, late[0] >= last]]
        ended = self.gap_fold.gaps(first, finish_s, server, gaps, late[:, late[0] < last])
        self.gaps.append(in_blocks(ended))
        self.folded = last

        def note(steps: np.ndarray, column: np.ndarray, to: np.ndarray) -> None:
            these = np.flatnonzero((steps >= first) & (steps < last))
            to[these] = column[steps[these] - first]

        note(known.first_step, start_s, self.times_s[0])
        note(known.token_step, finish_s, self.times_s[1])
        note(known.last_step, finish_s, self.times_s[2])
        note(known.last_step, server, self.server)

        arrival_s = known.arrival_s if self.arrival_s is None else self.arrival_s
        came = int(np.searchsorted(arrival_s, start_s[-1], side="right"))
        begun = np.searchsorted(start_s, arrival_s[self.came : came])
        sums = self.rows + np.concatenate([[0], np.cumsum(rows)])
        self.before[:, self.came : came] = first + begun, sums[begun]
        ending: list[tuple[Any, ...]] = [(ended.at_s, ended.counts, ended.counts * ended.gap_s, 0.0)]
        if self.watts is not None:
            ending.append((finish_s, 0.0, 0.0, self.watts(rows) * (finish_s - start_s)))
        self._note_ended(arrival_s[self.came : came], start_s[-1], *ending)
        self.came, self.rows = max(came, self.came), int(sums[-1])
        self.before[:, self.came :] = [[last], [self.rows]]  # for now of all who come later

        number = np.arange(first, last)
        table = [
            np.concatenate(pair)
            for pair in zip(self.open, (start_s, finish_s, rows, server, trigger, number), strict=True)
        ]
        if (table[3] != table[3][0]).any():  # of several engines
            order = np.argsort(table[3], kind="stable")
            table = [column[order] for column in table]
        start_s, finish_s, rows, server, trigger, number = table
        begins = np.ones(number.size, bool)
        goes_on = (server[1:] == server[:-1]) & (start_s[1:] == finish_s[:-1]) & (trigger[1:] == NO_TRIGGER)
        begins[1:] = ~goes_on
        begin = np.flatnonzero(begins)
        end = np.append(begin[1:], number.size) - 1
        spans = [
            start_s[begin], finish_s[end], rows[begin], server[begin], trigger[begin], number[begin],
        ]  # fmt: skip
        # The last span of each engine: its next step may extend it.
        latest = np.append(spans[3][1:] != spans[3][:-1], True)
        self.open = [column[latest] for column in spans]
        self.spans.append([column[~latest] for column in spans])

    def _note_ended(self, arrival_s: np.ndarray, until_s: float, *more: Sequence[Any]) -> None:
        """Note what ended by the arrival of each of the next requests, which came by `until_s`.

        `more` ends: columns of times and amounts, or a number for each row.
        """
        from batchsim.engines.compiled.token_folds import note_ended  # Numba loads with it

        parts: list[Any] = [self.ending, *more]
        at = 0
        ending = np.empty((len(self.ending), sum(part[0].size for part in parts)))
        for part in parts:
            for row, column in zip(ending, part, strict=False):
                row[at : at + part[0].size] = column
            at += part[0].size
        order, arrival_s = np.argsort(ending[0], kind="stable"), np.array(arrival_s)
        before, last = np.empty((self.ended.size, arrival_s.size)), np.empty(self.ended.size)
        passed = note_ended(ending, order, arrival_s, float(until_s), self.ended, before, last)
        self.ended_before[:, self.came : self.came + arrival_s.size] = before
        self.ended_before[:, -1], self.ending = last, ending[:, order[passed:]]

    def log(self, known: Progress, **requests: Any) -> TokenLog:
        """Return the log of a run that is over, with its other columns of requests."""
        requests |= {"batch_index": known.first_step, "arrival_s": known.arrival_s}
        requests |= {"token_step": known.token_step, "last_step": known.last_step}
        if not self.folds:
            logged: dict[str, Any] = {}
            for name in STEPS:  # each column's pieces go as it is joined
                empty = np.empty(0, _KINDS.get(name, np.int64))
                logged[name] = np.concatenate([empty, *(piece.pop(name) for piece in self.pieces)])
            self.pieces.clear()
            step, from_s, count = merged_gaps(self.late)
            late = step.astype(np.int64), from_s, count.astype(np.int64)
            return TokenLog(**requests, **logged, **dict(zip(LATE, late, strict=True)))
        self.fold(known, self.count)
        arrival_s = known.arrival_s if self.arrival_s is None else self.arrival_s
        self._note_ended(arrival_s[self.came :], math.inf)
        spans = [np.concatenate(column) for column in zip(*self.spans, self.open, strict=True)]
        order = np.argsort(spans[-1])
        logged = {name: column[order] for name, column in zip(SPAN, spans[:-1], strict=True)}
        logged |= {name: np.empty(0, np.int64) for name in STEPS[len(SPAN) :]}
        gaps = Gaps.joined(self.gaps)
        start_s, first_token_s, finish_s = self.times_s
        steps_before, rows_before = self.before
        gaps_before, gaps_before_s, *joules_before = self.ended_before
        return FoldedLog(
            **requests, **logged, start_s=start_s, first_token_s=first_token_s, finish_s=finish_s,
            server=self.server, steps_before=steps_before, rows_before=rows_before,
            gaps_before=gaps_before.astype(np.int64), gaps_before_s=gaps_before_s,
            joules_before=joules_before[0] if joules_before else None,
            most_at_once=np.array([self.most_running]), gaps_at_s=gaps.at_s, gaps_s=gaps.gap_s,
            gaps_count=gaps.counts.astype(np.int64),
        )  # fmt: skip


def folded(log: TokenLog, arrival_s: np.ndarray | None = None, watts: Watts | None = None) -> FoldedLog:
    """Return the log of one queue without its rows of steps; `arrival_s` and `watts` as in `StepRows`."""
    if isinstance(log, FoldedLog):
        return log
    rows = StepRows(-1, log.arrival_s.size, arrival_s, watts)
    late = [getattr(log, name) for name in LATE]
    columns = [getattr(log, name) for name in STEPS]
    if log.step_gaps is None:  # of an older file
        columns[STEPS.index("step_gaps")], late = np.zeros(log.steps, np.int64), []
    rows.add(columns, late)
    own = (
        "status", "prompt_tokens", "output_tokens", "preemptions", "preempted_before_s", "preempted_after_s",
        "stall_s",
    )  # fmt: skip
    known = Progress(log.arrival_s, log.batch_index, log.token_step, log.last_step)
    short = rows.log(known, **{name: getattr(log, name) for name in own})
    assert isinstance(short, FoldedLog)
    return short
