"""A setting as a server's own text: reading it gives what was written, or a comment names the difference."""

import argparse
import functools
import math
import re
import shlex

import pytest
import yaml
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st
from places import DATA
from refusals import refusals
from server_settings import SETTINGS, SIZES, TOKEN_SETTINGS, configs

import batchsim as bs
from batchsim import servers
from batchsim.servers.files import document, target_of, translated, with_settings
from batchsim.servers.formats.command_lines import flags_of
from batchsim.servers.registry import ALL

# The servers of which no new file is written, and which of an example's calls is meant.
PROGRAMS = dict.fromkeys(("textbook", "mosec", "ray_serve", "bentoml", "litserve", "batched", "clipper"))
PROGRAMS |= {"mosec": "Embed", "bentoml": "summarise"}


def file_of(server, what):
    """The text of a server's file: a new one, or an example that is edited."""
    if server not in PROGRAMS:
        return servers.write(server, what)
    (path,) = (DATA / "servers" / server).iterdir()
    return servers.edit(path, what, which=PROGRAMS[server]).text


@functools.cache
def parser_of(server):
    """An argparse of the server's own flags, as its sources declare them."""
    parser = argparse.ArgumentParser(allow_abbrev=False)
    if server in ("vllm", "tensorrt_llm"):
        parser.add_argument("model_tag", nargs="?")
    for flag, takes in flags_of(server).items():
        if flag in ("-h", "--help"):
            continue
        how = {"switch": {"action": "store_true"}, "list": {"nargs": "+"}, "optional": {"nargs": "?"}}
        flag = flag.replace("-", "_").replace("__", "--") if server == "tensorrt_llm" else flag
        parser.add_argument(flag, **how.get(takes, {}), dest=flag)
        if takes == "switch" and server.startswith("vllm") and flag.startswith("--"):
            parser.add_argument("--no-" + flag[2:], action="store_true")
    return parser


def accepted(text, server, file):
    """Parse the text as the server, or a parser of the format, does; an error fails the test."""
    if file == "vllm.yaml":
        # Like vLLM: True is a flag alone, anything else a flag and its value.
        words = [
            word for key, value in (yaml.safe_load(text) or {}).items()
            for word in ([f"--{key}"] if value is True else [f"--{key}", str(value)])
        ]  # fmt: skip
        parser_of(server).parse_args(words)
    elif file.endswith((".yaml", ".yml")):
        assert isinstance(yaml.safe_load(text), dict)
    elif file.endswith(".sh"):
        words = shlex.split(text.replace("\\\n", " "), comments=True)
        while "=" in words[0]:
            words.pop(0)
        parser_of(server).parse_args(words[1 if server in ("tgi", "tei", "tensorrt_llm") else 2 :])


def test_settings_are_drawn_for_each_server():
    assert SETTINGS.keys() | TOKEN_SETTINGS.keys() == {name for name, server in ALL.items() if server.formats}


@examples(max_examples=350, deadline=None)
@given(configs())
def test_settings_in_a_file_are_read_as_the_same(config):
    for form in ALL[config.server].formats:
        if form.suffixes == (".json",):  # of an engine, which is built
            continue
        which = PROGRAMS.get(config.server)
        if config.server in PROGRAMS:
            example = DATA / "servers" / config.server / form.file
            before = document(example.read_text(), config.server, which)
            text = with_settings(before, dict.fromkeys(before.settings) | config.settings).text
            compile(text, form.file, "exec")
        else:
            text = servers.write(config.server, config, form.file)
            accepted(text, config.server, form.file)
        if form.file == "vllm.yaml" and not yaml.safe_load(text):
            continue  # an empty file has no signs
        found = servers.parse(text, which=which)  # recognised by the text alone
        kept, got = (
            {k: v for k, v in each.items() if not is_off(config.server, k, v)}
            for each in (config.settings, found.settings)
        )
        assert (found.server, got, found.unknown) == (config.server, kept, {})
        assert (found.rule, found.servers) == (config.rule, config.servers)
        assert found.queue_limit == config.queue_limit
        if config.server in servers.SERVERS | servers.SIZE_SERVERS:
            assert config.unused.items() <= found.unused.items()
            usual = re.compile("left out|stops|devices=|each GPU")
            assert [note for note in found.notes if not usual.search(note)] == []


