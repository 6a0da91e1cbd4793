"""The choice of the theory that applies to a scenario."""

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from batchsim import _check
from batchsim._format import listed, percent
from batchsim.scenario import ClosedLoop, Continuous, Limited, OpenLoop, Poisson, Scenario, Service, Table
from batchsim.scenario.lengths import Lengths, Listed
from batchsim.scenario.rules.continuous import NeverServed, check_lengths
from batchsim.scenario.saturation import shares
from batchsim.scenario.sized_time import SizedTime
from batchsim.theory import batch, single
from batchsim.theory.answer import LOOSE, Answer, NoAnswer, UnsolvedError, check_load
from batchsim.theory.tokens import (
    IDLE,
    LITTLE,
    OWN,
    QUANTILES,
    SOLVED,
    TokenAnswer,
    bounds,
    longest_cut,
    pairs,
    request_alone,
    seats_filled,
    slotted,
    values,
)


def expected(scenario: Scenario) -> Answer | NoAnswer:
    """Return the steady state that theory expects, or a NoAnswer with the reason.

    Raises ValueError for a load of 1 or more, which has no steady state. The steady state follows a cold
    start (`service.compiling`), which the answer ignores; its `model` mentions that. With tokens the answer
    is a `TokenAnswer`, whose `bounds` contain the means of an approximation; NoAnswer for requests that can
    never be served, which `simulate` refuses.

    >>> from batchsim import Affine, SizeOrWait
    >>> scenario = Scenario(Poisson(900), SizeOrWait(32, 0), Affine(5, 0.25))
    >>> round(expected(scenario).mean_latency_ms, 4)
    9.9681
    >>> expected(scenario.replace(servers=2))
    no theory applies: batches of up to 32 are solved for one server only, got 2
    """
    _check.instance("scenario", scenario, Scenario, "a Scenario")
    try:
        if scenario.queue_limit is not None:
            raise UnsolvedError(f"a queue_limit of {scenario.queue_limit} rejects requests")
        if scenario.timeout_ms is not None:
            raise UnsolvedError(f"a timeout of {scenario.timeout_ms} ms makes requests leave")
        if scenario.most_replicas > 1:
            raise UnsolvedError(f"there must be one queue, got {scenario.most_replicas} replicas")
        return BY_KIND[scenario.kind](scenario)
    except UnsolvedError as error:
        return NoAnswer(str(error))


def _of_requests(scenario: Scenario) -> Answer:
    """Return the steady state of a scenario of requests; raise UnsolvedError if theory has none."""
    if scenario.service.compile_ms is not None:
        answer = _of_requests(scenario.replace({"service.compile_ms": None}))
        return replace(answer, model=f"{answer.model}, after the cold start")
    workload, servers, service = scenario.workload, scenario.servers, scenario.service
    if not isinstance(workload, OpenLoop) or (arrival_cv := workload.gamma_cv) is None:
        raise UnsolvedError(f"arrivals must be Poisson, Gamma or Constant, got {workload!r}")
    if scenario.by_level:
        raise UnsolvedError("requests must be served in order of arrival, got priorities or a delay")
    # A rule declares its threshold itself, so this covers rules that are the textbook's under another name.
    rule = scenario.rule.threshold
    if rule is None:
        raise UnsolvedError(f"the rule must be a threshold rule, got {scenario.rule!r}")
    if isinstance(service, SizedTime):
        return _sizes_one_by_one(scenario, service)
    if (devices := scenario.device_count) < servers:
        raise UnsolvedError(f"each server must have a device of its own, got {servers} servers on {devices}")
    slowdown = scenario.slowdown
    factors = set() if slowdown is None else {slowdown[busy] for busy in range(1, servers + 1)}
    if len(factors) > 1:
        raise UnsolvedError(f"a slowdown must be the same for any number of busy servers, got {slowdown}")
    if factors and factors != {1.0}:
        factor, sizes = factors.pop(), range(1, rule.largest + 1)
        service = Table({size: service(size) * factor * 1000 for size in sizes}, noise=service.noise)
    # Not scenario.saturation_per_s: with a long queue the rule takes full batches, even if smaller ones would
    # be faster.
    check_load(workload.offered_per_s, servers * rule.largest / service(rule.largest))
    noise, host_ms = service.noise, scenario.host_ms
    if noise is not None and noise.lasts:
        raise UnsolvedError(f"service times must be independent of each other, got {noise}")
    # Without shared devices, host part and device part add up to the service time. Only noise, which applies
    # to the device part alone, makes a difference.
    if host_ms > 0 and noise is not None and noise.cv > 0:
        if (rule.largest, servers, arrival_cv) != (1, 1, 1):
            raise UnsolvedError(f"noise must be on the whole service time, got a host_ms of {host_ms:g}")
        ms = service(1) * 1000
        return single.mg1(workload.offered_per_s, ms, noise.cv * (1 - host_ms / ms))
    if rule.largest == 1:
        return _one_by_one(scenario, service, arrival_cv)
    if arrival_cv != 1:
        raise UnsolvedError(f"arrivals must be Poisson for batches, got {workload!r}")
    if servers > 1:
        largest = rule.largest
        raise UnsolvedError(f"batches of up to {largest} are solved for one server only, got {servers}")
    return batch.solve_threshold(workload.offered_per_s, service, rule)


