"""What engines of token generation carry at most: the rate at which they serve a queue that never empties.

It is in closed form where every seat turns over alike, and of whole batches. Else requests share steps,
budgets cut prompts, and memory sends requests back: then it is measured on engines that run so.

Where all lengths are the same, a seat keeps for ever the phase in which it began. The measured rate is the
mean over random phases, as Poisson arrivals make them: in 70 random settings, overloaded by 3 %, runs carried
the same within 1 % (decodes first) and 11 % (prompts first). A burst that fills every seat at once makes
seats turn in step: they carried up to 16 % less with decodes first, and from 4 % less to 71 % more with
prompts first, the more the shorter the requests. Where lengths vary, phases mix, and the start does not
matter.
"""

import functools
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from batchsim.scenario.rules import Rule
from batchsim.scenario.rules.continuous import Continuous
from batchsim.scenario.step_time import StepCost, StepTime
from batchsim.scenario.tokens import Lengths, Listed, Tokens, points
from batchsim.scenario.workload import ClosedLoop

MOST = 4096  # requests at once: with more, what a step takes beside its tokens is next to nothing
TOGETHER = 8  # engines that are run where memory sends from one to another: with more it is the same
# `load_to_tell` asks a short run first, and believes it this far from the arrival rate.
SURE = 0.06
CLEAR = 0.5, 1.3  # loads by the estimate, which is 5 % too low at worst and 45 % too high

# How to measure the rate where there is no formula, by kind of run. The engines fill it (`engines/kinds.py`),
# because this package imports no engine.
MEASURES: dict[str, Callable[..., Any]] = {}


class Saturation(NamedTuple):
    """Requests per second that engines carry at most, and the relative standard error; 0 in closed form."""

    per_s: float
    error: float


@functools.lru_cache(maxsize=256)
def saturation(rule: Rule, step: StepTime, tokens: Tokens, servers: int, roughly: bool = False) -> Saturation:
    """Return what engines carry at most; `roughly` to some 1.5 %, by an eighth of the run.

    An estimate, with an error of NaN, where so many run at once that a run would take too long, and where
    not even one request fits. Of fixed lengths the rate is that of random phases, and the error that of
    their mean; seats that turn in step carry another one (see above).
    """
    if (per_ms := _in_closed_form(rule, step, tokens)) is not None:
        return Saturation(1000 * servers * per_ms, 0.0)
    if not isinstance(rule, Continuous) or at_once(rule, tokens) <= MOST:
        together = _together(rule, tokens, servers, roughly)
        found = MEASURES["tokens"](
            _narrowed(rule, tokens), tokens, _alike(rule, step, together), together, roughly
        )
        if found is not None:
            per_ms, error = found.per_ms(step.cost)
            return Saturation(1000 * servers * per_ms, error)
    return Saturation(1000 * servers * _continuous(rule, step, tokens), math.nan)


def saturation_of(scenario: Any) -> Saturation:
    """Return what a scenario's engines carry at most."""
    return saturation(scenario.rule, scenario.service, scenario.tokens, scenario.servers)


