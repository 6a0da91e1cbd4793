"""`batchsim simulate`: the numbers of the run, in a table or as JSON."""

import json
import re

import pytest
from shell import BASE, SCENARIO, SHORT, as_json, refused, run, run_json

import batchsim as bs


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
