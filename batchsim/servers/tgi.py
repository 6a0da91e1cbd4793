"""Text Generation Inference (TGI): `text-generation-launcher`."""

import re
from typing import Any

from batchsim import _check
from batchsim.scenario.rules.continuous import MOST, Continuous, WaitingServedRatio
from batchsim.servers.formats.command_lines import CommandLine, starts
from batchsim.servers.formats.document import Document
from batchsim.servers.language import CAVEATS, blocks_beside, maybe_whole, without_defaults
from batchsim.servers.server import Server, ServerConfig, Words

PAGES = {"flashinfer": 1, "flashdecoding": 256, "paged": 16}  # tokens in a block, by kernel


def tgi(
    *, max_batch_size: int | None = None, max_batch_prefill_tokens: int = 4096,
    max_batch_total_tokens: int | None = None, max_total_tokens: int | None = None,
    waiting_served_ratio: float = 0.3,
    max_waiting_tokens: int = 20, prefill_chunking: bool = True, attention: str = "flashinfer",
    model_id: str | None = None, gpu: str | float | None = None, num_shard: int = 1,
) -> WaitingServedRatio:  # fmt: skip
    """Return the rule of TGI 3.3.6's back end v3; only the SimPy engine runs it.

    A request joins if memory has room for its longest possible answer, so it is never preempted. With
    prefill_chunking, prompts share a step with next tokens, and the last prompt is cut to
    max_batch_prefill_tokens; the two waiting settings have no effect, and max_batch_size hardly any.
    Without it, whole prompts run in a step of their own, once the queue exceeds waiting_served_ratio times
    the running requests, or after max_waiting_tokens steps.

    prefill_chunking and `attention` are environment variables whose defaults depend on the available kernels;
    attention determines the tokens in a block. The default max_batch_prefill_tokens depends on the card and
    the model; 4,096 is the one for unknown cards. Without max_batch_total_tokens, memory is what `model_id`
    leaves on `gpu`, according to `batchsim.kv_blocks`; without a model or gpu it is unlimited.

    Not simulated: prefix caching, and max_concurrent_requests (128), which also counts running requests.

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


def _extras(target: ServerConfig) -> dict[str, Any]:
    rule, page = target.rule, 1
    assert isinstance(rule, Continuous)
    settings: dict[str, Any] = {
        "max_batch_size": rule.max_num_seqs if rule.max_num_seqs < MOST else None,
        "max_batch_prefill_tokens": rule.max_num_batched_tokens,
        "max_total_tokens": rule.max_model_len,
    }
    if isinstance(rule, WaitingServedRatio):
        kernels = {size: name for name, size in PAGES.items()}
        page = rule.block_size if rule.block_size in kernels else 1
        settings |= {
            "attention": kernels[page], "prefill_chunking": rule.chunked,
            "waiting_served_ratio": rule.waiting_served_ratio,
            "max_waiting_tokens": rule.max_waiting_tokens,
        }  # fmt: skip
    if rule.kv_blocks is not None:
        settings["max_batch_total_tokens"] = rule.kv_blocks * rule.block_size + page  # for the placeholder
    return without_defaults(settings)


IMAGE = re.compile(r"\btext-generation-inference(?:-[a-z]+\d*\.|:)v?(\d+)\b")


def _complete(document: Document, words: str, text: str) -> None:
    image = IMAGE.search(words) or IMAGE.search(text)
    if image and image[1] != SERVER.version[0]:
        if int(image[1]) < 3:
            document.settings.setdefault("prefill_chunking", False)
        document.note(f"of TGI {image[1]}, the defaults are those of 3; prompts are cut from 3 on")


LINE = CommandLine(
    "tgi", "text-generation-launcher", starts("text-generation-launcher", "text-generation-inference"),
    "model_id", short={"-p": "--port", "-e": "--env"}, dashes=False, prefixes=False,
    variables={"PREFILL_CHUNKING": "prefill_chunking", "ATTENTION": "attention"},
    switches=frozenset({"prefill_chunking"}), flags_as_variables=True, complete=_complete,
)  # fmt: skip
SERVER = Server(
    "tgi", "3.3.6", tgi, ignored=("max_concurrent_requests", "max_input_tokens"),
    caveats=CAVEATS,
    title="TGI", modest=("num_shard", "max_total_tokens"),
    words=Words("max_batch_size", budget="max_batch_prefill_tokens"), extras=_extras,
    formats=(
        LINE.format(
            "a command line of Text Generation Inference", "tgi-launch.sh",
            r"\btext-generation-(launcher|inference)\b",
        ),
    ),
)  # fmt: skip
