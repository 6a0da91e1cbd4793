"""A sweep: one scenario at every point of a grid, on all cores or on a cluster."""

import contextlib
import math
import os
import queue
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import BrokenExecutor, Executor, Future
from itertools import islice
from os import PathLike
from typing import TYPE_CHECKING, Any

import numpy as np

from batchsim import _check
from batchsim._compat import __version__
from batchsim._format import rate
from batchsim._workers import check_executor, pool, progress_bar, result_of
from batchsim.engines.estimates import DEFAULT_BYTES, bytes_of, check_memory, warn_if_large
from batchsim.engines.log import CANCELLED, warmup_requests
from batchsim.result.metrics import OF_DEVICES, SHARES, Quantity
from batchsim.result.run_length import Periods
from batchsim.scenario import Diurnal, Scenario
from batchsim.scenario.rules.continuous import NeverServed
from batchsim.simulate import (
    DEFAULT_REQUESTS,
    ENGINES,
    available,
    check_replications,
    check_requests,
    simulated,
)
from batchsim.study.grid import Grid, overload
from batchsim.study.kinds import KINDS

if TYPE_CHECKING:
    import pandas


Rows = tuple[np.ndarray, list[str]]  # numbers of some points, and why each is infeasible

SILENT_S = 30.0  # without a finished point, after which the user is warned of an executor
SAVE_S = 0.5  # the longest that finished points wait for others to share a file with
AHEAD = 4  # tasks given to each worker in advance
# A task of several points costs less to submit, but a worker that dies loses more. The least and the most
# seconds of work in a task: for a thread, and for an executor, which needs a few milliseconds (Dask: 3).
LOCAL_S, AWAY_S = (0.0, 0.02), (0.05, 2.0)
AWAY_WORKERS = 64  # assumed for an executor
# Estimates: seconds for a point, and for each request of it; and ten times those for a byte sent to a worker.
POINT_S, REQUEST_S, BYTE_S = 4e-3, {"simpy": 2e-5, "auto": 1e-7, "compiled": 1e-7}, 1e-7


