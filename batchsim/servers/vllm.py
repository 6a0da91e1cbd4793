"""vLLM: `vllm serve`, its scheduler since V1."""

from typing import Any

from batchsim import _check
from batchsim.scenario.rules.continuous import MOST, Continuous
from batchsim.servers.language import NO_MEMORY, blocks_beside, card_of, maybe_whole
from batchsim.servers.server import Server, ServerConfig, Words

LARGE_GIB = 70  # from this memory on a card has the larger defaults, unless it is an A100


def defaults(gpu: Any = None, performance_mode: str = "balanced") -> tuple[int, int]:
    """Return the max_num_batched_tokens and the max_num_seqs of `vllm serve` on a card; None: a small one.

    >>> defaults("rtx-4090"), defaults("a100-80gb"), defaults("h100")
    ((2048, 256), (2048, 256), (8192, 1024))
    """
    card = card_of(gpu)
    large = card is not None and card.memory_gib >= LARGE_GIB and not card.name.startswith("a100")
    _check.one_of("vLLM's performance_mode", performance_mode, ("balanced", "interactivity", "throughput"))
    tokens, seqs = (8192, 1024) if large else (2048, 256)
    factor = 2 if performance_mode == "throughput" else 1
    return factor * tokens, factor * seqs


def vllm(
    *, max_num_seqs: int | None = None, max_num_batched_tokens: int | None = None,
    enable_chunked_prefill: bool = True, long_prefill_token_threshold: int = 0,
    max_model_len: int | str | None = None, block_size: int = 16, num_gpu_blocks_override: int | None = None,
    performance_mode: str = "balanced", model: str | None = None, gpu: str | float | None = None,
    gpu_memory_utilization: float = 0.9, tensor_parallel_size: int = 1,
) -> Continuous:  # fmt: skip
    """Return the rule of vLLM 0.19's V1 scheduler.

    A step goes through those that run in order of admission, prompts and decodes alike, and gives each its
    tokens while the budget lasts; then the next in line join, each if its whole known length has free blocks.
    Where blocks are short, the last that joined goes back to the head of the line and computes all again.

    `gpu`, a name or GiB, is the card that it runs on. The two limits are by default those of `vllm serve` on
    it: 2,048 tokens and 256 requests; 8,192 and 1,024 from 70 GiB on, except on an A100. One of the blocks
    is a placeholder. Without num_gpu_blocks_override there are as many as `model` leaves, by
    `batchsim.kv_blocks`; where model or gpu are not said, as many as it takes.

    Left out: prefix caching, also of a preempted request's own blocks (on the measured run 3.7 points of the
    answer's time; `scenario.replace(prefix_reuse=True)` adds these); async scheduling (there 0.5 %);
    priorities.

    >>> vllm(max_num_seqs=64, num_gpu_blocks_override=2588).kv_blocks
    2587
    >>> vllm(gpu="h100").max_num_seqs
    1024
    """
    tokens = maybe_whole("vLLM's max_num_batched_tokens", max_num_batched_tokens)
    seqs = maybe_whole("vLLM's max_num_seqs", max_num_seqs)
    fits = max_model_len in ("auto", -1)  # as long as memory has room for
    length = None if fits else maybe_whole("vLLM's max_model_len", max_model_len)
    _check.instance("vLLM's enable_chunked_prefill", enable_chunked_prefill, bool, "True or False")
    usual_tokens, usual_seqs = defaults(gpu, performance_mode)
    most = usual_seqs if seqs is None else seqs
    if tokens is None:
        tokens = usual_tokens
        if length is not None:
            tokens = max(tokens, 0 if enable_chunked_prefill else length)
            tokens = min(tokens, most * length)
    seqs = min(most, tokens) if seqs is None else seqs
    if tokens < seqs:
        rule = f"vLLM's max_num_batched_tokens must be at least max_num_seqs, {seqs}"
        raise ValueError(f"{rule}, got {tokens}")
    if length is not None and tokens < length and not enable_chunked_prefill:
        rule = (
            f"vLLM's max_num_batched_tokens must be at least max_model_len, {length}, without chunked prefill"
        )
        raise ValueError(f"{rule}, got {tokens}")
    blocks = maybe_whole("vLLM's num_gpu_blocks_override", num_gpu_blocks_override, at_least=2)
    if blocks is None:
        gpus = _check.whole("vLLM's tensor_parallel_size", tensor_parallel_size)
        blocks = blocks_beside(model, gpu, gpus, block_size, gpu_memory_utilization)
    return Continuous(
        seqs, tokens, chunked=enable_chunked_prefill, kv_blocks=None if blocks is None else blocks - 1,
        block_size=_check.whole("vLLM's block_size", block_size, at_most=MOST),
        long_prefill_token_threshold=_check.whole(
            "vLLM's long_prefill_token_threshold", long_prefill_token_threshold, at_least=0, at_most=MOST
        ),
        max_model_len=length,
    )  # fmt: skip


def config(*, data_parallel_size: int = 1, **settings: Any) -> ServerConfig:
    """Return what `vllm serve` means: `data_parallel_size` engines, which share one line here.

    vLLM's have a line each, and a new request goes to the one with the fewest.
    """
    rule = vllm(**settings)
    engines = _check.whole("vLLM's data_parallel_size", data_parallel_size, at_most=65_536)
    return ServerConfig("vllm", rule, engines, notes=() if rule.kv_blocks else (NO_MEMORY,))


SERVER = Server(
    "vllm", "0.19.0", vllm, config,
    ("async_scheduling", "enable_prefix_caching", "scheduling_policy"),
    words=Words("max_num_seqs", servers="data_parallel_size"),
)  # fmt: skip
