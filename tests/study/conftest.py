"""Fixtures of several files."""

import pytest
from sweeps import sweep

from batchsim.study import sweep as sweeping


@pytest.fixture(scope="session")
def undisturbed():
    table = sweep()
    assert (table.infeasible != "").sum() == 2 + 2  # unstable, and refused
    return table


@pytest.fixture
def computed(monkeypatch):
    """The points that are computed, one by one as they are."""
    points = []

    def compute(scenario, task, settings):
        points.extend(task)
        return original(scenario, task, settings)

    original = sweeping.compute
    monkeypatch.setattr(sweeping, "compute", compute)
    return points
