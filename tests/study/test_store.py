"""A sweep in a folder: nothing is computed twice, and damage is seen."""

import errno
import hashlib
import json
import os
import shutil
import subprocess
import tomllib

import numpy as np
import pandas as pd
import pytest
from pandas.testing import assert_frame_equal
from sweeps import BASE, OVER, POINTS, files, stored, sweep

import batchsim as bs
from batchsim.scenario.toml import read_toml
from batchsim.study import store as stores
from batchsim.study import sweep as sweeping
from batchsim.study.sweep import columns_of


@pytest.fixture
def at_once(monkeypatch):
    """Every finished task is a file of its own."""
    monkeypatch.setattr(sweeping, "SAVE_S", 0.0)
    monkeypatch.setattr(sweeping, "LOCAL_S", (0.0, 0.0))


# What is there is not computed again.


def test_the_same_call_again_computes_nothing_and_returns_the_same(tmp_path, undisturbed, computed):
    first = sweep(out=tmp_path / "runs" / "day1")
    assert len(computed) == POINTS
    again = sweep(out=str(tmp_path / "runs" / "day1"))
    assert len(computed) == POINTS
    for table in (first, again):
        assert_frame_equal(table, undisturbed, check_exact=True)


def test_a_longer_axis_computes_only_the_new_points(tmp_path, computed):
    sweep(over={"max_batch_size": [4, 8], "max_wait_ms": [0, 1]}, out=tmp_path)
    computed.clear()
    longer = {"max_wait_ms": [1.0, 3, 0.0], "max_batch_size": [8, 2, 4]}  # in another order, too
    table = sweep(over=longer, out=tmp_path)
    assert sorted(tuple(point.values()) for point in computed) == [(0, 2), (1, 2), (3, 2), (3, 4), (3, 8)]
    assert_frame_equal(table, sweep(over=longer), check_exact=True)
    shorter = sweep(over={"max_batch_size": [4], "max_wait_ms": [1]}, out=tmp_path)
    assert len(shorter) == 1


def test_a_folder_is_one_table_that_pandas_reads(tmp_path, undisturbed, at_once):
    sweep(out=tmp_path)
    table = stored(tmp_path)
    assert len(files(tmp_path)) == 1
    assert table.point.is_unique
    assert len(table) == POINTS
    row = table[table.point.map(json.loads).map(lambda point: point["max_batch_size"] == 4)].iloc[0]
    assert row.requests == 300
    assert sorted(table.p99_ms.dropna()) == sorted(undisturbed.p99_ms.dropna())
    assert table.dtypes.drop(["point", *OVER]).equals(undisturbed.dtypes.drop(list(OVER)))


def test_points_are_on_disk_before_the_bar_counts_them(tmp_path, monkeypatch, at_once):
    counted = []

    class Bar:
        def __enter__(self):
            return self

        def __exit__(self, *_):
            pass

        def update(self, points):
            counted.append(points)
            assert sum(map(len, map(pd.read_parquet, files(tmp_path)))) == sum(counted)

    monkeypatch.setattr(sweeping, "progress_bar", lambda *_, **__: Bar())
    sweep(out=tmp_path)
    assert sum(counted) == POINTS
    assert len([points for points in counted if points]) > 1


def test_files_are_merged_on_the_way(tmp_path, undisturbed, monkeypatch, at_once):
    monkeypatch.setattr(stores, "MERGE", 3)
    most = []
    write = stores.Store.write

    def counted(self, *rows):
        write(self, *rows)
        most.append(len(files(tmp_path)))

    monkeypatch.setattr(stores.Store, "write", counted)
    table = sweep(out=tmp_path, workers=1)
    assert most == [1, 2, 1, 2, 3, 2, 3, 4, 3, 4, 5, 4]
    assert_frame_equal(table, undisturbed, check_exact=True)


# What the folder is of.


