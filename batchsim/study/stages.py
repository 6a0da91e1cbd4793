"""One stage of a load test, simulated as its tool makes it and as its client measures it."""

import math
from dataclasses import dataclass
from functools import partial

import numpy as np

from batchsim._clock import on_grid
from batchsim.measured.load_tests import Stage
from batchsim.result.metrics import metric
from batchsim.result.run_length import run_length
from batchsim.scenario import ClosedLoop, Constant, Gamma, Limited, Scenario, StepTime, Tokens, Trace
from batchsim.scenario.lengths import Listed
from batchsim.scenario.rules import Rule
from batchsim.scenario.service import Service
from batchsim.simulate import simulate

SOME, TIMES = 1000, 16  # requests of a steady state, at least; and times those that an interval needs
MOST, OF_TOKENS = 1_000_000, 20_000  # requests of a simulated stage, at most; of tokens, without a count
ROUNDS, FIRST = 6, 2  # requests of each client of a steady closed loop, and how many of them do not count


@dataclass(frozen=True)
class Predicted:
    """A simulated stage, as its client measures it but for `client_ms`; NaN TTFT and TPOT without tokens."""

    latency_ms: float
    ttft_ms: float
    tpot_ms: float
    served_per_s: float
    hidden_ms: float


def _due_s(stage: Stage, requests: int, seed: int) -> np.ndarray:
    """Return when requests are due, as tools plan it: gaps that add up to the duration of the stage."""
    gaps = np.ones(requests + 1)
    if stage.gaps_cv:
        gaps = np.random.default_rng(seed).standard_gamma(1 / stage.gaps_cv**2, requests + 1)
    times_s = np.cumsum(gaps)
    return on_grid((times_s[:-1] - times_s[0]) * (requests / stage.asked_per_s / times_s[-1]))


def _steady(scenario: Scenario) -> tuple[float, float]:
    """Return how many requests a steady mean of an open loop needs, and how many come before these."""
    length = run_length(scenario)
    if length.relaxation == math.inf:  # there is none
        return math.inf, 0
    return max(TIMES * length.needed(metric("mean_latency_ms")), SOME), max(length.warmup, SOME)


def _begun(tokens: Tokens, clients: int, requests: int, seed: int) -> Tokens:
    """Return lengths whose first one of each client is only the rest of an answer."""
    seeds = np.random.SeedSequence(seed).spawn(3)
    prompts, outputs, _ = tokens.draws(*seeds[:2])(requests)
    outputs[:clients] = np.ceil(outputs[:clients] * np.random.default_rng(seeds[2]).random(clients))
    return Tokens(Listed(prompts), Listed(outputs))


def predicted(
    stage: Stage, rule: Rule, service: Service, *, tokens: Tokens | None = None, in_flight: float = math.inf,
    servers: int = 1, seed: int = 1,
) -> Predicted:  # fmt: skip
    """Simulate a stage of a load test.

    All its requests count, from the first on, as the tools count them. A stage without their number is in its
    steady state; beyond saturation it has none, so a million requests (20,000 of tokens) tell only that
    latencies grow. A client with a limit of requests in flight, `in_flight` or the stage's, sends the next
    that is due once one has returned; latencies begin when a request is sent. All clients of a closed loop
    send at time 0, as those of the tools do; those of a stage that is `mixed` begin in the middle of their
    first answers, which do not count.
    """
    if tokens is None and isinstance(service, StepTime):
        tokens = Tokens(round(stage.prompt_tokens), round(stage.output_tokens))
    made = partial(Scenario, rule=rule, service=service, servers=servers, tokens=tokens)
    most = OF_TOKENS if tokens is not None and not stage.requests else MOST
    most = min(most, (tokens and tokens.max_requests) or most)
    limit = min(float(np.fmin(in_flight, stage.concurrency)), stage.requests or most)  # NaN: none
    clients, rate, hidden_ms = max(round(limit), 1), stage.asked_per_s, 0.0
    closed, count, before = math.isnan(rate), float(stage.requests), 0.0
    if closed and not count and limit == most:
        raise ValueError("a stage must have a rate, clients or a number of requests, got none of them")
    if not count and not closed:
        count, before = _steady(made(Gamma(rate, stage.gaps_cv) if stage.gaps_cv else Constant(rate)))
        if count == math.inf and limit < most:  # another request is always due, ever later
            closed, hidden_ms = True, math.inf
    steady = not stage.requests or (closed and stage.mixed)
    if closed and steady:
        count, before = count or ROUNDS * clients + SOME, FIRST * clients
    requests = math.ceil(min(count + before, most))
    before, after = (int(min(each, requests / 3)) for each in (before, clients if closed else 0))
    if closed and stage.mixed and tokens is not None:
        made.keywords["tokens"] = _begun(tokens, clients, requests, seed)
    if closed:
        result = simulate(made(ClosedLoop(clients)), requests, seed=seed, keep="requests")
    else:
        due_s = _due_s(stage, requests, seed)
        workload = Limited(clients, times_s=tuple(due_s)) if clients < requests else Trace(due_s)
        result = simulate(made(workload), requests, seed=seed, keep="requests")
        hidden_ms = 1000 * float(np.mean((result.arrival_s - due_s)[before:]))
    counted, begin_s, end_s = slice(None), 0.0, float(result.finish_s.max())
    if steady:  # from the warm-up on, and in a closed loop until the first client stops
        counted = slice(before, requests - after)
        begin_s, end_s = result.arrival_s[counted][0], result.arrival_s[-1]
    latency_ms, ttft_ms, tpot_ms = float(np.mean(result.latency_ms[counted])), math.nan, math.nan
    if tokens is not None:
        ttft_ms = float(np.mean(result.ttft_ms[counted]))
        answers = float(result.output_tokens[counted].mean())
        tpot_ms = (latency_ms - ttft_ms) / max(answers - 1, 1)
    served = np.count_nonzero((result.finish_s > begin_s) & (result.finish_s <= end_s))
    return Predicted(latency_ms, ttft_ms, tpot_ms, float(served / (end_s - begin_s)), hidden_ms)
