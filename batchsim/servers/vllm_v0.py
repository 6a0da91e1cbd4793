"""vLLM before V1, whose scheduler many articles still describe."""

from typing import Any

from batchsim import _check
from batchsim.scenario.rules.continuous import MOST, Continuous
from batchsim.servers.formats.command_lines import CommandLine
from batchsim.servers.language import blocks_beside, maybe_whole, without_defaults
from batchsim.servers.server import Server, ServerConfig, Words
from batchsim.servers.vllm import SHORT, STARTS, V0, check_budget, remarks, settings_of

BUDGET = 2048  # the default unless the model's length exceeds it
CHUNKED_FROM = 32_768  # longer models cut their prompts


def vllm_v0(
    *, max_num_seqs: int = 256, max_num_batched_tokens: int | None = None,
    enable_chunked_prefill: bool | None = None, max_model_len: int | None = None, block_size: int = 16,
    num_gpu_blocks_override: int | None = None, model: str | None = None, gpu: str | float | None = None,
    gpu_memory_utilization: float = 0.9, tensor_parallel_size: int = 1,
) -> Continuous:  # fmt: skip
    """Return the rule of vLLM 0.6.6's V0 scheduler.

    Whole prompts go first, in a step of their own, up to the budget; running requests stand still. Only if
    no request can join, a step computes a token for each running one. One block in a hundred stays free when
    a request joins. If blocks run short, the last request returns to the head of the queue.

    The default budget is max_model_len, at least 2,048. Models of more than 32,768 cut their prompts, which
    share a step with next tokens. V0 preempts once no block is free, even if the last ones have room; here
    only if a token finds no block. Not simulated: swapping to the host (off for single answers), priorities,
    and scheduler_delay_factor.

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
    check_budget(tokens, seqs, length, chunked)
    blocks = maybe_whole("vLLM's num_gpu_blocks_override", num_gpu_blocks_override)
    if blocks is None:
        gpus = _check.whole("vLLM's tensor_parallel_size", tensor_parallel_size)
        blocks = blocks_beside(model, gpu, gpus, block_size, gpu_memory_utilization)
    return Continuous(
        seqs, tokens, first="decode" if chunked else "prefill", chunked=chunked, kv_blocks=blocks,
        block_size=_check.whole("vLLM's block_size", block_size, at_most=MOST),
        watermark_blocks=int(0.01 * (blocks or 0)), max_model_len=length,
    )  # fmt: skip


def _extras(target: ServerConfig) -> dict[str, Any]:
    assert isinstance(target.rule, Continuous)
    blocks = {"num_gpu_blocks_override": target.rule.kv_blocks}
    return without_defaults(settings_of(target.rule) | blocks, block_size=16)


LINE = CommandLine("vllm_v0", "VLLM_USE_V1=0 vllm serve", STARTS, "model", positional=True, short=SHORT)
SERVER = Server(
    "vllm_v0", "0.6.6", vllm_v0, ignored=("enable_prefix_caching", "scheduler_delay_factor", "swap_space"),
    title="vLLM V0",
    words=Words("max_num_seqs", budget="max_num_batched_tokens"), extras=_extras, remarks=remarks,
    formats=(LINE.format("a command line of vLLM with its V0 engine", "vllm-v0-serve.sh", V0, STARTS),),
)  # fmt: skip