def test_the_folder_says_what_it_is_of(tmp_path):
    noisy = BASE.replace(service=bs.Affine(5, 0.25).with_noise(0.3), queue_limit=100)
    sweep(noisy, {"max_wait_ms": [1]}, 50, seed=3, warmup=0.1, out=tmp_path)
    scenario, extra = read_toml(bs.Scenario, tmp_path / "_sweep.toml", extra=["sweep"])
    assert scenario == noisy
    about = extra["sweep"]
    assert {name: about[name] for name in ("format", "batchsim", "seed", "requests", "warmup")} == {
        "format": 4,
        "batchsim": bs.__version__,
        "seed": 3,
        "requests": 50,
        "warmup": 0.1,
    }
    assert {"python", "numpy", "numba"} <= about.keys()


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"seed": 1}, "seed is 0 there, 1 here"),
        ({"requests": 301}, "requests is 300 there, 301 here"),
        ({"requests": None}, "requests is 300 there, None here"),
        ({"replications": 2}, "replications is 1 there, 2 here"),
        ({"warmup": "auto"}, "warmup is 0 there, auto here"),
        ({"engine": "auto"}, "engine is simpy there, auto here"),
        ({"scenario": BASE.replace(rate_per_s=900)}, "scenario.workload.rate_per_s is 800 there, 900 here"),
        ({"scenario": BASE.replace(max_wait_ms=5)}, "scenario.rule.max_wait_ms is 10 there, 5 here"),
        ({"scenario": BASE.replace(queue_limit=9)}, "scenario.queue_limit is None there, 9 here"),
        (
            {"scenario": BASE.replace(workload=bs.Constant(800))},
            "scenario.workload.kind is Poisson there, Constant here",
        ),
    ],
    ids=str,
)
def test_a_folder_of_another_sweep_is_refused_with_what_differs(tmp_path, computed, change, what):
    sweep(over={"servers": [1]}, out=tmp_path)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    computed.clear()
    with pytest.raises(ValueError, match="must be this sweep's folder") as refusal:
        sweep(over={"servers": [1, 2]}, out=tmp_path, **change)
    assert f": {what}; take another folder" in str(refusal.value)
    assert computed == []
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


def test_a_trace_is_kept_as_csv_and_another_is_refused(tmp_path, computed):
    times_s = np.sort(np.random.default_rng(5).uniform(0, 2, 500))
    trace = BASE.replace(workload=bs.Trace(times_s))
    over = {"rate_per_s": [100, 300]}
    table = sweep(trace, over, None, out=tmp_path)
    assert_frame_equal(sweep(trace, over, None, out=tmp_path), table, check_exact=True)
    assert len(computed) == 2
    assert read_toml(bs.Scenario, tmp_path / "_sweep.toml", extra=["sweep"])[0] == trace
    times_s[250] = times_s[251]
    with pytest.raises(ValueError, match=r"scenario.workload.times_s is <f8 \(500,\) sha256"):
        sweep(BASE.replace(workload=bs.Trace(times_s)), over, None, out=tmp_path)


def test_axes_of_traces_are_told_apart_in_the_folder(tmp_path, computed):
    one, other = bs.Trace([0, 0.4, 1]), bs.Trace([0, 0.6, 1])
    sweep(over={"workload": {"a": one}}, requests=None, out=tmp_path)
    table = sweep(over={"workload": {"a": one, "b": other}}, requests=None, out=tmp_path)
    assert [list(point.values()) for point in computed] == [[one], [other]]
    assert table.workload.tolist() == ["a", "b"]


def test_a_rule_of_ones_own_cannot_be_described(tmp_path):
    class Own(bs.SizeOrWait):
        pass

    with pytest.raises(TypeError, match=r"rule must be one of SizeOrWait, .* to be written"):
        sweep(BASE.replace(rule=Own()), {"servers": [1]}, out=tmp_path / "new")
    assert not (tmp_path / "new").exists()


def change_description(folder, name, value):
    path = folder / "_sweep.toml"
    lines = path.read_text().splitlines()
    lines = [f"{name} = {value}" if line.startswith(f"{name} =") else line for line in lines]
    path.write_text("\n".join(lines))
    assert str(tomllib.loads(path.read_text())["sweep"][name]) == value.strip('"')


