"""A server's file with other settings keeps its order, its comments and its other keys."""

import dataclasses
import difflib
import re

import pytest
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st
from places import DATA
from refusals import refusals
from server_settings import configs

import batchsim as bs
from batchsim import servers
from batchsim.servers.files import target_of, translated
from batchsim.servers.registry import ALL

FOLDER = DATA / "servers"
FILES = sorted(path for path in FOLDER.rglob("*") if path.is_file())
TRAFFIC = bs.Scenario(bs.Poisson(9), bs.SizeOrWait(8, 5), bs.Affine(5, 0.2))
LANGUAGE = bs.Scenario(bs.Poisson(9), bs.Continuous(), bs.StepTime(5, 0, 0), tokens=bs.Tokens(50, 20))
NEW = {"max_batch_size": 48, "max_num_seqs": 77}


def scenario_of(config):
    """Return the scenario that a config describes."""
    sized = TRAFFIC.replace(sizes=bs.Uniform(1, 512)) if config.server in servers.SIZE_SERVERS else TRAFFIC
    return config.apply(LANGUAGE if config.server in servers.TOKEN_SERVERS else sized, silent=True)


def changed_lines(old, new):
    return [line for line in difflib.ndiff(old.splitlines(), new.splitlines()) if line[0] in "+-"]


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}-{path.name}")
def test_a_tuned_number_is_the_only_change_of_a_file(path):
    scenario = scenario_of(servers.read(path))
    assert servers.edit(path, scenario) == servers.Edited(path.read_text(), "")
    knob = "max_num_seqs" if path.parent.name in servers.TOKEN_SERVERS else "max_batch_size"
    if path.parent.name == "tf_serving":  # its largest size must be the batch size
        wanted = scenario.replace(max_wait_ms=7)
    else:
        wanted = scenario.replace(**{knob: NEW[knob]})
    edited = servers.edit(path, wanted)
    assert [line[0] for line in changed_lines(path.read_text(), edited.text)] in (["-", "+"], ["+", "-"])
    found = servers.parse(edited.text, path.parent.name)
    assert found.apply(wanted, silent=True).rule == wanted.rule


KNOBS = {
    "max_batch_size": st.integers(1, 200), "max_wait_ms": st.integers(0, 200),
    "max_latency_ms": st.integers(1, 200), "max_batch_units": st.integers(200, 9000),
    "max_num_seqs": st.integers(1, 200), "max_num_batched_tokens": st.integers(200, 9000),
    "servers": st.integers(1, 4), "queue_limit": st.sampled_from([None, 640]),
    "timeout_ms": st.sampled_from([None, 55]),
}  # fmt: skip
WRITTEN = configs([name for name in ALL if ALL[name].formats and ALL[name].formats[0].template is not None])
TEXTS = st.sampled_from(FILES).map(lambda path: path.read_text()) | WRITTEN.map(
    lambda config: servers.write(config.server, config)
)


@examples(max_examples=200, deadline=None)
@given(TEXTS, st.fixed_dictionaries({}, optional=KNOBS))
def test_an_edit_of_any_file_changes_nothing_else(text, knobs):
    config = servers.parse(text)
    scenario = scenario_of(config)
    names = {field.name for each in (scenario, scenario.rule) for field in dataclasses.fields(each)}
    try:
        wanted = scenario.replace(**{name: value for name, value in knobs.items() if name in names})
        edited = servers.edited(text, wanted, config.server)
    except ValueError:
        return  # the server cannot have it
    found = servers.parse(edited.text, config.server)
    meant = translated(ALL[config.server], target_of(wanted))
    assert found.servers * found.replicas == wanted.servers * wanted.replicas
    assert found.pad_to == meant.pad_to
    assert found.rule == meant.rule or found.apply(wanted, silent=True) == wanted
    for name in {"max_wait_ms", "timeout_ms"} & {*knobs} & names:  # a wait may be rounded up, to 10 ms
        asked, got = (getattr(each, name, None) for each in (wanted, found.apply(wanted, silent=True)))
        assert asked == got or 0 < got - asked <= 10, name
    assert (found.unknown, found.unused) == (config.unknown, {**found.unused, **config.unused})
    names = {*config.settings, *found.settings}
    changed = [name for name in names if config.settings.get(name) != found.settings.get(name)]
    assert len([line for line in changed_lines(text, edited.text) if line[0] == "-"]) <= len(changed)
    comments = [line for line in text.splitlines() if line.startswith("#") and "batchsim:" not in line]
    assert [line for line in edited.text.splitlines() if line in comments] == comments


