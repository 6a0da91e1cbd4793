"""The saturation rate: the rate at which servers, or engines of tokens, serve a queue that never empties.

Its names, in requests per second unless something else is said:

- `Scenario.saturation_per_s`: what `load` is relative to. A formula of full batches; for rules that read
  sizes, and for most settings of tokens, a run measures it, and `saturation_error` is the error of that.
- `Scenario.full_batches_per_s`: the rate of batches that are as full as they get, which decides `stable`. It
  differs from the saturation rate only where a smaller batch carries more.
- `Scenario.carried_per_s(rate)`: the rate of the batches that form at an arrival rate: those of rules that
  freeze or learn depend on it.
- `saturation_of(scenario)`: of tokens, the rate with its error; `roughly` takes an eighth of the run.
- `estimate_per_s(scenario)`: of tokens, without a run, for maps; usually too high where memory is short.
- `load_to_tell(scenario)`: of tokens, a load that is exact only as far as `stable` needs it.
- `full_batches(...)` in `scenario/full_batches.py`: of sized requests, the batches behind these rates.
- `MEASURES`: the runs for what has no formula, `engines/saturation.py`.

This module has the rate of token generation. It has a closed form where all seats turn over equally, and for
whole batches. Otherwise requests share steps, budgets cut prompts, and memory sends requests back; then a run
of such engines measures it.

If all lengths are the same, a seat keeps its initial phase for ever. The measured rate is the mean over
random phases, as from Poisson arrivals: in 70 random settings, overloaded by 3 %, runs had the same rate
within 1 % (decodes first) and 11 % (prompts first). A burst that fills every seat at once synchronises the
seats: the rate was up to 16 % lower with decodes first, and between 4 % lower and 71 % higher with prompts
first, most for short requests. If lengths vary, phases mix, and the start does not matter.
"""

import functools
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from batchsim.scenario.lengths import Lengths, Listed, points
from batchsim.scenario.prefixes import PrefixGroups
from batchsim.scenario.rules import Rule
from batchsim.scenario.rules.continuous import Continuous
from batchsim.scenario.step_time import StepCost, StepTime, step_ms
from batchsim.scenario.tokens import Tokens
from batchsim.scenario.workload import ClosedLoop

MOST = 4096  # requests at once: with more, a step's time without its tokens is negligible
TOGETHER = 8  # engines in a run where memory moves requests between them: more give the same rate
# `load_to_tell` tries a short run first, and trusts it at least this far from a load of 1.
SURE = 0.06
UNSEEN = 0.1  # of the requests: with so few of new groups a prefix cache is nearly full
CLEAR = 0.5, 1.3  # loads by the estimate, which is 5 % too low at worst and 45 % too high

# How to measure the rate where there is no formula, by kind of run. The engines fill it (`engines/kinds.py`),
# because this package imports no engine.
MEASURES: dict[str, Callable[..., Any]] = {}


class Saturation(NamedTuple):
    """The highest throughput in requests per second, and its relative standard error; 0 in closed form."""

    per_s: float
    error: float


@functools.lru_cache(maxsize=256)
def saturation(rule: Rule, step: StepTime, tokens: Tokens, servers: int, roughly: bool = False) -> Saturation:
    """Return the saturation rate; `roughly`: to about 1.5 %, from an eighth of the run.

    It is an estimate, with an error of NaN, if too many requests run at once for a run to be quick,
    or if not even one request fits. For fixed lengths it is the mean over random phases, with that mean's
    error; synchronised seats have a different rate (see above).
    """
    if (per_ms := _in_closed_form(rule, step, tokens)) is not None:
        return Saturation(1000 * servers * per_ms, 0.0)
    if not isinstance(rule, Continuous) or at_once(rule, tokens) <= MOST:
        together = _together(rule, tokens, servers, roughly)
        narrowed = rule
        shorten = step.captured is None and not shares(rule, tokens)
        if isinstance(rule, Continuous) and rule.kv_blocks is not None and shorten:
            # Seats far beyond the memory are never used: equivalent settings share one run. But they decide
            # which sizes are captured.
            narrowed = replace(rule, max_num_seqs=min(rule.max_num_seqs, 2 * _by_memory(rule, tokens) + 16))
        found = MEASURES["tokens"](narrowed, tokens, _alike(rule, step, together), together, roughly)
        if found is not None:
            per_ms, error = found.per_ms(step, _timed(rule, step))
            return Saturation(1000 * servers * per_ms, error)
    return Saturation(1000 * servers * _estimated(rule, step, tokens), math.nan)


def saturation_of(scenario: Any, roughly: bool = False) -> Saturation:
    """Return the saturation rate of a scenario's engines, those of all replicas."""
    found = saturation(scenario.rule, scenario.service, scenario.tokens, scenario.servers, roughly)
    return found._replace(per_s=scenario.most_replicas * found.per_s)


