"""What an engine of token generation carries of a queue that never empties, found by running it.

While somebody always waits, rule and lengths alone decide what each step of an engine serves, whatever the
time. So one run tells for any `StepTime` how long the steps take. Several engines each carry as much as one,
unless memory is short: whoever is sent back may go on at another one.
"""

import functools
import math
from dataclasses import dataclass, replace

import numpy as np

from batchsim.engines.draws import Plan
from batchsim.engines.token_log import TokenLog, TokenPlan
from batchsim.scenario import Continuous, Poisson, Scenario, StepTime, Tokens
from batchsim.scenario.rules import Rule
from batchsim.scenario.rules.continuous import servable
from batchsim.scenario.saturation import at_once
from batchsim.scenario.step_time import StepCost
from batchsim.scenario.tokens import Lengths, Listed, points

REQUESTS = 8000  # whose mean is good to some 0.3 %, together with the measures below
LEAST, EACH = 1000, 250  # of few that run at once, fewer are as good
TURNS = 16  # and as many times those that run at once
ROUGHLY = 8
STEPS = 4_000_000  # that a run may take about, however long its outputs are
SLOW_ROWS = 250_000  # that the SimPy engine computes in about a second
FEWEST = 200
WARM = 0.1  # of the requests: until those that began together are mixed
SECTIONS = 32
PHASES, PHASE_TURNS = 8, 12  # runs of fixed lengths, and how often each turns every seat over, at least
ANY = StepTime(0, 1, 0)
RIDGE = 3e-3


@dataclass(frozen=True, eq=False)
class Saturated:
    """The steps of an engine for which somebody always waits, in sections of as many steps each.

    `tokens` are a step's; `reads` and `pairs` sums of a section; `served` how many requests a section serves,
    shape (sections, measures): counted by all their tokens, by their outputs, and by what they hold of the
    memory and for how long. In the long run the measures agree.
    """

    tokens: np.ndarray
    first: np.ndarray  # step of each section
    reads: np.ndarray
    pairs: np.ndarray
    served: np.ndarray

    def per_ms(self, cost: StepCost) -> tuple[float, float]:
        """Return requests per ms, and their relative standard error.

        The sections differ by which requests they happen to serve. Each measure tells something of that: of
        their weighted means the one is taken that says best how long the sections took (control variates).
        """
        products_ms = np.maximum(cost.weights_ms, cost.per_token_ms * self.tokens) + cost.fixed_ms
        took_ms = np.add.reduceat(products_ms, self.first)
        took_ms += cost.per_read_ms * self.reads + cost.per_pair_ms * self.pairs
        served, took = self.served / self.served.mean(axis=0), took_ms / took_ms.mean()
        others, rest = served[:, 1:] - served[:, :1], took - served[:, 0]
        square = others.T @ others + RIDGE * np.eye(others.shape[1])  # alike where all lengths are: no 0 / 0
        weights = np.linalg.solve(square, others.T @ rest)
        error = float((rest - others @ weights).std(ddof=1)) / math.sqrt(took.size)
        means = self.served.mean(axis=0)
        count = float(means[0] + (means[1:] - means[0]) @ weights)
        return count / float(took_ms.mean()), error


