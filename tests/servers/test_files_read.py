"""Servers' own files: what they mean, what of them makes no difference, and what is refused where."""

import math
from contextlib import nullcontext

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from places import DATA as ALL_DATA

import batchsim as bs
from batchsim import servers
from batchsim.servers.registry import ALL

DATA = ALL_DATA / "servers"
FILES = sorted(path for path in DATA.glob("*/*") if path.is_file())


def named(path):
    return f"{path.parent.name}/{path.name}"


# The rule, the servers, the queue limit, the timeout in ms and the sizes padded to.
# fmt: off
MEANT = {
    "batched/model.py": (servers.batched(64, 10), 1, None, None, ()),
    "bentoml/service.py": (servers.bentoml(32, 1000), 1, None, None, ()),
    "clipper/deploy.py": (bs.SizeOrWait(16, 0), 1, None, 50, ()),
    "kserve/inference-service.yaml": (bs.PullThenWait(16, 200), 1, None, None, ()),
    "litserve/server.py": (bs.CompetingWindows(16, 10, 1), 2, None, 10_000, ()),
    "mosec/server.py": (bs.CompetingWindows(32, 5, math.inf), 1, 1024, 3000, ()),
    "ray_serve/model.py": (bs.FrozenBatches(16, 20, 64), 2, None, None, ()),
    "sglang/sglang-serve.sh": (
        servers.sglang(
            max_running_requests=64, max_total_tokens=64_000, chunked_prefill_size=8192,
            schedule_conservativeness=0.8,
        ), 2, 200, None, (),
    ),
    "tei/tei-launch.sh": (
        bs.PrefetchedBatches(64, max_batch_units=8192, units="summed"), 1, None, None, (),
    ),
    "tgi/tgi-launch.sh": (
        servers.tgi(
            max_batch_size=64, max_batch_prefill_tokens=8192, max_batch_total_tokens=64_000,
            waiting_served_ratio=0.5, max_waiting_tokens=10, prefill_chunking=False, attention="paged",
        ), 1, None, None, (),
    ),
    "vllm/vllm-serve.sh": (bs.Continuous(128, 4000, kv_blocks=59_996), 2, None, None, ()),
    "vllm/vllm.yaml": (
        bs.Continuous(64, 8192, chunked=False, kv_blocks=3999, max_model_len=4096), 1, None, None, (),
    ),
    "tensorrt_llm/trtllm-serve.sh": (
        servers.tensorrt_llm(
            max_batch_size=161, max_num_tokens=1160, max_tokens=64_000, enable_chunked_prefill=True
        ), 1, None, None, (),
    ),
    "tensorrt_llm/extra-llm-api-config.yml": (
        bs.Continuous(64, 4096, chunked=False, kv_blocks=500, block_size=32), 4, None, None, (),
    ),
    "tensorrt_llm/config.json": (
        bs.Continuous(64, 4096, chunked=False, block_size=32, reserve="life", max_model_len=2048), 1, None,
        None, (),
    ),
    "textbook/batcher.py": (bs.SizeOrWait(16, 2.5), 1, None, None, ()),
    "tf_serving/batching_parameters.txt": (bs.SizeOrWait(32, 2), 4, 3200, None, (8, 16, 32)),
    "torchserve/config.properties": (bs.PullThenWait(8, 50), 2, 200, None, ()),
    "torchserve/model-config.yaml": (bs.PullThenWait(16, 20), 2, 300, None, ()),
    "triton/config.pbtxt": (servers.triton(32, 5000, [8, 32]), 2, None, None, ()),
}
# fmt: on


TITLES = {f"{name}/{form.file}": form.title for name, server in ALL.items() for form in server.formats}


def test_each_format_of_each_server_has_its_example():
    assert {named(path) for path in FILES} == {*TITLES} == {*MEANT}
    assert [name for name, server in ALL.items() if not server.formats] == ["orca"]  # a paper


