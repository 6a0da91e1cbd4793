import dataclasses
import json
import math
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pyarrow
import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracles.plans import scenarios_at_random
from pyarrow import parquet
from scenarios import BY_HAND, part, refused, with_table

import batchsim as bs
from batchsim.scenario import RULES
from batchsim.scenario.toml import document, read_toml, to_tables

SCENARIO = bs.Scenario(
    bs.Poisson(800),
    bs.SizeOrWait(8, math.inf),
    bs.Table({1: 2.08, 2: 2.65, 8: 3.29}).with_noise(0.2).padded_to([1, 2, 4, 8]),
    servers=2,
    timeout_ms=200,
    slowdown={1: 1.0, 2: 1.8},
)


# There and back.


def test_a_file_written_by_hand_is_the_scenario_it_names():
    assert bs.Scenario.from_toml(BY_HAND) == SCENARIO


def test_the_text_is_toml_with_a_table_a_part_and_a_key_a_field():
    assert tomllib.loads(SCENARIO.to_toml()) == {
        "servers": 2,
        "timeout_ms": 200,
        "workload": {"kind": "Poisson", "rate_per_s": 800},
        "rule": {"kind": "SizeOrWait", "max_batch_size": 8, "max_wait_ms": math.inf},
        "service": {
            "kind": "Table",
            "points_ms": {"1": 2.08, "2": 2.65, "8": 3.29},
            "noise": {"cv": 0.2, "shape": "lognormal"},
            "padding": [1, 2, 4, 8],
        },
        "slowdown": {"1": 1.0, "2": 1.8},
    }


@given(scenarios_at_random())
def test_every_scenario_comes_back_as_it_was(scenario):
    back = bs.Scenario.from_toml(scenario.to_toml())
    assert (back, repr(back)) == (scenario, repr(scenario))


TIMES_MS = st.floats(1e-9, 1e9)


@given(
    rate=st.floats(1e-9, 1e12) | st.integers(1, 10**12),
    wait_ms=st.floats(0, 1e12) | st.just(math.inf) | st.integers(0, 10**12),
    points=st.dictionaries(st.integers(1, 40), TIMES_MS, min_size=1),
    cv=st.none() | st.floats(0, 1e3),
    slowdown=st.dictionaries(st.integers(2, 2**62), TIMES_MS),
)
def test_every_number_comes_back_as_the_same_float_or_whole_number(rate, wait_ms, points, cv, slowdown):
    service = bs.Table(points)
    scenario = bs.Scenario(
        bs.Poisson(rate),
        bs.SizeOrWait(max(points), wait_ms),
        service if cv is None else service.with_noise(cv),
        slowdown={1: 1, **slowdown},
    )
    back = bs.Scenario.from_toml(scenario.to_toml())
    assert back == scenario
    assert repr(back) == repr(scenario)  # 10 and 10.0 are equal, but print otherwise


@given(st.lists(st.floats(0, 1e12), min_size=1, max_size=30))
def test_a_trace_comes_back_as_it_was(times_s):
    scenario = SCENARIO.replace(workload=bs.Trace(np.sort(times_s)))
    assert bs.Scenario.from_toml(scenario.to_toml()) == scenario


def test_a_trace_of_10_000_arrivals_comes_back_as_it_was():
    times_s = np.cumsum(np.random.default_rng(1).exponential(size=10_000))
    scenario = SCENARIO.replace(workload=bs.Trace(times_s))
    assert bs.Scenario.from_toml(scenario.to_toml()) == scenario


def test_what_is_none_is_left_out():
    tables = to_tables(bs.Scenario(bs.Poisson(800), bs.SizeOrWait(8, 5), bs.Affine(5, 0.25)))
    assert tables == {
        "workload": {"kind": "Poisson", "rate_per_s": 800},
        "rule": {"kind": "SizeOrWait", "max_batch_size": 8, "max_wait_ms": 5},
        "service": {"kind": "Affine", "fixed_ms": 5, "per_item_ms": 0.25},
        "servers": 1,
    }


def test_what_a_file_leaves_out_is_as_the_classes_have_it():
    plain = bs.Scenario(bs.Poisson(800), bs.SizeOrWait(), bs.Affine(5, 0.25))
    assert bs.Scenario.from_toml(with_table()) == plain


