"""A measured service time: what it computes, and what is doubtful of it."""

import json
import math
import os
import re
from dataclasses import replace

import numpy as np
import pytest

import batchsim as bs
from batchsim.measured.measurement import Measurement, doubts
from batchsim.measured.samples import summary

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


LASTING = [0.4 * math.exp(-(lag - 1) / 8) for lag in (1, 2, 4, 8, 16, 32)]


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
    frame = measurement.to_frame()
    assert np.isnan(frame.pop("low_ms")).all()  # five samples give no interval
    assert np.isnan(frame.pop("high_ms")).all()
    assert frame.to_dict("list") == {
        "batch_size": [1, 4],
        "median_ms": [3.0, 4.0],
        "all_ms": [3.0, 4.0],
        "spread_ms": [2.0, 0.0],
        "per_item_ms": [3.0, 1.0],
        "items_per_s": pytest.approx([1000 / 3, 1000]),
        "cv": pytest.approx([math.sqrt(2.5) / 3, math.sqrt(2.738) / 3.26]),
        "samples": [5, 5],
        "disturbed": [0, 0],
        "compile_s": [0.5, 1 / 3],
        "notes": ["few", "few"],
    }


def test_a_measurement_prints_as_a_table(measurement):
    title, header, *rows, few, noise = repr(measurement).splitlines()
    assert title == (
        "Measurement: mlp on CPU <2 cores> (jax 0.10.2, cpu), 5 repeats, with the copy to the device, "
        "2026-01-02T03:04:05+00:00"
    )
    names = "batch_size median_ms within spread_ms per_item_ms items_per_s disturbed compile_s notes"
    assert header.split() == names.split()
    assert [row.split() for row in rows] == [
        ["1", "3.000", "2.000", "3.000", "333", "0", "0.500", "few"],
        ["4", "4.000", "0.000", "1.000", "1,000", "0", "0.333", "few"],
    ]
    assert few.startswith("few: at 1 (5) and 4 (5)")
    assert "cv 0.517" in noise
    assert "0.508 (4) to 0.527 (1)" in noise


def test_a_measurement_is_a_table_in_a_notebook(measurement):
    html = measurement._repr_html_()
    assert "CPU &lt;2 cores&gt;" in html
    assert html.count("<tr") == 3
    assert html.count("<li>") == 2
    assert "<td>0.333</td>" in html


def test_measurements_are_equal_by_value(measurement):
    assert measurement == Measurement(**FIELDS)
    assert hash(measurement) == hash(Measurement(**FIELDS))
    assert measurement != Measurement(**FIELDS | {"model": "convnet"})


# What is quiet, and what is doubtful.


BUSY = (5.6, 5.5, 5.7, 2.0, 2.1, 2.0, 2.1, 2.0, 2.1, 2.0, 2.1, 2.0, 2.1, 9.0)


def measured(samples_ms, **changes):
    """A measurement of these times, by batch size."""
    own = {"batch_sizes": tuple(samples_ms), "samples_ms": tuple(samples_ms.values())}
    own |= {"repeats": min(map(len, samples_ms.values())), "first_call_s": ()}
    return Measurement(**FIELDS | own | changes)


def test_the_service_time_is_of_the_quiet_times_and_both_are_shown():
    busy = measured({1: BUSY, 2: [3.0] * 14})
    assert busy.service == bs.Table({1: 2.05, 2: 3.0})
    assert busy.quiet[1].tolist() == [ms < 3 for ms in BUSY]
    frame = busy.to_frame()
    assert frame["disturbed"].tolist() == [4, 0]
    assert frame["all_ms"].tolist() == [2.1, 3.0]
    assert frame["samples"].tolist() == [14, 14]


def test_a_doubt_is_in_the_frame_the_text_and_the_html():
    falling = measured({1: [5.6] * 8, 2: [2.9] * 8})
    (note,) = falling.notes
    assert (note.batch_size, note.key) == (2, "falls")
    assert falling.to_frame()["notes"].tolist() == ["", "falls"]
    assert f"falls: {note.text}" in repr(falling)
    assert note.text in falling._repr_html_()


def test_a_curve_without_doubt_has_no_notes():
    assert measured({1: [2.0, 2.01] * 10, 2: [2.5, 2.51] * 10}).notes == ()


def test_a_size_that_did_not_fit_is_reported():
    full = measured({1: [2.0] * 8}, not_fitting=[(64, "a batch of 64 must fit, got full")])
    assert full.notes == ((64, "memory", "a batch of 64 must fit, got full"),)
    assert "memory: a batch of 64" in repr(full)


def test_sizes_may_have_different_numbers_of_times():
    uneven = measured({1: [2.0] * 40, 2: [3.0] * 20})
    assert uneven.repeats == 20
    assert ", 20 to 40 repeats, " in repr(uneven)


# What is made of it.