@pytest.mark.parametrize("path", FILES, ids=named)
def test_the_name_and_content_of_a_file_tell_the_server_and_what_it_means(path):
    found = servers.read(path)
    assert found.server == path.parent.name
    rule, count, *limits = MEANT[named(path)]
    assert (found.rule, found.servers * found.replicas) == (rule, count)
    if found.server != "triton":  # whose limits are by level
        assert [found.queue_limit, found.timeout_ms, found.pad_to] == limits
    assert found == servers.parse(path.read_text(), found.server)
    assert servers.write(found.server, found, path.name) == path.read_text()
    assert not found.unknown
    parts = [bs.Affine(2, 0.1)]
    if found.server in servers.TOKEN_SERVERS:
        parts = [bs.StepTime(2, 8, 0.1), bs.Tokens(50, 9)]
    workload = bs.Poisson(100)
    if found.server in servers.SIZE_SERVERS:
        workload = workload.with_sizes(bs.Uniform(1, 512))
    shares = pytest.warns(UserWarning, match="share 1 device") if found.devices else nullcontext()
    with shares:
        assert found.scenario(workload, *parts).rule == rule


def test_servers_say_how_they_batch_requests_of_different_sizes():
    sized = bs.Scenario(bs.Poisson(100).with_sizes(bs.Uniform(1, 512)), bs.SizeOrWait(8, 5), bs.Affine(2, 1))
    ragged = 'input [ { name: "ids" allow_ragged_batch: true } ] max_batch_size: 8 dynamic_batching {}'
    for server, plain, other in (
        ("tf_serving", "batch_timeout_micros { value: 9 }", "pad_variable_length_inputs: true"),
        ("triton", "max_batch_size: 8 dynamic_batching {}", ragged),
    ):
        with pytest.warns(UserWarning, match="different sizes|one shape"):
            servers.parse(plain, server).apply(sized)
        found = servers.parse(other, server)
        found.apply(sized)
    command = "text-embeddings-router --model-id m --max-batch-tokens 256 --auto-truncate false"
    for text, action in ((command, "reject"), (command.replace(" false", ""), "truncate")):
        found = servers.parse(text)
        assert found.apply(sized).oversize_action == action
        assert servers.parse(servers.write("tei", found.apply(sized))).apply(sized) == found.apply(sized)


RAY = "@serve.batch(max_batch_size=4096, batch_size_fn=lambda batch: {})\nasync def embed(batch): ..."


@pytest.mark.parametrize(
    ("function", "units"),
    [("sum(map(count, batch))", "summed"), ("len(batch) * max(map(count, batch))", "padded")],
)
def test_a_function_of_ray_serve_makes_its_size_a_limit_in_units(function, units):
    found = servers.parse(RAY.format(function))
    assert found.rule == bs.FrozenBatches(4096, 10, 5, max_batch_units=4096, units=units)
    plain = "@serve.deployment\nclass A:\n  @serve.batch\n  async def embed(self, batch): ..."
    assert servers.parse(servers.edited(plain, found).text).rule == found.rule


def test_the_limits_of_tritons_example_are_those_of_its_default_policy():
    found = servers.read(DATA / "triton" / "config.pbtxt")
    policy = {"max_queue_size": 256, "default_timeout_microseconds": 100_000, "timeout_action": "REJECT"}
    assert policy.items() <= found.settings.items()
    assert found.settings["preferred_batch_size"] == [8, 32]


def test_what_makes_no_difference_is_listed_by_its_place_in_the_file():
    found = servers.read(DATA / "triton" / "config.pbtxt").unused
    assert {"name", "backend", "input", "output", "parameters", "instance_group.kind"} <= found.keys()
    assert found["input"][0]["dims"] == [3, 224, 224]
    assert "max_batch_size" not in found
    service = servers.read(DATA / "kserve" / "inference-service.yaml").unused
    assert service["spec.predictor.model"]["modelFormat"] == {"name": "huggingface"}
    deployment = servers.read(DATA / "ray_serve" / "model.py").unused
    assert deployment == {"ray_actor_options": {"num_gpus": 1}}


