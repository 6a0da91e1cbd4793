import json
import os
import re

import pytest

import batchsim as bs
from batchsim.scenario.measurement import Measurement

FIELDS = {
    "model": "mlp",
    "device": "CPU <2 cores>",
    "platform": "cpu",
    "jax_version": "0.10.2",
    "batch_sizes": (1, 4),
    "repeats": 5,
    "samples_ms": ((1.0, 2.0, 3.0, 4.0, 5.0), (4.0, 4.0, 4.0, 4.0, 0.1 + 0.2)),
    "first_call_s": (0.5, 1 / 3),
    "measured_at": "2026-01-02T03:04:05+00:00",
}


@pytest.fixture
def measurement():
    return Measurement(**FIELDS)


@pytest.fixture
def saved(measurement, tmp_path):
    path = tmp_path / "curve.json"
    measurement.save(path)
    return path


def refused(error, message):
    return pytest.raises(error, match=f"^{re.escape(message)}$")


# What a measurement says.


def test_medians_and_spreads_are_by_size(measurement):
    assert measurement.median_ms == {1: 3.0, 4: 4.0}
    assert measurement.spread_ms == {1: 2.0, 4: 0.0}
    assert measurement.compile_s == {1: 0.5, 4: 1 / 3}


def test_the_service_time_is_the_medians(measurement):
    assert measurement.service == bs.Table({1: 3.0, 4: 4.0})


def test_a_frame_has_a_row_a_size(measurement):
    assert measurement.to_frame().to_dict("list") == {
        "batch_size": [1, 4],
        "median_ms": [3.0, 4.0],
        "spread_ms": [2.0, 0.0],
        "per_item_ms": [3.0, 1.0],
        "items_per_s": pytest.approx([1000 / 3, 1000]),
        "compile_s": [0.5, 1 / 3],
    }


def test_a_measurement_prints_as_a_table(measurement):
    title, header, *rows = repr(measurement).splitlines()
    assert title == (
        "Measurement: mlp on CPU <2 cores> (jax 0.10.2, cpu), 5 repeats, 2026-01-02T03:04:05+00:00"
    )
    assert header.split() == [
        "batch_size",
        "median_ms",
        "spread_ms",
        "per_item_ms",
        "items_per_s",
        "compile_s",
    ]
    assert [row.split() for row in rows] == [
        ["1", "3.000", "2.000", "3.000", "333", "0.500"],
        ["4", "4.000", "0.000", "1.000", "1,000", "0.333"],
    ]


def test_a_measurement_is_a_table_in_a_notebook(measurement):
    html = measurement._repr_html_()
    assert "CPU &lt;2 cores&gt;" in html
    assert html.count("<tr") == 3
    assert "<td>0.333</td>" in html


def test_measurements_are_equal_by_value(measurement):
    assert measurement == Measurement(**FIELDS)
    assert hash(measurement) == hash(Measurement(**FIELDS))
    assert measurement != Measurement(**FIELDS | {"model": "convnet"})


# How it is kept.


def test_what_is_saved_is_loaded_exactly(measurement, saved):
    assert Measurement.load(saved) == measurement
    assert Measurement.load(str(saved)) == measurement


def test_a_file_says_what_it_is(saved):
    content = json.loads(saved.read_text())
    assert content["format"] == "batchsim measurement"
    assert content["version"] == 1


def test_saving_replaces_an_old_file_and_leaves_no_other(saved):
    newer = Measurement(**FIELDS | {"model": "convnet"})
    newer.save(saved)
    assert Measurement.load(saved) == newer
    assert list(saved.parent.iterdir()) == [saved]


@pytest.mark.parametrize("step", ["dump", "replace"])
def test_an_old_file_survives_a_save_that_fails(measurement, saved, monkeypatch, step):
    def fail(*_, **__):
        raise OSError("no space left")

    monkeypatch.setattr(*{"dump": (json, "dump"), "replace": (os, "replace")}[step], fail)
    with refused(OSError, "no space left"):
        Measurement(**FIELDS | {"model": "convnet"}).save(saved)
    assert Measurement.load(saved) == measurement
    assert list(saved.parent.iterdir()) == [saved]


