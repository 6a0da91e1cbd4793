"""A server's file with other settings keeps its order, its comments and its other keys."""

import dataclasses
import difflib

import pytest
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st
from places import DATA

import batchsim as bs
from batchsim import servers

FOLDER = DATA / "servers"
FILES = sorted(path for path in FOLDER.rglob("*") if path.is_file())
BATCHING = [path for path in FILES if path.parent.name in servers.SERVERS]
TRAFFIC = bs.Scenario(bs.Poisson(9), bs.SizeOrWait(8, 5), bs.Affine(5, 0.2))
LANGUAGE = bs.Scenario(bs.Poisson(9), bs.Continuous(), bs.StepTime(5, 0, 0), tokens=bs.Tokens(100, 50))
NEW = {"max_batch_size": 48, "max_num_seqs": 77}


def scenario_of(path):
    """Return the scenario that an example describes."""
    language = path.parent.name in servers.TOKEN_SERVERS
    sized = path.parent.name in servers.SIZE_SERVERS
    given = LANGUAGE if language else TRAFFIC.replace(sizes=bs.Uniform(1, 512)) if sized else TRAFFIC
    return servers.read(path).apply(given, silent=True)


def changed_lines(old, new):
    return [line for line in difflib.ndiff(old.splitlines(), new.splitlines()) if line[0] in "+-"]


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}-{path.name}")
def test_a_tuned_number_is_the_only_change_of_a_file(path):
    scenario = scenario_of(path)
    knob = "max_num_seqs" if path.parent.name in servers.TOKEN_SERVERS else "max_batch_size"
    if path.parent.name == "tf_serving":  # its largest size must be the batch size
        wanted = scenario.replace(max_wait_ms=7)
    else:
        wanted = scenario.replace(**{knob: NEW[knob]})
    edited = servers.edit(path, wanted)
    assert edited.lost == ()
    lines = changed_lines(path.read_text(), edited.text)
    assert len([line for line in lines if line[0] == "-"]) == 1
    assert len([line for line in lines if line[0] == "+"]) == 1
    found = servers.parse(edited.text, path.parent.name)
    assert found.apply(wanted, silent=True).rule == wanted.rule


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}-{path.name}")
def test_the_present_settings_change_nothing(path):
    edited = servers.edit(path, scenario_of(path))
    assert edited == (path.read_text(), "", ())


@examples(max_examples=150, deadline=None)
@given(st.sampled_from(BATCHING), st.integers(1, 200), st.integers(0, 200))
def test_an_edited_file_means_the_rule_and_loses_no_key(path, size, wait_ms):
    config = servers.read(path)
    names = {field.name for field in dataclasses.fields(config.rule)}
    knobs = {"max_batch_size": size} | dict.fromkeys(names & {"max_wait_ms", "max_latency_ms"}, wait_ms)
    try:
        rule = dataclasses.replace(config.rule, **knobs)
        servers.write(config.server, rule)
    except ValueError:
        return  # the server cannot have it
    edited = servers.edit(path, rule)
    found = servers.parse(edited.text, config.server)
    assert found.rule == servers.parse(servers.write(config.server, rule), config.server).rule
    if not edited.lost:
        assert (found.unused, found.unknown, found.servers) == (config.unused, config.unknown, config.servers)
        kept = [line for line in path.read_text().splitlines() if line.strip().startswith(("#", "//"))]
        assert [line for line in edited.text.splitlines() if line in kept] == kept


def test_a_new_key_goes_where_its_server_reads_it(tmp_path):
    path = tmp_path / "config.pbtxt"
    path.write_text("max_batch_size: 8  # of the card\ndynamic_batching { }\n")
    edited = servers.edit(path, bs.SizeOrWait(8, 2))
    assert (
        edited.text
        == "max_batch_size: 8  # of the card\ndynamic_batching { max_queue_delay_microseconds: 2000 }\n"
    )
    path = tmp_path / "app.py"
    path.write_text("@serve.batch(max_batch_size=8)  # ours\nasync def f(x): ...\n")
    assert "(max_batch_size=8, batch_wait_timeout_s=0.003)  # ours" in servers.edit(
        path, servers.config("ray_serve", max_batch_size=8, batch_wait_timeout_s=0.003)
    ).text  # fmt: skip


def test_what_a_file_written_anew_would_lose_is_listed():
    path = FOLDER / "tf_serving" / "batching_parameters.txt"
    edited = servers.edit(path, bs.SizeOrWait(24, 2))  # its list of sizes ends with 32
    assert edited.lost[-2:] == ("its comments", "its order and layout")
    assert servers.parse(edited.text).rule == bs.SizeOrWait(24, 2)
