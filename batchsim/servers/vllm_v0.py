"""vLLM before V1, whose scheduler many articles still describe."""

from typing import Any

from batchsim import _check
from batchsim.scenario.rules.continuous import MOST, Continuous
from batchsim.servers.language import NO_MEMORY, blocks_beside, maybe_whole
from batchsim.servers.server import Server, ServerConfig, Words

BUDGET = 2048  # unless the model's length is above it
CHUNKED_FROM = 32_768  # longer models have their prompts cut


def vllm_v0(
    *, max_num_seqs: int = 256, max_num_batched_tokens: int | None = None,
    enable_chunked_prefill: bool | None = None, max_model_len: int | None = None, block_size: int = 16,
    num_gpu_blocks_override: int | None = None, model: str | None = None, gpu: str | float | None = None,
    gpu_memory_utilization: float = 0.9, tensor_parallel_size: int = 1,
) -> Continuous:  # fmt: skip
    """Return the rule of vLLM 0.6.6's V0 scheduler.

    Whole prompts go first, alone in a step, as many as the budget holds; those that run stand still. Only
    where nobody can join is there a step of a token for each. One block in a hundred is kept free when
    someone joins. Where blocks are short, the last goes back to the head of the line.

    The budget is by default max_model_len, 2,048 at least; models of more than 32,768 have their prompts cut,
    beside the next tokens. V0 preempts once no block is free, even if the last ones have room left: here only
    when a token finds none. Left out: swapping to the host (off for single answers), priorities, and
    scheduler_delay_factor.

    >>> vllm_v0(num_gpu_blocks_override=2588).watermark_blocks
    25
    """
    seqs = _check.whole("vLLM's max_num_seqs", max_num_seqs, at_most=MOST)
    length = maybe_whole("vLLM's max_model_len", max_model_len)
    tokens = maybe_whole("vLLM's max_num_batched_tokens", max_num_batched_tokens)
    _check.instance(
        "vLLM's enable_chunked_prefill", enable_chunked_prefill, (bool, type(None)), "True or False"
    )
    chunked = (length or 0) > CHUNKED_FROM if enable_chunked_prefill is None else enable_chunked_prefill
    if tokens is None:
        tokens = BUDGET if chunked else max(length or 0, BUDGET)
    if tokens < seqs:
        rule = f"vLLM's max_num_batched_tokens must be at least max_num_seqs, {seqs}"
        raise ValueError(f"{rule}, got {tokens}")
    if not chunked and tokens < (length or 0):
        rule = (
            f"vLLM's max_num_batched_tokens must be at least max_model_len, {length}, without chunked prefill"
        )
        raise ValueError(f"{rule}, got {tokens}")
    blocks = maybe_whole("vLLM's num_gpu_blocks_override", num_gpu_blocks_override)
    if blocks is None:
        gpus = _check.whole("vLLM's tensor_parallel_size", tensor_parallel_size)
        blocks = blocks_beside(model, gpu, gpus, block_size, gpu_memory_utilization)
    return Continuous(
        seqs, tokens, first="decode" if chunked else "prefill", chunked=chunked, kv_blocks=blocks,
        block_size=_check.whole("vLLM's block_size", block_size, at_most=MOST),
        watermark_blocks=int(0.01 * (blocks or 0)), max_model_len=length,
    )  # fmt: skip


def config(**settings: Any) -> ServerConfig:
    """Return what the server of vLLM 0.6.6 means."""
    rule = vllm_v0(**settings)
    return ServerConfig("vllm_v0", rule, notes=() if rule.kv_blocks else (NO_MEMORY,))


SERVER = Server(
    "vllm_v0", "0.6.6", vllm_v0, config,
    ("enable_prefix_caching", "scheduler_delay_factor", "swap_space"), words=Words("max_num_seqs"),
)  # fmt: skip
