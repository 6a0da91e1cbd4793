"""Results in files.

A file is NumPy's .npz, a zip of arrays: a result has columns of two lengths, requests and batches,
which one table (as in Parquet) has not. `numpy.load` reads it without batchsim. In it are "about",
JSON as UTF-8 bytes; "times_s", the arrival times of a trace; and the arrays of each run, named by
run, class and field, as in "0/Log/arrival_s".
"""

import dataclasses
import json
import math
import os
import zipfile
from collections import defaultdict
from collections.abc import Container, Mapping, Sequence
from dataclasses import fields
from typing import Any, BinaryIO, NamedTuple

import numpy as np
from numpy.lib import format as npy

from batchsim import _check
from batchsim._files import replacing
from batchsim._version import __version__
from batchsim.engines.folded_log import SPAN, FoldedLog
from batchsim.engines.log import Log, Status
from batchsim.engines.token_log import NO_TRIGGER, PREEMPTIONS, STEPS, TokenLog
from batchsim.engines.totals import BINS, Histogram, TokenHistograms, TokenTotals, Totals
from batchsim.result.metrics import COMPUTING
from batchsim.result.run import Run, clock_of
from batchsim.result.token_run import TokenRun
from batchsim.scenario import Continuous, Scenario
from batchsim.scenario.rules import Trigger
from batchsim.scenario.toml import from_tables, to_tables