def is_off(server, name, value):
    """Whether a switch is off that has no --no-: then nothing is said."""
    return (
        value is False
        and server in ("sglang", "tensorrt_llm")
        and flags_of(server).get("--" + name.replace("_", "-"), "switch") == "switch"
    )


@examples(max_examples=40, deadline=None)
@given(SIZES, st.floats(0, 1e4))
def test_a_size_and_a_wait_are_written_for_every_server_with_the_rule_that_it_makes_of_them(size, wait_ms):
    asked = bs.SizeOrWait(size, wait_ms)
    written = servers.write_all(asked)
    assert written.refused.keys() == PROGRAMS.keys()
    assert [*written.texts] == [server for server in servers.SERVERS if server not in PROGRAMS]
    for server, text in written.texts.items():
        accepted(text, server, servers.file_name(server))
        found = servers.parse(text)
        assert (found.server, found.servers) == (server, 1)
        assert found.rule.max_batch_size == size
        comments = [line for line in text.splitlines() if line.startswith("# ")]
        assert any(repr(found.rule) in line for line in comments)
        assert found.rule == asked or any(repr(asked) in line for line in comments)


TOKEN_RULES = st.builds(
    bs.Continuous, st.integers(1, 200), st.integers(200, 20_000),
    first=st.sampled_from(["decode", "prefill"]), chunked=st.booleans(),
    reserve=st.sampled_from(["step", "life"]), kv_blocks=st.one_of(st.none(), st.integers(100, 10**5)),
    max_model_len=st.one_of(st.none(), st.integers(100, 200)),
    block_size=st.sampled_from([1, 16, 32]), long_prefill_token_threshold=st.sampled_from([0, 64]),
)  # fmt: skip


def test_a_handler_that_blocks_has_room_for_a_batch_that_forms_beside_each_that_is_computed():
    scenario = bs.Scenario(POISSON, bs.StalledBatches(8, 5), AFFINE, servers=3)
    assert servers.parse(file_of("ray_serve", scenario)).unused["max_ongoing_requests"] == 48


@examples(max_examples=60, deadline=None)
@given(TOKEN_RULES, st.integers(1, 3))
def test_a_rule_is_written_for_every_server_with_the_rule_that_it_makes_of_it(rule, engines):
    scenario = bs.Scenario(
        bs.Poisson(1), rule, bs.StepTime(2, 8, 0.1), servers=engines, tokens=bs.Tokens(9, 9)
    )
    texts, refused = servers.write_all(scenario)
    assert {*texts, *refused} == {*servers.TOKEN_SERVERS}
    expected = {"vllm", "sglang"} if engines > 1 else {*TOKEN_SETTINGS}
    assert {*texts} == expected
    for server, text in texts.items():
        accepted(text, server, servers.file_name(server))
        found = servers.parse(text)
        assert (found.server, found.replicas, found.rule.max_num_seqs) == (server, engines, rule.max_num_seqs)
        memory = None if rule.kv_blocks is None else rule.kv_blocks * rule.block_size
        assert (found.rule.kv_blocks or 0) * found.rule.block_size == (memory or 0)
        comments = [line for line in text.splitlines() if line.startswith("# ")]
        assert any(repr(found.rule) in line for line in comments)
        assert found.rule == rule or any(repr(rule) in line for line in comments)