@functools.lru_cache(maxsize=256)
def _moments(service: SizedTime, sizes: Lengths, host_s: float) -> tuple[float, float]:
    """Return the mean and the mean square of the seconds of single requests."""
    each, shares = sizes.distribution(service.edges)
    mean_s, noise = service.alone_s(each), service.noise
    # Noise is on the device's part alone.
    variance = 0.0 if noise is None else noise.cv**2 * (mean_s - host_s) ** 2
    return float(shares @ mean_s), float(shares @ (mean_s**2 + variance))


def _sizes_one_by_one(scenario: Scenario, service: SizedTime) -> Answer:
    """Batches of one, whose times follow the sizes and the noise: M/G/1 with the moments of these times."""
    sizes, noise, rate = scenario.workload.sizes, service.noise, scenario.workload.offered_per_s  # type: ignore[union-attr]
    assert sizes is not None
    if scenario.rule.largest_batch > 1:
        raise UnsolvedError(f"batches must be of one if times depend on sizes, got {scenario.rule!r}")
    if scenario.servers > 1 or scenario.workload.gamma_cv != 1:  # type: ignore[union-attr]
        raise UnsolvedError("times that depend on sizes need Poisson arrivals at one server")
    if isinstance(sizes, Listed) or scenario.slowdown is not None or (noise is not None and noise.lasts):
        raise UnsolvedError(
            "times that depend on sizes must be independent, got a list, a slowdown or noise that lasts"
        )
    mean_s, square_s = _moments(service, sizes, scenario.host_ms / 1000)
    check_load(rate, 1 / mean_s)
    return single.mg1(rate, 1000 * mean_s, math.sqrt(max(square_s / mean_s**2 - 1, 0.0)))


def _one_by_one(scenario: Scenario, service: Service, arrival_cv: float) -> Answer:
    """Batches of one: they are full at once, so the rule's wait does not matter."""
    rate, servers = scenario.workload.offered_per_s, scenario.servers  # type: ignore[union-attr]
    ms, noise = service(1) * 1000, service.noise
    if arrival_cv != 1:
        if servers > 1:
            raise UnsolvedError(f"arrivals must be Poisson for several servers, got {scenario.workload!r}")
        noise_cv, shape = (0.0, "lognormal") if noise is None else (noise.cv, noise.shape)
        return single.gg1(rate, ms, arrival_cv, noise_cv, shape)
    if noise is None or noise.cv == 0:
        return single.md1(rate, ms) if servers == 1 else single.mdc(rate, ms, servers)
    if noise.shape == "exponential":
        return single.mmc(rate, ms, servers)
    if servers == 1:
        return single.mg1(rate, ms, noise.cv)
    raise UnsolvedError(f"{servers} servers must have fixed or exponential service times, got {noise}")


