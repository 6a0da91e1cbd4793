"""The command says what the Python functions do, and its exit codes are for scripts."""

import dataclasses
import io
import json
import math
import os
import re
import signal
import stat
import subprocess
import sys
import time
import tomllib

import pandas
import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st
from shell import SHORT, refused, run, run_json
from typer.testing import CliRunner

import batchsim as bs
from batchsim.cli import app, values
from batchsim.measured.measurement import Measurement
from batchsim.scenario.routing import NAMES
from batchsim.scenario.rules import RULES
from batchsim.scenario.toml import KINDS, from_tables, read_toml
from batchsim.study.capacity import capacity
from batchsim.study.slo import SLO
from batchsim.study.sweep import sweep
from batchsim.study.tune import tune

SCENARIO = bs.Scenario(bs.Poisson(800), bs.SizeOrWait(32, 10), bs.Affine(5, 0.25))
GPUNET = "gpunet-175ms/v100-32gb/fp16"
BASE = ["--rate-per-s", "800", "--max-wait-ms", "10", "--fixed-ms", "5", "--per-item-ms", "0.25"]


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "scenario.toml"
    SCENARIO.to_toml(path)
    return path


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
    assert found["summary"] == _plain(bs.simulate(scenario, 2000).summary())


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
    assert found["summary"] == _plain(bs.simulate(scenario).summary())
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


def _plain(summary):
    return {key: None if isinstance(x, float) and math.isnan(x) else x for key, x in summary.items()}


def _numbers(tables):
    """Scenario tables of a JSON answer, in which infinity is text."""
    return {
        name: _numbers(each) if isinstance(each, dict) else math.inf if each == "inf" else each
        for name, each in tables.items()
    }


# simulate


def test_simulate_gives_the_numbers_intervals_and_theory_of_the_run():
    one_by_one = ["--rate-per-s", "800", "--max-batch-size", "1", "--fixed-ms", "1"]
    found = run_json("simulate", *one_by_one, "--requests", "50000", "--warmup", "0.1", "--seed", "3")
    scenario = bs.Scenario(bs.Poisson(800), bs.SizeOrWait(1, 10), bs.Affine(1, 0))
    result = bs.simulate(scenario, 50_000, seed=3, warmup=0.1)
    assert found["summary"] == _plain(result.summary())
    assert found["intervals"]["p99_ms"] == list(result.interval("p99"))
    assert found["theory"]["exact"] is True
    # M/D/1 waits rho / (2 (1 - rho)) of its service time on average: 2 ms, and then computes for 1.
    assert found["theory"]["summary"]["mean_latency_ms"] == pytest.approx(3)
    low, high = found["intervals"]["mean_latency_ms"]
    assert low < 3 < high


def test_the_table_has_those_numbers():
    result = bs.simulate(SCENARIO, 20_000)
    text = run("simulate", *BASE, "--requests", "20000").stdout
    low, high = result.interval("p99")
    row = re.search(r"^ p99 \(ms\)\s+(\S+)\s+(\S+) to (\S+)\s+(\S+)", text, re.M)
    assert [float(each) for each in row.groups()[:3]] == [
        pytest.approx(number, abs=0.006) for number in (result.percentile(99), low, high)
    ]
    assert float(row[4]) == pytest.approx(bs.theory.expected(SCENARIO).percentile(99), abs=0.006)
    assert "theory: M/D^(1,32)/1 with a wait of 10 ms, exact" in text
    assert "requests: 20,000, 20,000 served" in text


LACKS = [
    (["--workload", "OnOff(900, 100, 1, 1)"], "no theory applies: arrivals must be Poisson"),
    (["--rate-per-s", "5000"], "UNSTABLE: the queue grows without end"),
    (["--requests", "50"], "no interval: the run is too short"),
    (["--keep", "summary"], "no interval: the run keeps no columns"),
]


@pytest.mark.parametrize(("arguments", "reason"), LACKS)
def test_the_table_says_why_a_run_lacks_a_number_and_json_has_null(arguments, reason):
    given = ["simulate", *BASE, *SHORT, *arguments]
    assert reason in run(*given).stdout
    found = run_json(*given)
    assert found["theory"] is None or "theory" not in reason
    assert found["intervals"]["p99_ms"] == [None, None] or "interval" not in reason
    assert found["summary"]["served"] == (50 if "50" in arguments else 2000)


@pytest.mark.usefixtures("compiled_before")
def test_a_warning_is_one_line_beside_the_answer():
    done = run("simulate", *BASE, "--requests", "20", "--warmup", "auto", "--json")
    assert json.loads(done.stdout)["warmup"] == 0
    assert done.stderr.startswith("Warning: a warm-up by MSER-5 needs about")
    assert done.stderr.count("\n") == 1


def test_a_saved_run_loads_equal_and_a_plot_is_a_picture(tmp_path):
    saved, picture = tmp_path / "run.npz", tmp_path / "run.SVG"
    run("simulate", *BASE, *SHORT, "--save", saved, "--plot", picture)
    assert bs.Result.load(saved).summary() == bs.simulate(SCENARIO, 2000).summary()
    assert "<svg" in picture.read_text()


def test_a_summary_alone_has_no_picture():
    error = refused("simulate", *BASE, "--keep", "summary", "--plot", "a.png")
    assert error.startswith("--plot needs the columns")


# sweep


OVER = ["--over", "max_batch_size=4,32", "--over", "max_wait_ms=0:10:5"]
GRID = {"max_batch_size": [4, 32], "max_wait_ms": [0, 5, 10]}


