"""Text Generation Inference (TGI): `text-generation-launcher`."""

from typing import Any

from batchsim import _check
from batchsim.scenario.rules.continuous import MOST, WaitingServedRatio
from batchsim.servers.language import NO_MEMORY, blocks_beside, maybe_whole
from batchsim.servers.server import Server, ServerConfig, Words

PAGES = {"flashinfer": 1, "flashdecoding": 256, "paged": 16}  # tokens in a block, by kernel


def tgi(
    *, max_batch_size: int | None = None, max_batch_prefill_tokens: int = 4096,
    max_batch_total_tokens: int | None = None, max_total_tokens: int | None = None,
    waiting_served_ratio: float = 0.3,
    max_waiting_tokens: int = 20, prefill_chunking: bool = True, attention: str = "flashinfer",
    model_id: str | None = None, gpu: str | float | None = None, num_shard: int = 1,
) -> WaitingServedRatio:  # fmt: skip
    """Return the rule of TGI 3.3.6's back end v3; the SimPy engine alone has it.

    Who joins has memory for all that it may say, and nobody is preempted. With prefill_chunking, prompts go
    beside everyone's next token, the last of them cut to max_batch_prefill_tokens, and the two settings
    of waiting have no effect, and max_batch_size hardly any. Without, whole prompts go alone, once as many
    wait as waiting_served_ratio says for each that runs, or max_waiting_tokens steps are over.

    prefill_chunking and `attention` are variables of its environment, and depend on what the kernels can do;
    attention says how many tokens are in a block. max_batch_prefill_tokens depends on the card and the model:
    4,096 where these are not known to it. Without max_batch_total_tokens there is the memory that `model_id`
    leaves on `gpu`, by `batchsim.kv_blocks`; where model or gpu are not said, as much as it takes.

    Left out: prefix caching, and max_concurrent_requests (128), which counts those who run, too.

    >>> tgi(prefill_chunking=False, attention="paged", max_batch_total_tokens=41_400).kv_blocks
    2586
    """
    _check.one_of("TGI's attention", attention, PAGES)
    page = PAGES[attention]
    tokens = maybe_whole("TGI's max_batch_total_tokens", max_batch_total_tokens)
    if tokens is None:
        gpus = _check.whole("TGI's num_shard", num_shard)
        blocks = blocks_beside(model_id, gpu, gpus, page, 1.0)
    else:
        blocks = tokens // page
    if blocks is not None:
        if blocks < 2:
            raise ValueError(f"TGI's max_batch_total_tokens must be at least {2 * page}, got {tokens}")
        blocks -= 1  # one is a placeholder
    size = maybe_whole("TGI's max_batch_size", max_batch_size)
    return WaitingServedRatio(
        MOST if size is None else size,
        _check.whole("TGI's max_batch_prefill_tokens", max_batch_prefill_tokens, at_most=MOST),
        chunked=prefill_chunking, kv_blocks=blocks, block_size=page,
        waiting_served_ratio=_check.real("TGI's waiting_served_ratio", waiting_served_ratio, at_least=0),
        max_waiting_tokens=_check.whole("TGI's max_waiting_tokens", max_waiting_tokens, at_least=0),
        max_model_len=maybe_whole("TGI's max_total_tokens", max_total_tokens),
    )  # fmt: skip


def config(**settings: Any) -> ServerConfig:
    """Return what the launcher's arguments mean."""
    rule = tgi(**settings)
    return ServerConfig("tgi", rule, notes=() if rule.kv_blocks else (NO_MEMORY,))


SERVER = Server(
    "tgi", "3.3.6", tgi, config, ("max_concurrent_requests", "max_input_tokens"),
    words=Words("max_batch_size"),
)  # fmt: skip
