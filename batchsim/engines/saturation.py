"""The saturation rates that have no formula, measured by a run whose queue never empties.

`saturated` measures token generation, `measured_batches` a rule that reads sizes.

While requests always wait, the rule and the lengths alone determine what each step serves, at whatever time.
So one run gives the rate for any `StepTime` whose sums over steps suffice. With several engines, each has the
rate of a single one, unless memory is short: a preempted request may resume on another engine.
"""

import functools
import math
from dataclasses import dataclass, fields, replace

import numpy as np

from batchsim._compat import reduceat
from batchsim.engines.draws import Plan, draw, path_draws
from batchsim.engines.token_log import TokenLog, TokenPlan
from batchsim.scenario import Continuous, Poisson, Scenario, Service, StepTime, Tokens, Trace
from batchsim.scenario.full_batches import FullBatches
from batchsim.scenario.lengths import Lengths, Listed, points
from batchsim.scenario.rules import Rule
from batchsim.scenario.rules.continuous import servable
from batchsim.scenario.saturation import at_once

REQUESTS = 8000  # their mean is good to about 0.3 %, with the measures below
LEAST, EACH = 1000, 250  # with few seats, so many requests and so many for each seat are as good
TURNS = 16  # further requests for each one that runs at once
ROUGHLY = 8  # a rough run has an eighth of the requests
STEPS = 4_000_000  # about the most steps of a run
SLOW_ROWS = 250_000  # rows that the SimPy engine computes in about a second
FEWEST = 200
WARM = 0.1  # of the requests, until the effect of the start has faded
SECTIONS = 32
PHASES, PHASE_TURNS = 8, 12  # runs of fixed lengths, and the least turns of every seat in each
ANY = StepTime(0, 1, 0)
RIDGE = 3e-3
# Of batches of sizes.
QUEUED = 1 << 16  # requests, all there from the start
STEADY = 0.9  # of them, until which the queue is long for any rule
BLOCKS = 32  # of batches, whose spread is the error


@dataclass(frozen=True, eq=False)
class Saturated:
    """The steps of an engine whose queue never empties, in sections of equally many steps.

    `tokens` has a row for each step; `reads` and `pairs` are sums of a section. `served` is how many requests
    a section serves, shape (sections, measures): counted by all of their tokens, by their outputs, and by
    their use of memory over time. In the long run the measures agree.
    """

    tokens: np.ndarray
    first: np.ndarray  # step of each section
    reads: np.ndarray
    pairs: np.ndarray
    served: np.ndarray
    took_ms: np.ndarray  # of each section, with the step time of the run

    def per_ms(self, step: StepTime, timed: bool = False) -> tuple[float, float]:
        """Return requests per ms, and their relative standard error.

        The sections differ in the requests that they happen to serve, which each measure counts in its own
        way. The weighted mean of the measures that best predicts the sections' durations has the smallest
        error (control variates).
        """
        cost = step.cost
        products_ms = np.maximum(cost.weights_ms, cost.per_token_ms * self.tokens) + cost.fixed_ms
        took_ms = reduceat(np.add, products_ms, self.first)
        took_ms += cost.per_read_ms * self.reads + cost.per_pair_ms * self.pairs
        took_ms = self.took_ms if timed else took_ms
        served, took = self.served / self.served.mean(axis=0), took_ms / took_ms.mean()
        others, rest = served[:, 1:] - served[:, :1], took - served[:, 0]
        square = others.T @ others + RIDGE * np.eye(others.shape[1])  # no 0 / 0 if all lengths are the same
        weights = np.linalg.solve(square, others.T @ rest)
        error = float((rest - others @ weights).std(ddof=1)) / math.sqrt(took.size)
        means = self.served.mean(axis=0)
        count = float(means[0] + (means[1:] - means[0]) @ weights)
        return count / float(took_ms.mean()), error