def test_replicas_are_read_simulated_and_written():
    deployment = servers.read(DATA / "ray_serve" / "model.py")
    assert (deployment.replicas, deployment.routing) == (2, "two_choices")
    scenario = deployment.scenario(bs.Poisson(200), bs.Affine(5, 1))
    assert (scenario.replicas, scenario.routing) == (2, "two_choices")
    one = (DATA / "ray_serve" / "model.py").read_text().replace("num_replicas=2", "num_replicas=1")
    assert "num_replicas=2" in servers.edited(one, deployment).text
    service = servers.parse(
        (DATA / "kserve" / "inference-service.yaml").read_text().replace("minReplicas: 1", "minReplicas: 3")
    )
    three = service.scenario(bs.Poisson(200), bs.Affine(5, 1))
    assert (three.replicas, three.routing) == (3, "random")
    again = servers.parse(servers.write("kserve", three))
    assert (again.replicas, again.settings["minReplicas"]) == (3, 3)
    elsewhere = three.replace(routing="two_choices")
    assert "router is random, not two_choices" in servers.write("kserve", elsewhere)
    idle = servers.config("kserve", minReplicas=0)
    assert (idle.replicas, idle.unused) == (1, {"minReplicas": 0})
    with pytest.raises(ValueError, match="num_replicas must be at most 1,024, got 2000"):
        servers.config("ray_serve", num_replicas=2000)
    assert "one of 3 replicas" in servers.write("triton", three.replace(rule=bs.SizeOrWait(8, 5)))
    assert deployment.apply(three).replicas == 2
    assert servers.config("triton", max_batch_size=8).apply(three).replicas == 3


@pytest.mark.parametrize(
    ("text", "unknown"),
    [
        (
            "max_batch_size: 8 dynamic_batching { max_queue_delay_microsecond: 5 }",
            {"dynamic_batching.max_queue_delay_microsecond": "max_queue_delay_microseconds"},
        ),
        ("max_batch_size: 8 dynamic_batching {} qqq { a: 1 b { c: [1, 2] } }", {"qqq": ""}),
        (
            "max_batch_size { value: 8 } batch_timeout_micro { value: 5 }",
            {"batch_timeout_micro": "batch_timeout_micros"},
        ),
        ("job_queue_sizes=9\nmodels={}\nqqq=1", {"job_queue_sizes": "job_queue_size", "qqq": ""}),
        ('models={"a": {"1.0": {"maxBatchDelays": 9}}}', {"maxBatchDelays": "maxBatchDelay"}),
        ("batchSize: 8\nmaxBatchDelays: 9\n", {"maxBatchDelays": "maxBatchDelay"}),
        (
            "kind: InferenceService\nspec: {predictor: {batcher: {maxBatchsize: 4}, modle: {}}}",
            {"spec.predictor.batcher.maxBatchsize": "maxBatchSize", "spec.predictor.modle": "model"},
        ),
        ("@serve.batch(max_batch_sizes=8)\nasync def f(x): ...", {"max_batch_sizes": "max_batch_size"}),
        (
            "@serve.deployment(max_concurrent_queries=9)\nclass A:\n  @serve.batch\n  def f(self, x): ...",
            {"max_concurrent_queries": "max_ongoing_requests"},
        ),
        ("@bentoml.api(batchable=True, max_latency=9)", {"max_latency": "max_latency_ms"}),
        ("server.append_worker(Worker, max_batchsize=9)", {"max_batchsize": "max_batch_size"}),
        ("@batched.dynamically(timeout=9)", {"timeout": "timeout_ms"}),
        ("InferenceBatcher(f, max_wait=9)", {"max_wait": "max_wait_ms"}),
    ],
)  # fmt: skip
def test_a_key_that_the_server_does_not_have_is_listed_with_the_nearest_that_it_has(text, unknown):
    found = servers.parse(text)
    assert found.unknown == unknown
    assert all(key in repr(found) for key in unknown)