LARGEST = 64  # batches: for larger ones a single rate can take half a second
POINTS = 9  # rates; each takes 1 to 3 ms


@dataclass(frozen=True, eq=False)
class TheoryCurve:
    """The mean latency at some arrival rates; arrays of shape (rates,).

    `mean_ms` is NaN where theory has no answer. Either `model`, the name of the theory, or `reason`, why it
    has no answer at any rate, is empty.
    """

    rate_per_s: np.ndarray
    mean_ms: np.ndarray
    model: str
    reason: str


def theory_curve(scenario: Scenario, rates: Sequence[float] | np.ndarray) -> TheoryCurve:
    """Return the mean latency that theory expects at some of the rates, which must rise.

    The rates: up to 9 below saturation, including the first and the last, the scenario's own, and all above
    saturation, whose mean is NaN.

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
    if not isinstance(workload, OpenLoop) or workload.gamma_cv is None:
        return replace(empty, reason=_mean_ms(scenario)[2])
    if largest > LARGEST:
        return replace(empty, reason=f"batches must be at most {LARGEST} for theory's curve, got {largest}")
    saturation_per_s = scenario.full_batches_per_s
    steady = np.flatnonzero(rate_per_s < saturation_per_s)
    if steady.size == 0:
        lowest, limit = (f"{rate:,.6g}/s" for rate in (rate_per_s[0], saturation_per_s))
        return replace(empty, reason=f"a rate must be below {limit} for a mean, got {lowest}")
    some = np.unique(np.linspace(0, steady.size - 1, min(POINTS, steady.size)).round().astype(np.int64))
    some = np.union1d(some, np.flatnonzero(rate_per_s[steady] == workload.offered_per_s))
    chosen = np.append(steady[some], np.flatnonzero(rate_per_s >= saturation_per_s))
    rate_per_s = rate_per_s[chosen]
    # At its own rate, the scenario itself: answers are cached, and a reason should print 90, not 90.0.
    rated = {workload.offered_per_s: scenario}
    rates = rate_per_s[: some.size].tolist()
    answers = [_mean_ms(rated.get(rate) or scenario.replace(rate_per_s=rate)) for rate in rates]
    mean_ms = np.full(rate_per_s.shape, math.nan)
    mean_ms[: some.size] = [mean for mean, _, _ in answers]
    model = next((model for _, model, _ in answers if model), "")
    # Without a mean at any rate, give the reason for the scenario's own.
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


MEANS = 0.01  # the relative error of means over distributed lengths, to be safe
SURE = 8  # standard deviations above the mean: a number assumed never to exceed it


def _of_tokens(scenario: Any) -> TokenAnswer:
    """Return the steady state of a scenario with tokens; raise UnsolvedError if theory has none."""
    _check_served(scenario)
    if not scenario.service.by_sums:
        must = "steps must be without speculation and captured sizes"
        raise UnsolvedError(f"{must}, got {scenario.service!r}")
    if isinstance(scenario.rule, Continuous) and (scenario.rule.holds or scenario.rule.wait_ms):
        raise UnsolvedError(f"prompts must not be held back, got {scenario.rule!r}")
    if shares(scenario.rule, scenario.tokens):
        raise UnsolvedError(f"prompts must not share their beginnings, got {scenario.tokens.prefixes!r}")
    for length in (scenario.tokens.prompt, scenario.tokens.output):
        if isinstance(length, Lengths) and not isinstance(length, Listed):
            each, odds = length.distribution()
            if abs((values(length) ** 2).mean() / (odds @ each**2) - 1) > MEANS:
                raise UnsolvedError(f"lengths must vary less for their moments to be known, got {length!r}")
    if isinstance(scenario.workload, Limited):
        raise UnsolvedError("arrivals must be Poisson or a closed loop's, got a limit of requests in flight")
    if isinstance(scenario.workload, ClosedLoop):
        return _closed(scenario, scenario.workload)
    if not isinstance(scenario.workload, Poisson):
        raise UnsolvedError(f"arrivals must be Poisson or a closed loop's, got {scenario.workload!r}")
    return _open(scenario, scenario.workload.offered_per_s)


def _check_served(scenario: Any) -> None:
    """Raise UnsolvedError if a simulation would refuse a request of these lengths."""
    prompts, outputs = (each.astype(np.int64) for each in pairs(scenario.tokens))
    if prompts.size < (seats := min(scenario.rule.largest_batch, QUANTILES)):  # all that run at once
        prompts, outputs = np.resize(prompts, seats), np.resize(outputs, seats)
    limit = scenario.tokens.limit
    if limit is not None and outputs.max() > limit:
        got = f"limit {limit:,} and {outputs.max():,} tokens"
        raise UnsolvedError(f"limit must be at least every output, got {got}")
    limits = outputs if limit is None else np.full(outputs.shape, limit)
    try:
        check_lengths(scenario, lambda: [(prompts, outputs, limits)])
    except NeverServed as error:
        raise UnsolvedError(str(error).partition(" of request ")[0].rstrip(",")) from None


def _alone(scenario: Any) -> TokenAnswer:
    """Return the steady state of requests that never meet another one."""
    rule, service, tokens = scenario.rule, scenario.service, scenario.tokens
    if not isinstance(rule, Continuous):
        wait_ms = 0.0 if rule.enough == 1 else rule.max_wait_ms
        if math.isinf(wait_ms):
            raise UnsolvedError(f"a request alone must leave some time, got {rule!r}")
        answer = request_alone(service, tokens)
        return replace(
            answer, mean_latency_ms=answer.mean_latency_ms + wait_ms, mean_wait_ms=wait_ms,
            mean_ttft_ms=answer.mean_ttft_ms + wait_ms,
        )  # fmt: skip
    return request_alone(service, tokens, longest_cut(rule))


# Closed loops.


def _closed(scenario: Any, workload: ClosedLoop) -> TokenAnswer:
    rule, clients = scenario.rule, workload.clients
    if clients == 1:
        alone = _alone(scenario)
        rate = 1000 / (alone.mean_latency_ms + 1000 * workload.think_s)
        busy = rate * (alone.mean_latency_ms - alone.mean_wait_ms) / 1000 / scenario.servers
        return _at_rate(replace(alone, model="one client", closed=True), rate, busy, scenario)
    if workload.think_s > 0:
        raise UnsolvedError(f"many clients must not think for every seat to be filled, got {workload!r}")
    if isinstance(rule, Continuous):
        return _seats(scenario, rule, clients)
    return _whole(scenario, clients)


def _seats(scenario: Any, rule: Continuous, clients: int) -> TokenAnswer:
    """Continuous batching by a closed loop: solved if each step has one prompt."""
    tokens, seats, budget = scenario.tokens, rule.max_num_seqs, rule.max_num_batched_tokens
    prompt, output = tokens.prompt, tokens.output
    if not isinstance(prompt, int) or not isinstance(output, int):
        raise UnsolvedError(f"a closed loop must have fixed lengths, got {tokens!r}")
    if clients <= seats * scenario.servers:
        got = f"{clients} clients and {seats * scenario.servers} seats"
        raise UnsolvedError(f"clients must be one, or more than the seats, got {got}")
    one_a_step = prompt + seats - 1 <= budget < 2 * prompt and output >= seats
    if rule.first != "decode" or rule.chunked or not one_a_step or rule.long_prefill_token_threshold:
        raise UnsolvedError(f"each step must have one uncut prompt and decodes, got {rule!r}")
    if rule.kv_blocks is not None:
        needed = seats * math.ceil((prompt + (tokens.limit or output) - 1) / rule.block_size)
        if needed + rule.watermark_blocks > rule.kv_blocks:
            raise UnsolvedError(
                f"memory must have room for every seat, {needed:,} blocks, got {rule.kv_blocks:,}"
            )
    if scenario.servers > 1:
        raise UnsolvedError(f"seats are solved for one server only, got {scenario.servers}")
    return seats_filled(scenario.service, seats, prompt, output, clients)


def _whole(scenario: Any, clients: int) -> TokenAnswer:
    """Whole batches by a closed loop: all are full if a full batch waits while the others compute."""
    rule, servers, tokens = scenario.rule, scenario.servers, scenario.tokens
    size = rule.largest_batch
    only_full = rule.enough == size and math.isinf(rule.max_wait_ms)
    if clients < size * (servers if only_full and servers == 1 else servers + 1):
        raise UnsolvedError(f"clients must fill every batch of {size}, got {clients} clients")
    for length in (tokens.prompt, tokens.output):
        if isinstance(length, Listed) and (shared := math.gcd(length.values.size, size)) > 1:
            got = f"{length.values.size:,} and {size}, which share {shared}"
            raise UnsolvedError(f"batches must begin at any of the listed lengths in turn, got {got}")
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
    """Return the mean time of the step with a whole batch's prompts: of a batch with outputs of one token."""
    tokens = replace(scenario.tokens, output=1, limit=None)
    shortest = replace(scenario, tokens=tokens, servers=1)
    return 1000 * size / shortest.saturation_per_s


