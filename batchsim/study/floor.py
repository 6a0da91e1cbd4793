"""What a request of tokens takes alone on an engine: an objective below that is missed by every run."""

import functools
import math
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from batchsim import _format
from batchsim.engines.draws import length_seeds
from batchsim.engines.log import warmup_requests
from batchsim.result.metrics import LATENCY, TPOT, TTFT
from batchsim.result.value_columns import limits_of, part_of_limits
from batchsim.scenario import Continuous, Scenario, StepTime, Tokens
from batchsim.study.slo import SLO, Objective, described
from batchsim.study.traffic import WARMUP

REQUESTS = 100_000  # whose lengths are looked at
SURELY = 1.01  # times the limit: percentiles of so many lengths are known to less


class Missed(NamedTuple):
    """An objective that no run can meet: by which factor at least, and in words."""

    excess: float
    text: str


def out_of_reach(scenario: Scenario, slo: SLO, seed: int = 0) -> Missed | None:
    """Return the objective that every run of a scenario misses by most, None where none is known.

    Nothing is known of steps with noise, which may be as short as they like.

    >>> from batchsim import Poisson
    >>> tokens = Tokens(prompt=1000, output=100)
    >>> light = Scenario(Poisson(0.1), Continuous(), StepTime(2, 8, 0.1), tokens=tokens)
    >>> out_of_reach(light, SLO(ttft_p99_ms=50)).text
    'TTFT p99 is at least 102 ms, as of a request alone on an engine, above 50 ms'
    >>> out_of_reach(light, SLO(ttft_p99_ms=150)) is None
    True
    """
    if scenario.tokens is None or scenario.service.noise is not None:
        return None
    columns = alone_ms(scenario, *_lengths(scenario.tokens, seed))
    missed = []
    for objective in slo.objectives:
        best = _best(objective, columns, scenario.can_lose)
        if best is None or (excess := objective.excess(best)) < SURELY:
            continue
        label, unit, scale = described(objective.key)
        side, than = ("least", "above") if objective.at_most else ("most", "below")
        value = f"{_format.number(best * scale, 4)}{unit}"
        text = (
            f"{label} is at {side} {value}, as of a request alone on an engine, {than} {objective.limit_text}"
        )
        missed.append(Missed(excess, text))
    return max(missed, default=None)


def _best(objective: Objective, columns: Mapping[str, np.ndarray], can_lose: bool) -> float | None:
    """Return the best value that an objective's number can have; None where that is not known."""
    if objective.q is not None:
        values = columns[objective.column]
        values = values[~np.isnan(values)]
        return float(np.percentile(values, objective.q)) if values.size else None
    if limits_of(objective.key):
        return float((part_of_limits(columns, objective.key) <= 1).mean())
    if objective.key == "mean_latency_ms" and not can_lose:
        return float(columns[LATENCY].mean())
    return None


def alone_ms(scenario: Scenario, prompts: np.ndarray, outputs: np.ndarray) -> dict[str, np.ndarray]:
    """Return the least latency, TTFT and TPOT of requests of these lengths, in ms; TPOT NaN for one token.

    A prompt is cut into as few pieces as the budget allows. Company only adds to a step.
    """
    rule, service = scenario.rule, scenario.service
    assert isinstance(service, StepTime)
    fixed_ms, weights_ms, per_token_ms, per_read_ms, per_pair_ms = service.cost
    pieces = np.ones(prompts.size)
    if type(rule) is Continuous and rule.chunked:
        longest = min(rule.max_num_batched_tokens, rule.long_prefill_token_threshold or math.inf)
        pieces = np.ceil(prompts / longest)
    keys_ms = min(per_read_ms, per_pair_ms) * prompts * (prompts + 1) / 2
    ttft_ms = fixed_ms * pieces + np.maximum(weights_ms * pieces, per_token_ms * prompts) + keys_ms
    tpot_ms = fixed_ms + max(weights_ms, per_token_ms) + per_read_ms * (prompts + outputs / 2)
    latency_ms = ttft_ms + (outputs - 1) * tpot_ms
    return {LATENCY: latency_ms, TTFT: ttft_ms, TPOT: np.where(outputs > 1, tpot_ms, math.nan)}


@functools.lru_cache(maxsize=4)  # every setting of a search asks for the same
def _lengths(tokens: Tokens, seed: int) -> tuple[np.ndarray, np.ndarray]:
    count = min(REQUESTS, tokens.max_requests or REQUESTS)
    prompts, outputs, _ = tokens.draws(*length_seeds(seed))(count)
    skip = warmup_requests(WARMUP, count)
    return prompts[skip:], outputs[skip:]