def test_a_sweeps_csv_is_its_table_to_the_last_bit(file):
    text = run("sweep", file, *OVER, *SHORT, "--csv").stdout
    expected = sweep(SCENARIO, GRID, 2000, progress=False)
    empty = {name: [""] for name in expected if name != "infeasible"}
    dtypes = expected.dtypes.to_dict()
    found = pandas.read_csv(io.StringIO(text), dtype=dtypes, keep_default_na=False, na_values=empty)
    pandas.testing.assert_frame_equal(found, expected, check_exact=True)


def test_a_sweeps_json_and_table_keep_infeasible_points(file):
    over = ["--over", "service=Affine(5, 0.25),Table({1: 5, 8: 9})", "--over", "max_batch_size=4,32"]
    points = run_json("sweep", file, *over, *SHORT)["points"]
    assert [point["infeasible"].split(":")[0] for point in points] == [
        "load 1.2", "", "load 1.343", "batch_size must be at most the Table's largest size, 8, got 9"
    ]  # fmt: skip
    assert points[3]["p99_ms"] is None
    text = run("sweep", file, *over, *SHORT).stdout
    assert len(re.findall(" overloaded ", text)) == 2
    assert "batch_size must be at most the Table's largest size, 8, got 9" in text


def test_a_sweep_in_a_folder_goes_on_where_it_was(file, tmp_path):
    out = ["--out", tmp_path / "day1"]
    first = run("sweep", file, *OVER, *SHORT, *out, "--csv").stdout
    assert list((tmp_path / "day1" / "points").glob("*.parquet"))
    assert run("sweep", file, *OVER, *SHORT, *out, "--csv").stdout == first
    assert "another" in refused("sweep", file, *OVER, *SHORT, *out, "--seed", 1)


AXES = [OVER, OVER[:2], ["--over", "rule=SizeOrWait(8, 1),AtLeast(4, 8)"]]
AXES += [[*AXES[2], "--over", "servers=1,2"], [*OVER[:2], "--over", "workload.rate_per_s=100:400:x2"]]


@pytest.mark.parametrize("over", AXES)
def test_a_sweep_of_one_or_two_axes_draws_a_picture(file, tmp_path, over):
    run("sweep", file, *over, *SHORT, "--plot", tmp_path / "map.png", "--objective", "20")
    assert (tmp_path / "map.png").read_bytes().startswith(b"\x89PNG")


def test_the_map_of_a_sweep_has_the_scenarios_own_setting(file, tmp_path):
    over = ["--over", "rate_per_s=800,900", "--over", "rule=SizeOrWait(32, 10),AtLeast(4, 8)"]
    run("sweep", file, *over, *SHORT, "--plot", tmp_path / "map.svg")
    assert "<!-- today -->" in (tmp_path / "map.svg").read_text()
    run("sweep", file, *over, *SHORT, "--plot", tmp_path / "map.svg", "--max-wait-ms", "11")
    assert "<!-- today -->" not in (tmp_path / "map.svg").read_text()


LOSSY = ["--over", "queue_limit=5,100", "--over", "max_wait_ms=0,10", "--requests", "20000"]


def test_a_sweep_that_loses_requests_shows_how_many_and_never_praises_it(file, tmp_path):
    picture = tmp_path / "map.svg"
    text = run("sweep", file, *LOSSY, "--plot", picture, "--objective", "20").stdout
    heading = re.findall(r"p99\s+all\s+ms|\bloss\b", text)
    assert "loss" in heading
    frame = sweep(SCENARIO, {"queue_limit": [5, 100], "max_wait_ms": [0, 10]}, 20_000, progress=False)
    assert re.search(rf" inf +{frame.loss[0]:.4f} ", text)
    assert "infinite: too many requests are lost" in picture.read_text()
    assert "loss" not in run("sweep", file, *OVER, *SHORT).stdout, "where all are served"


SMALL = ["--rate-per-s", "20", "--table", "1=5,16=9"]


def test_the_largest_batch_is_that_of_a_small_table_where_nobody_says(tmp_path):
    found = run_json("simulate", *SMALL, *SHORT)
    assert found["scenario"]["rule"]["max_batch_size"] == 16
    over = ["--over", "max_wait_ms=0,5", *SHORT]
    assert len(run_json("sweep", *SMALL, *over)["points"]) == 2
    found = run_json("tune", *SMALL, "--p99-ms", "50", *over, "--requests", "20000")
    assert found["scenario"]["rule"]["max_batch_size"] == 16
    asked = refused("simulate", *SMALL, "--max-batch-size", "32")
    assert "batch_size must be at most the Table's largest size, 16, got 17" in asked
    padded = "Table({1: 5, 16: 9}).padded_to([4, 12])"
    found = run_json("simulate", "--rate-per-s", "20", "--service", padded, *SHORT)
    assert found["scenario"]["rule"]["max_batch_size"] == 12
    found = run_json("simulate", "--rate-per-s", "20", "--table", "1=5,64=9", *SHORT)
    assert found["scenario"]["rule"]["max_batch_size"] == 32


# tune and capacity


def test_tune_meets_an_objective_and_writes_the_setting(file, tmp_path):
    best, picture = tmp_path / "best.toml", tmp_path / "frontier.pdf"
    arguments = ["tune", file, "--p99-ms", "16", *OVER, "--requests", "20000"]
    found = run_json(*arguments, "--save", best, "--plot", picture)
    expected = tune(SCENARIO, SLO(p99_ms=16), GRID, 20_000)
    assert found["met"] is True
    assert found["knobs"] == expected.knobs
    assert found["expected"]["p99_ms"] == expected.expected["p99_ms"]._asdict()
    assert bs.Scenario.from_toml(best) == expected.scenario
    assert picture.read_bytes().startswith(b"%PDF")
    assert expected.explain() in run(*arguments).stdout


