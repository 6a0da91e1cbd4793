"""A setting as a server's own text: what is read of it is what was written, or a comment says what is not."""

import ast
import json
import math

import pytest
import yaml
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st

import batchsim as bs
from batchsim import servers
from batchsim.servers.registry import ALL

SIZES = st.integers(1, 500)
SECONDS = st.one_of(st.just(0.0), st.floats(1e-6, 1e3), st.integers(0, 100))
MICROS = st.integers(0, 10**9)

# Any settings that a server takes, by their names; size and what must be there first.
SETTINGS = {
    "textbook": ({}, {"max_batch_size": SIZES, "max_wait_ms": SECONDS | st.just(math.inf)}),
    "triton": (
        {"max_batch_size": st.integers(20, 500)},
        {
            "max_queue_delay_microseconds": MICROS, "count": st.integers(1, 9),
            "preferred_batch_size": st.lists(st.integers(1, 20), min_size=1, max_size=4, unique=True),
            "max_queue_size": st.integers(0, 10**6), "default_timeout_microseconds": MICROS,
            "timeout_action": st.just("REJECT"), "preserve_ordering": st.booleans(),
            "allow_timeout_override": st.booleans(),
        },
    ),
    "tf_serving": (
        {"max_batch_size": st.just(64)},
        {
            "batch_timeout_micros": MICROS, "num_batch_threads": st.integers(1, 64),
            "max_enqueued_batches": st.integers(1, 10**6), "pad_variable_length_inputs": st.booleans(),
            "allowed_batch_sizes": st.sets(st.integers(1, 63)).map(lambda sizes: [*sorted(sizes), 64]),
        },
    ),
    "torchserve": (
        {"batchSize": SIZES},
        {
            "maxBatchDelay": st.integers(1, 10**6), "minWorkers": st.integers(1, 99),
            "maxWorkers": st.integers(1, 99), "job_queue_size": st.integers(1, 10**6),
            "responseTimeout": st.integers(1, 10**4),
        },
    ),
    "mosec": (
        {},
        {
            "max_batch_size": SIZES, "max_wait_time": st.integers(0, 10**6), "num": st.integers(1, 99),
            "capacity": st.integers(1, 10**6), "timeout": st.integers(1, 10**6),
            "env": st.just([{"A": "b"}]), "start_method": st.sampled_from(["spawn", "fork"]),
        },
    ),
    "kserve": (
        {}, {"maxBatchSize": SIZES, "maxLatency": st.integers(1, 10**6), "timeout": st.integers(1, 10**4)},
    ),
    "ray_serve": (
        {"max_ongoing_requests": st.integers(1, 10**6)},
        {
            "max_batch_size": SIZES, "batch_wait_timeout_s": SECONDS, "num_replicas": st.integers(1, 9),
            "max_concurrent_batches": st.integers(1, 9), "before_mid_2023": st.booleans(),
            "handler": st.sampled_from(["async", "blocking"]),
        },
    ),
    "bentoml": (
        {},
        {
            "max_batch_size": SIZES, "max_latency_ms": st.integers(1, 10**6), "workers": st.integers(1, 9),
            "batch_dim": st.just(1),
        },
    ),
    "litserve": (
        {},
        {
            "max_batch_size": SIZES, "batch_timeout": SECONDS, "workers_per_device": st.integers(1, 9),
            "devices": st.integers(1, 9), "timeout": st.floats(0.1, 1e4) | st.just(False),
            "accelerator": st.sampled_from(["cpu", "auto"]), "stream": st.booleans(),
            "api_path": st.sampled_from(["/predict", "/it's \"quoted\""]),
        },
    ),
    "batched": (
        {}, {"batch_size": SIZES, "timeout_ms": SECONDS, "small_batch_threshold": st.integers(1, 99)},
    ),
    "clipper": (
        {"batch_size": SIZES | st.just(-1)},
        {"slo_micros": st.integers(1, 99_999), "default_output": st.text()},
    ),
}  # fmt: skip


@st.composite
def configs(draw):
    server = draw(st.sampled_from(sorted(SETTINGS)))
    needed, optional = SETTINGS[server]
    given_ = draw(st.fixed_dictionaries(needed, optional=optional))
    if server == "clipper" and given_.get("default_output") == "-1.0":
        del given_["default_output"]
    return servers.config(server, **given_)


def accepted(text, file):
    """Return whether a parser of the format takes the text."""
    if file.endswith(".py"):
        compile(text, file, "exec")
    elif file.endswith(".yaml"):
        assert isinstance(yaml.safe_load(text), dict)


