"""A folder of finished points: a sweep that was killed resumes where it stopped.

    points/           Parquet files; `pandas.read_parquet` of the folder reads them as one table
    _sweep.toml       the scenario, and in the table [sweep] the seed, the settings and the versions
    _arrivals-*.csv   the trace of the scenario's workload, if it has one
    _damaged/         damaged files of points/

Readers of Parquet pass over names that begin with _.

A file is written under another name, synced, and renamed: it is complete or absent, and never changes.
Files are merged now and then; a file is deleted only once another holds all of it, so several processes may
sweep into one folder. A file's name ends in the checksum of its content: a damaged file is set aside, and its
points are computed again.
"""

import contextlib
import errno
import hashlib
import itertools
import json
import os
import platform
import secrets
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pyarrow
import pyarrow.parquet
import tomlkit

from batchsim import _check
from batchsim._compat import __version__
from batchsim._files import SCENARIO_BYTES, TABLE_BYTES, bytes_of, remove_left, replacing, text_of
from batchsim._format import brief, brief_text
from batchsim.scenario import Scenario, Trace
from batchsim.scenario.toml import document, from_tables, toml_of
from batchsim.study.grid import canonical

# In 3 the names did not begin with _, and points had no columns of knobs. In 2 the columns saturation_per_s
# and wait_share had other names; 1 had neither loss nor p99_all_ms.
FORMAT = 4
DESCRIPTION, DAMAGED, ARRIVALS = "_sweep.toml", "_damaged", "_arrivals-"
MARK = b"batchsim sweep"  # the sweep that a file belongs to, in its metadata
MERGE = 64  # files of one process: about a minute's


