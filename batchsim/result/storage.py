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
from typing import IO, Any, NamedTuple

import numpy as np
from numpy.lib import format as npy

from batchsim import _check
from batchsim._compat import __version__, bincount, repeat
from batchsim._files import RESULT_BYTES, json_of, opened, replacing
from batchsim._format import in_one_line
from batchsim.engines.folded_log import BEFORE, SPAN, FoldedLog
from batchsim.engines.log import Log, Status
from batchsim.engines.token_log import (
    LATE,
    NO_TRIGGER,
    PREEMPTIONS,
    STEPS,
    TokenHistograms,
    TokenLog,
    TokenTotals,
)
from batchsim.engines.totals import BINS, Histogram, Totals, binned
from batchsim.result.run import Run, clock_of
from batchsim.result.token_run import RUNS
from batchsim.scenario import Continuous, Scenario
from batchsim.scenario.rules import Trigger
from batchsim.scenario.toml import from_tables, to_tables

FORMAT = "batchsim result"
# 1 had no triggers of batches, 2 no delayed requests, 3 no rows of preemptions, 4 other bins of histograms.
VERSION = 5
READABLE = (3, 4, VERSION)


def save(runs: Sequence[Run], about: Mapping[str, Any], path: str | os.PathLike[str]) -> None:
    """Write runs to `path` in one step, with facts `about` all of them: an old file is not lost half-way.

    A model's outputs may be anything: they are left out, with a warning. TypeError for values that no file
    can hold, such as a user's own rule.
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
            for name, column in vars(table).items() if table else ():
                if column is not None and name != "outputs":
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
    with opened(path, RESULT_BYTES) as file:
        try:
            return _read(file)
        except MemoryError:
            raise
        except Exception as error:  # a damaged zip raises nearly anything
            why = in_one_line(str(error))
            raise ValueError(f"{os.fspath(path)} must be a saved result: {why}") from error


def _read(file: IO[bytes]) -> tuple[tuple[Run, ...], dict[str, Any]]:
    with zipfile.ZipFile(file) as archive:
        members = {info.filename.removesuffix(".npy"): info for info in archive.infolist()}
        if len(members) < len(archive.infolist()):
            raise ValueError("its arrays must have different names")
        if sum(info.compress_size for info in members.values()) > os.fstat(file.fileno()).st_size:
            raise ValueError("its arrays must not overlap")
        if "about" not in members:
            raise ValueError("it must have an 'about', got none")
        description = json_of(_array(archive, members["about"], ABOUT).tobytes(), "its 'about'")
        if not isinstance(description, dict) or description.get("format") != FORMAT:
            raise ValueError(f"its format must be {FORMAT!r}, got {description!r:.60}")
        version = _check.whole("its version", description.get("version"))
        if version not in READABLE:
            other = "a newer batchsim can load it" if version > VERSION else "simulate it again"
            written = f"{version}, of batchsim {description.get('batchsim')}"
            raise ValueError(f"its version must be {VERSION}, got {written}: {other}")
        tables, about = description["scenario"], dict(description["result"])
        runs = _check.whole("its runs", description["runs"], at_most=len(members))
        forms = _forms(members, runs)
        for how, others in (("no", {*forms} - {*members}), ("an unknown", {*members} - {*forms, "about"})):
            if others:
                raise ValueError(f"its arrays must be those of its {runs} runs, got {how} {min(others)!r}")
        if version < VERSION:
            forms = {name: EARLIER if form is COUNTS else form for name, form in forms.items()}
        arrays = {name: _array(archive, members[name], form) for name, form in forms.items()}
        arrays |= {name: _rebinned(arrays[name]) for name, form in forms.items() if form is EARLIER}
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


class _Form(NamedTuple):
    """What an array must be: its dtype and shape (None: any length), and the most bytes that may be packed.

    A few bytes of a zip may expand to gigabytes; an array that is not packed is no longer than its file.
    """

    dtype: Any
    shape: tuple[int | None, ...] = ()
    packed: int = 0


ABOUT = _Form("u1", (None,), packed=1 << 26)
TIMES = _Form("f8", (None,), packed=1 << 28)
SCALING = _Form("f8", (None, 4))  # a row for each evaluation of an autoscaler
COUNTS = _Form("i8", (BINS,), packed=1 << 26)
EARLIER = _Form("i8", (512 * 80,), packed=1 << 26)  # of bins 1/512 of a power of two wide, from 2^-40 s on
# What a run consists of: the classes of its arrays.
TABLES: tuple[tuple[Any, ...], ...] = (
    (Totals, Histogram), (TokenTotals, TokenHistograms), (FoldedLog,), (TokenLog,), (Log,),
)  # fmt: skip
BYTES = ("status", "priority", "batch_trigger")  # columns of logs; those of seconds are floats, others whole


def _forms_of(table: Any) -> dict[str, _Form]:
    """Return what the arrays of a class must be, by its fields."""
    if issubclass(table, Totals):
        return {name: _Form(*form) for name, form in table.forms().items()}
    names = [f.name for f in dataclasses.fields(table)]
    if not issubclass(table, Log):
        return dict.fromkeys(names, COUNTS)
    dtypes = {name: "f8" if name.endswith("_s") else "i8" for name in names}
    dtypes |= dict.fromkeys(BYTES, "u1") | {"replica": "u2", "joules_before": "f8"}
    no_levels = {"priority", "size"} if issubclass(table, TokenLog) else set()
    return {
        name: SCALING if name == "scaling" else _Form(dtypes[name], (None,), 1 << 20)
        for name in names
        if name not in no_levels | {"outputs"}
    }


def _forms(names: Container[str], runs: int) -> dict[str, _Form]:
    """Return what the arrays of so many runs must be, by name; a field with a default may be missing."""
    forms = {"times_s": TIMES} if "times_s" in names else {}
    for number in range(runs):
        first = f"{number}/{{}}/{{}}".format
        tables = next(
            (each for each in TABLES if first(each[0].__name__, next(iter(_forms_of(each[0])))) in names),
            (Log,),
        )
        for table in tables:
            optional = {f.name for f in dataclasses.fields(table) if f.default is not dataclasses.MISSING}
            for name, form in _forms_of(table).items():
                if (place := first(table.__name__, name)) in names or name not in optional:
                    forms[place] = form
    return forms


def _array(archive: zipfile.ZipFile, info: zipfile.ZipInfo, form: _Form) -> np.ndarray:
    """Return a member's array. An array of another form is refused before it is read."""
    what = f"its {info.filename}"
    with archive.open(info) as member:
        header = {1: npy.read_array_header_1_0, 2: npy.read_array_header_2_0}[npy.read_magic(member)[0]]
        shape, _, dtype = header(member)
        fits = len(shape) == len(form.shape) and all(map(_fits, shape, form.shape))
        if dtype != form.dtype or not fits:
            wanted = f"{np.dtype(form.dtype)} of shape {form.shape}".replace("None", "any")
            raise ValueError(f"{what} must be {wanted}, got {dtype} of shape {shape}")
        if math.prod(shape) * dtype.itemsize != info.file_size - member.tell():
            raise ValueError(f"{what} must be {shape} long, got {info.file_size} bytes")
        if info.compress_type != zipfile.ZIP_STORED and info.file_size > max(form.packed, 1 << 10):
            raise ValueError(f"{what} must not be packed, got {info.file_size:,} bytes")
    with archive.open(info) as member:
        array = npy.read_array(member, allow_pickle=False)
        member.read()  # to its end, where the checksum is compared: NumPy stops just before some
    return array


