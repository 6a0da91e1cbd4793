import dataclasses
import itertools
import math
import multiprocessing
import pickle
import sys
import threading
import types
import warnings
from concurrent.futures import Executor, Future, ProcessPoolExecutor

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pandas.testing import assert_frame_equal
from refusals import refusals

import batchsim as bs
from batchsim.engines.log import CANCELLED
from batchsim.result.metrics import METRICS, OF_DEVICES, OF_FLEETS, OF_SIZES, SHARES, SUMMARY
from batchsim.result.warmup import drop_warmup
from batchsim.study import sweep as sweeping
from batchsim.study.grid import Axis, Grid
from batchsim.study.sweep import columns_of

BASE = bs.Scenario(bs.Poisson(800), bs.SizeOrWait(32, 10), bs.Affine(5, 0.25))
OVER = {"max_batch_size": [4, 16, 32], "max_wait_ms": [0, 2.5]}
COLUMNS = columns_of(BASE, OVER)
INTERVALS = [key for key in METRICS if f"{key}_low" in COLUMNS]


def sweep(*args, **kwargs):
    kwargs.setdefault("progress", False)
    return sweeping.sweep(*args, **kwargs)


# Each row against the run that it stands for.


def assert_row_is(row, result):
    numbers = dict.fromkeys(SHARES.values(), 0.0) | result.summary()
    for key, (low, high) in result.intervals(INTERVALS).items():
        numbers[f"{key}_low"], numbers[f"{key}_high"] = low, high
    np.testing.assert_equal({name: row[name] for name in numbers}, numbers)


@pytest.mark.parametrize(
    "settings",
    [
        {"requests": 5000},
        {"requests": 3000, "seed": 7, "warmup": 0.25},
        {"requests": 3000, "warmup": "auto"},
        {"requests": 2000, "replications": 3},
        {"requests": 500, "engine": "simpy"},
    ],
    ids=str,
)
def test_a_row_is_the_run_of_its_point_to_the_last_bit(settings):
    table = sweep(BASE, OVER, **settings)
    assert len(table) == 6
    for _, row in table.iterrows():
        point = BASE.replace(max_batch_size=row.max_batch_size, max_wait_ms=row.max_wait_ms)
        automatic = settings.get("warmup") == "auto"
        run = bs.simulate(point, **(settings | {"warmup": 0.0} if automatic else settings))
        assert_row_is(row, drop_warmup(run)[0] if automatic else run)


def test_the_last_knob_changes_fastest():
    table = sweep(BASE, {"servers": [1, 2], "max_wait_ms": [0, 5], "max_batch_size": [8, 4]}, 100)
    knobs = list(zip(table.servers, table.max_wait_ms, table.max_batch_size, strict=True))
    assert knobs == list(itertools.product([1, 2], [0, 5], [8, 4]))


def test_the_engines_give_the_same_table():
    over = {"max_batch_size": [4, 32], "queue_limit": [3, 100]}
    # Their columns are equal to the last bit; sums of them may be added in another order.
    assert_frame_equal(
        sweep(BASE, over, 300, engine="simpy"),
        sweep(BASE, over, 300, engine="compiled"),
        check_exact=False,
        rtol=1e-9,
        atol=0,
    )


@given(order=st.permutations(["max_batch_size", "max_wait_ms", "servers"]), workers=st.integers(1, 5))
@settings(max_examples=10)
def test_neither_the_order_of_the_knobs_nor_the_workers_change_a_number(order, workers):
    over = {"max_batch_size": [4, 8], "max_wait_ms": [0, 3], "servers": [1, 2]}
    straight = sweep(BASE, over, 200)
    turned = sweep(BASE, {name: over[name] for name in order}, 200, workers=workers)
    turned = turned.sort_values(list(over), ignore_index=True)[straight.columns]
    assert_frame_equal(turned, straight, check_exact=True)


