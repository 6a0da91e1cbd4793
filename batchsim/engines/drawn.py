"""Plans whose randomness is kept from move to move: a rate only stretches what was drawn."""

import functools
from collections.abc import Hashable

import numpy as np

from batchsim.engines.plan import Plan, Streams
from batchsim.scenario import (
    Affine,
    ClosedLoop,
    Constant,
    Diurnal,
    Gamma,
    OpenLoop,
    Poisson,
    Scenario,
    SizeOrWait,
    Trace,
)
from batchsim.scenario.service import Noise
from batchsim.scenario.workload import CHUNK, filled

KEPT = 1 << 17  # draws of at most so many requests are kept: a megabyte each


def drawn(scenario: Scenario, requests: int, seed: int, largest: int) -> Plan:
    """Return what `plan.draw` returns, the service times up to batches of `largest`.

    The arrays are shared with other plans: they are not to be written to.
    """
    workload, noise = scenario.workload, scenario.service.noise
    arrival_s = think_s = None
    if isinstance(workload, ClosedLoop):
        think_s = _kept(_think_s, workload.think_s, requests, seed)
    else:
        arrival_s = _arrivals_s(workload, requests, seed)
    return Plan(
        scenario=scenario,
        requests=requests,
        arrival_s=arrival_s,
        think_s=think_s,
        service_s=scenario.service.table(largest),
        noise=None if noise is None else _kept(_noise, noise, requests, seed),
        slowdown=Streams(scenario, seed).slowdown,
    )


def _kept(draw, key, requests: int, seed: int) -> np.ndarray:  # type: ignore[no-untyped-def]
    """Draw, or take what was drawn before, where it is small enough to be kept."""
    return (draw if requests <= KEPT else draw.__wrapped__)(key, requests, seed)


def _arrivals_s(workload: OpenLoop, requests: int, seed: int) -> np.ndarray:
    if isinstance(workload, Trace):  # its hash costs more than its copy, and that can be written to
        return workload.times_s[:requests].copy()
    if type(workload) in (Poisson, Constant, Gamma):  # the gaps of a rate are those of rate 1, divided by it
        return _kept(_open_s, workload.with_rate(1), requests, seed) / workload.offered_per_s
    if isinstance(workload, Hashable):
        return _kept(_open_s, workload, requests, seed)
    return _open_s.__wrapped__(workload, requests, seed)


def _streams(seed: int, workload: OpenLoop | ClosedLoop, noise: Noise | None = None) -> Streams:
    return Streams(Scenario(workload, SizeOrWait(1, 0), Affine(1, 0, noise=noise)), seed)


@functools.lru_cache(maxsize=32)  # two load curves' rates of a workload that must be drawn for each
def _open_s(workload: OpenLoop, requests: int, seed: int) -> np.ndarray:
    if type(workload) is Diurnal:  # at any rate it stretches the same points
        points = _kept(_open_s, Poisson(1), requests, seed)
        return filled(workload.stretched_s([points]), requests)
    return filled(_streams(seed, workload).arrivals_s(requests, CHUNK), requests)


@functools.lru_cache(maxsize=4)
def _think_s(think_s: float, requests: int, seed: int) -> np.ndarray:
    draw = _streams(seed, ClosedLoop(1, think_s)).think()
    assert draw is not None
    return draw(requests)


@functools.lru_cache(maxsize=4)
def _noise(noise: Noise, requests: int, seed: int) -> np.ndarray:
    draw = _streams(seed, Constant(1), noise).noise()
    assert draw is not None
    return draw(requests)
