"""Files that are no results are refused."""

import dataclasses
import io
import json
import math
import os
import re
import stat
import zipfile

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from results import BUSY, assert_same, there_and_back

import batchsim as bs
from batchsim.engines.log import Log
from batchsim.result import Result


def test_a_file_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match="none"):
        Result.load(tmp_path / "none")


def array_file(array):
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def zip_file(**members):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name, content in members.items():
            archive.writestr(name + ".npy", content)
    return file.getvalue()


def about_file(about):
    return zip_file(about=array_file(np.frombuffer(json.dumps(about).encode(), dtype=np.uint8)))


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "File is not a zip file"),
        (b"arrival_s,start_s\n", "File is not a zip file"),
        (array_file(np.arange(3.0)), "File is not a zip file"),
        (zip_file(), ""),
        (zip_file(x=array_file(np.arange(3.0))), "it must have an 'about', got none"),
        (zip_file(about=b"text"), ""),
        (
            zip_file(about=array_file(np.array([b"x", None]))),
            "its about.npy must be uint8 of shape (any,), got object of shape (2,)",
        ),
        (about_file([]), "its format must be 'batchsim result', got []"),
        (
            about_file({"format": "a diary"}),
            "its format must be 'batchsim result', got {'format': 'a diary'}",
        ),
        (about_file({"format": "batchsim result"}), "its version must be a whole number, got None"),
        (
            about_file({"format": "batchsim result", "version": 6, "batchsim": "9.1"}),
            "its version must be 5, got 6, of batchsim 9.1: a newer batchsim can load it",
        ),
        (
            about_file({"format": "batchsim result", "version": 1, "batchsim": "0.1.0"}),
            "its version must be 5, got 1, of batchsim 0.1.0: simulate it again",
        ),
        (about_file({"format": "batchsim result", "version": 3}), ""),
    ],
)
def test_what_is_not_a_saved_result_is_refused(tmp_path, content, reason):
    path = tmp_path / "run.npz"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=f"^{re.escape(f'{path} must be a saved result: {reason}')}"):
        Result.load(path)


def test_a_name_of_a_damaged_archive_is_told_in_brief(tmp_path):
    path, content = tmp_path / "long.npz", io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        archive.writestr("about.npy" + "x" * 5000, b"x")
    path.write_bytes(content.getvalue().replace(b"about", b"other", 1))  # in one of two places
    with pytest.raises(ValueError, match="must be a saved result") as error:
        Result.load(path)
    assert len(str(error.value)) < 2000


def test_a_column_that_is_missing_is_refused(small, tmp_path):
    small.save(tmp_path / "run.npz")
    with np.load(tmp_path / "run.npz") as arrays:
        rest = {name: arrays[name] for name in arrays.files if name != "1/Log/status"}
    np.savez(tmp_path / "run.npz", **rest)
    with pytest.raises(ValueError, match=r"run\.npz must be a saved result: .* got no '1/Log/status'"):
        Result.load(tmp_path / "run.npz")


def edited(result, path, change, write=np.savez):
    """Save a result, and change its arrays: {name: array, or a function of it}."""
    result.save(path)
    with np.load(path) as arrays:
        there = dict(arrays)
    for name, value in change.items():
        there[name] = np.asarray(value(there[name].copy()) if callable(value) else value)
    write(path, **there)
    return path


def put(place, value):
    """Return a function that changes one value of an array."""

    def edit(array):
        array[place] = value
        return array

    return edit


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("arrival_s", lambda column: column[:-1]),
        ("arrival_s", lambda column: column.astype(str)),
        ("arrival_s", lambda column: column.astype(np.float32)),
        ("arrival_s", lambda column: column[:, None]),
        ("arrival_s", lambda column: column[::-1]),
        ("arrival_s", put(3, math.nan)),
        ("batch_index", put(0, 10**6)),
        ("batch_index", put(0, -2)),
        ("status", put(-1, 9)),
        ("status", lambda column: 1 - np.minimum(column, 1)),
        ("batch_start_s", lambda column: column[1:]),
        ("batch_start_s", put(0, 1e9)),
        ("batch_start_s", put(0, -1e9)),
        ("batch_finish_s", put(0, 0.0)),
        ("batch_finish_s", put(0, math.inf)),
        ("batch_size", put(0, 0)),
        ("batch_size", lambda column: column + 1),
        ("batch_server", put(0, 2)),
        ("batch_server", put(0, -1)),
        ("batch_trigger", put(0, 77)),
    ],
)
def test_an_edited_column_is_refused(small, tmp_path, name, change):
    path = edited(small, tmp_path / "run.npz", {f"1/Log/{name}": change})
    with pytest.raises(ValueError, match=r"run\.npz must be a saved result: .*(must|another)"):
        Result.load(path)