RULES = [
    ("triton", bs.SizeOrWait(32, 2.5)),
    ("triton", servers.triton(8, 5000, [4, 8])),
    ("tf_serving", bs.SizeOrWait(32, 0)),
    ("torchserve", bs.PullThenWait(8, 50)),
    ("mosec", servers.mosec(8, 50)),
    ("kserve", bs.PullThenWait(8, 50)),
    ("ray_serve", bs.FrozenBatches(8, 2.5, 20)),
    ("ray_serve", servers.ray_serve(8, 0.05, handler="blocking")),
    ("bentoml", servers.bentoml(32)),
    ("litserve", bs.CompetingWindows(8, 4.1, 1)),
    ("batched", servers.batched(8, 2.5)),
    ("clipper", bs.SizeOrWait(8, 0)),
    ("textbook", bs.SizeOrWait(8, math.inf)),
    ("vllm", servers.vllm(num_gpu_blocks_override=2588, long_prefill_token_threshold=512)),
    ("vllm", servers.vllm(gpu="h100")),
    ("sglang", servers.sglang(gpu="h100", max_total_tokens=99_000, schedule_conservativeness=0.3)),
    ("sglang", servers.sglang(chunked_prefill_size=-1, page_size=64, max_total_tokens=6400)),
    ("tgi", servers.tgi(max_batch_size=64, max_batch_total_tokens=41_400)),
    ("tgi", servers.tgi(prefill_chunking=False, attention="paged", max_batch_total_tokens=41_392)),
]


@pytest.mark.parametrize(("server", "rule"), RULES, ids=str)
def test_a_rule_that_the_server_has_is_written_and_read_as_that_rule(server, rule):
    text = file_of(server, rule)
    assert servers.parse(text, which=PROGRAMS.get(server)).rule == rule
    assert "Not the requested rule" not in text


@pytest.mark.parametrize(
    ("server", "wait_ms", "setting", "value"),
    [
        ("torchserve", 2.5, "maxBatchDelay", 3),
        ("torchserve", 0, "maxBatchDelay", 1),  # 0 means 100 ms there
        ("kserve", 0.2, "maxLatency", 1),
        ("triton", 0.0015, "max_queue_delay_microseconds", 2),
    ],
)
def test_a_wait_that_is_rounded_is_said_to_be(server, wait_ms, setting, value):
    text = servers.write(server, bs.SizeOrWait(8, wait_ms))
    assert servers.parse(text).settings[setting] == value
    (line,) = [line for line in text.splitlines() if line.startswith(f"# {setting} ")]
    assert f"{wait_ms:g} ms" in line


def test_a_wait_that_is_not_rounded_is_written_as_it_is():
    for wait_ms in (0, 0.1, 0.3, 2, 2.5, 4.1, 7.001, 1000):
        text = servers.write("triton", bs.SizeOrWait(8, wait_ms))
        assert servers.parse(text).rule == bs.SizeOrWait(8, wait_ms)
        assert "rounded" not in text
        rule = servers.parse(file_of("ray_serve", bs.SizeOrWait(8, wait_ms))).rule
        assert rule.max_wait_ms == wait_ms  # 0.0041 s are 4.1 ms, not 4.1000000000000005


POISSON, AFFINE = bs.Poisson(100), bs.Affine(2, 0.1)


def scenario(**more):
    return bs.Scenario(POISSON, bs.SizeOrWait(), AFFINE, **more)


@pytest.mark.parametrize(("timeout_ms", "next_ms"), [(1.0006, 1.001), (1.0014, 1.002), (1.002, 1.002)])
def test_a_timeout_between_two_microseconds_is_the_next_so_that_none_is_lost_early(timeout_ms, next_ms):
    learned = target_of(scenario().replace(rule=bs.LearnedSizes(128, timeout_ms)))
    assert translated(ALL["clipper"], learned).settings["slo_micros"] == pytest.approx(1000 * next_ms)
    one = scenario(timeout_ms=timeout_ms)
    levels = one.replace(workload=POISSON.with_priorities({1: 0.2, 2: 0.8}))
    per_level = levels.replace(timeout_ms={1: timeout_ms, 2: 20})
    for asked, limit_ms in ((one, next_ms), (levels, next_ms), (per_level, {1: next_ms, 2: 20})):
        assert servers.parse(servers.write("triton", asked)).timeout_ms == limit_ms