def test_a_closed_loop_is_swept_over_its_clients():
    loop = bs.Scenario(bs.ClosedLoop(4), bs.SizeOrWait(8, 2), bs.Affine(5, 0.25))
    table = sweep(loop, {"clients": [1, 4, 16]}, 2000)
    assert table.load.isna().all()
    assert table.stable.all()
    assert table.infeasible.eq("").all()
    assert table.throughput_per_s.is_monotonic_increasing
    # One client is alone in each batch, whose wait it sits out: 2 + 5.25 ms a request.
    assert table.throughput_per_s[0] == pytest.approx(1000 / 7.25, rel=1e-3)


# Columns.


def test_every_number_of_a_summary_has_a_column():
    numbers = set(bs.simulate(BASE, 5000).summary())
    assert numbers <= set(COLUMNS)
    others = {"delayed", *OF_DEVICES, *OF_SIZES, *OF_FLEETS}
    assert set(SUMMARY) - {*SHARES.values(), *others} == numbers - set(SHARES.values())
    assert set(METRICS) - set(SUMMARY) == {"loss", "p99_all_ms"}
    assert set(METRICS) - {*OF_DEVICES, *OF_SIZES} == {key for key in METRICS if key in COLUMNS}
    sized = BASE.replace(workload=BASE.workload.with_sizes(bs.Uniform(1, 9)))
    assert set(METRICS) - {*OF_DEVICES} <= set(columns_of(sized, OVER))


def test_requests_that_are_not_served_are_seen_in_the_loss_and_the_p99_of_all():
    queue = dataclasses.replace(BASE, workload=bs.Poisson(800), service=bs.Affine(5, 0.25))
    table = sweep(queue, {"queue_limit": [5, 30, None], "rule": [bs.SizeOrWait(32, 10)]}, 20_000)
    runs = [
        bs.simulate(queue.replace(queue_limit=n, rule=bs.SizeOrWait(32, 10)), 20_000) for n in (5, 30, None)
    ]
    assert table.loss.tolist() == [1 - run.summary()["served"] / 20_000 for run in runs]
    assert table.p99_all_ms.tolist() == [run.percentile(99, unserved="inf") for run in runs]
    assert table.loss[0] > 0.4
    assert table.p99_ms[0] < table.p99_ms[2]  # of those that it serves
    assert table.p99_all_ms[0] == math.inf
    assert table.loss[2] == 0
    assert table.p99_all_ms[2] == table.p99_ms[2]


def test_the_columns_have_the_same_types_whatever_happened():
    limited = dataclasses.replace(BASE, service=bs.Table({1: 5, 8: 7}), rule=bs.SizeOrWait(8, 10))
    good, mixed, refused = (
        sweep(limited, {"max_batch_size": sizes}, 1000).dtypes for sizes in ([4, 8], [4, 16], [16, 32])
    )
    assert good.equals(mixed)
    assert good.equals(refused)
    assert good["max_batch_size"] == np.int64
    assert good[["stable", "drifting"]].eq(np.dtype(bool)).all()
    assert (good[[name for name, dtype in COLUMNS.items() if dtype == "float64"]] == np.dtype(float)).all()
    assert pd.api.types.is_string_dtype(good["infeasible"])


@pytest.mark.parametrize(
    ("knob", "values", "dtype", "labels"),
    [
        ("max_batch_size", np.array([4, 8]), np.int64, [4, 8]),
        ("max_wait_ms", [1, 2.5], np.float64, [1.0, 2.5]),
        ("max_wait_ms", [np.float32(0.5), math.inf], np.float64, [0.5, math.inf]),
        ("max_batch_size", range(1, 3), np.int64, [1, 2]),
        ("queue_limit", [None, 64], None, ["None", "64"]),
        ("queue_limit", {1e9: None, 64: 64}, np.float64, [1e9, 64]),
        ("max_batch_size", [8, 2**70], None, ["8", str(2**70)]),
        ("padding", [None, [8, 32]], None, ["None", "[8, 32]"]),
        ("rule", [bs.SizeOrWait(8, 1), bs.AtLeast(2, 8)], None, None),
        ("service", {"fast": bs.Affine(1, 0.1), "slow": bs.Affine(5, 0.25)}, None, ["fast", "slow"]),
    ],
    ids=str,
)
def test_a_knob_keeps_its_name_and_its_values_or_labels(knob, values, dtype, labels):
    table = sweep(BASE, {knob: values}, 100)
    assert table.columns[0] == knob
    assert table[knob].tolist() == (labels or [repr(value) for value in values])
    if dtype is None:
        assert pd.api.types.is_string_dtype(table[knob])
    else:
        assert table[knob].dtype == dtype


