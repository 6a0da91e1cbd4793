"""What the explorer's lists offer: kinds of traffic, rules and service times, with the controls each uses."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from batchsim import scenario
from batchsim.measured.published import published
from batchsim.scenario import RULES, ClosedLoop, Noise, OnOff, SizeOrWait
from batchsim.scenario.scenario import RATE
from batchsim.view.explorer import kinds_tokens
from batchsim.view.explorer.control import Kind

MOST_BURSTY = 1000  # the largest burst rate, in mean rates, that the control takes


def _burst_values(traffic: OnOff) -> Sequence[Any] | None:
    mean, burst = traffic.offered_per_s, traffic.on_rate_per_s
    if traffic.off_rate_per_s != 0 or burst >= MOST_BURSTY * mean:
        return None
    return mean, burst / mean, traffic.mean_on_s


def _snake(cls: type) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", cls.__name__).lower()


def _of_workload(cls: Any) -> tuple[str, Kind]:
    """Return the kind of a workload: its mean rate has one control, whatever the parameter is called."""
    controls = tuple(RATE if name.endswith(RATE) else name for name in cls.parameters())
    return _snake(cls), Kind(cls.title, cls, controls)


# Workloads whose controls are not their parameters.
_OTHERS = {
    OnOff: ("onoff", Kind(OnOff.title, OnOff, (RATE, "burst_factor", "mean_burst_s"),
        make=lambda rate_per_s, factor, on_s: OnOff(rate_per_s * factor, 0, on_s, on_s * (factor - 1)),
        read=_burst_values)),
    ClosedLoop: ("closed", Kind(ClosedLoop.title, ClosedLoop, ("clients", "think_ms"),
        make=lambda clients, think_ms: ClosedLoop(clients, think_ms / 1000),
        read=lambda loop: (loop.clients, loop.think_s * 1000))),
}  # fmt: skip
WORKLOADS: Mapping[str, Kind] = {
    **dict(_OTHERS.get(cls) or _of_workload(cls) for cls in scenario.WORKLOADS),
    "given": Kind("Given: the traffic of this page", scenario.OpenLoop, (RATE,)),  # made by the state
}
# Every registered rule, by its name in snake case; full batches only is one of its own.
RULE_KINDS: Mapping[str, Kind] = {
    _snake(rule): Kind(rule.title, rule, tuple(rule.parameters())) for rule in RULES
} | {
    "full_only": Kind("Full batches only", SizeOrWait, ("max_batch_size",), kinds_tokens.full_only,
        kinds_tokens.size_of_full),
}  # fmt: skip
SERVICES: Mapping[str, Kind] = {
    "affine": Kind("Affine: fixed cost + cost per item", scenario.Affine, ("fixed_ms", "per_item_ms")),
    "published": Kind("Published", scenario.Table, ("published",), published, lambda table: None),
    "curve": Kind("Curve", scenario.Table, ("curve",)),
}
KINDS: Mapping[str, Mapping[str, Kind]] = {
    "workload": WORKLOADS, "rule": RULE_KINDS, "service": SERVICES, **kinds_tokens.KINDS,
}  # fmt: skip


def values_of(choice: str, part: Any) -> dict[str, Any] | None:
    """Return what the controls say of a part, the list's own value included; None where they cannot.

    >>> values_of("rule", SizeOrWait(8, float("inf")))
    {'rule': 'full_only', 'max_batch_size': 8}
    """
    kinds = {name: kind.values(part) for name, kind in KINDS[choice].items()}
    found = [{choice: name, **values} for name, values in kinds.items() if values is not None]
    # Where two kinds can express it, the narrower one is meant: full batches only, not an infinite wait.
    return min(found, key=len, default=None)


def noise_values(noise: Noise | None) -> dict[str, Any]:
    """Return the controls' values for the noise of a service time, of batches or of steps."""
    if noise is None:
        return {}
    values = {"noise_cv": noise.cv, "noise": noise.shape}
    if noise.correlation:
        values |= {"noise_correlation": noise.correlation, "noise_batches": noise.memory_batches}
    return values
