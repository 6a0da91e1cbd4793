"""Token generation at light load: bounds on the effect of other requests.

A step of several requests takes no longer than separate steps for each of them. So a request delays another
one by at most the time of its own steps:

- the steps of its prompt, at their full price;
- the steps of its later tokens, also at their full price. If no request waits for a seat, memory or budget,
  at most the time that a token and its keys add to a step that the other request makes anyway. Then the
  other one also waits for the rest of the current step.

By Little's law, a request that arrives at random finds others that can delay it by rate * E[stay * cost], and
in each second of its own stay rate * E[cost] is added. Those stays are delayed themselves. Iterated from
requests alone, the sums rise to their least fixed point, which bounds the means. This assumes that a request
meets at most `_others` others. The probability of more is 1e-7, if the number present is Poisson distributed
with twice the mean of requests alone.
"""

import math
from typing import Any, NamedTuple

import numpy as np

from batchsim.scenario import Continuous
from batchsim.theory.answer import UnsolvedError
from batchsim.theory.tokens import decodes_ms, longest_cut, pairs, prompt_ms

OWN = "batchsim, batchsim/theory/light.py"  # where the bounds are derived
RARE = 1e-7
SOLVED = "steps are solved for requests one at a time, for full seats and at light load"
SURE = 8  # standard deviations of the memory of those present
ROUNDS, CLOSE = 500, 1e-9
Bounds = dict[str, tuple[float, float]]


def bounds(scenario: Any, wait_ms: float) -> Bounds:
    """Return bounds of the means of a scenario with Poisson arrivals, by metric, or raise UnsolvedError.

    `wait_ms`: how long a request alone waits for company.
    """
    rule, service, per_ms = scenario.rule, scenario.service, scenario.workload.offered_per_s / 1000
    noise = service.noise
    if noise is not None and noise.lasts:
        raise UnsolvedError(f"{SOLVED}: noise must be independent from step to step, got {noise}")
    prompts, outputs = pairs(scenario.tokens)
    alone_ms = prompt_ms(service, prompts, longest_cut(rule)) + decodes_ms(service, prompts, outputs)
    present = per_ms * float(alone_ms.mean() + wait_ms)
    others = _others(2 * present)
    if not (memory := _memory(scenario, prompts, outputs, alone_ms, others)) and rule.reserve == "step":
        enough = f"memory must be enough for {others + 1} requests, or some may be preempted"
        raise UnsolvedError(f"{SOLVED}: {enough}, got {rule!r}")
    rides = memory and _rides(rule, float(prompts.max()), others)
    costs = _costs(scenario, prompts, outputs, others, rides)
    rest = per_ms * (float(rides) + (0.0 if noise is None else noise.cv**2)) / 2
    stays = _stays(costs, per_ms, wait_ms, rest)
    if not per_ms * stays.all_ms.mean() < 2 * present:
        got = f"{present:.2g} of them in the system by their own times"
        raise UnsolvedError(f"{SOLVED}: requests must hardly meet, got {got}")
    return _by_metric(scenario, costs, stays, wait_ms)


def _others(mean: float) -> int:
    """Return the most others that a request meets, up to a probability of `RARE`."""
    from scipy.special import pdtrc  # SciPy loads on first use

    count = max(1, int(mean))
    while pdtrc(count, mean) > RARE:
        count += 1
    return count


def _memory(
    scenario: Any, prompts: np.ndarray, outputs: np.ndarray, alone_ms: np.ndarray, others: int
) -> bool:
    """Return whether a request finds memory, together with so many others."""
    rule = scenario.rule
    if not isinstance(rule, Continuous) or rule.kv_blocks is None:
        return True
    limits = outputs if rule.reserve == "step" else np.maximum(outputs, scenario.tokens.limit or 0)
    blocks = np.ceil((prompts + limits - 1) / rule.block_size)
    if min(others + 1, rule.max_num_seqs) * blocks.max() + rule.watermark_blocks <= rule.kv_blocks:
        return True
    mean, square = ((blocks**power * alone_ms).mean() / alone_ms.mean() for power in (1, 2))
    used = blocks.max() + others * mean + SURE * math.sqrt(others * square)
    return bool(used + rule.watermark_blocks <= rule.kv_blocks)