def _together(rule: Rule, tokens: Tokens, servers: int, roughly: bool) -> int:
    """Return how many engines are run: several only where memory sends requests from one to another."""
    if not isinstance(rule, Continuous) or rule.kv_blocks is None or rule.reserve == "life":
        return 1
    if roughly:  # where decodes go first, it makes less than half a percent
        return min(servers, 3) if rule.first == "prefill" else 1
    return min(servers, TOGETHER, max(MOST // at_once(rule, tokens), 1))


def _narrowed(rule: Rule, tokens: Tokens) -> Rule:
    """Return the rule without seats for which there is no memory by far: settings alike are measured once."""
    if not isinstance(rule, Continuous) or rule.kv_blocks is None:
        return rule
    return replace(rule, max_num_seqs=min(rule.max_num_seqs, 2 * _by_memory(rule, tokens) + 16))


def _alike(rule: Rule, step: StepTime, servers: int) -> StepTime:
    """Return a step time with which engines serve the same in each step: one by itself with any."""
    cost = step.cost if servers > 1 else StepCost(0.0, 1.0, 0.0, 0.0, 0.0)
    return StepTime(*cost, ragged=step.ragged and not isinstance(rule, Continuous))


def load_to_tell(scenario: Any, roughly: bool) -> float:
    """Return a load that tells whether the queue stays finite: as exact as it takes, unless `roughly`."""
    if isinstance(scenario.workload, ClosedLoop) or scenario.limits[0].longest(1.0) < math.inf:
        return 0.0
    per_s = scenario.workload.offered_per_s
    load = per_s / estimate_per_s(scenario)
    if not CLEAR[0] < load < CLEAR[1]:
        return float(load)
    about = saturation(scenario.rule, scenario.service, scenario.tokens, scenario.servers, roughly=True)
    load = per_s / about.per_s
    return float(load if roughly or abs(load - 1) > SURE else per_s / saturation_of(scenario).per_s)


def estimate_per_s(scenario: Any) -> float:
    """Return about what engines carry, at once: under `Continuous` mostly too much where memory binds."""
    per_ms = _continuous if isinstance(scenario.rule, Continuous) else _whole
    return 1000 * scenario.servers * per_ms(scenario.rule, scenario.service, scenario.tokens)


def at_once(rule: Any, tokens: Tokens) -> int:
    """Return about how many requests run at once under `Continuous` while somebody always waits."""
    prompt, output = float(points(tokens.prompt).mean()), float(points(tokens.output).mean())
    # Each brings prompt + output - 1 tokens in about `output` steps, of which none has more than the budget.
    fed = math.ceil(rule.max_num_batched_tokens * output / (prompt + output - 1))
    return max(min(int(_seats(rule, tokens)), fed), 1)


def _seats(rule: Any, tokens: Tokens) -> float:
    """Return how many requests have seats and memory."""
    if rule.kv_blocks is None:
        return float(rule.max_num_seqs)
    return float(min(rule.max_num_seqs, _by_memory(rule, tokens)))


def _by_memory(rule: Any, tokens: Tokens) -> int:
    """Return how many requests of mean size the memory has room for, at least one."""
    prompt, outputs = float(points(tokens.prompt).mean()), points(tokens.output)
    output = float(outputs.mean())
    if rule.reserve == "step":  # the mean of what a request holds, over its steps
        held = prompt + float((outputs**2).mean()) / output / 2
    else:
        held = prompt + (tokens.limit or output) - 1
    return max(int(rule.kv_blocks // -(-held // rule.block_size)), 1)


def _in_closed_form(rule: Rule, step: StepTime, tokens: Tokens) -> float | None:
    """Return requests per ms where that is exact; None where it is not."""
    if not isinstance(rule, Continuous):
        listed = any(isinstance(each, Listed) for each in (tokens.prompt, tokens.output))
        return None if step.ragged and listed else _whole(rule, step, tokens)
    seats = _seats_alike(rule, tokens)
    if seats is None:
        return None
    prompt, output = int(points(tokens.prompt)[0]), int(points(tokens.output)[0])
    return one_a_step(step.cost, seats, prompt, output, rule.first == "prefill")


def _seats_alike(rule: Continuous, tokens: Tokens) -> int | None:
    """Return how many seats turn over alike, one prompt at a time and in one step; None if they do not."""
    prompt, output, budget = tokens.prompt, tokens.output, rule.max_num_batched_tokens
    if not rule.compiled or not isinstance(prompt, int) or not isinstance(output, int) or prompt == 1:
        return None
    seats = rule.max_num_seqs
    if rule.kv_blocks is not None:
        life = rule.reserve == "life"
        each = -(-(prompt + (tokens.limit or output if life else output) - 1) // rule.block_size)
        room = (rule.kv_blocks - (0 if life else rule.watermark_blocks)) // each
        if room < (1 if life else seats):
            return None
        seats = min(seats, room)
    beside = seats - 1 if rule.first == "decode" else 0
    fits = prompt + beside <= budget and prompt <= (rule.long_prefill_token_threshold or prompt)
    alone = seats == 1 or (not rule.chunked and budget < 2 * prompt)
    return seats if fits and alone and (rule.first == "prefill" or output >= seats) else None


def one_a_step(cost: StepCost, seats: int, prompt: int, output: int, prompts_alone: bool = False) -> float:
    """Return requests per ms of seats that turn over one after the other, each every `output` steps.

    A prompt is computed beside the other seats' decodes, or alone.
    """

    def products(count: int) -> float:
        return max(cost.weights_ms, cost.per_token_ms * count)

    if prompts_alone:
        steps, work = seats + output - 1, seats * products(prompt) + (output - 1) * products(seats)
    else:
        steps = output
        work = seats * products(prompt + seats - 1) + (output - seats) * products(seats)
    keys = cost.per_read_ms * (prompt * (output - 1) + output * (output - 1) / 2)
    keys += cost.per_pair_ms * prompt * (prompt + 1) / 2
    return seats / (steps * cost.fixed_ms + work + seats * keys)


def _continuous(rule: Any, step: StepTime, tokens: Tokens) -> float:
    """Return about how many requests per ms, all seats filled and each turning over every `output` steps."""
    prompts, outputs = points(tokens.prompt), points(tokens.output)
    prompt, output = float(prompts.mean()), float(outputs.mean())
    held = prompt * (output - 1)  # the sum of the prompt's keys over the decodes
    if isinstance(tokens.prompt, Listed) and isinstance(tokens.output, Listed):
        size = min(tokens.prompt.values.size, tokens.output.values.size)
        held = float((tokens.prompt.values[:size] * (tokens.output.values[:size] - 1.0)).mean())
    seats = _seats(rule, tokens)
    cost, budget = step.cost, float(rule.max_num_batched_tokens)

    def products(count: float) -> float:
        return max(cost.weights_ms, cost.per_token_ms * count)

    if rule.first == "prefill":  # prompts alone, one a step; then everyone's next token
        steps, work = seats + output - 1, seats * products(prompt) + (output - 1) * products(seats)
    elif output >= seats and prompt + seats - 1 <= budget:
        steps = output
        work = seats * products(prompt + seats - 1) + (output - seats) * products(seats)
    else:  # several prompts a step, or prompts cut by the budget
        in_all = seats * (prompt + output - 1)
        steps = max(output, in_all / budget)
        work = steps * products(in_all / steps)
    keys = cost.per_read_ms * (held + float((outputs * (outputs - 1)).mean()) / 2)
    keys += cost.per_pair_ms * float((prompts * (prompts + 1)).mean()) / 2
    return seats / (steps * cost.fixed_ms + work + seats * keys)


# Full batches, each as long as its longest output.


def _whole(rule: Rule, step: StepTime, tokens: Tokens) -> float:
    """Return requests per ms in full batches."""
    size, cost = rule.largest_batch, step.cost
    prompts, outputs = (_longest(each, size) for each in (tokens.prompt, tokens.output))
    if step.ragged:
        return size / (_prefill_ms(cost, size, tokens.prompt) + _ragged_ms(cost, size, tokens, outputs))
    tokens_ms = cost.per_token_ms * size * prompts
    keys_ms = np.where(prompts > 1, cost.per_pair_ms * prompts * (prompts + 1) / 2, cost.per_read_ms)
    batch_ms = cost.fixed_ms + float((np.maximum(cost.weights_ms, tokens_ms) + size * keys_ms).mean())
    steps = outputs - 1
    batch_ms += float(steps.mean()) * (cost.fixed_ms + max(cost.weights_ms, cost.per_token_ms * size))
    reads = _mean_product(tokens, prompts, steps) + float((steps * outputs).mean()) / 2
    return size / (batch_ms + cost.per_read_ms * size * reads)


def _longest(length: int | Lengths, size: int) -> np.ndarray:
    """Return equally likely values of the longest of so many; of listed ones, of so many in a row."""
    if not isinstance(length, Listed):
        return points(length, size)
    from scipy.ndimage import maximum_filter1d  # SciPy loads on first use

    some = np.tile(length.values, -(-size // length.values.size))
    return maximum_filter1d(some, size, mode="wrap").astype(float)


def _mean_product(tokens: Tokens, prompts: np.ndarray, steps: np.ndarray) -> float:
    if isinstance(tokens.prompt, Listed) and isinstance(tokens.output, Listed):
        size = min(prompts.size, steps.size)
        return float((prompts[:size] * steps[:size]).mean())
    return float(prompts.mean() * steps.mean())


def _prefill_ms(cost: StepCost, size: int, prompt: int | Lengths) -> float:
    """Return how long a step of prompts takes that are not padded."""
    from scipy.special import ndtr

    prompts = points(prompt)
    weights_ms, mean_ms = cost.weights_ms, cost.per_token_ms * size * float(prompts.mean())
    spread_ms = cost.per_token_ms * math.sqrt(size) * float(prompts.std())
    products_ms = max(weights_ms, mean_ms)
    if spread_ms > 0:  # the mean of the larger, where the sum is about normal
        z = (mean_ms - weights_ms) / spread_ms
        density = math.exp(-z * z / 2) / math.sqrt(2 * math.pi)
        products_ms = weights_ms + (mean_ms - weights_ms) * float(ndtr(z)) + spread_ms * density
    keys_ms = np.where(prompts > 1, cost.per_pair_ms * prompts * (prompts + 1) / 2, cost.per_read_ms)
    return cost.fixed_ms + products_ms + size * float(keys_ms.mean())


def _ragged_ms(cost: StepCost, size: int, tokens: Tokens, longest: np.ndarray) -> float:
    """Return how long the decodes take of a batch in which each computes its own output alone."""
    from scipy.special import bdtrc

    prompts, outputs = points(tokens.prompt), points(tokens.output)
    decodes_ms = (float(longest.mean()) - 1) * (cost.fixed_ms + cost.weights_ms)
    if cost.per_token_ms > 0:
        # Beyond `enough` rows the arithmetic takes longer than the weights: by how much, in all steps. Of
        # `size` independent outputs as many go on after so many tokens as are binomially distributed.
        enough = cost.weights_ms / cost.per_token_ms
        whole = math.floor(enough)
        if whole < size:
            ends = np.append(1.0, np.sort(outputs))
            share = 1 - np.arange(outputs.size) / outputs.size
            more = size * share * bdtrc(whole - 1, size - 1, share) - enough * bdtrc(whole, size, share)
            decodes_ms += cost.per_token_ms * float((np.diff(ends) * more).sum())
    reads = float(prompts.mean() * (outputs.mean() - 1)) + float((outputs * (outputs - 1)).mean()) / 2
    return decodes_ms + cost.per_read_ms * size * reads


# How many requests run at once, and how much their costs vary.


DEVIATIONS = 8  # standard normal ones, over which the moments of lengths are integrated


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
