"""What a server completes in its file, or overrides: its own defaults, which the file does not show."""

import re
from pathlib import Path

import pytest
from refusals import refusals

import batchsim as bs
from batchsim import servers
from batchsim.servers.registry import ALL

TENSORS = 'input [ { name: "x" dims: [ 4 ] } ] output [ { name: "y" dims: [ 4 ] } ]'
CPU = "max_batch_size: 8 dynamic_batching {} instance_group [ { kind: KIND_CPU %s } ] backend: '%s'"
TEI = "docker run ghcr.io/huggingface/text-embeddings-inference:cpu-1.9 --model-id m"
TGI = "docker run ghcr.io/huggingface/text-generation-inference"
MODELS = '{"m": {"1.0": {"defaultVersion": true, "minWorkers": 3, "batchSize": 8, "maxBatchDelay": 50}}}'
SNAPSHOT = f'model_snapshot={{"name": "x.cfg", "modelCount": 1, \\\n  "created": 1, "models": {MODELS}}}'
RAY = (
    "@serve.deployment(num_replicas=2)\nclass Model:\n"
    "  @serve.batch(max_batch_size=8)\n  async def f(self, x): ...\n"
)
KSERVE = (
    "kind: InferenceService\nspec:\n  {}:\n    minReplicas: 3\n    batcher: {{maxBatchSize: 8}}\n  {}: {{}}\n"
)
TFS = (
    "max_batch_size { value: 32 } enable_large_batch_splitting { value: %s } "
    "max_execution_batch_size { value: 8 } num_batch_threads { value: 1 }"
)
SGLANG = (
    "sglang serve --model-path m --tp 8 --dp 8 --chunked-prefill-size 4096 --max-running-requests 512 {}"
    "--max-total-tokens 8000"
)
BENTO = (
    "@bentoml.service(workers={})\nclass A:\n"
    "  @bentoml.api(batchable=True, max_batch_size={})\n  def f(x): ..."
)