def test_columns_that_are_all_cut_alike_are_refused(small, tmp_path):
    cut = lambda column: column[:-5]  # noqa: E731
    path = edited(
        small, tmp_path / "run.npz", {f"1/Log/{name}": cut for name in ("arrival_s", "status", "batch_index")}
    )
    with pytest.raises(ValueError, match="must be a saved result"):
        Result.load(path)


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("Totals/requests", 61),
        ("Totals/requests", "60"),
        ("Totals/statuses", put(0, -1)),
        ("Totals/parts_s", np.zeros(3)),
        ("Totals/busy_s", math.nan),
        ("Totals/triggers", lambda column: column + 1),
        ("Histogram/counts", put(0, 5)),
        ("Histogram/counts", lambda column: column[1:]),
    ],
)
def test_edited_sums_are_refused(tmp_path, name, change):
    path = edited(bs.simulate(BUSY, 60, keep="summary"), tmp_path / "run.npz", {f"0/{name}": change})
    with pytest.raises(ValueError, match="must be a saved result"):
        Result.load(path)


def with_about(path, change):
    with np.load(path) as arrays:
        there = dict(arrays)
    about = json.loads(there["about"].tobytes())
    change(about)
    there["about"] = np.frombuffer(json.dumps(about).encode(), dtype=np.uint8)
    np.savez(path, **there)


@pytest.mark.parametrize(
    "change",
    [
        lambda about: about["result"].update(warmup=2),
        lambda about: about["result"].update(seed="0"),
        lambda about: about["result"].update(engine=3),
        lambda about: about["result"].update(note="unknown"),
        lambda about: about["result"].pop("seed"),
        lambda about: about.update(runs=10**12),
        lambda about: about.update(runs=1),
        lambda about: about["scenario"].update(workload={"kind": "Trace", "path": "times.csv"}),
    ],
)
def test_an_edited_description_is_refused_and_no_other_file_is_read(small, tmp_path, monkeypatch, change):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "times.csv").write_text("t\n0\n1\n")
    small.save("run.npz")
    with_about("run.npz", change)
    with pytest.raises(ValueError, match=r"run\.npz must be a saved"):
        Result.load("run.npz")


def test_a_result_of_a_removed_rule_says_what_there_is_instead(small, tmp_path):
    small.save(tmp_path / "run.npz")
    with_about(tmp_path / "run.npz", lambda about: about["scenario"]["rule"].update(kind="WaitSinceLast"))
    with pytest.raises(
        ValueError, match=r"run\.npz must be .*'WaitSinceLast'; it was removed: .*FrozenBatches"
    ):
        Result.load(tmp_path / "run.npz")


def test_what_a_file_says_of_itself_is_checked_before_it_is_read(small, tmp_path):
    path = edited(small, tmp_path / "run.npz", {"more": np.zeros(3)})
    with pytest.raises(ValueError, match="unknown 'more'"):
        Result.load(path)
    # Zeros: a file of some kilobytes, of which nothing may be unpacked.
    columns = {f"0/Log/{f.name}": np.zeros(10**7) for f in dataclasses.fields(Log) if f.name == "arrival_s"}
    path = edited(small, tmp_path / "run.npz", columns, np.savez_compressed)
    with pytest.raises(ValueError, match=r"0/Log/arrival_s.npy must not be packed, got 80,000,128 bytes"):
        Result.load(path)
    # A header that promises more than there is: NumPy would make room for it.
    head = array_file(np.zeros(5)).replace(b"(5,)", b"(9000000000000,)")
    content = dict(np.load(edited(small, path, {})))
    members = {name: array_file(array) for name, array in content.items()}
    path.write_bytes(zip_file(**(members | {"0/Log/arrival_s": head})))
    with pytest.raises(ValueError, match="must be"):
        Result.load(path)


