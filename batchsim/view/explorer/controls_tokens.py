"""The controls of token generation, in the words of the servers' own settings; see `controls_table`."""

from collections.abc import Mapping
from typing import Any

from batchsim.measured.published import published
from batchsim.scenario import Continuous
from batchsim.scenario.rules.continuous import FIRST, MOST, RESERVE
from batchsim.scenario.step_time import StepTime
from batchsim.scenario.tokens import LONGEST
from batchsim.view.explorer.control import (
    ARRIVALS,
    COMPUTING,
    DEVICE,
    MAIN,
    RULE,
    TOKENS,
    Control,
    Slider,
    choice,
)  # fmt: skip
from batchsim.view.explorer.kinds_tokens import KINDS, OFF, ON

STEP = "llama-3.1-8b/rtx-4090"  # at first, with the blocks that `batchsim.kv_blocks` finds beside it
_step = published(STEP)
assert isinstance(_step, StepTime)
# What other controls begin with here.
AT_FIRST: Mapping[str, Any] = {
    "rate_per_s": 7, "mean_burst_s": 10, "period_s": 600, "clients": 32, "fixed_ms": _step.fixed_ms,
    "max_wait_ms": 1000,
}  # fmt: skip
_continuous = Continuous.parameters()


def _lengths(of: str, one: str, mean: float, cv: float, most: int) -> dict[str, Control]:
    kinds = {name: kind.label for name, kind in KINDS[f"{of}s"].items()}
    return {
        f"{of}s": choice(f"{one}s", f"How the lengths of {of}s are distributed", "lognormal", ARRIVALS,
            kinds, TOKENS),
        f"{of}_mean": Control(f"Mean {of} (tokens)", f"Mean tokens of {'a' if of == 'prompt' else 'an'} {of}",
            "real", mean, ARRIVALS, Slider("log", 1, 10_000, 0.01), {"at_least": 1, "at_most": LONGEST},
            mode=TOKENS),
        f"{of}_cv": Control(f"{one} spread (CV)", f"Standard deviation over mean of the {of}s' lengths",
            "real", cv, ARRIVALS, Slider("linear", 0, 3, 0.05), {"at_least": 0, "at_most": 1e3},
            mode=TOKENS),
        f"{of}_most": Control(f"Longest {of}", f"Longer {of}s are cut to so many tokens; empty: none is",
            "whole", most, ARRIVALS, None, {"at_most": LONGEST}, True, TOKENS),
    }  # fmt: skip


_each = {**_lengths("prompt", "Prompt", 512, 1.0, 4096), **_lengths("output", "Output", 128, 0.8, 1024)}
LENGTHS = {name: _each[name] for name in ("prompt_mean", "output_mean")} | _each
MAPS: Mapping[str, tuple[str, str]] = {  # the heat map's axes, x and y
    "budget": ("max_num_seqs", "max_num_batched_tokens"),
    "memory": ("max_num_seqs", "kv_blocks"),
}
LARGEST_WHOLE, LONGEST_MS = 256, 10_000.0  # the ends of the sliders of whole batches
BATCHING = {
    "batching": choice("Batching", "When requests join and leave: at every step, or as whole batches",
        "continuous", RULE, {name: kind.label for name, kind in KINDS["batching"].items()}, TOKENS),
    "max_num_seqs": Control("max_num_seqs", _continuous["max_num_seqs"].about,
        "whole", 256, MAIN, Slider("whole", 1, 256), {"at_most": MOST}, mode=TOKENS),
    "max_num_batched_tokens": Control("max_num_batched_tokens", _continuous["max_num_batched_tokens"].about,
        "whole", 2048, MAIN, Slider("log", 16, 16_384, 0.01), {"at_most": MOST}, mode=TOKENS),
    "kv_blocks": Control("kv_blocks",
        "Blocks of memory for keys and values, of each server; empty: as many as it takes",
        "whole", 2599, MAIN, Slider("log", 100, 20_000, 0.01), {"at_most": MOST}, True, TOKENS),
    "first": choice("Who goes first", "Whose tokens a step takes first", "decode", RULE,
        dict(zip(FIRST, ("Those that run: decodes", "New ones: prompts alone"), strict=True)), TOKENS),
    "chunked": choice("Chunked prefill", "Whether a long prompt is cut to the budget", ON, RULE,
        {ON: "On: prompts are cut", OFF: "Off: whole prompts only"}, TOKENS),
    "long_prefill_token_threshold": Control(_continuous["long_prefill_token_threshold"].label,
        _continuous["long_prefill_token_threshold"].about,
        "whole", 0, RULE, None, {"at_least": 0, "at_most": MOST}, mode=TOKENS),
    "token_map": choice("Heat map", "The two knobs that the heat map has settings of", "budget", RULE,
        {"budget": "Seats x token budget", "memory": "Seats x memory"}, TOKENS),
    "reserve": choice("Memory is taken", "When a request takes its blocks", "step", DEVICE,
        dict(zip(RESERVE, ("As needed; short: preempt", "For its whole life"), strict=True)), TOKENS),
    "limit": Control("Limit (tokens)",
        "The output that clients ask for at most, for which memory is taken; empty: the output itself",
        "whole", None, DEVICE, None, {"at_most": LONGEST}, True, TOKENS),
    "block_size": Control("Block size (tokens)", _continuous["block_size"].about,
        "whole", 16, DEVICE, Slider("whole", 1, 256), {"at_most": MOST}, mode=TOKENS),
    "watermark_blocks": Control("Watermark (blocks)", _continuous["watermark_blocks"].about,
        "whole", 0, DEVICE, None, {"at_least": 0, "at_most": MOST}, mode=TOKENS),
}  # fmt: skip


def _number(label: str, about: str, name: str, high: float, step: float) -> Control:
    return Control(label, about, "real", getattr(_step, name), COMPUTING, Slider("linear", 0, high, step),
        {"at_least": 0}, mode=TOKENS)  # fmt: skip


STEPS = {
    "step": choice("Step time", "How long a step computes", STEP, COMPUTING,
        {name: kind.label for name, kind in KINDS["step"].items()}, TOKENS),
}  # fmt: skip
NUMBERS = {
    "weights_ms": _number("Weights (ms)", "Reading the model's weights, which every step does",
        "weights_ms", 50, 0.1),
    "per_token_ms": _number("Per token (ms)", "Computing each token of a step; from as many on as take "
        "longer than the weights, this counts", "per_token_ms", 0.5, 0.001),
    "per_read_ms": _number("Per key read (ms)", "Reading the keys and values of a token, by each decode",
        "per_read_ms", 0.002, 0.00001),
    "per_pair_ms": _number("Per pair (ms)", "Attention within a prompt, for each pair of its tokens",
        "per_pair_ms", 0.0001, 0.0000001),
}  # fmt: skip
OBJECTIVES = {
    "ttft_objective_ms": Control("TTFT objective (ms)", "For the time to the first token; empty: none",
        "real", 1000, MAIN, Slider("log", 10, 100_000, 0.01), {"above": 0}, True, TOKENS),
    "tpot_objective_ms": Control("TPOT objective (ms)", "For the time of each token after it; empty: none",
        "real", 60, MAIN, Slider("log", 1, 1000, 0.01), {"above": 0}, True, TOKENS),
}  # fmt: skip
