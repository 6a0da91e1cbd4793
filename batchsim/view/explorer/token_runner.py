"""From a scenario of token generation to all that the picture shows: a run, its heat map, its load curve."""

import functools
import math
import os
from collections.abc import Callable, Hashable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

from batchsim.scenario import ClosedLoop, Continuous, Scenario
from batchsim.scenario.tokens import a_request
from batchsim.simulate import simulated
from batchsim.study.surface import accepted
from batchsim.study.token_curve import TokenCurve, token_curve
from batchsim.study.token_surface import MEMORY, TokenSurface, token_surface
from batchsim.view.canvas.axes import nice
from batchsim.view.explorer.stored import recall
from batchsim.view.pictures.data import TokenViewData

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