def test_whole_parts_are_replaced_before_the_knobs_inside_them():
    table = sweep(BASE, {"max_batch_size": [4, 8], "rule": [bs.SizeOrWait(16, 1), bs.AtLeast(1, 16)]}, 1000)
    for (size, rule), (_, row) in zip(
        itertools.product([4, 8], [bs.SizeOrWait(16, 1), bs.AtLeast(1, 16)]), table.iterrows(), strict=True
    ):
        assert_row_is(row, bs.simulate(BASE.replace({"rule": rule, "max_batch_size": size}), 1000))


# Points that cannot be, or should not.


def test_an_unstable_point_runs_and_says_its_load():
    table = sweep(BASE, {"rate_per_s": [800, 1000], "max_batch_size": [4]}, 1000)
    for reason, numbers in zip(
        table.infeasible, [("load 1.2", "800/s", "666.7/s"), ("load 1.5", "1,000/s", "666.7/s")], strict=True
    ):
        assert all(number in reason for number in numbers), reason
    assert not table.stable.any()
    assert table.p99_ms.notna().all()


def test_a_point_that_the_scenario_refuses_is_kept_with_the_reason():
    table = sweep(
        dataclasses.replace(BASE, service=bs.Table({1: 5, 32: 7})), {"max_batch_size": [0, 32, 64]}, 1000
    )
    assert table.infeasible.tolist() == [
        "max_batch_size must be at least 1, got 0",
        "",
        "batch_size must be at most the Table's largest size, 32, got 33",
    ]
    numbers = [name for name, dtype in COLUMNS.items() if dtype == "float64"]
    assert table.loc[[0, 2], numbers].isna().all(axis=None)
    assert table.stable.tolist() == [False, True, False]
    assert_frame_equal(
        table.iloc[[1]].drop(columns="max_batch_size"),
        sweep(BASE.replace(service=bs.Table({1: 5, 32: 7})), {"max_batch_size": [32]}, 1000)
        .drop(columns="max_batch_size")
        .set_index(pd.RangeIndex(1, 2)),
        check_exact=True,
    )


def test_a_knob_that_only_some_combinations_have_leaves_the_others_infeasible():
    table = sweep(BASE, {"rule": [bs.AtLeast(2, 8), bs.SizeOrWait(8)], "max_wait_ms": [1, 2]}, 500)
    assert table.infeasible[:2].str.contains("a knob must be one of the scenario's, got 'max_wait_ms'").all()
    assert table.infeasible[2:].eq("").all()


def test_a_trace_that_is_too_short_is_infeasible_beside_one_that_is_not():
    traces = {"short": bs.Trace(np.arange(10) / 100), "long": bs.Trace(np.arange(100) / 100)}
    table = sweep(BASE, {"workload": traces}, 50)
    assert table.infeasible.tolist() == ["requests must be at most the trace's 10, got 50", ""]
    assert table.served.tolist()[1] == 50
    assert sweep(BASE, {"workload": traces}).served.tolist() == [10, 100]  # None: each of them whole


def test_a_run_too_short_for_an_interval_has_none_and_does_not_warn():
    before = list(warnings.filters)
    table = sweep(BASE, OVER, 50)  # warnings are errors in tests
    assert table.p99_ms_low.isna().all()
    assert table.p99_ms_high.isna().all()
    assert table.p99_ms.notna().all()
    assert warnings.filters == before


# Bad input.


