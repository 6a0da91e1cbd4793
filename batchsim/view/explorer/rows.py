"""All controls of the explorer, in the order in which pages show them: each value is described once.

The state, its links, the widgets and the error messages are made from this list. A field that describes
itself, of a scenario, a rule, a workload or a service time, needs its name here, and its page.
"""

from collections.abc import Mapping
from typing import Any

from batchsim import scenario as sc
from batchsim.measured.published import published_names
from batchsim.scenario import Continuous, Noise, Scenario, StepTime, Tokens
from batchsim.scenario.knobs import RATE
from batchsim.scenario.lengths import LONGEST
from batchsim.scenario.parameters import LARGEST_BATCH as LARGEST_TYPED
from batchsim.scenario.parameters import Parameter
from batchsim.scenario.routing import ByKey
from batchsim.scenario.routing.by_key import MOST_KEYS
from batchsim.scenario.rules import continuous
from batchsim.scenario.rules.continuous import MOST, RESERVE, BatchWait, NewTokenRatio, WaitingServedRatio
from batchsim.scenario.sized_time import PaddedTime
from batchsim.scenario.traffic import UNIT
from batchsim.servers.registry import ALL
from batchsim.view.explorer import options
from batchsim.view.explorer.control import (
    ARRIVALS,
    COMPUTING,
    DEVICE,
    MAIN,
    RULE,
    SHARE,
    Control,
    Slider,
    choice,
)  # fmt: skip

LARGEST_BATCH = 4096  # the largest whose column of a heat map is computed while a slider moves
STEP = "llama-3.1-8b/rtx-4090"  # `batchsim.kv_blocks` finds the default `kv_blocks` for it
MODES = "requests", "tokens"

# The first class that has a parameter describes it; some have another name here.
_rules: Any = *options.SHOWN, Continuous, BatchWait, NewTokenRatio, WaitingServedRatio
_classes: Any = *sc.WORKLOADS, *_rules, PaddedTime, StepTime, Scenario, Tokens, ByKey
PARAMETERS: dict[str, Parameter] = {
    name: it for cls in reversed(_classes) for name, it in cls.parameters().items()
} | {"noise_cv" if name == "cv" else name: it for name, it in Noise.parameters().items()}


def described(it: Parameter, page: str | None, **narrower: Any) -> Control:
    """Return the control of a parameter that describes itself, perhaps with `narrower` bounds."""
    if it.type == "word":
        labels = it.words if isinstance(it.words, Mapping) else {word: word.capitalize() for word in it.words}
        return choice(it.label, it.about, it.usual, page, labels)
    given: dict[str, Any] = {"at_least": it.at_least, "at_most": it.at_most, "above": it.above}
    if it.type == "real":
        given["finite"] = not it.may_be_inf
    elif it.at_most == LARGEST_TYPED:
        given["at_most"] = LARGEST_BATCH
    if it.type == "sizes":
        del given["at_least"]
    scale = " ".join(["log"] * it.log + ["whole"] * (it.type == "whole")) or "linear"
    empty: Any = () if it.type == "sizes" else None
    first = it.usual if it.usual is not None else (1,) if it.type == "sizes" else it.at_least
    return Control(
        it.label, it.about + "; inf: no limit" * it.may_be_inf, it.type, empty if it.when_none else first,
        page, it.slider and Slider(scale, *it.slider),
        {name: bound for name, bound in (given | narrower).items() if bound is not None}, it.when_none,
    )  # fmt: skip


def rows(page: str | None, *names: str, **narrower: Any) -> dict[str, Control]:
    """Return the controls of parameters that describe themselves, by their names, on one page."""
    return {name: described(PARAMETERS[name], page, **narrower) for name in names}


def _objective(label: str, about: str, default: float | None, page: str, *ends: float) -> Control:
    slider = Slider("log", ends[0], ends[1], 0.01) if ends else None
    return Control(label, about, "real", default, page, slider, {"above": 0}, "none")


def _switch(label: str, about: str, default: bool, on: str, off: str) -> Control:
    labels = {options.ON: f"On: {on}", options.OFF: f"Off: {off}"}
    return choice(label, about, options.ON if default else options.OFF, RULE, labels)


def _mean(label: str, about: str, default: float) -> Control:
    bounds = {"at_least": 1, "at_most": LONGEST}
    return Control(label, about, "real", default, ARRIVALS, Slider("log", 1, 10_000, 0.01), bounds)


def _spread(label: str, of: str, default: float) -> Control:
    about, bounds = f"Standard deviation over mean of the {of}", {"at_least": 0, "at_most": 1e3}
    return Control(label, about, "real", default, ARRIVALS, Slider("linear", 0, 3, 0.05), bounds)


def _longest(label: str, about: str, default: int, slider: Slider | None = None) -> Control:
    return Control(label, about, "whole", default, ARRIVALS, slider, {"at_most": LONGEST}, "no limit")