def test_a_summary_of_a_trace_comes_back_as_it_was(tmp_path):
    result = bs.simulate(BUSY.replace(workload=bs.Trace(np.arange(500) / 900)), keep="summary")
    assert_same(result, there_and_back(result, tmp_path / "run.npz"))


@pytest.fixture(scope="module")
def whole(small, tmp_path_factory):
    """The bytes of a saved result with columns, and of one without."""
    path = tmp_path_factory.mktemp("whole") / "run.npz"
    summary = bs.simulate(BUSY, 60, keep="summary")
    contents = []
    for result in (small, summary):
        result.save(path)
        contents.append((path.read_bytes(), result))
    return contents


@given(which=st.integers(0, 1), share=st.floats(0, 1, exclude_max=True))
def test_a_part_of_a_file_is_refused(whole, tmp_path_factory, which, share):
    content, _ = whole[which]
    path = tmp_path_factory.mktemp("part") / "run.npz"
    path.write_bytes(content[: math.floor(share * len(content))])
    with pytest.raises(ValueError, match="must be a saved result"):
        Result.load(path)


@given(which=st.integers(0, 1), share=st.floats(0, 1, exclude_max=True), flip=st.integers(1, 255))
def test_a_changed_byte_never_gives_another_result(whole, tmp_path_factory, which, share, flip):
    content, result = whole[which]
    damaged = bytearray(content)
    damaged[math.floor(share * len(content))] ^= flip
    path = tmp_path_factory.mktemp("damaged") / "run.npz"
    path.write_bytes(damaged)
    try:
        back = Result.load(path)
    except ValueError:
        with pytest.raises(ValueError, match=f"^{re.escape(str(path))} must be a saved result: "):
            Result.load(path)
    else:
        assert_same(result, back)  # it was a byte that means nothing, such as a date's


def test_every_changed_bit_of_a_packed_histogram_is_noticed(whole, tmp_path):
    # NumPy reads as far as the last number, and so past some of these without a word.
    content, _ = whole[1]
    path = tmp_path / "run.npz"
    path.write_bytes(content)
    with zipfile.ZipFile(path) as archive:
        begin = archive.getinfo("0/Histogram/counts.npy").header_offset + 100
    for bit in range(8 * begin, 8 * (begin + 80)):
        damaged = bytearray(content)
        damaged[bit // 8] ^= 1 << bit % 8
        path.write_bytes(damaged)
        with pytest.raises(ValueError, match="must be a saved result"):
            Result.load(path)


def test_every_column_that_an_engine_returns_is_saved(tmp_path):
    for scenario, left_out in (
        (BUSY, {"outputs", "priority", "replica", "scaling", "size"}),
        (BUSY.replace(priorities={1: 1}, replicas=2), {"outputs", "scaling", "size"}),
        (BUSY.replace(sizes=bs.Geometric(9)), {"outputs", "priority", "replica", "scaling"}),
        (BUSY.replace(autoscale=bs.Autoscale()), {"outputs", "priority", "size"}),
    ):
        bs.simulate(scenario, 5).save(tmp_path / "run.npz")
        with np.load(tmp_path / "run.npz") as arrays:
            saved = {name.removeprefix("0/Log/") for name in arrays if "/" in name}
        assert saved == {f.name for f in dataclasses.fields(Log)} - left_out


def test_a_descriptor_is_no_path_and_stays_open(tmp_path):
    path = tmp_path / "run.npz"
    bs.simulate(BUSY, 10).save(path)
    with path.open("rb") as file:
        with pytest.raises(TypeError, match="path must be a file's path, got"):
            Result.load(file.fileno())
        assert file.read(2) == b"PK"
    with pytest.raises(TypeError, match="path must be a file's path, got 1"):
        bs.simulate(BUSY, 10).save(1)


@pytest.mark.skipif(os.name == "nt", reason="pipes as on POSIX")
def test_a_run_is_saved_through_a_pipe_too(tmp_path):
    result, path = bs.simulate(BUSY, 100), tmp_path / "run.npz"
    os.mkfifo(path)
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as reader:
        result.save(path)
        (tmp_path / "read.npz").write_bytes(reader.read())
    assert_same(Result.load(tmp_path / "read.npz"), result)
    assert stat.S_ISFIFO(path.stat().st_mode)
