"""NVIDIA TensorRT-LLM: in-flight batching, as in `trtllm-serve`."""

import math
from typing import Any

from batchsim import _check
from batchsim.scenario.rules import Rule, SizeOrWait
from batchsim.scenario.rules.continuous import MOST, Continuous
from batchsim.servers.language import blocks_beside, known_unless, maybe_whole, without_defaults
from batchsim.servers.server import Server, ServerConfig, Words

NO_EVICT = "GUARANTEED_NO_EVICT"
POLICIES = (NO_EVICT, "MAX_UTILIZATION", "STATIC_BATCH")


def tensorrt_llm(
    *, max_batch_size: int = 2048, max_num_tokens: int = 8192,
    capacity_scheduler_policy: str = NO_EVICT, enable_chunked_prefill: bool = False,
    max_tokens: int | None = None, max_seq_len: int | None = None, tokens_per_block: int = 32,
    free_gpu_memory_fraction: float = 0.9,
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

    Memory is what `model` leaves on `gpu`, according to `batchsim.kv_blocks`, times free_gpu_memory_fraction,
    and at most kv_cache_config's max_tokens; without any of these it is unlimited.

    >>> tensorrt_llm(max_batch_size=64, max_tokens=41_392).kv_blocks
    1293
    """
    _check.one_of("TensorRT-LLM's capacity_scheduler_policy", capacity_scheduler_policy, POLICIES)
    size = _check.whole("TensorRT-LLM's max_batch_size", max_batch_size, at_most=MOST)
    if capacity_scheduler_policy == "STATIC_BATCH":
        return SizeOrWait(size, 0)
    page = _check.whole("TensorRT-LLM's tokens_per_block", tokens_per_block, at_most=MOST)
    tokens = maybe_whole("TensorRT-LLM's max_tokens", max_tokens)
    share = _check.real(
        "TensorRT-LLM's free_gpu_memory_fraction", free_gpu_memory_fraction, above=0, at_most=1
    )
    gpus = _check.whole("TensorRT-LLM's tensor_parallel_size", tensor_parallel_size)
    blocks = blocks_beside(known_unless(tokens, model), gpu, gpus, page, 1.0)
    blocks = None if blocks is None else math.floor(share * blocks)
    if tokens is not None:
        blocks = min(tokens // page, MOST if blocks is None else blocks)
    if blocks is not None and blocks < 1:
        raise ValueError(f"TensorRT-LLM's max_tokens must be at least tokens_per_block, {page}, got {tokens}")
    return Continuous(
        size, _check.whole("TensorRT-LLM's max_num_tokens", max_num_tokens, at_most=MOST),
        chunked=enable_chunked_prefill, kv_blocks=blocks, block_size=page,
        reserve="step" if capacity_scheduler_policy == "MAX_UTILIZATION" else "life",
        max_model_len=maybe_whole("TensorRT-LLM's max_seq_len", max_seq_len),
    )  # fmt: skip


def _extras(target: ServerConfig) -> dict[str, Any]:
    rule = target.rule
    assert isinstance(rule, Continuous)
    return without_defaults({
        "max_batch_size": rule.max_num_seqs, "max_num_tokens": rule.max_num_batched_tokens,
        "capacity_scheduler_policy": "MAX_UTILIZATION" if rule.reserve == "step" else NO_EVICT,
        "enable_chunked_prefill": rule.chunked, "tokens_per_block": rule.block_size,
        "max_tokens": None if rule.kv_blocks is None else rule.kv_blocks * rule.block_size,
        "max_seq_len": rule.max_model_len,
    }, capacity_scheduler_policy=NO_EVICT, enable_chunked_prefill=False, tokens_per_block=32)  # fmt: skip


SERVER = Server(
    "tensorrt_llm", "1.0", tensorrt_llm, ignored=("enable_block_reuse",),
    title="TensorRT-LLM",
    words=Words("max_batch_size", budget="max_num_tokens"), extras=_extras,
    calm={"capacity_scheduler_policy": NO_EVICT},
)  # fmt: skip
