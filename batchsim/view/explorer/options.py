"""The options of each list of the explorer: what each one makes of the controls' values."""

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from batchsim import scenario as sc
from batchsim.measured.published import published, published_names
from batchsim.scenario import (
    Affine,
    AtLeast,
    ClosedLoop,
    Continuous,
    OnOff,
    Rule,
    SizeOrWait,
    StepTime,
    Table,
)
from batchsim.scenario.knobs import RATE
from batchsim.scenario.lengths import Uniform
from batchsim.scenario.routing import NAMES, ByKey
from batchsim.scenario.rules import RULES_OF_SIZES, continuous
from batchsim.scenario.rules.continuous import BatchWait, NewTokenRatio, WaitingServedRatio
from batchsim.scenario.sized_time import PackedTime, PaddedTime, SizeTable
from batchsim.scenario.step_time import StepCost
from batchsim.view.explorer.control import Option, rows_of, size_table

Options = Mapping[str, Option]
MOST_BURSTY = 1000  # the largest burst rate, in mean rates, that the control takes
WIDEST_CV = 1 / math.sqrt(3)  # of uniform lengths from 0 to twice the mean


def snake(cls: type) -> str:
    """Return the name of a class in snake case, as links have it."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", cls.__name__).lower()


# Workloads: the mean rate has one control, even if its field has another name.


def _burst_values(traffic: OnOff) -> Sequence[Any] | None:
    mean, burst = traffic.offered_per_s, traffic.on_rate_per_s
    if traffic.off_rate_per_s != 0 or burst >= MOST_BURSTY * mean:
        return None
    return mean, burst / mean, traffic.mean_on_s


_OTHERS = {  # workloads whose controls are not their parameters
    OnOff: ("onoff", Option(OnOff.title, OnOff, (RATE, "burst_factor", "mean_burst_s"),
        make=lambda rate_per_s, factor, on_s: OnOff(rate_per_s * factor, 0, on_s, on_s * (factor - 1)),
        read=_burst_values)),
    ClosedLoop: ("closed", Option(ClosedLoop.title, ClosedLoop, ("clients", "think_ms"),
        make=lambda clients, think_ms: ClosedLoop(clients, think_ms / 1000),
        read=lambda loop: (loop.clients, loop.think_s * 1000))),
}  # fmt: skip


def _of_workload(cls: Any) -> tuple[str, Option]:
    controls = tuple(RATE if name.endswith(RATE) else name for name in cls.parameters())
    return snake(cls), Option(cls.title, cls, controls)


WORKLOADS: Options = dict(_OTHERS.get(cls) or _of_workload(cls) for cls in sc.WORKLOADS)


# Lengths: the sizes of requests, their prompts and their outputs.


def _uniform(mean: float, cv: float) -> Uniform:
    half = min(cv, WIDEST_CV) / WIDEST_CV * mean
    low = max(round(mean - half), 1)
    return Uniform(low, max(round(mean + half), low))


def _uniform_values(lengths: Uniform) -> tuple[float, float]:
    both = lengths.low + lengths.high
    return both / 2, WIDEST_CV * (lengths.high - lengths.low) / both


def _lengths(of: str, part: type, make: Any, read: Any) -> dict[str, Option]:
    """Return the distributions of lengths, whose controls begin with `of`; the last three: all are equal."""
    mean, cv, most = f"{of}_mean", f"{of}_cv", f"{of}_most"
    return {
        "lognormal": Option("Log-normal", sc.Lognormal, (mean, cv, most)),
        "geometric": Option("Geometric", sc.Geometric, (mean, most)),
        "uniform": Option("Uniform", Uniform, (mean, cv), _uniform, _uniform_values),
        "fixed": Option("All equal", part, (mean,), make, read),
    }


SIZES: Options = {
    "none": Option("None: all are alike", type(None), (), lambda: None, lambda _: ()),
    **_lengths("size", Uniform, lambda mean: Uniform(round(mean), round(mean)),
        lambda sizes: (sizes.low,) if sizes.low == sizes.high else None),
}  # fmt: skip
PROMPTS, OUTPUTS = (_lengths(of, int, round, lambda length: (length,)) for of in ("prompt", "output"))


# Rules: every registered one, by its name in snake case, and one for full batches only.


def full_only(size: int) -> SizeOrWait:
    """Return the rule under which only full batches leave."""
    return SizeOrWait(size, float("inf"))


def _size_of_full(rule: SizeOrWait) -> tuple[int] | None:
    return (rule.max_batch_size,) if rule.max_wait_ms == float("inf") and not rule.by_size else None


FULL_ONLY = Option("Full batches only", SizeOrWait, ("max_batch_size",), full_only, _size_of_full)
SHOWN: tuple[type[Rule], ...] = (*sc.RULES, *RULES_OF_SIZES)
RULES: Options = {
    **{snake(rule): Option(rule.label(), rule, tuple(rule.parameters())) for rule in SHOWN},
    "full_only": FULL_ONLY,
}

ON, OFF = "on", "off"
SWITCHES = "chunked", "mixed", "overlap", "prefill_delayer"
LIMITS = "max_num_seqs", "max_num_batched_tokens", "kv_blocks", "block_size", "max_model_len"
CUT = "chunked", "reserve", "watermark_blocks", "long_prefill_token_threshold"


def _continuous(rule: type[Continuous], *names: str) -> Option:
    """Return the option of a rule with these settings; a switch has a list of its two states."""

    def make(*values: Any) -> Continuous:
        given = zip(names, values, strict=True)
        return rule(**{name: value == ON if name in SWITCHES else value for name, value in given})

    def read(rule: Continuous) -> Sequence[Any] | None:
        values = {name: getattr(rule, name) for name in names}
        return [(ON if each else OFF) if name in SWITCHES else each for name, each in values.items()]

    return Option(rule.label(), rule, names, make, read)


BATCHING: Options = {
    "continuous": _continuous(Continuous, *LIMITS, "first", *CUT),
    "batch_wait": _continuous(BatchWait, *LIMITS, *CUT, *continuous.WAITS, "overlap"),
    "new_token_ratio": _continuous(NewTokenRatio, *LIMITS, "max_prefill_tokens", "init_new_token_ratio",
        "min_new_token_ratio", "decay_steps", "mixed", "prefill_delayer", *continuous.DELAYS),
    "waiting_served_ratio": _continuous(WaitingServedRatio, *LIMITS, "chunked", "waiting_served_ratio",
        "max_waiting_tokens"),
    **{
        snake(rule): Option(rule.title, rule,
            tuple(name for name, it in rule.parameters().items() if not it.of_sizes))
        for rule in (SizeOrWait, AtLeast)
    },
    "whole": FULL_ONLY,
}  # fmt: skip
ROUTINGS: Options = {
    name: Option(routing.title, routing, ("keys", "popularity") if routing is ByKey else (),
        read=(lambda it: (it.keys, it.popularity) if isinstance(it.keys, int) else None)
        if routing is ByKey else None)
    for name, routing in NAMES.items()
}  # fmt: skip


# Service times.


def _published(name: str) -> Option:
    step = published(name)
    cost = step.cost  # type: ignore[union-attr]
    return Option(name, StepTime, (), lambda: step, lambda other: () if other.cost == cost else None)


COSTS = "fixed_ms", "per_item_ms", "per_unit_ms", "per_pair_ms"
SERVICES: Options = {
    "affine": Option("Affine: fixed cost + cost per item", Affine, ("fixed_ms", "per_item_ms")),
    "published": Option("Published", Table, ("published",), published, lambda table: None),
    "curve": Option("Curve", Table, ("curve",)),
    "size_table": Option("Table by batch size and length", SizeTable, ("size_table",), size_table,
        lambda table: (rows_of(table),)),
    "padded": Option("Padded: + cost per unit x batch size x longest", PaddedTime, COSTS),
    "packed": Option("Packed: + cost per unit x sum of sizes", PackedTime, COSTS),
}  # fmt: skip
OWN = "own"  # a step time with other costs than the published ones
STEPS: Options = {
    **{name: _published(name) for name in published_names(tokens=True)},
    OWN: Option("Five costs of your own", StepTime, StepCost._fields, read=lambda step: step.cost),
}