def _rides(rule: Any, longest: float, others: int) -> bool:
    """Return whether decodes of others never delay a request for lack of a seat, or of budget."""
    # Rules of single servers let prompts wait for a while.
    if type(rule) is not Continuous or others >= rule.max_num_seqs:
        return False
    longest = min(longest, rule.long_prefill_token_threshold or math.inf)
    return rule.chunked or longest + others <= rule.max_num_batched_tokens


class _Costs(NamedTuple):
    """The times of requests alone, and their costs to others; arrays over equally likely requests, in ms."""

    later: np.ndarray  # tokens after the first
    prompt_steps: np.ndarray
    first_ms: np.ndarray
    later_ms: np.ndarray
    squares: np.ndarray  # the sum over the steps, in ms^2
    largest_ms: np.ndarray  # step
    # The costs to others: the prompt, all later tokens, and one token in a step that others make anyway.
    prompt_cost: np.ndarray
    later_cost: np.ndarray
    ride_cost: np.ndarray
    # The additional effect of any others: before the first token, after it, and time that may be saved.
    again: np.ndarray
    later_again: np.ndarray
    early: np.ndarray


def _costs(scenario: Any, prompts: np.ndarray, outputs: np.ndarray, others: int, rides: bool) -> _Costs:
    rule, service = scenario.rule, scenario.service
    cost, cut, later = service.cost, longest_cut(rule), outputs - 1
    piece = prompts if cut is None else np.minimum(prompts, cut)
    steps, step_ms = np.ceil(prompts / piece), cost.fixed_ms + cost.weights_ms
    first_ms, later_ms = prompt_ms(service, prompts, cut), decodes_ms(service, prompts, outputs)
    prompt_cost, later_cost = first_ms, later_ms
    again = later_again = early = np.zeros(1)
    if not isinstance(rule, Continuous) and not service.ragged:
        # Padded to the longest prompt, and computed until the longest output is made.
        longest = np.array([prompts.max()]), np.array([outputs.max()])
        prompt_cost, later_cost = prompt_ms(service, longest[0], None), decodes_ms(service, *longest)
        again, later_again = prompt_cost - first_ms, later_cost - later_ms
    a_token = 0.0
    if isinstance(rule, Continuous) and rule.chunked:
        # A prompt may be cut once more for each budget that others use, and once more for the remainder.
        a_token = step_ms / rule.max_num_batched_tokens
        prompt_cost = prompt_cost + step_ms * steps
        if prompts.max() + others > rule.max_num_batched_tokens:
            again = np.full(1, step_ms)
            early = max(cost.per_read_ms, cost.per_pair_ms) * prompts  # a row of one token reads its keys
    if rides:
        later_cost = cost.per_token_ms * later + cost.per_read_ms * later * (prompts + outputs / 2)
    later_cost = later_cost + a_token * later
    ride_cost = cost.per_token_ms + a_token + cost.per_read_ms * (prompts + outputs) if rides else later_cost
    largest_ms = cost.fixed_ms + np.maximum(cost.weights_ms, cost.per_token_ms * piece)
    largest_ms = largest_ms + np.maximum(cost.per_pair_ms * piece, cost.per_read_ms) * prompts
    largest_ms = np.minimum(largest_ms, first_ms)
    decode_ms = cost.fixed_ms + max(cost.weights_ms, cost.per_token_ms)
    decode_ms = decode_ms + cost.per_read_ms * (prompts + outputs)
    return _Costs(
        later, steps, first_ms, later_ms, largest_ms * first_ms + decode_ms * later_ms,
        np.maximum(largest_ms, decode_ms), prompt_cost, later_cost, ride_cost, again, later_again, early,
    )  # fmt: skip


class _Stays(NamedTuple):
    """Bounds of the stays of requests by their lengths, in ms, and of the probability to meet another one."""

    first_ms: np.ndarray  # until the first token
    later_ms: np.ndarray  # from there on
    all_ms: np.ndarray
    met: np.ndarray