_KINDS = {
    "arrival_s": "f8", "batch_start_s": "f8", "batch_finish_s": "f8", "status": "u1", "batch_trigger": "u1",
    "preempted_before_s": "f8", "preempted_after_s": "f8",
}  # fmt: skip
NOT_KEPT = ("outputs", "priority")  # tokens go without levels
_KINDS |= dict.fromkeys(("start_s", "first_token_s", "finish_s"), "f8")
TOKEN_LOGS = {
    kind.__name__: {
        f.name: _KINDS.get(f.name, "i8") for f in fields(kind) if f.name not in (*NOT_KEPT, *PREEMPTIONS)
    }
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
    if log.preempted_request is not None:
        sizes |= dict.fromkeys(PREEMPTIONS, int(log.preemptions.sum()))
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
    if log.preempted_request is not None:
        request, back, resumed, regained = (getattr(log, name) for name in PREEMPTIONS)
        checks["preempted_request must have each request as often as preemptions has it"] = np.array_equal(
            np.sort(request), np.repeat(np.arange(requests), log.preemptions)
        )
        checks["steps of a preemption must be in order, -1 for none"] = (
            ((back >= 0) & (back < steps) & (resumed < steps) & (regained < steps)).all()
            and ((resumed == -1) | (resumed >= back)).all()
            and ((regained == -1) | (regained >= resumed)).all()
        )  # fmt: skip
    for rule, holds in checks.items():
        if not holds:
            return f"{rule}, got another"
    started_s = log.start_s[served] if isinstance(log, FoldedLog) else log.batch_start_s[first]
    if not (log.arrival_s[served] <= started_s).all():
        return "arrival_s must be before the start of the request's first step, got another"
    return None


def _rises(times_s: np.ndarray) -> bool:
    return bool(np.isfinite(times_s).all() and (np.diff(times_s) >= 0).all())


FORMAT = "batchsim result"
VERSION = 4  # 1 had no triggers of batches, 2 no delayed requests, 3 no rows of preemptions
READABLE = (3, VERSION)


def save(runs: Sequence[Run], about: Mapping[str, Any], path: str | os.PathLike[str]) -> None:
    """Write runs to `path` in one step, with what is known `about` all: an old file is not lost half-way.

    A model's outputs, which may be anything, are left out with a warning. What no file can hold, such as a
    rule of one's own, is refused with TypeError.
    """
    first, about = runs[0], {**about, "warmup": runs[0].warmup}
    for name, value in about.items():
        if not isinstance(value, (str, int, float, type(None))):  # JSON would return a list for a tuple
            raise TypeError(f"{name} must be text or a number to be saved, got {value!r}")
    scenario: dict[str, Any] = to_tables(first.scenario)
    arrays: dict[str, Any] = {}
    if "times_s" in scenario["workload"]:
        arrays["times_s"] = np.array(scenario["workload"].pop("times_s"))
    for number, run in enumerate(runs):
        for table in (run.columns, *(run.sums or ())):
            for name in (f.name for f in dataclasses.fields(table) if f.name != "outputs") if table else ():
                column = getattr(table, name)
                if column is not None and (name not in DEVICE_TOTALS or column or first.scenario.devices):
                    arrays[f"{number}/{type(table).__name__}/{name}"] = np.asarray(column)
    description = {
        "format": FORMAT, "version": VERSION, "batchsim": __version__, "scenario": scenario,
        "result": about, "runs": len(runs),
    }  # fmt: skip
    arrays["about"] = np.frombuffer(json.dumps(description).encode(), dtype=np.uint8)
    # Columns shrink to 40 %, in 30 times the time; histograms, nearly all zeros, to 1 %.
    write = np.savez_compressed if first.columns is None and "times_s" not in arrays else np.savez
    with replacing(path) as file:
        write(file, **arrays)
    if first.columns is not None and first.columns.outputs is not None:
        _check.warn("a model's outputs are not saved with its result")


def load(path: str | os.PathLike[str]) -> tuple[tuple[Run, ...], dict[str, Any]]:
    """Return what `save` was given; a file that is anything else, or was edited, raises ValueError."""
    with _check.path("path", path).open("rb") as file:
        try:
            return _read(file)
        except MemoryError:
            raise
        except Exception as error:  # a damaged zip raises nearly anything
            raise ValueError(f"{os.fspath(path)} must be a saved result: {error}") from error


def _read(file: BinaryIO) -> tuple[tuple[Run, ...], dict[str, Any]]:
    with zipfile.ZipFile(file) as archive:
        members = {info.filename.removesuffix(".npy"): info for info in archive.infolist()}
        if len(members) < len(archive.infolist()):
            raise ValueError("its arrays must have different names")
        if sum(info.compress_size for info in members.values()) > os.fstat(file.fileno()).st_size:
            raise ValueError("its arrays must not overlap")
        if "about" not in members:
            raise ValueError("it must have an 'about', got none")
        description = json.loads(_array(archive, members["about"], ABOUT).tobytes())
        if not isinstance(description, dict) or description.get("format") != FORMAT:
            raise ValueError(f"its format must be {FORMAT!r}, got {description!r:.60}")
        version = _check.whole("its version", description.get("version"))
        if version not in READABLE:
            other = "a newer batchsim can load it" if version > VERSION else "simulate it again"
            written = f"{version}, of batchsim {description.get('batchsim')}"
            raise ValueError(f"its version must be {VERSION}, got {written}: {other}")
        tables, about = description["scenario"], dict(description["result"])
        runs = _check.whole("its runs", description["runs"], at_most=len(members))
        kinds = _kinds(members, runs)
        for how, others in (("no", {*kinds} - {*members}), ("an unknown", {*members} - {*kinds, "about"})):
            if others:
                raise ValueError(f"its arrays must be those of its {runs} runs, got {how} {min(others)!r}")
        arrays = {name: _array(archive, members[name], kind) for name, kind in kinds.items()}
    if any("path" in part for part in tables.values() if isinstance(part, dict)):
        raise ValueError("its scenario must be complete, got the path of another file")
    if "times_s" in arrays:
        tables["workload"]["times_s"] = arrays["times_s"]
    scenario = from_tables(Scenario, tables)
    warmup = _check.real("its warmup", about.pop("warmup"), at_least=0, below=1)
    _check.whole("its seed", about.get("seed"), at_least=0, at_most=None)
    if not isinstance(about.get("engine"), str):
        raise ValueError(f"its engine must be text, got {about.get('engine')!r}")
    given = arrays, scenario, warmup, clock_of(about["engine"])
    return tuple(_run(number, *given) for number in range(runs)), about


# The arrays that there may be, each checked before it is read.


class _Kind(NamedTuple):
    """What an array must be: its dtype and shape (None: any length), and the most bytes that may be packed.

    A few bytes of a zip may stand for gigabytes; an array that is not packed is no longer than its file.
    """

    dtype: str
    shape: tuple[int | None, ...] = ()
    packed: int = 0


ABOUT = _Kind("u1", (None,), packed=1 << 26)
TIMES = _Kind("f8", (None,), packed=1 << 28)
LOG = {
    "arrival_s": "f8", "batch_index": "i8", "status": "u1", "batch_start_s": "f8", "batch_finish_s": "f8",
    "batch_size": "i8", "batch_server": "i8", "batch_trigger": "u1",
}  # fmt: skip
PRIORITY = {"priority": "u1"}  # of a workload with priorities alone
TOTALS = {
    "requests": _Kind("i8"), "statuses": _Kind("i8", (len(Status),)), "parts_s": _Kind("f8", (4,)),
    "finished": _Kind("i8"), "busy_s": _Kind("f8"), "window_s": _Kind("f8"), "batches": _Kind("i8"),
    "items": _Kind("i8"), "triggers": _Kind("i8", (len(Trigger),)), "delayed": _Kind("i8"),
}  # fmt: skip
DEVICE_TOTALS = {"device_wait_s": _Kind("f8"), "off_device_s": _Kind("f8")}  # of a scenario with devices


def _kinds(names: Container[str], runs: int) -> dict[str, _Kind]:
    """Return what the arrays of so many runs must be, by name."""
    kinds = {"times_s": TIMES} if "times_s" in names else {}
    for number in range(runs):
        counts = _Kind("i8", (BINS,), packed=1 << 26)
        if f"{number}/Totals/requests" in names:
            there = TOTALS | {
                name: k for name, k in DEVICE_TOTALS.items() if f"{number}/Totals/{name}" in names
            }
            kinds |= {f"{number}/Totals/{name}": kind for name, kind in there.items()}
            kinds[f"{number}/Histogram/counts"] = counts
        elif f"{number}/TokenTotals/requests" in names:
            of_tokens = {name: _Kind(*kind) for name, kind in TOKEN_TOTALS.items()}
            kinds |= {f"{number}/TokenTotals/{name}": kind for name, kind in (TOTALS | of_tokens).items()}
            kinds |= {
                f"{number}/TokenHistograms/{f.name}": counts for f in dataclasses.fields(TokenHistograms)
            }
        else:
            table, columns = "Log", LOG | (PRIORITY if f"{number}/Log/priority" in names else {})
            for kind, own in TOKEN_LOGS.items():
                if f"{number}/{kind}/arrival_s" in names:
                    table, columns = kind, own
                    if f"{number}/{kind}/{PREEMPTIONS[0]}" in names:  # not in files of version 3
                        columns = own | dict.fromkeys(PREEMPTIONS, "i8")
            for name, dtype in columns.items():
                kinds[f"{number}/{table}/{name}"] = _Kind(dtype, (None,), 1 << 20)
    return kinds


def _array(archive: zipfile.ZipFile, info: zipfile.ZipInfo, kind: _Kind) -> np.ndarray:
    """Return a member's array; one that is not of its kind is refused before it is read."""
    what = f"its {info.filename}"
    with archive.open(info) as member:
        header = {1: npy.read_array_header_1_0, 2: npy.read_array_header_2_0}[npy.read_magic(member)[0]]
        shape, _, dtype = header(member)
        fits = len(shape) == len(kind.shape) and all(map(_fits, shape, kind.shape))
        if dtype != kind.dtype or not fits:
            wanted = f"{np.dtype(kind.dtype)} of shape {kind.shape}".replace("None", "any")
            raise ValueError(f"{what} must be {wanted}, got {dtype} of shape {shape}")
        if math.prod(shape) * dtype.itemsize != info.file_size - member.tell():
            raise ValueError(f"{what} must be {shape} long, got {info.file_size} bytes")
        if info.compress_type != zipfile.ZIP_STORED and info.file_size > max(kind.packed, 1 << 10):
            raise ValueError(f"{what} must not be packed, got {info.file_size:,} bytes")
    with archive.open(info) as member:
        array = npy.read_array(member, allow_pickle=False)
        member.read()  # to its end, where the checksum is compared: NumPy stops just before some
    return array


def _fits(length: int, wanted: int | None) -> bool:
    return wanted is None or length == wanted


# The runs, each checked: what is edited would fail later, or not at all.


def _run(number: int, arrays: Mapping[str, Any], scenario: Scenario, warmup: float, clock: str) -> Run:
    fields: dict[str, dict[str, Any]] = defaultdict(dict)
    for place, array in arrays.items():
        if place.startswith(f"{number}/"):
            _, table, field = place.split("/")
            # A number was saved as an array without dimensions, and is taken out of it again.
            fields[table][field] = array if array.ndim else array.item()
    wrong: str | None
    run: Run
    if ({*TOKEN_LOGS, "TokenTotals"} & fields.keys() != set()) != (scenario.tokens is not None):
        wrong, run = "its columns must be of tokens where its scenario is", Run(scenario)
    elif {*TOKEN_LOGS} & fields.keys():
        kind = FoldedLog if "FoldedLog" in fields else TokenLog
        tokens = kind(**fields[kind.__name__])
        wrong = wrong_in_token_log(tokens, scenario.servers)
        run = TokenRun(scenario, tokens, warmup=warmup)
    elif "Log" in fields:
        log = Log(**fields["Log"])
        wrong = _wrong_in_log(log, scenario)
        run = Run(scenario, log, warmup=warmup, clock=clock)
    elif "TokenTotals" in fields:
        of_tokens = TokenTotals(**fields["TokenTotals"]), TokenHistograms(**fields["TokenHistograms"])
        wrong = _wrong_in_sums(of_tokens[0], Histogram(of_tokens[1].latency_ms), scenario)
        wrong = wrong or wrong_in_token_sums(*of_tokens)
        run = TokenRun(scenario, sums=of_tokens, warmup=warmup)
    else:
        sums = Totals(**fields["Totals"]), Histogram(**fields["Histogram"])
        wrong = _wrong_in_sums(*sums, scenario)
        if scenario.devices and not fields["Totals"].keys() >= DEVICE_TOTALS.keys():
            wrong = "device_wait_s must be there with devices, got none: simulate it again"
        run = Run(scenario, sums=sums, warmup=warmup)
    if wrong:
        raise ValueError(f"in run {number}, {wrong}")
    return run


def _wrong_in_log(log: Log, scenario: Scenario) -> str | None:
    requests, batches = log.arrival_s.size, log.batch_start_s.size
    columns = {name: getattr(log, name) for name in LOG}
    if (log.priority is None) == bool(scenario.levels):
        return "priority must be there if the workload has priorities, and not else, got another"
    if log.priority is not None:
        columns["priority"] = log.priority
    for name, column in columns.items():
        if column.size != (
            wanted := batches if name.startswith("batch_") and name != "batch_index" else requests
        ):
            return f"{name} must have {wanted:,} rows, got {column.size:,}"
    if not requests:
        return "there must be a request, got none"
    served = log.batch_index >= 0
    of_batch = log.batch_index[served]
    checks = {
        "arrival_s must rise": _rises(log.arrival_s),
        "batch_start_s must rise": _rises(log.batch_start_s),
        "batch_finish_s must be after batch_start_s": (
            np.isfinite(log.batch_finish_s).all() and (log.batch_finish_s > log.batch_start_s).all()
        ),
        "batch_server must be a server": (
            (log.batch_server >= 0) & (log.batch_server < scenario.servers)
        ).all(),
        "batch_trigger must be a Trigger": (log.batch_trigger < len(Trigger)).all(),
        "priority must be a level of the workload": (
            log.priority is None or np.isin(log.priority, scenario.levels).all()
        ),
        "status must be a Status": (log.status < len(Status)).all(),
        "batch_index must be a batch's, or -1 where status is not SERVED": (
            (log.batch_index >= -1).all()
            and (of_batch < batches).all()
            and np.array_equal(served, log.status == Status.SERVED)
        ),
    }
    for rule, holds in checks.items():
        if not holds:
            return f"{rule}, got another"
    if not np.array_equal(np.bincount(of_batch, minlength=batches), log.batch_size):
        return "batch_size must be how many requests have that batch_index, got another"
    if not (log.arrival_s[served] <= log.batch_start_s[of_batch]).all():
        return "arrival_s must be before the start of the request's batch, got another"
    return None


def _wrong_in_sums(totals: Totals, histogram: Histogram, scenario: Scenario) -> str | None:
    numbers = [np.atleast_1d(getattr(totals, name)) for name in (TOTALS | DEVICE_TOTALS)]
    if not all(np.isfinite(each).all() and (each >= 0).all() for each in (*numbers, histogram.counts)):
        return "sums must be finite and at least 0, got another"
    if totals.requests < 1 or int(totals.statuses.sum()) != totals.requests:
        return f"statuses must add up to the requests, got {totals.statuses} of {totals.requests}"
    if int(totals.triggers.sum()) != totals.batches and not isinstance(scenario.rule, Continuous):
        return f"triggers must add up to the batches, got {totals.triggers} of {totals.batches}"
    if int(histogram.counts.sum()) != totals.statuses[Status.SERVED]:
        return f"counts must add up to the served, got {histogram.counts.sum()}"
    return None