@functools.lru_cache(maxsize=256)
def saturated(
    rule: Rule, tokens: Tokens, step: StepTime = ANY, servers: int = 1, roughly: bool = False
) -> Saturated | None:
    """Run engines with a queue that never empties; None if they cannot serve enough of the requests.

    Lengths are evenly spaced quantiles in a fixed random order; listed lengths keep their own order. The
    first requests begin in the middle of their outputs, as at any later time. If all lengths
    are the same, seats keep their phases for ever: then several runs, each a section, begin in random phases.
    `step` matters only to several engines; `roughly` runs an eighth of the requests.
    """
    running = servers * (at_once(rule, tokens) if isinstance(rule, Continuous) else rule.largest_batch)
    count = _count(rule, tokens, running, servers)
    count = min(count, count // ROUGHLY + 4 * running) if roughly else count
    lengths = _lengths(tokens, count)
    limits = lengths[1] if tokens.limit is None else np.maximum(tokens.limit, lengths[1])
    kept = servable(rule, *lengths, limits)
    if kept.sum() < FEWEST // 2:
        return None
    waiting = np.array([*lengths, limits, _paths(tokens, count)])[:, kept]
    fixed = isinstance(rule, Continuous) and not any(
        isinstance(each, Lengths) for each in (tokens.prompt, tokens.output)
    )
    phases = min(PHASES, count // (PHASE_TURNS * running)) if fixed else 1
    if phases <= 1:
        return _sections(*_filled(rule, tokens, step, servers, running, waiting, 1), SECTIONS)
    waiting = waiting[:, : count // phases]
    runs = [_filled(rule, tokens, step, servers, running, waiting, seed) for seed in range(1, phases + 1)]
    return _joined([_sections(*run, 1) for run in runs])


def _filled(
    rule: Rule, tokens: Tokens, step: StepTime, servers: int, running: int, waiting: np.ndarray, seed: int
) -> tuple[TokenLog, int, int, np.ndarray]:
    """Run engines with all seats taken, then the requests of `waiting`: prompts, outputs, limits, paths.

    Return the log, the number of the first requests, the number that runs at once, and each measure's mean.
    """
    prompts, outputs, limits, paths = waiting
    means, first = _measures(prompts, outputs).mean(axis=1), 0
    if isinstance(rule, Continuous):
        first = min(running, prompts.size)
        generator = np.random.default_rng(seed)
        # At a random time, longer outputs are more likely to be running, and any part of them may be done.
        who = generator.choice(prompts.size, first, p=outputs / outputs.sum())
        generated = (outputs[who] * generator.random(first)).astype(np.int64)
        if not rule.chunked:  # the generated tokens are computed with the prompt
            generated = np.clip(rule.max_num_batched_tokens - prompts[who], 0, generated)
        prompts = np.append(prompts[who] + generated, prompts)
        outputs = np.append(outputs[who] - generated, outputs)
        limits = np.append(limits[who] - generated, limits)
        paths = np.append(paths[who], paths)
    scenario = Scenario(Poisson(1), rule, step, servers, tokens=tokens)  # the plan below has the arrivals
    base = Plan(scenario, prompts.size, np.zeros(prompts.size), None, np.empty(0), None, None)
    return _run(TokenPlan(base, prompts, outputs, limits, _no_noise, paths)), first, running, means


def _count(rule: Rule, tokens: Tokens, running: int, servers: int) -> int:
    """Return how many requests to run."""
    if not isinstance(rule, Continuous):
        return max(REQUESTS, 100 * running)
    prompt, output = (float(points(each).mean()) for each in (tokens.prompt, tokens.output))
    count = REQUESTS + TURNS * running
    if running == rule.max_num_seqs:  # seats are short rather than memory
        count = min(count, LEAST + EACH * running)
    steps = servers * output / running + prompt / rule.max_num_batched_tokens
    count = min(count, int(STEPS / steps))
    if not rule.compiled:
        count = min(count, int(SLOW_ROWS / (output + prompt / rule.max_num_batched_tokens)))
    return max(count, FEWEST, 4 * running)


def _lengths(tokens: Tokens, count: int) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(0)

    def drawn(length: int | Lengths) -> np.ndarray:
        if isinstance(length, Listed):
            size = length.values.size
            return length.values[
                np.arange(count) % size if size <= count else np.arange(count) * size // count
            ]
        if isinstance(length, Lengths):
            return length.quantile((generator.permutation(count) + 0.5) / count)
        return np.full(count, length, np.int64)

    return drawn(tokens.prompt), drawn(tokens.output)


def _paths(tokens: Tokens, count: int) -> np.ndarray:
    """Return the paths of requests; those of listed hash ids start over."""
    most = None if tokens.prefixes is None else tokens.prefixes.max_requests
    draw = path_draws(tokens, 0)
    return draw(count) if most is None else np.resize(draw(min(count, most)), count)


def _measures(prompts: np.ndarray, outputs: np.ndarray) -> np.ndarray:
    return np.array([prompts + outputs - 1.0, outputs, outputs * (prompts + outputs / 2.0)])


def _no_noise() -> None:
    return None


def _run(plan: TokenPlan) -> TokenLog:
    if plan.scenario.rule.compiled:
        from batchsim.engines.compiled import token_engine as compiled_tokens  # Numba loads on first use

        return compiled_tokens.run(plan)
    from batchsim.engines.reference import token_engine  # and SimPy

    return token_engine.run(plan)


def _joined(runs: list[Saturated]) -> Saturated:
    """Return the sections of several runs as those of one."""
    names = [field.name for field in fields(Saturated)]
    before = np.cumsum([0, *(run.tokens.size for run in runs[:-1])])
    moved = [replace(run, first=run.first + at) for run, at in zip(runs, before, strict=True)]
    return Saturated(*(np.concatenate([getattr(run, name) for run in moved]) for name in names))


def _sections(log: TokenLog, first: int, running: int, means: np.ndarray, sections: int) -> Saturated:
    """Return a run's sections, from the end of the warm-up until the queue is nearly empty."""
    begin, end = log.batch_index, log.last_step + 1
    joined = np.sort(begin)
    warm = first + int(WARM * (begin.size - first))
    edges = np.linspace(joined[warm], joined[max(begin.size - 1 - running, warm + 1)], sections + 1)
    edges = np.unique(edges.astype(np.int64))
    met = end > edges[0]
    begin, end = begin[met], end[met]
    # A request counts in equal parts in each of its steps.
    done = ((edges[:, None] - begin) / (end - begin)).clip(0, 1)
    measures = _measures(log.prompt_tokens[met], log.output_tokens[met]) / means[:, None]
    steps, starts = slice(edges[0], edges[-1]), edges[:-1] - edges[0]
    ends_s = log.batch_finish_s
    if not log.batch_server.any():  # a single engine may wait between its steps
        ends_s = np.append(log.batch_start_s[1:], ends_s[-1])
    return Saturated(
        log.step_tokens[steps], starts, reduceat(np.add, log.step_reads[steps], starts),
        reduceat(np.add, log.step_pairs[steps], starts), np.diff(done @ measures.T, axis=0),
        reduceat(np.add, 1000 * (ends_s - log.batch_start_s)[steps], starts),
    )  # fmt: skip


@functools.lru_cache(maxsize=4)  # a heat map measures its columns with the same sizes
def _queue(sizes: Lengths) -> Trace:
    """Return requests that all wait from the start; sizes that are not listed are evenly spaced quantiles."""
    if isinstance(sizes, Listed):
        sizes = replace(sizes, again=True)
    else:
        spaced = np.random.default_rng(0).permutation(QUEUED)
        sizes = Listed(sizes.quantile((spaced + 0.5) / QUEUED))
    return Trace(np.zeros(QUEUED)).with_sizes(sizes)


def measured_batches(rule: Rule, service: Service, sizes: Lengths, action: str) -> FullBatches:
    """Return the full batches of a queue that never empties; see `scenario.full_batches.full_batches`."""
    from batchsim.engines.compiled import engine  # Numba loads with it

    plain = replace(service, noise=None, compile_ms=None)
    log = engine.run(draw(Scenario(_queue(sizes), rule, plain, oversize_action=action), QUEUED, 0))
    served = float((log.batch_index >= 0).mean())
    if not served:
        return FullBatches(0.0, 1.0, 0.0)  # all are rejected at once
    steady = int(np.searchsorted(np.cumsum(log.batch_size), STEADY * served * QUEUED))
    blocks = np.array_split(np.arange(max(steady, 1)), BLOCKS)
    seconds = log.batch_finish_s - log.batch_start_s
    requests, times = (
        np.array([column[block].sum() for block in blocks]) for column in (log.batch_size / served, seconds)
    )
    spread = (requests - times * requests.sum() / times.sum()).std(ddof=1)
    error = float(spread * math.sqrt(BLOCKS) / requests.sum())
    batches = max(steady, 1)
    return FullBatches(float(requests.sum() / batches), float(times.sum() / batches), error)