# fmt: off
PLACES = {
    "a section that is not there": (
        "max_batch_size: 16  # fits\noutput [ { name: 'y' } ]\n", bs.SizeOrWait(16, 2),
        "max_batch_size: 16  # fits\noutput [ { name: 'y' } ]\n"
        "dynamic_batching { max_queue_delay_microseconds: 2000 }\n",
    ),
    "an empty section": (
        "max_batch_size: 8  # of the card\ndynamic_batching { }\n", bs.SizeOrWait(8, 2),
        "max_batch_size: 8  # of the card\ndynamic_batching { max_queue_delay_microseconds: 2000 }\n",
    ),
    "a preferred size that is the largest": (
        "max_batch_size: 8 dynamic_batching { preferred_batch_size: [ 8 ] max_queue_delay_microseconds: 9 }",
        bs.SizeOrWait(4, 0.009), "max_batch_size: 4 dynamic_batching { max_queue_delay_microseconds: 9 }",
    ),
    "a wait that is rounded up": (
        "kind: InferenceService\nspec: {predictor: {batcher: {maxLatency: 5}}}\n",
        TRAFFIC.replace(rule=bs.PullThenWait(32, 0)),
        "kind: InferenceService\nspec: {predictor: {batcher: {maxLatency: 1}}}\n",
    ),
    "a limit in batches": (
        "max_batch_size { value: 32 } max_enqueued_batches { value: 10 } num_batch_threads { value: 1 }",
        TRAFFIC.replace(rule=bs.SizeOrWait(24, 0), queue_limit=320),
        "max_batch_size { value: 24 } max_enqueued_batches { value: 13 } num_batch_threads { value: 1 }",
    ),
    "a section with an unknown key": (
        "max_batch_size: 8 dynamic_batching { delay: 9 }", bs.SizeOrWait(8, 2),
        "max_batch_size: 8 dynamic_batching { delay: 9 max_queue_delay_microseconds: 2000 }",
    ),
    "a key in several lines that goes": (
        "max_batch_size { value: 32 }  # measured\nallowed_batch_sizes: 16\nallowed_batch_sizes: 32\n"
        "batch_timeout_micros { value: 9 }\n", bs.SizeOrWait(24, 2),
        "max_batch_size { value: 24 }  # measured\nbatch_timeout_micros { value: 2000 }\n",
    ),
    "an argument": (
        "@serve.batch(max_batch_size=8)  # ours\nasync def f(x): ...\n",
        servers.config("ray_serve", max_batch_size=8, batch_wait_timeout_s=0.003),
        "@serve.batch(max_batch_size=8, batch_wait_timeout_s=0.003)  # ours\nasync def f(x): ...\n",
    ),
    "an option of a deployment": (
        "@serve.deployment(max_ongoing_requests=9)\nclass A:\n  @serve.batch(max_batch_size=8)\n"
        "  async def f(x): ...\napp = A.options(max_ongoing_requests=64).bind()\n",
        bs.FrozenBatches(16, 10, 32),
        "@serve.deployment(max_ongoing_requests=9)\nclass A:\n  @serve.batch(max_batch_size=16)\n"
        "  async def f(x): ...\napp = A.options(max_ongoing_requests=32).bind()\n",
    ),
    "a snapshot": (
        'model_snapshot={"modelCount": 1, "models": {"a": {"1.0": {"batchSize": 1}}}}\n',
        bs.PullThenWait(8, 20),
        'model_snapshot={"modelCount": 1, "models": {"a": {"1.0": {"batchSize": 8, "maxBatchDelay": 20}}}}\n',
    ),
    "the batcher of a transformer": (
        "kind: InferenceService\nspec: {predictor: {}, transformer: {batcher: {}}}\n",
        bs.PullThenWait(16, 5000),
        "kind: InferenceService\nspec: {predictor: {}, transformer: {batcher: {maxBatchSize: 16}}}\n",
    ),
    "a flag of TensorRT-LLM": (
        "trtllm-serve m --max_batch_size 8 # few\n",
        bs.Continuous(9, 4096, reserve="life", chunked=False, block_size=32),
        "trtllm-serve m --max_batch_size 9 --max_num_tokens 4096 # few\n",
    ),
    "a setting that no file has": (
        "#!/bin/sh\nserver.append_worker(W, max_batch_size=8)\n",
        servers.config("mosec", max_batch_size=8, capacity=9),
        "#!/bin/sh\n# batchsim: capacity=9\nserver.append_worker(W, max_batch_size=8)\n",
    ),
    "flags": (
        "vllm serve m --max-num-seqs='8' > log 2>&1 &\n", bs.Continuous(9, 2048, chunked=False),
        "vllm serve m --max-num-seqs=9 --no-enable-chunked-prefill > log 2>&1 &\n",
    ),
    "a flag in YAML": (
        "max-num-seqs: 8  # few\nno-enable-chunked-prefill: true\n", bs.Continuous(9, 2048),
        "max-num-seqs: 9  # few\n",
    ),
    "keys between brackets of YAML": (
        "kind: InferenceService\nspec: {predictor: {batcher: {}}}\n", bs.PullThenWait(16, 200),
        "kind: InferenceService\nspec: {predictor: {batcher: {maxBatchSize: 16, maxLatency: 200}}}\n",
    ),
    "JSON in a property": (
        'models={"a": {"1.0": {\\\n  "batchSize": 1\\\n}}}\nload_models=a\n', bs.PullThenWait(8, 20),
        'models={"a": {"1.0": {\\\n  "batchSize": 8, "maxBatchDelay": 20\\\n}}}\nload_models=a\n',
    ),
}
# fmt: on