def test_a_rule_of_ones_own_cannot_be_written():
    @dataclasses.dataclass(frozen=True)
    class SizeOrWait(bs.SizeOrWait):
        pass

    with pytest.raises(TypeError, match=r"rule must be one of SizeOrWait, .* to be written, got .*"):
        SCENARIO.replace(rule=SizeOrWait(8)).to_toml()


@pytest.mark.parametrize("rule", RULES)
def test_every_rule_comes_back_with_its_usual_parameters(rule):
    usual = {name: parameter.usual for name, parameter in rule.parameters().items()}
    scenario = SCENARIO.replace(rule=rule(**usual), service=bs.Affine(5, 0.25))
    assert bs.Scenario.from_toml(scenario.to_toml()) == scenario


def test_the_document_takes_comments_and_is_still_the_scenario():
    content = document(SCENARIO)
    content["rule"].comment("when a batch leaves")
    content["rule"]["max_wait_ms"].comment("of the oldest request")
    text = content.as_string()
    assert "[rule] # when a batch leaves\n" in text
    assert "max_wait_ms = inf # of the oldest request\n" in text
    assert bs.Scenario.from_toml(text) == SCENARIO


# Files.


@pytest.mark.parametrize("kind", [str, Path])
def test_a_file_is_written_and_read(tmp_path, kind):
    path = kind(tmp_path / "scenario.toml")
    assert SCENARIO.to_toml(path) == Path(path).read_text(encoding="utf-8") == SCENARIO.to_toml()
    assert bs.Scenario.from_toml(path) == SCENARIO
    assert os.listdir(tmp_path) == ["scenario.toml"]


def test_the_file_before_survives_a_writing_that_fails(tmp_path, monkeypatch):
    path = tmp_path / "scenario.toml"
    SCENARIO.to_toml(path)

    def fail(_):
        raise OSError("no space left")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="no space left"):
        SCENARIO.replace(max_batch_size=4).to_toml(path)
    assert bs.Scenario.from_toml(path) == SCENARIO
    assert os.listdir(tmp_path) == ["scenario.toml"]


@pytest.mark.parametrize(
    "encoded", [b"\xef\xbb\xbf" + BY_HAND.encode(), BY_HAND.replace("\n", "\r\n").encode()]
)
def test_a_file_of_windows_is_read(tmp_path, encoded):
    (tmp_path / "scenario.toml").write_bytes(encoded)
    assert bs.Scenario.from_toml(tmp_path / "scenario.toml") == SCENARIO


def test_a_string_of_one_line_is_a_path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("rate=800.toml").write_text(BY_HAND)
    assert bs.Scenario.from_toml("rate=800.toml") == SCENARIO
    with pytest.raises(FileNotFoundError, match=r"rate=900\.toml"):
        bs.Scenario.from_toml("rate=900.toml")


def test_a_folder_is_refused(tmp_path):
    with pytest.raises(OSError, match=re.escape(str(tmp_path))):
        bs.Scenario.from_toml(tmp_path)


@pytest.mark.parametrize("given_", [None, 5, b"servers = 1\n", {}])
def test_what_is_neither_path_nor_text_is_refused(given_):
    with pytest.raises(TypeError, match=re.escape(f"must be a path or text, got {given_!r}")):
        bs.Scenario.from_toml(given_)


def test_an_empty_string_is_refused():
    with refused("path_or_text must not be empty, got ''"):
        bs.Scenario.from_toml("")


# What is kept elsewhere.


@pytest.fixture
def elsewhere(tmp_path, monkeypatch):
    """A folder of files, away from the current one."""
    (tmp_path / "here").mkdir()
    (tmp_path / "there").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    return tmp_path / "there"


def test_a_trace_is_read_from_a_csv_file_beside_the_toml_file(elsewhere):
    (elsewhere / "arrivals.csv").write_text("id,sent_s\n7,10\n8,11\n9,14\n")
    table = '[workload]\nkind = "Trace"\npath = "arrivals.csv"\ncolumn = "sent_s"\nspeedup = 2\n'
    (elsewhere / "scenario.toml").write_text(with_table(workload=table))
    scenario = bs.Scenario.from_toml(elsewhere / "scenario.toml")
    assert scenario.workload == bs.Trace([0, 0.5, 2])
    assert bs.Scenario.from_toml(scenario.to_toml()) == scenario  # which holds the times themselves