# What tells a server.


@pytest.mark.parametrize("path", FILES, ids=named)
def test_a_config_of_one_server_read_as_another_says_what_it_is(path):
    title = TITLES[named(path)]
    other = "triton" if path.parent.name != "triton" else "tf_serving"
    with pytest.raises(ValueError, match=f"a config of {other} must be .*, got what looks like {title}"):
        servers.read(path, server=other)


def test_a_config_that_may_be_of_several_servers_is_refused_with_their_names():
    both = "class A(LitAPI): ...\nA(max_batch_size=4)\nserver.append_worker(A, max_batch_size=8)"
    with pytest.raises(ValueError, match="one of mosec or litserve"):
        servers.parse(both)
    assert servers.parse(both, server="litserve").rule.max_batch_size == 4
    assert servers.parse(both, server="mosec").rule.max_batch_size == 8
    with pytest.raises(ValueError, match=r"must be given \(textbook or triton"):
        servers.parse("hello")


def test_the_name_of_a_file_tells_where_its_content_does_not(tmp_path):
    file = tmp_path / "config.pbtxt"
    file.write_text("max_batch_size: 8 name: 'batch_timeout_micros' dynamic_batching {}")
    assert servers.read(file).server == "triton"
    (tmp_path / "x.cfg").write_text(file.read_text())
    with pytest.raises(ValueError, match=r"x.cfg: server must be given .* triton or tf_serving"):
        servers.read(tmp_path / "x.cfg")


def test_a_comment_is_no_sign_of_a_server():
    assert servers.parse("# unlike dynamic_batching\nmodels={}").server == "torchserve"


# What a format means.


def test_without_dynamic_batching_triton_computes_each_request_by_itself():
    found = servers.parse("max_batch_size: 8 name: 'a'")
    assert (found.rule.max_batch_size, found.unused) == (1, {"name": "a", "max_batch_size": 8})
    assert found.notes


def test_the_instances_of_a_group_are_counted_on_each_of_its_gpus_unless_it_is_passive():
    groups = "instance_group [ { count: 2 gpus: [0, 1] }, < kind: KIND_CPU >, { count: 4 passive: true } ]"
    found = servers.parse(f"max_batch_size: 8 dynamic_batching {{}} {groups}")
    assert (found.servers, found.devices) == (5, 3)


@pytest.mark.parametrize(
    ("groups", "instances", "devices"),
    [
        ("{ count: 2 kind: KIND_GPU gpus: [0] }", 2, 1),
        ("{ count: 2 kind: KIND_GPU }", 2, 1),  # on each GPU of a machine that has one
        ("{ count: 2 }", 2, 1),
        ("{ count: 2 gpus: [0, 1] }", 4, 2),
        ("{ count: 1 gpus: [0] }, { count: 1 gpus: [0] }", 2, 1),
        ("{ count: 1 gpus: [0] }, { count: 1 gpus: [1] }", 2, None),
        ("{ gpus: [0, 1] }", 2, None),
        ("{ count: 3 kind: KIND_CPU }", 3, None),
        ("{ count: 1 }", 1, None),
        ("{ count: 3 gpus: [0] }, { count: 1 gpus: [1] }", 4, 2),  # a note says that they are spread evenly
    ],
)
def test_instances_on_one_gpu_share_it(groups, instances, devices):
    found = servers.parse(f"max_batch_size: 8 dynamic_batching {{}} instance_group [ {groups} ]")
    assert (found.servers, found.devices) == (instances, devices)
    assert any("evenly" in note for note in found.notes) == groups.startswith("{ count: 3 gpus")


TWO = "max_batch_size: 4 dynamic_batching {} instance_group [ { count: 2 kind: KIND_GPU gpus: [0] } ]"


