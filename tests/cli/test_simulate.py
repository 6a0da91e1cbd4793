"""`batchsim simulate`, `sweep`, `tune` and `capacity` give what Python does, in a table or as JSON."""

import io
import json
import math
import re

import pandas
import pytest
from shell import BASE, OVER, SCENARIO, SHORT, as_json, refused, run, run_json

import batchsim as bs
from batchsim.study.capacity import capacity
from batchsim.study.slo import SLO
from batchsim.study.sweep import sweep
from batchsim.study.tune import tune


def test_simulate_gives_the_numbers_intervals_and_theory_of_the_run():
    one_by_one = ["--rate-per-s", "800", "--max-batch-size", "1", "--fixed-ms", "1"]
    found = run_json("simulate", *one_by_one, "--requests", "50000", "--warmup", "0.1", "--seed", "3")
    scenario = bs.Scenario(bs.Poisson(800), bs.SizeOrWait(1, 10), bs.Affine(1, 0))
    result = bs.simulate(scenario, 50_000, seed=3, warmup=0.1)
    assert found["summary"] == as_json(result.summary())
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


def test_each_level_has_a_line_also_one_without_a_request():
    text = run("simulate", *BASE, "--requests", "100", "--priorities", "1:0.001,2:0.999").stdout
    levels = re.findall(r"level (\d): (\S+ requests?), mean (\S+) ms, p50 (\S+), p99 (\S+)", text)
    result = bs.simulate(SCENARIO, 100)
    numbers = [f"{ms:.2f}" for ms in (result.mean_latency_ms, *map(result.percentile, (50, 99)))]
    assert levels == [("1", "0 requests", *["\N{EN DASH}"] * 3), ("2", "100 requests", *numbers)]


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
    text = picture.read_text()
    assert "<svg" in text
    assert "theory" in text  # what it expects is drawn, too


def test_a_summary_alone_has_no_picture():
    error = refused("simulate", *BASE, "--keep", "summary", "--plot", "a.png")
    assert error.startswith("--plot needs the columns")


# sweep


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