def _rebinned(counts: np.ndarray) -> np.ndarray:
    """Return the counts of a histogram of an earlier version, which knew latencies to 0.1 % too."""
    octave, place = np.divmod(np.arange(counts.size), 512)
    found = np.zeros(BINS, np.int64)
    np.add.at(found, binned(np.ldexp(1 + (place + 0.5) / 512, octave - 40)), counts)
    return found


def _fits(length: int, wanted: int | None) -> bool:
    return wanted is None or length == wanted


# The runs, each checked: what is edited would fail later, or not at all.


def _run(number: int, arrays: Mapping[str, Any], scenario: Scenario, warmup: float, clock: str) -> Run:
    found: dict[str, dict[str, Any]] = defaultdict(dict)
    for place, array in arrays.items():
        if place.startswith(f"{number}/"):
            _, table, name = place.split("/")
            # A number was saved as an array without dimensions, and is taken out of it again.
            found[table][name] = array if array.ndim else array.item()
    classes = {table.__name__: table for tables in TABLES for table in tables}
    parts = [classes[name](**fields) for name, fields in found.items()]
    if isinstance(parts[0], (TokenTotals, TokenLog)) != (scenario.kind == "tokens"):
        wrong: str | None = "its columns must be of tokens where its scenario is"
    elif isinstance(parts[0], Log):
        wrong = _wrong_in_log(parts[0], scenario)
    else:
        wrong = _wrong_in_sums(parts[0], parts[1], scenario, found)
    if wrong:
        raise ValueError(f"in run {number}, {wrong}")
    kept: dict[str, Any] = {"columns": parts[0]} if isinstance(parts[0], Log) else {"sums": tuple(parts)}
    return RUNS[scenario.kind](scenario, **kept, warmup=warmup, clock=clock)