def test_a_trace_in_a_toml_file_may_be_json_lines_or_parquet_with_a_unit(elsewhere):
    (elsewhere / "arrivals.jsonl").write_text('{"at": 10}\n{"at": 1010}\n')
    parquet.write_table(pyarrow.table({"at": [10, 1010]}), elsewhere / "arrivals.parquet")
    for ending in ("jsonl", "parquet"):
        table = f'[workload]\nkind = "Trace"\npath = "arrivals.{ending}"\nunit = "ms"\n'
        (elsewhere / "scenario.toml").write_text(with_table(workload=table))
        assert bs.Scenario.from_toml(elsewhere / "scenario.toml").workload == bs.Trace([0, 1])


@pytest.mark.parametrize("costs", ["{1 = 300, 8 = 650.5}", "800"])
def test_a_cold_start_is_read_and_written_by_size(costs):
    table = f'[service]\nkind = "Affine"\nfixed_ms = 5\nper_item_ms = 1\ncompile_ms = {costs}\n'
    scenario = bs.Scenario.from_toml(with_table(service=table))
    expected = {1: 300, 8: 650.5} if "=" in costs else 800
    assert scenario.service == bs.Affine(5, 1).compiling(expected)
    assert bs.Scenario.from_toml(scenario.to_toml()) == scenario


def test_text_finds_files_from_the_current_folder(elsewhere):
    (elsewhere.parent / "here" / "arrivals.csv").write_text("sent_s\n3\n5\n")
    assert part('[workload]\nkind = "Trace"\npath = "arrivals.csv"') == bs.Trace([0, 2])


MEASUREMENT = {
    "format": "batchsim measurement",
    "version": 1,
    "model": "mlp",
    "device": "a device",
    "platform": "cpu",
    "jax_version": "0.6.0",
    "batch_sizes": [1, 8],
    "repeats": 4,
    "samples_ms": [[2.1, 2.0, 2.4, 2.2], [3.0, 3.1, 2.9, 33.0]],
    "first_call_s": [0.5, 0.6],
    "measured_at": "2026-01-01T00:00:00+00:00",
}
OF_FOUR = '[rule]\nkind = "SizeOrWait"\nmax_batch_size = 4\n'
MEASURED = '[service]\nkind = "Measurement"\npath = "transformer.json"\n'


def test_a_measurement_is_read_as_it_loads_itself(elsewhere):
    from batchsim.device import Measurement

    (elsewhere / "transformer.json").write_text(json.dumps(MEASUREMENT))
    text = with_table(rule=OF_FOUR, service=MEASURED + "noise = {cv = 0.5}\npadding = [1, 8]")
    (elsewhere / "scenario.toml").write_text(text)
    service = bs.Scenario.from_toml(elsewhere / "scenario.toml").service
    assert service(1) == (2.1 + 2.2) / 2 / 1000
    measured = Measurement.load(elsewhere / "transformer.json")
    assert service == measured.service.with_noise(0.5).padded_to([1, 8])


