"""A scenario from flags, from a file, and from both."""

import math

import pytest
from shell import BASE, SCENARIO, SHORT, as_json, refused, run, run_json

import batchsim as bs
from batchsim.scenario.toml import from_tables

GPUNET = "gpunet-175ms/v100-32gb/fp16"


# A scenario from flags, from a file, and from both.


PART_FLAGS = [
    ([], SCENARIO),
    (["--rate-per-s", "900", "--servers", "2"], SCENARIO.replace(rate_per_s=900, servers=2)),
    (["--max-batch-size", "8"], SCENARIO.replace(max_batch_size=8)),
    (["--max-wait-ms", "inf"], SCENARIO.replace(max_wait_ms=math.inf)),
    (["--rule", "AtLeast(4, 8)"], SCENARIO.replace(rule=bs.AtLeast(4, 8))),
    (["--rule", "AtLeast(4, 8)", "--set", "min_batch_size=2"], SCENARIO.replace(rule=bs.AtLeast(2, 8))),
    (["--rule", "PreferredSizes([4, 8], 8, 5)"], SCENARIO.replace(rule=bs.PreferredSizes([4, 8], 8, 5))),
    (["--workload", "Gamma(700, cv=2)"], SCENARIO.replace(workload=bs.Gamma(700, 2))),
    (["--workload", "Gamma(1, cv=2)", "--rate-per-s", "70"], SCENARIO.replace(workload=bs.Gamma(70, 2))),
    (["--clients", "64"], SCENARIO.replace(workload=bs.ClosedLoop(64))),
    (["--clients", "64", "--set", "think_s=0.1"], SCENARIO.replace(workload=bs.ClosedLoop(64, 0.1))),
    (["--fixed-ms", "2"], SCENARIO.replace(fixed_ms=2)),
    (["--table", "1=2.08, 64=3"], SCENARIO.replace(service=bs.Table({1: 2.08, 64: 3}))),
    (["--published", GPUNET], SCENARIO.replace(service=bs.published(GPUNET))),
    (
        ["--fixed-ms", "5", "--per-item-ms", "0.25", "--compile-ms", "1=300,32=650"],
        SCENARIO.replace(service=SCENARIO.service.compiling({1: 300, 32: 650})),
    ),
    (
        ["--service", "Affine(5, 0.25).compiling(800)"],
        SCENARIO.replace(service=SCENARIO.service.compiling(800)),
    ),
    (
        ["--service", "Affine(5, 0.25).with_noise(1, 'exponential').padded_to([8, 32])"],
        SCENARIO.replace(service=SCENARIO.service.with_noise(1, "exponential").padded_to([8, 32])),
    ),
    (["--queue-limit", "9", "--timeout-ms", "50"], SCENARIO.replace(queue_limit=9, timeout_ms=50)),
    (["--queue-limit", "none"], SCENARIO.replace(queue_limit=None)),
    (
        ["--servers", "2", "--set", "slowdown={1: 1, 2: 1.8}"],
        SCENARIO.replace(servers=2, slowdown={1: 1, 2: 1.8}),
    ),
    (
        ["--servers", "3", "--devices", "2", "--host-ms", "0.5", "--contention", "1.2"],
        SCENARIO.replace(servers=3, devices=2, host_ms=0.5, contention=1.2),
    ),
]  # fmt: skip


@pytest.mark.parametrize(("flags", "scenario"), PART_FLAGS)
def test_flags_override_what_a_file_says(file, flags, scenario):
    found = run_json("simulate", file, *SHORT, *flags)
    assert from_tables(bs.Scenario, _numbers(found["scenario"])) == scenario
    assert found["summary"] == as_json(bs.simulate(scenario, 2000).summary())


def test_a_scenario_of_flags_alone_is_that_of_the_file(file):
    assert run_json("simulate", *BASE, *SHORT) == run_json("simulate", file, *SHORT)


