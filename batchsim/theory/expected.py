"""The choice of the theory that applies to a scenario."""

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from batchsim import _check
from batchsim._format import listed, percent
from batchsim.scenario import ClosedLoop, Constant, Continuous, Gamma, Poisson, Scenario, Service, Table
from batchsim.scenario.rules.continuous import NeverServed, check_lengths
from batchsim.scenario.tokens import Listed
from batchsim.theory import batch, light, single
from batchsim.theory.answer import LOOSE, Answer, NoAnswer, UnsolvedError, check_load
from batchsim.theory.tokens import (
    IDLE,
    LITTLE,
    QUANTILES,
    TokenAnswer,
    longest_cut,
    pairs,
    request_alone,
    seats_filled,
    slotted,
    values,
)


def expected(scenario: Scenario) -> Answer | NoAnswer:
    """Return the steady state that theory expects, or a NoAnswer with the reason why there is none.

    Raises ValueError for a scenario whose load is 1 or more: it has no steady state. A cold start
    (`service.compiling`) is left out, and the answer's `model` says so: the steady state comes after it. With
    tokens the answer is a `TokenAnswer`, whose `bounds` say how far off an approximation can be. There is
    none for requests that can never be served, which `simulate` refuses.

    >>> from batchsim import Affine, SizeOrWait
    >>> scenario = Scenario(Poisson(900), SizeOrWait(32, 0), Affine(5, 0.25))
    >>> round(expected(scenario).mean_latency_ms, 4)
    9.9681
    >>> expected(scenario.replace(servers=2))
    no theory applies: batches of up to 32 are solved for one server only, got 2
    """
    _check.instance("scenario", scenario, Scenario, "a Scenario")
    if scenario.tokens is not None:
        return expected_of_tokens(scenario)
    if scenario.service.compile_ms is not None:
        answer = expected(scenario.replace({"service.compile_ms": None}))
        warm = "after the cold start"
        return replace(answer, model=f"{answer.model}, {warm}") if isinstance(answer, Answer) else answer
    workload, servers, service = scenario.workload, scenario.servers, scenario.service
    if not isinstance(workload, (Poisson, Gamma, Constant)):
        return NoAnswer(f"arrivals must be Poisson, Gamma or Constant, got {workload!r}")
    if scenario.queue_limit is not None:
        return NoAnswer(f"a queue_limit of {scenario.queue_limit} rejects requests")
    if scenario.by_level:
        return NoAnswer("requests must be served in the order of their arrival, got priorities or a delay")
    if scenario.timeout_ms is not None:
        return NoAnswer(f"a timeout of {scenario.timeout_ms} ms makes requests leave")
    # Asked of the rule itself, so that a rule which is the textbook's under another name is answered too.
    rule = scenario.rule.threshold
    if rule is None:
        return NoAnswer(f"the rule must be a threshold rule, got {scenario.rule!r}")
    if (devices := scenario.device_count) < servers:
        return NoAnswer(f"each server must have a device of its own, got {servers} servers on {devices}")
    slowdown = scenario.slowdown
    factors = set() if slowdown is None else {slowdown[busy] for busy in range(1, servers + 1)}
    if len(factors) > 1:
        return NoAnswer(f"a slowdown must be the same for any number of busy servers, got {slowdown}")
    if factors and factors != {1.0}:
        factor, sizes = factors.pop(), range(1, rule.largest + 1)
        service = Table({size: service(size) * factor * 1000 for size in sizes}, noise=service.noise)
    # Not scenario.saturation_per_s: with a long queue the rule takes full batches, even where a smaller
    # size would be faster.
    check_load(workload.offered_per_s, servers * rule.largest / service(rule.largest))
    arrival_cv = 0.0 if isinstance(workload, Constant) else getattr(workload, "cv", 1.0)
    noise, host_ms = service.noise, scenario.host_ms
    if noise is not None and noise.lasts:
        return NoAnswer(f"service times must be independent of each other, got {noise}")
    try:
        # A host part and a device of one's own are the whole service time: only noise tells them apart.
        if host_ms > 0 and noise is not None and noise.cv > 0:
            if (rule.largest, servers, arrival_cv) != (1, 1, 1):
                return NoAnswer(f"noise must be on the whole service time, got a host_ms of {host_ms:g}")
            ms = service(1) * 1000
            return single.mg1(workload.offered_per_s, ms, noise.cv * (1 - host_ms / ms))
        if rule.largest == 1:
            return _one_by_one(scenario, service, arrival_cv)
        if arrival_cv != 1:
            return NoAnswer(f"arrivals must be Poisson for batches, got {workload!r}")
        if servers > 1:
            return NoAnswer(f"batches of up to {rule.largest} are solved for one server only, got {servers}")
        return batch.solve_threshold(workload.offered_per_s, service, rule)
    except UnsolvedError as error:
        return NoAnswer(str(error))


