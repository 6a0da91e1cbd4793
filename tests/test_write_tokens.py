"""Settings of language models' servers, written as their command lines and YAML and read again."""

import argparse
import shlex

import pytest
import yaml
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st

import batchsim as bs
from batchsim import servers
from batchsim.servers.formats.command_lines import flags_of
from batchsim.servers.registry import ALL

WITH_FILES = ("vllm", "vllm_v0", "sglang", "tgi")
WHOLE, SHARE = st.integers(1, 5000), st.sampled_from([0.5, 0.85, 0.9, 1.0])
CARDS, NAMES = st.sampled_from(["h100", "rtx-4090", 48.0]), st.sampled_from(["llama-3.1-8b", "acme/a b's"])
SIZES = {"block_size": st.sampled_from([1, 16, 32]), "num_gpu_blocks_override": st.integers(2, 10**6)}
OF_VLLM = {
    **SIZES, "max_num_seqs": st.integers(1, 256), "max_num_batched_tokens": st.integers(256, 65_536),
    "model": NAMES, "gpu_memory_utilization": SHARE, "max_model_len": st.integers(200, 256),
}  # fmt: skip
# By server: the settings drawn. A card comes with the blocks, as not every model's data sheet is known.
SETTINGS = {
    "vllm": {
        **OF_VLLM,
        "enable_chunked_prefill": st.booleans(),
        "long_prefill_token_threshold": st.integers(0, 99),
        "data_parallel_size": st.integers(1, 4),
        "performance_mode": st.sampled_from(["balanced", "throughput"]),
        "tensor_parallel_size": st.integers(1, 4),
        "async_scheduling": st.booleans(),
        "scheduling_policy": st.just("priority"),
    },
    "vllm_v0": {**OF_VLLM, "enable_chunked_prefill": st.booleans(), "swap_space": st.integers(0, 8)},
    "sglang": {
        "max_running_requests": WHOLE,
        "max_total_tokens": st.integers(100, 10**6),
        "chunked_prefill_size": st.sampled_from([-1, 512, 8192]),
        "max_prefill_tokens": WHOLE,
        "page_size": st.sampled_from([1, 64]),
        "context_length": st.integers(100, 10**5),
        "schedule_conservativeness": st.sampled_from([0, 0.1, 0.3, 1.0, 1.3]),
        "enable_mixed_chunk": st.booleans(),
        "model_path": NAMES,
        "mem_fraction_static": SHARE,
        "dp_size": st.integers(1, 4),
        "max_queued_requests": WHOLE,
        "schedule_policy": st.just("lpm"),
    },
    "tgi": {
        "max_batch_size": WHOLE,
        "max_batch_prefill_tokens": WHOLE,
        "waiting_served_ratio": st.floats(0, 9),
        "max_batch_total_tokens": st.integers(1000, 10**6),
        "max_waiting_tokens": st.integers(0, 99),
        "max_total_tokens": st.integers(100, 10**5),
        "prefill_chunking": st.booleans(),
        "attention": st.sampled_from(["paged", "flashinfer"]),
        "model_id": NAMES,
        "num_shard": st.integers(1, 4),
        "max_concurrent_requests": WHOLE,
    },
}


@st.composite
def configs(draw):
    server = draw(st.sampled_from(WITH_FILES))
    drawn = draw(st.fixed_dictionaries({}, optional=SETTINGS[server]))
    memory = {"num_gpu_blocks_override", "max_total_tokens", "max_batch_total_tokens"}
    if memory & drawn.keys() and draw(st.booleans()):
        drawn["gpu"] = draw(CARDS)
    return servers.config(server, **drawn)


def parser_of(server):
    """An argparse of the server's own flags, as its sources declare them."""
    parser = argparse.ArgumentParser(allow_abbrev=False)
    if server.startswith("vllm"):
        parser.add_argument("model_tag", nargs="?")
    for flag, takes in flags_of(server).items():
        if flag in ("-h", "--help"):
            continue
        how = {"switch": {"action": "store_true"}, "list": {"nargs": "+"}, "optional": {"nargs": "?"}}
        parser.add_argument(flag, **how.get(takes, {}), dest=flag)
        if takes == "switch" and server.startswith("vllm") and flag.startswith("--"):
            parser.add_argument("--no-" + flag[2:], action="store_true")
    return parser


PARSERS = {server: parser_of(server) for server in WITH_FILES}


def accepted(text, server, file):
    """The flags that the server's parser finds in the text."""
    if file.endswith(".yaml"):
        keys = yaml.safe_load(text)
        # As vLLM does: a truth is a flag alone, anything else a flag and its value.
        words = [
            word for key, value in keys.items()
            for word in ([f"--{key}"] if value is True else [f"--{key}", str(value)])
        ]  # fmt: skip
    else:
        words = shlex.split(text.replace("\\\n", " "), comments=True)
        while "=" in words[0]:
            words.pop(0)
        start = {"vllm": 2, "vllm_v0": 2, "sglang": 2, "tgi": 1}[server]
        words = words[start:]
    return vars(PARSERS[server].parse_args(words))


