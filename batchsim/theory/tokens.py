"""Token generation: closed forms for steps that requests join and leave.

The times of steps are a `StepTime`'s. Means over distributed lengths use enough quantiles to be exact to some
0.1 %. Those over fixed lengths, and over lengths measured in pairs, are exact.

At light load there are bounds on the effect of other requests (`bounds`).

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
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from batchsim import _check
from batchsim.scenario import Continuous, Rule, StepTime, Tokens
from batchsim.scenario.lengths import LONGEST, Lengths, Listed
from batchsim.scenario.rules.continuous import RESERVE
from batchsim.scenario.saturation import one_a_step
from batchsim.theory.answer import Answer, UnsolvedError

QUANTILES = 1 << 16
IDLE = 0.01  # a slotted queue is solved where no more of its time is idle
OWN = "batchsim, batchsim/theory/tokens.py"  # where a formula, or a bound, is derived
TAKACS = "Takács 1962, Introduction to the Theory of Queues"
LITTLE = f"counting tokens, and Little's law ({OWN})"


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class TokenAnswer(Answer):
    """A steady state of token generation: an `Answer`, with the means of TTFT and TPOT.

    `mean_running` is the mean number of requests in a step, and `running_variance` its variance. For a closed
    loop, `rate_per_s` is the throughput. A mean that is not known well enough is NaN; `bounds` contain it.
    """

    mean_ttft_ms: float
    mean_tpot_ms: float
    mean_running: float = math.nan
    running_variance: float = math.nan
    output_tokens_per_s: float = math.nan
    closed: bool = False

    def summary(self) -> dict[str, float | bool]:
        """Return the numbers of this model, under the keys of `Result.summary()`."""
        numbers = super().summary()
        for name in ("mean_ttft_ms", "mean_tpot_ms", "output_tokens_per_s"):
            if not math.isnan(value := getattr(self, name)):
                numbers[name] = value
        return {key: each for key, each in numbers.items() if not (self.closed and key in GIVEN)}

    def _lines(self) -> list[str]:
        means = ("TTFT", self.mean_ttft_ms), ("TPOT", self.mean_tpot_ms)
        known = [f"{name} {ms:.6g} ms" for name, ms in means if not math.isnan(ms)]
        lines = super()._lines() + [f"tokens      {', '.join(known)} on average"] * bool(known)
        for name, (low, high) in self.bounds.items():
            lines.append(f"bounds      {name} {low:.6g} to {high:.6g}{', left out' * (name in self.loose)}")
        return lines


GIVEN = ("offered_per_s", "load")  # numbers that a closed loop does not have


def _check_service(service: Any) -> None:
    _check.instance("service", service, StepTime, "a StepTime")
    if not service.by_sums:
        must = "the service of a formula must be without speculation and captured sizes"
        raise ValueError(f"{must}, got {service!r}")


def request_alone(service: StepTime, tokens: Tokens, cut: int | None = None) -> TokenAnswer:
    """Return the times of requests that never meet another one: the limit of light load.

    The first token takes step(prompt), each later one a step of one row. `cut`: the most tokens of a prompt
    in one step; its pairs are the same in sum, so each further step costs little else than its fixed part.

    >>> easy = StepTime(2, 8, 0.1, 0.001, 0.00001)
    >>> alone = request_alone(easy, Tokens(prompt=100, output=5))
    >>> round(alone.mean_ttft_ms, 4), round(alone.mean_latency_ms, 4)
    (12.0505, 52.4605)
    >>> round(request_alone(easy, Tokens(100, 5), cut=64).mean_ttft_ms, 4)
    20.0505
    """
    _check_service(service)
    _check.instance("tokens", tokens, Tokens, "a Tokens")
    prompts, outputs = pairs(tokens)
    first_ms, later_ms = prompt_ms(service, prompts, cut), decodes_ms(service, prompts, outputs)
    longer = outputs > 1
    tpot_ms = float((later_ms[longer] / (outputs[longer] - 1)).mean()) if longer.any() else math.nan
    latency_ms = float((first_ms + later_ms).mean())
    return TokenAnswer(
        "requests alone", OWN, 0.0, 1000 / latency_ms, latency_ms, 0.0, 0.0, mean_running=1.0,
        mean_ttft_ms=float(first_ms.mean()), mean_tpot_ms=tpot_ms, output_tokens_per_s=0.0,
    )  # fmt: skip


def seats_filled(
    service: StepTime, seats: int, prompt: int, output: int, clients: int | None = None
) -> TokenAnswer:
    """Return the times of requests of one length if all seats are always taken, with one prompt in each step.

    That requires uncut prompts, a budget for one prompt with the decodes, prompt + seats - 1 tokens, but not
    for two, and a queue that is never empty. Then each seat gets a new request every `output` steps:

        period = output * fixed + seats * max(weights, per_token * (prompt + seats - 1))
                 + (output - seats) * max(weights, per_token * seats)
                 + per_read * seats * ((output - 1) * prompt + output * (output - 1) / 2)
                 + per_pair * seats * prompt * (prompt + 1) / 2

    and requests are served at seats / period. `clients`, more than the seats, are those of a closed loop
    without thinking time: by Little's law the latency is clients * period / seats. Without clients (overload)
    latencies grow without end, and are NaN. Raises ValueError unless output >= seats.

    >>> found = seats_filled(StepTime(6.88, 9.997, 0.09631, 1.922e-4, 1.225e-6), 32, prompt=300, output=100)
    >>> round(32000 / found.saturation_per_s, 5)
    2602.79276
    """
    _check_service(service)
    _check.whole("prompt", prompt, at_least=2)  # a row of one token is no prompt
    for name, value in (("seats", seats), ("output", output)):
        _check.whole(name, value)
    if output < seats:
        rule = "output must be at least the seats for one prompt a step"
        raise ValueError(f"{rule}, got {output} and {seats} seats")
    if clients is not None and _check.whole("clients", clients) <= seats:
        raise ValueError(f"clients must be more than the seats, {seats}, got {clients}")
    per_s = 1000 * one_a_step(service.cost, seats, prompt, output)
    period_ms = 1000 * seats / per_s
    # A step with a prompt finds the others, on average, halfway through their outputs.
    reads, pairs = (seats - 1) * (prompt + output / 2), prompt * (prompt + 1) / 2
    cost = service.cost
    first_ms = cost.fixed_ms + max(cost.weights_ms, cost.per_token_ms * (prompt + seats - 1))
    first_ms += cost.per_read_ms * reads + cost.per_pair_ms * pairs
    latency_ms = math.nan if clients is None else clients * period_ms / seats
    return TokenAnswer(
        "every seat filled, one prompt a step", LITTLE, per_s, per_s, latency_ms, latency_ms - period_ms, 1.0,
        seats, mean_ttft_ms=latency_ms - period_ms + first_ms,
        mean_tpot_ms=(period_ms - first_ms) / (output - 1) if output > 1 else math.nan,
        mean_running=seats, output_tokens_per_s=per_s * output, closed=clients is not None,
    )  # fmt: skip


def seats_by_memory(
    kv_blocks: int, prompt: int, output: int, block_size: int = 16, reserve: str = "life"
) -> int:
    """Return how many requests of one length run at once in `kv_blocks` blocks of an engine's memory.

    `reserve="life"` takes the blocks of prompt + output - 1 tokens on admission. `reserve="step"` takes
    blocks when they are needed: a request holds prompt + output / 2 tokens on average, so more run, at the
    price of preemption. Both round up to whole blocks. 0 if not even one request fits: `simulate` refuses it.

    >>> seats_by_memory(2587, 857, 653), seats_by_memory(2587, 857, 653, reserve="step")
    (27, 34)
    """
    kv_blocks = _check.whole("kv_blocks", kv_blocks)
    for name, value in (("prompt", prompt), ("output", output), ("block_size", block_size)):
        _check.whole(name, value)
    _check.one_of("reserve", reserve, RESERVE)
    whole = kv_blocks // math.ceil((prompt + output - 1) / block_size)
    if reserve == "life" or whole == 0:
        return whole
    return kv_blocks // math.ceil((prompt + output / 2) / block_size)


def slotted(rate_per_s: float, step_ms: float, output: int | Lengths) -> TokenAnswer:
    """Return the steady state of steps that all take the same time, with room for all requests.

    This is the M/G/infinity queue in slots: a request that arrives in a step joins the next one and stays for
    one step per token of its output. So the number running in a step is Poisson distributed with mean (and
    variance) rate * step * E[output], for any distribution of the outputs. A prompt waits for the rest of a
    step, half of one on average, and takes one. Exact if the engine is never idle, because an idle engine
    starts a step at once. Raises ValueError if it is idle more than 1 % of the time.

    >>> found = slotted(500, step_ms=10, output=40)
    >>> found.mean_running, found.mean_ttft_ms, found.mean_tpot_ms
    (200.0, 15.0, 10.0)
    """
    rate = _check.real("rate_per_s", rate_per_s, above=0)
    step = float(_check.real("step_ms", step_ms, above=0))
    outputs = values(output if isinstance(output, Lengths) else _check.whole("output", output))
    mean = float(outputs.mean())
    running, idle = rate * step / 1000 * mean, math.exp(-rate * step / 1000 * mean)
    if idle > IDLE:
        got = f"{running:.3g} at a step"
        raise ValueError(f"an engine must be busy {1 - IDLE:.0%} of the time or more, got {got}")
    answer = TokenAnswer(
        "M/G/∞ in slots", TAKACS, rate, math.inf,
        (0.5 + mean) * step, 0.5 * step, 1 - idle, running / (1 - idle), idle < 1e-6,
        mean_ttft_ms=1.5 * step, mean_tpot_ms=step if (outputs > 1).any() else math.nan, mean_running=running,
        running_variance=running, output_tokens_per_s=rate * mean,
    )  # fmt: skip
    if answer.exact:
        return answer
    # A request that finds an idle engine does not wait. The bounds allow for twice as many as in the slots.
    names = ("mean_ttft_ms", "mean_latency_ms", "utilisation", "mean_batch_size")
    values_of = ((name, float(getattr(answer, name))) for name in names)
    return replace(answer, bounds={name: (v * (1 - 2 * idle), v * (1 + 2 * idle)) for name, v in values_of})


def useful_share(output: int | Lengths, batch_size: int) -> float:
    """Return the fraction of a whole batch's rows that make requested tokens.

    A batch computes all its rows until the longest output is done: E[output] / E[longest of batch_size]. For
    equal lengths it is 1, for exponential ones 1 / (1 + 1/2 + ... + 1/B). If a step's time does not depend on
    its rows, continuous batching with as many seats is faster by the inverse.

    >>> from batchsim import Geometric
    >>> round(1 / useful_share(Geometric(200), 8), 2), useful_share(200, 8)
    (2.71, 1.0)
    """
    size = _check.whole("batch_size", batch_size)
    if not isinstance(output, Lengths):
        output = _check.whole("output", output)
    return float(values(output).mean() / values(output, size).mean())


def values(length: int | Lengths, largest_of: int = 1) -> np.ndarray:
    """Return equally likely values of a length, or of the largest of several."""
    if not isinstance(length, Lengths):
        return np.array([float(length)])
    if isinstance(length, Listed) and largest_of == 1:
        return length.values.astype(float)
    return length.quantile(((np.arange(QUANTILES) + 0.5) / QUANTILES) ** (1 / largest_of)).astype(float)


def pairs(tokens: Tokens) -> tuple[np.ndarray, np.ndarray]:
    """Return equally likely pairs of a prompt and an output, as two arrays of one shape."""
    lengths = tokens.prompt, tokens.output
    if all(isinstance(length, Listed) for length in lengths):
        size = min(length.values.size for length in lengths)  # type: ignore[union-attr]
        return tuple(length.values[:size].astype(float) for length in lengths)  # type: ignore[union-attr]
    # A lattice: evenly spaced in each length, and in both together.
    even, golden = (np.arange(QUANTILES) + 0.5) / QUANTILES, (math.sqrt(5) - 1) / 2
    spaced = even, even[np.argsort(np.argsort(np.arange(QUANTILES) * golden % 1))]
    found = [
        length.quantile(u).astype(float) if isinstance(length, Lengths) else np.array([float(length)])
        for length, u in zip(lengths, spaced, strict=True)
    ]
    return tuple(np.broadcast_arrays(*found))  # type: ignore[return-value]


def longest_cut(rule: Rule) -> int | None:
    """Return the most tokens of one prompt in a step; None if there is no limit."""
    if not isinstance(rule, Continuous):
        return None
    cut = min(
        rule.long_prefill_token_threshold or LONGEST, rule.max_num_batched_tokens if rule.chunked else LONGEST
    )
    return cut if cut < LONGEST else None


def prompt_ms(service: StepTime, prompts: np.ndarray, cut: int | None) -> np.ndarray:
    """Return the times of prompts alone, in steps of at most `cut` tokens, in ms."""
    cost, most = service.cost, LONGEST if cut is None else _check.whole("cut", cut)
    whole, rest = np.divmod(prompts, most)
    pairs = prompts * (prompts + 1) / 2
    # A row of one token reads its keys, as a decode does; for a longer one the pairs count.
    reads = pairs if most == 1 else np.where(rest == 1, prompts, 0.0)
    products_ms = whole * max(cost.weights_ms, cost.per_token_ms * most)
    products_ms += np.where(rest > 0, np.maximum(cost.weights_ms, cost.per_token_ms * rest), 0.0)
    steps_ms = (whole + (rest > 0)) * cost.fixed_ms + products_ms
    return steps_ms + cost.per_read_ms * reads + cost.per_pair_ms * (pairs - reads)


def decodes_ms(service: StepTime, prompts: np.ndarray, outputs: np.ndarray) -> np.ndarray:
    """Return the times of all tokens after the first, of a request alone, in ms."""
    cost, later = service.cost, outputs - 1
    each_ms = cost.fixed_ms + max(cost.weights_ms, cost.per_token_ms)
    return later * each_ms + cost.per_read_ms * later * (prompts + outputs / 2)


# Light load.

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