def test_tune_exits_with_1_when_no_setting_meets_the_objective(file):
    over = ["--over", "max_batch_size=8,32"]
    found = run_json("tune", file, "--p99-ms", "9", *over, *SHORT, code=1)
    assert found["met"] is False
    assert found["remedies"]
    assert run("tune", file, "--p99-ms", "9", *over, *SHORT, code=1).stdout.startswith("No setting")


MM1 = ["--rate-per-s", "1", "--max-batch-size", "1", "--service", "Affine(1, 0).with_noise(1, 'exponential')"]


def test_capacity_brackets_that_of_m_m_1():
    # The latency is exponential with rate mu - lambda, so its p99 is 50 ms at mu - ln(100) / 0.05.
    found = run_json("capacity", *MM1, "--p99-ms", "50", "--requests", "50000")
    assert found["low_per_s"] < 1000 - math.log(100) / 0.05 < found["high_per_s"]
    assert found["met"] is True


def test_capacity_prints_what_python_does_and_draws_that_number(file, tmp_path):
    picture = tmp_path / "capacity.svg"
    arguments = ["--p99-ms", "25", "--requests", "5000", "--tolerance", "0.05"]
    text = run("capacity", file, *arguments, "--plot", picture).stdout
    assert text.startswith(repr(capacity(SCENARIO, SLO(p99_ms=25), 0, 5000, 0.05)))
    (rate,) = re.findall(r"Capacity: ([\d,.]+) requests", text)
    assert f"capacity {rate}/s" in picture.read_text()


def test_capacity_exits_with_1_when_no_rate_meets_the_objective():
    found = run_json("capacity", *MM1, "--p99-ms", "0.5", *SHORT, code=1)
    assert found["met"] is False
    assert found["rate_per_s"] == 0


# init