# Open arrivals.


def _open(scenario: Any, rate: float) -> TokenAnswer:
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
    computing_ms = alone.mean_latency_ms - alone.mean_wait_ms
    single_file = scenario.servers == 1 and rule.largest_batch == 1
    if single_file and isinstance(tokens.prompt, int) and isinstance(tokens.output, int) and not noisy:
        return _whole_answers(scenario, alone, single.md1(rate, computing_ms))
    return _light(scenario, alone, rate, computing_ms)


def _light(scenario: Any, alone: TokenAnswer, rate: float, computing_ms: float) -> TokenAnswer:
    """Return the steady state of requests that hardly meet: the metrics whose bounds are close."""
    found = bounds(scenario, alone.mean_wait_ms)
    busy = rate * computing_ms / 1000 / scenario.servers
    answer = replace(
        alone, model="light load", source=OWN, exact=False, bounds=found, mean_running=math.nan,
    )  # fmt: skip
    answer = _at_rate(answer, rate, busy, scenario)
    times = [name for name in ("mean_ttft_ms", "mean_tpot_ms", "mean_latency_ms") if name in found]
    if all(name in answer.loose for name in times):
        each = [f"{name} {low:.4g} to {high:.4g}" for name in times for low, high in [found[name]]]
        raise UnsolvedError(f"{SOLVED}: its bounds must be within {percent(LOOSE)}, got {listed(each)}")
    unknown: dict[str, Any] = {name: math.nan for name in answer.loose if hasattr(answer, name)}
    return replace(answer, **unknown)


def _room(scenario: Any, rule: Continuous, running: float) -> bool:
    """Return whether seats and budget are practically unlimited for this mean number of requests."""
    prompt = scenario.tokens.prompt
    if rule.kv_blocks is not None or rule.long_prefill_token_threshold or rule.first != "decode":
        return False
    most = running + SURE * math.sqrt(running) + SURE
    # Even if all running requests had just arrived, one step would compute their prompts.
    room = isinstance(prompt, int) and most * prompt <= rule.max_num_batched_tokens
    return room and most <= rule.max_num_seqs


def _whole_answers(scenario: Any, alone: TokenAnswer, queue: Answer) -> TokenAnswer:
    """Return an M/D/1 queue of whole answers, with the times of first tokens."""
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


BY_KIND: dict[str, Callable[[Any], Answer]] = {"requests": _of_requests, "tokens": _of_tokens}