def test_a_folder_of_another_batchsim_is_refused(tmp_path):
    sweep(over={"servers": [1]}, out=tmp_path)
    change_description(tmp_path, "batchsim", '"0.0.9"')
    with pytest.raises(ValueError, match=f"of this batchsim, {bs.__version__}, got .* of 0.0.9"):
        sweep(over={"servers": [1]}, out=tmp_path)
    change_description(tmp_path, "format", "1")
    with pytest.raises(ValueError, match=r"sweep.toml must describe a sweep, got format must be 4, got 1"):
        sweep(over={"servers": [1]}, out=tmp_path)


def test_a_folder_of_a_removed_rule_says_what_there_is_instead(tmp_path):
    sweep(over={"servers": [1]}, out=tmp_path)
    path = tmp_path / "_sweep.toml"
    path.write_text(path.read_text().replace("SizeOrWait", "WaitSinceLast"))
    with pytest.raises(
        ValueError, match=r"sweep.toml must .*'WaitSinceLast'; it was removed: .*FrozenBatches"
    ):
        sweep(over={"servers": [1]}, out=tmp_path)


def test_a_folder_of_another_numpy_is_warned_of(tmp_path, computed):
    table = sweep(over={"servers": [1]}, out=tmp_path)
    change_description(tmp_path, "numpy", '"1.26.0"')
    with pytest.warns(UserWarning, match="computed by other versions .numpy is 1.26.0 there"):
        again = sweep(over={"servers": [1]}, out=tmp_path)
    assert_frame_equal(again, table, check_exact=True)
    assert len(computed) == 1


DEEP = "a = " + "[" * 5000
LONG = f"[sweep]\nformat = '{'x' * 5000}'"


@pytest.mark.parametrize(
    "text", ["", "[sweep", "sweep = 3", "[sweep]\nformat = 1", "\xff", DEEP, LONG], ids="{:.20}".format
)
def test_a_damaged_description_is_refused_by_name(tmp_path, text):
    (tmp_path / "_sweep.toml").write_bytes(text.encode("latin-1"))
    with pytest.raises(
        ValueError, match=r"out must be a folder of this|sweep.toml must describe a sweep, got "
    ) as error:
        sweep(over={"servers": [1]}, out=tmp_path)
    assert len(str(error.value)) < 1000


def test_a_value_of_another_sweep_is_told_in_brief(tmp_path):
    sweep(over={"servers": [1]}, out=tmp_path)
    for name, said in (("engine", "engine is xxx"), ("batchsim", "of xxx")):
        change_description(tmp_path, name, f'"{"x" * 5000}"')
        with pytest.raises(ValueError, match=said) as error:
            sweep(over={"servers": [1]}, out=tmp_path)
        assert len(str(error.value)) < 1000


def test_a_folder_of_something_else_is_refused(tmp_path):
    (tmp_path / "thesis.tex").touch()
    with pytest.raises(
        ValueError, match=r"out must be a new folder, or a sweep's, got .* 'thesis.tex' in it"
    ):
        sweep(out=tmp_path)
    with pytest.raises(NotADirectoryError, match="out must be a folder, got a file"):
        sweep(out=tmp_path / "thesis.tex")
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


# Damage.