@pytest.mark.parametrize(
    ("over", "error", "message"),
    [
        ({}, ValueError, "over must have at least one knob, got {}"),
        ([("servers", [1])], TypeError, "over must be {knob: values}, got"),
        ({3: [1]}, TypeError, "a knob must be named by text, got 3"),
        ({"servers": []}, ValueError, r"servers must have at least one value, got \[\]"),
        ({"servers": {}}, ValueError, "servers must have at least one value, got {}"),
        ({"servers": 2}, TypeError, "servers must be a list of values, or {label: value}, got 2"),
        ({"servers": "12"}, TypeError, "servers must be a list of values, or {label: value}, got '12'"),
        ({"servers": {1, 2}}, TypeError, "servers must be a list of values"),
        ({"max_wait_ms": [1.0, math.nan]}, ValueError, r"max_wait_ms must have no NaN .* got \[1.0, nan\]"),
        ({"max_wait_ms": np.array([np.nan])}, ValueError, "max_wait_ms must have no NaN"),
        ({"max_wait_ms": [10, 5, 10.0]}, ValueError, "values of max_wait_ms must differ, got 10.0 twice"),
        (
            {"service": {"a": bs.Affine(1, 1), "b": bs.Affine(1, 1.0)}},
            ValueError,
            "must differ, got 'b' twice",
        ),
        ({"max_wait": [1]}, ValueError, "got 'max_wait'; did you mean 'max_wait_ms'"),
        ({"workload": [bs.Poisson(1), bs.ClosedLoop(2)], "rate_pers": [1]}, ValueError, "mean 'rate_per_s'"),
        ({"workload.cv": [1]}, ValueError, "a knob must be one of the scenario's, got 'workload.cv'"),
        ({"max_batch_size": [4, 8.5]}, TypeError, "max_batch_size must be a whole number, got 8.5"),
        ({"max_wait_ms": ["long"]}, TypeError, "max_wait_ms must be a number, got 'long'"),
        ({"rule": [bs.SizeOrWait(), "AtLeast"]}, TypeError, "rule must be a rule of batchsim, got 'AtLeast'"),
        ({"slowdown": {1: 1.0, 2: 1.8}}, TypeError, "slowdown must be {busy servers: factor}, got 1.0"),
        ({"servers": {math.nan: 1}}, ValueError, "servers must have no NaN"),
        ({"servers": [print]}, TypeError, "a value of servers must be made of numbers, text"),
        (
            {"rate_per_s": [1], "workload.rate_per_s": [2]},
            ValueError,
            "a knob must be given once, got 'rate_per_s' and 'workload.rate_per_s'",
        ),
    ],
    ids=str,
)
def test_what_no_combination_can_take_is_refused_before_anything_runs(over, error, message, monkeypatch):
    monkeypatch.setattr(sweeping, "compute", lambda *_: pytest.fail("a point ran"))
    with pytest.raises(error, match=message):
        sweep(BASE, over, 100)


def test_a_name_that_two_parts_have_is_refused_with_both_places():
    noisy = bs.Scenario(bs.Gamma(800, cv=2), bs.SizeOrWait(), bs.Affine(5, 0.25).with_noise(0.3))
    with pytest.raises(ValueError, match=r"'cv' is ambiguous: use 'service.noise.cv' or 'workload.cv'"):
        sweep(noisy, {"cv": [1, 2]})
    assert len(sweep(noisy, {"workload.cv": [1, 2], "service.noise.cv": [0.1]}, 100)) == 2


def test_traces_that_print_alike_must_be_labelled():
    one, other = bs.Trace([0, 0.4, 1]), bs.Trace([0, 0.6, 1])
    assert repr(one) == repr(other)
    with pytest.raises(ValueError, match=r"labels of workload must differ, .* name them apart"):
        sweep(BASE, {"workload": [one, other]})
    assert len(sweep(BASE, {"workload": {"a": one, "b": other}})) == 2


@refusals
def test_a_setting_that_no_run_takes_is_refused():
    """
    sweep(BASE, OVER, requests=0) -> requests must be at least 1, got 0
    sweep(BASE, OVER, seed=-1) -> seed must be at least 0, got -1
    sweep(BASE, OVER, replications=0) -> replications must be at least 1, got 0
    sweep(BASE, OVER, warmup=1.0) -> warmup must be less than 1, got 1.0
    sweep(BASE, OVER, warmup="some") -> TypeError: warmup must be a number, got 'some'
    sweep(BASE, OVER, engine="simply") -> engine must be one of ...; did you mean 'simpy'
    sweep(BASE, OVER, workers=0) -> workers must be at least 1, got 0
    sweep(BASE, OVER, executor=4) -> TypeError: executor must have submit(), ... got 4
    sweep(BASE, OVER, out="") -> TypeError: out must be a folder's name, got ''
    sweep(BASE, OVER, out=4) -> TypeError: out must be a folder's name, got 4
    sweep("busy", OVER) -> TypeError: scenario must be a Scenario, got 'busy'
    sweep(BASE.replace(workload=bs.Trace([0, 1])), OVER, 3) -> requests must be at most the trace's 2, got 3
    """


