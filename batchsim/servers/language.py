"""Shared by the presets of language models' servers: cards, memory, and the settings that are written."""

import math
from collections.abc import Mapping
from typing import Any

from batchsim import _check
from batchsim.scenario.data_sheets import RESERVED_GIB, Card, card_named, kv_blocks, model_named
from batchsim.scenario.rules.continuous import MOST

UNCUT = MOST  # a budget that cuts no prompt
# Why settings are not simulated, each with its name in several servers.
CAVEATS = {
    name: why for why, names in {
        "a step gives each request one token, unless the service time is `StepTime.speculative`":
            "speculative_config speculative_algorithm speculate",
        "one batch computes at a time": "pipeline_parallel_size pp_size",
        "each server computes its prompts itself":
            "kv_transfer_config disaggregation_mode server_role disagg_cluster_uri cache_transceiver_config",
        "requests are served in order of arrival":
            "scheduling_policy schedule_policy enable_priority_scheduling",
        "no request is refused": "max_concurrent_requests",
        "each engine decides for itself": "prefill_delayer_max_delay_passes",
    }.items() for name in names.split()
}  # fmt: skip
# Keys of the one server's YAML file that the other's has not.
OPTIONS = (
    "pytorch_backend_config|kv_cache_config|cuda_graph_config|moe_config|scheduler_config|max_num_tokens"
    "|print_iter_log"
)
# A program of vLLM's engine, which no format reads, and what a refusal of it received.
ENGINE = (
    r"\b(AsyncEngineArgs|AsyncLLM(Engine)?|engine_kwargs|LLMConfig|MAX_NUM_SEQS['\"]?\s{0,9}(:|value\b))"
    r"|\A(?>(?s:.*?)(?m:^)(import|from) )(?s:.*?)"
    r"['\"](text-generation-launcher|tensorrtllm_backend|vllm\W+serve)\b"
)
IN_ENGINE = "an engine in a program, which batches inside: read it as a command, vllm serve MODEL --..."
NO_MEMORY = "memory is unlimited without a number of blocks, or a model and a gpu"


def card_of(gpu: Any) -> Card | None:
    """Return the card with this name or this memory in GiB; None for None."""
    if gpu is None:
        return None
    if isinstance(gpu, str):
        return card_named(gpu)
    return Card("a card", float(_check.real("gpu", gpu, above=0)), 0.0, 0.0)


def known_unless(limit: int | None, model: Any) -> Any:
    """Return the model; None for an unknown one if a limit gives the size of the memory."""
    if limit is not None and isinstance(model, str):
        try:
            model_named(model)
        except ValueError:
            return None
    return model


def blocks_beside(
    model: str | None, gpu: Any, gpus: int, block_size: int, memory_utilization: float,
    reserved_gib: float = RESERVED_GIB,
) -> int | None:  # fmt: skip
    """Return the blocks that a model leaves free on its cards; None without model or gpu."""
    _check.real("the share of the card's memory", memory_utilization, above=0, at_most=1)
    if model is None or gpu is None:
        return None
    return kv_blocks(
        model, gpu, gpus=gpus, block_size=block_size, memory_utilization=memory_utilization,
        reserved_gib=reserved_gib,
    ).blocks  # fmt: skip


def captured(
    name: str, sizes: Any, most: float = math.inf, padding: bool = True, prompts: bool = False,
    room: int | None = None,
) -> dict[str, Any]:  # fmt: skip
    """Return the fields of a `StepTime` of a server with graphs of these sizes up to `most`; None: without.

    `room`: of larger sizes, the server captures that of all its seats instead.
    """
    sizes = () if sizes is None else _check.sizes(name, sorted(sizes) if _check.listed(sizes) else sizes)
    kept = {size for size in sizes if size <= most}
    if room is not None and max(kept, default=0) > room:
        kept = {size for size in kept if size < room} | {room}
    return {
        "captured": tuple(sorted(kept)) or None, "captured_padding": padding, "captured_prompts": prompts,
    }  # fmt: skip


def sizes_of(target: Any) -> list[int] | None:
    """Return the captured sizes of a scenario to be written as settings; None if a server has its own."""
    captured = None if target.server else target.captured.get("captured")
    return None if captured is None else list(captured)


def maybe_whole(name: str, value: Any, at_least: int = 1) -> int | None:
    """Return a whole number or None."""
    return None if value is None else _check.whole(name, value, at_least, MOST)


def without_defaults(settings: Mapping[str, Any], **defaults: Any) -> dict[str, Any]:
    """Return settings, except None and defaults that never changed between versions."""
    given = {name: value for name, value in settings.items() if value is not None}
    return {name: value for name, value in given.items() if defaults.get(name) != value}