def test_a_measurement_saved_by_the_class_itself_is_read(tmp_path):
    from batchsim.device import Measurement

    fields = {key: value for key, value in MEASUREMENT.items() if key not in ("format", "version")}
    measurement = Measurement(**fields)
    measurement.save(tmp_path / "saved.json")
    scenario = SCENARIO.replace(service=measurement.service)
    text = scenario.to_toml()
    there = text[: text.index("[service]")] + '[service]\nkind = "Measurement"\npath = "saved.json"\n'
    (tmp_path / "scenario.toml").write_text(there + text[text.index("\n[slowdown]") :])
    assert bs.Scenario.from_toml(tmp_path / "scenario.toml") == scenario


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"format": "a diary"}, "format must be 'batchsim measurement', got 'a diary'"),
        ({"version": 2}, "version must be 1, got 2"),
        ({"repeats": 3}, "repeats must be the fewest samples of a size, 4, got 3"),
        ({"repeats": 0, "samples_ms": [[], []]}, "repeats must be at least 1, got 0"),
        ({"batch_sizes": [1, 1]}, "batch_sizes must differ, got [1, 1]"),
        ({"batch_sizes": [1]}, "samples_ms must ... 1 ... got 2"),
        ({"samples_ms": [[1, 1, 1, math.nan]] * 2}, "...batch size 1 must be a number, got nan"),
        ({"samples_ms": [[1, 1, 1, math.inf]] * 2}, "...batch size 1 must be finite, got inf"),
        ({"samples_ms": [[1, 1, 1, -1]] * 2}, "...batch size 1 must be greater than 0, got -1"),
        ({"samples_ms": ["1111"] * 2}, "...batch size 1 must be a list, got '1111'"),
        ({"samples_ms": None}, "samples_ms must be a list, got None"),
    ],
)
def test_a_measurement_that_is_none_is_refused(elsewhere, changes, message):
    (elsewhere / "transformer.json").write_text(json.dumps(MEASUREMENT | changes))
    (elsewhere / "scenario.toml").write_text(with_table(service=MEASURED))
    file, toml = elsewhere / "transformer.json", elsewhere / "scenario.toml"
    with refused(f"{toml}, [service] {file} is not a saved measurement: {message}"):
        bs.Scenario.from_toml(toml)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"[]", "it must be a JSON object, got list"),
        (b"", "it must be JSON, got b''"),
        (b"\x80abc", "it must be JSON, got"),
        (b"[" * 100_000, ""),
        (json.dumps({**MEASUREMENT, "repeats": None}).encode(), "repeats must be a whole number, got None"),
        (json.dumps({k: v for k, v in MEASUREMENT.items() if k != "samples_ms"}).encode(),
         "it must have the key 'samples_ms'"),
    ],
)  # fmt: skip
def test_a_file_that_is_no_measurement_is_refused(tmp_path, content, message):
    (tmp_path / "transformer.json").write_bytes(content)
    (tmp_path / "scenario.toml").write_text(with_table(service=MEASURED))
    with pytest.raises(ValueError, match=re.escape(f"is not a saved measurement: {message}")):
        bs.Scenario.from_toml(tmp_path / "scenario.toml")


def test_a_published_table_is_read_by_its_name():
    table = '[service]\nkind = "published"\nname = "gpunet-175ms/v100-32gb/fp16"\nnoise = {cv = 0.1}\n'
    scenario = bs.Scenario.from_toml(with_table(service=table, rule=OF_FOUR))
    assert scenario.service == bs.published("gpunet-175ms/v100-32gb/fp16").with_noise(0.1)
    assert bs.Scenario.from_toml(scenario.to_toml()) == scenario


def test_reading_and_writing_load_nothing_heavy(tmp_path):
    (tmp_path / "transformer.json").write_text(json.dumps(MEASUREMENT))
    (tmp_path / "scenario.toml").write_text(with_table(service=MEASURED, rule=OF_FOUR))
    program = (
        "import sys, batchsim as bs\n"
        "assert 'tomlkit' not in sys.modules\n"
        "bs.Scenario.from_toml('scenario.toml').to_toml()\n"
        "print([name for name in ('jax', 'numba', 'pandas', 'matplotlib', 'ipywidgets', 'scipy')"
        " if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True)
    assert (done.stdout.strip(), done.stderr) == ("[]", "")


# Tables beside the scenario.


def test_tables_that_a_caller_allows_come_beside_the_scenario():
    text = BY_HAND + '\n[simulate]\nrequests = 5000\nengine = "simpy"\n'
    scenario, others = read_toml(bs.Scenario, text, extra=("simulate", "objective"))
    assert scenario == SCENARIO
    assert others == {"simulate": {"requests": 5000, "engine": "simpy"}}
    with refused(
        "the top level: ... no key 'simulate'; known: autoscale, contention, devices, "
        "host_ms, oversize_action, price_per_hour, queue_limit, replicas, routing, rule, "
        "servers, service, slowdown, stale_ms, timeout_action, timeout_ms, tokens, watts, workload"
    ):
        bs.Scenario.from_toml(text)


def test_a_misspelt_table_beside_the_scenario_names_the_nearest():
    with refused("the top level: ... no key 'simulat'; did you mean 'simulate'?"):
        read_toml(bs.Scenario, BY_HAND + "\n[simulat]\nrequests = 5000\n", extra=["simulate"])
    with refused("[simulate] must be a table, got 5"):
        read_toml(bs.Scenario, "simulate = 5\n" + BY_HAND, extra=["simulate"])
