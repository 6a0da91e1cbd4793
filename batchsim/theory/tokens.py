"""Token generation: closed forms for steps that requests join and leave.

The times of steps are a `StepTime`'s. Means over distributed lengths use enough quantiles to be exact to some
0.1 %. Those over fixed lengths, and over lengths measured in pairs, are exact.
"""

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from batchsim import _check
from batchsim.scenario import Continuous, Rule, StepTime, Tokens
from batchsim.scenario.lengths import LONGEST, Lengths, Listed
from batchsim.scenario.rules.continuous import RESERVE
from batchsim.scenario.saturation import one_a_step
from batchsim.theory.answer import Answer

QUANTILES = 1 << 16
IDLE = 0.01  # a slotted queue is solved where no more of its time is idle
OWN = "batchsim, batchsim/theory/tokens.py"  # where a formula is derived
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
