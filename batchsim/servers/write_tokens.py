"""A rule of token generation in the words of each language model's server."""

from typing import Any

from batchsim.scenario.rules.continuous import MOST, Continuous, NewTokenRatio, WaitingServedRatio
from batchsim.servers.sglang import START
from batchsim.servers.tgi import PAGES


def token_settings(server: str, rule: Continuous) -> dict[str, Any]:
    """Return the settings of a server that say a rule's numbers: seats, budget, memory and what it has more.

    Where its own rule is another one, the same numbers mean something else there.
    """
    memory = None if rule.kv_blocks is None else rule.kv_blocks * rule.block_size
    match server:
        case "vllm":
            settings = _vllm(rule) | {"long_prefill_token_threshold": rule.long_prefill_token_threshold}
            if rule.kv_blocks is not None:
                settings["num_gpu_blocks_override"] = rule.kv_blocks + 1  # one is a placeholder
        case "vllm_v0":
            settings = _vllm(rule)
            if rule.kv_blocks is not None:
                settings["num_gpu_blocks_override"] = rule.kv_blocks
        case "sglang":
            cut = rule.chunked and rule.max_num_batched_tokens < MOST
            settings = {
                "max_running_requests": rule.max_num_seqs, "max_total_tokens": memory,
                "context_length": rule.max_model_len,
                "chunked_prefill_size": rule.max_num_batched_tokens if cut else -1,
            }  # fmt: skip
            if isinstance(rule, NewTokenRatio):
                settings |= {
                    "page_size": rule.block_size, "max_prefill_tokens": rule.max_prefill_tokens,
                    "schedule_conservativeness": _careful(rule.init_new_token_ratio),
                    "enable_mixed_chunk": rule.mixed,
                }  # fmt: skip
        case "tgi":
            page = 1
            settings = {
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
            settings["max_batch_total_tokens"] = None if memory is None else memory + page
        case _:
            raise ValueError(f"a rule for {server} must be one of whole batches, got {rule!r}")
    preset = _DEFAULTS[server]
    return {
        name: value for name, value in settings.items() if value is not None and preset.get(name) != value
    }


# What need not be said, as every version has had it; sizes and budgets are always said.
_DEFAULTS: dict[str, dict[str, Any]] = {
    "vllm": {"enable_chunked_prefill": True, "long_prefill_token_threshold": 0, "block_size": 16},
    "vllm_v0": {"block_size": 16},
    "sglang": {
        "page_size": 1, "max_prefill_tokens": 16_384, "schedule_conservativeness": 1.0,
        "enable_mixed_chunk": False,
    },
    "tgi": {},
}  # fmt: skip


def _vllm(rule: Continuous) -> dict[str, Any]:
    return {
        "max_num_seqs": rule.max_num_seqs, "max_num_batched_tokens": rule.max_num_batched_tokens,
        "enable_chunked_prefill": rule.chunked, "block_size": rule.block_size,
        "max_model_len": rule.max_model_len,
    }  # fmt: skip


def _careful(ratio: float) -> float:
    """Return the schedule_conservativeness that makes this the first ratio."""
    careful = ratio / START
    near = (careful, round(careful, 12))
    return next((each for each in near[::-1] if min(START * each, 1.0) == ratio), careful)