def test_noise_has_the_root_mean_square_of_the_quiet_variations_and_keeps_their_means():
    few = measured({1: BUSY, 4: [4.0, 4.1] * 7})
    service = few.service_with_noise()
    assert service.points_ms == ((1, pytest.approx(2.05)), (4, pytest.approx(4.05)))
    each = few.noise_cv()
    assert each[4] == pytest.approx(0.05 * math.sqrt(14 / 13) / 4.05)
    assert service.noise.cv == pytest.approx(math.sqrt((each[1] ** 2 + each[4] ** 2) / 2))
    assert service.noise.shape == "lognormal"
    every = few.service_with_noise("all")
    assert every.points_ms[0][1] == pytest.approx(sum(BUSY) / 14)
    assert every.noise.cv > 5 * service.noise.cv


def test_of_a_server_all_times_count_but_one_pause_in_a_hundred_is_no_noise():
    usual = [3.9, 4.1] * 100
    served = measured({1: usual, 8: [*usual[:-1], 400.0]}, served=True)
    service = served.service_with_noise()
    assert service == served.service_with_noise("clipped")
    assert service(8) == pytest.approx(0.004, rel=0.01)
    assert service.noise.cv == pytest.approx(0.025, rel=0.05)
    assert served.service_with_noise("all").noise.cv > 1
    two_levels = [4.0] * 50 + [8.0] * 50
    assert measured({1: two_levels}, served=True).service_with_noise()(1) == pytest.approx(0.006)
    assert measured({1: two_levels}).service_with_noise()(1) == pytest.approx(0.004)


def test_noise_lasts_as_long_as_was_measured():
    lasts = measured({1: [2.0, 2.2] * 20}, served=True, autocorrelation=LASTING)
    noise = lasts.service_with_noise().noise
    assert (noise.correlation, noise.memory_batches) == pytest.approx((0.4, 8), rel=0.05)
    assert "correlates with the next one's by 0.40" in repr(lasts)
    assert measured({1: [2.0, 2.2] * 20}).service_with_noise().noise.correlation == 0


def test_joined_measurements_have_the_times_of_both():
    before = measured({1: [2.0, 2.1], 2: [3.0]}, autocorrelation=[0.4] * 6)
    after = measured({1: [2.4], 2: [3.3, 3.4]}, autocorrelation=[0.2] * 6)
    both = before.joined(after)
    assert both.samples_ms == ((2.0, 2.1, 2.4), (3.0, 3.3, 3.4))
    assert both.repeats == 3
    assert both.autocorrelation == pytest.approx([0.3] * 6)
    assert before.joined(replace(after, autocorrelation=())).autocorrelation == ()
    with refused(ValueError, "joined measurements must have the same batch_sizes, got (1, 2) and (1,)"):
        before.joined(measured({1: [2.0]}))


def test_one_time_a_size_has_no_noise():
    assert measured({1: [2.0], 2: [3.0]}).service_with_noise().noise.cv == 0


def test_a_fit_is_of_the_medians():
    assert measured({1: [3.0], 2: [4.0], 8: [10.0]}).fit().service(4) == pytest.approx(0.006)
    assert measured({1: [3.0], 2: [4.0], 8: [10.0]}).fit("piecewise", pieces=1).worst_error == pytest.approx(
        0
    )


def test_compiling_is_the_first_call_less_a_usual_one(measurement):
    assert measurement.compiling() == {1: 497.0, 4: pytest.approx(1000 / 3 - 4)}
    with refused(ValueError, "first_call_s must not be empty, got none: this measurement has no first calls"):
        measured({1: [2.0]}).compiling()


def test_the_knee_of_a_straight_line_is_its_fixed_cost_over_that_of_an_item():
    line = measured({size: [6.0 + size / 2] for size in (1, 2, 4, 8, 12, 16, 32, 64)})
    assert line.knee == 12


def test_the_bound_is_the_longer_of_computing_and_moving():
    known = measured({1: [9.0], 8: [9.0]}, program=[(1e9, 4e8), (8e9, 5e8)], roofline=(1e12, 1e11))
    assert known.bound_ms == pytest.approx({1: 4.0, 8: 8.0})
    assert measured({1: [9.0]}).bound_ms == {}


# How it is kept.


def test_what_is_saved_is_loaded_exactly(measurement, saved):
    assert Measurement.load(saved) == measurement
    assert Measurement.load(str(saved)) == measurement


def test_everything_is_saved(tmp_path):
    path = tmp_path / "curve.json"
    full = measured(
        {1: [2.0, 3.0], 2: [3.0]}, copy=False, target=0.02, program=[(1e9, 1e8), (2e9, 1e8)],
        roofline=(1e14, 3e12), not_fitting=[(64, "full")], first_call_s=(0.5, 0.6),
        autocorrelation=LASTING,
    )  # fmt: skip
    assert repr(full)  # what it computes for that is no part of the file
    full.save(path)
    assert Measurement.load(path) == full


