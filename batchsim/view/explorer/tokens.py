"""Token generation in the explorer, in the words of the servers' own settings; its runs come from `runs`."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from batchsim.engines.log import Status
from batchsim.engines.token_log import NO_TRIGGER
from batchsim.measured.published import published, published_names
from batchsim.result.comparison import Difference
from batchsim.result.seats import beginning, seats, spells
from batchsim.result.sections import sums
from batchsim.result.shares import students_t
from batchsim.scenario import AtLeast, Continuous, Poisson, Scenario, SizeOrWait, StepTime, Tokens
from batchsim.scenario.lengths import LONGEST
from batchsim.scenario.parameters import LARGEST_BATCH
from batchsim.scenario.rules import continuous
from batchsim.scenario.rules.continuous import MOST, BatchWait, NewTokenRatio, WaitingServedRatio
from batchsim.scenario.saturation import estimate_per_s
from batchsim.scenario.step_time import StepCost
from batchsim.scenario.traffic import UNIT
from batchsim.servers import cards
from batchsim.servers.registry import TOKEN_SERVERS
from batchsim.servers.server import ServerConfig
from batchsim.simulate import available
from batchsim.study.paired import CELL_SECTIONS
from batchsim.study.slo import LEVEL, SLO
from batchsim.view.explorer import kind, reasons
from batchsim.view.explorer.control import (
    ARRIVALS,
    COMPUTING,
    DEVICE,
    GIVEN,
    MAIN,
    RULE,
    Control,
    Option,
    Slider,
    choice,
)  # fmt: skip
from batchsim.view.explorer.kind import Kind, Ranges, State
from batchsim.view.explorer.parts import Part, Values, chosen, same, unshown
from batchsim.view.explorer.presets import SERVER
from batchsim.view.explorer.requests import FIXED_MS, PARAMETERS, PER_PAIR_MS, origin_of, tenth
from batchsim.view.explorer.runs import Stored, run
from batchsim.view.film.film import PlayRange
from batchsim.view.film.lane_kinds import TokenLanes
from batchsim.view.film.token_film import TokenFilm
from batchsim.view.film.window import Window, step_window
from batchsim.view.pictures.data import ViewData
from batchsim.view.pictures.seats import SeatsView, lanes_of

ON, OFF = "on", "off"
SWITCHES = "chunked", "mixed", "overlap", "prefill_delayer"
LIMITS = "max_num_seqs", "max_num_batched_tokens", "kv_blocks", "block_size", "max_model_len"
CONTINUOUS = (
    *LIMITS, "first", "chunked", "reserve", "watermark_blocks", "long_prefill_token_threshold",
)  # fmt: skip
OWN = "own"  # a step time with other costs than the published ones
STEP = "llama-3.1-8b/rtx-4090"  # `batchsim.kv_blocks` finds the default `kv_blocks` for it
MOST_REQUESTS, OF_SIMPY = 20_000, 1000  # of a run, each with hundreds of tokens, on either engine
LARGEST_WHOLE, LONGEST_MS = 256, 10_000.0  # the ends of the sliders of whole batches
MAPS: Mapping[str, tuple[str, str]] = {  # the heat map's axes, x and y
    "budget": ("max_num_seqs", "max_num_batched_tokens"),
    "memory": ("max_num_seqs", "kv_blocks"),
}
WHOLE_NOTE = (
    "Whole batches have no settings here. The server reserves memory for the longest request in each place "
    "of a batch, so memory limits only the max batch size."
)


def _lengths(of: str) -> Mapping[str, Option]:
    return kind.lengths(of, Option("All equal", int, (f"{of}_mean",), round, lambda length: (length,)))


def _continuous(rule: type[Continuous], *names: str) -> Option:
    """Return the option of a rule with these settings; a switch has a list of its two states."""

    def make(*values: Any) -> Continuous:
        return rule(**{
            name: value == ON if name in SWITCHES else value
            for name, value in zip(names, values, strict=True)
        })  # fmt: skip

    def read(rule: Continuous) -> Sequence[Any] | None:
        values = {name: getattr(rule, name) for name in names}
        return [(ON if each else OFF) if name in SWITCHES else each for name, each in values.items()]

    return Option(rule.label(), rule, names, make, read)


def _published(name: str) -> Option:
    step = published(name)
    assert isinstance(step, StepTime)
    cost = step.cost

    def read(other: StepTime) -> tuple[()] | None:
        return () if other.cost == cost else None

    return Option(name, StepTime, (), lambda: step, read)


OPTIONS: Mapping[str, Mapping[str, Option]] = {
    "workload": kind.WORKLOADS,
    "prompts": _lengths("prompt"),
    "outputs": _lengths("output"),
    "batching": {
        "continuous": _continuous(Continuous, *CONTINUOUS),
        "batch_wait": _continuous(BatchWait, *LIMITS, "chunked", "reserve", "watermark_blocks",
            "long_prefill_token_threshold", *continuous.WAITS, "overlap"),
        "new_token_ratio": _continuous(NewTokenRatio, *LIMITS, "max_prefill_tokens", "init_new_token_ratio",
            "min_new_token_ratio", "decay_steps", "mixed", "prefill_delayer", *continuous.DELAYS),
        "waiting_served_ratio": _continuous(WaitingServedRatio, *LIMITS, "chunked", "waiting_served_ratio",
            "max_waiting_tokens"),
        **{
            kind.snake(rule): Option(rule.title, rule, tuple(kind.without_sizes(rule)))
            for rule in (SizeOrWait, AtLeast)
        },
        "whole": Option("Full batches only", SizeOrWait, ("max_batch_size",), kind.full_only,
            kind.size_of_full),
    },
    "step": {
        **{name: _published(name) for name in published_names(tokens=True)},
        OWN: Option("Five costs of your own", StepTime, StepCost._fields, read=lambda step: step.cost),
    },
}  # fmt: skip

# The controls. Parameters of `Continuous` describe themselves.
_rules = NewTokenRatio, WaitingServedRatio, BatchWait, Continuous
_parameters = {name: each for rule in _rules for name, each in rule.parameters().items()}
_costs = OPTIONS["step"][STEP].make().cost  # type: ignore[misc]


def _described(*names: str, page: str = RULE) -> dict[str, Control]:
    return {name: kind.of_parameter(_parameters[name], page) for name in names}


def _of_lengths(of: str, one: str, mean: float, cv: float, most: int) -> dict[str, Control]:
    article = "a" if of == "prompt" else "an"
    return {
        f"{of}s": choice(f"{one}s", f"Distribution of the lengths of {of}s", "lognormal", ARRIVALS,
            OPTIONS[f"{of}s"]),
        f"{of}_mean": Control(f"Mean {of} (tokens)", f"Mean number of tokens of {article} {of}",
            "real", mean, ARRIVALS, Slider("log", 1, 10_000, 0.01), {"at_least": 1, "at_most": LONGEST}),
        f"{of}_cv": Control(f"{one} spread (CV)", f"Standard deviation over mean of the {of}s' lengths",
            "real", cv, ARRIVALS, Slider("linear", 0, 3, 0.05), {"at_least": 0, "at_most": 1e3}),
        f"{of}_most": Control(f"Longest {of}", f"Longer {of}s are cut to this many tokens; empty: no limit",
            "whole", most, ARRIVALS, None, {"at_most": LONGEST}, True),
    }  # fmt: skip


def _cost(name: str, label: str, about: str, high: float, step: float) -> Control:
    slider = Slider("linear", 0, high, step)
    return Control(label, about, "real", getattr(_costs, name), COMPUTING, slider, {"at_least": 0})


_each = {**_of_lengths("prompt", "Prompt", 512, 1.0, 4096), **_of_lengths("output", "Output", 128, 0.8, 1024)}
_rows: dict[str, Control] = {
    **kind.TRAFFIC,
    "batching": choice("Server or scheduler",
        "When requests join and leave: as on a server, with its defaults, or by a rule",
        "continuous", MAIN, OPTIONS["batching"]),
    **SERVER,
    **{name: _each[name] for name in ("prompt_mean", "output_mean")},  # before the rest of the lengths
    **_each,
    **{name: PARAMETERS[name] for name in ("max_batch_size", "max_wait_ms", "min_batch_size")},
    **_described("max_num_seqs", "max_num_batched_tokens", page=MAIN),
    "kv_blocks": Control("kv_blocks",
        "Blocks of each server's memory for keys and values; empty: no limit",
        "whole", 2599, MAIN, Slider("log whole", 100, 20_000, 0.01), {"at_most": MOST}, True),
    "first": choice("Who goes first", "Whose tokens a step takes first", "decode", RULE,
        {"decode": "Running requests: decodes", "prefill": "New requests: prompts alone"}),
    "chunked": choice("Chunked prefill", "Whether a long prompt is cut to the budget", ON, RULE,
        {ON: "On: prompts are cut", OFF: "Off: whole prompts only"}),
    **_described("long_prefill_token_threshold"),
    "max_model_len": Control("max_model_len",
        "Most tokens of a request, prompt and output together; empty: no limit",
        "whole", None, RULE, None, {"at_most": MOST}, True),
    **_described("max_prefill_tokens", "init_new_token_ratio", "min_new_token_ratio", "decay_steps"),
    "mixed": choice("enable_mixed_chunk", "Whether prompts share a step with next tokens", OFF, RULE,
        {ON: "On: in one step", OFF: "Off: prompts alone"}),
    "prefill_delayer": choice("enable_prefill_delayer", "Whether prompts may be held back", OFF, RULE,
        {ON: "On: while few seats are free", OFF: "Off: prompts never wait"}),
    **_described(*continuous.DELAYS, "waiting_served_ratio", "max_waiting_tokens", *continuous.WAITS),
    "overlap": choice("Overlap scheduler", "Whether a step is prepared while the last one computes", ON, RULE,
        {ON: "On: it waits meanwhile", OFF: "Off: it waits afterwards"}),
    "token_map": choice("Heat map over", "The two settings on the axes of the heat map", "budget", RULE,
        {"budget": "Seats x token budget", "memory": "Seats x memory"}),
    "reserve": choice("Memory is taken", "When a request takes its blocks", "step", DEVICE,
        dict(zip(continuous.RESERVE, ("As needed, with preemption", "For its whole life"), strict=True))),
    "limit": Control("Limit (tokens)",
        "Largest output a client may request; memory is reserved for it; empty: the output's own length",
        "whole", None, DEVICE, None, {"at_most": LONGEST}, True),
    **_described("block_size", "watermark_blocks", page=DEVICE),
    "step": choice("Step time", "How long a step computes", STEP, COMPUTING, OPTIONS["step"]),
    "fixed_ms": FIXED_MS,
    "weights_ms": _cost("weights_ms", "Weights (ms)", "Time to read the model's weights in every step",
        50, 0.1),
    "per_token_ms": _cost("per_token_ms", "Per token (ms)",
        "Time to compute each token of a step; it counts once it exceeds the time of the weights",
        0.5, 0.001),
    "per_read_ms": _cost("per_read_ms", "Per key read (ms)",
        "Time for a decode to read one token's keys and values", 0.002, 0.00001),
    "per_pair_ms": PER_PAIR_MS,
    "captured": Control("Captured sizes",
        "Sequences that steps of decodes are padded to (CUDA graphs), e.g. 1, 2, 4, 8, 16; empty: none",
        "sizes", (), COMPUTING, bounds={"at_most": LARGEST_BATCH}, optional=True),
    "beyond_ms": Control("Uncaptured (ms)",
        "Least time of a step without a graph, whose kernels are launched one by one",
        "real", 0, COMPUTING, Slider("linear", 0, 200, 1), {"at_least": 0}),
    **kind.NOISE,
    **kind.SERVERS,
    **kind.REPLICAS,
    **kind.LIMITS,
    "ttft_objective_ms": Control("TTFT objective (ms)", "Limit of the time to the first token; empty: none",
        "real", 1000, MAIN, Slider("log", 10, 100_000, 0.01), {"above": 0}, True),
    "tpot_objective_ms": Control("TPOT objective (ms)", "Limit of the time per later token; empty: none",
        "real", 60, MAIN, Slider("log", 1, 1000, 0.01), {"above": 0}, True),
    "itl_objective_ms": Control("Gap objective (ms)",
        "Limit of the p99 of the gaps between tokens, which a smaller token budget shortens; empty: none",
        "real", None, RULE, None, {"above": 0}, True),
    **kind.SEED,
}  # fmt: skip
# Defaults that differ from those of whole requests.
_defaults = {
    "per_pair_ms": _costs.per_pair_ms, "rate_per_s": 7,
    "mean_burst_s": 10, "period_s": 600, "clients": 32, "fixed_ms": _costs.fixed_ms,
    "max_wait_ms": 1000,
}  # fmt: skip
CONTROLS = _rows | {
    name: dataclasses.replace(_rows[name], default=default) for name, default in _defaults.items()
}
_more = {field.name: field.default for field in dataclasses.fields(StepTime) if field.kw_only}
PARTS = kind.all_parts(
    {
        "workload.priorities": unshown(None),
        "workload.sizes": unshown(None),
        "workload.size_unit": unshown(UNIT),
        "rule": chosen("batching", OPTIONS["batching"]),
        "rule.prefix_reuse": unshown(False),
        "service": chosen("step", OPTIONS["step"])._replace(whole=True),
        **{f"service.{name}": unshown(usual) for name, usual in _more.items()},
        "service.captured": Part(
            ("captured",),
            lambda values, _: values["captured"] or None,
            lambda sizes, _: {"captured": sizes or ()},
        ),
        "service.beyond_ms": same("beyond_ms"),
        "service.noise": kind.NOISE_PART,
        "tokens.prompt": chosen("prompts", OPTIONS["prompts"]),
        "tokens.output": chosen("outputs", OPTIONS["outputs"]),
        "tokens.limit": same("limit"),
        "tokens.prefixes": unshown(None),
        "routing": kind.routing_part(kind.ROUTINGS),
    },
    CONTROLS,
)


PAGES, INSTANTS = 4, 1000  # of a film of steps: its length in pages, and at most, as each has a sentence


class TokenGeneration(Kind):
    """Requests that generate tokens, step by step."""

    name = "tokens"
    parts = PARTS
    base = Scenario(Poisson(1), Continuous(), StepTime(1, 1, 1), tokens=Tokens(1, 1))
    controls: Mapping[str, Any] = CONTROLS
    conditions: Mapping[str, Any] = {
        "limit": lambda values: (
            values["batching"] == "waiting_served_ratio"
            or (values["batching"] in ("continuous", "batch_wait") and values["reserve"] == "life")
        ),
        "token_map": lambda values: values["batching"] == "continuous",
        **kind.CONDITIONS,
    }
    rule, service = "batching", "step"
    servers: Mapping[str, Any] = TOKEN_SERVERS
    titles: Mapping[str, str] = {DEVICE: "Memory"}
    service_type = StepTime
    film = SeatsView.KEY
    is_film_by_server = shortens = True
    compared = ("ttft_p50_ms", "ttft_p99_ms", "tpot_p50_ms", "tpot_p99_ms", "mean_latency_ms", "p99_ms",
        "output_tokens_per_s")  # fmt: skip
    questions: Mapping[str, str] = {
        "ttft": "TTFT p99, to the first token", "tpot": "TPOT p99, for each token after it",
        "tokens": "output tokens, per second",
    }  # fmt: skip
    cover = "Predict first: what happens to TTFT, TPOT and tokens per second?\nThen choose Reveal."
    outcome = staticmethod(reasons.of_tokens)

    def slo(self, state: State) -> SLO | None:
        limits = {f"{it}_p99_ms": getattr(state, f"{it}_objective_ms") for it in ("ttft", "tpot", "itl")}
        given = {name: limit for name, limit in limits.items() if limit is not None}
        return SLO(**given) if given else None

    def fitting(self, state: State, config: ServerConfig) -> State:
        longest = getattr(config.rule, "max_model_len", None)
        if longest is None:
            return state
        # In proportion to their means; shorter ones stay as they are.
        prompts = max(int(longest * state.prompt_mean / (state.prompt_mean + state.output_mean)), 1)
        most = {"prompt_most": prompts, "output_most": max(longest - prompts, 1)}
        return state.replace(**{name: min(getattr(state, name) or each, each) for name, each in most.items()})

    def on_device(self, state: State) -> Mapping[str, Any]:
        return cards.on_device(state.step)

    def published(self, state: State) -> str:
        return "" if state.step in (OWN, GIVEN) else str(state.step)

    def changes(self, before: State, name: str, value: Any) -> Values:
        costs = before.field("service").cost._asdict() if name == "step" and value == OWN else {}
        # A step time of your own begins with the costs of the last one.
        return super().changes(before, name, value) | costs

    def ranges(self, state: State) -> Ranges:
        # An estimate, without an engine, is good enough for a slider's range.
        saturation_per_s = estimate_per_s(state.replace(workload="poisson").scenario())
        return {
            "rate_per_s": (tenth(saturation_per_s / 100), tenth(3 * saturation_per_s)),
            "max_batch_size": (1, LARGEST_WHOLE),
            "min_batch_size": (1, state.max_batch_size),
            "max_wait_ms": (0, LONGEST_MS, LONGEST_MS / 200),
        }

    def window(self, data: ViewData, server: int) -> Window | None:
        now = data.moment(server)
        if now is None:
            return None
        film = TokenFilm.of(data.result, server)
        instants, page_s = film.instants, now.end_s - now.begin_s
        first = int(instants.searchsorted(now.begin_s))
        until_s = min(now.begin_s + PAGES * page_s, float(instants[first:][:INSTANTS][-1]))
        stretch, log = PlayRange(now.begin_s, max(until_s, now.end_s)), now.log
        steps = int(log.batch_start_s.searchsorted(stretch.until_s, side="right"))
        own = log.batch_server == server
        if film.whole:  # up to the end of a batch
            left = np.flatnonzero(own & (log.batch_trigger != NO_TRIGGER))
            steps = int(np.append(left, own.size)[left.searchsorted(steps)])
        busy_s = spells(log.batch_start_s[own], log.batch_finish_s[own])
        stays = seats(beginning(data.result, steps, server))
        window = step_window(film, stays, lanes_of(now), busy_s, stretch, page_s=page_s, title="The seats")
        window.more["legend"] = TokenLanes.legend((), window.lanes)
        return window

    def origin(self, state: State) -> str:
        if state.step == OWN:
            return "Fixed + the larger of weights and tokens + key reads + pairs within prompts."
        return origin_of(state.step)

    def note(self, state: State) -> str:
        return "" if issubclass(state.rule_option.part, Continuous) else WHOLE_NOTE

    def requests(self, scenario: Scenario, requests: int) -> int:
        return available(scenario, min(requests, MOST_REQUESTS if scenario.rule.compiled else OF_SIMPY))

    def run(
        self, state: State, scenario: Scenario, requests: int, stored: Stored, moving: bool
    ) -> ViewData:  # fmt: skip
        objectives_ms = {f"{it}_ms": getattr(state, f"{it}_objective_ms") for it in ("ttft", "tpot", "itl")}
        knobs = MAPS[state.token_map] if state.batching == "continuous" else None  # the rule's own
        return run(scenario, requests, state.seed, stored, knobs, moving, state.map_metric, **objectives_ms)

    def differences(self, data: ViewData) -> Mapping[str, Difference]:
        goodput = goodput_difference(data)
        return {} if goodput is None else {"goodput (per s)": goodput}


def goodput_difference(data: ViewData) -> Difference | None:
    """Return the goodput of A and of B within B's objectives, and the difference; None without objectives.

    The interval is computed from 16 sections of the run, each with the same requests in A and B.
    """
    if not data.limits_ms or data.pinned is None or data.comparison is None:
        return None
    a, b = data.pinned, data
    met_a, met_b = (_within(each, data.limits_ms) for each in (a, b))
    goodput_a, goodput_b = (
        each.result.metrics.per_s(int(met.sum())) for each, met in ((a, met_a), (b, met_b))
    )
    difference = goodput_b - goodput_a
    if math.isnan(data.comparison["output_tokens_per_s"].low):  # the run is too short for this metric
        return Difference(goodput_a, goodput_b, difference, math.nan, math.nan)
    cuts = np.linspace(0, met_a.size, CELL_SECTIONS + 1).astype(np.int64)
    of_sections = sums(met_b, cuts) - sums(met_a, cuts)
    # A section's count, in requests per second of the whole run.
    goodput, met = (goodput_b, met_b) if met_b.any() else (goodput_a, met_a)
    per_request = goodput / max(int(met.sum()), 1)
    error = of_sections.std(ddof=1) * math.sqrt(CELL_SECTIONS) * per_request
    half = float(students_t(LEVEL, CELL_SECTIONS) * error)
    return Difference(goodput_a, goodput_b, difference, difference - half, difference + half)


def _within(data: ViewData, limits_ms: dict[str, float]) -> np.ndarray:
    """Return which requests were served within all limits; a request of one token meets any TPOT limit."""
    result = data.result
    met: np.ndarray = result.status == Status.SERVED
    for column, limit_ms in limits_ms.items():
        met = met & ~(getattr(result, column) > limit_ms)
    return met