@pytest.mark.parametrize(("text", "what", "edited"), PLACES.values(), ids=PLACES)
def test_a_setting_goes_where_its_server_reads_it(text, what, edited):
    assert servers.edited(text, what).text == edited


@refusals
def test_a_file_that_cannot_have_a_setting_without_other_changes_is_refused():
    r"""
    servers.edited('load_models=a\nmodels={}', bs.PullThenWait(8, 100))
        -> models must have the model whose batchSize
    servers.edited('max_batch_size: 8', bs.SizeOrWait(1, 5))
        -> nothing else: ... max_queue_delay_microseconds=5000
    servers.edited('max_batch_size: 8', bs.SizeOrWait(8, 0, max_batch_units=64))
        -> that Triton has: not SizeOrWait...max_batch_units=64
    """


BENTO = "class A:\n  @bentoml.api(batchable=True, max_batch_size=4)\n  def f(x): ..."
LIT = "ls.LitServer(ls.LitAPI(max_batch_size=8), timeout=9)"


@pytest.mark.parametrize(
    ("text", "what", "words"),
    [
        ("deploy_python_closure(c, 'm', 1, 'x', f, batch_size=8)", bs.SizeOrWait(8, 5), "no wait: 5 ms"),
        (BENTO, bs.SizeOrWait(4, 5), "BentoML has: bentoml has no wait: 5 ms is dropped"),
        (LIT, TRAFFIC.replace(rule=servers.litserve(8)), "LitServe has: Not as requested: timeout, 30 s"),
        ("vllm serve m", bs.Continuous(9, prefix_reuse=True), "vLLM has: not Continuous"),
        ("batchSize: 8\nminWorkers: 1", TRAFFIC.replace(timeout_ms=9), "timeout_ms must be None"),
    ],
)
def test_a_setting_that_its_server_lacks_is_refused(text, what, words):
    with pytest.raises(ValueError, match=words):
        servers.edited(text, what)


def test_a_file_that_cannot_be_edited_is_named(tmp_path):
    path = tmp_path / "config.pbtxt"
    path.write_text("max_batch_size: [")
    with pytest.raises(ValueError, match=r"config\.pbtxt: .*line 1"):
        servers.edit(path, bs.SizeOrWait(8, 5))


def test_a_files_name_tells_a_key_of_two_servers_apart():
    text = "pt2:\n  backend: inductor\n"  # as in a config.pbtxt
    edited = servers.edited(text, bs.PullThenWait(8, 100), "torchserve", None, "model-config.yaml")
    assert edited.text == f"{text}batchSize: 8\n"