def _first_broken(checks: Mapping[str, Any]) -> str | None:
    """Return the first rule that does not hold."""
    return next((f"{rule}, got another" for rule, holds in checks.items() if not holds), None)


def _wrong_in_log(log: Log, scenario: Scenario) -> str | None:
    """Return the first rule that a log breaks, None for a sound one."""
    requests, batches = log.arrival_s.size, log.batch_start_s.size
    if (log.priority is None) == bool(scenario.levels):
        return "priority must be there if the workload has priorities, and not else, got another"
    if (log.size is None) != (scenario.workload.sizes is None):
        return "size must be there if the workload has sizes, and not else, got another"
    if (log.scaling is None) == (scenario.autoscale is not None):
        return "scaling must be there with an autoscaler, and not else, got another"
    if (log.replica is None) == (scenario.most_replicas > 1):
        return "replica must be there with several replicas, and not else, got another"
    columns = {name: column for name in _forms_of(type(log)) if (column := getattr(log, name)) is not None}
    if (scaling := columns.pop("scaling", None)) is not None and not _is_scaling(scaling, scenario):
        return "scaling must be the evaluations of the autoscaler, in order, got another"
    sizes = dict.fromkeys(columns, requests) | dict.fromkeys({*STEPS} & {*columns}, batches)
    if isinstance(log, FoldedLog):
        sizes |= dict.fromkeys(STEPS[len(SPAN) :], 0) | {"most_at_once": 1}
        sizes |= dict.fromkeys(BEFORE, requests + 1)
    if isinstance(log, TokenLog):
        sizes |= dict.fromkeys(PREEMPTIONS, int(log.preemptions.sum()))
        for names in (LATE, ("gaps_at_s", "gaps_s", "gaps_count")):
            sizes |= dict.fromkeys(names, columns.get(names[0], np.empty(0)).size)
    for name, column in columns.items():
        if column.size != sizes[name]:
            return f"{name} must have {sizes[name]:,} rows, got {column.size:,}"
    if not requests:
        return "there must be a request, got none"
    trigger, server = log.batch_trigger, log.batch_server
    none = isinstance(log, TokenLog) & (trigger == NO_TRIGGER)
    wrong = _first_broken({
        "arrival_s must rise": _rises(log.arrival_s),
        "batch_start_s must rise": _rises(log.batch_start_s),
        "batch_finish_s must be after batch_start_s": (
            np.isfinite(log.batch_finish_s).all() and (log.batch_finish_s > log.batch_start_s).all()
        ),
        "batch_server must be a server": ((server >= 0) & (server < scenario.all_servers)).all(),
        "replica must be that of the request's batch": log.replica is None or _at_its_replica(log, scenario),
        "batch_trigger must be a Trigger": ((trigger < len(Trigger)) | none).all(),
        "priority must be a level of the workload": (
            log.priority is None or np.isin(log.priority, scenario.levels).all()
        ),
        "size must be at least 1": log.size is None or (log.size >= 1).all(),
        "status must be a Status": (log.status < len(Status)).all(),
    })  # fmt: skip
    return wrong or (_wrong_in_steps(log, scenario) if isinstance(log, TokenLog) else _wrong_in_batches(log))


def _is_scaling(scaling: np.ndarray, scenario: Scenario) -> bool:
    at_s, _, asked, up = scaling.T
    most = scenario.most_replicas
    counts = (asked >= 1) & (asked <= most) & (up >= 1) & (up <= asked) & (asked % 1 == 0) & (up % 1 == 0)
    return bool(at_s.size and at_s[0] == 0 and (np.diff(at_s) > 0).all() and counts.all())


def _at_its_replica(log: Log, scenario: Scenario) -> bool:
    assert log.replica is not None
    if isinstance(log, FoldedLog):
        served, server = log.server >= 0, log.server
    else:
        served = (log.batch_index >= 0) & (log.batch_index < log.steps)
        server = np.append(log.batch_server, -1)[np.where(served, log.batch_index, -1)]
    own = server[served] // scenario.servers
    return bool((log.replica < scenario.most_replicas).all() and (log.replica[served] == own).all())


def _wrong_in_batches(log: Log) -> str | None:
    served, batches = log.batch_index >= 0, log.batch_start_s.size
    of_batch = log.batch_index[served]
    if not (
        (log.batch_index >= -1).all() and (of_batch < batches).all()
        and np.array_equal(served, log.status == Status.SERVED)
    ):  # fmt: skip
        return "batch_index must be a batch's, or -1 where status is not SERVED, got another"
    counts = bincount(of_batch, minlength=batches)
    return _first_broken({
        "batch_size must be how many requests have that batch_index": np.array_equal(counts, log.batch_size),
        "arrival_s must be before the start of the request's batch": (
            (log.arrival_s[served] <= log.batch_start_s[of_batch]).all()
        ),
    })  # fmt: skip


