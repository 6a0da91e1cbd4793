"""The explorer's kinds of run, and the words of their controls."""

import math
import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from batchsim.view.explorer.kind import Kind
from batchsim.view.explorer.requests import Requests
from batchsim.view.explorer.rows import CONTROLS
from batchsim.view.explorer.tokens import TokenGeneration

KINDS: Mapping[str, Kind] = {kind.name: kind for kind in (Requests(), TokenGeneration())}
FIRST = next(iter(KINDS))  # the kind of run that an explorer begins with


def on_page(page: str) -> list[str]:
    """Return the names of the controls on a page."""
    return [name for name, control in CONTROLS.items() if control.page == page]


def relevant(control: str, values: Mapping[str, Any]) -> bool:
    """Return whether a control makes a difference, given the values of the others.

    >>> values = {"workload": "gamma", "rule": "full_only", "service": "curve", "devices": None}
    >>> [relevant(name, values) for name in ("cv", "max_wait_ms", "seed")]
    [True, False, True]
    """
    return control == "mode" or KINDS[values.get("mode", FIRST)].relevant(control, values)


# Wordings of a scenario's errors, and those that name controls instead.
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
    # Only names with an underscore, as "servers" or "rule" may be ordinary words of the sentence.
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
        return ", ".join(":".join(map(as_typed, v)) if isinstance(v, tuple) else str(v) for v in value)
    if not isinstance(value, float):
        return str(value)
    plain = repr(value).removesuffix(".0")
    if not math.isfinite(value) or 1e-3 <= abs(value) < 1e6:
        return plain
    mantissa, _, exponent = np.format_float_scientific(value, trim="-").partition("e")
    return min(f"{mantissa}e{int(exponent)}", plain, key=len)
