"""Every control of the explorer, described once: its words, default, bounds, slider, and the page it is on.

The state, its links, the widgets and the refusals are all made from this table. The parameters of rules
describe themselves, so that a new rule brings its controls along.
"""

import dataclasses
import math
import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from batchsim.measured.published import published_names
from batchsim.scenario import RULES, WORKLOADS
from batchsim.scenario.parameters import Parameter
from batchsim.scenario.service import SHAPES
from batchsim.view.explorer import controls_tokens as of_tokens
from batchsim.view.explorer.control import (
    ARRIVALS,
    CHOICES,
    CLASS,
    COMPUTING,
    DEVICE,
    MAIN,
    MODES,
    REQUESTS,
    RULE,
    Control,
    Slider,
    choice,
)  # fmt: skip
from batchsim.view.explorer.kinds import KINDS, MOST_BURSTY

LARGEST_BATCH = 4096  # a heat map's column of it is still computed while a slider moves


def _of_parameter(it: Parameter, page: str = MAIN) -> Control:
    given = {"at_least": it.at_least, "at_most": it.at_most, "above": it.above}
    bounds: dict[str, Any] = {name: bound for name, bound in given.items() if bound is not None}
    if it.kind == "real":
        bounds["finite"] = not it.may_be_inf
    else:
        bounds["at_most"] = min(bounds["at_most"], LARGEST_BATCH)
    if it.kind == "sizes":
        del bounds["at_least"]
    slider = it.slider and Slider(
        "whole" if it.kind == "whole" else "log" if it.log else "linear", *it.slider
    )
    about = it.about + ("; inf: no limit" if it.may_be_inf else "")
    first = it.usual if it.usual is not None else (1,) if it.kind == "sizes" else it.at_least
    return Control(it.label, about, it.kind, first, page, slider, bounds)


# Parameters of workloads, without those that have other controls.
_SHOWN = {name for kind in KINDS["workload"].values() for name in kind.controls}
TRAFFIC = {
    name: _of_parameter(it, ARRIVALS)
    for workload in WORKLOADS for name, it in workload.parameters().items() if name in _SHOWN
}  # fmt: skip
# Rules share the control of a name: the first that has it describes it.
PARAMETERS: dict[str, Parameter] = {}
for parameters in (rule.parameters() for rule in RULES):
    PARAMETERS |= {name: it for name, it in parameters.items() if name not in PARAMETERS}