def test_how_instances_share_a_gpu_is_a_range_until_it_is_measured():
    config, service = servers.parse(TWO), bs.Table({1: 2.05, 4: 2.51})
    with pytest.warns(
        UserWarning, match=r"1,594/s if they take turns .* 3,187/s if .*measure it, and set contention"
    ):
        scenario = config.scenario(bs.Poisson(1000), service)
    assert (scenario.servers, scenario.devices) == (2, 1)
    # What a scenario says of it is measured, and nothing is to be warned of.
    plain = scenario.replace(servers=1, devices=None)
    sharing = bs.device.sharing(1594, 2067, service, batch_size=4)
    measured = config.apply(plain.replace(sharing))
    assert (measured.devices, measured.host_ms) == (1, sharing.host_ms)
    assert measured.saturation_per_s == pytest.approx(2067, rel=1e-3)
    assert config.apply(plain.replace(servers=2, slowdown={1: 1, 2: 1.5})).devices is None
    assert config.apply(plain.replace(servers=2, devices=2)).devices == 2


def test_what_a_scenario_says_of_devices_is_written_as_gpus():
    scenario = bs.Scenario(bs.Poisson(9), bs.SizeOrWait(8, 0), bs.Affine(1, 0), servers=4)
    for devices in (1, 2, 3, 4, None):
        found = servers.parse(servers.write("triton", scenario.replace(devices=devices)))
        assert (found.servers, found.devices or 4) == (4, devices or 4)


def test_an_api_that_is_not_batchable_batches_nothing():
    text = "@bentoml.api(max_batch_size=8)\ndef f(x): ..."
    config = servers.parse(text)
    assert (config.rule.max_batch_size, config.unused) == (1, {"max_batch_size": 8})
    assert servers.parse(text.replace("(", "(batchable=True, ", 1)).rule.max_batch_size == 8


def test_a_batch_size_that_clipper_learns_is_learned_within_the_applications_objective():
    text = "deploy_python_closure(c, 'a', 1, 'doubles', f, batch_size=-1)"
    app = "\nc.register_application(name='a', input_type='doubles', default_output='0', slo_micros=20000)"
    for each in (text + app, text.replace(", batch_size=-1", "") + app):
        found = servers.parse(each)
        assert (found.rule, found.timeout_ms) == (bs.LearnedSizes(128, 20), 20)
        # No size is tried of which the service time is not known.
        measured = found.scenario(bs.Poisson(100), bs.Table({1: 2, 16: 5}))
        assert measured.rule == bs.LearnedSizes(16, 20)
        assert servers.parse(servers.edited(text + app, measured).text).rule == found.rule


def test_a_zero_in_torchserves_json_is_its_default_and_one_in_yaml_is_none():
    models = 'models={"a": {"1.0": {"batchSize": 8, "maxBatchDelay": 0}}}'
    assert servers.parse(models).rule == bs.PullThenWait(8, 100)
    assert servers.parse("batchSize: 8\nmaxBatchDelay: 0").rule == bs.PullThenWait(8, 0)


def test_kserves_zero_is_its_default():
    text = "kind: InferenceService\nspec: {predictor: {batcher: {maxLatency: 0}}}"
    assert servers.parse(text).rule == bs.PullThenWait(32, 5000)


@pytest.mark.parametrize("timeout", [False, -1])
def test_litserve_may_have_no_timeout(timeout):
    found = servers.parse(f"LitServer(A(max_batch_size=8), timeout={timeout}, devices='auto')")
    assert (found.timeout_ms, found.servers) == (None, 1)
    assert found.notes == ("devices='auto' means every device; batchsim simulates one",)


def test_what_a_file_cannot_say_stands_in_a_comment_of_its_own():
    found = servers.parse(
        "# batchsim: capacity=9\n# batchsim: timeout=50\ns.append_worker(W, max_batch_size=4)"
    )
    assert (found.queue_limit, found.timeout_ms) == (9, 50)


# Several, of which one is meant.


STAGES = "a.append_worker(Cut, num=4)\na.append_worker(Embed, max_batch_size=8)\n"


