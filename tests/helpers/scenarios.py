"""Scenarios as TOML, and what is refused of them."""

from contextlib import contextmanager

import pytest
from refusals import pattern

import batchsim as bs

BY_HAND = """\
# Two servers share a device.
servers = 2
timeout_ms = 200

[workload]
kind = "Poisson"
rate_per_s = 800

[rule]
kind = "SizeOrWait"
max_batch_size = 8
max_wait_ms = inf

[service]
kind = "Table"
points_ms = { 1 = 2.08, 2 = 2.65, 8 = 3.29 }
noise = { cv = 0.2, shape = "lognormal" }
padding = [1, 2, 4, 8]

[slowdown]
1 = 1.0
2 = 1.8
"""
AROUND = {
    "workload": '[workload]\nkind = "Poisson"\nrate_per_s = 800\n',
    "rule": '[rule]\nkind = "SizeOrWait"\n',
    "service": '[service]\nkind = "Affine"\nfixed_ms = 5\nper_item_ms = 0.25\n',
}


def with_table(**tables):
    """A scenario's text with some of its tables written otherwise; None leaves one out."""
    return "\n".join(table for table in {**AROUND, **tables}.values() if table is not None) + "\n"


def part(text):
    """A table of a workload, a rule or a service, read within a scenario."""
    name = text[1 : text.index("]")]
    return getattr(bs.Scenario.from_toml(with_table(**{name: text})), name)


@contextmanager
def refused(message):
    """Refusal with this message, in which "..." stands for any words."""
    with pytest.raises(ValueError, match=f"^{pattern(message)}$"):
        yield
