"""The moment of a run of token generation that is shown: steps in a row, and who sits where meanwhile."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from batchsim.engines.token_log import NO_TRIGGER, PREEMPTIONS, TokenLog
from batchsim.engines.token_log import STEPS as COLUMNS
from batchsim.result import Result
from batchsim.result.token_run import TokenRun
from batchsim.scenario import Continuous
from batchsim.view.film.seats import Seats, seats

SETTLED = 100, 2  # requests before the moment: at least so many, and so many for each that runs
STEPS = 120, 600  # at least and at most, in a moment of continuous batching
OUTPUTS = 1.5  # mean answers that a moment is long, between these
LEAST_S = 1e-9  # a gap between two steps, beyond rounding
BATCHES = 2  # in a moment of whole batches


@dataclass(frozen=True, eq=False)
class Moment:
    """Some steps of one server in a row: their numbers, what each computes, and the sittings within them."""

    result: Result
    server: int
    steps: np.ndarray
    prompt_tokens: np.ndarray  # of each step
    answer_tokens: np.ndarray
    seats: Seats

    @property
    def log(self) -> TokenLog:
        assert isinstance(self.result.log, TokenLog)
        return self.result.log

    @property
    def begin_s(self) -> float:
        return float(self.log.batch_start_s[self.steps[0]])

    @property
    def end_s(self) -> float:
        return float(self.log.batch_finish_s[self.steps[-1]])

    @property
    def busy_s(self) -> tuple[np.ndarray, np.ndarray]:
        """When steps in a row begin, and when they end and nothing runs for a while."""
        begin_s, end_s = self.column("batch_start_s"), self.column("batch_finish_s")
        pause = begin_s[1:] > end_s[:-1]
        return begin_s[np.append(True, pause)], end_s[np.append(pause, True)]

    def column(self, name: str) -> np.ndarray:
        """Return a column of `Result.steps` or its log, of the steps of this moment."""
        return np.asarray(getattr(self.log, name))[self.steps]


def moment(result: Result, at_s: float | None = None, server: int = 0) -> Moment | None:
    """Return some steps in a row of a server, from a time on; else from when the run has settled on.

    None of a server without a step. Of several replications, the first. What comes after the moment is not
    looked at: in a long run with preemptions that would take a second.
    """
    result = result.replications[0]
    log, rule = result.log, result.scenario.rule
    assert isinstance(log, TokenLog)
    numbers = np.flatnonzero(log.batch_server == server)
    if not numbers.size:
        return None
    if at_s is None:
        least, each = SETTLED
        request = max(least, each * int(log.step_running.max()))
        at_s = float(log.arrival_s[min(request, log.arrival_s.size // 2)])
    starts_s = log.batch_start_s[numbers]
    if isinstance(rule, Continuous):
        outputs = log.output_tokens[: 10 * SETTLED[0]]
        count = int(np.clip(OUTPUTS * outputs.mean(), *STEPS))
        first = max(min(int(np.searchsorted(starts_s, at_s, side="right")) - 1, numbers.size - count), 0)
        steps = numbers[first : first + count]
    else:
        left = np.append(np.flatnonzero(log.batch_trigger[numbers] != NO_TRIGGER), numbers.size)
        first = int(np.searchsorted(starts_s[left[:-1]], at_s, side="right")) - 1
        first = max(min(first, left.size - 1 - BATCHES), 0)
        steps = numbers[left[first] : left[min(first + BATCHES, left.size - 1)]]
    found = seats(beginning(result, int(steps[-1]) + 1, server))
    begin_s, end_s = float(log.batch_start_s[steps[0]]), float(log.batch_finish_s[steps[-1]])
    found = found.of((found.server == server) & (found.begin_s < end_s) & (found.end_s > begin_s))
    return Moment(result, server, steps, *composition(result, steps, found), found)


def taken(
    result: Result, server: int, begin_s: float, end_s: float, column: str = "step_running"
) -> tuple[np.ndarray, np.ndarray]:
    """Return how many seats of a server are taken, and the edges of these times, from one time to another.

    An edge more than counts; nobody sits between steps that are apart. With "step_blocks" as `column`: how
    many blocks of memory.
    """
    log = result.replications[0].log
    assert isinstance(log, TokenLog)
    numbers = np.flatnonzero(log.batch_server == server)
    first = int(np.searchsorted(log.batch_finish_s[numbers], begin_s, side="right"))
    steps = numbers[first : int(np.searchsorted(log.batch_start_s[numbers], end_s))]
    times_s = np.stack([log.batch_start_s[steps], log.batch_finish_s[steps]], axis=1).ravel()
    counts = np.zeros(times_s.size + 1, int)
    counts[1::2] = getattr(log, column)[steps]
    edges_s = np.concatenate([[begin_s], np.clip(times_s, begin_s, end_s), [end_s]])
    some = np.diff(edges_s) > LEAST_S
    return np.append(edges_s[:-1][some], end_s), counts[some]


def beginning(result: Result, steps: int, server: int) -> Result:
    """Return the first steps of a run, at whose end whoever still sits leaves.

    Of whole batches those of one server alone: others' may still be under way.
    """
    log = result.log
    assert isinstance(log, TokenLog)
    requests = int(np.searchsorted(log.arrival_s, log.batch_finish_s[steps - 1], side="right"))
    columns: dict[str, Any] = {
        name: column[: steps if name in COLUMNS else requests]
        for name, column in vars(log).items()
        if isinstance(column, np.ndarray) and name not in PREEMPTIONS
    }
    servers, first = columns["batch_server"], columns["batch_index"]
    served = (first >= 0) & (first < steps)
    if not isinstance(result.scenario.rule, Continuous):  # whose servers have nothing to do with each other
        served &= servers[np.where(served, first, 0)] == server
    token, until = columns["token_step"], columns["last_step"]
    columns["batch_index"] = np.where(served, first, -1)
    columns["token_step"] = np.where(served & (token < steps), token, -1)
    columns["last_step"] = np.where(served & (until < steps), until, -1)
    if log.preempted_step is not None:
        before = int(np.searchsorted(log.preempted_step, steps))
        for name in PREEMPTIONS:
            numbers = getattr(log, name)[:before]
            columns[name] = np.where(numbers < steps, numbers, -1) if name in PREEMPTIONS[2:] else numbers
    return Result((TokenRun(result.scenario, replace(log, **columns)),), result.seed, result.engine)


def composition(result: Result, steps: np.ndarray, found: Seats) -> tuple[np.ndarray, np.ndarray]:
    """Return the prompt tokens and the answers' tokens of some steps of one server.

    A step's rows are of prompts or make a token each, and the log has their number and the tokens of all.
    Who sits by then is known; not all of them are served where the budget is used up, those admitted first,
    nor where prompts go first, alone.
    """
    log, rule = result.log, result.scenario.rule
    assert isinstance(log, TokenLog)
    rows, tokens = log.batch_size[steps], log.step_tokens[steps]
    if not isinstance(rule, Continuous):
        prompts = log.batch_trigger[steps] != NO_TRIGGER
        return np.where(prompts, tokens, 0), np.where(prompts, 0, tokens)
    start_s = log.batch_start_s[steps][:, None]
    sits = (found.begin_s <= start_s) & (found.end_s > start_s)
    tells = sits & (found.first_token_s <= start_s)
    prompts = sits & ~tells
    if rule.first == "prefill":  # alone, but where a rule mixes them
        decodes = np.where(prompts.any(axis=1), np.maximum(rows - prompts.sum(axis=1), 0), rows)
    else:
        served = np.cumsum(sits, axis=1) <= rows[:, None]
        decodes = (tells & served).sum(axis=1)
    return tokens - decodes, decodes
