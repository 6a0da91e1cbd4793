"""A run of token generation: its columns, its steps, and what their sections add up to."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from batchsim import _check
from batchsim._clock import between_ms, in_ms, ms_on_grid, on_grid
from batchsim._compat import kept
from batchsim.engines.autoscaling import add_scaling
from batchsim.engines.folded_log import BEFORE, FoldedLog
from batchsim.engines.gaps import GapFold, Gaps
from batchsim.engines.log import Status
from batchsim.engines.token_log import NO_TRIGGER, TokenLog
from batchsim.engines.totals import BINS, Histogram
from batchsim.result.metrics import COMPONENTS, COMPUTING, ITL, LATENCY, STALL, TPOT, TTFT, Metrics
from batchsim.result.run import Batches, Run
from batchsim.result.sections import Sections, section_edges
from batchsim.result.value_columns import Columns, OrderStatistics, Weighted, limits_of, part_of_limits
from batchsim.scenario import Continuous

if TYPE_CHECKING:
    import pandas

NO_TOKENS = "tokens are needed (Scenario(..., tokens=...)), got a run without"
AT_ONCE = "limits at once need columns, got a run with keep='summary': ask one by one"
NO_STEPS = "steps must be kept to be read, got {:,} that were not: simulate fewer requests"
OBJECTIVE = "objective_ms"  # a limit on the latency, as `Result.attainment` has it


@dataclass(frozen=True, eq=False)
class Steps:
    """Columns with a row a step, numbered by start."""

    start_s: np.ndarray
    finish_s: np.ndarray
    server: np.ndarray
    rows: np.ndarray
    tokens: np.ndarray
    reads: np.ndarray
    pairs: np.ndarray
    running: np.ndarray
    waiting: np.ndarray
    kv_blocks: np.ndarray  # in use
    preempted: np.ndarray
    gaps: np.ndarray  # between tokens that it ends, and its engine's step before began; 0 in old files

    @classmethod
    def of(cls, log: TokenLog) -> "Steps":
        """Return the steps of a log; ValueError where they are folded."""
        if isinstance(log, FoldedLog):
            raise ValueError(NO_STEPS.format(log.steps))
        return cls(
            log.batch_start_s, log.batch_finish_s, log.batch_server, log.batch_size, log.step_tokens,
            log.step_reads, log.step_pairs, log.step_running, log.step_waiting, log.step_blocks,
            log.step_preempted, np.zeros(log.steps, np.int64) if log.step_gaps is None else log.step_gaps,
        )  # fmt: skip

    def __len__(self) -> int:
        return self.start_s.size

    def __repr__(self) -> str:
        return f"Steps({len(self):,} steps)"

    def to_frame(self) -> "pandas.DataFrame":
        """Return a DataFrame with a row a step."""
        import pandas

        return pandas.DataFrame(dict(vars(self)))


def batches_of(log: TokenLog) -> Batches:
    """Return the whole batches of a log, or of continuous batching every step as a batch of its rows."""
    left = log.batch_trigger != NO_TRIGGER
    columns = [log.batch_start_s, log.batch_finish_s, log.batch_size, log.batch_server, log.batch_trigger]
    if isinstance(log, FoldedLog) and not left.all():
        raise ValueError(NO_STEPS.format(log.steps))
    if isinstance(log, FoldedLog) or not left.any():
        return Batches(*columns)
    ends_s = log.batch_finish_s.copy()
    served = log.batch_index >= 0
    ends_s[log.batch_index[served]] = log.batch_finish_s[log.last_step[served]]  # all leave together
    columns[1] = ends_s
    return Batches(*(column[left] for column in columns))


def tpot_ms(token_s: np.ndarray, finish_s: np.ndarray, outputs: np.ndarray) -> np.ndarray:
    """Return the time of each request for each token after its first; NaN without such a token."""
    with np.errstate(invalid="ignore", divide="ignore"):
        return between_ms(token_s, finish_s, np.where(outputs > 1, outputs - 1, math.nan))


@dataclass(frozen=True, eq=False)
class TokenRun(Run):
    """One simulation of token generation."""

    @property
    def log(self) -> TokenLog:
        assert isinstance(super().log, TokenLog)
        return super().log  # type: ignore[return-value]

    @kept
    def steps(self) -> Steps:
        return Steps.of(self.log)

    def _end_of(self, step: np.ndarray) -> np.ndarray:
        # Index -1, not served, finds the NaN appended at the end.
        return np.append(self.log.batch_finish_s, math.nan)[step]

    @kept
    def start_s(self) -> np.ndarray:
        log = self.log
        return log.start_s if isinstance(log, FoldedLog) else self._of_its_batch(log.batch_start_s)

    @kept
    def finish_s(self) -> np.ndarray:
        log = self.log
        return log.finish_s if isinstance(log, FoldedLog) else self._end_of(log.last_step)

    @kept
    def first_token_s(self) -> np.ndarray:
        log = self.log
        return log.first_token_s if isinstance(log, FoldedLog) else self._end_of(log.token_step)

    def _forming_s(self) -> np.ndarray:
        return self.server_time.forming_between_s(self.log.arrival_s, self.start_s)

    @kept
    def latency_ms(self) -> np.ndarray:
        return between_ms(self.log.arrival_s, self.finish_s)

    @kept
    def ttft_ms(self) -> np.ndarray:
        return between_ms(self.log.arrival_s, self.first_token_s)

    @kept
    def tpot_ms(self) -> np.ndarray:
        return tpot_ms(self.first_token_s, self.finish_s, self.log.output_tokens)

    @kept
    def stall_ms(self) -> np.ndarray:
        stall_s = self.log.stall_s
        known = (self.log.status == Status.SERVED) & (self.log.output_tokens > 1) & (stall_s is not None)
        return np.where(known, in_ms(np.float64(math.nan) if stall_s is None else stall_s), math.nan)

    @kept
    def gaps(self) -> Gaps:
        """The gaps between tokens that end after the warm-up, in rows of equal ones; none in old files."""
        log, skip = self.log, self.warmup_requests
        gaps = Gaps.joined([])
        if isinstance(log, FoldedLog):
            columns = [log.gaps_at_s, log.gaps_s, log.gaps_count]
            gaps = Gaps.joined([Gaps(*columns)] if log.gaps_s is not None else [])  # type: ignore[arg-type]
        elif log.step_gaps is not None:
            late = np.array([log.late_step, log.late_from_s, log.late_gaps], float)
            gaps = GapFold().gaps(0, log.batch_finish_s, log.batch_server, log.step_gaps, late)
        kept = gaps.at_s > (log.arrival_s[skip] if skip else 0.0)
        return Gaps(*(column[kept] for column in gaps))

    @kept
    def prefill_ms(self) -> np.ndarray:
        return (self.first_token_s - self.start_s - self.log.preempted_before_s) * 1000

    @kept
    def decode_ms(self) -> np.ndarray:
        return (self.finish_s - self.first_token_s - self.log.preempted_after_s) * 1000

    @kept
    def preempted_ms(self) -> np.ndarray:
        away_s = self.log.preempted_before_s + self.log.preempted_after_s
        return np.where(self.log.status == Status.SERVED, away_s * 1000, math.nan)

    @property
    def measured(self) -> dict[str, np.ndarray]:
        columns = {LATENCY: self.latency_ms, TTFT: self.ttft_ms, TPOT: self.tpot_ms, STALL: self.stall_ms}
        return Columns(columns, lambda name: part_of_limits(columns, name))

    def meeting(self, limits_ms: Mapping[str, float]) -> int:
        """Return how many requests after the warm-up were served within limits on `measured`, all of them.

        One that makes a single token has no TPOT, and keeps any limit on it.
        """
        if self.columns is not None:
            met = self.log.status == Status.SERVED
            for name, limit_ms in limits_ms.items():
                met &= ~(self.measured[name] > limit_ms)
            return int(np.count_nonzero(met[self.warmup_requests :]))
        if len(limits_ms) > 1:
            raise ValueError(AT_ONCE)
        ((name, limit_ms),) = limits_ms.items()
        exempt = self.metrics.served - self.metrics.values_in(name)
        return self.metrics.columns[name].within(limit_ms) + exempt

    @kept
    def metrics(self) -> Metrics:
        if self.sums is not None:
            totals, counts = self.sums
            histograms = {
                name: Histogram(np.zeros(BINS, np.int64) if each is None else each)
                for name, each in vars(counts).items()
            }
            return Metrics(self.scenario, totals, Columns(histograms, _not_kept))
        measured, skip = self.measured, self.warmup_requests

        def ordered(name: str) -> OrderStatistics | Weighted:
            if name == ITL:
                return Weighted(in_ms(self.gaps.gap_s), self.gaps.counts)
            kept = measured[name][skip:]
            return OrderStatistics(kept[~np.isnan(kept)])

        columns = Columns({name: ordered(name) for name in (LATENCY, TTFT, TPOT, STALL, ITL)}, ordered)
        return Metrics(self.scenario, self.sections.whole(), columns)

    def sections_at(self, ends: np.ndarray | None) -> Sections:
        """Return sections of the run, as `Sections.of_log`."""
        from batchsim.engines.compiled.columns import Batches as Columns  # Numba loads with it
        from batchsim.engines.compiled.token_totals import Answers, TokenTotal

        log, continuous = self.log, isinstance(self.scenario.rule, Continuous)
        cuts, edges_s = section_edges(log, self.warmup_requests, ends)
        total = TokenTotal(edges_s, watts=self.scenario.watts_at)
        total.add_windows(cuts)
        total.add_batches(Columns.of(log), log.batch_start_s.size, whole=not continuous)
        columns = (
            log.arrival_s, self.start_s, self.first_token_s, self.finish_s, self.forming_ms / 1000,
            log.preempted_before_s, log.preempted_after_s, log.output_tokens, log.status, log.preemptions,
            on_grid(self.stall_ms / 1000),
        )  # fmt: skip
        total.add_gaps(self.gaps)
        total.add_answers(Answers(*columns), cuts)
        add_scaling(total.totals, self.scenario, log, total.edges_s)
        if isinstance(log, FoldedLog):  # its rows are not steps, but they are whole batches
            total.totals.joules[:] = 0.0 if self.scenario.watts is None else math.nan  # NaN of an older file
            for name, of in BEFORE.items():
                if (column := getattr(log, name)) is not None and (
                    continuous or of not in ("batches", "items")
                ):
                    getattr(total.totals, of)[:] = np.diff(column[cuts])
        return Sections.of_columns(self.scenario, total.totals, self.measured, cuts, total.edges_s, self.gaps)


def _not_kept(name: str) -> Any:
    if limits_of(name):
        raise ValueError(AT_ONCE)
    raise KeyError(name)


def meeting(runs: Sequence[Run], **limits_ms: float | None) -> int:
    """Return how many requests of some runs were served within those limits that are not None."""
    given = {
        name: ms_on_grid(_check.real(name, limit_ms, at_least=0))
        for name, limit_ms in limits_ms.items()
        if limit_ms is not None
    }
    if not given:
        raise ValueError("a limit must be given, as objective_ms, ttft_ms or tpot_ms, got none")
    if {*given} == {OBJECTIVE}:
        return sum(run.metrics.within(given[OBJECTIVE]) for run in runs)
    met = 0
    for run in runs:
        if not isinstance(run, TokenRun):
            raise ValueError(NO_TOKENS)
        met += run.meeting({LATENCY if name == OBJECTIVE else name: ms for name, ms in given.items()})
    return met


def frame_of(columns: Any, log: TokenLog) -> "pandas.DataFrame":
    """Return a DataFrame with a row a request; `columns` has them as attributes, as a run or a result."""
    import pandas

    server = log.server if isinstance(log, FoldedLog) else np.append(log.batch_server, -1)[log.last_step]
    times = ("arrival_s", "start_s", "first_token_s", "finish_s", "latency_ms", TTFT, TPOT, STALL)
    return pandas.DataFrame({
        **{name: getattr(columns, name) for name in times},
        **{name: getattr(columns, name) for name in (f"{part}_ms" for part in (*COMPONENTS, *COMPUTING))},
        "prompt_tokens": log.prompt_tokens,
        "output_tokens": log.output_tokens,
        "preemptions": log.preemptions,
        "server": server,
        "status": [Status(state).name.lower() for state in log.status],
        **({} if log.replica is None else {"replica": log.replica}),
    })  # fmt: skip


# By kind of run, see `engines/kinds.py`.
RUNS: dict[str, type[Run]] = {"requests": Run, "tokens": TokenRun}