@pytest.mark.parametrize(
    ("text", "rule", "count", "noted"),
    [
        # Triton's backends that switch dynamic batching on.
        (f"backend: 'tensorrt' max_batch_size: 8 {TENSORS}", bs.SizeOrWait(8, 0), 1, "dynamic_batching on"),
        ("platform: 'tensorrt_plan' max_batch_size: 8", bs.SizeOrWait(8, 0), 1, "dynamic_batching on"),
        ("platform: 'onnxruntime_onnx' max_batch_size: 8", bs.SizeOrWait(8, 0), 1, "dynamic_batching on"),
        ("backend: 'tensorflow'", bs.SizeOrWait(4, 0), 1, "max_batch_size is left out: 4"),
        (f"backend: 'onnxruntime' max_batch_size: 8 {TENSORS}", bs.SizeOrWait(1, 0), 1, "computed alone"),
        ("backend: 'python' max_batch_size: 8", bs.SizeOrWait(1, 0), 1, "computed alone"),
        # Its instances on CPUs.
        (CPU % ("", "onnxruntime"), bs.SizeOrWait(8, 0), 2, ""),
        (CPU % ("", "python"), bs.SizeOrWait(8, 0), 1, ""),
        (CPU % ("count: 0", "tensorflow"), bs.SizeOrWait(8, 0), 2, ""),
        (CPU % ("count: 3", "onnxruntime"), bs.SizeOrWait(8, 0), 3, ""),
        # TorchServe's workers.
        (
            "default_workers_per_model=4\nmodels={'m': {'1.0': {'batchSize': 8}}}".replace("'", '"'),
            bs.PullThenWait(8, 100), 4, "",
        ),
        (
            "default_workers_per_model=0\nmodels={'m': {'1.0': {'batchSize': 8}}}".replace("'", '"'),
            bs.PullThenWait(8, 100), 1, "minWorkers is left out",
        ),
        ("batchSize: 8\n", bs.PullThenWait(8, 100), 1, "minWorkers is left out"),
        # BentoML's processes, and a size with which it stops.
        (BENTO.format(4, 32), servers.bentoml(32), 4, ""),
        (BENTO.format(1, 1), servers.bentoml(1), 1, "stops at its first batch"),
        (f"{SNAPSHOT}\nmodels={{}}", bs.PullThenWait(8, 50), 3, ""),
        (f"models={MODELS.replace('8', '2')}\n{SNAPSHOT}", bs.PullThenWait(8, 50), 3, ""),
        (BENTO.format("'cpu_count'", 4), servers.bentoml(4), 1, "workers is 'cpu_count': batchsim starts"),
        # Ray Serve's options of a deployment that is bound.
        (RAY, bs.FrozenBatches(8, 10, 5), 2, ""),
        (RAY + "app = Model.options(num_replicas=4, max_ongoing_requests=32).bind(1)\n",
         bs.FrozenBatches(8, 10, 32), 4, ""),
        (RAY + "serve.run(Model.options(num_replicas='auto').bind())\n", bs.FrozenBatches(8, 10, 5), 1,
         "num_replicas is 'auto'"),
        (RAY + "Model.bind(Other.options(num_replicas=4).bind())\n", bs.FrozenBatches(8, 10, 5), 2, ""),
        # KServe's batcher on a transformer.
        (KSERVE.format("transformer", "predictor"), bs.PullThenWait(8, 5000), 3, ""),
        # TensorFlow Serving has no largest size.
        ("max_batch_size { value: 9999999 } num_batch_threads { value: 1 }", bs.SizeOrWait(65_536, 0), 1,
         "max_batch_size is 9,999,999, which has no limit there; here it is 65,536"),
        # With its splitting, a batch has another limit.
        (TFS % "true", bs.SizeOrWait(8, 0), 1, ""),
        (TFS % "false", bs.SizeOrWait(32, 0), 1, ""),
        # SGLang divides by its engines, if these share the attention.
        (SGLANG.format(""), servers.sglang(
            max_running_requests=512, chunked_prefill_size=4096, max_total_tokens=8000,
        ), 8, ""),
        (SGLANG.format("--enable-dp-attention "), servers.sglang(
            max_running_requests=64, chunked_prefill_size=512, max_total_tokens=8000,
            schedule_conservativeness=0.3,
        ), 8, ""),
        # TensorRT-LLM's ranks, if these share the attention, and the file that overwrites its flags.
        ("trtllm-serve m --max_batch_size 4 --tp_size 2", servers.tensorrt_llm(max_batch_size=4), 1, ""),
        ("trtllm-serve m --max_batch_size 4 --tp_size 2 --enable_attention_dp --kv_cache_dtype fp8",
         servers.tensorrt_llm(max_batch_size=4), 2, ""),
        (
            "max_batch_size: 4\nkv_cache_config: {max_tokens: 6400}\nenable_attention_dp: true\n"
            "tensor_parallel_size: 2\n", servers.tensorrt_llm(max_batch_size=4, max_tokens=3200), 2, "",
        ),
        # vLLM on a CPU.
        ("VLLM_CPU_KVCACHE_SPACE=40 vllm serve m", servers.vllm(max_num_seqs=128), 1, "on a CPU"),
        ("docker run -e VLLM_CPU_KVCACHE_SPACE=40 vllm/vllm-openai --max-num-seqs 9",
         servers.vllm(max_num_seqs=9), 1, "on a CPU"),
        ("docker run vllm/vllm-openai-cpu:v1 --max-num-batched-tokens 64 --model m",
         servers.vllm(max_num_seqs=64, max_num_batched_tokens=64), 1, "on a CPU"),
        ("kind: Pod\ncontainers:\n- image: $(vllm-cpu-x)\n  command: [vllm, serve, m]\n  args: [-tp, '3']\n",
         servers.vllm(max_num_seqs=384, max_num_batched_tokens=6144), 1, "on a CPU"),
        ("VLLM_CPU_OFFLOAD_GB=4 vllm serve org/vllm-cpu", servers.vllm(), 1, ""),
        # Images of Text Generation Inference before prefill_chunking.
        (f"{TGI}:2.2.0 --model-id m", servers.tgi(prefill_chunking=False), 1, "of TGI 2, the"),
        (f"{TGI}-cu121.2-2.x:latest", servers.tgi(prefill_chunking=False), 1, "of TGI 2, the"),
        (f"{TGI}:3.3.6-rocm --model-id m", servers.tgi(), 1, ""),
        (f"{TGI}:latest --model-id m", servers.tgi(), 1, ""),
        # The CPU images of text-embeddings-inference.
        (TEI, servers.tei(max_batch_requests=8, padded_model=True), 1, "at most 8"),
        (f"{TEI} --max-batch-requests 2", servers.tei(16_384, 8, padded_model=True), 1, "8, not 2"),
        (
            "docker run gcr.io/x/huggingface-text-embeddings-inference-cpu.1-4:latest --model-id m",
            servers.tei(max_batch_requests=8, padded_model=True), 1, "at most 8",
        ),
        (
            "FROM rust\nRUN cargo build -F candle -F mkl\nCMD [text-embeddings-router, --port, '80']\n",
            servers.tei(max_batch_requests=8, padded_model=True), 1, "at most 8",
        ),
        (TEI.replace("cpu-", ""), servers.tei(), 1, ""),
        (TEI.replace("cpu-", "cpu-ipex-"), servers.tei(), 1, ""),
        (
            f"kind: Pod\nimages: [x/{TEI.split('/')[-1].split()[0]}]\ncontainers:\n- {{name: a, "
            f"image: {TEI.split()[2].replace('cpu-', '')}, args: [--model-id, m]}}\n", servers.tei(), 1, "",
        ),
    ],
)  # fmt: skip
def test_what_a_server_completes_counts(text, rule, count, noted):
    found = servers.parse(text)
    assert (found.rule, found.servers * found.replicas) == (rule, count)
    notes = [note for note in found.notes if not re.search("evenly|unlimited|on each GPU", note)]
    assert [noted in note for note in notes] == [True] * bool(noted)


