"""Token generation in the explorer, in the words of the servers' own settings; its runs come from `runs`."""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from batchsim.engines.log import Status
from batchsim.engines.token_log import NO_TRIGGER
from batchsim.result.comparison import Difference
from batchsim.result.seats import beginning, seats, spells
from batchsim.result.sections import sums
from batchsim.result.shares import students_t
from batchsim.scenario import Continuous, Poisson, Scenario, StepTime, Tokens
from batchsim.scenario.fitting_parts import UNCOVERED
from batchsim.scenario.saturation import estimate_per_s
from batchsim.scenario.traffic import UNIT
from batchsim.servers import cards
from batchsim.servers.registry import TOKEN_SERVERS
from batchsim.servers.server import ServerConfig
from batchsim.simulate import available
from batchsim.study.paired import CELL_SECTIONS
from batchsim.study.slo import LEVEL, SLO
from batchsim.view.explorer import kind, reasons
from batchsim.view.explorer.control import DEVICE, GIVEN
from batchsim.view.explorer.kind import AState, Kind, Ranges, State
from batchsim.view.explorer.options import BATCHING, OUTPUTS, OWN, PROMPTS, ROUTINGS, STEPS
from batchsim.view.explorer.parts import Parts, Values, chosen, optional, same, unshown
from batchsim.view.explorer.requests import origin_of, tenth
from batchsim.view.explorer.rows import STEP
from batchsim.view.explorer.runs import Stored, run
from batchsim.view.film.clip import Clip, step_clip
from batchsim.view.film.film import PlayRange
from batchsim.view.film.lane_kinds import TokenLanes
from batchsim.view.film.token_film import TokenFilm
from batchsim.view.pictures.data import ViewData
from batchsim.view.pictures.seats import SeatsView, lanes_of

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
_step = {field.name: field.default for field in dataclasses.fields(StepTime) if field.kw_only}
_scenario = {field.name: field.default for field in dataclasses.fields(Scenario)}
PARTS: Parts = {
    **kind.PARTS,
    **{name: unshown(_scenario[name]) for name in UNCOVERED},
    "workload.priorities": unshown(None),
    "workload.sizes": unshown(None),
    "workload.size_unit": unshown(UNIT),
    "rule": chosen("batching", BATCHING),
    "rule.prefix_reuse": unshown(False),
    "service": chosen("step", STEPS)._replace(whole=True),
    **{f"service.{name}": unshown(usual) for name, usual in _step.items()},
    "service.captured": optional("captured"),
    "service.beyond_ms": same("beyond_ms"),
    "service.noise": kind.NOISE_PART,
    "tokens.prompt": chosen("prompts", PROMPTS),
    "tokens.output": chosen("outputs", OUTPUTS),
    "tokens.limit": same("limit"),
    "tokens.prefixes": unshown(None),
    "routing": kind.routing_part(ROUTINGS),
}
PAGES, INSTANTS = 4, 1000  # of a film of steps: its length in pages, and at most, as each has a sentence


class TokenGeneration(Kind):
    """Requests that generate tokens, step by step."""

    name = "tokens"
    parts = PARTS
    base = Scenario(Poisson(1), Continuous(), StepTime(1, 1, 1), tokens=Tokens(1, 1))
    others = "token_map", "ttft_objective_ms", "tpot_objective_ms", "itl_objective_ms"
    first: Mapping[str, Any] = {
        **STEPS[STEP].made([]).cost._asdict(), "rate_per_s": 7, "mean_burst_s": 10, "period_s": 600,
        "clients": 32, "max_wait_ms": 1000,
    }  # fmt: skip
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

    def fitting(self, state: AState, config: ServerConfig) -> AState:
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

    def clip(self, data: ViewData, server: int) -> Clip | None:
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
        clip = step_clip(film, stays, lanes_of(now), busy_s, stretch, page_s=page_s, title="The seats")
        clip.more["legend"] = TokenLanes.legend((), clip.lanes)
        return clip

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