def damaged(content, how):
    if how == "empty":
        return b""
    if how == "cut":
        return content[: len(content) // 2]
    return content[:100] + bytes([content[100] ^ 1]) + content[101:]


@pytest.mark.parametrize("how", ["empty", "cut", "one bit"])
def test_a_damaged_file_is_set_aside_and_its_points_computed_again(
    tmp_path, undisturbed, computed, at_once, monkeypatch, how
):
    monkeypatch.setattr(stores.Store, "merge", lambda *_: None)
    sweep(out=tmp_path)
    count = len(files(tmp_path))
    victim = files(tmp_path)[3]
    lost = len(pd.read_parquet(victim))
    victim.write_bytes(damaged(victim.read_bytes(), how))
    computed.clear()
    with pytest.warns(UserWarning, match=f"{victim.name} is damaged, .*computed again"):
        table = sweep(out=tmp_path)
    assert len(computed) == lost < POINTS
    assert (tmp_path / "_damaged" / victim.name).exists()
    assert len(pd.read_parquet(tmp_path / "points")) == POINTS
    assert len(files(tmp_path)) == count
    assert_frame_equal(table, undisturbed, check_exact=True)
    computed.clear()
    sweep(out=tmp_path)  # without a warning
    assert computed == []


def test_no_flipped_bit_goes_unseen(tmp_path):
    sweep(over={"servers": [1]}, out=tmp_path)
    (path,) = files(tmp_path)
    content, random = path.read_bytes(), np.random.default_rng(0)
    store = stores.Store(
        tmp_path, BASE, sweeping.check_settings(300, 0, 1, 0.0, "simpy"), columns_of(BASE, OVER)
    )
    assert store.read()[0] == ['{"servers": 1}']
    for place in random.choice(len(content), 200, replace=False):
        flipped = bytearray(content)
        flipped[place] ^= 1 << random.integers(8)
        path.write_bytes(flipped)
        with pytest.warns(UserWarning, match="is damaged"):
            assert store.read()[0] == []


def test_a_file_of_another_sweep_is_refused(tmp_path):
    sweep(out=tmp_path / "one")
    sweep(out=tmp_path / "other", seed=1)
    (stray,) = files(tmp_path / "other")
    stray.rename(tmp_path / "one" / "points" / stray.name)
    with pytest.raises(ValueError, match=r"must hold points of .*sweep.toml, got another"):
        sweep(out=tmp_path / "one")


@pytest.mark.parametrize("kind", ["dangling link", "link to itself", "folder", "pipe"])
def test_what_is_no_file_is_set_aside_and_never_waited_for(tmp_path, computed, kind):
    table = sweep(over={"servers": [1]}, out=tmp_path)
    path = tmp_path / "points" / f"01234567-{hashlib.sha256(b'').hexdigest()[:24]}.parquet"
    make = {
        "dangling link": lambda: path.symlink_to(tmp_path / "nowhere"),
        "link to itself": lambda: path.symlink_to(path),
        "folder": path.mkdir,
        "pipe": lambda: os.mkfifo(path),
    }
    make[kind]()
    computed.clear()
    with pytest.warns(UserWarning, match=f"{path.name} is damaged"):
        again = sweep(over={"servers": [1]}, out=tmp_path)
    assert (len(files(tmp_path)), computed) == (1, [])
    assert os.path.lexists(tmp_path / "_damaged" / path.name)
    assert_frame_equal(again, table, check_exact=True)


def test_a_folder_in_place_of_the_description_is_refused_by_name(tmp_path):
    (tmp_path / "_sweep.toml").mkdir()
    with pytest.raises(ValueError, match=r"sweep.toml must describe a sweep"):
        sweep(over={"servers": [1]}, out=tmp_path)


def test_what_killed_processes_left_half_written_is_removed_an_hour_later(tmp_path):
    sweep(over={"servers": [1]}, out=tmp_path)
    old = [folder / ".0123456789abcdef.tmp" for folder in (tmp_path, tmp_path / "points")]
    others = [tmp_path / ".notes.tmp", tmp_path / "points" / ".fedcba9876543210.tmp"]
    for path in [*old, *others]:
        path.touch()
    for path in [*old, others[0]]:
        os.utime(path, (0, 0))
    sweep(over={"servers": [1]}, out=tmp_path)
    assert [path.exists() for path in [*old, *others]] == [False, False, True, True]


# A full disk.


def test_points_are_not_said_to_be_kept_in_a_folder_that_was_deleted(tmp_path, monkeypatch, at_once):
    write = stores.Store.write

    def deleting(self, *rows):
        if files(tmp_path):
            shutil.rmtree(tmp_path / "points")
        write(self, *rows)

    monkeypatch.setattr(stores.Store, "write", deleting)
    with pytest.raises(OSError, match="could not be written") as error:
        sweep(out=tmp_path, workers=1)
    assert "no points" in str(error.value)
    assert "kept" not in str(error.value)


def test_a_full_disk_is_an_os_error_that_loses_nothing(tmp_path, undisturbed, computed, at_once, monkeypatch):
    sync, left = os.fsync, [8]

    def full(handle):
        left[0] -= 1
        if left[0] < 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        sync(handle)

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(
        OSError, match=r"finished points could not be written .*No space left.* are kept"
    ) as error:
        sweep(out=tmp_path, workers=1)
    assert error.value.errno == errno.ENOSPC
    there = len(stored(tmp_path))
    assert f"the {there} points there are kept" in str(error.value)
    assert 0 < there < POINTS
    assert not list(tmp_path.rglob("*.tmp"))
    monkeypatch.setattr(os, "fsync", sync)
    computed.clear()
    table = sweep(out=tmp_path)
    assert len(computed) == POINTS - there
    assert_frame_equal(table, undisturbed, check_exact=True)


def test_a_disk_that_is_full_from_the_start_is_an_os_error(tmp_path, computed, monkeypatch):
    def full(handle):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match=r"the description could not be written .*No space left on device"):
        sweep(out=tmp_path / "new")
    assert computed == []


