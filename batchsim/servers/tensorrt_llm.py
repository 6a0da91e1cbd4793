"""NVIDIA TensorRT-LLM: in-flight batching, as in `trtllm-serve`."""

import math
from dataclasses import replace
from typing import Any

from batchsim import _check
from batchsim._files import json_of
from batchsim.scenario.rules import Rule, SizeOrWait
from batchsim.scenario.rules.continuous import MOST, WAITS, BatchWait, Continuous
from batchsim.servers import language
from batchsim.servers.formats.command_lines import CommandLine
from batchsim.servers.formats.document import Document, Keys, table
from batchsim.servers.formats.keyed_text import JSON, YAML, parse_json, parse_yaml
from batchsim.servers.server import Format, Server, ServerConfig, Words

NO_EVICT = "GUARANTEED_NO_EVICT"
POLICIES = (NO_EVICT, "MAX_UTILIZATION", "STATIC_BATCH")


def tensorrt_llm(
    *, max_batch_size: int = 2048, max_num_tokens: int = 8192,
    capacity_scheduler_policy: str = NO_EVICT, enable_chunked_prefill: bool = False,
    max_tokens: int | None = None, max_seq_len: int | None = None, tokens_per_block: int = 32,
    free_gpu_memory_fraction: float = 0.9, batch_wait_timeout_iters: int = 0,
    batch_wait_max_tokens_ratio: float = 0, batch_wait_timeout_ms: float = 0,
    disable_overlap_scheduler: bool = False,
    model: str | None = None, gpu: str | float | None = None, tensor_parallel_size: int = 1,
) -> Rule:  # fmt: skip
    """Return the rule of TensorRT-LLM's batch manager (1.0, capacity and micro batch schedulers of 2025-06).

    Running requests go first, then prompts in order of arrival, in the same step, while max_num_tokens lasts.
    GUARANTEED_NO_EVICT lets a request join once memory has room for its longest possible answer.
    MAX_UTILIZATION requires room for its next step only, and pauses the last request if memory runs short.
    STATIC_BATCH waits until no request runs.

    MAX_UTILIZATION is `Continuous(reserve="step")` here. TensorRT-LLM differs in three details: it takes the
    blocks of a whole prompt with its first chunk; it looks two steps ahead if steps overlap; and a paused
    request keeps its place by arrival, which is the head of the queue, since all others came later. For
    STATIC_BATCH, `SizeOrWait` returns all answers of a batch with its last. Not simulated: block reuse,
    chunks rounded to a unit, EQUAL_PROGRESS, and one more token that GUARANTEED_NO_EVICT reserves.

    The batch_wait settings make it `BatchWait`, which only the SimPy engine runs. batch_wait_timeout_iters
    and batch_wait_max_tokens_ratio have an effect only together.

    Memory is what `model` leaves on `gpu`, according to `batchsim.kv_blocks`, times free_gpu_memory_fraction,
    and at most kv_cache_config's max_tokens; without any of these it is unlimited.

    >>> tensorrt_llm(max_batch_size=64, max_tokens=41_392).kv_blocks
    1293
    """
    _check.one_of("TensorRT-LLM's capacity_scheduler_policy", capacity_scheduler_policy, POLICIES)
    size = _check.whole("TensorRT-LLM's max_batch_size", max_batch_size, at_most=MOST)
    waits = BatchWait(
        batch_wait_timeout_iters=batch_wait_timeout_iters, batch_wait_timeout_ms=batch_wait_timeout_ms,
        batch_wait_max_tokens_ratio=batch_wait_max_tokens_ratio, overlap=not disable_overlap_scheduler,
    )  # fmt: skip
    if capacity_scheduler_policy == "STATIC_BATCH":
        if waits.holds or waits.wait_ms:
            raise ValueError(f"TensorRT-LLM's waits must be 0 with STATIC_BATCH, got {waits}")
        return SizeOrWait(size, 0)
    page = _check.whole("TensorRT-LLM's tokens_per_block", tokens_per_block, at_most=MOST)
    tokens = language.maybe_whole("TensorRT-LLM's max_tokens", max_tokens)
    share = _check.real(
        "TensorRT-LLM's free_gpu_memory_fraction", free_gpu_memory_fraction, above=0, at_most=1
    )
    gpus = _check.whole("TensorRT-LLM's tensor_parallel_size", tensor_parallel_size)
    blocks = language.blocks_beside(language.known_unless(tokens, model), gpu, gpus, page, 1.0)
    blocks = None if blocks is None else math.floor(share * blocks)
    if tokens is not None:
        blocks = min(tokens // page, MOST if blocks is None else blocks)
    if blocks is not None and blocks < 1:
        raise ValueError(f"TensorRT-LLM's max_tokens must be at least tokens_per_block, {page}, got {tokens}")
    limits: dict[str, Any] = {
        "max_num_seqs": size,
        "max_num_batched_tokens": _check.whole("TensorRT-LLM's max_num_tokens", max_num_tokens, at_most=MOST),
        "chunked": enable_chunked_prefill, "kv_blocks": blocks, "block_size": page,
        "reserve": "step" if capacity_scheduler_policy == "MAX_UTILIZATION" else "life",
        "max_model_len": language.maybe_whole("TensorRT-LLM's max_seq_len", max_seq_len),
    }  # fmt: skip
    return replace(waits, **limits) if waits.holds or waits.wait_ms else Continuous(**limits)


def config(
    *, enable_attention_dp: bool = False, use_cuda_graph: bool = True,
    batch_sizes: list[int] | None = None, cuda_graph_max_batch_size: int | None = None,
    enable_padding: bool = False, **settings: Any,
) -> ServerConfig:  # fmt: skip
    """Return the meaning of `trtllm-serve` and its options file.

    With `enable_attention_dp`, each of the `tensor_parallel_size` ranks has requests, limits and memory of
    its own (_torch/pyexecutor/scheduler, 1.2): they are replicas. They hold no prompts back, and each waits
    for its own requests here, where the server waits for those of all.

    Steps of decodes are captured for the sizes of `cuda_graph_config`: by default 1 to 32, 64 and 128,
    without padding; with padding 1, 2, 4 and multiples of 8 up to 128. Up to a larger `max_batch_size` of
    it, powers of 2 follow (llmapi/llm_args.py, 1.0). With padding, the largest is at most all seats.
    """
    _check.instance("enable_attention_dp", enable_attention_dp, bool, "True or False")
    rule = tensorrt_llm(**settings | ({"batch_wait_timeout_iters": 0} if enable_attention_dp else {}))
    sizes: Any = batch_sizes
    most = 128 if cuda_graph_max_batch_size is None else cuda_graph_max_batch_size
    most = _check.whole("TensorRT-LLM's cuda_graph_max_batch_size", most, at_most=MOST)
    if sizes is None:
        first = (1, 2, 4, *range(8, 129, 8)) if enable_padding else (*range(1, 33), 64, 128)
        sizes = {size for size in (*first, *(2**power for power in range(8, 31)), most) if size <= most}
    room = rule.largest_batch if enable_padding else None
    graphs = language.captured(
        "TensorRT-LLM's batch_sizes", sizes if use_cuda_graph else None,
        math.inf if room else rule.largest_batch, padding=enable_padding, room=room,
    )  # fmt: skip
    if not enable_attention_dp:
        return ServerConfig("tensorrt_llm", rule, captured=graphs)
    ranks = settings.get("tensor_parallel_size")
    if ranks is None:
        must = "tensor_parallel_size must be given with enable_attention_dp, whose ranks batch for themselves"
        raise ValueError(f"{must}, got none; give it in a comment: # batchsim: tensor_parallel_size=...")
    if isinstance(rule, Continuous) and rule.kv_blocks:
        rule = replace(rule, kv_blocks=max(rule.kv_blocks // ranks, 1))
    return ServerConfig("tensorrt_llm", rule, replicas=ranks, captured=graphs)


def _extras(target: ServerConfig) -> dict[str, Any]:
    rule = target.rule
    assert isinstance(rule, Continuous)
    sizes = language.sizes_of(target)
    return language.without_defaults({
        "max_batch_size": rule.max_num_seqs, "max_num_tokens": rule.max_num_batched_tokens,
        "capacity_scheduler_policy": "MAX_UTILIZATION" if rule.reserve == "step" else NO_EVICT,
        "enable_chunked_prefill": rule.chunked, "tokens_per_block": rule.block_size,
        "max_tokens": None if rule.kv_blocks is None else rule.kv_blocks * rule.block_size,
        "max_seq_len": rule.max_model_len, **{name: getattr(rule, name, 0) for name in WAITS},
        "disable_overlap_scheduler": not getattr(rule, "overlap", True), "batch_sizes": sizes,
        "enable_padding": sizes is not None and target.captured["captured_padding"],
    }, enable_padding=False, capacity_scheduler_policy=NO_EVICT, enable_chunked_prefill=False,
        tokens_per_block=32, **dict.fromkeys(WAITS, 0), disable_overlap_scheduler=False)  # fmt: skip


LINE = CommandLine(
    "tensorrt_llm", "trtllm-serve",
    r"(?:^|[\s/])trtllm-serve(?! (?:disaggregated|mm_embedding_serve))(?: (?:serve|grpc))?(?=\s|$)",
    "model", positional=True, prefixes=False, joined="_",
    short={
        "--tp-size": "--tensor-parallel-size", "--pp-size": "--pipeline-parallel-size",
        "--cp-size": "--context-parallel-size", "--ep-size": "--moe-expert-parallel-size",
        "--cluster-size": "--moe-cluster-parallel-size", "--extra-llm-api-options": "--config",
        "--kv-cache-free-gpu-memory-fraction": "--free-gpu-memory-fraction", "--hf-revision": "--revision",
    },
)  # fmt: skip
OLD = "pytorch_backend_config"  # before 1.0
# The fields of the options file (llmapi/llm_args.py, 1.2), which overwrite the flags.
KEYS = Keys(
    YAML,
    table("keys.csv", "tensorrt_llm"),
    {"cuda_graph_config.max_batch_size": "cuda_graph_max_batch_size"}
    | {f"{OLD}.cuda_graph_padding_enabled": "enable_padding", f"{OLD}.cuda_graph_batch_sizes": "batch_sizes"},
)


def _read_options(document: Document, text: str, which: str | None) -> None:
    """Fill a document with the file of `--config`, also called `--extra_llm_api_options`."""
    root = parse_yaml(text)[0]
    graphs = root.items.get("cuda_graph_config")
    if graphs is not None and graphs.value is None:
        del root.items["cuda_graph_config"]
        document.settings["use_cuda_graph"] = False
    KEYS.read(document, root)


# The fields of an engine's config.json (builder.py, 1.0; with builder_config before 0.8).
PARTS = "build_config build_config.plugin_config builder_config plugin_config pretrained_config"
ENGINE = Keys(
    JSON, dict.fromkeys(["", *PARTS.split(), "pretrained_config.mapping"]),
    {"pretrained_config.mapping.tp_size": "tensor_parallel_size"},
)  # fmt: skip


def _read_engine(document: Document, text: str, which: str | None) -> None:
    """Fill a document with the config.json of an engine's folder, which has the limits it was built for."""
    json_of(text, "an engine's config")
    ENGINE.read(document, parse_json(text))
    document.settings = {name: value for name, value in document.settings.items() if value is not None}
    document.note(
        "an engine has only limits, and others need another build: its server's policies are defaults"
    )


SERVER = Server(
    "tensorrt_llm", "1.0", tensorrt_llm, config, ("enable_block_reuse",),
    title="TensorRT-LLM", modest=("tensor_parallel_size", "free_gpu_memory_fraction", "max_seq_len"),
    caveats=language.CAVEATS,
    graphs=("use_cuda_graph", "batch_sizes", "cuda_graph_max_batch_size", "enable_padding"),
    formats=(
        LINE.format("a command line of TensorRT-LLM", "trtllm-serve.sh", r"\btrtllm-serve\b"),
        Format(
            "an options file of TensorRT-LLM", "extra-llm-api-config.yml", (".yaml", ".yml"),
            rf"^({language.OPTIONS}|enable_attention_dp|disable_overlap_scheduler)\s*:",
            _read_options, "print_iter_log: false\n",  # its default
        ),
        Format(
            "an engine of TensorRT-LLM", "config.json", (".json",), r'"build(er)?_config"\s*:', _read_engine
        ),
    ),
    words=Words("max_batch_size", budget="max_num_tokens"), extras=_extras,
    calm={"capacity_scheduler_policy": NO_EVICT},
)  # fmt: skip
