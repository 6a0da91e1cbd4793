"""`batchsim init` writes a scenario that explains every knob."""

import dataclasses
import json
import re
import tomllib

import pytest
from shell import SCENARIO, SHORT, as_json, refused, run, run_json
from typer.testing import CliRunner

import batchsim as bs
from batchsim.cli import app
from batchsim.scenario.routing import NAMES
from batchsim.scenario.toml import KINDS, from_tables, read_toml


def test_init_writes_a_scenario_that_runs_as_it_is(written):
    assert bs.Scenario.from_toml("scenario.toml") == SCENARIO
    printed = run("simulate", "scenario.toml", *SHORT).stdout
    assert "UNSTABLE" not in printed
    assert CliRunner().invoke(app, ["simulate", "-", "--requests", "2e3"], input=written).stdout == printed


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
    if kind in ("Continuous", "BatchWait", "NewTokenRatio", "StepTime", "WaitingServedRatio"):
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
    assert found["summary"] == as_json(bs.simulate(SCENARIO, 3000, warmup=0.25, seed=7).summary())
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


CONFIG = "max_batch_size: 32\ndynamic_batching { max_queue_delay_microseconds: 5000 }\nbackendd: 'x'\n"
TRAFFIC = ["--rate-per-s", "300", "--fixed-ms", "5", *SHORT]


@pytest.mark.parametrize("command", [["simulate"], ["sweep", "--over", "max_wait_ms=0,5"], ["lint"],
                                     ["tune", "--p99-ms", "50"], ["capacity", "--p99-ms", "50"]])  # fmt: skip
def test_every_command_takes_a_servers_file_by_any_name_or_as_standard_input(command, tmp_path):
    (tmp_path / "config.pbtxt").write_text(CONFIG)
    (tmp_path / "model").write_text(CONFIG)
    given = [command[0], str(tmp_path / "config.pbtxt"), *command[1:], *TRAFFIC, "--json"]
    printed = CliRunner().invoke(app, given).stdout
    assert json.loads(printed)["scenario"]["rule"]["max_batch_size"] in (32, 64)
    for path, text in ((tmp_path / "model", None), ("-", CONFIG), ("-", CONFIG.replace("\n", "\r\n"))):
        given[1] = str(path)
        other = CliRunner().invoke(app, given, input=text)
        assert json.loads(other.stdout) == json.loads(printed) | (
            {"file": str(path)} if command == ["lint"] else {}
        )
        assert "backendd" in other.stderr


def test_a_servers_file_on_standard_input_is_read_once_and_edited():
    given = ["tune", "-", "--p99-ms", "50", "--over", "max_wait_ms=0", "--write", "triton", *TRAFFIC]
    done = CliRunner().invoke(app, given, input=CONFIG)
    assert done.exit_code == 0, done.output
    assert "-dynamic_batching { max_queue_delay_microseconds: 5000 }\n" in done.stdout


def test_a_scenario_on_standard_input_is_not_cut(monkeypatch):
    monkeypatch.setattr("batchsim.cli.scenario_flags.SCENARIO_BYTES", 100)
    done = CliRunner().invoke(app, ["simulate", "-"], input="[workload]\n" + 50 * "# a comment\n")
    assert done.exit_code == 2
    assert re.search(r"^Error: - must have at most .*, got .* or more", done.stderr)


def test_lint_of_a_file_alone_says_what_it_knows_and_then_what_it_needs(tmp_path):
    (tmp_path / "config.pbtxt").write_text(CONFIG)
    (tmp_path / "run.sh").write_text("vllm serve some/model --max-num-seqs 64\n")
    done = run("lint", tmp_path / "config.pbtxt", code=2)
    assert "SizeOrWait(max_batch_size=32, max_wait_ms=5)" in done.stdout
    assert "unknown      backendd (did you mean 'backend'?)" in done.stdout
    assert "a workload by --rate-per-s" in done.stderr
    assert "lengths" not in done.stderr
    done = run("lint", tmp_path / "run.sh", code=2)
    assert "Continuous(max_num_seqs=64" in done.stdout
    assert "lengths by --prompt-tokens and --output-tokens" in done.stderr
    assert run("lint", tmp_path / "run.sh", "--json", code=2).stdout == ""