def test_a_scenarios_servers_limits_and_padding_are_written_too():
    asked = bs.Scenario(
        POISSON, bs.SizeOrWait(8, 2), AFFINE.padded_to([2, 4, 8]), servers=2, queue_limit=160, timeout_ms=50
    )
    triton = servers.parse(servers.write("triton", asked))
    assert (triton.rule, triton.servers, triton.queue_limit, triton.timeout_ms) == (asked.rule, 2, 160, 50)
    without = asked.replace(timeout_ms=None)
    tf_serving = servers.parse(servers.write("tf_serving", without))
    assert (tf_serving.servers, tf_serving.queue_limit, tf_serving.pad_to) == (2, 160, (2, 4, 8))
    assert tf_serving.apply(without) == without
    mosec = servers.parse(file_of("mosec", asked.replace(service=AFFINE)))
    assert (mosec.servers, mosec.queue_limit, mosec.timeout_ms) == (2, 160, 50)


def test_priority_levels_and_their_limits_are_written_for_triton_alone():
    asked = bs.Scenario(
        POISSON.with_priorities({1: 0.2, 2: 0.8}), bs.SizeOrWait(8, 2), AFFINE, queue_limit={2: 100},
        timeout_ms={1: 50, 2: 20}, timeout_action={1: "delay", 2: "reject"},
    )  # fmt: skip
    text = servers.write("triton", asked)
    found = servers.parse(text)
    assert "requested" not in text
    assert found.apply(asked) == asked
    assert {"level 2: 100 requests", "level 1: 50 ms, then served after the others"} <= {
        line[15:] for line in repr(found).splitlines()
    }
    written = servers.write_all(asked)
    assert {*written.texts} == {"triton"}
    alike = servers.write(
        "torchserve", asked.replace(queue_limit=None, timeout_ms=None, timeout_action="reject")
    )
    assert "in order of arrival" in alike


def test_limits_that_a_server_has_and_nobody_asked_for_are_said():
    assert "queue limit, 80 requests" in servers.write("tf_serving", bs.SizeOrWait(8, 20))


def test_a_config_of_one_server_is_written_for_another_as_far_as_it_has_words():
    ours = servers.config("triton", max_batch_size=8, max_queue_delay_microseconds=20_000, count=3)
    text = servers.write("torchserve", ours)
    assert servers.parse(text).settings == {"batchSize": 8, "maxBatchDelay": 20, "minWorkers": 3}
    assert "PullThenWait(max_batch_size=8, max_wait_ms=20)" in text
    assert "Not the requested rule, SizeOrWait(max_batch_size=8, max_wait_ms=20)" in text
    with pytest.raises(ValueError, match="SleepingPoll"):
        servers.write("triton", servers.config("batched"))


@refusals
def test_what_a_server_cannot_be_told_is_refused_with_the_reason():
    """
    servers.write("triton", bs.AtLeast(2, 8)) -> rule for triton must be a SizeOrWait...got AtLeast
    servers.write("torchserve", servers.triton(8, 5000, [4])) -> rule for torchserve must be a PullThenWait
    servers.write("triton", bs.SizeOrWait(8, math.inf)) -> max_wait_ms must be finite for triton, got inf
    servers.write("kserve", scenario(servers=2)) -> servers must be 1 for kserve
    servers.write("kserve", scenario(queue_limit=9)) -> queue_limit must be None
    servers.write("mosec", bs.SizeOrWait(8, 20))
        -> a file for mosec must be yours...`servers.edit` changes its settings
    servers.write("kserve", scenario(timeout_ms=9)) -> timeout_ms must be None
    servers.write("tritn", bs.SizeOrWait()) -> did you mean 'triton'
    servers.write("triton", bs.Continuous()) -> a rule for triton must be one for whole batches
    servers.write("vllm", bs.SizeOrWait()) -> a rule for vllm must be a Continuous
    servers.write("vllm", bs.Continuous(300, 200)) -> at least max_num_seqs, 300, got 200
    servers.write("orca", bs.Continuous()) -> must be one with a file, got 'orca'
    servers.write("orca", bs.Continuous()) -> must be one with a file
    """


