"""The choice of the theory that applies to a scenario of token generation."""

import math
from dataclasses import replace
from typing import Any

from batchsim.scenario import ClosedLoop, Continuous, Poisson
from batchsim.theory import single
from batchsim.theory.answer import Answer, NoAnswer, check_load
from batchsim.theory.tokens import (
    IDLE,
    LITTLE,
    OWN,
    TokenAnswer,
    request_alone,
    seats_filled,
    slotted,
    values,
)

LIGHT = 0.01  # of light load: no more than this part of the requests finds another one
SURE = 8  # standard deviations from the mean of what is taken never to reach a limit


def expected_of_tokens(scenario: Any) -> TokenAnswer | NoAnswer:
    """Return the steady state of a scenario with tokens, or why there is none; see `expected`."""
    if scenario.queue_limit is not None:
        return NoAnswer(f"a queue_limit of {scenario.queue_limit} rejects requests")
    if scenario.timeout_ms is not None:
        return NoAnswer(f"a timeout of {scenario.timeout_ms} ms makes requests leave")
    if isinstance(scenario.workload, ClosedLoop):
        return _closed(scenario, scenario.workload)
    if not isinstance(scenario.workload, Poisson):
        return NoAnswer(f"arrivals of tokens must be Poisson or a closed loop's, got {scenario.workload!r}")
    return _open(scenario, scenario.workload.offered_per_s)


def _alone(scenario: Any) -> TokenAnswer | NoAnswer:
    """Return what requests see that never meet another one."""
    rule, service, tokens = scenario.rule, scenario.service, scenario.tokens
    if not isinstance(rule, Continuous):
        wait_ms = 0.0 if rule.enough == 1 else rule.max_wait_ms
        if math.isinf(wait_ms):
            return NoAnswer(f"a request alone must leave some time, got {rule!r}")
        answer = request_alone(service, tokens)
        return replace(
            answer, mean_latency_ms=answer.mean_latency_ms + wait_ms, mean_wait_ms=wait_ms,
            mean_ttft_ms=answer.mean_ttft_ms + wait_ms,
        )  # fmt: skip
    cuts = [rule.long_prefill_token_threshold or math.inf]
    if rule.chunked:
        cuts.append(rule.max_num_batched_tokens)
    cut = min(cuts)
    return request_alone(service, tokens, None if math.isinf(cut) else int(cut))


# Closed loops.


def _closed(scenario: Any, workload: ClosedLoop) -> TokenAnswer | NoAnswer:
    rule, clients = scenario.rule, workload.clients
    if clients == 1:
        alone = _alone(scenario)
        if not alone:
            return alone
        assert isinstance(alone, TokenAnswer)
        rate = 1000 / (alone.mean_latency_ms + 1000 * workload.think_s)
        busy = rate * (alone.mean_latency_ms - alone.mean_wait_ms) / 1000 / scenario.servers
        return _at_rate(replace(alone, model="one client", closed=True), rate, busy, scenario)
    if workload.think_s > 0:
        return NoAnswer(f"many clients must not think for every seat to be filled, got {workload!r}")
    if isinstance(rule, Continuous):
        return _seats(scenario, rule, clients)
    return _whole(scenario, clients)


def _seats(scenario: Any, rule: Continuous, clients: int) -> TokenAnswer | NoAnswer:
    """Continuous batching by a closed loop: solved where one prompt comes a step."""
    tokens, seats, budget = scenario.tokens, rule.max_num_seqs, rule.max_num_batched_tokens
    prompt, output = tokens.prompt, tokens.output
    if not isinstance(prompt, int) or not isinstance(output, int):
        return NoAnswer(f"a closed loop's lengths must be fixed for every seat to turn alike, got {tokens!r}")
    if clients <= seats * scenario.servers:
        got = f"{clients} clients and {seats * scenario.servers} seats"
        return NoAnswer(f"clients must be one, or more than the seats, got {got}")
    one_a_step = prompt + seats - 1 <= budget < 2 * prompt and output >= seats
    if rule.first != "decode" or rule.chunked or not one_a_step or rule.long_prefill_token_threshold:
        return NoAnswer(f"one uncut prompt must come a step, beside decodes, got {rule!r}")
    if rule.kv_blocks is not None:
        needed = seats * math.ceil((prompt + (tokens.limit or output) - 1) / rule.block_size)
        if needed + rule.watermark_blocks > rule.kv_blocks:
            return NoAnswer(
                f"memory must have room for every seat, {needed:,} blocks, got {rule.kv_blocks:,}"
            )
    if scenario.servers > 1:
        return NoAnswer(f"seats are solved for one server only, got {scenario.servers}")
    return seats_filled(scenario.service, seats, prompt, output, clients)