def test_a_closed_loop_of_a_file_takes_the_number_of_its_clients(tmp_path):
    loop = SCENARIO.replace(workload=bs.ClosedLoop(8, 0.02))
    loop.to_toml(tmp_path / "loop.toml")
    found = run_json("simulate", tmp_path / "loop.toml", "--clients", "5", *SHORT)
    assert found["scenario"]["workload"] == {"kind": "ClosedLoop", "clients": 5, "think_s": 0.02}


def test_a_trace_is_read_with_its_column_and_speedup(tmp_path):
    path = tmp_path / "arrivals.csv"
    path.write_text("id,when\n" + "".join(f"{i},{i / 100}\n" for i in range(500)))
    arguments = ["--trace", path, "--column", "when", "--speedup", "8", "--fixed-ms", "5", "--unit", "s"]
    found = run_json("simulate", *arguments)
    scenario = bs.Scenario(bs.Trace.from_csv(path, "when", 8, "s"), bs.SizeOrWait(), bs.Affine(5, 0))
    assert found["summary"] == as_json(bs.simulate(scenario).summary())
    about = {"kind": "Trace", "requests": 500, "offered_per_s": pytest.approx(800)}
    assert found["scenario"]["workload"] == about


def test_a_trace_of_json_lines_is_read_in_its_unit_and_an_assumed_one_is_said(tmp_path, monkeypatch):
    path = tmp_path / "arrivals.jsonl"
    path.write_text("".join(f'{{"at": {10 * i}}}\n' for i in range(500)))
    found = run_json("simulate", "--trace", path, "--unit", "ms", "--fixed-ms", "5")
    assert found["scenario"]["workload"]["offered_per_s"] == pytest.approx(100)
    with pytest.warns(
        UserWarning, match=r"seconds are assumed: 0\.1 requests a second, or 100 if milliseconds"
    ):
        assert bs.Trace.from_file(path).offered_per_s == pytest.approx(0.1)
    assert "unit must be one of s, ms, us, ns, got 'm'" in refused(
        "simulate", "--trace", path, "--unit", "m", "--fixed-ms", "5"
    )


def test_a_saved_measurement_is_a_service_time(tmp_path):
    path = tmp_path / "mlp.json"
    rows = run_json(
        "measure", "--model", "mlp", "--width", 8, "--layers", 1, "--batch-sizes", "1,4", "--repeats", 2,
        "--save", path,
    )["rows"]  # fmt: skip
    assert [row["batch_size"] for row in rows] == [1, 4]
    found = run_json("simulate", "--rate-per-s", 10, "--max-batch-size", 4, "--measurement", path, *SHORT)
    points = {int(size): ms for size, ms in found["scenario"]["service"]["points_ms"].items()}
    assert points == {row["batch_size"]: row["median_ms"] for row in rows}


def test_a_measurement_says_how_it_was_made_and_what_is_doubtful(tmp_path):
    model = ["measure", "--model", "mlp", "--width", 8, "--layers", 1, "--batch-sizes", "1,4", "--no-copy"]
    found = run_json(*model, "--limit-s", 0.05, "--target", 0.5)
    assert found["copy"] is False
    assert found["target"] == 0.5
    assert found["knee"] in (1, 4)
    assert run_json(*model, "--repeats", 2)["notes"][0]["key"] == "few"
    text = run(*model, "--repeats", 2).stdout
    assert "without the copy to the device" in text
    assert "few: at 1 (2) and 4 (2)" in text


def test_a_server_is_measured_instead_of_its_model():
    server = ["measure", "--model", "mlp", "--width", 8, "--batch-sizes", "1,4", "--repeats", 2, "--served"]
    assert run_json(*server)["served"] is True
    assert "as a server gives it" in run(*server).stdout


def _numbers(tables):
    """Scenario tables of a JSON answer, in which infinity is text."""
    return {
        name: _numbers(each) if isinstance(each, dict) else math.inf if each == "inf" else each
        for name, each in tables.items()
    }
