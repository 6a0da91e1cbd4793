"""Results in files.

A file is NumPy's .npz, a zip of arrays: a result has columns of two lengths, requests and batches,
which one table (as in Parquet) has not. `numpy.load` reads it without batchsim. In it are "about",
JSON as UTF-8 bytes; "times_s", the arrival times of a trace; and the arrays of each run, named by
run, class and field, as in "0/Log/arrival_s".
"""

import dataclasses
import json
import os
import zipfile
from collections import defaultdict
from collections.abc import Mapping
from typing import Any, BinaryIO

import numpy as np

from batchsim import _check
from batchsim._files import replacing
from batchsim._version import __version__
from batchsim.engines.histogram import Histogram
from batchsim.engines.log import Log, Totals
from batchsim.result import Result
from batchsim.scenario import Scenario
from batchsim.scenario.toml import from_tables, to_tables

FORMAT = "batchsim result"
VERSION = 2  # 1 was without the batches' triggers

PARTS = {cls.__name__: cls for cls in (Log, Totals, Histogram)}  # what arrays are of
NOT_PLAIN = ("scenario", "columns", "sums", "runs")  # every other field of a Result goes into "about"


def save(result: Result, path: str | os.PathLike[str]) -> None:
    """Write a result to `path` in one step: what was there before is not lost half-way.

    A model's outputs, which may be anything, are left out with a warning. What no file can hold, such as a
    rule of one's own, is refused with TypeError.
    """
    scenario: dict[str, Any] = to_tables(result.scenario)
    arrays: dict[str, Any] = {}
    if "times_s" in scenario["workload"]:
        arrays["times_s"] = np.array(scenario["workload"].pop("times_s"))
    for number, run in enumerate(result.replications):
        if run is not result and (run.runs or run.scenario != result.scenario):
            raise ValueError(
                "replications must be runs of the result's own scenario to be saved, got another"
            )
        for part in (run.columns, *(run.sums or ())):
            if part is not None:
                arrays.update(_arrays(f"{number}/{type(part).__name__}", part))
    about = {
        "format": FORMAT,
        "version": VERSION,
        "batchsim": __version__,
        "scenario": scenario,
        "result": _plain_fields(result),
        "runs": [_plain_fields(run) for run in result.runs],
    }
    arrays["about"] = np.frombuffer(json.dumps(about).encode(), dtype=np.uint8)
    # Columns shrink to 40 %, in 30 times the time; histograms, nearly all zeros, to 1 %.
    write = np.savez_compressed if result.columns is None else np.savez
    with replacing(path) as file:
        write(file, **arrays)
    if any(run.columns is not None and run.columns.outputs is not None for run in result.replications):
        _check.warn("a model's outputs are not saved with its result")


def load(path: str | os.PathLike[str]) -> Result:
    """Return the result that `save` wrote to `path`; a file that is anything else raises ValueError."""
    with open(path, "rb") as file:
        try:
            return _read(file)
        except MemoryError:
            raise
        except Exception as error:  # a damaged zip raises nearly anything
            raise ValueError(f"{os.fspath(path)} must be a saved result: {error}") from error


def _arrays(place: str, part: Any) -> dict[str, Any]:
    return {
        f"{place}/{f.name}": np.asarray(getattr(part, f.name))
        for f in dataclasses.fields(part)
        if f.name != "outputs"
    }


def _plain_fields(result: Result) -> dict[str, Any]:
    plain = {f.name: getattr(result, f.name) for f in dataclasses.fields(result) if f.name not in NOT_PLAIN}
    for name, value in plain.items():
        if not isinstance(value, (str, int, float, type(None))):  # JSON would return a list for a tuple
            raise TypeError(f"{name} must be text or a number to be saved, got {value!r}")
    return plain


def _read(file: BinaryIO) -> Result:
    with zipfile.ZipFile(file) as archive:
        damaged = archive.testzip()  # NumPy stops reading just before some checksums
        if damaged is not None:
            raise ValueError(f"its {damaged} is damaged")
    file.seek(0)
    with np.load(file, allow_pickle=False) as arrays:
        about = json.loads(arrays["about"].tobytes())
        _check_about(about)
        # A number was saved as an array without dimensions, and is taken out of it again.
        values = {name: array if array.ndim else array.item() for name, array in arrays.items()}
    if "times_s" in values:
        about["scenario"]["workload"]["times_s"] = values["times_s"]
    scenario = from_tables(about["scenario"])
    fields: dict[tuple[int, str], dict[str, Any]] = defaultdict(dict)
    for name, value in values.items():
        if "/" in name:
            number, part, field = name.split("/")
            fields[int(number), part][field] = value
    parts = {(number, part): PARTS[part](**values) for (number, part), values in fields.items()}
    if not about["runs"]:
        return _run(scenario, 0, parts, about["result"])
    runs = tuple(_run(scenario, number, parts, plain) for number, plain in enumerate(about["runs"]))
    return dataclasses.replace(Result.pool(runs), **about["result"])


def _check_about(about: Any) -> None:
    if not isinstance(about, dict) or about.get("format") != FORMAT:
        raise ValueError(f"its format must be {FORMAT!r}, got {about!r:.60}")
    version = _check.whole("its version", about.get("version"))
    if version > VERSION:
        raise ValueError(
            f"its version must be at most {VERSION}, got {version}, of batchsim {about.get('batchsim')}: "
            "a newer batchsim can load it"
        )


def _run(
    scenario: Scenario, number: int, parts: Mapping[tuple[int, str], Any], plain: Mapping[str, Any]
) -> Result:
    columns = parts.get((number, "Log"))
    sums = None if columns is not None else (parts[number, "Totals"], parts[number, "Histogram"])
    return Result(scenario=scenario, columns=columns, sums=sums, **plain)