def _together(rule: Rule, tokens: Tokens, servers: int, roughly: bool) -> int:
    """Return the number of engines in the run: several only if memory moves requests between them."""
    if not isinstance(rule, Continuous) or rule.kv_blocks is None or rule.reserve == "life" or rule.wait_ms:
        return 1
    if roughly:  # with decodes first, the difference is less than half a percent
        return min(servers, 3) if rule.first == "prefill" else 1
    return min(servers, TOGETHER, max(MOST // at_once(rule, tokens), 1))


def _timed(rule: Rule, step: StepTime) -> bool:
    """Return whether the times of a run count, and not only what its steps compute."""
    return not step.by_sums or (isinstance(rule, Continuous) and rule.wait_ms > 0)


def _alike(rule: Rule, step: StepTime, servers: int) -> StepTime:
    """Return a step time under which steps serve the same requests: any, for a single engine."""
    if _timed(rule, step):
        return replace(step, noise=None)
    cost = step.cost if servers > 1 else StepCost(0.0, 1.0, 0.0, 0.0, 0.0)
    return StepTime(*cost, ragged=step.ragged and not isinstance(rule, Continuous))


def shares(rule: Rule, tokens: Tokens | None) -> bool:
    """Return whether prompts find the common beginning of others in memory, which formulas do not cover."""
    reuses = isinstance(rule, Continuous) and rule.reuses
    return reuses and tokens is not None and tokens.prefixes is not None


def load_to_tell(scenario: Any, roughly: bool) -> float:
    """Return a load that decides whether the queue stays finite: exact if necessary, unless `roughly`."""
    if isinstance(scenario.workload, ClosedLoop) or scenario.limits[0].longest(1.0) < math.inf:
        return 0.0
    count = scenario.most_replicas  # the one with most requests decides
    per_s = scenario.workload.offered_per_s * scenario.router.hottest(count) * count
    load = per_s / estimate_per_s(scenario)
    unclear = not scenario.service.by_sums or (shares(scenario.rule, scenario.tokens) and load > 1)
    if not CLEAR[0] < load < CLEAR[1] and not unclear:
        return float(load)
    load = per_s / saturation_of(scenario, roughly=True).per_s
    return float(load if roughly or abs(load - 1) > SURE else per_s / saturation_of(scenario).per_s)


def _mean_cost(step: StepTime) -> StepCost:
    """Return the cost of a step; with speculation, about that of a step that is mostly decodes."""
    fixed_ms, weights_ms, per_token_ms, per_read_ms, per_pair_ms = step.cost
    made = step.tokens_a_step
    return StepCost(
        (fixed_ms + step.draft_ms) / made, weights_ms / made, per_token_ms * (1 + step.draft) / made,
        per_read_ms / made, per_pair_ms,
    )  # fmt: skip


def estimate_per_s(scenario: Any) -> float:
    """Return an immediate estimate of the saturation rate: usually too high if memory binds `Continuous`."""
    per_ms = _estimated(scenario.rule, scenario.service, scenario.tokens)
    return 1000 * scenario.all_servers * per_ms


def _estimated(rule: Any, step: StepTime, tokens: Tokens) -> float:
    """Return an estimate of the requests per millisecond of one server."""
    if isinstance(rule, Continuous) and rule.wait_ms:
        spare_ms = step.fixed_ms + step.weights_ms if rule.overlap else 0.0  # type: ignore[attr-defined]
        step = replace(step, fixed_ms=step.fixed_ms + max(rule.wait_ms - spare_ms, 0.0))
    per_ms = (_continuous if isinstance(rule, Continuous) else _whole)(rule, step, tokens)
    # Most steps are full ones of decodes: captured sizes change their time by a factor.
    count = at_once(rule, tokens) if isinstance(rule, Continuous) else rule.largest_batch
    plain = replace(step, captured=None, beyond_ms=0)
    return per_ms * (_decodes_ms(plain, rule, count) / _decodes_ms(step, rule, count))


def _decodes_ms(step: StepTime, rule: Rule, count: int) -> float:
    """Return the time of a step of so many decodes, without keys."""
    return step_ms(step.whole_cost(rule.largest_batch), count, 0, 0, count)


def at_once(rule: Any, tokens: Tokens) -> int:
    """Return about how many requests run at once under `Continuous` while others always wait."""
    prompt, output = float(points(tokens.prompt).mean()), float(points(tokens.output).mean())
    # Each computes prompt + output - 1 tokens in about `output` steps, and no step exceeds the budget.
    fed = math.ceil(rule.max_num_batched_tokens * output / (prompt + output - 1))
    return max(min(int(_seats(rule, tokens)), fed), 1)


def _seats(rule: Any, tokens: Tokens) -> float:
    """Return the number of requests with seats and memory."""
    if rule.kv_blocks is None:
        return float(rule.max_num_seqs)
    return float(min(rule.max_num_seqs, _by_memory(rule, tokens)))


def _by_memory(rule: Any, tokens: Tokens) -> int:
    """Return the number of requests of mean size that fit into the memory, at least one."""
    prompt, outputs = float(points(tokens.prompt).mean()), points(tokens.output)
    output = float(outputs.mean())
    if rule.reserve == "step":  # a request's mean memory over its steps
        held = prompt + float((outputs**2).mean()) / output / 2
    else:
        held = prompt + (tokens.limit or output) - 1
    return max(int(rule.kv_blocks // -(-held // rule.block_size)), 1)


def _in_closed_form(rule: Rule, step: StepTime, tokens: Tokens) -> float | None:
    """Return requests per ms if there is an exact formula, else None."""
    if shares(rule, tokens) or not step.by_sums:
        return None
    if not isinstance(rule, Continuous):
        listed = any(isinstance(each, Listed) for each in (tokens.prompt, tokens.output))
        return None if step.ragged and listed else _whole(rule, step, tokens)
    seats = _seats_alike(rule, tokens)
    if seats is None:
        return None
    prompt, output = int(points(tokens.prompt)[0]), int(points(tokens.output)[0])
    return one_a_step(step.cost, seats, prompt, output, rule.first == "prefill")


def _seats_alike(rule: Continuous, tokens: Tokens) -> int | None:
    """Return the number of seats if they turn over equally, one prompt a step and uncut, else None."""
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


def _steps_and_work(
    cost: StepCost, seats: float, prompt: float, output: float, prompts_alone: bool, budget: float = math.inf
) -> tuple[float, float]:
    """Return the steps in which every seat turns over once, and the time of their products in ms."""

    def products(count: float) -> float:
        return max(cost.weights_ms, cost.per_token_ms * count)

    if prompts_alone:  # one a step; then a token for each
        return seats + output - 1, seats * products(prompt) + (output - 1) * products(seats)
    if output >= seats and prompt + seats - 1 <= budget:
        return output, seats * products(prompt + seats - 1) + (output - seats) * products(seats)
    # Several prompts a step, or prompts cut by the budget.
    in_all = seats * (prompt + output - 1)
    steps = max(output, in_all / budget)
    return steps, steps * products(in_all / steps)


def one_a_step(cost: StepCost, seats: int, prompt: int, output: int, prompts_alone: bool = False) -> float:
    """Return requests per ms of seats that turn over one after the other, each every `output` steps.

    A prompt is computed together with the other seats' decodes, or alone.
    """
    steps, work = _steps_and_work(cost, seats, prompt, output, prompts_alone)
    keys = cost.per_read_ms * (prompt * (output - 1) + output * (output - 1) / 2)
    keys += cost.per_pair_ms * prompt * (prompt + 1) / 2
    return seats / (steps * cost.fixed_ms + work + seats * keys)


def _continuous(rule: Any, step: StepTime, tokens: Tokens) -> float:
    """Return about how many requests per ms, with all seats filled and turning over every `output` steps."""
    prompts, outputs = points(tokens.prompt), points(tokens.output)
    prompt, output = float(prompts.mean()), float(outputs.mean())
    held = prompt * (output - 1)  # the sum of the prompt's keys over the decodes
    if isinstance(tokens.prompt, Listed) and isinstance(tokens.output, Listed):
        size = min(tokens.prompt.values.size, tokens.output.values.size)
        held = float((tokens.prompt.values[:size] * (tokens.output.values[:size] - 1.0)).mean())
    seats = _seats(rule, tokens)
    cost, budget = _mean_cost(step), float(rule.max_num_batched_tokens)
    steps, work = _steps_and_work(cost, seats, prompt, output, rule.first == "prefill", budget)
    keys = cost.per_read_ms * (held + float((outputs * (outputs - 1)).mean()) / 2)
    keys += cost.per_pair_ms * float((prompts * (prompts + 1)).mean()) / 2
    return seats / (steps * cost.fixed_ms + work + seats * keys)


# Full batches, each as long as its longest output.


def _whole(rule: Rule, step: StepTime, tokens: Tokens) -> float:
    """Return requests per ms in full batches."""
    size, cost = rule.largest_batch, _mean_cost(step)
    prompts, outputs = (longest_among(each, size) for each in (tokens.prompt, tokens.output))
    if step.ragged:
        return size / (_prefill_ms(cost, size, tokens.prompt) + _ragged_ms(cost, size, tokens, outputs))
    tokens_ms = cost.per_token_ms * size * prompts
    keys_ms = np.where(prompts > 1, cost.per_pair_ms * prompts * (prompts + 1) / 2, cost.per_read_ms)
    batch_ms = cost.fixed_ms + float((np.maximum(cost.weights_ms, tokens_ms) + size * keys_ms).mean())
    steps = outputs - 1
    batch_ms += float(steps.mean()) * (cost.fixed_ms + max(cost.weights_ms, cost.per_token_ms * size))
    reads = _mean_product(tokens, prompts, steps) + float((steps * outputs).mean()) / 2
    return size / (batch_ms + cost.per_read_ms * size * reads)


def longest_among(length: int | Lengths, size: int) -> np.ndarray:
    """Return equally likely lengths of the longest of `size` requests: consecutive ones, if listed."""
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
    """Return the time of a step of prompts without padding."""
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
    """Return the time of a batch's decodes if each request computes only its own output."""
    from scipy.special import bdtrc

    prompts, outputs = points(tokens.prompt), points(tokens.output)
    decodes_ms = (float(longest.mean()) - 1) * (cost.fixed_ms + cost.weights_ms)
    if cost.per_token_ms > 0:
        # Above `enough` rows the arithmetic takes longer than the weights; this sums the difference over all
        # steps. The number of `size` independent outputs that exceed a length is binomially distributed.
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


DEVIATIONS = 8  # the range of the integral over standard normal deviations


def running(scenario: Any) -> float:
    """Return about how many requests run at once under `Continuous` if seats are always free.

    Each runs for as many steps as it generates tokens, and steps take longer with more running requests.
    """
    return _running(scenario)[0]


def requests_to_fill(scenario: Any) -> float:
    """Return after about how many requests the prefix caches of all engines are nearly full; 0: not known."""
    rule, tokens = scenario.rule, scenario.tokens
    if not shares(rule, tokens) or not isinstance(tokens.prefixes, PrefixGroups):
        return 0.0
    blocks = math.inf if rule.kv_blocks is None else rule.kv_blocks
    pieces = blocks * rule.block_size / tokens.prefixes.piece_tokens
    return scenario.servers * filled_by(tokens.prefixes, pieces)


@functools.lru_cache(maxsize=16)
def filled_by(groups: PrefixGroups, room: float) -> float:
    """Return by how many requests, a power of 2, there is no room for more groups, or few are still new."""
    share, requests = np.diff(groups.shares, prepend=0.0), 1
    with np.errstate(divide="ignore"):  # the only group
        logarithms = np.log1p(-share)
    while (seen := -np.expm1(requests * logarithms)).sum() < room and share @ (1 - seen) > UNSEEN:
        requests *= 2
    return float(requests)


def turnover(scenario: Any) -> float:
    """Return about how many requests pass until the number of running requests forgets its past.

    If steps take longer with more running requests, this number returns to its mean more slowly: one more
    request slows all others. Inf if steps take so much longer that it does not return.
    """
    count, elasticity = _running(scenario)
    return count / (1 - elasticity) if elasticity < 1 else math.inf


def _running(scenario: Any) -> tuple[float, float]:
    """Return the number of running requests, and the elasticity of a step's time to that number."""
    rule, cost, tokens = scenario.rule, scenario.service.cost, scenario.tokens
    prompts, outputs = points(tokens.prompt), points(tokens.output)
    prompt, output = float(prompts.mean()), float(outputs.mean())
    per_ms, count, before = scenario.workload.offered_per_s / scenario.servers / 1000, 1.0, 0.0
    keys = cost.per_read_ms * (prompt + float((outputs**2).mean()) / output / 2)
    keys += cost.per_pair_ms * float((prompts**2).mean()) / 2 / output
    products = cost.per_token_ms * (prompt + output - 1) / output

    def mean_ms(count: float) -> float:
        own_ms = cost.fixed_ms + max(cost.weights_ms, products * count) + keys * count
        if scenario.service.by_sums:
            return own_ms
        return max(own_ms, _decodes_ms(scenario.service, rule, math.ceil(count)))

    while before < count < rule.max_num_seqs and count > before * 1.001:
        before, count = count, max(per_ms * output * mean_ms(count), count)
    count = min(count, float(rule.max_num_seqs))
    growing_ms = (products * count if products * count > cost.weights_ms else 0.0) + keys * count
    return scenario.servers * count, growing_ms / mean_ms(count)


def variety(rule: Rule, tokens: Tokens) -> tuple[float, float]:
    """Return the squared coefficient of variation of requests' costs, and that of their squares.

    The cost of a request is between its steps and all its tokens; the larger value counts. Whole batches take
    as long as their longest output.
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

    For heavy-tailed lengths nearly all of the fourth power lies beyond the last of the `points`, so the
    integral runs over standard normal deviations.
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
