"""Fixtures of several files."""

import pytest
from results import BUSY

import batchsim as bs


@pytest.fixture(scope="session")
def small():
    return bs.simulate(BUSY, 60, replications=2)
