"""From what the controls say to all that the picture shows: a run, its heat map, its load curve."""

import functools
from collections.abc import Callable, Hashable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np

from batchsim._check import LARGEST
from batchsim.result import Result
from batchsim.result.comparison import compare
from batchsim.scenario import ClosedLoop, OpenLoop, Rule, Scenario, Tokens
from batchsim.simulate import available, simulated
from batchsim.study.surface import LoadCurve, Surface, load_curve, load_rates, surface
from batchsim.theory.curve import theory_curve
from batchsim.view.canvas.scales import nice
from batchsim.view.explorer.controls_table import CONTROLS
from batchsim.view.explorer.controls_tokens import MAPS
from batchsim.view.explorer.kinds import KINDS
from batchsim.view.explorer.state import State
from batchsim.view.explorer.stored import recall
from batchsim.view.explorer.token_runner import token_data
from batchsim.view.run.data import ViewData

# Requests of each setting of the heat map. Traffic that drifts needs all: its beginning is not like the rest.
MAP_REQUESTS, CLIENTS_REQUESTS = 20_000, 5_000
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
        count = min(requests, CURVE_REQUESTS) if _steady(scenario.workload) else requests
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
        if _steady(workload):
            requests = min(requests, CLIENTS_REQUESTS if isinstance(workload, ClosedLoop) else MAP_REQUESTS)
        return self._get(("surface", rule, x, y, key), lambda: surface(scenario, x, y, requests, state.seed))


def _steady(workload: OpenLoop | ClosedLoop) -> bool:
    """Return whether the beginning of the traffic is like the rest."""
    return isinstance(workload, ClosedLoop) or workload.gamma_cv is not None


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