def _stays(of: _Costs, per_ms: float, wait_ms: float, rest: float) -> _Stays:
    """Return the least fixed point; `rest` times the squared steps in ms is the rest of the current one."""
    first_ms, later_ms = of.first_ms + wait_ms, of.later_ms
    all_ms, met = first_ms + later_ms, np.zeros(1)
    prompt, later, ride = (float(cost.mean()) for cost in (of.prompt_cost, of.later_cost, of.ride_cost))
    steps = of.prompt_steps + 1  # and the one under way
    for _ in range(ROUNDS):
        mean_ms = float(all_ms.mean())
        # The costs of the requests present: of those at their prompt, of all, and in each step.
        prompts = per_ms * float((first_ms * of.prompt_cost).mean())
        laters = per_ms * float((all_ms * of.later_cost).mean())
        rides = per_ms * float((all_ms * of.ride_cost).mean())
        met_first, met = (np.minimum(1, per_ms * (mean_ms + ms)) for ms in (first_ms, all_ms))
        first = prompts + np.minimum(steps * rides, laters) + met_first * of.again
        first = first + per_ms * first_ms * (prompt + np.minimum(steps * ride, later))
        more = prompts + np.minimum(of.later * rides, laters) + met * of.later_again
        more = more + per_ms * first_ms * (prompt + np.minimum(of.later * ride, later))
        more = np.where(of.later > 0, more + per_ms * later_ms * (prompt + later), 0.0)
        both = prompts + laters + met * (of.again + of.later_again) + per_ms * all_ms * (prompt + later)
        both = np.minimum(both, first + more)
        rest_ms = rest * float((of.squares + of.largest_ms * both).mean())
        first_ms, later_ms = of.first_ms + wait_ms + rest_ms + first, of.later_ms + more
        all_ms = of.first_ms + of.later_ms + wait_ms + rest_ms + both
        if not CLOSE < all_ms.mean() / mean_ms - 1 < 1:
            return _Stays(first_ms, later_ms, all_ms, met)
    return _Stays(first_ms, later_ms, all_ms * math.inf, met)


def _by_metric(scenario: Any, of: _Costs, stays: _Stays, wait_ms: float) -> Bounds:
    """Return the bounds of each metric from those of the stays."""
    met, per_ms, own_ms = stays.met, scenario.workload.offered_per_s / 1000, of.first_ms + of.later_ms
    alone_ms, least_ms = float(own_ms.mean()), float((own_ms - met * of.early).mean())
    early_ms = alone_ms - least_ms + wait_ms * float(met.mean())
    busy = float(((1 - met) * own_ms).mean())
    if wait_ms == 0:  # every request present is served: at least the time that requests alone would cover
        busy = max(busy, -math.expm1(-per_ms * least_ms) / per_ms)
    busiest = alone_ms + float((met * (of.again + of.later_again + of.prompt_cost - of.first_ms)).mean())
    steps = of.prompt_steps + of.later
    # Rows that others add: of prompts that are cut again, and of padding.
    padding = np.where(of.later_again > 0, of.later.max() - of.later, 0.0)
    rows = float((steps + met * (of.prompt_steps + padding)).mean())
    found = {
        "mean_ttft_ms": (float(of.first_ms.mean()) + wait_ms - early_ms, float(stays.first_ms.mean())),
        "mean_latency_ms": (alone_ms + wait_ms - early_ms, float(stays.all_ms.mean())),
        "mean_computing_ms": (least_ms, float(stays.all_ms.mean()) - wait_ms),
        "utilisation": (per_ms * busy / scenario.servers, per_ms * busiest / scenario.servers),
        "mean_batch_size": (1.0, rows / max(float(((1 - met) * steps).mean()), 1e-300)),
    }
    if (longer := of.later > 0).any():
        each_ms = (ms / np.maximum(of.later, 1) for ms in (of.later_ms, stays.later_ms))
        low_ms, high_ms = (float(np.broadcast_to(ms, longer.shape)[longer].mean()) for ms in each_ms)
        found["mean_tpot_ms"] = low_ms, high_ms
    return found