def sweep(
    scenario: Scenario, over: Mapping[str, Any], requests: int | None = None, seed: int = 0,
    replications: int = 1, warmup: float | str = 0.0, engine: str = "auto", *,
    executor: Executor | None = None, out: str | PathLike[str] | None = None, progress: bool = True,
    workers: int | None = None,
) -> "pandas.DataFrame":  # fmt: skip
    """Simulate a scenario at every point of a grid of knobs; return a DataFrame with a row for each point.

    `over` is {knob: values}, with knobs named as in `Scenario.replace`, including whole parts; or
    {knob: {label: value}}, which gives services names. The grid is the product; the last knob changes
    fastest. `requests`, `seed`, `replications`, `warmup` and `engine` are those of `simulate`; all points
    share one seed, so they share one traffic (common random numbers).

    Columns: the knobs (int64, float64, or text unless all values are numbers); the numbers of
    `Result.summary()` as float64 (`stable` and `drifting` are bool), some with the `_low` and `_high` of
    their 95 % interval, NaN if the run is too short for one (with `tokens` also those of TTFT and TPOT, as
    `ttft_p99_ms`, and `output_tokens_per_s`); `loss`, the fraction of the requests that is not served, and
    `p99_all_ms`, the p99 that counts these as infinitely late (other latencies are of served requests);
    `infeasible`, the reason or "". An unstable point runs, and `infeasible` has its load. A point that the
    scenario refuses has NaN (and False) for numbers, and `infeasible` is the error.

    Points run on `workers` threads (default: one for each core, fewer for long runs). Threads do not speed up
    the SimPy engine, nor runs below some 20,000 requests, which are mostly Python: for many of these, or on
    many cores, pass a ProcessPoolExecutor of spawned processes. `executor` is any object with the `submit` of
    `concurrent.futures.Executor`, such as Dask's `client.get_executor()`; `workers` is then the number that
    share the points (default: 64). The numbers are the same to the last bit. With `out`, a folder, points
    are on disk before the progress bar counts them, and the same call computes only the missing points: a
    sweep may be killed, or its axes extended (`batchsim.study.store`). Ctrl-C keeps finished points.

    `attrs` of the table has the scenario's repr, the settings and the version.

    An unknown knob, a value of the wrong type, an empty or repeating axis, and a folder of another sweep
    raise before anything runs. A full disk raises OSError, and loses nothing. An executor that fails
    raises RuntimeError. A silent executor causes a warning: its workers may not have batchsim.

    >>> from batchsim import Affine, Poisson, Scenario, SizeOrWait
    >>> scenario = Scenario(Poisson(rate_per_s=800), SizeOrWait(32, 10), Affine(5, 0.25))
    >>> table = sweep(scenario, {"max_batch_size": [4, 32], "max_wait_ms": [0, 10]}, 20_000, progress=False)
    >>> table[["max_batch_size", "max_wait_ms", "p99_ms", "stable"]].round(1)
       max_batch_size  max_wait_ms  p99_ms  stable
    0               4            0  5194.4   False
    1               4           10  5193.2   False
    2              32            0    13.8    True
    3              32           10    18.5    True
    >>> "load 1.2" in table.infeasible[0]
    True
    """
    _check.instance("scenario", scenario, Scenario, "a Scenario")
    settings = check_settings(requests, seed, replications, warmup, engine)
    grid = Grid.of(scenario, over)
    if all(axis.name != "workload" for axis in grid.axes):
        check_requests(scenario, requests)
        check_replications(scenario, replications)
        if partial := _partial(scenario, grid, requests, settings["warmup"]):
            _check.warn(partial)
    columns = columns_of(scenario, [axis.name for axis in grid.axes])
    if taken := [axis.name for axis in grid.axes if axis.name in (*columns, "infeasible")]:
        raise ValueError(f"a knob must not be named as a number of the table, got {taken[0]!r}")
    check_executor(executor)
    affinity = getattr(os, "sched_getaffinity", lambda _: range(os.cpu_count() or 1))
    default = len(affinity(0)) if executor is None else AWAY_WORKERS
    if executor is None:  # each thread holds one run in memory
        held = bytes_of(scenario, (requests or DEFAULT_REQUESTS) * settings["replications"])
        default = min(default, max(DEFAULT_BYTES // held, 1))
    workers = default if workers is None else _check.whole("workers", workers)
    store = None
    if out is not None:
        if not isinstance(out, (str, PathLike)) or not os.fspath(out):
            raise TypeError(f"out must be a folder's name, got {out!r}")
        from batchsim.study.store import Store  # which loads pyarrow

        store = Store(out, scenario, settings, columns)
    table = _Table(grid, columns, store)
    size = _points_a_task(scenario, settings, len(table.missing), workers, away=executor is not None)
    runs, done = len(table.missing) * settings["replications"] / workers, len(grid) - len(table.missing)
    count = available(scenario, requests or DEFAULT_REQUESTS)
    check_memory(scenario, count)
    held = 1 if executor is not None else min(workers, len(table.missing)) * settings["replications"]
    warn_if_large(scenario, count, "simpy" if engine == "simpy" else "compiled", runs, held)
    tasks = (table.missing[begin : begin + size] for begin in range(0, len(table.missing), size))
    bar = progress_bar(progress, total=len(grid), initial=done, desc="sweep", unit="point")
    crew = pool(workers, "sweep", CANCELLED) if executor is None else contextlib.nullcontext(executor)
    with bar, crew as given:

        def call(task: Sequence[int]) -> tuple[Any, ...]:
            return scenario, [grid.knobs(number) for number in task], settings

        def submit(task: Sequence[int]) -> "Future[Rows]":
            try:
                return given.submit(compute, *call(task))
            except Exception as error:
                raise BrokenExecutor(type(error).__name__) from error

        def fill(task: Sequence[int], future: "Future[Rows]") -> None:
            rows, lost = (future.result(), "") if executor is None else result_of(future, compute, call(task))
            table.fill(task, rows)
            if lost:
                raise BrokenExecutor(lost)

        try:
            # Closed on the way out, so that any error, and Ctrl-C, cancels the tasks that have not started.
            silent_s = math.inf if executor is None else SILENT_S
            with contextlib.closing(_work(submit, tasks, AHEAD * workers, fill, silent_s)) as steps:
                for _ in steps:
                    bar.update(table.save(may_wait=True))
        except BrokenExecutor as lost:
            bar.update(table.save())
            raise RuntimeError(f"the executor must run to the end, got {lost}; {table.kept()}") from lost
        finally:
            bar.update(table.save())
    frame = table.to_frame()
    # In plain values, as a file of the table keeps them.
    frame.attrs = {"scenario": repr(scenario), **settings, "batchsim": __version__}
    return frame


def _partial(scenario: Scenario, grid: Grid, requests: int | None, warmup: float | str) -> str:
    """Return the warning that the first point, and maybe all, covers only a part of a day; else ""."""
    if not isinstance(scenario.workload, Diurnal):
        return ""
    with contextlib.suppress(ValueError):
        count = check_requests(point := scenario.replace(grid.knobs(0)), requests)
        dropped = 0 if isinstance(warmup, str) else warmup_requests(warmup, count)
        periods = Periods.of(point.workload, count - dropped, dropped)
        return "" if periods is None else periods.warning(columns=True)
    return ""


def _work(
    submit: Callable[[Sequence[int]], "Future[Rows]"], tasks: Iterator[Sequence[int]], ahead: int,
    keep: Callable[[Sequence[int], "Future[Rows]"], None], silent_s: float,
) -> Generator[None]:  # fmt: skip
    """Submit tasks, at most `ahead` at a time, and keep their rows as they finish.

    Yields after each, and every `SAVE_S`. Warns once if no task finishes for `silent_s`. When closed, cancels
    tasks that have not started, and keeps the rows of those that finished meanwhile.
    """
    heard_s = time.monotonic()
    done: queue.SimpleQueue[Future[Rows]] = queue.SimpleQueue()
    waiting: dict[Future[Rows], Sequence[int]] = {}
    try:
        while True:
            for task in islice(tasks, ahead - len(waiting)):
                future = submit(task)
                waiting[future] = task
                future.add_done_callback(done.put)
            if not waiting:
                return
            try:
                future = done.get(timeout=SAVE_S)
            except queue.Empty:
                if time.monotonic() - heard_s >= silent_s:
                    _check.warn(
                        f"no point has finished for {silent_s:g} s: unless points take so long, "
                        f"check that the executor has workers, and that they have batchsim {__version__}"
                    )
                    silent_s = math.inf
            else:
                heard_s = time.monotonic()
                keep(waiting.pop(future), future)
            yield
    finally:
        for future, task in waiting.items():
            with contextlib.suppress(Exception):  # of an executor that fails, nearly any
                if not future.cancel() and future.done() and future.exception() is None:
                    keep(task, future)


def _points_a_task(
    scenario: Scenario, settings: Mapping[str, Any], points: int, workers: int, away: bool
) -> int:
    trace = getattr(scenario.workload, "times_s", np.empty(0))
    requests = settings["requests"] or trace.size or DEFAULT_REQUESTS
    point_s = POINT_S + requests * settings["replications"] * REQUEST_S[settings["engine"]]
    least_s, most_s = AWAY_S if away else LOCAL_S
    if away:  # a trace travels with each task: the work should take longer than the transfer
        least_s = max(least_s, trace.nbytes * BYTE_S)
    shared = min(int(most_s / point_s), points // (AHEAD * workers))
    return max(shared, math.ceil(least_s / point_s), 1)


class _Table:
    """The rows of a grid: those in the store, and those still to be computed."""

    def __init__(self, grid: Grid, columns: Mapping[str, str], store: Any) -> None:
        self.grid, self.columns, self.store = grid, columns, store
        self.numbers, self.reasons = np.tile(refused(columns), (len(grid), 1)), [""] * len(grid)
        self.unsaved: list[int] = []
        self.saved_at_s, self.failed = time.monotonic(), False
        self.missing: Sequence[int] = range(len(grid))
        self.keys: list[str] = []
        if store is not None:
            self.keys = list(grid.keys())
            rows = {key: row for key, *row in zip(*store.read(), strict=True)}
            self.missing = [number for number, key in enumerate(self.keys) if key not in rows]
            for number, key in enumerate(self.keys):
                if key in rows:
                    self.numbers[number], self.reasons[number] = rows[key]

    def fill(self, task: Sequence[int], rows: Rows) -> None:
        for number, *row in zip(task, *rows, strict=True):
            self.numbers[number], self.reasons[number] = row
        self.unsaved += task

    def save(self, may_wait: bool = False) -> int:
        """Put the finished points on disk, if there is a store; return their number.

        `may_wait`: only if they have waited for `SAVE_S`, so that several share a file.
        """
        if may_wait and self.store is not None and time.monotonic() < self.saved_at_s + SAVE_S:
            return 0
        points = [] if self.failed else self.unsaved
        if points and self.store is not None:
            keys, reasons = ([texts[number] for number in points] for texts in (self.keys, self.reasons))
            try:
                self.store.write(keys, self.numbers[points], reasons)
            except OSError:
                self.failed = True  # not again on the way out
                raise
        self.unsaved, self.saved_at_s = [], time.monotonic()
        return len(points)

    def kept(self) -> str:
        return "out= would keep finished points" if self.store is None else self.store.kept()

    def to_frame(self) -> "pandas.DataFrame":
        import pandas

        if self.store is not None:
            self.store.merge()
        columns: dict[str, Any] = {
            name: pandas.Series(labels, dtype="str" if labels.dtype == object else labels.dtype)
            for name, labels in self.grid.columns().items()
        }
        for place, (name, dtype) in enumerate(self.columns.items()):
            columns[name] = self.numbers[:, place].astype(dtype)
        columns["infeasible"] = pandas.Series(self.reasons, dtype="str")
        return pandas.DataFrame(columns)


def check_settings(
    requests: int | None, seed: int = 0, replications: int = 1, warmup: float | str = 0.0,
    engine: str = "auto",
) -> dict[str, Any]:  # fmt: skip
    """Return the checked arguments of `simulate`, the same at every point."""
    _check.one_of("engine", engine, ENGINES)
    if not (isinstance(warmup, str) and warmup == "auto"):  # an array would compare item by item
        warmup = _check.real("warmup", warmup, at_least=0, below=1)
    return {
        "requests": None if requests is None else _check.whole("requests", requests),
        "seed": _check.seed(seed),
        "replications": _check.whole("replications", replications),
        "warmup": warmup, "engine": engine,
    }  # fmt: skip


def columns_of(scenario: Scenario, knobs: Iterable[str]) -> dict[str, str]:
    """Return the numbers of a point, in order, with their dtypes; of tokens, devices and sizes if it has any.

    Counts are floats: those of a refused point are NaN.
    """
    knobs = {*knobs}
    kind = KINDS["tokens" if "tokens" in knobs else scenario.kind]
    devices = scenario.devices is not None or "devices" in knobs
    sized = scenario.workload.sizes is not None or {"workload", "service"} <= knobs
    return {
        name: "bool" if metric.quantity is Quantity.FLAG else "float64"
        for key, metric in kind.metrics(devices, sized).items()
        for name in ((key, f"{key}_low", f"{key}_high") if metric.interval else (key,))
    }


def refused(columns: Mapping[str, str]) -> np.ndarray:
    """Return the numbers of a point that the scenario refuses."""
    return np.array([0.0 if dtype == "bool" else math.nan for dtype in columns.values()])


def compute(scenario: Scenario, points: Sequence[Mapping[str, Any]], settings: Mapping[str, Any]) -> Rows:
    """Return the numbers of some points, shape (points, columns), and why each is infeasible or ""."""
    columns = columns_of(scenario, points[0])
    numbers, reasons = np.tile(refused(columns), (len(points), 1)), []
    for row, knobs in zip(numbers, points, strict=True):
        try:
            point = scenario.replace(knobs)
            check_requests(point, settings["requests"])
            check_replications(point, settings["replications"])
        except (TypeError, ValueError) as refusal:
            reasons.append(str(refusal))
            continue
        try:
            row[:] = _numbers(point, settings, columns)
        except NeverServed as refusal:  # the lengths are drawn only now
            reasons.append(str(refusal))
            continue
        except Exception as error:
            error.add_note(f"at the point {dict(knobs)} of the sweep")
            raise
        reasons.append(_unstable(point))
    return numbers, reasons


def _numbers(point: Scenario, settings: Mapping[str, Any], columns: Mapping[str, str]) -> list[float]:
    # Without warnings, of which there may be thousands.
    result, _ = simulated(point, keep="requests", shared=True, **settings)
    numbers = dict.fromkeys([*SHARES.values(), "delayed"], 0.0) | result.summary()
    numbers |= {key: result.metrics.numbers[key] for key in OF_DEVICES}
    # Latencies are of the served requests, so a queue that rejects many seems fast. These two count all.
    numbers["loss"] = 1 - numbers["served"] / numbers["requests"] if numbers["requests"] else math.nan
    numbers["p99_all_ms"] = result.percentile(99, unserved="inf") if numbers["loss"] else numbers["p99_ms"]
    asked = [name.removesuffix("_low") for name in columns if name.endswith("_low")]
    for key, (low, high) in result.intervals(asked).items():
        numbers[f"{key}_low"], numbers[f"{key}_high"] = low, high
    return [numbers.get(name, math.nan) for name in columns]


def _unstable(point: Scenario) -> str:
    if point.stable:
        return ""
    offered = rate(point.workload.offered_per_s, 4)  # type: ignore[union-attr]  # a closed loop is stable
    if point.load < 1:  # a table in which larger batches are slower than several small ones
        carried = rate(point.full_batches_per_s, 4)
        return f"full batches of {point.rule.largest_batch} carry {carried}, and {offered} arrive"
    return overload(point)
