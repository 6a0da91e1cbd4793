"""What the explorer's lists offer of token generation: lengths, rules and times of a step."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from batchsim.measured.published import published, published_names
from batchsim.scenario import (
    AtLeast,
    Continuous,
    Geometric,
    Lognormal,
    SizeOrWait,
    StepTime,
    Uniform,
)
from batchsim.scenario.step_time import StepCost
from batchsim.scenario.tokens import Listed
from batchsim.view.explorer.control import Kind

WIDEST_CV = 1 / math.sqrt(3)  # of lengths that are all equally likely, from 0 to twice the mean
ON, OFF = "on", "off"
RULE = (
    "max_num_seqs", "max_num_batched_tokens", "kv_blocks", "first", "chunked", "reserve", "block_size",
    "watermark_blocks", "long_prefill_token_threshold",
)  # fmt: skip
OWN = "own"  # numbers of a step time, beside the published ones


def _even(mean: float, cv: float) -> Uniform:
    """Return evenly spread lengths; with a larger cv than there is, all up to twice the mean."""
    half = min(cv, WIDEST_CV) / WIDEST_CV * mean
    low = max(round(mean - half), 1)
    return Uniform(low, max(round(mean + half), low))


def _even_values(lengths: Uniform) -> tuple[float, float]:
    both = lengths.low + lengths.high
    return both / 2, WIDEST_CV * (lengths.high - lengths.low) / both


def _geometric_values(lengths: Geometric) -> tuple[float] | None:
    return (lengths.mean,) if lengths.at_most is None else None


def _lengths(of: str) -> Mapping[str, Kind]:
    mean, cv, most = f"{of}_mean", f"{of}_cv", f"{of}_most"
    return {
        "lognormal": Kind("Log-normal", Lognormal, (mean, cv, most)),
        "geometric": Kind("Geometric", Geometric, (mean,), read=_geometric_values),
        "uniform": Kind("Evenly spread", Uniform, (mean, cv), _even, _even_values),
        "fixed": Kind("All alike", int, (mean,), round, lambda length: (length,)),
        "given": Kind("Given: the lengths of this page", Listed, (), read=lambda lengths: ()),
    }


def full_only(size: int) -> SizeOrWait:
    """Return the rule by which full batches leave alone."""
    return SizeOrWait(size, math.inf)


def size_of_full(rule: SizeOrWait) -> Sequence[Any] | None:
    """Return the size of a rule by which full batches leave alone, None of another."""
    return (rule.max_batch_size,) if math.isinf(rule.max_wait_ms) else None


def _continuous(*values: Any) -> Continuous:
    named = dict(zip(RULE, values, strict=True))
    return Continuous(**named | {"chunked": named["chunked"] == ON})


def _continuous_values(rule: Continuous) -> Sequence[Any] | None:
    if rule.prefix_reuse:
        return None
    values = {name: getattr(rule, name) for name in RULE}
    return tuple((values | {"chunked": ON if rule.chunked else OFF}).values())


def _numbers(step: StepTime) -> Sequence[Any] | None:
    return None if step.ragged else step.cost


def _published(name: str) -> Kind:
    step = published(name)
    assert isinstance(step, StepTime)
    cost = step.cost

    def read(other: StepTime) -> tuple[()] | None:
        return () if other.cost == cost and not other.ragged else None

    return Kind(name, StepTime, (), lambda: step, read)


KINDS: Mapping[str, Mapping[str, Kind]] = {
    "prompts": _lengths("prompt"),
    "outputs": _lengths("output"),
    "batching": {
        "continuous": Kind("Continuous batching", Continuous, RULE, _continuous, _continuous_values),
        "size_or_wait": Kind("Size or wait", SizeOrWait, tuple(SizeOrWait.parameters())),
        "at_least": Kind("Minimum batch size", AtLeast, tuple(AtLeast.parameters())),
        "whole": Kind("Whole batches, full only", SizeOrWait, ("max_batch_size",), full_only, size_of_full),
    },
    "step": {
        **{name: _published(name) for name in published_names(tokens=True)},
        OWN: Kind("Five numbers of its own", StepTime, StepCost._fields, read=_numbers),
    },
}