def test_settings_are_drawn_for_each_server():
    assert SETTINGS.keys() == servers.SERVERS.keys()


@examples(max_examples=150, deadline=None)
@given(configs())
def test_what_is_written_of_settings_is_read_as_the_same(config):
    for form in ALL[config.server].formats:
        text = servers.write(config.server, config, form.file)
        accepted(text, form.file)
        found = servers.parse(text, config.server)
        assert (found.settings, found.unused) == (config.settings, config.unused)
        assert (found.rule, found.servers) == (config.rule, config.servers)
        assert found.unknown == {}
        assert [note for note in found.notes if "left out" not in note] == []
        assert servers.parse(text).server == config.server  # told by the text alone


@examples(max_examples=40, deadline=None)
@given(SIZES, st.floats(0, 1e4))
def test_a_size_and_a_wait_are_written_for_every_server_with_the_rule_that_it_makes_of_them(size, wait_ms):
    asked = bs.SizeOrWait(size, wait_ms)
    written = servers.write_all(asked)
    assert written.refused == {}
    assert list(written.texts) == list(servers.SERVERS)
    for server, text in written.texts.items():
        accepted(text, servers.file_name(server))
        found = servers.parse(text)
        assert (found.server, found.servers) == (server, 1)
        assert found.rule.max_batch_size == size
        comments = [line for line in text.splitlines() if line.startswith("# ")]
        assert any(repr(found.rule) in line for line in comments)
        assert found.rule == asked or any(repr(asked) in line for line in comments)


RULES = [
    ("triton", bs.SizeOrWait(32, 2.5)),
    ("triton", servers.triton(8, 5000, [4, 8])),
    ("tf_serving", bs.SizeOrWait(32, 0)),
    ("torchserve", bs.PullThenWait(8, 50)),
    ("mosec", servers.mosec(8, 50)),
    ("kserve", bs.PullThenWait(8, 50)),
    ("ray_serve", bs.FrozenBatches(8, 2.5, 20)),
    ("ray_serve", servers.ray_serve(8, 0.05, handler="blocking")),
    ("ray_serve", servers.ray_serve(8, 0.0025, before_mid_2023=True)),
    ("bentoml", servers.bentoml(32)),
    ("litserve", servers.litserve(8, 0.0025)),
    ("batched", servers.batched(8, 2.5)),
    ("clipper", bs.SizeOrWait(8, 0)),
    ("textbook", bs.SizeOrWait(8, math.inf)),
]


@pytest.mark.parametrize(("server", "rule"), RULES, ids=str)
def test_a_rule_that_the_server_has_is_written_and_read_as_that_rule(server, rule):
    text = servers.write(server, rule)
    assert servers.parse(text).rule == rule
    assert "Not the requested rule" not in text


