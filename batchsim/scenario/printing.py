"""A scenario as text and as HTML: what differs from the defaults, and the rest on request."""

from dataclasses import MISSING, fields
from typing import Any

from batchsim._format import html_table


def as_text(scenario: Any) -> str:
    """Return the call that makes the scenario, without what has its default.

    >>> from batchsim import Affine, Poisson, Scenario, SizeOrWait
    >>> Scenario(Poisson(9), SizeOrWait(8, 2), Affine(5, 1), servers=2)
    Scenario(workload=Poisson(rate_per_s=9), rule=SizeOrWait(max_batch_size=8, max_wait_ms=2), \
service=Affine(fixed_ms=5, per_item_ms=1), servers=2)
    """
    own, _ = _parted(scenario)
    return f"{type(scenario).__name__}({', '.join(f'{name}={value!r}' for name, value in own.items())})"


def as_html(scenario: Any) -> str:
    """Return a table for a notebook: the defaults are folded."""
    own, usual = map(_table, _parted(scenario))
    return f"{own}<details><summary>defaults</summary>{usual}</details>"


def _parted(scenario: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the fields that differ from their defaults, and the others."""
    values = {field: getattr(scenario, field.name) for field in fields(scenario)}
    own = {
        each.name: value for each, value in values.items() if each.default is MISSING or value != each.default
    }
    return own, {each.name: value for each, value in values.items() if each.name not in own}


def _table(values: dict[str, Any]) -> str:
    return html_table("", (), ((name, repr(value)) for name, value in values.items()), "<<")