def _one_by_one(scenario: Scenario, service: Service, arrival_cv: float) -> Answer | NoAnswer:
    """Batches of one, which are full at once, whatever the rule's wait."""
    rate, servers = scenario.workload.offered_per_s, scenario.servers  # type: ignore[union-attr]
    ms, noise = service(1) * 1000, service.noise
    if arrival_cv != 1:
        if servers > 1:
            return NoAnswer(f"arrivals must be Poisson for more than one server, got {scenario.workload!r}")
        noise_cv, shape = (0.0, "lognormal") if noise is None else (noise.cv, noise.shape)
        return single.gg1(rate, ms, arrival_cv, noise_cv, shape)
    if noise is None or noise.cv == 0:
        return single.md1(rate, ms) if servers == 1 else single.mdc(rate, ms, servers)
    if noise.shape == "exponential":
        return single.mmc(rate, ms, servers)
    if servers == 1:
        return single.mg1(rate, ms, noise.cv)
    return NoAnswer(f"{servers} servers must have fixed or exponential service times, got {noise}")


LARGEST = 64  # of larger batches one rate alone can take half a second
POINTS = 9  # up to the largest size, each takes 1 to 3 ms


@dataclass(frozen=True, eq=False)
class TheoryCurve:
    """The mean latency at some arrival rates; arrays of shape (rates,).

    `mean_ms` is NaN where theory has no answer. Of `model`, the name of the theory, and `reason`, why no
    theory answers at any rate, one is empty.
    """

    rate_per_s: np.ndarray
    mean_ms: np.ndarray
    model: str
    reason: str


def theory_curve(scenario: Scenario, rates: Sequence[float] | np.ndarray) -> TheoryCurve:
    """Return the mean latency that theory expects at some of the rates, which must rise.

    At up to 9 of those below saturation, the first and the last among them, at the scenario's own, and at all
    others, whose mean is NaN.

    >>> from batchsim import Affine, SizeOrWait
    >>> scenario = Scenario(Poisson(900), SizeOrWait(32, 0), Affine(5, 0.25))
    >>> curve = theory_curve(scenario, [600, 900, 3000])
    >>> curve.mean_ms.round(4).tolist()
    [9.0703, 9.9681, nan]
    >>> theory_curve(scenario.replace(servers=2), [600]).reason
    'batches of up to 32 are solved for one server only, got 2'
    """
    rate_per_s = np.array([_check.real("a rate", rate, above=0) for rate in rates], float)
    if rate_per_s.size == 0 or (np.diff(rate_per_s) <= 0).any():
        raise ValueError(f"rates must rise, got {rate_per_s.tolist()}")
    empty = TheoryCurve(rate_per_s, np.full(rate_per_s.shape, math.nan), "", "")
    workload, largest = scenario.workload, scenario.rule.largest_batch
    if not isinstance(workload, (Poisson, Gamma, Constant)):
        return replace(empty, reason=_mean_ms(scenario)[2])
    if largest > LARGEST:
        return replace(empty, reason=f"batches must be at most {LARGEST} for theory's curve, got {largest}")
    saturation_per_s = scenario.full_batches_per_s
    steady = np.flatnonzero(rate_per_s < saturation_per_s)
    if steady.size == 0:
        lowest, limit = (f"{rate:,.6g}/s" for rate in (rate_per_s[0], saturation_per_s))
        return replace(empty, reason=f"a rate must be below {limit} for a mean, got {lowest}")
    some = np.unique(np.linspace(0, steady.size - 1, min(POINTS, steady.size)).round().astype(int))
    some = np.union1d(some, np.flatnonzero(rate_per_s[steady] == workload.offered_per_s))
    chosen = np.append(steady[some], np.flatnonzero(rate_per_s >= saturation_per_s))
    rate_per_s = rate_per_s[chosen]
    # The scenario itself at its own rate: answers are cached, and a reason should name 90, not 90.0.
    rated = {workload.offered_per_s: scenario}
    rates = rate_per_s[: some.size].tolist()
    answers = [_mean_ms(rated.get(rate) or scenario.replace(rate_per_s=rate)) for rate in rates]
    mean_ms = np.full(rate_per_s.shape, math.nan)
    mean_ms[: some.size] = [mean for mean, _, _ in answers]
    model = next((model for _, model, _ in answers if model), "")
    # If no rate has a mean, the reason is best given for the scenario's own.
    return TheoryCurve(rate_per_s, mean_ms, model, "" if model else _mean_ms(scenario)[2] or answers[0][2])


@functools.lru_cache(maxsize=4096)
def _mean_ms(scenario: Scenario) -> tuple[float, str, str]:
    """Return the mean, the model's name, and the reason if there is neither."""
    try:
        answer = expected(scenario)
    except ValueError as error:  # a load that rounding makes 1
        return math.nan, "", str(error)
    if isinstance(answer, Answer):
        return answer.mean_latency_ms, answer.model, ""
    return math.nan, "", answer.why


SOLVED = "steps are solved for requests one at a time, for full seats and at light load"
MEANS = 0.01  # to which means of distributed lengths are known, to be safe
SURE = 8  # standard deviations from the mean of what is taken never to reach a limit