@pytest.mark.parametrize(
    ("server", "wait_ms", "setting", "value"),
    [
        ("torchserve", 2.5, "maxBatchDelay", 3),
        ("torchserve", 0, "maxBatchDelay", 1),  # 0 means 100 ms there
        ("mosec", 0, "max_wait_time", 1),  # and 10 ms here
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
    for wait_ms in (0, 0.1, 0.3, 2, 2.5, 7.001, 1000):
        text = servers.write("triton", bs.SizeOrWait(8, wait_ms))
        assert servers.parse(text).rule == bs.SizeOrWait(8, wait_ms)
        assert "rounded" not in text
        assert servers.parse(
            servers.write("ray_serve", bs.SizeOrWait(8, wait_ms))
        ).rule.max_wait_ms == pytest.approx(wait_ms)


POISSON, AFFINE = bs.Poisson(100), bs.Affine(2, 0.1)


def scenario(**more):
    return bs.Scenario(POISSON, bs.SizeOrWait(), AFFINE, **more)


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
    mosec = servers.parse(servers.write("mosec", asked))
    assert (mosec.servers, mosec.queue_limit, mosec.timeout_ms) == (2, 160, 50)
    assert "--capacity 160 --timeout 50" in servers.write("mosec", asked)


def test_priority_levels_and_their_limits_are_written_for_triton_alone():
    asked = bs.Scenario(
        POISSON.with_priorities({1: 0.2, 2: 0.8}), bs.SizeOrWait(8, 2), AFFINE, queue_limit={2: 100},
        timeout_ms={1: 50, 2: 20}, timeout_action={1: "delay", 2: "reject"},
    )  # fmt: skip
    text = servers.write("triton", asked)
    found = servers.parse(text)
    assert "asked for" not in text
    assert found.apply(asked) == asked
    assert {"level 2: 100 requests", "level 1: 50 ms, then served after the others"} <= {
        line[15:] for line in repr(found).splitlines()
    }
    assert servers.parse(servers.write("triton", found)) == found
    written = servers.write_all(asked)
    assert {*written.texts} == {"triton"}
    alike = servers.write(
        "torchserve", asked.replace(queue_limit=None, timeout_ms=None, timeout_action="reject")
    )
    assert "in order of arrival" in alike


def test_limits_that_a_server_has_and_nobody_asked_for_are_said():
    text = servers.write("mosec", bs.SizeOrWait(8, 20))
    assert "queue limit, 1,024 requests" in text
    assert "timeout, 3 s" in text


def test_a_config_of_one_server_is_written_for_another_as_far_as_it_has_words():
    ours = servers.config("triton", max_batch_size=8, max_queue_delay_microseconds=20_000, count=3)
    text = servers.write("torchserve", ours)
    assert servers.parse(text).settings == {"batchSize": 8, "maxBatchDelay": 20, "minWorkers": 3}
    assert "PullThenWait(max_batch_size=8, max_wait_ms=20)" in text
    assert "Not the requested rule, SizeOrWait(max_batch_size=8, max_wait_ms=20)" in text
    with pytest.raises(ValueError, match="SleepingPoll"):
        servers.write("triton", servers.config("batched"))


@pytest.mark.parametrize(
    ("server", "what", "words"),
    [
        ("triton", bs.AtLeast(2, 8), r"rule for triton must be a SizeOrWait.*got AtLeast"),
        ("torchserve", servers.triton(8, 5000, [4]), "rule for torchserve must be a PullThenWait"),
        ("triton", bs.SizeOrWait(8, math.inf), "max_wait_ms must be finite for triton, got inf"),
        ("batched", scenario(servers=2), "servers must be 1 for batched"),
        ("ray_serve", scenario(queue_limit=9), "queue_limit must be None"),
        ("kserve", scenario(timeout_ms=9), "timeout_ms must be None"),
        ("tritn", bs.SizeOrWait(), "did you mean 'triton'"),
    ],
)  # fmt: skip
def test_what_a_server_cannot_be_told_is_refused_with_the_reason(server, what, words):
    with pytest.raises(ValueError, match=words):
        servers.write(server, what)


def test_what_is_no_setting_and_no_file_of_the_server_is_refused():
    with pytest.raises(TypeError, match="a ServerConfig, Rule, Scenario or Recommendation, got 32"):
        servers.write("triton", 32)
    with pytest.raises(ValueError, match=r"file must be one of config.properties, model-config.yaml"):
        servers.write("torchserve", bs.SizeOrWait(), "config.yaml")
    zero = servers.config("torchserve", maxBatchDelay=0)
    with pytest.raises(ValueError, match=r"maxBatchDelay must be at least 1 in a config.properties"):
        servers.write("torchserve", zero)
    assert servers.parse(servers.write("torchserve", zero, "model-config.yaml")).rule == zero.rule


def test_a_recommendation_is_written_for_all_servers():
    today = bs.Scenario(bs.Poisson(800), bs.SizeOrWait(), bs.Affine(5, 0.25))
    knobs = {"max_batch_size": [8, 32], "max_wait_ms": [0, 2.5]}
    best = bs.tune(today, bs.SLO(p99_ms=50), knobs, requests=3000)
    written = servers.write_all(best)
    assert (len(written.texts), written.refused) == (11, {})
    assert servers.parse(written.texts["triton"]).rule == best.rule
    assert servers.write_all(best.scenario) == written


def test_what_some_servers_cannot_be_told_is_written_for_the_others():
    written = servers.write_all(bs.Scenario(POISSON, bs.SizeOrWait(8, 20), AFFINE, queue_limit=80))
    assert {*written.texts} == {"triton", "tf_serving", "torchserve", "mosec"}
    assert {*written.texts, *written.refused} == {*servers.SERVERS}


def test_models_of_torchserve_are_json_and_continued_by_backslashes():
    text = servers.write("torchserve", bs.SizeOrWait(8, 20))
    models = text.partition("models=")[2].replace("\\\n", "")
    assert json.loads(models)["model"]["1.0"] == {"batchSize": 8, "maxBatchDelay": 20, "minWorkers": 1}


def test_a_python_file_defines_what_it_names():
    for server, text in servers.write_all(bs.SizeOrWait(8, 20)).texts.items():
        if servers.file_name(server).endswith(".py"):
            tree = ast.parse(text)
            assert [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
            assert text.endswith("\n")
