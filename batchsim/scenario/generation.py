"""What a scenario of token generation must have, and what its engines can carry at most."""

import functools
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from batchsim.scenario.rules import AtLeast, Rule, SizeOrWait
from batchsim.scenario.rules.continuous import Continuous
from batchsim.scenario.step_time import StepTime
from batchsim.scenario.tokens import Lengths, Listed, Tokens

POINTS = 4096  # of a distribution of lengths: its moments are then exact to some 0.1 %


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
    if scenario.workload.priorities is not None:
        raise ValueError(f"tokens do not cover priorities, got {scenario.workload!r}")
    apart = {
        "slowdown": None, "devices": None, "host_ms": 0.0, "contention": 1.0, "timeout_action": "reject",
    }  # fmt: skip
    for name, default in apart.items():
        if (value := getattr(scenario, name)) != default:
            raise ValueError(f"tokens do not cover {name}, got {name}={value!r}")


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


@functools.lru_cache(maxsize=64)  # every setting of a map asks for the same
def _points(length: int | Lengths, largest_of: int = 1) -> np.ndarray:
    """Return points of a distribution of lengths, or of the largest of so many."""
    if not isinstance(length, Lengths):
        return np.array([float(length)])
    return length.quantile(((np.arange(POINTS) + 0.5) / POINTS) ** (1 / largest_of)).astype(float)


def a_request(tokens: Tokens) -> float:
    """Return how many tokens the engines compute for a request, on average."""
    return float(_points(tokens.prompt).mean() + _points(tokens.output).mean()) - 1


def variety(rule: Rule, tokens: Tokens) -> tuple[float, float]:
    """Return the squared coefficient of variation of what requests cost, and that of its square.

    Of whole batches, which take as long as their longest output. What a request costs is between its steps
    and all its tokens: the larger counts.
    """
    whole = not isinstance(rule, Continuous)
    outputs = _points(tokens.output, rule.largest_batch if whole else 1)
    prompts = np.zeros(1) if whole else _points(tokens.prompt)
    of_steps = outputs.var() / outputs.mean() ** 2
    of_tokens = (outputs.var() + prompts.var()) / (outputs.mean() + prompts.mean()) ** 2
    longer = (each for each in (outputs, prompts) if each.any())
    squares = max((each**4).mean() / (each**2).mean() ** 2 - 1 for each in longer)
    return float(max(of_steps, of_tokens)), float(squares)


def running(scenario: Any) -> float:
    """Return about how many requests run at once under `Continuous`, where nobody waits for a seat.

    Each runs for as many steps as it makes tokens, and a step takes the longer the more run.
    """
    rule, cost, tokens = scenario.rule, scenario.service.cost, scenario.tokens
    prompts, outputs = _points(tokens.prompt), _points(tokens.output)
    prompt, output = float(prompts.mean()), float(outputs.mean())
    per_ms, count, before = scenario.workload.offered_per_s / scenario.servers / 1000, 1.0, 0.0
    keys = cost.per_read_ms * (prompt + float((outputs**2).mean()) / output / 2)
    keys += cost.per_pair_ms * float((prompts**2).mean()) / 2 / output
    while before < count < rule.max_num_seqs and count > before * 1.001:
        products_ms = max(cost.weights_ms, cost.per_token_ms * count * (prompt + output - 1) / output)
        step_ms = cost.fixed_ms + products_ms + keys * count
        before, count = count, max(per_ms * output * step_ms, count)
    return scenario.servers * min(count, float(rule.max_num_seqs))


@functools.lru_cache(maxsize=256)
def saturation_per_s(rule: Rule, step: StepTime, tokens: Tokens, servers: int) -> float:
    """Return the requests per second that the engines carry at most.

    Exact for fixed lengths where memory and budget do not bind and one prompt comes a step; else close.
    """
    per_ms = _continuous if isinstance(rule, Continuous) else _whole
    return 1000 * servers * per_ms(rule, step, tokens)


def _continuous(rule: Any, step: StepTime, tokens: Tokens) -> float:
    """Return requests per ms with all seats filled, each of which then turns over every `output` steps."""
    prompts, outputs = _points(tokens.prompt), _points(tokens.output)
    prompt, output = float(prompts.mean()), float(outputs.mean())
    held = prompt * (output - 1)  # the sum of the prompt's keys over the decodes
    if isinstance(tokens.prompt, Listed) and isinstance(tokens.output, Listed):
        size = min(tokens.prompt.values.size, tokens.output.values.size)
        held = float((tokens.prompt.values[:size] * (tokens.output.values[:size] - 1.0)).mean())
    seats = float(rule.max_num_seqs)
    if rule.kv_blocks is not None:
        life = prompt + (tokens.limit or output) - 1
        # Blocks taken as needed: the mean of what a request holds, over its steps.
        mean = prompt + float((outputs**2).mean()) / output / 2 if rule.reserve == "step" else life
        seats = min(seats, max(rule.kv_blocks // -(-mean // rule.block_size), 1))
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


def _whole(rule: Rule, step: StepTime, tokens: Tokens) -> float:
    """Return requests per ms in full batches, each as long as its longest output."""
    size, ragged = rule.largest_batch, step.ragged
    most = 1 if ragged else size
    prompts, outputs = _points(tokens.prompt, most), _points(tokens.output, most)
    prompt, output = float(prompts.mean()), float(outputs.mean())
    longest = float(_points(tokens.output, size).mean())
    rows = size * (output - 1) / (longest - 1) if longest > 1 else 0
    pairs = size * float((prompts * (prompts + 1)).mean()) / 2
    reads = size * (prompt * (output - 1) + float((outputs * (outputs - 1)).mean()) / 2)
    cost = step.cost
    products = max(cost.weights_ms, cost.per_token_ms * size * prompt)
    products += (longest - 1) * max(cost.weights_ms, cost.per_token_ms * rows)
    in_all = longest * cost.fixed_ms + products + cost.per_read_ms * reads + cost.per_pair_ms * pairs
    return size / in_all