@examples(max_examples=200, deadline=None)
@given(configs())
def test_what_is_written_of_settings_is_read_as_the_same(config):
    for form in ALL[config.server].formats:
        text = servers.write(config.server, config, form.file)
        accepted(text, config.server, form.file)
        if form.file == "vllm.yaml" and not yaml.safe_load(text):
            continue  # nothing tells it
        found = servers.parse(text)
        assert found.server == config.server
        assert found.settings == {k: v for k, v in config.settings.items() if not is_off(config.server, k, v)}
        assert (found.rule, found.servers) == (config.rule, config.servers)
        assert (found.queue_limit, found.unknown) == (config.queue_limit, {})


def is_off(server, name, value):
    """Whether a switch is off that has no --no-: then nothing is said."""
    return (
        value is False and server == "sglang" and flags_of(server)["--" + name.replace("_", "-")] == "switch"
    )


RULES = st.builds(
    bs.Continuous, st.integers(1, 200), st.integers(200, 20_000),
    first=st.sampled_from(["decode", "prefill"]), chunked=st.booleans(),
    reserve=st.sampled_from(["step", "life"]), kv_blocks=st.one_of(st.none(), st.integers(100, 10**5)),
    max_model_len=st.one_of(st.none(), st.integers(100, 200)),
    block_size=st.sampled_from([1, 16, 32]), long_prefill_token_threshold=st.sampled_from([0, 64]),
)  # fmt: skip


@examples(max_examples=60, deadline=None)
@given(RULES, st.integers(1, 3))
def test_a_rule_is_written_for_every_server_with_the_rule_that_it_makes_of_it(rule, engines):
    scenario = bs.Scenario(
        bs.Poisson(1), rule, bs.StepTime(2, 8, 0.1), servers=engines, tokens=bs.Tokens(9, 9)
    )
    texts, refused = servers.write_all(scenario)
    assert {*texts, *refused} == {*servers.TOKEN_SERVERS}
    expected = {"vllm", "sglang"} if engines > 1 else {*WITH_FILES}
    assert {*texts} == expected
    for server, text in texts.items():
        accepted(text, server, servers.file_name(server))
        found = servers.parse(text)
        assert (found.server, found.servers, found.rule.max_num_seqs) == (server, engines, rule.max_num_seqs)
        memory = None if rule.kv_blocks is None else rule.kv_blocks * rule.block_size
        assert (found.rule.kv_blocks or 0) * found.rule.block_size == (memory or 0)
        comments = [line for line in text.splitlines() if line.startswith("# ")]
        assert any(repr(found.rule) in line for line in comments)
        assert found.rule == rule or any(repr(rule) in line for line in comments)


@pytest.mark.parametrize(
    ("server", "rule"),
    [
        ("vllm", servers.vllm(num_gpu_blocks_override=2588, long_prefill_token_threshold=512)),
        ("vllm", servers.vllm(gpu="h100")),
        ("vllm_v0", servers.vllm_v0(num_gpu_blocks_override=2588)),
        ("sglang", servers.sglang(gpu="h100", max_total_tokens=99_000, schedule_conservativeness=0.3)),
        ("sglang", servers.sglang(chunked_prefill_size=-1, page_size=64, max_total_tokens=6400)),
        ("tgi", servers.tgi(max_batch_size=64, max_batch_total_tokens=41_400)),
        ("tgi", servers.tgi(prefill_chunking=False, attention="paged", max_batch_total_tokens=41_392)),
    ],
    ids=str,
)  # fmt: skip
def test_a_rule_that_the_server_has_is_written_and_read_as_that_rule(server, rule):
    text = servers.write(server, rule)
    assert servers.parse(text).rule == rule
    assert "Not the requested rule" not in text


def test_a_false_that_vllm_leaves_out_of_its_yaml_is_written_as_no():
    config = servers.config("vllm", enable_chunked_prefill=False)
    assert yaml.safe_load(servers.write("vllm", config, "vllm.yaml")) == {"no-enable-chunked-prefill": True}
    found = servers.parse("max-num-seqs: 8\nenable-chunked-prefill: false")
    assert found.rule.chunked
    assert "no-enable-chunked-prefill" in found.notes[-1]


@pytest.mark.parametrize(
    ("server", "what", "words"),
    [
        ("triton", bs.Continuous(), "a rule for triton must be one of whole batches"),
        ("vllm", bs.SizeOrWait(), "a rule for vllm must be a Continuous"),
        ("vllm", bs.Continuous(300, 200), "at least max_num_seqs, 300, got 200"),
        ("orca", bs.Continuous(), "must be one with a file, got 'orca'"),
        ("tensorrt_llm", servers.config("tensorrt_llm"), "must be one with a file"),
    ],
)
def test_what_a_server_cannot_say_is_refused(server, what, words):
    with pytest.raises(ValueError, match=words):
        servers.write(server, what)


def test_a_timeout_is_refused_and_a_limit_too_where_the_server_has_none():
    scenario = bs.Scenario(
        bs.Poisson(1), bs.Continuous(), bs.StepTime(2, 8, 0.1), queue_limit=9, tokens=bs.Tokens(9, 9)
    )
    texts, refused = servers.write_all(scenario)
    assert [*texts] == ["sglang"]
    assert "--max-queued-requests 9" in texts["sglang"]
    assert "queue_limit must be None for vllm" in refused["vllm"]
    assert servers.write_all(scenario.replace(queue_limit=None, timeout_ms=5)).texts == {}
