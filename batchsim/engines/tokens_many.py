"""Many settings of one traffic of token generation: when each request has its first token and its last.

The times are those of `simulate`, to the last bit; there are no other columns, and no steps are kept.
"""

import math
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from batchsim._clock import check_time
from batchsim.engines import kernels_tokens_times
from batchsim.engines.columns import NONE
from batchsim.engines.compiled_tokens import Loop
from batchsim.engines.kernels_instants import ENDED
from batchsim.engines.log import CANCELLED, check_cancelled
from batchsim.engines.tokens_columns import MOST_RUNNING, MOST_TOKENS, Line, Steps, TokenRequests
from batchsim.engines.tokens_log import TokenPlan
from batchsim.scenario import Continuous, Rule


class Most(NamedTuple):
    """The most requests that an engine ran at once, and the most tokens of a step."""

    running: int
    tokens: int


@dataclass(frozen=True, eq=False)
class Times:
    """When the requests of a run came, had their first token and left, in seconds; NaN for one not served."""

    arrival_s: np.ndarray
    token_s: np.ndarray
    finish_s: np.ndarray
    outputs: np.ndarray
    last_s: float  # when the last step ended
    most: Most


def run_times(plan: TokenPlan) -> Times:
    """Run a plan of the compiled engine and return its requests' times."""
    count, requests, cancelled = plan.base.requests, TokenRequests.of(plan), CANCELLED.get()
    loop, line = Loop(plan.scenario, count, plan.noise()), Line(*np.empty((2, count), np.int64))
    loop.rows = Steps.room_for(loop.room, 0, NONE)
    token_s, finish_s, last_s, servers = np.full(count, math.nan), np.full(count, math.nan), 0.0, loop.servers
    over = False
    while not over:
        check_cancelled(cancelled)
        before, until_s = servers.step.copy(), servers.busy_until_s.copy()
        state, steps, used = loop.go_on(requests, line, count)
        over = state == ENDED
        last_s = kernels_tokens_times.note_times(
            requests, steps, used, before, until_s, token_s, finish_s, last_s
        )
    check_time("finishes", last_s, "take fewer requests")
    most = Most(*loop.at[[MOST_RUNNING, MOST_TOKENS]].tolist())
    return Times(requests.arrival_s, token_s, finish_s, plan.outputs, last_s, most)


def alike(ran: Rule, most: Most, rule: Rule) -> bool:
    """Return whether a rule, of the same class, makes the very steps that `ran` made.

    As it does where the seats or the budget alone differ, and were never short, nor would be now. Prompts
    that are not cut may have waited for a larger budget than any step used.
    """
    if not (isinstance(ran, Continuous) and isinstance(rule, Continuous)):
        return rule == ran
    seats, budget = ran.max_num_seqs, ran.max_num_batched_tokens
    if rule.max_num_seqs != seats and not (most.running < seats and most.running <= rule.max_num_seqs):
        return False
    enough = ran.chunked and most.tokens < min(budget, rule.max_num_batched_tokens)
    if rule.max_num_batched_tokens != budget and not enough:
        return False
    return replace(rule, max_num_seqs=seats, max_num_batched_tokens=budget) == ran
