"""Token generation: the plan of a run, with its random numbers, its log, and its sums."""

import functools
import math
import threading
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Annotated, ClassVar, NamedTuple

import numpy as np

from batchsim.engines.draws import (
    SMALL,
    Plan,
    Streams,
    draw_traffic,
    draw_traffic_cached,
    length_seeds,
    path_draws,
)
from batchsim.engines.log import Log
from batchsim.engines.totals import Count, Seconds, Sum, Totals
from batchsim.scenario import Continuous, Scenario, StepTime, Tokens
from batchsim.scenario.prefixes import PrefixBlocks
from batchsim.scenario.rules.continuous import check_lengths
from batchsim.scenario.step_time import WholeCost

NO_TRIGGER = 255  # of a step for which no batch left
UNLIMITED = 2**60  # blocks: more than any run takes
VICTIM, BACK, RESUMED, REGAINED = range(4)
LATE = ("late_step", "late_from_s", "late_gaps")
PREEMPTIONS = ("preempted_request", "preempted_step", "resumed_step", "regained_step")


class Batching(NamedTuple):
    """The rule of the steps, as numbers: whole batches of a threshold rule, or `Continuous`."""

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
    reuses: bool  # whether free blocks keep their contents

    @property
    def preempts(self) -> bool:
        """Whether memory may be too short for the requests that run."""
        return not self.whole and not self.life and self.kv_blocks < UNLIMITED

    @classmethod
    def of(cls, scenario: Scenario) -> "Batching":
        """Return the numbers of a scenario's rule."""
        rule, service = scenario.rule, scenario.service
        assert isinstance(service, StepTime)
        if isinstance(rule, Continuous):
            return cls(
                False, 0, 0, math.inf, service.ragged, rule.max_num_seqs, rule.max_num_batched_tokens,
                rule.first == "decode", rule.chunked, rule.reserve == "life", rule.kv_blocks or UNLIMITED,
                rule.block_size, rule.watermark_blocks, rule.long_prefill_token_threshold, rule.reuses,
            )  # fmt: skip
        threshold = rule.threshold
        assert threshold is not None
        return cls(
            True, threshold.largest, threshold.enough, float(threshold.wait_s), service.ragged,
            threshold.largest, 0, True, True, False, UNLIMITED, 1, 0, 0, False,
        )  # fmt: skip


@dataclass(frozen=True)
class TokenPlan:
    """A scenario of token generation with its randomness drawn; `base` has its arrivals or think times."""

    base: Plan
    prompts: np.ndarray
    outputs: np.ndarray
    limits: np.ndarray
    noise: Callable[..., Callable[[int], np.ndarray] | None]  # by replica, see `Streams.noise`
    paths: np.ndarray  # the number of each request's path through the prefixes

    @property
    def scenario(self) -> Scenario:
        return self.base.scenario

    @property
    def prefixes(self) -> PrefixBlocks:
        """The blocks that requests may share."""
        assert self.scenario.tokens is not None
        return PrefixBlocks.of(self.scenario.tokens.prefixes, getattr(self.scenario.rule, "block_size", 1))

    @property
    def cost(self) -> WholeCost:
        assert isinstance(self.scenario.service, StepTime)
        return self.scenario.service.whole_cost(self.scenario.rule.largest_batch)


def draw_tokens(
    scenario: Scenario, requests: int, seed: int, replication: int = 0,
    cancelled: threading.Event | None = None, shared: bool = False,
) -> TokenPlan:  # fmt: skip
    """Draw everything that a run needs, except the noise of its steps, whose number is not known.

    `shared` as in `draw_traffic`. ValueError for a request that can never be served.
    """
    streams = Streams(scenario, seed, replication)
    lengths = streams.lengths()(requests)
    check_lengths(scenario, lambda: [lengths])
    base = draw_traffic(scenario, requests, seed, replication, cancelled, shared)
    base = replace(base, chances=(draw := streams.chances(requests)) and draw(requests))
    return TokenPlan(base, *lengths, streams.noise, streams.paths()(requests))


