"""What a scenario of token generation must have, which requests it can serve, and how these vary."""

import functools
import math
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from batchsim.scenario.rules import AtLeast, Rule, SizeOrWait
from batchsim.scenario.rules.continuous import Continuous
from batchsim.scenario.step_time import StepTime
from batchsim.scenario.tokens import Lengths, Listed, Tokens

POINTS = 4096  # of a distribution of lengths: its mean is then exact to some 0.1 %
DEVIATIONS = 8  # standard normal ones, over which the moments of lengths are integrated


class NeverServed(ValueError):
    """A request that no run can serve, whatever else happens."""


def check_parts(scenario: Any) -> None:
    """Raise ValueError with the part that is missing, unless tokens, rule and service agree."""
    rule, service, tokens = scenario.rule, scenario.service, scenario.tokens
    if tokens is None:
        for part in (service, rule):
            if isinstance(part, (StepTime, Continuous)):
                raise ValueError(f"a {type(part).__name__} needs tokens=Tokens(prompt, output), got none")
        return
    if not isinstance(tokens, Tokens):
        raise TypeError(f"tokens must be a Tokens of batchsim, got {tokens!r}")
    if not isinstance(service, StepTime):
        raise ValueError(f"tokens need a StepTime as service, got {service!r}")
    if not isinstance(rule, (Continuous, SizeOrWait, AtLeast)):
        raise ValueError(f"tokens need Continuous, SizeOrWait or AtLeast as rule, got {rule!r}")
    if isinstance(rule, Continuous) and rule.max_model_len is not None:
        _check_model_len(rule.max_model_len, tokens)
    if scenario.workload.priorities is not None:
        raise ValueError(f"tokens do not cover priorities, got {scenario.workload!r}")
    apart = {
        "slowdown": None, "devices": None, "host_ms": 0.0, "contention": 1.0, "timeout_action": "reject",
    }  # fmt: skip
    for name, default in apart.items():
        if (value := getattr(scenario, name)) != default:
            raise ValueError(f"tokens do not cover {name}, got {name}={value!r}")


def _check_model_len(most: int, tokens: Tokens) -> None:
    """Raise ValueError, with lengths that would do, unless every prompt with its output or limit fits."""
    prompt, output = tokens.prompt, tokens.limit or tokens.output
    if isinstance(prompt, Listed) and isinstance(output, Listed):
        longest = int((prompt.values[: output.values.size] + output.values[: prompt.values.size]).max())
    else:
        longest = _longest(prompt) + _longest(output)
    if longest <= most:
        return
    parts = {"prompt": prompt, "output": output}
    can_cut = {name: part for name, part in parts.items() if hasattr(part, "at_most")}
    endless = {name: part for name, part in can_cut.items() if part.at_most is None}
    would = f"max_model_len={longest}"
    for tails in (endless, can_cut):
        room = most - sum(_longest(part) for name, part in parts.items() if name not in tails)
        if tails and room >= len(tails):  # shared as their means are
            means = [float(points(part).mean()) for part in tails.values()]
            cuts = [max(int(room * mean / sum(means)), 1) for mean in means]
            cuts[0] = room - sum(cuts[1:])
            would = " and ".join(
                f"at_most={cut} of the {name}" for name, cut in zip(tails, cuts, strict=True)
            )
            break
    rule = f"max_model_len, {most:,} tokens, must hold every prompt with its output"
    raise ValueError(f"{rule}, got up to {longest:,}: {would} would do")


def _longest(length: int | Lengths) -> int:
    return length.longest if isinstance(length, Lengths) else length


Chunks = Iterable[tuple[np.ndarray, np.ndarray, np.ndarray]]  # of prompts, outputs and limits