class Store:
    """The finished points of one sweep in its folder, each with a row of numbers and a text.

    The scenario and `settings` determine the numbers; `columns` are their names and dtypes. Raises ValueError
    for a folder of another sweep, or of something else.
    """

    def __init__(
        self, out: str | os.PathLike[str], scenario: Scenario, settings: Mapping[str, Any],
        columns: Mapping[str, str],
    ) -> None:  # fmt: skip
        self.folder, self.points, self.columns = Path(out), Path(out) / "points", columns
        self.about = {"scenario": scenario, **settings, "batchsim": __version__}
        self.mark = hashlib.sha256(json.dumps(canonical(self.about), sort_keys=True).encode()).hexdigest()
        self.recent: list[Path] = []
        if self.folder.exists() and not self.folder.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, "out must be a folder, got a file", str(out))
        if not (self.folder / DESCRIPTION).exists():
            self._describe()
        self._compare()  # even if just written: another process may have described another sweep first
        with self._writing("a folder for points"):
            self.points.mkdir(exist_ok=True)
        remove_left(self.folder)
        remove_left(self.points)

    # The description.

    def _describe(self) -> None:
        scenario: Scenario = self.about["scenario"]
        there = {path.name for path in self.folder.glob("*")} - {DESCRIPTION, DAMAGED, "points"}
        # Another process may be describing the same sweep: its unfinished files are allowed.
        if others := [name for name in there if not name.startswith((".", ARRIVALS))]:
            got = f"{self.folder} with {min(others)!r} in it"
            raise ValueError(f"out must be a new folder, or a sweep's, got {got}")
        table = tomlkit.table()
        for name, value in {**self.about, "format": FORMAT, **_versions()}.items():
            if name != "scenario" and value is not None:
                table.add(name, value)
        content = _document(scenario)
        content.add("sweep", table)
        with self._writing("the description"):
            self.folder.mkdir(parents=True, exist_ok=True)
            if isinstance(scenario.workload, Trace):
                path = self.folder / _arrivals(scenario.workload)
                with replacing(path) as file:
                    _recorded(scenario.workload).to_csv(file, index=False)
            with replacing(self.folder / DESCRIPTION) as file:
                file.write(content.as_string().encode())
            _sync(self.folder)

    def _compare(self) -> None:
        path = self.folder / DESCRIPTION
        try:
            tables = toml_of(text_of(path, SCENARIO_BYTES), "it")
            there = dict(tables.pop("sweep"))
            if (found := there.get("format")) != FORMAT:
                raise ValueError(f"format must be {FORMAT}, got {brief(found)}: take another folder")
            if there.get("batchsim") == self.about["batchsim"]:  # another might not read it
                there["scenario"] = from_tables(Scenario, tables, self.folder)
        except (AttributeError, IsADirectoryError, KeyError, TypeError, ValueError) as error:
            raise ValueError(f"{path} must describe a sweep, got {error}") from None
        if "scenario" not in there:
            rule = f"out must be a folder of this batchsim, {self.about['batchsim']}"
            other = f"{self.folder} of {brief_text(str(there.get('batchsim')))}, whose numbers may differ"
            raise ValueError(f"{rule}, got {other}: take another folder")
        here = _leaves(self.about)
        if differing := _differences(_leaves({name: there.get(name) for name in self.about}), here):
            rule = f"out must be this sweep's folder, got {self.folder}"
            raise ValueError(f"{rule}: {differing}; take another folder")
        versions = _versions()
        if changed := _differences({name: there.get(name) for name in versions}, versions):
            old = f"the points in {self.folder} were computed by other versions ({changed})"
            _check.warn(f"{old}: new ones may differ in the last digits")

    # The points.

    def read(self) -> tuple[list[str], np.ndarray, list[str]]:
        """Return the keys of the points in the folder, their numbers (a row each), and their texts."""
        tables = list(self._files().values())
        if not tables:
            return [], np.empty((0, len(self.columns))), []
        table = _unique(_joined(tables))
        numbers = np.empty((table.num_rows, len(self.columns)))
        for place, name in enumerate(self.columns):
            numbers[:, place] = table[name].to_numpy()
        return table["point"].to_pylist(), numbers, table["infeasible"].to_pylist()

    def write(self, keys: Sequence[str], numbers: np.ndarray, texts: Sequence[str]) -> None:
        """Add points; they are on disk when this returns. Raises OSError, as on a full disk."""
        values: dict[str, Any] = {"point": pyarrow.array(keys, pyarrow.string())}
        points = [json.loads(key) for key in keys]
        for knob in points[0]:  # a number, or null: its kind is the same in all files
            column = [point[knob] if type(point[knob]) in (int, float) else None for point in points]
            values[knob] = pyarrow.array(column, pyarrow.float64())
        for place, (name, dtype) in enumerate(self.columns.items()):
            values[name] = pyarrow.array(numbers[:, place].astype(dtype))
        values["infeasible"] = pyarrow.array(texts, pyarrow.string())
        with self._writing("finished points"):
            self.recent.append(self._add(pyarrow.table(values, metadata={MARK: self.mark})))
        if len(self.recent) >= MERGE:
            self.merge(self.recent)
            self.recent = []

    def merge(self, paths: Iterable[Path] | None = None) -> None:
        """Merge several files (default: all) into one; a failure is ignored."""
        with contextlib.suppress(OSError):  # the separate files still hold everything
            files = self._files(paths)
            if len(files) > 1:
                self._add(_unique(_joined([*files.values()])))
                for path in files:
                    path.unlink(missing_ok=True)

    def _add(self, table: pyarrow.Table) -> Path:
        buffer = pyarrow.BufferOutputStream()
        pyarrow.parquet.write_table(table, buffer)
        content = buffer.getvalue().to_pybytes()
        path = self.points / f"{secrets.token_hex(4)}-{_checksum(content)}.parquet"
        with replacing(path) as file:
            file.write(content)
        _sync(self.points)
        return path

    def _files(self, paths: Iterable[Path] | None = None) -> dict[Path, pyarrow.Table]:
        """Return the tables of the files (default: of all); damaged ones are set aside."""
        tables: dict[Path, pyarrow.Table] = {}
        seen: set[Path] = set()
        # Until there is no new file: another process may have merged some of these meanwhile.
        while unseen := {*(self.points.glob("*.parquet") if paths is None else paths)} - seen:
            seen |= unseen
            for path in unseen:
                with contextlib.suppress(FileNotFoundError):
                    if (table := self._load(path)) is not None:
                        tables[path] = table
        return {path: tables[path] for path in sorted(tables)}

    def _load(self, path: Path) -> pyarrow.Table | None:
        # A broken link must not look like a deleted file.
        content = bytes_of(path, TABLE_BYTES) if path.is_file() or not os.path.lexists(path) else None
        if content is None or not path.stem.endswith(_checksum(content)):
            aside = self.folder / DAMAGED / path.name  # elsewhere: readers of points/ read every file in it
            aside.parent.mkdir(exist_ok=True)
            path.replace(aside)
            _check.warn(f"{path} is damaged, and now in {aside.parent}: its points are computed again")
            return None
        table = pyarrow.parquet.ParquetFile(pyarrow.BufferReader(content)).read()
        mark = (table.schema.metadata or {}).get(MARK, b"none").decode()
        if mark != self.mark:
            raise ValueError(f"{path} must hold points of {self.folder / DESCRIPTION}, got another sweep's")
        return table

    @contextlib.contextmanager
    def _writing(self, content: str) -> Any:
        try:
            yield
        except OSError as error:
            failed = f"{content} could not be written to {self.folder} ({error.strerror or error})"
            raise OSError(error.errno, f"{failed}; {self.kept()}") from error

    def kept(self) -> str:
        """Describe what the folder holds now: it may have been deleted."""
        try:
            count = len(self.read()[0])
        except (OSError, ValueError) as error:
            return f"the points there cannot be read either ({error})"
        if not count:
            return "the folder has no points, and the same call starts over"
        return f"the {count:,} points there are kept, and the same call continues from them"