def _wrong_in_steps(log: TokenLog, scenario: Scenario) -> str | None:
    served = log.status == Status.SERVED
    columns = log.batch_index, log.token_step, log.last_step
    first, token, last = (each[served] for each in columns)
    at_least_1 = log.prompt_tokens, log.output_tokens, log.batch_size, log.step_tokens
    counted = [*STEPS[len(SPAN) :], "late_gaps", "gaps_count", "stall_s"]
    counts = [each for name in counted if (each := getattr(log, name, None)) is not None]
    counts.append(log.preemptions)
    checks = {
        "lengths, rows and tokens must be at least 1": all((each >= 1).all() for each in at_least_1),
        "preempted times must be finite and at least 0": all(
            (np.isfinite(each) & (each >= 0)).all()
            for each in (log.preempted_before_s, log.preempted_after_s)
        ),
        "counts must be at least 0": all((each >= 0).all() for each in counts),
        "steps of a request must be in order, -1 where status is not SERVED": (
            (first >= 0).all() and (first <= token).all() and (token <= last).all()
            and (last < log.steps).all() and all((each[~served] == -1).all() for each in columns)
        ),
    }  # fmt: skip
    if isinstance(log, FoldedLog):
        times_s = np.stack([log.start_s, log.first_token_s, log.finish_s])
        server = log.server[served]
        checks |= {
            "times of a request must be in order, NaN where status is not SERVED": (
                np.isfinite(times_s[:, served]).all() and np.isnan(times_s[:, ~served]).all()
                and (np.diff(times_s[:, served], axis=0) >= 0).all()
            ),
            "server must be a server, -1 where status is not SERVED": (
                ((server >= 0) & (server < scenario.all_servers)).all() and (log.server[~served] == -1).all()
            ),
            "what was before a request must rise from 0 on": all(
                (np.diff(each, prepend=0) >= 0).all()
                for name in BEFORE
                if (each := getattr(log, name)) is not None
            ),
            "most_at_once must be at least 0": log.most_running >= 0,
        }  # fmt: skip
    if log.preempted_request is not None:
        request, back, resumed, regained = (getattr(log, name) for name in PREEMPTIONS)
        as_often = repeat(np.arange(log.arrival_s.size), log.preemptions)
        checks |= {
            "preempted_request must have each request as often as preemptions has it": (
                np.array_equal(np.sort(request), as_often)
            ),
            "steps of a preemption must be in order, -1 for none": (
                ((back >= 0) & (back < log.steps) & (resumed < log.steps) & (regained < log.steps)).all()
                and ((resumed == -1) | (resumed >= back)).all()
                and ((regained == -1) | (regained >= resumed)).all()
            ),
        }  # fmt: skip
    if wrong := _first_broken(checks):
        return wrong
    started_s = log.start_s[served] if isinstance(log, FoldedLog) else log.batch_start_s[first]
    rule = "arrival_s must be before the start of the request's first step"
    return _first_broken({rule: (log.arrival_s[served] <= started_s).all()})


def _rises(times_s: np.ndarray) -> bool:
    return bool(np.isfinite(times_s).all() and (np.diff(times_s) >= 0).all())


def _wrong_in_sums(
    totals: Totals, histograms: Any, scenario: Scenario, found: Mapping[str, Mapping[str, Any]]
) -> str | None:
    """Return the first rule that the sums of a run break, None for sound ones."""
    numbers = [np.asarray(each) for fields in found.values() for each in fields.values()]
    if not all(np.isfinite(each).all() and (each >= 0).all() for each in numbers):
        return "sums must be finite and at least 0, got another"
    if totals.requests < 1 or int(totals.statuses.sum()) != totals.requests:
        return f"statuses must add up to the requests, got {totals.statuses} of {totals.requests}"
    if int(totals.triggers.sum()) != totals.batches and not isinstance(scenario.rule, Continuous):
        return f"triggers must add up to the batches, got {totals.triggers} of {totals.batches}"
    if scenario.devices and "device_wait_s" not in found[type(totals).__name__]:
        return "device_wait_s must be there with devices, got none: simulate it again"
    wanted = dict.fromkeys(vars(histograms), int(totals.statuses[Status.SERVED]))
    if isinstance(totals, TokenTotals):
        wanted |= {"tpot_ms": totals.longer, "stall_ms": totals.longer, "itl_ms": totals.gaps}
    for name, counts in vars(histograms).items():
        if counts is None:
            continue
        if int(counts.sum()) != wanted[name]:
            of = "" if name == "counts" else f" of {name}"
            return f"counts{of} must add up to {wanted[name]:,}, got {counts.sum():,}"
    return None