def check_lengths(scenario: Any, chunks: Callable[[], Chunks]) -> None:
    """Raise NeverServed with the first request that can never run: nobody behind it would either."""
    rule = scenario.rule
    if not isinstance(rule, Continuous) or (rule.kv_blocks is None and rule.chunked):
        return
    budget, life, short = rule.max_num_batched_tokens, rule.reserve == "life", False
    if rule.kv_blocks is not None:
        usable = rule.kv_blocks - (0 if life else rule.watermark_blocks)
        first = most = 0
        for prompts, outputs, limits in chunks():
            needed = prompts + (limits if life else outputs) - 1
            blocks = -(-needed // rule.block_size)
            for bad in np.flatnonzero(blocks > usable):
                got = f"{needed[bad]:,} tokens, {blocks[bad]:,} blocks, of request {first + bad:,}"
                fit = f"a request must fit into the memory, {usable:,} blocks of a server"
                raise NeverServed(f"{fit}, got {got}")
            first, most = first + prompts.size, max(most, int(blocks.max()))
        short = not life and min(rule.max_num_seqs, first) * most > rule.kv_blocks
    first = 0
    for prompts, outputs, _ in () if rule.chunked else chunks():
        # What a request that is preempted late computes again at once, where that may be.
        uncut = prompts + outputs - 1 if short else prompts
        pieces = np.minimum(uncut, rule.long_prefill_token_threshold or uncut)
        for bad in np.flatnonzero(pieces > budget):
            got = f"{pieces[bad]:,} tokens of request {first + bad:,}"
            raise NeverServed(f"a prompt that is not chunked must fit into the budget, {budget:,}, got {got}")
        first += prompts.size


def servable(rule: Rule, prompts: np.ndarray, outputs: np.ndarray, limits: np.ndarray) -> np.ndarray:
    """Return which requests can be served, as `check_lengths` says, among no others that cannot."""
    if not isinstance(rule, Continuous):
        return np.ones(prompts.size, bool)
    life, short, kept = rule.reserve == "life", False, np.ones(prompts.size, bool)
    if rule.kv_blocks is not None:
        blocks = -(-(prompts + (limits if life else outputs) - 1) // rule.block_size)
        kept = blocks <= rule.kv_blocks - (0 if life else rule.watermark_blocks)
        short = not life and rule.max_num_seqs * int(blocks[kept].max(initial=0)) > rule.kv_blocks
    if not rule.chunked:
        uncut = prompts + outputs - 1 if short else prompts
        kept &= np.minimum(uncut, rule.long_prefill_token_threshold or uncut) <= rule.max_num_batched_tokens
    return kept


@functools.lru_cache(maxsize=64)  # every setting of a map asks for the same
def points(length: int | Lengths, largest_of: int = 1) -> np.ndarray:
    """Return points of a distribution of lengths, or of the largest of so many."""
    if not isinstance(length, Lengths):
        return np.array([float(length)])
    return length.quantile(((np.arange(POINTS) + 0.5) / POINTS) ** (1 / largest_of)).astype(float)


def a_request(tokens: Tokens) -> float:
    """Return how many tokens the engines compute for a request, on average."""
    return float(points(tokens.prompt).mean() + points(tokens.output).mean()) - 1


def variety(rule: Rule, tokens: Tokens) -> tuple[float, float]:
    """Return the squared coefficient of variation of what requests cost, and that of its square.

    Of whole batches, which take as long as their longest output. What a request costs is between its steps
    and all its tokens: the larger counts.
    """
    whole = not isinstance(rule, Continuous)
    output = _moments(tokens.output, rule.largest_batch if whole else 1)
    mean, square, fourth = output
    varied = [square / mean**2 - 1]
    squared = [fourth / square**2 - 1]
    if not whole:
        prompt = _moments(tokens.prompt)
        variance = square - mean**2 + prompt[1] - prompt[0] ** 2
        varied.append(variance / (mean + prompt[0]) ** 2)
        squared.append(prompt[2] / prompt[1] ** 2 - 1)
    return max(*varied, 0.0), max(*squared, 0.0)


@functools.lru_cache(maxsize=64)
def _moments(length: int | Lengths, largest_of: int = 1) -> tuple[float, float, float]:
    """Return the means of a length, of its square and of its fourth power.

    Nearly all of the fourth power of heavy lengths lies beyond the last of the `points`: the integral runs
    over standard normal deviations.
    """
    from scipy.special import ndtr  # SciPy loads on first use

    if not isinstance(length, Lengths):
        return float(length), float(length) ** 2, float(length) ** 4
    deviations = np.linspace(-DEVIATIONS, DEVIATIONS, 1 + 200 * DEVIATIONS)
    below = np.minimum(ndtr(deviations) ** (1 / largest_of), 1 - 1e-15)
    weights = np.exp(-(deviations**2) / 2)
    values = length.quantile(below).astype(float)
    mean, square, fourth = (float(weights @ values**power / weights.sum()) for power in (1, 2, 4))
    return mean, square, fourth


def running(scenario: Any) -> float:
    """Return about how many requests run at once under `Continuous`, where nobody waits for a seat.

    Each runs for as many steps as it makes tokens, and a step takes the longer the more run.
    """
    return _running(scenario)[0]


def turnover(scenario: Any) -> float:
    """Return about how many requests pass until those that run at once are others, in their number too.

    Where steps take longer the more run, this number returns to its mean more slowly: one more request slows
    all others. Inf where the steps take so much longer that it does not return.
    """
    count, elasticity = _running(scenario)
    return count / (1 - elasticity) if elasticity < 1 else math.inf


def _running(scenario: Any) -> tuple[float, float]:
    """Return how many run at once, and by what part of 1 % a step takes longer with 1 % more of them."""
    rule, cost, tokens = scenario.rule, scenario.service.cost, scenario.tokens
    prompts, outputs = points(tokens.prompt), points(tokens.output)
    prompt, output = float(prompts.mean()), float(outputs.mean())
    per_ms, count, before = scenario.workload.offered_per_s / scenario.servers / 1000, 1.0, 0.0
    keys = cost.per_read_ms * (prompt + float((outputs**2).mean()) / output / 2)
    keys += cost.per_pair_ms * float((prompts**2).mean()) / 2 / output
    products = cost.per_token_ms * (prompt + output - 1) / output

    def growing_ms(count: float) -> float:
        return (products * count if products * count > cost.weights_ms else 0.0) + keys * count

    def step_ms(count: float) -> float:
        return cost.fixed_ms + max(cost.weights_ms, products * count) + keys * count

    while before < count < rule.max_num_seqs and count > before * 1.001:
        before, count = count, max(per_ms * output * step_ms(count), count)
    count = min(count, float(rule.max_num_seqs))
    return scenario.servers * count, growing_ms(count) / step_ms(count)