def test_a_really_full_disk_loses_nothing_either(tmp_path, undisturbed, at_once):
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "none", disk], capture_output=True)
    if mounted.returncode:
        pytest.skip("a small disk cannot be mounted here")
    try:
        with pytest.raises(OSError, match=r"finished points could not be written .*No space left on device"):
            sweep(out=disk / "day1", workers=1)
        there = len(stored(disk / "day1"))
        assert 0 < there < POINTS
        subprocess.run(["mount", "-o", "remount,size=16m", disk], check=True)
        table = sweep(out=disk / "day1")
    finally:
        subprocess.run(["umount", disk], check=True)
    assert_frame_equal(table, undisturbed, check_exact=True)


def test_a_folder_opens_as_one_table_with_the_knobs_as_numbers(tmp_path):
    trace = bs.Trace([0, 0.1, 0.2, 0.5])
    scenario = bs.Scenario(trace, bs.SizeOrWait(8, 5), bs.Affine(5, 1))
    services = {"slow": bs.Affine(9, 1), "fast": bs.Affine(1, 1)}
    first = {"max_wait_ms": [0, 5], "queue_limit": [None, 3]}
    tables = [
        bs.sweep(scenario, axes, progress=False, out=tmp_path)
        for axes in (first, {"max_wait_ms": [7], "queue_limit": [3]}, {"service": services})
    ]
    (tmp_path / "_damaged").mkdir()
    (tmp_path / "_damaged" / "x.parquet").write_bytes(b"nothing")
    read = pd.read_parquet(tmp_path)
    assert len(read) == 7
    asked = read.dropna(subset="max_wait_ms").sort_values(["max_wait_ms", "queue_limit"], ignore_index=True)
    assert asked.max_wait_ms.tolist() == [0, 0, 5, 5, 7]
    assert asked.queue_limit.isna().sum() == 2
    ours = tables[0].sort_values(["max_wait_ms", "queue_limit"]).p99_ms.tolist()
    assert sorted(asked.p99_ms[:4]) == sorted(ours)


def test_a_table_says_what_was_run_and_keeps_it_in_a_file(tmp_path):
    scenario = bs.Scenario(bs.Poisson(80), bs.SizeOrWait(8, 5), bs.Affine(5, 1))
    table = bs.sweep(scenario, {"max_wait_ms": [0, 5]}, 500, seed=np.random.SeedSequence(7), progress=False)
    table.to_parquet(tmp_path / "table.parquet")
    for attrs in (table.attrs, pd.read_parquet(tmp_path / "table.parquet").attrs):
        assert attrs["scenario"] == repr(scenario)
        assert (attrs["requests"], attrs["batchsim"]) == (500, bs.__version__)
        again = bs.simulate(scenario.replace(max_wait_ms=5), attrs["requests"], seed=attrs["seed"])
        assert again.percentile(99) == table.p99_ms[1]