def test_of_several_stages_the_one_that_batches_is_meant_unless_another_is_named():
    assert servers.parse(STAGES).rule.max_batch_size == 8
    assert servers.parse(STAGES, which="Cut").servers == 4
    assert servers.parse(STAGES, which="1").servers == 4
    with pytest.raises(ValueError, match=r"Embed \(line 2\), Other \(line 3\)"):
        servers.parse(STAGES + "a.append_worker(Other, max_batch_size=4)")
    with pytest.raises(ValueError, match=r"Cut \(line 1\), Embed \(line 2\); got 'Cute'"):
        servers.parse(STAGES, which="Cute")


def test_a_decorator_belongs_to_the_class_that_its_function_is_in():
    text = (
        "@serve.deployment(max_ongoing_requests=99)\nclass A:\n  @serve.batch\n  async def f(self, x): ...\n"
        "@serve.deployment(max_ongoing_requests=9)\nclass B:\n  @serve.batch()\n  async def g(self, x): ...\n"
    )
    assert servers.parse(text, which="f").settings == {"max_ongoing_requests": 99}
    assert servers.parse(text, which="g").settings == {"max_ongoing_requests": 9}


def test_one_of_several_models_must_be_named():
    of_b = '{"1.0": {"batchSize": 3}, "2.0": {"batchSize": 4, "defaultVersion": true}}'
    models = f'{{"a": {{"1.0": {{"batchSize": 2}}}}, "b": {of_b}}}'
    for which, size in {"a": 2, "b": 4, "b/1.0": 3}.items():
        assert servers.parse(f"models={models}", which=which).rule.max_batch_size == size
    for which in (None, "c"):
        with pytest.raises(ValueError, match=r"line 1, column 1: .*: a/1.0, b/1.0, b/2.0"):
            servers.parse(f"models={models}", which=which)


def test_one_of_several_services_must_be_named():
    batcher = "spec: {predictor: {batcher: {maxBatchSize: %d}}}\n"
    text = "---\n".join(
        f"kind: InferenceService\nmetadata: {{name: {name}}}\n" + batcher % size
        for name, size in {"a": 2, "b": 3}.items()
    )
    assert servers.parse(text, which="b").rule.max_batch_size == 3
    for which in (None, "c"):
        with pytest.raises(ValueError, match=f"one of the services a, b, got {which!r}"):
            servers.parse(text, which=which)


def test_python_is_read_and_never_run(tmp_path):
    file = tmp_path / "model.py"
    run = tmp_path / "run"
    file.write_text(
        f"open({str(run)!r}, 'w').close()\nraise SystemExit(3)\nimport nothing_that_is_there\n"
        "@serve.batch(max_batch_size=int.__class__('x'), batch_wait_timeout_s=0.5)\nasync def f(x): ...\n"
    )
    with pytest.raises(ValueError, match=r"line 4, column 14: max_batch_size must be a literal value"):
        servers.read(file)
    file.write_text(file.read_text().replace("int.__class__('x')", "2 * 8"))
    assert servers.read(file).rule == bs.FrozenBatches(16, 500, 5)
    assert not run.exists()


PIECES = [
    "", "{", "}", "[", '"', "'", ":", "=", "\n", "\\", "#", ",", "-1", "0", "1e99", "null", "*k", "\t", "(",
    "\x00", "\ud800", "é", "inf", "9" * 20, "<", ">", "&a ", "!!python/object:os.system ", "%", "- ", "@",
]  # fmt: skip


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(FILES), st.sampled_from(PIECES), st.floats(0, 1), st.sampled_from([0, 1, 5, 30]))
def test_a_damaged_file_is_refused_as_bad_input_or_read_and_written(path, piece, where, missing):
    text = path.read_text()
    place = int(where * len(text))
    text = text[:place] + piece + text[place + missing :]
    try:
        found = servers.parse(text, path.parent.name)
        written = servers.write(found.server, found, path.name)
    except ValueError:
        return
    again = servers.parse(written, found.server)
    assert (again.rule, again.servers, again.queue_limit) == (found.rule, found.servers, found.queue_limit)
