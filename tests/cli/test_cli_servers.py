"""The shell reads a server's file, and writes a setting as one."""

import json

import pytest
from places import DATA as ALL_DATA
from shell import SHORT, run, run_json

import batchsim as bs
from batchsim import servers

DATA = ALL_DATA / "servers"
TRAFFIC = ["--rate-per-s", "800", "--fixed-ms", "5", "--per-item-ms", "0.25", *SHORT]
SIMPLY = ["--engine", "simpy"]  # which compiles nothing
GRID = ["--p99-ms", "50", "--over", "max_batch_size=8,32", "--over", "max_wait_ms=0,2.5"]


def test_a_servers_file_gives_the_rule_servers_limits_and_padding_of_a_scenario():
    path = DATA / "tf_serving" / "batching_parameters.txt"
    found = run_json("simulate", "--server-config", path, *TRAFFIC, *SIMPLY)["scenario"]
    assert found == run_json("simulate", path, *TRAFFIC, *SIMPLY)["scenario"]
    config = servers.read(path)
    assert found["rule"] == {"kind": "SizeOrWait", "max_batch_size": 32, "max_wait_ms": 2}
    assert (found["servers"], found["queue_limit"]) == (config.servers, config.queue_limit)
    assert found["service"]["padding"] == [8, 16, 32]


def test_options_and_a_file_stand_over_and_under_the_servers_file(tmp_path):
    bs.Scenario(bs.Poisson(100), bs.SizeOrWait(4, 1), bs.Affine(9, 0), queue_limit=7).to_toml(
        tmp_path / "s.toml"
    )
    path = DATA / "batched" / "model.py"
    found = run_json("simulate", tmp_path / "s.toml", "--server-config", path, "--servers", 2, *SHORT)[
        "scenario"
    ]
    assert found["rule"] == {"kind": "SleepingPoll", "max_batch_size": 64, "max_wait_ms": 10.0}
    assert (found["workload"]["rate_per_s"], found["service"]["fixed_ms"], found["servers"]) == (100, 9, 2)
    assert "queue_limit" not in found


def test_a_closed_loop_runs_where_a_servers_limit_cannot_bind_or_is_left_out(tmp_path):
    path = tmp_path / "config.properties"  # of a server whose queue holds 100 requests by default
    path.write_text('models={"m": {"1.0": {"marName": "m.mar", "batchSize": 4, "maxBatchDelay": 20}}}\n')
    given = ["simulate", "--server-config", path, *TRAFFIC[2:], *SIMPLY, "--clients"]
    assert run_json(*given, 8)["scenario"]["queue_limit"] == 100
    assert "queue_limit" not in run_json(*given, 120, "--queue-limit", "none")["scenario"]
    assert "below the clients" in run(*given, 120, code=2).stderr


def test_a_slowdown_replaces_the_devices_of_the_servers_file(tmp_path):
    path = tmp_path / "config.pbtxt"
    path.write_text("max_batch_size: 8 dynamic_batching {} instance_group [{count: 2 gpus: [0]}]")
    shared = ["simulate", "--server-config", path, *TRAFFIC, *SIMPLY]
    assert run_json(*shared)["scenario"]["devices"] == 1
    found = run_json(*shared, "--set", "slowdown={1: 1, 2: 1.8}")["scenario"]
    assert found["slowdown"] == {"1": 1, "2": 1.8}
    assert "devices" not in found


def test_what_a_file_says_without_effect_and_what_is_unknown_is_told(tmp_path):
    path = tmp_path / "config.pbtxt"
    path.write_text("name: 'a' max_batch_size: 8 dynamic_batching { max_queue_delay_microsecond: 9 }")
    done = run("simulate", "--server-config", path, *TRAFFIC, *SIMPLY)
    assert f"{path}: not simulated: name" in done.stderr
    assert "max_queue_delay_microsecond; did you mean 'max_queue_delay_microseconds'" in done.stderr


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--server-config", DATA / "triton" / "config.pbtxt", "--server", "mosec"], "config.pbtxt"),
        (["--server-config", DATA / "triton" / "config.pbtxt", "--rule", "AtLeast(2, 8)"], "--rule"),
        (["--server", "triton"], "a server's file"),
        (["--server-config", DATA / "no.pbtxt"], "no.pbtxt"),
    ],
)
def test_a_file_that_cannot_be_used_is_refused(options, words):
    done = run("simulate", *options, *TRAFFIC, *SIMPLY, code=2)
    assert words in done.stderr


