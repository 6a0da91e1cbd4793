"""Logs of token generation in files: what their arrays must be, and what is wrong with an edited one."""

from dataclasses import fields

import numpy as np

from batchsim.engines.folded_log import SPAN, FoldedLog
from batchsim.engines.log import Status
from batchsim.engines.token_log import NO_TRIGGER, STEPS, TokenHistograms, TokenLog, TokenTotals
from batchsim.result.metrics import COMPUTING
from batchsim.scenario.rules import Trigger

_KINDS = {
    "arrival_s": "f8", "batch_start_s": "f8", "batch_finish_s": "f8", "status": "u1", "batch_trigger": "u1",
    "preempted_before_s": "f8", "preempted_after_s": "f8",
}  # fmt: skip
NOT_KEPT = ("outputs", "priority")  # tokens go without levels
_KINDS |= dict.fromkeys(("start_s", "first_token_s", "finish_s"), "f8")
TOKEN_LOGS = {
    kind.__name__: {f.name: _KINDS.get(f.name, "i8") for f in fields(kind) if f.name not in NOT_KEPT}
    for kind in (TokenLog, FoldedLog)
}

# Besides those of a `Totals`: what a summary's numbers must be, and their shape.
TOKEN_TOTALS = {
    "computing_s": ("f8", (len(COMPUTING),)), "ttft_s": ("f8", ()), "tpot_s": ("f8", ()),
    "longer": ("i8", ()), "output_tokens": ("i8", ()), "preempted": ("i8", ()),
}  # fmt: skip


def wrong_in_token_sums(totals: TokenTotals, histograms: TokenHistograms) -> str | None:
    """Return the first rule that the sums of a run break beyond those of any run, None for sound ones."""
    numbers = [np.atleast_1d(getattr(totals, name)) for name in TOKEN_TOTALS]
    counts = vars(histograms)
    if not all(np.isfinite(each).all() and (each >= 0).all() for each in (*numbers, *counts.values())):
        return "sums must be finite and at least 0, got another"
    for name, wanted in {"ttft_ms": int(totals.statuses[Status.SERVED]), "tpot_ms": totals.longer}.items():
        if int(counts[name].sum()) != wanted:
            return f"counts of {name} must add up to {wanted:,}, got {counts[name].sum():,}"
    return None


def wrong_in_token_log(log: TokenLog, servers: int) -> str | None:
    """Return the first rule that a log breaks, None for a sound one."""
    requests, batches = log.arrival_s.size, log.batch_start_s.size
    sizes = dict.fromkeys(TOKEN_LOGS[type(log).__name__], requests) | dict.fromkeys(STEPS, batches)
    if isinstance(log, FoldedLog):
        sizes |= dict.fromkeys(STEPS[len(SPAN) :], 0) | {"most_at_once": 1}
        sizes |= dict.fromkeys(("steps_before", "rows_before"), requests + 1)
    for name, wanted in sizes.items():
        if (got := getattr(log, name).size) != wanted:
            return f"{name} must have {wanted:,} rows, got {got:,}"
    if not requests:
        return "there must be a request, got none"
    served = log.status == Status.SERVED
    first, token, last = (each[served] for each in (log.batch_index, log.token_step, log.last_step))
    lost = [each[~served] for each in (log.batch_index, log.token_step, log.last_step)]
    at_least_1 = (log.prompt_tokens, log.output_tokens, log.batch_size, log.step_tokens)
    counts = (log.preemptions, *(getattr(log, name) for name in STEPS if name.startswith("step_")))
    steps = log.steps
    trigger = log.batch_trigger
    checks = {
        "arrival_s must rise": _rises(log.arrival_s),
        "batch_start_s must rise": _rises(log.batch_start_s),
        "batch_finish_s must be after batch_start_s": (
            np.isfinite(log.batch_finish_s).all() and (log.batch_finish_s > log.batch_start_s).all()
        ),
        "batch_server must be a server": ((log.batch_server >= 0) & (log.batch_server < servers)).all(),
        "batch_trigger must be a Trigger": ((trigger < len(Trigger)) | (trigger == NO_TRIGGER)).all(),
        "status must be a Status": (log.status < len(Status)).all(),
        "lengths, rows and tokens must be at least 1": all((each >= 1).all() for each in at_least_1),
        "preempted times must be finite and at least 0": all(
            (np.isfinite(each) & (each >= 0)).all()
            for each in (log.preempted_before_s, log.preempted_after_s)
        ),
        "counts must be at least 0": all((each >= 0).all() for each in counts),
        "steps of a request must be in order, -1 where status is not SERVED": (
            (first >= 0).all() and (first <= token).all() and (token <= last).all() and (last < steps).all()
            and all((each == -1).all() for each in lost)
        ),
    }  # fmt: skip
    if isinstance(log, FoldedLog):
        times_s = np.stack([log.start_s, log.first_token_s, log.finish_s])
        checks |= {
            "times of a request must be in order, NaN where status is not SERVED": (
                np.isfinite(times_s[:, served]).all() and np.isnan(times_s[:, ~served]).all()
                and (np.diff(times_s[:, served], axis=0) >= 0).all()
            ),
            "server must be a server, -1 where status is not SERVED": (
                ((log.server[served] >= 0) & (log.server[served] < servers)).all()
                and (log.server[~served] == -1).all()
            ),
            "steps and rows before a request must rise from 0 on": all(
                (np.diff(each, prepend=0) >= 0).all() for each in (log.steps_before, log.rows_before)
            ),
            "most_at_once must be at least 0": log.most_running >= 0,
        }  # fmt: skip
    for rule, holds in checks.items():
        if not holds:
            return f"{rule}, got another"
    started_s = log.start_s[served] if isinstance(log, FoldedLog) else log.batch_start_s[first]
    if not (log.arrival_s[served] <= started_s).all():
        return "arrival_s must be before the start of the request's first step, got another"
    return None


def _rises(times_s: np.ndarray) -> bool:
    return bool(np.isfinite(times_s).all() and (np.diff(times_s) >= 0).all())