def _whole(scenario: Any, clients: int) -> TokenAnswer | NoAnswer:
    """Whole batches by a closed loop: full ones, if as many again wait as compute."""
    rule, servers, tokens = scenario.rule, scenario.servers, scenario.tokens
    size = rule.largest_batch
    only_full = rule.enough == size and math.isinf(rule.max_wait_ms)
    if clients < size * (servers if only_full and servers == 1 else servers + 1):
        return NoAnswer(f"clients must fill every batch of {size}, got {clients} clients")
    per_s = scenario.saturation_per_s
    batch_ms, latency_ms = 1000 * servers * size / per_s, 1000 * clients / per_s
    first_ms = _prefill_ms(scenario, size)
    output = tokens.output if isinstance(tokens.output, int) else 0
    return TokenAnswer(
        "full whole batches", LITTLE, per_s, per_s, latency_ms, latency_ms - batch_ms, 1.0, size,
        mean_ttft_ms=latency_ms - batch_ms + first_ms,
        mean_tpot_ms=(batch_ms - first_ms) / (output - 1) if output > 1 else math.nan,
        mean_running=size, output_tokens_per_s=per_s * _mean_output(scenario), closed=True,
        exact=isinstance(tokens.prompt, int) and output > 0,
    )  # fmt: skip


def _prefill_ms(scenario: Any, size: int) -> float:
    """Return the mean time of the step of a whole batch's prompts: of outputs of one token, the whole."""
    tokens = replace(scenario.tokens, output=1, limit=None)
    shortest = replace(scenario, tokens=tokens, servers=1)
    return 1000 * size / shortest.saturation_per_s


# Open arrivals.


def _open(scenario: Any, rate: float) -> TokenAnswer | NoAnswer:
    rule, tokens, service = scenario.rule, scenario.tokens, scenario.service
    check_load(rate, scenario.saturation_per_s)
    cost, noisy = service.cost, service.noise is not None and service.noise.cv > 0
    constant = cost.per_token_ms == cost.per_read_ms == cost.per_pair_ms == 0 and not noisy
    if constant and isinstance(rule, Continuous) and scenario.servers == 1:
        step_ms = cost.fixed_ms + cost.weights_ms
        running = rate * step_ms / 1000 * _mean_output(scenario)
        if _room(scenario, rule, running) and math.exp(-running) <= IDLE:
            return replace(slotted(rate, step_ms, tokens.output), saturation_per_s=scenario.saturation_per_s)
    alone = _alone(scenario)
    if not alone:
        return alone
    assert isinstance(alone, TokenAnswer)
    computing_ms = alone.mean_latency_ms - alone.mean_wait_ms
    single_file = scenario.servers == 1 and rule.largest_batch == 1
    if single_file and isinstance(tokens.prompt, int) and isinstance(tokens.output, int) and not noisy:
        return _one_by_one(scenario, alone, single.md1(rate, computing_ms))
    # Whoever arrives finds another one with the probability that one is there.
    meets = rate * alone.mean_latency_ms / 1000
    if meets <= LIGHT:
        light = replace(alone, model="light load", source=OWN, exact=False)
        return _at_rate(light, rate, rate * computing_ms / 1000 / scenario.servers, scenario)
    return NoAnswer(
        "steps that take longer with what they serve are solved for requests one at a time, for full seats "
        f"and at light load, got {meets:.2g} requests in the system by their own times"
    )


def _room(scenario: Any, rule: Continuous, running: float) -> bool:
    """Whether seats and budget are as good as unlimited for so many requests on average."""
    prompt = scenario.tokens.prompt
    if rule.kv_blocks is not None or rule.long_prefill_token_threshold or rule.first != "decode":
        return False
    most = running + SURE * math.sqrt(running) + SURE
    # Even if all that run had just come, their prompts would be computed at once.
    room = isinstance(prompt, int) and most * prompt <= rule.max_num_batched_tokens
    return room and most <= rule.max_num_seqs


def _one_by_one(scenario: Any, alone: TokenAnswer, queue: Answer) -> TokenAnswer:
    """Return an M/D/1 queue with its first tokens."""
    waits = queue.mean_wait_ms
    return replace(
        _at_rate(alone, queue.rate_per_s, queue.utilisation, scenario),
        model=f"{queue.model} of whole answers", source=queue.source,
        mean_latency_ms=alone.mean_latency_ms + waits, mean_wait_ms=waits,
        mean_ttft_ms=alone.mean_ttft_ms + waits, cdf=queue.cdf,
    )  # fmt: skip


def _at_rate(answer: TokenAnswer, rate: float, utilisation: float, scenario: Any) -> TokenAnswer:
    return replace(
        answer, rate_per_s=rate, saturation_per_s=scenario.saturation_per_s, utilisation=utilisation,
        output_tokens_per_s=rate * _mean_output(scenario),
    )  # fmt: skip


def _mean_output(scenario: Any) -> float:
    return float(values(scenario.tokens.output).mean())