def _versions() -> dict[str, str]:
    """Return the versions that the last digits may depend on; a change gives a warning."""
    return {
        "python": platform.python_version(),
        **{name: version(name) for name in ("numpy", "numba") if find_spec(name)},
    }


def _checksum(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:24]


def _recorded(trace: Trace) -> pandas.DataFrame:
    """Return the columns of a trace's file: its times, and its sizes if they were recorded."""
    columns = {"arrival_s": trace.times_s, "size": trace.sizes_listed}
    return pandas.DataFrame({name: column for name, column in columns.items() if column is not None})


def _arrivals(trace: Trace) -> str:
    content = b"".join(column.to_numpy().tobytes() for _, column in _recorded(trace).items())
    return f"{ARRIVALS}{_checksum(content)}.csv"


def _document(scenario: Scenario) -> tomlkit.TOMLDocument:
    """Return the scenario as TOML; a trace as a file's path, because tomlkit needs half a minute for one."""
    trace = scenario.workload
    if not isinstance(trace, Trace):
        return document(scenario)
    content = document(scenario.replace(workload=trace.first))
    table = content["workload"]
    table.pop("times_s")
    table.add("path", _arrivals(trace))
    if trace.sizes_listed is not None:
        table.pop("sizes")
        table.add("size_column", "size")
    return content


def _leaves(value: Any, place: str = "") -> dict[str, Any]:
    """Return a nested value as {"scenario.rule.max_wait_ms": 10, ...}, in canonical spelling."""
    value = canonical(value)
    if not isinstance(value, dict):
        return {place.lstrip("."): value}
    within = (_leaves(each, f"{place}.{name}") for name, each in value.items())
    return dict(itertools.chain.from_iterable(leaves.items() for leaves in within))


def _differences(there: Mapping[str, Any], here: Mapping[str, Any]) -> str:
    names = [name for name in {**there, **here} if there.get(name) != here.get(name)]
    old = {name: brief_text(str(there.get(name))) for name in names}
    return ", ".join(f"{name} is {old[name]} there, {here.get(name)} here" for name in names)


def _joined(tables: list[pyarrow.Table]) -> pyarrow.Table:
    """Return the rows of all; sweeps into one folder may have other knobs."""
    return pyarrow.concat_tables(tables, promote_options="default")


def _unique(table: pyarrow.Table) -> pyarrow.Table:
    """Return a table with each point once: two processes may have computed the same."""
    first = {key: place for place, key in reversed([*enumerate(table["point"].to_pylist())])}
    return table if len(first) == table.num_rows else table.take(sorted(first.values()))


def _sync(folder: Path) -> None:
    """Make renames in a folder survive a power cut, if the system can."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
