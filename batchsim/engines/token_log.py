"""Token generation: the plan of a run, its randomness drawn, and the log of what happened."""

import functools
import math
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Any, NamedTuple, Self

import numpy as np

from batchsim.engines.draws import SMALL, Plan, Streams, draw, draw_cached, length_seeds
from batchsim.engines.log import Log
from batchsim.scenario import Continuous, Scenario, StepTime, Tokens
from batchsim.scenario.rules.continuous import check_lengths
from batchsim.scenario.step_time import StepCost

NO_TRIGGER = 255  # of a step for which no batch left
UNLIMITED = 2**60  # blocks: more than any run takes


class Batching(NamedTuple):
    """How steps are made: whole batches of a threshold rule, or the parameters of `Continuous`."""

    whole: bool
    largest: int
    enough: int
    wait_s: float
    ragged: bool
    seats: int
    budget: int
    decode_first: bool
    chunked: bool
    life: bool
    kv_blocks: int
    block_size: int
    watermark_blocks: int
    threshold: int

    @classmethod
    def of(cls, scenario: Scenario) -> "Batching":
        """Return how a scenario's rule makes steps."""
        rule, service = scenario.rule, scenario.service
        assert isinstance(service, StepTime)
        if isinstance(rule, Continuous):
            return cls(
                False, 0, 0, math.inf, service.ragged, rule.max_num_seqs, rule.max_num_batched_tokens,
                rule.first == "decode", rule.chunked, rule.reserve == "life", rule.kv_blocks or UNLIMITED,
                rule.block_size, rule.watermark_blocks, rule.long_prefill_token_threshold,
            )  # fmt: skip
        threshold = rule.threshold
        assert threshold is not None
        return cls(
            True, threshold.largest, threshold.enough, float(threshold.wait_s), service.ragged,
            threshold.largest, 0, True, True, False, UNLIMITED, 1, 0, 0,
        )  # fmt: skip


@dataclass(frozen=True)
class TokenPlan:
    """A scenario of token generation with its randomness drawn; `base` has its arrivals or think times."""

    base: Plan
    prompts: np.ndarray
    outputs: np.ndarray
    limits: np.ndarray
    noise: Callable[
        [], Callable[[int], np.ndarray] | None
    ]  # gives what draws the next steps' factors, if any

    @property
    def scenario(self) -> Scenario:
        return self.base.scenario

    @property
    def cost(self) -> StepCost:
        assert isinstance(self.scenario.service, StepTime)
        return self.scenario.service.cost


def draw_tokens(
    scenario: Scenario, requests: int, seed: int, replication: int = 0,
    cancelled: threading.Event | None = None,
) -> TokenPlan:  # fmt: skip
    """Draw all that a run needs but the steps' noise, of which nobody knows how much it needs.

    ValueError for a request that can never be served.
    """
    streams = Streams(scenario, seed, replication)
    lengths = streams.lengths()(requests)
    check_lengths(scenario, lambda: [lengths])
    return TokenPlan(draw(scenario, requests, seed, replication, cancelled), *lengths, streams.noise)


def draw_tokens_cached(scenario: Scenario, requests: int, seed: int) -> TokenPlan:
    """Return what `draw_tokens` returns, whether or not the rule could ever serve every request.

    The arrays are shared with other plans: they are not to be written to.
    """
    lengths = _lengths if requests <= SMALL else _lengths.__wrapped__
    assert scenario.tokens is not None
    drawn = lengths(scenario.tokens, requests, seed)
    return TokenPlan(draw_cached(scenario, requests, seed, 1), *drawn, Streams(scenario, seed).noise)


@functools.lru_cache(maxsize=8)
def _lengths(tokens: Tokens, requests: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    return tokens.draws(*length_seeds(seed))(requests)


@dataclass(frozen=True, eq=False, kw_only=True)
class TokenLog(Log):
    """What happened: a row a request, and in the columns of batches a row a step.

    `batch_index` is the first step that serves a request, `batch_size` the rows of a step, `batch_trigger`
    why a whole batch left with this step.
    """

    prompt_tokens: np.ndarray
    output_tokens: np.ndarray
    token_step: np.ndarray  # the step at whose end the first token is made; -1: not served
    last_step: np.ndarray  # at whose end the request leaves; -1: not served
    preemptions: np.ndarray
    # For how long it was preempted, until a step served it again: before its first token, and after.
    preempted_before_s: np.ndarray
    preempted_after_s: np.ndarray
    step_tokens: np.ndarray
    step_reads: np.ndarray
    step_pairs: np.ndarray
    step_running: np.ndarray
    step_waiting: np.ndarray  # once the step has started
    step_blocks: np.ndarray  # in use
    step_preempted: np.ndarray

    @property
    def steps(self) -> int:
        """How many there were."""
        return self.batch_start_s.size

    @property
    def most_running(self) -> int:
        """The most requests that an engine ran at once."""
        return int(self.step_running.max(initial=0))

    @classmethod
    def join(cls, logs: Sequence[Log]) -> Self:
        """Return the logs of several runs as one, with their steps numbered through."""
        kept = (f.name for f in fields(cls) if f.name != "outputs")
        names = [name for name in kept if getattr(logs[0], name) is not None]
        joined: dict[str, Any] = {
            name: np.concatenate([getattr(log, name) for log in logs]) for name in names
        }
        counts = [log.steps for log in logs if isinstance(log, TokenLog)]
        first = np.repeat(np.cumsum([0, *counts[:-1]]), [log.arrival_s.size for log in logs])
        for name in ("batch_index", "token_step", "last_step"):
            joined[name] = np.where(joined[name] < 0, -1, joined[name] + first)
        return cls(**joined)


STEPS = [
    f.name for f in fields(TokenLog) if f.name.startswith(("batch_", "step_")) and f.name != "batch_index"
]
