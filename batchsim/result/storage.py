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
from collections.abc import Mapping, Sequence
from typing import Any, BinaryIO

import numpy as np

from batchsim import _check
from batchsim._files import replacing
from batchsim._version import __version__
from batchsim.engines.histogram import Histogram
from batchsim.engines.log import Log, Totals
from batchsim.result.run import Run
from batchsim.scenario import Scenario
from batchsim.scenario.toml import from_tables, to_tables

FORMAT = "batchsim result"
VERSION = 2  # 1 was without the batches' triggers


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
                arrays[f"{number}/{type(table).__name__}/{name}"] = np.asarray(getattr(table, name))
    description = {
        "format": FORMAT, "version": VERSION, "batchsim": __version__, "scenario": scenario,
        "result": about, "runs": len(runs),
    }  # fmt: skip
    arrays["about"] = np.frombuffer(json.dumps(description).encode(), dtype=np.uint8)
    # Columns shrink to 40 %, in 30 times the time; histograms, nearly all zeros, to 1 %.
    write = np.savez_compressed if first.columns is None else np.savez
    with replacing(path) as file:
        write(file, **arrays)
    if first.columns is not None and first.columns.outputs is not None:
        _check.warn("a model's outputs are not saved with its result")


def load(path: str | os.PathLike[str]) -> tuple[tuple[Run, ...], dict[str, Any]]:
    """Return what `save` was given; a file that is anything else raises ValueError."""
    with _check.path("path", path).open("rb") as file:
        try:
            return _read(file)
        except MemoryError:
            raise
        except Exception as error:  # a damaged zip raises nearly anything
            raise ValueError(f"{os.fspath(path)} must be a saved result: {error}") from error


def _read(file: BinaryIO) -> tuple[tuple[Run, ...], dict[str, Any]]:
    with zipfile.ZipFile(file) as archive:
        damaged = archive.testzip()  # NumPy stops reading just before some checksums
        if damaged is not None:
            raise ValueError(f"its {damaged} is damaged")
    file.seek(0)
    with np.load(file, allow_pickle=False) as arrays:
        description = json.loads(arrays["about"].tobytes())
        if not isinstance(description, dict) or description.get("format") != FORMAT:
            raise ValueError(f"its format must be {FORMAT!r}, got {description!r:.60}")
        version = _check.whole("its version", description.get("version"))
        if version != VERSION:
            other = "a newer batchsim can load it" if version > VERSION else "simulate it again"
            written = f"{version}, of batchsim {description.get('batchsim')}"
            raise ValueError(f"its version must be {VERSION}, got {written}: {other}")
        # A number was saved as an array without dimensions, and is taken out of it again.
        values = {name: array if array.ndim else array.item() for name, array in arrays.items()}
    if "times_s" in values:
        description["scenario"]["workload"]["times_s"] = values["times_s"]
    scenario, about = from_tables(Scenario, description["scenario"]), description["result"]
    warmup = about.pop("warmup")
    fields: dict[tuple[int, str], dict[str, Any]] = defaultdict(dict)
    for place, value in values.items():
        if "/" in place:
            number, table, field = place.split("/")
            fields[int(number), table][field] = value
    runs = []
    for number in range(description["runs"]):
        if (number, "Log") in fields:
            runs.append(Run(scenario, Log(**fields[number, "Log"]), warmup=warmup))
        else:
            sums = Totals(**fields[number, "Totals"]), Histogram(**fields[number, "Histogram"])
            runs.append(Run(scenario, sums=sums, warmup=warmup))
    return tuple(runs), about
