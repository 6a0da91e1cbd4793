"""From what the controls say to all that the picture shows: a run, its heat map, its load curve."""

import functools
import math
import os
from collections.abc import Callable, Hashable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np

from batchsim._check import LARGEST
from batchsim.result import Result
from batchsim.result.comparison import compare
from batchsim.scenario import (
    ClosedLoop,
    Constant,
    Continuous,
    Gamma,
    OpenLoop,
    Poisson,
    Rule,
    Scenario,
    Tokens,
)
from batchsim.scenario.tokens import a_request
from batchsim.simulate import available, simulated
from batchsim.study.surface import LoadCurve, Surface, accepted, load_curve, load_rates, surface
from batchsim.study.token_curve import TokenCurve, token_curve
from batchsim.study.token_surface import MEMORY, TokenSurface, token_surface
from batchsim.theory.expected import theory_curve
from batchsim.view.canvas.scales import nice
from batchsim.view.explorer.controls_table import CONTROLS
from batchsim.view.explorer.controls_tokens import MAPS
from batchsim.view.explorer.kinds import KINDS
from batchsim.view.explorer.state import State
from batchsim.view.run.data import ViewData
from batchsim.view.run.token_data import TokenViewData

STORED = 32  # heat maps and curves


def recall(stored: dict[Hashable, Any], key: Hashable, make: Callable[[], Any]) -> Any:
    """Return what is stored under a key, or make and store it; the oldest is forgotten."""
    if key not in stored:
        made = make()
        while len(stored) >= STORED:
            stored.pop(next(iter(stored)))
        stored[key] = made
    return stored[key]


MOVING = 2000  # requests of everything while a slider is dragged
SEATS = (4, 8, 16, 24, 32, 48, 64, 96, 128, 256)
BUDGETS = (128, 256, 512, 768, 1024, 1536, 2048, 4096, 8192, 16_384)
SIZES = (1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 256)  # of whole batches
WAITS_MS = (0.0, 100.0, 200.0, 500.0, 1000.0, 2000.0, 3000.0, 5000.0, 10_000.0, math.inf)
MEMORIES = (8, 12, 16, 24, 32, 48, 64, 96, 128, 256)  # requests of the mean length that have room


def token_data(
    scenario: Scenario, requests: int, seed: int, ttft_objective_ms: float | None,
    tpot_objective_ms: float | None, stored: dict[Hashable, Any], moving: bool,
    knobs: tuple[str, str] | None = None,
) -> TokenViewData:  # fmt: skip
    """Run a scenario and return what there is to see of it; all of fewer requests while it is `moving`.

    `stored` is the explorer's: what a move leaves as it was is taken from there. `knobs` are those of the
    heat map, by default the rule's own. ValueError where the scenario makes no sense.
    """
    count = min(requests, MOVING) if moving else requests
    # The setting's load curve is the same whatever the rate.
    key = "tokens' curve", at_any_load(scenario), count, seed
    curve_of: Callable[[], TokenCurve] = functools.partial(token_curve, scenario, count, seed)
    if key not in stored and stored:
        # Its loops release Python's lock: the run itself is computed meanwhile. The first time they are
        # compiled, which only this thread may announce.
        curve_of = _aside(os.getpid()).submit(curve_of).result
    result, _ = simulated(scenario, count, seed)
    curve = recall(stored, key, curve_of)
    objectives_ms = ttft_objective_ms, tpot_objective_ms
    grid = _surface(scenario, count, seed, objectives_ms, stored, knobs, moving)
    return TokenViewData(result, grid, curve, ttft_ms=ttft_objective_ms, tpot_ms=tpot_objective_ms)


@functools.cache
def _aside(_: int) -> ThreadPoolExecutor:
    """Return a process's thread: a fork would inherit a pool without any."""
    return ThreadPoolExecutor(1, thread_name_prefix="batchsim-token-curve")


def at_any_load(scenario: Scenario) -> Scenario:
    """Return the scenario at one load, the same for all that differ in that alone."""
    workload = scenario.workload
    if isinstance(workload, ClosedLoop):
        return replace(scenario, workload=replace(workload, clients=1))
    one = accepted(lambda: workload.with_rate(1))
    return scenario if one is None else replace(scenario, workload=one)


def _surface(
    scenario: Scenario, requests: int, seed: int, objectives_ms: tuple[float | None, float | None],
    stored: dict[Hashable, Any], knobs: tuple[str, str] | None, moving: bool,
) -> TokenSurface:  # fmt: skip
    """Return the map of a scenario: it is the same wherever in it the present setting is."""
    rule = scenario.rule
    x, y = rule.map_knobs if knobs is None else knobs
    xs, ys = (token_axis(scenario, name) for name in (x, y))
    if None in objectives_ms:
        objectives_ms = None, None
    corner = accepted(lambda: replace(scenario, rule=replace(rule, **{x: xs[-1], y: ys[-1]})))  # type: ignore[type-var]
    key = "tokens' map", corner or scenario, x, xs, y, ys, requests, seed, objectives_ms, moving
    limits = dict(zip(("ttft_objective_ms", "tpot_objective_ms"), objectives_ms, strict=True))
    return recall(
        stored,
        key,
        lambda: token_surface(scenario, xs, ys, requests, seed, knobs=(x, y), roughly=moving, **limits),
    )