def expected_of_tokens(scenario: Any) -> TokenAnswer | NoAnswer:
    """Return the steady state of a scenario with tokens, or why there is none; see `expected`."""
    if scenario.queue_limit is not None:
        return NoAnswer(f"a queue_limit of {scenario.queue_limit} rejects requests")
    if scenario.timeout_ms is not None:
        return NoAnswer(f"a timeout of {scenario.timeout_ms} ms makes requests leave")
    if why := _never_served(scenario):
        return NoAnswer(why)
    if isinstance(scenario.workload, ClosedLoop):
        return _closed(scenario, scenario.workload)
    if not isinstance(scenario.workload, Poisson):
        return NoAnswer(f"arrivals of tokens must be Poisson or a closed loop's, got {scenario.workload!r}")
    return _open(scenario, scenario.workload.offered_per_s)


def _never_served(scenario: Any) -> str:
    """Return why a simulation would refuse a request of these lengths; empty if it would none of them."""
    prompts, outputs = (each.astype(np.int64) for each in pairs(scenario.tokens))
    if prompts.size < (seats := min(scenario.rule.largest_batch, QUANTILES)):  # as many as run at once
        prompts, outputs = np.resize(prompts, seats), np.resize(outputs, seats)
    limit = scenario.tokens.limit
    if limit is not None and outputs.max() > limit:
        return f"limit must be at least every output, got limit {limit:,} and {outputs.max():,} tokens"
    limits = outputs if limit is None else np.full(outputs.shape, limit)
    try:
        check_lengths(scenario, lambda: [(prompts, outputs, limits)])
    except NeverServed as error:
        return str(error).partition(" of request ")[0].rstrip(",")
    return ""


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
    return request_alone(service, tokens, longest_cut(rule))


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
    for length in (tokens.prompt, tokens.output):
        if isinstance(length, Listed) and (shared := math.gcd(length.values.size, size)) > 1:
            got = f"{length.values.size:,} and {size}, which share {shared}"
            return NoAnswer(f"batches must begin at any of the listed lengths in turn, got {got}")
    per_s = scenario.saturation_per_s
    batch_ms, latency_ms = 1000 * servers * size / per_s, 1000 * clients / per_s
    first_ms = _prefill_ms(scenario, size)
    output = tokens.output if isinstance(tokens.output, int) else 0
    answer = TokenAnswer(
        "full whole batches", LITTLE, per_s, per_s, latency_ms, latency_ms - batch_ms, 1.0, size,
        mean_ttft_ms=latency_ms - batch_ms + first_ms,
        mean_tpot_ms=(batch_ms - first_ms) / (output - 1) if output > 1 else math.nan,
        mean_running=size, output_tokens_per_s=per_s * _mean_output(scenario), closed=True,
        exact=isinstance(tokens.prompt, int) and output > 0,
    )  # fmt: skip
    if answer.exact:
        return answer
    return replace(answer, bounds={
        name: (value * (1 - MEANS), value * (1 + MEANS)) for name, value in answer.summary().items()
        if name.startswith(("mean_", "throughput", "output")) and name != "mean_batch_size"
    })  # fmt: skip


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
        return _whole_answers(scenario, alone, single.md1(rate, computing_ms))
    return _light(scenario, alone, rate, computing_ms)


def _light(scenario: Any, alone: TokenAnswer, rate: float, computing_ms: float) -> TokenAnswer | NoAnswer:
    """Return what requests see that hardly meet: the metrics whose bounds are close."""
    found = light.bounds(scenario, alone.mean_wait_ms)
    if isinstance(found, str):
        return NoAnswer(f"{SOLVED}: {found}")
    busy = rate * computing_ms / 1000 / scenario.servers
    answer = replace(
        alone, model="light load", source=light.OWN, exact=False, bounds=found, mean_running=math.nan,
    )  # fmt: skip
    answer = _at_rate(answer, rate, busy, scenario)
    times = [name for name in ("mean_ttft_ms", "mean_tpot_ms", "mean_latency_ms") if name in found]
    if all(name in answer.loose for name in times):
        each = [f"{name} {low:.4g} to {high:.4g}" for name in times for low, high in [found[name]]]
        return NoAnswer(f"{SOLVED}: its bounds must be within {percent(LOOSE)}, got {listed(each)}")
    unknown: dict[str, Any] = {name: math.nan for name in answer.loose if hasattr(answer, name)}
    return replace(answer, **unknown)


def _room(scenario: Any, rule: Continuous, running: float) -> bool:
    """Whether seats and budget are as good as unlimited for so many requests on average."""
    prompt = scenario.tokens.prompt
    if rule.kv_blocks is not None or rule.long_prefill_token_threshold or rule.first != "decode":
        return False
    most = running + SURE * math.sqrt(running) + SURE
    # Even if all that run had just come, their prompts would be computed at once.
    room = isinstance(prompt, int) and most * prompt <= rule.max_num_batched_tokens
    return room and most <= rule.max_num_seqs


def _whole_answers(scenario: Any, alone: TokenAnswer, queue: Answer) -> TokenAnswer:
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