def test_an_error_in_a_point_names_the_point_and_stops_the_sweep():
    class Broken(bs.SizeOrWait):
        @property
        def count_threshold(self):
            raise RuntimeError("the rule is broken")

    with pytest.raises(RuntimeError, match="the rule is broken") as caught:
        sweep(BASE, {"max_wait_ms": [1, 2], "rule": [Broken(8)]}, 100, workers=1)
    assert caught.value.__notes__ == [
        f"at the point {{'max_wait_ms': 1, 'rule': {Broken(8)!r}}} of the sweep"
    ]


# Grids.


NUMBERS = st.one_of(st.integers(-10, 10), st.floats(-10, 10), st.just(math.inf))
VALUES = st.one_of(
    NUMBERS,
    st.none(),
    st.text(max_size=3),
    st.builds(bs.SizeOrWait, st.integers(1, 3), st.sampled_from([0, 0.0, 1, 1.5])),
    st.lists(NUMBERS, max_size=2),
    st.lists(st.integers(0, 3), min_size=1, max_size=3).map(lambda times: bs.Trace(sorted(times))),
)


@given(one=VALUES, other=VALUES)
def test_two_values_have_one_key_exactly_if_they_are_equal(one, other):
    same = Axis.of("knob", [one]).keys == Axis.of("knob", [other]).keys
    assert same == (one == other)


@given(sizes=st.lists(st.integers(1, 4), min_size=1, max_size=4))
def test_points_have_different_keys_and_their_own_knobs(sizes):
    axes = tuple(Axis.of(f"knob{number}", range(size)) for number, size in enumerate(sizes))
    grid = Grid(axes)
    assert len(set(grid.keys())) == len(grid) == math.prod(sizes)
    assert [tuple(grid.knobs(number).values()) for number in range(len(grid))] == list(
        itertools.product(*map(range, sizes))
    )
    assert sorted(grid.keys()) == sorted(Grid(axes[::-1]).keys())


# Who computes.


def test_processes_give_the_same_table(monkeypatch):
    monkeypatch.setattr(sweeping, "SILENT_S", math.inf)  # they may take long to load everything
    spawn = multiprocessing.get_context("spawn")
    scenario = BASE.replace(workload=bs.Trace(np.sort(np.random.default_rng(1).uniform(0, 3, 2000))))
    over = {**OVER, "service": {"a": bs.Affine(5, 0.25), "b": bs.Table({1: 2, 16: 4})}}
    with ProcessPoolExecutor(2, mp_context=spawn) as executor:
        away = sweep(scenario, over, executor=executor)
    assert_frame_equal(away, sweep(scenario, over), check_exact=True)
    assert (away.infeasible != "").sum() == 2


class Postponed(Executor):
    """Computes nothing before `limit` tasks wait, or all are there; and pickles what it is given."""

    def __init__(self, total):
        self.total, self.given, self.most = total, 0, 0
        self.waiting = []

    def submit(self, function, /, *args, **kwargs):
        future, work = Future(), pickle.dumps((function, args, kwargs))
        self.waiting.append((future, work))
        self.given += len(args[1])
        self.most = max(self.most, len(self.waiting))
        if len(self.waiting) == 8 or self.given == self.total:
            for future, work in reversed(self.waiting):  # the last first
                function, args, kwargs = pickle.loads(work)
                future.set_result(function(*args, **kwargs))
            result, self.waiting = self.waiting[-1][0], []
            return result
        return future