def test_a_missing_file_is_an_os_error(tmp_path):
    with pytest.raises(FileNotFoundError):
        Measurement.load(tmp_path / "none.json")


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        (b"size,ms\n1,2\n", "it must be JSON, got b'size,ms\\n1,2\\n' ("),
        (b"", "it must be JSON, got b'' ("),
        (b"\xff\xfe\xfa", "it must be JSON, got b'\\xff\\xfe\\xfa' ("),
        (b"[" * 100_000, "it must be JSON, got b'[[[["),
        (b"[1, 2]", "it must be a JSON object, got list"),
        (b"{}", "format must be 'batchsim measurement', got None"),
    ],
)
def test_a_file_that_is_something_else_is_refused(tmp_path, text, rule):
    path = tmp_path / "curve.json"
    path.write_bytes(text)
    with pytest.raises(ValueError, match=f"^{re.escape(f'{path} is not a saved measurement: {rule}')}"):
        Measurement.load(path)


@pytest.mark.parametrize(
    ("changes", "rule"),
    [
        ({"format": "curve"}, "format must be 'batchsim measurement', got 'curve'"),
        ({"version": 2}, "version must be 1, got 2"),
        ({"version": True}, "version must be 1, got True"),
        ({"version": "1"}, "version must be 1, got '1'"),
        ({"modle": "mlp"}, "there is no key 'modle'; did you mean 'model'?"),
        ({"model": 3}, "model must be text, got 3"),
        ({"device": None}, "device must be text, got None"),
        ({"measured_at": "yesterday"}, "measured_at must be an ISO time, got 'yesterday'"),
        ({"repeats": 0}, "repeats must be at least 1, got 0"),
        ({"repeats": 4}, "samples_ms of batch size 1 must hold 4 values, got 5"),
        ({"batch_sizes": []}, "batch_sizes must not be empty, got []"),
        ({"batch_sizes": 1}, "batch_sizes must be a list of sizes, got 1"),
        ({"batch_sizes": [1, 1]}, "batch_sizes must differ, got [1, 1]"),
        ({"batch_sizes": [0, 1]}, "a size in batch_sizes must be at least 1, got 0"),
        ({"batch_sizes": [1, 2, 4]}, "samples_ms must hold 3 values, got 2"),
        ({"samples_ms": "ab"}, "samples_ms must be a list, got 'ab'"),
        ({"samples_ms": [[1] * 5, 2]}, "samples_ms of batch size 4 must be a list, got 2"),
        ({"first_call_s": [1]}, "first_call_s must hold 2 values, got 1"),
        ({"first_call_s": [1, 0]}, "a time in first_call_s must be greater than 0, got 0"),
        ({"first_call_s": [1, -1]}, "a time in first_call_s must be greater than 0, got -1"),
        ({"first_call_s": [1, float("nan")]}, "a time in first_call_s must be a number, got nan"),
        ({"first_call_s": [1, float("inf")]}, "a time in first_call_s must be finite, got inf"),
        ({"first_call_s": [1, "2"]}, "a time in first_call_s must be a number, got '2'"),
    ],
)
def test_a_file_with_a_wrong_value_is_refused(saved, changes, rule):
    saved.write_text(json.dumps(json.loads(saved.read_text()) | changes))
    with refused(ValueError, f"{saved} is not a saved measurement: {rule}"):
        Measurement.load(saved)


def test_a_file_with_a_number_beyond_floats_is_refused(saved):
    saved.write_text(json.dumps(json.loads(saved.read_text()) | {"first_call_s": [1, 10**400]}))
    with pytest.raises(ValueError, match=re.escape(f"{saved} is not a saved measurement: ")):
        Measurement.load(saved)


def test_a_file_without_a_key_is_refused(saved):
    content = json.loads(saved.read_text())
    del content["device"]
    saved.write_text(json.dumps(content))
    rule = (
        "it must have the key 'device', got model, platform, jax_version, batch_sizes, repeats, "
        "samples_ms, first_call_s, measured_at"
    )
    with refused(ValueError, f"{saved} is not a saved measurement: {rule}"):
        Measurement.load(saved)


def test_half_a_file_is_refused(saved):
    text = saved.read_text()
    saved.write_text(text[: len(text) // 2])
    with pytest.raises(ValueError, match=re.escape(f"{saved} is not a saved measurement: it must be JSON")):
        Measurement.load(saved)


def test_a_measurement_is_at_a_path(measurement):
    for act in (Measurement.load, measurement.save):
        with refused(TypeError, "path must be a file's path, got 1"):
            act(1)
