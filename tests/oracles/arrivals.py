"""Arrival times as a run draws them."""

import numpy as np

from batchsim.scenario.workload import CHUNK, filled


def stream(seed=0, which=0):
    """The stream that a run of this seed uses: 0 arrivals, 1 noise, 2 thinking."""
    return np.random.SeedSequence(seed).spawn(3)[which]


def arrivals(workload, requests=4000, seed=0):
    return filled(workload.chunks_s(stream(seed), requests, CHUNK), requests)