def test_any_executor_will_do_and_is_not_given_all_at_once(monkeypatch):
    monkeypatch.setattr(sweeping, "AWAY_S", (0.0, 2.0))
    over = {"max_wait_ms": range(50)}
    executor = Postponed(50)
    away = sweep(BASE, over, 200, executor=executor, workers=2)
    assert executor.most == 8
    assert executor.given == 50
    assert_frame_equal(away, sweep(BASE, over, 200), check_exact=True)


def test_tasks_hold_more_points_where_handing_them_out_costs_more():
    def size(points, workers, requests=1000, away=True, trace=10_000):
        scenario = BASE.replace(workload=bs.Trace(np.arange(trace)))
        how = {"requests": requests, "replications": 1, "engine": "auto"}
        return sweeping._points_a_task(scenario, how, points, workers, away)

    assert size(1000, 2, away=False) * sweeping.POINT_S <= sweeping.LOCAL_S[1]
    assert size(1000, 2, requests=100_000, away=False) == 1
    assert size(1000, 2) == 125  # four tasks for each worker
    assert size(1000, 64) == math.ceil(sweeping.AWAY_S[0] / (sweeping.POINT_S + 1e-4))
    assert size(10**6, 64) == int(sweeping.AWAY_S[1] / (sweeping.POINT_S + 1e-4))
    assert size(1000, 64, trace=10**6) * (sweeping.POINT_S + 1e-4) >= 8e6 * sweeping.BYTE_S
    assert size(1000, 64, trace=10**6, requests=10**8) == 1


def test_whatever_goes_wrong_cancels_what_is_not_started(monkeypatch):
    monkeypatch.setattr(sweeping, "AWAY_S", (0.0, 0.0))  # every point a task

    class Never(Executor):
        def __init__(self):
            self.futures = []

        def submit(self, function, /, *args, **kwargs):
            self.futures.append(Future())
            if len(self.futures) == 3:
                self.futures[1].set_exception(ConnectionError("the scheduler is gone"))
            return self.futures[-1]

    executor = Never()
    with pytest.raises(RuntimeError, match="got ConnectionError; out= would keep finished points"):
        sweep(BASE, OVER, 100, executor=executor, workers=1)
    assert [future.cancelled() for future in executor.futures] == [True, False, True, True]


# Progress.


def test_the_bar_counts_points_on_stderr(capsys):
    sweep(BASE, OVER, 100, progress=True)
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "6/6" in shown.err
    sweep(BASE, OVER, 100, progress=False)
    assert capsys.readouterr().err == ""


def test_a_notebook_without_widgets_shows_a_bar_of_text_and_no_warning(monkeypatch, capsys):
    tqdm_notebook = pytest.importorskip("tqdm.notebook")
    for name in ("tqdm.auto", "tqdm.autonotebook"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    shell = type("ZMQInteractiveShell", (), {})
    monkeypatch.setitem(sys.modules, "ipykernel.zmqshell", types.ModuleType("ipykernel.zmqshell"))
    monkeypatch.setitem(sys.modules, "IPython", types.SimpleNamespace(get_ipython=shell))
    monkeypatch.setattr(tqdm_notebook, "IProgress", None)
    sweep(BASE, OVER, 100, progress=True)
    assert "6/6" in capsys.readouterr().err
    monkeypatch.undo()
    for name in ("tqdm.auto", "tqdm.autonotebook"):
        sys.modules.pop(name, None)


def test_when_a_point_fails_those_that_run_in_other_threads_are_stopped(monkeypatch):
    stopped = []

    def failing(*_):
        stopped.append(CANCELLED.get())
        raise KeyError("failed")

    monkeypatch.setattr(sweeping, "compute", failing)
    with pytest.raises(KeyError):
        sweep(BASE, {"servers": [1, 2, 3]}, 100)
    assert all(each.is_set() for each in stopped)
    assert stopped


def test_a_sweep_whose_caller_is_to_stop_stops():
    stop = threading.Event()
    stop.set()
    before = CANCELLED.set(stop)
    try:
        with pytest.raises(InterruptedError):
            sweep(BASE, OVER, 100, progress=False)
    finally:
        CANCELLED.reset(before)
