"""The columns and numbers of a result, as properties that are computed when they are first read."""

from collections.abc import Callable
from functools import cached_property
from typing import Any, TypeVar

import numpy as np

from batchsim.engines.log import Log
from batchsim.engines.tokens_log import TokenLog
from batchsim.result.run import Run
from batchsim.result.token_run import NO_TOKENS, Steps, TokenRun

Value = TypeVar("Value")


def computed(read: "Callable[[Any], Value]", about: str) -> "cached_property[Value]":
    """Return a property that is computed when it is first read."""
    read.__doc__ = about
    return cached_property(read)


def column(name: str, about: str, kind: type[Run] = Run) -> "cached_property[np.ndarray]":
    """Return a property: a column of the runs, one after the other; of runs of this kind alone."""

    def read(result: Any) -> np.ndarray:
        if not isinstance(result.runs[0], kind):
            raise ValueError(NO_TOKENS)
        columns = [getattr(run, name) for run in result.runs]
        return columns[0] if len(columns) == 1 else np.concatenate(columns)

    return computed(read, about)


def number(key: str, about: str) -> "cached_property[float]":
    """Return a property: one of the metrics."""
    return computed(lambda result: result.metrics.numbers[key], about)


class TokenColumns:
    """The columns of token generation; ValueError for a run without."""

    runs: tuple[Run, ...]

    @property
    def log(self) -> Log:
        raise NotImplementedError

    prompt_tokens = computed(lambda result: result.token_log.prompt_tokens, "The length of each prompt.")
    output_tokens = computed(lambda result: result.token_log.output_tokens, "The length of each answer.")
    preemptions = computed(lambda result: result.token_log.preemptions, "How often each was preempted.")
    steps = computed(lambda result: Steps.of(result.token_log), "Columns with a row a step.")
    first_token_s = column("first_token_s", "When each request's first token is made.", TokenRun)
    ttft_ms = column("ttft_ms", "Time to the first token, from arrival.", TokenRun)
    tpot_ms = column(
        "tpot_ms", "Time per output token after the first; NaN where it is the only one.", TokenRun
    )
    prefill_ms = column("prefill_ms", "From the start to the first token, but for `preempted_ms`.", TokenRun)
    decode_ms = column("decode_ms", "From the first token to the finish, but for `preempted_ms`.", TokenRun)
    preempted_ms = column(
        "preempted_ms", "Waiting between a preemption and the step that serves it again.", TokenRun
    )

    @property
    def token_log(self) -> TokenLog:
        """The columns of a run of token generation; ValueError for another."""
        if not isinstance(self.log, TokenLog):
            raise ValueError(NO_TOKENS)
        return self.log