def test_which_of_several_is_meant_may_be_said():
    path = DATA / "mosec" / "server.py"
    found = run_json("simulate", "--server-config", path, "--which", "Tokenise", *TRAFFIC, *SIMPLY)[
        "scenario"
    ]
    assert (found["rule"]["max_batch_size"], found["servers"]) == (1, 4)


def test_tune_prints_the_setting_as_a_servers_own_file():
    printed = run("tune", *TRAFFIC, *GRID, "--write", "triton").stdout
    text = printed[printed.index("# Written by batchsim") :]
    best = run_json("tune", *TRAFFIC, *GRID, "--write", "all")
    assert best["written"]["triton"] == text
    assert "a file for mosec must be yours" in best["refused"]["mosec"]
    assert servers.parse(text).rule == bs.SizeOrWait(**{name: best["knobs"][name] for name in best["knobs"]})


def test_tune_shows_a_diff_of_a_given_file_says_how_to_write_it_and_leaves_it_alone(tmp_path):
    path = tmp_path / "config.pbtxt"
    path.write_text("max_batch_size: 2 dynamic_batching { max_queue_delay_microseconds: 90000 }\n")
    given = [*TRAFFIC, *GRID, "--server-config", path, "--write", "triton"]
    before, done = path.read_text(), run("tune", *given)
    assert "+max_batch_size: 32" in done.stdout
    assert f"{path} is as it was; --out FOLDER" in done.stderr
    told = run("tune", *given, "--out", tmp_path / "out").stderr
    new = tmp_path / "out" / "triton" / path.name
    assert f"Wrote {new}" in told
    assert "as it was" not in told
    assert path.read_text() == before
    again = run("tune", *given[:-3], new, "--write", "triton").stderr
    assert f"{new} has this setting already" in again


def test_tune_prints_its_answer_though_the_file_cannot_have_it(tmp_path):
    path = tmp_path / "config.properties"
    path.write_text("job_queue_size=64\nload_models=a\n")
    done = run("tune", *TRAFFIC, *GRID, "--server-config", path, "--write", "torchserve", code=2)
    assert "The Pareto frontier" in done.stdout
    assert "models must have the model whose batchSize" in done.stderr


def test_tune_writes_the_setting_for_all_servers_into_a_folder(tmp_path):
    run("tune", *TRAFFIC, *GRID, "--write", "all", "--out", tmp_path / "out")
    for server in ("triton", "tf_serving", "torchserve", "kserve"):
        assert servers.read(tmp_path / "out" / server / servers.file_name(server)).server == server


def test_tune_says_for_which_servers_it_writes_nothing(tmp_path):
    done = run("tune", *TRAFFIC, *GRID, "--servers", 2, "--write", "all", "--out", tmp_path)
    assert "Not written for kserve: servers must be 1" in done.stderr
    assert not (tmp_path / "kserve").exists()
    assert (tmp_path / "triton" / "config.pbtxt").is_file()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--write", "tritn"], "did you mean 'triton'"),
        (["--write", "all"], "--write all must come with --out"),
        (["--write", "mosec"], "a file for mosec must be yours"),
        (["--out", "there"], "--out must come with --write"),
    ],
)
def test_what_is_to_be_written_is_checked_before_anything_runs(options, words):
    done = run("tune", *TRAFFIC, *GRID, *options, "--requests", 10**12, code=2)
    assert words in done.stderr


def test_numbers_of_a_written_file_are_json_too():
    best = run_json("tune", *TRAFFIC, *GRID, "--write", "kserve")
    assert json.dumps(best["written"])
    assert list(best["written"]) == ["kserve"]