def test_a_file_of_before_there_were_notes_is_read(saved):
    content = json.loads(saved.read_text())
    for key in ("copy", "target", "program", "roofline", "not_fitting", "autocorrelation"):
        del content[key]
    saved.write_text(json.dumps(content))
    assert Measurement.load(saved) == Measurement(**FIELDS)


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
        ({"repeats": 4}, "repeats must be the fewest samples of a size, 5, got 4"),
        ({"samples_ms": [[], [1]]}, "samples_ms of batch size 1 must not be empty, got []"),
        ({"copy": 1}, "copy must be true, false or null, got 1"),
        ({"target": 0}, "target must be greater than 0, got 0"),
        ({"program": [[1, 2]]}, "program must hold 2 values, got 1"),
        ({"program": [[1, 2], [1]]}, "a pair in program must hold 2 values, got 1"),
        ({"roofline": [1]}, "roofline must hold 2 values, got 1"),
        ({"roofline": [1, -1]}, "a number in roofline must be greater than 0, got -1"),
        ({"not_fitting": [[64]]}, "a pair in not_fitting must hold 2 values, got 1"),
        ({"not_fitting": [[0, "full"]]}, "a size in not_fitting must be at least 1, got 0"),
        ({"not_fitting": [[64, None]]}, "a reason in not_fitting must be text, got None"),
        ({"autocorrelation": [0.5]}, "autocorrelation must hold 6 values, got 1"),
        ({"autocorrelation": 0.5}, "autocorrelation must be a list, got 0.5"),
        ({"autocorrelation": [0.5] * 5 + [3]}, "a number in autocorrelation must be at most 1, got 3"),
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
    rule = "it must have the key 'device', got model, platform, jax_version, batch_sizes, repeats, "
    with pytest.raises(ValueError, match=re.escape(f"{saved} is not a saved measurement: {rule}")):
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


def keys(samples, target=0.02):
    points = {size: summary(row) for size, row in samples.items()}
    return [(note.batch_size, note.key) for note in doubts(points, target)]


def near(ms, count=100, cv=0.01, seed=0):
    return ms * np.exp(cv * np.random.default_rng(seed).standard_normal(count))


def test_quiet_times_that_rise_raise_no_doubt():
    assert keys({1: near(2.0), 2: near(2.5), 4: near(2.49, seed=1)}) == []


def test_a_busy_machine_is_said():
    generator = np.random.default_rng(0)
    busy = np.concatenate([near(2.0, 120), 2.0 * (1 + generator.exponential(0.3, 80))])
    assert keys({1: generator.permutation(busy)}) == [(1, "disturbed")]


def test_repeats_at_two_levels_are_said():
    both = np.random.default_rng(0).permutation(np.concatenate([near(2.9, 50), near(5.6, 50)]))
    assert keys({1: both}) == [(1, "two levels")]


def test_a_machine_that_changed_is_said():
    assert keys({8: np.concatenate([near(2.0, cv=0.03), near(2.1, cv=0.03)])}) == [(8, "drift")]


def test_an_interval_beyond_the_target_is_said():
    wide = {1: near(2.0, cv=0.2), 2: near(3.0, cv=0.2)}
    assert keys(wide) == [(1, "wide"), (2, "wide")]
    assert keys(wide, target=0.2) == []
    assert keys({1: near(2.0, cv=0.1)}, target=None) == []  # 5 % where none was asked for


def test_a_curve_that_falls_by_more_than_its_intervals_is_said():
    assert keys({2: near(2.9), 1: near(5.6)}) == [(2, "falls")]
    assert keys({1: near(3.0, cv=0.5), 2: near(2.9, cv=0.5)}, target=1) == []


def test_a_fall_is_from_the_highest_smaller_size():
    points = {size: summary(near(ms)) for size, ms in {1: 2.0, 8: 9.0, 9: 6.0, 16: 7.0}.items()}
    found = doubts(points, 0.02)
    assert [note.batch_size for note in found] == [9, 16]
    assert all("one of 8," in note.text for note in found)


def test_single_values_fall_if_they_differ_by_more_than_the_limit():
    assert keys({1: [3.0], 2: [2.9]}, target=None) == [(1, "few"), (2, "few")]
    assert (2, "falls") in keys({1: [3.0], 2: [2.8]}, target=None)


def test_a_batch_that_takes_longer_than_its_items_in_smaller_ones_is_said():
    assert keys({1: near(2.5), 2: near(3.6), 4: near(16.8), 8: near(20.8)}) == [(4, "jumps"), (8, "jumps")]
    assert keys({1: near(2.0), 2: near(4.1), 32: near(66.0)}) == []
    assert keys({1: near(2.0, cv=0.5), 2: near(4.8)}, target=1) == []


@pytest.mark.parametrize("count", [1, 5])
def test_few_samples_are_said(count):
    assert keys({1: [2.0] * count}) == [(1, "few")]


def test_a_doubt_about_several_sizes_is_one_text():
    found = doubts({1: summary([2.0]), 2: summary([3.0])}, None)
    assert len({note.text for note in found}) == 1