_ROWS: dict[str, Control] = {
    "mode": choice("What is seen", "Requests that are computed whole, or the tokens that they generate",
        REQUESTS, MAIN, dict(zip(MODES, MODES, strict=True))),
    "workload": choice("Arrivals", "How requests arrive", "poisson", ARRIVALS, KINDS["workload"]),
    **TRAFFIC,
    "rate_per_s": Control("Arrival rate (per s)", "Mean number of requests per second",
        "real", 1000, MAIN, Slider("log", 1, 10_000, 0.01), {"above": 0}),
    "burst_factor": Control("Burst rate (x mean)", "Arrival rate in a burst; between bursts nothing arrives",
        "real", 5, ARRIVALS, Slider("linear", 1.1, 20, 0.1), {"above": 1, "at_most": MOST_BURSTY}),
    "mean_burst_s": Control("Mean burst (s)", "Mean duration of a burst",
        "real", 0.1, ARRIVALS, Slider("log", 0.001, 100, 0.01), {"above": 0}),
    "clients": Control("Clients", "Each sends a request, waits for the answer, thinks, and sends the next",
        "whole", 64, MAIN, Slider("whole", 1, 256), {"at_most": 100_000}),
    "think_ms": Control("Think time (ms)", "Mean time between an answer and the client's next request",
        "real", 0, ARRIVALS, Slider("linear", 0, 1000), {"at_least": 0}),
    "priorities": Control("Priorities",
        "The share that goes first, level 1; typed, more levels and their shares, e.g. 1:0.2, 2:0.5, 3:0.3; "
        "empty: all alike",
        "levels", (), ARRIVALS, Slider("share", 0, 0.95, 0.05), optional=True),
    **of_tokens.LENGTHS,
    "rule": choice("Rule", "When a batch leaves", "size_or_wait", RULE, KINDS["rule"]),
    **{name: _of_parameter(parameter) for name, parameter in PARAMETERS.items()},
    **of_tokens.BATCHING,
    **of_tokens.STEPS,
    "service": choice("Service time", "How long a batch computes", "affine", COMPUTING, KINDS["service"]),
    "fixed_ms": Control("Fixed cost (ms)", "Time that every batch, or every step, takes, whatever its size",
        "real", 5, COMPUTING, Slider("linear", 0, 50, 0.5), {"at_least": 0}),
    **of_tokens.NUMBERS,
    "per_item_ms": Control("Cost per item (ms)", "Time that each request adds to its batch",
        "real", 0.25, COMPUTING, Slider("linear", 0, 5, 0.01), {"at_least": 0}),
    "published": choice("Published table", "A published service time", "gpunet-175ms/v100-32gb/fp16", None,
        published_names()),
    "curve": Control("Curve", "A measured service time", "points", (), None, optional=True),
    "curve_of": Control("Curve source", "The model and the device of the curve", "text", "", None),
    "noise_cv": Control("Noise (CV)", "Standard deviation over mean of equal batches' computing times",
        "real", 0, COMPUTING, Slider("linear", 0, 2, 0.05), {"at_least": 0, "at_most": 1e3}),
    "noise": choice("Noise distribution", "Of the service times", "lognormal", None, SHAPES),
    "noise_correlation": Control("Noise correlation", "Of one batch's time with the next one's", "real", 0,
        None, None, {"at_least": 0, "at_most": 1}),
    "noise_batches": Control("Noise memory", "Batches in which that correlation falls to 1/e of it", "real",
        10, None, None, {"above": 0, "at_most": 1e6}),
    "padding": Control("Pad to sizes",
        "Round each batch up to the next of these, e.g. 1, 2, 4, 8; empty: no padding",
        "sizes", (), COMPUTING, optional=True),
    "compile_ms": Control("Cold start (ms)",
        "What the first batch of each size, or padded size, takes longer while it compiles: one cost for all "
        "sizes (in Python they may differ); 0: warm",
        "real", 0, COMPUTING, Slider("linear", 0, 3000, 50), {"at_least": 0}),
    "servers": Control("Servers", "Model instances; each computes one batch, or one step, at a time",
        "whole", 1, MAIN, Slider("whole", 1, 8), {"at_most": 64}),
    "devices": Control("Devices",
        "Devices that the servers share, each computing one batch at a time; empty: one each",
        "whole", None, DEVICE, None, {"at_most": 64}, optional=True),
    "host_ms": Control("Host part (ms)",
        "Part of the service time before a batch needs its device; 0: none",
        "real", 0, DEVICE, Slider("linear", 0, 50, 0.1), {"at_least": 0}),
    "contention": Control("Contention",
        "How many times as long a batch computes that finds its device busy",
        "real", 1, DEVICE, Slider("linear", 1, 3, 0.05), {"at_least": 1, "at_most": 100}),
    "sharing": Control("Slowdown from sharing",
        "In place of these: how much each extra busy server slows the others; 0: not at all",
        "real", 0, DEVICE, Slider("linear", 0, 1, 0.05), {"at_least": 0, "at_most": 100}),
    "queue_limit": Control("Queue limit",
        "Reject arrivals when this many are waiting, those of one instant included; empty: no limit",
        "whole", None, RULE, optional=True),
    "timeout_ms": Control("Timeout (ms)", "Requests that have waited this long give up; empty: never",
        "real", None, RULE, None, {"at_least": 0}, optional=True),
    "timeout_action": choice("At the timeout", "What becomes of a request that has waited so long", "reject",
        RULE, {"reject": "It leaves", "delay": "It is served after the others"}),
    "objective_ms": Control("p99 objective (ms)", "99% of requests are answered within this; empty: none",
        "real", 25, MAIN, Slider("log", 0.1, 10_000, 0.01), {"above": 0}, optional=True),
    **of_tokens.OBJECTIVES,
    "seed": Control("Seed", "The same seed gives the same traffic",
        "whole", 0, CLASS, None, {"at_least": 0, "at_most": 2**63 - 1}),
}  # fmt: skip
# What token generation does not have, beside what is no kind of its choices.
_WHOLE = (
    "priorities", "rule", "service", "published", "curve", "curve_of", "padding", "compile_ms", "devices",
    "host_ms", "contention", "sharing", "timeout_action", "objective_ms",
)  # fmt: skip
CONTROLS: Mapping[str, Control] = {
    name: dataclasses.replace(
        row, mode=REQUESTS if name in _WHOLE else row.mode, in_tokens=of_tokens.AT_FIRST.get(name, ...)
    )
    for name, row in _ROWS.items()
}