@refusals
def test_what_batches_in_another_way_is_refused():
    r"""
    servers.parse("backend: 'vllm' max_batch_size: 64 dynamic_batching {}")
        -> line 1, column 1: ... got vllm, which batches
    servers.parse('kv_cache_config: {}\nenable_attention_dp: true\n')
        -> tensor_parallel_size must be given with enable_attention_dp, ... # batchsim: tensor_parallel
    servers.parse('trtllm-serve disaggregated -c x')
        -> must have one command trtllm-serve, got none; read the script
    servers.parse('batchSize: 8\ncontinuousBatching: true')
        -> line 2, column 1: continuousBatching must be false
    servers.parse('models={"m": {"1": {"batchSize": 8, "sequenceBatching": true}}}')
        -> line 1, column 37: sequenceBatching must be false
    """


@pytest.mark.parametrize(
    ("text", "note"),
    [
        (
            'vllm serve m \\\n  --speculative-config \'{"model": "d"}\'',
            "line 2: speculative_config is not simulated: a step gives each request one token",
        ),
        (
            "vllm serve m -pp 2",
            "line 1: pipeline_parallel_size is not simulated: one batch computes at a time",
        ),
        (
            "sglang serve --model-path m --disaggregation-mode prefill",
            "line 1: disaggregation_mode is not simulated: each server computes its prompts itself",
        ),
        (
            "sglang serve --model-path m --schedule-policy lpm",
            "line 1: schedule_policy is not simulated: requests are served in order of arrival",
        ),
        (
            RAY + "Model.options(autoscaling_config={'max_replicas': 9}, max_queued_requests=-1).bind()",
            "line 5: autoscaling_config is not simulated: the number of replicas stays",
        ),
        (
            RAY + "  def reconfigure(self, c):\n    self.f.set_max_batch_size(c['size'])\n",
            "line 6: self.f.set_max_batch_size is not simulated: the settings stay as they begin",
        ),
        (
            "trtllm-serve m --config x.yaml",
            "x.yaml is not read, and may set more",
        ),
        ("text-generation-launcher --model-id m --speculate 2", "line 1: speculate is not simulated"),
        (
            "max_batch_size: 4 dynamic_batching {}\nmodel_transaction_policy { decoupled: true }",
            "line 2: model_transaction_policy.decoupled is not simulated: each request has one answer",
        ),
        ("batchSize: 2\nmicro_batching: {micro_batch_size: 2}", "line 2: micro_batching is not simulated"),
        (
            '@bentoml.service(traffic={"max_concurrency": 4})\nclass A:\n'
            "  @bentoml.api(batchable=True)\n  def f(x): ...",
            "max_concurrency of traffic is not simulated",
        ),
        (
            "kind: InferenceService\nspec:\n  predictor:\n    containerConcurrency: 4\n    batcher: {}",
            "line 4: spec.predictor.containerConcurrency is not simulated",
        ),
    ],
)
def test_what_would_change_the_numbers_and_is_not_simulated_is_noted_with_its_line(text, note):
    (found,) = (each for each in servers.parse(text).notes if each.startswith(note))
    assert note in found