# Texts that hold a command with flags, in place of the sign %, and words that an edit must keep.
NAME = '--served-model-name "{{ .Name }}"'
HOLDERS = [
    f"# vllm serve x --port 1\nvllm serve m {NAME} % # --port 2\n",
    f"vllm serve m \\\n  {NAME} \\\n  % > 'a log' 2>&1 &\n",
    "docker run i bash -c 'vllm serve m --host \"$H\" %' && echo 'vllm serve'\n",
    'ARGS=(% --port 2)\nvllm serve m "${ARGS[@]}" --host "a b"\n',
    'A="%"\nB="--port 2 $A"\nvllm serve m $B --host "$HOST"\n',
    "kind: Pod\nspec:\n  containers:\n  - image: vllm/vllm-openai\n    args:\n    - m\n"
    "    - --host='{{ .X }}'\n",
    "kind: Pod\nspec:\n  containers:\n  - image: x\n    env: [{name: X, value: '{{ .Values.x }}'}]\n"
    "    command: [sh, -c, 'vllm serve m --host \"{{ .X }}\" %']\n",
    "services:\n  a:\n    image: vllm/vllm-openai\n    command: >\n      m %\n      --host '{{ .X }}'\n",
    "FROM x\nCMD vllm serve m % \\\n  --host '{{ .X }}'\nEXPOSE 80\n",
    "[Service]\nExecStart=/bin/vllm serve m % --host 'a b'\nRestart=always\n",
]
FLAG = re.compile(r"--(max-num-seqs|max-num-batched-tokens|block-size)(=|\W+)\d+")
KNOWN = st.fixed_dictionaries({}, optional={
    "max_num_seqs": st.integers(1, 99), "max_num_batched_tokens": st.integers(300, 9999),
    "block_size": st.sampled_from([16, 32]),
})  # fmt: skip


def rest_of(text):
    """Return a text without the flags of the edit, and without blanks, quotes and signs between words."""
    return re.sub(r"[\s\\,'\"-]", "", FLAG.sub("", text))


@examples(max_examples=300, deadline=None)
@given(st.sampled_from(HOLDERS), KNOWN, KNOWN, st.sampled_from(" ="))
def test_an_edit_of_any_command_keeps_all_other_words_and_templates(holder, before, after, sign):
    flags = " ".join(f"--{name.replace('_', '-')}{sign}{value}" for name, value in before.items())
    text = holder.replace("%", flags)
    config = servers.parse(text)
    rule = dataclasses.replace(config.rule, **after)
    edited = servers.edited(text, rule).text
    assert servers.parse(edited).rule == rule
    assert rest_of(edited) == rest_of(text)
    assert re.findall(r"\{\{.*?\}\}", edited) == re.findall(r"\{\{.*?\}\}", text)
    assert edited.count("--") <= text.count("--") + len(after)
    assert [edited.count(quote) % 2 for quote in "'\""] == [0, 0]


def test_edits_of_what_public_files_show_change_lines_of_the_command_alone(shared_data):
    seen = 0
    for path in sorted((shared_data / "public_cases").glob("f*/*")):
        try:
            config = servers.read(path)
            knob = "max_num_seqs" if config.server in servers.TOKEN_SERVERS else "max_batch_size"
            rule = dataclasses.replace(config.rule, **{knob: getattr(config.rule, knob) - 1})
            edited = servers.edit(path, rule)
        except ValueError:
            continue
        seen += 1
        assert servers.parse(edited.text, config.server).rule == rule
        changed = changed_lines(path.read_text(), edited.text)
        assert [line[0] for line in changed] in (
            ["-", "+"],
            ["+", "-"],
            ["-", "+", "+"],
            ["+"],
            ["-", "+", "-", "+"],
        )
    assert seen >= 12


def test_a_triton_file_whose_size_is_1_gets_a_batcher_for_more():
    text = 'name: "elm"\nmax_batch_size: 1\nbackend: "python"\n'
    added = text.replace("1", "4") + "dynamic_batching { }\n"
    assert servers.edited(text, bs.SizeOrWait(4, 0)).text == added