def test_what_is_no_setting_and_no_file_of_the_server_is_refused():
    with pytest.raises(TypeError, match="a ServerConfig, Rule, Scenario or Recommendation, got 32"):
        servers.write("triton", 32)
    with pytest.raises(ValueError, match=r"file must be one of config.properties, model-config.yaml"):
        servers.write("torchserve", bs.SizeOrWait(), "config.yaml")
    zero = servers.config("torchserve", maxBatchDelay=0)
    with pytest.raises(ValueError, match=r"maxBatchDelay must be possible in .*config.properties, got 0"):
        servers.write("torchserve", zero)
    assert servers.parse(servers.write("torchserve", zero, "model-config.yaml")).rule == zero.rule


def test_a_recommendation_is_written_for_all_servers():
    today = bs.Scenario(bs.Poisson(800), bs.SizeOrWait(), bs.Affine(5, 0.25))
    knobs = {"max_batch_size": [8, 32], "max_wait_ms": [0, 2.5]}
    best = bs.tune(today, bs.SLO(p99_ms=50), knobs, requests=3000)
    written = servers.write_all(best)
    assert (len(written.texts), written.refused.keys()) == (4, PROGRAMS.keys())
    assert servers.parse(written.texts["triton"]).rule == best.rule
    plain = servers.write_all(best.scenario).texts["triton"].splitlines()
    added = [line for line in written.texts["triton"].splitlines() if line not in plain]
    assert [re.sub(r"[\d.]+ ms", "X ms", line) for line in added] == [
        "# Expected: p99 X ms, within the X ms asked for.",
        "# Its p99 is within X ms of the best of 4 settings, 95% confidence.",
        "# These numbers are of a simulation whose service times count as exact.",
    ]


def test_what_some_servers_cannot_be_told_is_written_for_the_others():
    written = servers.write_all(bs.Scenario(POISSON, bs.SizeOrWait(8, 20), AFFINE, queue_limit=80))
    assert {*written.texts} == {"triton", "tf_serving", "torchserve"}
    assert {*written.texts, *written.refused} == {*servers.SERVERS}


def test_a_limit_in_units_is_written_for_servers_of_sizes_too():
    written = servers.write_all(servers.tei(max_batch_tokens=2048))
    assert {*written.texts} == {"tei"}
    assert "--max-batch-tokens 2048" in written.texts["tei"]
    assert "max-concurrent-requests" not in written.texts["tei"]  # 512 is the default
    assert "--max-concurrent-requests 513" in servers.write("tei", bs.SizeOrWait(513, 0))
    assert "must be a SizeOrWait, whose numbers" in written.refused["triton"]
    assert "must be a PullThenWait or a SizeOrWait, whose" in written.refused["kserve"]
    assert "tei" in servers.write_all(bs.SizeOrWait(32, 10, max_batch_units=2048)).texts


def test_a_false_that_vllm_leaves_out_of_its_yaml_is_written_as_no():
    config = servers.config("vllm", enable_chunked_prefill=False)
    assert yaml.safe_load(servers.write("vllm", config, "vllm.yaml")) == {"no-enable-chunked-prefill": True}
    found = servers.parse("max-num-seqs: 8\nenable-chunked-prefill: false")
    assert found.rule.chunked
    assert "no-enable-chunked-prefill" in found.notes[-1]


def test_a_timeout_is_refused_and_a_limit_too_where_the_server_has_none():
    scenario = bs.Scenario(
        bs.Poisson(1), bs.Continuous(), bs.StepTime(2, 8, 0.1), queue_limit=9, tokens=bs.Tokens(9, 9)
    )
    texts, refused = servers.write_all(scenario)
    assert [*texts] == ["sglang"]
    assert "--max-queued-requests 9" in texts["sglang"]
    assert "queue_limit must be None for vllm" in refused["vllm"]
    assert servers.write_all(scenario.replace(queue_limit=None, timeout_ms=5)).texts == {}