def token_axis(scenario: Scenario, name: str) -> tuple[float, ...]:
    """Return the heat map's values of a knob of a rule, rising.

    >>> from batchsim import Poisson, StepTime, Tokens
    >>> scenario = Scenario(Poisson(8), Continuous(), StepTime(7, 10, 0.1), tokens=Tokens(512, 128))
    >>> token_axis(scenario, "kv_blocks")
    (400, 500, 800, 1000, 1500, 2000, 3000, 4000, 6000, 12000)
    """
    if name == "max_num_seqs":
        return SEATS
    if name == "max_num_batched_tokens":
        return BUDGETS
    if name in ("max_batch_size", "min_batch_size"):
        return SIZES
    if name == "max_wait_ms":
        return WAITS_MS
    if name != MEMORY or not isinstance(scenario.rule, Continuous) or scenario.tokens is None:
        raise ValueError(
            f"a heat map of tokens has sizes, waits, seats, budget, memory, got {name} of {scenario.rule!r}"
        )
    blocks = a_request(scenario.tokens) / scenario.rule.block_size
    return tuple(sorted({max(int(nice(blocks * count)), 1) for count in MEMORIES}))


# Requests of each setting of the heat map. Traffic that drifts needs all: its beginning is not like the rest.
MAP_REQUESTS = {Poisson: 20_000, Constant: 20_000, Gamma: 20_000, ClosedLoop: 5_000}
CURVE_REQUESTS = 50_000  # and of each point of the load curve, where the traffic is as steady
POINTS = 12  # the most columns of the heat map, where the batch sizes are not more than powers of two
WAITS = (0, 0.005, 0.01, 0.02, 0.03, 0.05, 0.07, 0.1, 0.2, 0.3, 0.5)  # rows, as parts of the longest wait
TOKEN_REQUESTS = 20_000  # of a run of token generation at most, each with its hundreds of tokens
COMPARED = ("p50_ms", "p99_ms", "mean_latency_ms", "throughput_per_s", "utilisation", "mean_batch_size")
COMPARED_TOKENS = ("ttft_p50_ms", "ttft_p99_ms", "tpot_p50_ms", "tpot_p99_ms", "mean_latency_ms", "p99_ms",
    "output_tokens_per_s")  # fmt: skip


class Runner:
    """Runs the scenarios of an explorer, and stores what a move leaves as it was."""

    def __init__(self, requests: int, traffic: OpenLoop | None, tokens: Tokens | None = None) -> None:
        self.requests, self.given = requests, (traffic, tokens)
        self.stored: dict[Hashable, Any] = {}
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="batchsim-curve")

    def requests_of(self, state: State) -> int:
        """Return how many requests a run of a state has: as many as there are, of tokens not too many."""
        scenario = state.scenario(*self.given)
        if scenario.tokens is None:
            return available(scenario, self.requests)
        some = available(scenario, min(self.requests, TOKEN_REQUESTS))
        return min(some, scenario.tokens.max_requests or some)

    def run(self, state: State, pinned: ViewData | None = None, moving: bool = False) -> ViewData:
        """Run a state and return what there is to see of it. ValueError where it makes no sense.

        While it is `moving`, a run of token generation is shorter.
        """
        scenario, requests = state.scenario(*self.given), self.requests_of(state)
        if state.in_tokens:
            data = self._tokens(state, scenario, requests, moving)
        else:
            data = self._requests(state, scenario, requests)
        if pinned is None or not alike(pinned, data):
            return data
        comparison = None
        if not incomparable(pinned.result, data.result):
            # Silent: the table says where a run is too short.
            keys = COMPARED_TOKENS if state.in_tokens else COMPARED
            comparison = compare(pinned.result, data.result, keys, silent=True)
        return replace(data, pinned=pinned, comparison=comparison)

    def _requests(self, state: State, scenario: Scenario, requests: int) -> ViewData:
        # The setting's load curve is the same whatever the rate.
        key = "curve", state.replace(rate_per_s=1, clients=1, objective_ms=None)
        steady = type(scenario.workload) in MAP_REQUESTS
        count = min(requests, CURVE_REQUESTS) if steady else requests
        curve_of: Callable[[], LoadCurve] = functools.partial(load_curve, scenario, count, state.seed)
        if key not in self.stored and self.stored:
            # Its loops release Python's lock: theory, and the run itself, are computed meanwhile. The first
            # time they are compiled, which only this thread may announce.
            curve_of = self._thread.submit(curve_of).result
        theory = None
        if not isinstance(scenario.workload, ClosedLoop):
            rates, _ = load_rates(scenario)
            theory = theory_curve(scenario, np.union1d(rates, scenario.workload.offered_per_s))
        result, _ = simulated(scenario, requests, state.seed)
        curve = self._get(key, curve_of)
        grid = self._surface(state, scenario, requests)
        return ViewData(result, grid, curve, theory, state.objective_ms)

    def _tokens(self, state: State, scenario: Scenario, requests: int, moving: bool) -> ViewData:
        objectives_ms = state.ttft_objective_ms, state.tpot_objective_ms
        knobs = MAPS[state.token_map] if state.batching == "continuous" else None  # the rule's own
        return token_data(scenario, requests, state.seed, *objectives_ms, self.stored, moving, knobs)

    def _get(self, key: Hashable, make: Callable[[], Any]) -> Any:
        return recall(self.stored, key, make)

    def _surface(self, state: State, scenario: Scenario, requests: int) -> Surface:
        """Return the p99 of every setting: it is the same wherever in it the present setting is."""
        rule, workload = type(scenario.rule), scenario.workload
        largest = int(min(scenario.service.largest_batch, max(64, state.max_batch_size)))
        longest_ms = min(nice(4000 * scenario.service(min(largest, 64))), LARGEST)
        x, y = (axis(rule, name, largest, longest_ms) for name in rule.map_knobs)
        # What the map does not depend on: its own two knobs, and the parameters of other rules.
        own = set(rule.parameters()) - set(rule.map_knobs)
        rules = {name for kind in KINDS["rule"].values() for name in kind.controls}
        free = {name: CONTROLS[name].default for name in rules - own}
        key = state.replace(rule="size_or_wait", objective_ms=None, **free)
        requests = min(requests, MAP_REQUESTS.get(type(workload), requests))
        return self._get(("surface", rule, x, y, key), lambda: surface(scenario, x, y, requests, state.seed))