CONTROLS: Mapping[str, Control] = {
    "mode": choice("What is seen", "Requests that are computed whole, or the tokens that they generate",
        MODES[0], MAIN, {name: name for name in MODES}),
    "workload": choice("Arrivals", "How requests arrive", "poisson", ARRIVALS, options.WORKLOADS),
    **rows(MAIN, "rate_per_s"),
    **rows(ARRIVALS, *(name for option in options.WORKLOADS.values() for name in option.controls
        if name in PARAMETERS and name != RATE)),
    **rows(MAIN, "clients", at_most=100_000),
    "burst_factor": Control("Burst rate (x mean)", "Arrival rate in a burst; no arrivals between bursts",
        "real", 5, ARRIVALS, Slider("linear", 1.1, 20, 0.1), {"above": 1, "at_most": options.MOST_BURSTY}),
    "mean_burst_s": Control("Mean burst (s)", "Mean duration of a burst",
        "real", 0.1, ARRIVALS, Slider("log", 0.001, 100, 0.01), {"above": 0}),
    "think_ms": Control("Think time (ms)", "Mean time between an answer and the client's next request",
        "real", 0, ARRIVALS, Slider("linear", 0, 1000), {"at_least": 0}),
    "batching": choice("Server or scheduler",
        "When requests join and leave: as on a server, with its defaults, or by a rule",
        "continuous", MAIN, options.BATCHING),
    "priorities": Control("Priorities",
        "Share of level 1, which is served first; type more levels as 1:0.2, 2:0.5, 3:0.3",
        "levels", (), ARRIVALS, Slider("share", 0, 0.95, 0.05), when_empty="one level"),
    "sizes": choice("Sizes", "Distribution of the sizes of requests", "none", ARRIVALS, options.SIZES),
    "size_mean": _mean("Mean size", "Mean size of a request, in units such as tokens", 80),
    "size_cv": _spread("Size spread (CV)", "requests' sizes", 1),
    "size_most": _longest("Largest size", "Larger requests are cut to this size", 512,
        Slider("log whole", 1, 10_000, 0.01)),
    "size_unit": Control("Unit of sizes", "The name of a unit", "text", UNIT, None),
    "rule": choice("Server or rule", "When a batch leaves: as on a server, with its defaults, or by a rule",
        "size_or_wait", MAIN, options.RULES),
    "server": choice("Server", "The server whose settings the controls move", "", None,
        {"": ""} | {name: server.title for name, server in ALL.items()}),
    "prompt_mean": _mean("Mean prompt (tokens)", "Mean number of tokens of a prompt", 512),
    "output_mean": _mean("Mean output (tokens)", "Mean number of tokens of an output", 128),
    "prompts": choice("Prompts", "Distribution of the lengths of prompts", "lognormal", ARRIVALS,
        options.PROMPTS),
    "prompt_cv": _spread("Prompt spread (CV)", "prompts' lengths", 1.0),
    "prompt_most": _longest("Longest prompt", "Longer prompts are cut to this many tokens", 4096),
    "outputs": choice("Outputs", "Distribution of the lengths of outputs", "lognormal", ARRIVALS,
        options.OUTPUTS),
    "output_cv": _spread("Output spread (CV)", "outputs' lengths", 0.8),
    "output_most": _longest("Longest output", "Longer outputs are cut to this many tokens", 1024),
    **rows(MAIN, "max_batch_size", "max_wait_ms", "max_batch_units"),
    **rows(RULE, "units"),
    **rows(MAIN, "min_batch_size", "max_num_seqs", "max_num_batched_tokens"),
    "kv_blocks": Control("kv_blocks", "Blocks of each server's memory for keys and values",
        "whole", 2599, MAIN, Slider("log whole", 100, 20_000, 0.01), {"at_most": MOST}, "no limit"),
    "first": choice("Who goes first", "Whose tokens a step takes first", "decode", RULE,
        {"decode": "Running requests: decodes", "prefill": "New requests: prompts alone"}),
    "chunked": _switch("Chunked prefill", "Whether a long prompt is cut to the budget", True,
        "prompts are cut", "whole prompts only"),
    **rows(RULE, "long_prefill_token_threshold"),
    "max_model_len": Control("max_model_len", "Most tokens of a request, prompt and output together",
        "whole", None, RULE, None, {"at_most": MOST}, "no limit"),
    **rows(RULE, "max_prefill_tokens", "init_new_token_ratio", "min_new_token_ratio", "decay_steps"),
    "mixed": _switch("enable_mixed_chunk", "Whether prompts share a step with next tokens", False,
        "in one step", "prompts alone"),
    "prefill_delayer": _switch("enable_prefill_delayer", "Whether prompts may be held back", False,
        "while few seats are free", "prompts never wait"),
    **rows(RULE, *continuous.DELAYS, "waiting_served_ratio", "max_waiting_tokens", *continuous.WAITS),
    "overlap": _switch("Overlap scheduler", "Whether a step is prepared while the last one computes", True,
        "it waits meanwhile", "it waits afterwards"),
    "token_map": choice("Heat map over", "The two settings on the axes of the heat map", "budget", RULE,
        {"budget": "Seats x token budget", "memory": "Seats x memory"}),
    "reserve": choice("Memory is taken", "When a request takes its blocks", "step", DEVICE,
        dict(zip(RESERVE, ("As needed, with preemption", "For its whole life"), strict=True))),
    **rows(DEVICE, "limit", "block_size", "watermark_blocks"),
    "step": choice("Step time", "How long a step computes", STEP, COMPUTING, options.STEPS),
    **{name: described(PARAMETERS[name], RULE if it.type == "word" else MAIN)
        for rule in options.SHOWN for name, it in rule.parameters().items()},
    "service": choice("Service time", "How long a batch computes", "affine", COMPUTING, options.SERVICES),
    **rows(COMPUTING, "fixed_ms", "weights_ms", "per_token_ms", "per_read_ms", "per_item_ms", "per_unit_ms",
        "per_pair_ms"),
    **rows(COMPUTING, "captured", at_most=LARGEST_TYPED),
    **rows(COMPUTING, "beyond_ms"),
    "published": choice("Published table", "A published service time", "gpunet-175ms/v100-32gb/fp16", None,
        published_names()),
    "curve": Control("Curve", "A measured service time", "points", (), None, when_empty="none"),
    "size_table": Control("Size table", "A measured service time by batch size and length", "rows", (), None,
        when_empty="none"),
    "curve_of": Control("Curve source", "The model and the device of the curve", "text", "", None),
    **rows(COMPUTING, "noise_cv"),
    "noise": described(PARAMETERS["shape"], None),
    "noise_correlation": described(PARAMETERS["correlation"], None),
    "noise_batches": described(PARAMETERS["memory_batches"], None),
    "padding": Control("Pad to sizes", "Round each batch up to the next of these sizes, e.g. 1, 2, 4, 8",
        "sizes", (), DEVICE, when_empty="no padding"),
    **rows(DEVICE, "lengths"),
    "compile_ms": Control("Cold start (ms)",
        "Extra time for the first batch of each size, or padded size, while it compiles; the same for all "
        "sizes; 0: warm",
        "real", 0, DEVICE, Slider("linear", 0, 3000, 50), {"at_least": 0}),
    **rows(MAIN, "servers", at_most=64),
    **rows(RULE, "replicas", at_most=64),
    "routing": choice("Routing", "The replica to which the router sends a request", "round_robin", RULE,
        options.ROUTINGS),
    "keys": Control("Keys", "Number of different keys; those of one key go to one replica",
        "whole", 100, RULE, Slider("log whole", 1, 10_000, 0.01), {"at_most": MOST_KEYS}),
    **rows(RULE, "popularity", "stale_ms"),
    **rows(DEVICE, "devices", at_most=64),
    **rows(DEVICE, "host_ms"),
    **rows(DEVICE, "contention", at_most=100),
    "sharing": Control("Slowdown from sharing",
        "Without shared devices: slowdown from each additional busy server; 0: none",
        "real", 0, DEVICE, Slider("linear", 0, 1, 0.05), {"at_least": 0, "at_most": 100}),
    **rows(RULE, "queue_limit", "timeout_ms"),
    **rows(COMPUTING, "price_per_hour"),
    "watts": Control("Power (W)",
        "Power of a server by batch size, e.g. 0:60, 1:150, 32:300, 0 while idle, linear between",
        "watts", (), COMPUTING, when_empty="not known"),
    "map_metric": choice("Heat map of", "The number of a setting that is its colour on the heat map",
        "latency", COMPUTING, {"latency": "Latency, or goodput", "joules": "Energy"}),
    "ttft_objective_ms": _objective("TTFT objective (ms)", "Limit of the time to the first token", 1000,
        MAIN, 10, 100_000),
    "tpot_objective_ms": _objective("TPOT objective (ms)", "Limit of the time per later token", 60,
        MAIN, 1, 1000),
    "itl_objective_ms": _objective("Gap objective (ms)",
        "Limit of the p99 of the gaps between tokens, which a smaller token budget shortens", None, RULE),
    **rows(RULE, "timeout_action", "oversize_action"),
    "request_map": choice("Heat map of limits", "The two settings on the axes of the heat map", "own", RULE,
        {"own": "The rule's own", "units": "Max batch units x max wait",
         "limits": "Max batch size x max batch units"}),
    "objective_ms": _objective("p99 objective (ms)", "99% of requests are answered within this", 25,
        MAIN, 0.1, 10_000),
    "seed": Control("Seed", "The same seed gives the same traffic",
        "whole", 0, SHARE, None, {"at_least": 0, "at_most": 2**63 - 1}),
}  # fmt: skip