@pytest.fixture
def written(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run("init")
    (tmp_path / "arrivals.csv").write_text("timestamp\n0\n0.5\n2\n")
    sizes, samples_ms = (1, 64), ((5.0,), (9.0,))
    measured = Measurement("mlp", "CPU", "cpu", "0.6", sizes, 1, samples_ms, (1.0, 1.0), "2026-01-01")
    measured.save(tmp_path / "transformer.json")
    return (tmp_path / "scenario.toml").read_text()


def test_init_writes_a_scenario_that_runs_as_it_is(written):
    assert bs.Scenario.from_toml("scenario.toml") == SCENARIO
    assert "UNSTABLE" not in run("simulate", "scenario.toml", *SHORT).stdout


# Noise stands within a service time, lengths within the only tokens, a routing in its line of the scenario.
INLINE = ("noise", "length", "tokens", "routing", "autoscale", "prefixes")


def test_init_explains_every_knob_there_is(written):
    names = {field.name for field in (*dataclasses.fields(bs.Scenario), *dataclasses.fields(bs.Tokens))}
    for part, kinds in KINDS.items():
        for name, ways in kinds.items() if part not in INLINE else ():
            assert f'kind = "{name}"' in written
            if dataclasses.is_dataclass(ways[0]) and name != "Trace":
                names |= {field.name for field in dataclasses.fields(ways[0])}
    for name in names:
        (line, *_) = re.findall(rf"^(?:# )?(?:{name} = .*|\[{name}\])$", written, re.M)
        assert "#" in line or line.startswith("[") or name in ("rate_per_s", "mean_rate_per_s")
    (routings,) = re.findall(r"^# routing = .*$", written, re.M)
    assert all(name in routings or f'kind = "{kind.__name__}"' in routings for name, kind in NAMES.items())


KINDS_WRITTEN = [(part, kind) for part, kinds in KINDS.items() for kind in kinds if part not in INLINE]


@pytest.mark.parametrize(("part", "kind"), KINDS_WRITTEN)
def test_every_alternative_that_init_offers_is_one(written, part, kind):
    tables = tomllib.loads(written)
    block = re.search(rf'^# \[{part}\]\n# kind = "{kind}".*\n(?:# .*\n)*', written, re.M)
    if block is None:  # it is the one that is in use
        assert tables[part]["kind"] == kind
        return
    tables[part] = tomllib.loads(re.sub("^# ", "", block[0], flags=re.M))[part]
    if kind in ("Continuous", "NewTokenRatio", "StepTime", "WaitingServedRatio"):
        end = written.index("# In place of Continuous")
        all_three = written[written.index('# [rule]\n# kind = "Continuous"') : end]
        tables = (
            tomllib.loads(re.sub("^# ", "", all_three, flags=re.M))
            | {part: tables[part]}
            | {"workload": tables["workload"]}
        )
    if kind in ("PaddedTime", "PackedTime", "SizeTable", "Buckets", "SortedWindow"):
        tables["workload"]["sizes"] = {"kind": "Lognormal", "mean": 80, "cv": 1, "at_most": 512}
    assert type(getattr(from_tables(bs.Scenario, tables), part)).__name__ in (kind, "Table")


def test_the_options_that_init_leaves_out_can_be_used(written):
    used = re.sub(
        r"^# (queue_limit|timeout_ms|slowdown|padding|noise|compile_ms) ", r"\1 ", written, flags=re.M
    )
    shared = re.sub(r"^# (devices|host_ms|contention) ", r"\1 ", written, flags=re.M)
    sharing = read_toml(bs.Scenario, shared)[0]
    assert (sharing.devices, sharing.host_ms, sharing.contention) == (1, 0.5, 1.2)
    scenario = read_toml(bs.Scenario, used)[0]
    assert scenario.queue_limit == 1000
    assert scenario.timeout_ms == 200
    assert scenario.slowdown == {1: 1.0, 2: 1.8}
    assert scenario.service.padding == (1, 8, 32)
    assert scenario.service.noise == bs.Noise(0.1)
    assert scenario.service.compile_ms == ((1, 300), (32, 650))


def test_the_tables_for_the_commands_say_what_flags_do(written, tmp_path):
    begin = written.index("# [simulate]")
    used = written[:begin] + re.sub("^# ", "", written[begin:], flags=re.M)
    (tmp_path / "all.toml").write_text(used)
    found = run_json("simulate", "all.toml", "--requests", "3000", "--warmup", "0.25", "--seed", "7")
    assert found["summary"] == _plain(bs.simulate(SCENARIO, 3000, warmup=0.25, seed=7).summary())
    found = run_json("tune", "all.toml", "--requests", "3000", "--over", "max_batch_size=8,16")
    assert found["objective"] == {
        "p99_ms": 50, "attainment": 0.995, "max_loss": 0.001, "min_throughput_per_s": 700
    }  # fmt: skip
    assert {(row["max_batch_size"], row["max_wait_ms"]) for row in found["candidates"]} == {
        (size, wait) for size in (8, 16) for wait in (0, 5, 10, 15, 20)
    }


def test_init_never_writes_over_a_file_unless_it_is_told_to(written, tmp_path):
    (tmp_path / "scenario.toml").write_text("mine")
    assert "scenario.toml already exists" in refused("init")
    assert (tmp_path / "scenario.toml").read_text() == "mine"
    run("init", "--force")
    assert (tmp_path / "scenario.toml").read_text() == written


# published


def test_published_lists_names_with_sizes_times_and_source():
    text = run("published", "nnunet").stdout
    source = bs.published_source("nnunet/t4/fp16")
    assert re.search(r"nnunet/t4/fp16 +1 to 4 +109\.417 to 409\.599 +Triton, PyTorch", text)
    assert source.source_url in text
    assert source.licence in text
    tables = run_json("published", "nnunet")["tables"]
    assert {table["name"] for table in tables} == set(bs.published_names("nnunet"))
    assert tables[0]["service"]["1"] == 109.417


def test_published_without_a_word_lists_all():
    lines = run("published").stdout
    assert all(f" {name} " in lines for name in bs.published_names())
    assert refused("published", "resnet5").startswith(
        "no published name has 'resnet5'; did you mean 'resnet50/a100-80gb/mixed-fp16', 'resnet50/t4"
    )


# Bad input: one line that names the place, and exit code 2.


POISSON = ["simulate", "--rate-per-s", "9"]
BAD = [
    (["simulate"], "a workload must be given: by a TOML file, --rate-per-s"),
    (["simulate", "--rate-per-s", "9"], "a service must be given: by a TOML file, --fixed-ms"),
    (["simulate", "no.toml"], "no.toml: no such file or directory"),
    (["simulate", *BASE, "--rate-per-s", "-5"], "--rate-per-s must be greater than 0, got -5"),
    (["simulate", *BASE, "--rate-per-s", "x"], "Invalid value for '--rate-per-s': must be a number, got 'x'"),
    (["simulate", *BASE, "--max-wait-ms", "nan"], "--max-wait-ms must be a number, got nan"),
    (["simulate", *BASE, "--max-batch-size", "1.5"], "must be a whole number, got '1.5'"),
    (["simulate", *BASE, "--requests", "0"], "--requests must be at least 1, got 0"),
    (["simulate", *BASE, "--warmup", "much"], "Invalid value for '--warmup': must be a number, got 'much'"),
    (["simulate", *BASE, "--engine", "compield"], "got 'compield'; did you mean 'compiled'?"),
    (["simulate", *POISSON[1:], "--service", "Poisson(3)"], "service must be a service of batchsim"),
    (["simulate", *BASE, "--servrs", "2"], "No such option: --servrs"),
    (["tune", *BASE, *OVER, "--indifference", "5%"], "--indifference; it was removed: with more `requests`"),
    (["simulate", *BASE, "--table", "1=2"], "a service must be given once, got --table and --fixed-ms"),
    (["simulate", *BASE, "--clients", "2"], "--rate-per-s needs an open workload, got ClosedLoop"),
    (["simulate", *BASE, "--set", "max_wait=3"], "got 'max_wait'; did you mean 'max_wait_ms'?"),
    (["simulate", *BASE, "--set", "max_wait_ms=3"], "max_wait_ms must be given once, got it again by --set"),
    (["simulate", *BASE, "--set", "servers"], "--set must be knob=value, as workload.cv=2, got 'servers'"),
    (["simulate", *BASE, "--speedup", "3"], "--column, --unit and --speedup must come with --trace"),
    (["simulate", *BASE, "--plot", "a.gif"], "--plot must end in .png or .svg or .pdf, got a.gif"),
    (["simulate", *BASE, "--save", "no/a.npz"], "--save must be in a folder that exists, got no/a.npz"),
    ([*POISSON, "--table", "1=2,1=3"], "batch sizes of a Table must differ"),
    ([*POISSON, "--published", "gpunet-175ms/v100-32gb/fp61"], "did you mean 'gpunet-175ms/v100-32gb/fp16'?"),
    ([*POISSON, "--service", "Afine(5, 1)"], "there is no part 'Afine'; did you mean"),
    ([*POISSON, "--rule", "WaitSinceLast(8, 5)"], "it was removed: Ray Serve now has `FrozenBatches`"),
    ([*POISSON, "--service", "Affine(5)"], "missing a required argument: 'per_item_ms'"),
    ([*POISSON, "--service", "Affine(5, -1)"], "per_item_ms must be at least 0, got -1"),
    (["sweep", *BASE], "an axis must be given, as --over max_batch_size=1,2,4"),
    (["sweep", *BASE, "--over", "max_wait_ms"], "--over must be knob=value, as max_batch_size=1,2,4"),
    (["sweep", *BASE, "--over", "max_wait_ms="], "max_wait_ms must have at least one value"),
    (["sweep", *BASE, "--over", "max_wait_ms=1,nan"], "max_wait_ms must have no NaN"),
    (["sweep", *BASE, "--over", "max_wait_ms=1:2"], "max_wait_ms: a value must be a number"),
    (["sweep", *BASE, "--over", "max_wait_ms=1:2:0"], "max_wait_ms: a range must not fall"),
    (["sweep", *BASE, "--over", "max_wait_ms=1:2:z"], "max_wait_ms: a range must be first:last:step"),
    (["sweep", *BASE, "--over", "max_wait=1", "--over", "max_wait=2"], "must name a knob once, got"),
    (["sweep", *BASE, "--over", "max_wiat_ms=1"], "did you mean 'max_wait_ms'?"),
    (["sweep", *BASE, *OVER, "--csv", "--json"], "one of --csv and --json must be given, got both"),
    (["sweep", *BASE, *OVER, "--value", "p98_ms"], "--value must be a column of numbers, got 'p98_ms'"),
    (["sweep", *BASE, *OVER, "--over", "servers=1", "--plot", "a.png"], "--plot must have one axis or two"),
    (["tune", *BASE, *OVER], "an objective must be given, as --p99-ms 50"),
    ([*POISSON, "--published", "resnet50"], "did you mean 'resnet50/a100-80gb/mixed-fp16', "),
    (["tune", *BASE, *OVER, "--attainment", "0.9"], "an attainment needs --within-ms"),
    (["tune", *BASE, *OVER, "--p99-ms", "9", "--prefer", "fast"], "got 'fast'; did you mean 'fastest'?"),
    (["capacity", *BASE, "--p99-ms", "-3"], "--p99-ms must be greater than 0, got -3"),
    (["capacity", "--clients", "32", "--fixed-ms", "1", "--p99-ms", "9"], "the workload must be open"),
    (["measure", "--model", "mpl"], "there is no model 'mpl'; did you mean 'mlp'?"),
    (["measure", "--batch-sizes", "1;2"], "must be a whole number, got '1;2'"),
    (["simualte"], "No such command 'simualte'"),
]  # fmt: skip


@pytest.mark.parametrize(("arguments", "message"), BAD)
def test_bad_input_is_told_in_one_line(arguments, message):
    assert message in refused(*arguments)


TUNE = ["tune", *OVER]


@pytest.mark.parametrize(
    ("table", "arguments", "message"),
    [
        ("[simulate]\nrequests = -50\n", ["simulate"], "{}, [simulate] requests must be at least 1, got -50"),
        ("[simulate]\nrequests = -50\n", ["simulate", "--requests", "-1"], "--requests must be at least 1"),
        ("[simulate]\nwarmup = 2\n", ["simulate", *SHORT], "{}, [simulate] warmup must be less than 1"),
        ("[simulate]\nseed = -2\n", ["simulate", *SHORT], "{}, [simulate] seed must be at least 0, got -2"),
        ("[simulate]\nseed = -2\n", ["capacity", "--p99-ms", "9"], "{}, [simulate] seed must be at least 0"),
        ("[slo]\np99_ms = -1\n", ["capacity", "--p95-ms", "9"], "{}, [slo] p99_ms must be greater than 0"),
        ("[slo]\np99_ms = 50\n", ["capacity", "--p95-ms", "-9"], "--p95-ms must be greater than 0, got -9"),
        ("[slo]\np99_ms = -1\n", ["capacity", "--p99-ms", "-9"], "--p99-ms must be greater than 0, got -9"),
        ("[over]\nservers = []\n", ["sweep", *OVER], "{}, [over] servers must have at least one value"),
        ("[over]\nservers = [1]\n", ["sweep", "--over", "srevers=1"], "a knob must be one of the"),
        ("[over]\nclients = [1]\n", ["sweep"], "{}, [over] clients needs a ClosedLoop, got Poisson"),
        ("[slo]\np99 = 5\n", ["tune"], "{}, [slo]: there is no key 'p99'; did you mean 'p99_ms'?"),
        ("[slo]\np99_ms = 'x'\n", TUNE, "{}, [slo] p99_ms must be a number, got 'x'"),
        ("[slo]\nwithin_ms = 5\n", TUNE, "{}, [slo] within_ms needs an attainment"),
        ("[simulate]\nrequest = 5\n", ["simulate"], "{}, [simulate]: there is no key 'request'; did"),
        ("[sol]\np99_ms = 5\n", ["tune"], "{}, the top level: a scenario has no key 'sol'"),
        ("[over]\nmax_wait_ms = '0:x:1'\n", ["sweep"], "{}, [over] max_wait_ms: a range must be"),
        ("[over]\nmax_wait_ms = 5\n", ["sweep"], "{}, [over] max_wait_ms must be a list of values"),
        ("[over]\nmax_wait_ms = []\n", ["sweep"], "{}, [over] max_wait_ms must have at least one value"),
        ("[over]\nmax_wiat_ms = [1]\n", ["sweep"], "{}, [over] a knob must be one of the scenario's, got"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_told_of_the_file_only_where_it_is_the_files(file, table, arguments, message):
    file.write_text(file.read_text() + table)
    command, *flags = arguments
    assert refused(command, file, *flags).startswith(message.format(file))


def test_clients_are_swept_in_a_closed_loop_only(file):
    message = refused("sweep", file, "--over", "clients=1,2")
    assert message == "clients needs a ClosedLoop, got Poisson(rate_per_s=800)"
    points = run_json("sweep", file, "--clients", "1", "--over", "clients=1,2", *SHORT)["points"]
    assert [point["clients"] for point in points] == [1, 2]
    over = ["--over", "workload=ClosedLoop(1),ClosedLoop(2)", "--over", "think_s=0,1", "--requests", "500"]
    assert len(run_json("sweep", file, *over)["points"]) == 4


def test_a_file_that_is_no_scenario_is_told_with_its_place(file):
    file.write_text(file.read_text().replace("max_wait_ms = 10", "max_wait_ms = -1"))
    assert refused("simulate", file) == f"{file}, [rule] max_wait_ms must be at least 0, got -1"


# Values.


FLOATS = st.floats(0.01, 1e6)
SERVICES = st.builds(bs.Affine, FLOATS, FLOATS) | st.builds(
    bs.Table, st.dictionaries(st.integers(1, 64), FLOATS, min_size=1, max_size=5)
)
EXTRAS = [
    lambda service: service,
    lambda service: service.with_noise(0.5),
    lambda service: service.with_noise(1, "exponential").padded_to([1, 8]),
]
PARTS = (
    st.builds(lambda service, extra: extra(service), SERVICES, st.sampled_from(EXTRAS))
    | st.builds(bs.Gamma, FLOATS, st.floats(0.1, 9))
    | st.builds(bs.OnOff, *[st.floats(0.1, 1e6)] * 4)
    | st.builds(bs.ClosedLoop, st.integers(1, 99), FLOATS)
    | st.builds(bs.SizeOrWait, st.integers(1, 99), FLOATS | st.just(math.inf))
    | st.integers(1, 9).map(lambda least: bs.AtLeast(least, 9))
    | st.integers(1, 9).map(lambda size: bs.PreferredSizes([size, 10], 12, 5))
)


@pytest.mark.parametrize("rule", RULES)
def test_every_rule_can_be_typed_with_its_usual_parameters(rule):
    usual = {name: parameter.usual for name, parameter in rule.parameters().items()}
    assert values.value(repr(rule(**usual))) == rule(**usual)


def test_a_measurement_can_be_scaled_like_any_service_time(written):
    service = values.value("Measurement('transformer.json').scaled(0.5, 1)")
    assert service == bs.Table({1: 2.5})


@given(PARTS)
def test_a_part_is_read_as_python_prints_it(part):
    assert values.value(repr(part)) == part


@given(st.lists(PARTS | st.integers() | FLOATS, min_size=1, max_size=3))
def test_an_axis_is_a_list_of_what_python_prints(parts):
    assert values.axis(f"knob={', '.join(map(repr, parts))}") == ("knob", parts)


@given(st.integers(-100, 100), st.integers(0, 50), st.integers(1, 20), st.integers(0, 3))
def test_a_range_has_both_ends_and_steps_in_decimals(first, count, step, digits):
    scale = 10**digits
    last = first + count * step
    text = f"knob={first / scale}:{last / scale}:{step / scale}"
    assert values.axis(text)[1] == [(first + i * step) / scale for i in range(count + 1)]


def test_a_range_by_a_factor_stops_at_its_end():
    assert values.axis("n=1:64:x4") == ("n", [1, 4, 16, 64])
    assert values.axis("n=1:63:x4") == ("n", [1, 4, 16])


@pytest.mark.parametrize(
    "text",
    ["__import__('os').system('true')", "open('x')", "Affine.__init__", "(lambda: 1)()", "[].append(1)",
     "Poisson(*[1])", "Poisson(**{'rate_per_s': 1})", "1 + 1", "x", "", "{1: 2, 1: 3}", "1j", "...", "b'x'",
     "(" * 500, "\0", "bs.Affine(1, 2)", "Affine(1, 2).capacity(3)"],
)  # fmt: skip
def test_nothing_but_values_is_understood(text):
    with pytest.raises(ValueError, match=r"must be|no part|must differ"):
        values.value(text)


# As a program.


def program(*arguments, **options):
    return subprocess.run(
        [sys.executable, "-m", "batchsim", *map(str, arguments)], capture_output=True, text=True, **options
    )


@pytest.mark.usefixtures("compiled_before")
def test_it_runs_as_a_module_and_keeps_its_streams_apart(tmp_path):
    run("simulate", *BASE, *SHORT)  # else the program may have to compile, and says so
    done = program("simulate", *BASE, *SHORT, "--json", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["summary"]["served"] == 2000
    done = program("simulate", *BASE, "--requests", "-1", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "Error: --requests must be at least 1, got -1\n"


def test_help_loads_nothing_heavy():
    heavy = ["jax", "numba", "matplotlib", "pandas", "scipy", "ipywidgets", "pyarrow"]
    code = (
        "import sys\nfrom batchsim.cli import app\n"
        "for args in (['--help'], ['--version'], ['tune', '--help'], ['published', 'nnunet']):\n"
        "    try: app(args)\n    except SystemExit as end: assert not end.code\n"
        f"print([name for name in {heavy} if name in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stderr.endswith("[]\n")


def test_the_version_is_the_packages():
    assert run("--version").stdout == f"batchsim {bs.__version__}\n"


@pytest.mark.parametrize(
    "command", ["init", "simulate", "sweep", "tune", "capacity", "measure", "published", "lab"]
)
def test_every_command_has_a_help(command):
    assert "Usage:" in run(command, "--help").stdout


COMMANDS = typer.main.get_command(app).commands
SEARCHES = ("simulate", "sweep", "tune", "capacity", "lint")


@pytest.mark.parametrize("command", COMMANDS)
def test_help_fits_80_columns_and_cuts_no_name_of_an_option(monkeypatch, command):
    monkeypatch.setenv("COLUMNS", "80")
    short, whole = (run(command, option).stdout for option in ("--help", "--help-all"))
    for text in (short, whole):
        assert [line for line in text.splitlines() if len(line) > 80] == []
        assert not re.search("[…<>╭]", text)
        for param in COMMANDS[command].params:
            name = param.opts[0] if param.opts[0][0] == "-" else param.metavar
            assert re.search(rf"{re.escape(name)}(?![\w-])", text)
    if command in SEARCHES:
        examples = re.findall(rf"^  batchsim {command} .*", short, re.M)
        assert len(examples) == 3
        assert short.index(examples[2]) < short.index("Arguments:\n")
        assert len(short.splitlines()) <= 130


@pytest.mark.parametrize("command", ["simulate", "tune", "capacity", "sweep"])
def test_the_examples_of_a_help_run(file, tmp_path, monkeypatch, command):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "scenario.toml").write_text(file.read_text())
    (tmp_path / "arrivals.csv").write_text("time_s\n" + "".join(f"{n / 100}\n" for n in range(20)))
    for line in re.findall(rf"^  batchsim ({command} .*)", run(command, "--help").stdout, re.M):
        done = CliRunner().invoke(app, [*line.split(), *([] if "--trace" in line else ["--requests", "500"])])
        assert done.exit_code in (0, 1), done.stderr


def test_without_axes_tune_tries_those_of_the_rule(file):
    axes = run_json("tune", file, "--p99-ms", "50", "--requests", "500")["candidates"]
    assert {each["max_batch_size"] for each in axes} == {1, 2, 4, 8, 16, 32, 64}
    assert {each["max_wait_ms"] for each in axes} == {0, 1, 2, 5, 10, 20}


@pytest.mark.parametrize("word", ["resnet", "Resnet50v2", "gpunt", "bert-l"])
def test_what_published_suggests_is_accepted_everywhere(word):
    for arguments in (["published", word], ["simulate", "--rate-per-s", "1", "--published", word]):
        for name in re.findall(r"'([^']*/[^']*)'", refused(*arguments)):
            assert bs.published(name)
            assert name in run("published", name).stdout


def test_a_mistyped_path_names_the_file_that_is_there(file):
    typed = str(file).replace(".toml", ".tml")
    assert refused("simulate", typed) == f"{typed}: no such file or directory; did you mean {file.name!r}?"
    (file.parent / "notes.md").touch()
    nowhere = file.with_name("nothere.toml")
    assert refused("simulate", nowhere) == f"{nowhere}: no such file or directory", "no far name"
    assert refused("simulate", file.parent) == f"{file.parent}: is a directory"


VALUES = ["-1", "0", "nan", "x", "1.5", "1=2", "nope.json"]


@pytest.mark.parametrize("command", ["simulate", "tune", "capacity"])
def test_an_error_names_options_and_nothing_of_python(command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # some options name what is written
    made = typer.main.get_command(app)  # once, not at each call
    monkeypatch.setattr("typer.testing._get_command", lambda _: made)
    needed = {"tune": ["--p99-ms", "50", "--over", "servers=1,2"], "capacity": ["--p99-ms", "50"]}
    codes = []
    for param in COMMANDS[command].params:
        if param.opts[0][0] != "-" or param.is_flag or param.opts[0] in ("--set", "--over", "--servers"):
            continue
        for value in VALUES:
            asked = [command, "--rate-per-s", "300", "--fixed-ms", "5", "--requests", "200"]
            done = CliRunner().invoke(app, [*asked, *needed.get(command, ()), param.opts[0], value])
            codes.append(done.exit_code)
            if done.exit_code == 2:
                told = done.stderr.replace(value, "")
                python = r"\b[a-z]+(_[a-z0-9]+)+\b|Errno|\w\(\)|\bbs\.|<class|----"
                assert not re.search(python, re.split(r" must | needs? |, got", told)[0]), told
    assert 200 < codes.count(2) < len(codes), "some values are accepted"


@pytest.mark.usefixtures("compiled_before")
@pytest.mark.skipif(not hasattr(signal, "SIGINT") or os.name == "nt", reason="signals as on POSIX")
def test_ctrl_c_ends_a_sweep_with_130_and_keeps_what_is_finished(file, tmp_path):
    out = tmp_path / "day1"
    code = (  # background jobs ignore the signal, and what they start does
        "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "from batchsim.cli import app; app(prog_name='batchsim')"
    )
    running = subprocess.Popen(
        [sys.executable, "-c", code, "sweep", file, "--over", "max_wait_ms=0:5000:1", "--out", out],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    while running.poll() is None and not list(out.glob("points/*.parquet")):
        time.sleep(0.05)
    running.send_signal(signal.SIGINT)
    output, errors = running.communicate()
    assert (running.returncode, output, errors) == (130, "", "Interrupted.\n")
    assert list(out.glob("points/*.parquet"))


@pytest.mark.skipif(os.name == "nt", reason="pipes as on POSIX")
@pytest.mark.parametrize("arguments", [["published", "--json"], ["published"], ["--help"], []])
def test_a_reader_that_has_had_enough_is_no_error_of_ours(arguments):
    ours, output = os.pipe()
    os.close(ours)
    command = [sys.executable, "-m", "batchsim", *arguments]
    done = subprocess.run(command, stdout=output, stderr=subprocess.PIPE, text=True)
    os.close(output)
    assert (done.returncode, done.stderr) == (141, "")


# Exit code 1 is "not met", and nothing else.


@pytest.mark.parametrize(
    "error", [OverflowError("too large"), AttributeError("none"), KeyError(1), EOFError()]
)
def test_an_error_that_nobody_expected_is_one_line_and_70(monkeypatch, file, error):
    def broken(*_, **__):
        raise error

    monkeypatch.setattr("batchsim.study.capacity.capacity", broken)
    done = run("capacity", file, "--p99-ms", "50", code=70)
    assert done.stdout == ""
    assert re.fullmatch(rf"Error: {type(error).__name__}.* --debug .*\n", done.stderr)


@pytest.mark.parametrize("place", [0, 1, 2])
def test_debug_prints_where_an_error_comes_from(tmp_path, place):
    arguments = ["simulate", str(tmp_path / "no.toml")]
    done = run(*arguments[:place], "--debug", *arguments[place:], code=2)
    assert done.stderr.startswith("Traceback")
    assert "read_toml" in done.stderr
    assert done.stderr.splitlines()[-1].endswith("no.toml: no such file or directory")
    assert "Traceback" not in run(*arguments, code=2).stderr


@pytest.mark.parametrize(
    "arguments",
    [["--foo", "simulate"], ["-x"], ["--version=3"], ["--debug", "--foo"], ["simulate", "--foo"]],
)
def test_an_unknown_option_is_told_in_one_line_wherever_it_stands(arguments):
    assert arguments[-1].partition("=")[0] in refused(*arguments) or "--foo" in refused(*arguments)


@pytest.mark.parametrize("arguments", [[], ["--debug"]])
def test_without_a_command_there_is_help(arguments):
    assert "Usage:" in run(*arguments, code=2).stdout


@pytest.mark.skipif(os.name == "nt", reason="signals as on POSIX")
def test_nobody_warns_after_an_interrupt():
    code = (
        "import threading, warnings\nfrom batchsim.cli import app\n"
        "def late():\n    threading.main_thread().join()\n    warnings.warn('late')\n"
        "@app.command()\ndef work():\n"
        "    warnings.warn('in time')\n    threading.Thread(target=late).start()\n"
        "    raise KeyboardInterrupt\n"
        "app(['work'])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (130, "Warning: in time\nInterrupted.\n")


# Files that are written.


@pytest.mark.skipif(os.name == "nt", reason="links and modes as on POSIX")
def test_a_saved_file_keeps_its_mode_and_a_link_is_followed(file, tmp_path):
    path, link = tmp_path / "best.toml", tmp_path / "link.toml"
    path.touch(0o600)
    link.symlink_to(path.name)
    arguments = ["tune", file, *SHORT, "--over", "max_wait_ms=0,5", "--p99-ms", "1000"]
    done = CliRunner().invoke(app, [*map(str, arguments), "--save", str(link)])
    assert done.exit_code in (0, 1)
    assert link.is_symlink()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert "[rule]" in path.read_text()


@pytest.mark.skipif(os.name == "nt", reason="/dev as on POSIX")
def test_a_scenario_is_written_to_standard_output(tmp_path):
    text = program("init", "/dev/fd/1", cwd=tmp_path).stdout
    assert tomllib.loads(text.partition("Wrote /dev/fd/1")[0])
    assert list(tmp_path.iterdir()) == []


# What was a traceback.


def test_a_log_in_whole_seconds_may_be_one_instant(tmp_path):
    (tmp_path / "s.csv").write_text("t\n0\n0\n")
    trace = ["--trace", tmp_path / "s.csv", "--fixed-ms", "5"]
    for command in ("tune", "capacity"):
        over = ["--over", "max_batch_size=1,2"] if command == "tune" else []
        assert "span" in refused(command, *trace, "--p99-ms", "1", *over)


@pytest.mark.parametrize("service", ["5", "none", "'x'", "[1]", "inf", "Poisson(3)"])
@pytest.mark.parametrize("command", ["simulate", "tune", "sweep", "capacity"])
def test_what_is_no_service_time_is_refused(file, command, service):
    objective = ["--p99-ms", "9"] if command in ("tune", "capacity") else []
    over = ["--over", "max_batch_size=1,2"] if command in ("tune", "sweep") else []
    for where in ([file], ["--rate-per-s", "9"]):
        if service != "none" or where != [file]:
            assert "service" in refused(command, *where, "--service", service, *objective, *over)


def test_a_descriptor_is_no_path_to_a_trace():
    assert "path must be a file's path, got 1" in refused("simulate", "--workload", "Trace.from_csv(1)")
    os.fstat(1)