@functools.lru_cache(maxsize=256)
def saturated(
    rule: Rule, tokens: Tokens, step: StepTime = ANY, servers: int = 1, roughly: bool = False
) -> Saturated | None:
    """Run engines with a queue that never empties; None if they could serve no request.

    Lengths are evenly spaced quantiles in a random order, always the same; of listed ones, these in theirs.
    Those that run at first are in the midst of their outputs, as they are at any later time. Where all
    lengths are the same, seats keep for ever the phases in which they began: several runs, each a section,
    begin in random ones. `step` matters to more than one engine; `roughly` is an eighth of the requests.
    """
    running = servers * (at_once(rule, tokens) if isinstance(rule, Continuous) else rule.largest_batch)
    count = _count(rule, tokens, running, servers)
    count = min(count, count // ROUGHLY + 4 * running) if roughly else count
    lengths = _lengths(tokens, count)
    limits = lengths[1] if tokens.limit is None else np.maximum(tokens.limit, lengths[1])
    kept = servable(rule, *lengths, limits)
    if kept.sum() < FEWEST // 2:
        return None
    waiting = np.array([*lengths, limits])[:, kept]
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
    """Run engines whose seats are taken at first, before `waiting`, the rows prompts, outputs and limits.

    Return the log, how many run at first, how many at once, and the mean of each measure.
    """
    prompts, outputs, limits = waiting
    means, first = _measures(prompts, outputs).mean(axis=1), 0
    if isinstance(rule, Continuous):
        first = min(running, prompts.size)
        generator = np.random.default_rng(seed)
        # Longer outputs are met with more often; any part of them may be made already.
        who = generator.choice(prompts.size, first, p=outputs / outputs.sum())
        made = (outputs[who] * generator.random(first)).astype(np.int64)
        if not rule.chunked:  # what is made is computed as a part of the prompt
            made = np.clip(rule.max_num_batched_tokens - prompts[who], 0, made)
        prompts = np.append(prompts[who] + made, prompts)
        outputs, limits = np.append(outputs[who] - made, outputs), np.append(limits[who] - made, limits)
    scenario = Scenario(Poisson(1), rule, step, servers, tokens=tokens)  # of which nobody asks for arrivals
    base = Plan(scenario, prompts.size, np.zeros(prompts.size), None, np.empty(0), None, None)
    return _run(TokenPlan(base, prompts, outputs, limits, _no_noise)), first, running, means


def _count(rule: Rule, tokens: Tokens, running: int, servers: int) -> int:
    """Return how many requests are enough, and not too many."""
    if not isinstance(rule, Continuous):
        return max(REQUESTS, 100 * running)
    prompt, output = (float(points(each).mean()) for each in (tokens.prompt, tokens.output))
    count = REQUESTS + TURNS * running
    if running == rule.max_num_seqs:  # seats are short, not memory: fewer are as good where these are few
        count = min(count, LEAST + EACH * running)
    steps = servers * output / running + prompt / rule.max_num_batched_tokens
    count = min(count, int(STEPS / steps))
    if not rule.compiled:
        count = min(count, int(SLOW_ROWS / (output + prompt / rule.max_num_batched_tokens)))
    return max(count, FEWEST, 4 * running)


def _lengths(tokens: Tokens, count: int) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(0)

    def of(length: int | Lengths) -> np.ndarray:
        if isinstance(length, Listed):
            size = length.values.size
            return length.values[
                np.arange(count) % size if size <= count else np.arange(count) * size // count
            ]
        if isinstance(length, Lengths):
            return length.quantile((generator.permutation(count) + 0.5) / count)
        return np.full(count, length, np.int64)

    return of(tokens.prompt), of(tokens.output)


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
    """Return the sections of several runs, as if these had followed each other."""
    names = ("tokens", "first", "reads", "pairs", "served")
    before = np.cumsum([0, *(run.tokens.size for run in runs[:-1])])
    moved = [replace(run, first=run.first + at) for run, at in zip(runs, before, strict=True)]
    return Saturated(*(np.concatenate([getattr(run, name) for run in moved]) for name in names))


def _sections(log: TokenLog, first: int, running: int, means: np.ndarray, sections: int) -> Saturated:
    """Return a run's sections, from when its start is forgotten until too few wait to be chosen from."""
    begin, end = log.batch_index, log.last_step + 1
    joined = np.sort(begin)
    warm = first + int(WARM * (begin.size - first))
    edges = np.linspace(joined[warm], joined[max(begin.size - 1 - running, warm + 1)], sections + 1)
    edges = np.unique(edges.astype(np.int64))
    met = end > edges[0]
    begin, end = begin[met], end[met]
    # What a request is worth is spread over its steps.
    done = ((edges[:, None] - begin) / (end - begin)).clip(0, 1)
    measures = _measures(log.prompt_tokens[met], log.output_tokens[met]) / means[:, None]
    steps, starts = slice(edges[0], edges[-1]), edges[:-1] - edges[0]
    return Saturated(
        log.step_tokens[steps], starts, np.add.reduceat(log.step_reads[steps], starts),
        np.add.reduceat(log.step_pairs[steps], starts), np.diff(done @ measures.T, axis=0),
    )  # fmt: skip
