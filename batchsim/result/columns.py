"""The columns and numbers of a result, as properties that are computed when they are first read."""

from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from batchsim.engines.log import Log, Status
from batchsim.engines.token_log import TokenLog
from batchsim.result.run import Run
from batchsim.result.token_run import NO_TOKENS, Steps, TokenRun
from batchsim.scenario.rules import Trigger

if TYPE_CHECKING:
    import pandas

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


def frame(result: Any) -> "pandas.DataFrame":
    """Return a DataFrame with a row a request; see `Result.to_frame`."""
    import pandas

    log = result.log
    # Index -1, not served, finds what is appended at the end.
    triggers = np.array([Trigger(t).name.lower() for t in log.batch_trigger] + [""], dtype=object)
    times = (
        "arrival_s",
        "start_s",
        "finish_s",
        "latency_ms",
        *(f"{part}_ms" for part in result.metrics.components),
    )
    return pandas.DataFrame({
        **{name: getattr(result, name) for name in times},
        "batch_index": log.batch_index,
        "batch_size": np.append(log.batch_size, 0)[log.batch_index],
        "server": np.append(log.batch_server, -1)[log.batch_index],
        "trigger": triggers[log.batch_index],
        "status": [Status(state).name.lower() for state in log.status],
        **({} if log.priority is None else {"priority": log.priority}),
    })  # fmt: skip


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