def on_page(page: str) -> list[str]:
    """Return the names of the controls on a page."""
    return [name for name, control in CONTROLS.items() if control.page == page]


def relevant(control: str, values: Mapping[str, Any]) -> bool:
    """Return whether a control makes a difference beside the other controls' values.

    >>> values = {"workload": "gamma", "rule": "full_only", "service": "curve", "devices": None}
    >>> [relevant(name, values) for name in ("cv", "max_wait_ms", "seed")]
    [True, False, True]
    """
    mode = values.get("mode", REQUESTS)
    if CONTROLS[control].mode not in (None, mode):
        return False
    if control in ("host_ms", "contention"):
        return values["devices"] is not None
    if control == "timeout_action":
        return values["timeout_ms"] is not None
    if control == "sharing":
        return bool(values["servers"] > 1 and values["devices"] is None)
    if control in ("limit", "token_map") and values["batching"] != "continuous":
        return False
    if control == "limit":
        return bool(values["reserve"] == "life")
    users = [(part, name) for part, kinds in KINDS.items()
             for name, kind in kinds.items() if control in kind.controls]  # fmt: skip
    return not users or any(part in CHOICES[mode] and values[part] == name for part, name in users)


# What a scenario's classes say in words that are no control's, as one says it of the controls.
PHRASES = (
    (r"a ClosedLoop must have at least ([\d,]+) clients", r"Clients must be at least \1"),
    (r"on a ClosedLoop needs", "with clients that wait for answers needs"),
    (r"an on and an off state must see", "each burst (Arrival rate, Mean burst) must see"),
    (r"\bon_rate_per_s\b", "Arrival rate (per s) x Burst rate (x mean)"),
    (r"\bmean_off_s\b", "the pause between bursts (s)"),
    (r"\bmean_on_s\b", "Mean burst (s)"),
    (r"\bthink_s\b", "Think time (ms)"),
    (
        r"\bbatch_size must be at most the largest padded size, ([\d,]+), got ([\d,]+)",
        r"Pad to sizes must reach every batch size, got \1 at most for a batch of \2",
    ),
    (
        r"\bbatch_size must be at most the Table's largest size",
        "a batch size must be at most the service time's largest",
    ),
    (r"\ba size in (Pad to sizes|Preferred sizes)", r"\1"),
)


def in_labels(message: str) -> str:
    """Return a message about parameters as one about controls, for a person who sees only these.

    >>> in_labels("min_batch_size must be at most max_batch_size, 3, got 4")
    'Min batch size must be at most Max batch size, 3, got 4'
    >>> in_labels("on_rate_per_s must be at most 1e+12, got 5000000000000.0")
    'Arrival rate (per s) x Burst rate (x mean) must be at most 1e12, got 5e12'
    """
    # Only names with an underscore: "servers" or "rule" may be the sentence's own words.
    labels = {name: control.label for name, control in CONTROLS.items() if "_" in name}
    message = re.sub(r"\b[a-z]+(_[a-z0-9]+)+\b", lambda name: labels.get(name[0], name[0]), message)
    for words, replaced in PHRASES:
        message = re.sub(words, replaced, message)
    return re.sub(r"(?<![\w.'])\d+(\.\d+)?(e[+-]?\d+)?(?![\w.'])", _plain, message)


def _plain(found: re.Match[str]) -> str:
    """Return a float as it is typed: 5e12, not 5000000000000.0 or 5e+12."""
    return as_typed(float(found[0])) if "." in found[0] or "e" in found[0] else found[0]


def as_typed(value: Any) -> str:
    """Return a value as its field shows it.

    >>> as_typed(None), as_typed(10.0), as_typed(0.125), as_typed(31), as_typed((2, 4))
    ('', '10', '0.125', '31', '2, 4')
    >>> as_typed(1e9), as_typed(1.5e-7), as_typed(0.1 + 0.2), as_typed(123_456.0)
    ('1e9', '1.5e-7', '0.30000000000000004', '123456')
    """
    if value is None:
        return ""
    if isinstance(value, tuple):
        return ", ".join(f"{v[0]}:{as_typed(v[1])}" if isinstance(v, tuple) else str(v) for v in value)
    if not isinstance(value, float):
        return str(value)
    plain = repr(value).removesuffix(".0")
    if not math.isfinite(value) or 1e-3 <= abs(value) < 1e6:
        return plain
    mantissa, _, exponent = np.format_float_scientific(value, trim="-").partition("e")
    return min(f"{mantissa}e{int(exponent)}", plain, key=len)