@pytest.mark.parametrize(
    "text",
    [
        "vllm serve m -pp 1 --scheduling-policy fcfs",
        "sglang serve --model-path m --schedule-policy fcfs --pp-size 1",
        "max_batch_size: 4 dynamic_batching {} model_transaction_policy { decoupled: false }",
        '@bentoml.service(traffic={"timeout": 4})\nclass A:\n  @bentoml.api(batchable=True)\n  def f(x): ...',
    ],
)
def test_a_value_that_switches_nothing_on_is_not_noted(text):
    assert not any("simulated" in note for note in servers.parse(text).notes)


def test_engines_that_share_the_attention_share_the_memory_of_the_cards():
    text = "sglang serve --model-path llama-3.1-8b --tp 8 --dp 8 %s\n# batchsim: gpu='h100'"
    alone, shared = (servers.parse(text % each).rule.kv_blocks for each in ("", "--enable-dp-attention"))
    assert shared == alone // 8
    capped = servers.parse(text % "--enable-dp-attention --max-total-tokens 1000").rule
    assert capped.kv_blocks == 1000


def test_the_documentation_has_a_row_for_each_server_and_its_version():
    text = (Path(__file__).parents[2] / "docs" / "servers.md").read_text()
    section = text.partition("A server completes its file")[2].partition("\n\nIn a shell")[0]
    rows = re.findall(r"^\| (.+?) \|(?: .+? \|){3}$", section, re.MULTILINE)
    own = [f"{each.title}, {each.version}" for name, each in ALL.items() if name != "textbook"]
    assert sorted(rows) == sorted(["server, version", *own])


@pytest.mark.parametrize(
    ("groups", "noted"),
    [
        ("", True), ("instance_group { count: 2 }", True), ("instance_group { kind: KIND_GPU }", True),
        ("instance_group [{ kind: KIND_CPU }, { kind: KIND_GPU }]", True),
        ("instance_group { gpus: [0, 1] }", False), ("instance_group { kind: KIND_CPU }", False),
        ("instance_group { kind: KIND_MODEL }", False),
    ],
)  # fmt: skip
def test_instances_on_each_gpu_of_the_machine_are_noted(groups, noted):
    found = servers.parse(f"max_batch_size: 8 dynamic_batching {{}} {groups}")
    assert any("each GPU of the machine" in note for note in found.notes) == noted