def draw_tokens_cached(scenario: Scenario, requests: int, seed: int) -> TokenPlan:
    """Return the plan of `draw_tokens`, without a check whether the rule can serve every request.

    Its arrays are shared: they must not be written to.
    """
    lengths = _lengths if requests <= SMALL else _lengths.__wrapped__
    assert scenario.tokens is not None
    prompts, outputs, limits, paths = lengths(scenario.tokens, requests, seed)
    streams = Streams(scenario, seed)
    base = replace(
        draw_traffic_cached(scenario, requests, seed),
        chances=(draw := streams.chances(requests)) and draw(requests),
    )
    return TokenPlan(base, prompts, outputs, limits, streams.noise, paths)


@functools.lru_cache(maxsize=8)
def _lengths(tokens: Tokens, requests: int, seed: int) -> tuple[np.ndarray, ...]:
    return *tokens.draws(*length_seeds(seed))(requests), path_draws(tokens, seed)(requests)


@dataclass(frozen=True, eq=False, kw_only=True)
class TokenLog(Log):
    """What happened: a row for each request, and for each step in the columns of batches.

    `batch_index` is the first step that serves a request, `batch_size` the number of requests that a step
    serves, and `batch_trigger` the trigger of a whole batch that left with the step.
    """

    NUMBERS: ClassVar = Log.NUMBERS | {
        "token_step": "steps", "last_step": "steps", "preempted_request": "requests",
        "preempted_step": "steps", "resumed_step": "steps", "regained_step": "steps", "late_step": "steps",
    }  # fmt: skip
    ROWS: ClassVar = (
        Log.ROWS
        | {
            f"step_{name}": "steps"
            for name in (
                "tokens", "reads", "pairs", "running", "waiting", "blocks", "preempted", "gaps"
            )
        }
        | dict.fromkeys(LATE, "late") | dict.fromkeys(PREEMPTIONS, "preemptions")
    )  # fmt: skip

    prompt_tokens: np.ndarray
    output_tokens: np.ndarray
    token_step: np.ndarray  # the step at whose end the first token is made; -1: not served
    last_step: np.ndarray  # at whose end the request leaves; -1: not served
    preemptions: np.ndarray
    # Seconds from its preemptions until a step served it again: before its first token, and after it.
    preempted_before_s: np.ndarray
    preempted_after_s: np.ndarray
    step_tokens: np.ndarray
    step_reads: np.ndarray
    step_pairs: np.ndarray
    step_running: np.ndarray
    step_waiting: np.ndarray  # once the step has started
    step_blocks: np.ndarray  # in use
    step_preempted: np.ndarray
    stall_s: np.ndarray | None = None  # a request's longest gap between tokens; None in older files
    # Gaps between the tokens of a request that end with a step and began with the engine's step before it.
    step_gaps: np.ndarray | None = None
    # Other gaps: the step, the time of the token before, and how many requests have the same.
    late_step: np.ndarray | None = None
    late_from_s: np.ndarray | None = None
    late_gaps: np.ndarray | None = None
    # A row for each preemption, in order; None in a log without rows of steps.
    preempted_request: np.ndarray | None = None
    preempted_step: np.ndarray | None = None  # as this step began, the request went back to the queue
    resumed_step: np.ndarray | None = None  # the first that serves it again; -1: none
    regained_step: np.ndarray | None = None  # at whose end it makes its next token; -1: preempted before that

    @property
    def most_running(self) -> int:
        """The most requests that an engine ran at once."""
        return int(self.step_running.max(initial=0))


STEPS = [f.name for f in fields(TokenLog) if TokenLog.ROWS.get(f.name) == "steps"]


@dataclass(frozen=True, eq=False, kw_only=True)
class TokenTotals(Totals):
    """The sums of a run of token generation; its batches are steps under `Continuous`."""

    computing_s: Annotated[Sum, float, 3]  # over the served: prefill, decode, preempted
    ttft_s: Seconds  # over the served
    tpot_s: Seconds  # over those of more than one token
    longer: Count  # how many these are
    output_tokens: Count  # of the requests that finish in the window
    preempted: Count  # requests that were, once or more
    itl_s: Seconds = 0.0  # gaps between tokens that end in the window
    gaps: Count = 0  # how many these are


@dataclass(frozen=True, eq=False)
class TokenHistograms:
    """Counts as of a `Histogram`, of each column that percentiles are taken of."""

    latency_ms: np.ndarray
    ttft_ms: np.ndarray
    tpot_ms: np.ndarray
    stall_ms: np.ndarray | None = None  # None in older files
    itl_ms: np.ndarray | None = None