def alike(a: ViewData, b: ViewData) -> bool:
    """Return whether both are of token generation, or neither."""
    return (a.result.scenario.tokens is None) is (b.result.scenario.tokens is None)


def incomparable(a: Result, b: Result) -> str:
    """Return why two runs have no differences to speak of, "" where they do."""
    if (a.scenario.tokens is None) is not (b.scenario.tokens is None):
        return "Whole requests and tokens have nothing to compare: turn back, or pin anew."
    if not (a.metrics.served and b.metrics.served):
        return "A setting that serves no requests has no latency to compare."
    if not (a.scenario.stable and b.scenario.stable):
        return "An overloaded setting has no steady state to compare."
    if a.seed != b.seed:
        return f"Compared settings must share their traffic, got seeds {a.seed} and {b.seed}."
    sizes = f"{a.arrival_s.size:,} and {b.arrival_s.size:,}"
    same = a.arrival_s.size == b.arrival_s.size
    return "" if same else f"Compared settings must share their traffic, got {sizes} requests."


# The heat map's axes.


def axis(rule: type[Rule], name: str, largest: int, longest_ms: float) -> tuple[Any, ...]:
    """Return the heat map's values of a rule's parameter, rising."""
    parameter = rule.parameters()[name]
    if name.endswith("batch_size"):
        return sizes(largest)
    if name.endswith("_ms"):
        return waits(longest_ms)[: None if parameter.may_be_inf else -1]
    if parameter.slider is None:
        raise ValueError(f"a parameter on a heat map must have a slider, got {name}")
    low, high, step = parameter.slider
    values = {low + round(part * (high - low) / step) * step for part in np.linspace(0, 1, POINTS)}
    return tuple(int(value) if parameter.kind == "whole" else float(value) for value in sorted(values))


def sizes(largest: int) -> tuple[int, ...]:
    """Return the heat map's batch sizes: powers of two, and values between them where there is room.

    >>> sizes(64)
    (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
    >>> sizes(100)
    (1, 2, 4, 6, 8, 12, 16, 24, 32, 48, 64, 100)
    """
    powers = [1 << n for n in range(largest.bit_length())]
    between = [3 << n for n in range(largest.bit_length()) if 1.25 * (3 << n) <= largest]
    room = max(POINTS - len({*powers, largest}), 0)
    return tuple(sorted({*powers, *between[max(len(between) - room, 0) :], largest}))


def waits(longest_ms: float) -> tuple[float, ...]:
    """Return the heat map's waits in ms, the last for full batches only.

    >>> waits(100)
    (0.0, 0.5, 1.0, 2.0, 3.0, 5.0, 7.0, 10.0, 20.0, 30.0, 50.0, inf)
    """
    return (*(float(f"{part * longest_ms:.6g}") for part in WAITS), float("inf"))
