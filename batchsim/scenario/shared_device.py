"""Servers that share a device: how many batches it carries, and its two numbers from measured throughputs."""

import functools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields

import numpy as np

from batchsim import _check
from batchsim.scenario.rules.rule import LARGEST_BATCH
from batchsim.scenario.service import Noise, Service

SAMPLES = 100_000  # batches by which a rate with noise is estimated: to 0.3 % where the cv is 1
MANY = 500  # servers on one device, of which noise is averaged out


@dataclass(frozen=True)
class Sharing(Mapping[str, float]):
    """What `sharing` finds, as knobs: `scenario.replace(found)`, or `Scenario(..., **found)`."""

    host_ms: float
    contention: float

    def __getitem__(self, name: str) -> float:
        return {each.name: getattr(self, each.name) for each in fields(self)}[name]

    def __iter__(self) -> Iterator[str]:
        return (each.name for each in fields(self))

    def __len__(self) -> int:
        return len(fields(self))


def sharing(one_per_s: float, two_per_s: float, service: Service, batch_size: float) -> Sharing:
    """Return how two servers share a device, from the throughputs of one and of two at saturation.

    Both without a rest, in batches of `batch_size` on average: the largest if there are always more requests
    than fit; with fewer clients, a third of them is in each batch of two servers, and in the next one.
    `one_per_s` and `two_per_s` are in any one unit; `service` is of one server alone. Two that carry more
    than one overlap: while one computes, the other is on the host (`host_ms`). Two that carry less slow each
    other down (`contention`). More than twice as much counts as twice.

    ValueError where they overlap for longer than the shortest service time.

    >>> from batchsim import Affine, ClosedLoop, Scenario, SizeOrWait, simulate
    >>> service = Affine(fixed_ms=2, per_item_ms=1)
    >>> found = sharing(one_per_s=800, two_per_s=1000, service=service, batch_size=8)
    >>> found
    Sharing(host_ms=2.0, contention=1.0)
    >>> two = Scenario(ClosedLoop(64), SizeOrWait(8, 0), service, servers=2, devices=1, **found)
    >>> round(two.saturation_per_s), round(simulate(two, 20_000).throughput_per_s)
    (1000, 1000)
    """
    one_per_s = _check.real("one_per_s", one_per_s, above=0)
    two_per_s = _check.real("two_per_s", two_per_s, above=0)
    _check.instance("service", service, Service, "a service of batchsim")
    batch_size = _check.real("batch_size", batch_size, at_least=1, at_most=LARGEST_BATCH)
    seconds = service.table(math.ceil(batch_size))
    ms = float(np.interp(batch_size, np.arange(1, seconds.size), seconds[1:])) * 1000
    # How much longer each batch takes than alone, while both compute.
    slower = max(2 * one_per_s / two_per_s, 1.0)
    if slower >= 2:
        return Sharing(0.0, slower / 2)
    host_ms, shortest_ms = ms - ms * slower / 2, float(np.nanmin(seconds)) * 1000
    if host_ms > shortest_ms:
        rule = f"host_ms must be at most the shortest service time, {shortest_ms:.6g} ms"
        gain = f"two servers that carry {two_per_s / one_per_s:.3g} times as much as one"
        raise ValueError(f"{rule}, got {host_ms:.6g} from {gain}")
    return Sharing(host_ms, 1.0)


def batches_per_s(
    servers: int, devices: int, service_s: np.ndarray, host_s: float, contention: float
) -> np.ndarray:
    """Return the batches per second of servers that never wait for requests, by the size's service time.

    Without noise. The servers of one device go round: on the host, at the device. If the others hold the
    device for longer than one is on the host, (n - 1) * contention * device_s > host_s, each batch waits for
    it, and it never rests. Else none waits, and each server takes its service time.
    """
    total, device_s = np.zeros(service_s.shape), service_s - host_s
    for on_device, count in _spread(servers, devices):
        waits = (on_device - 1) * contention * device_s > host_s
        seconds = np.where(waits, contention * device_s, service_s / on_device)
        total += count / seconds
    return total


def noisy_share(
    servers: int, devices: int, service_s: float, host_s: float, contention: float, noise: Noise
) -> float:
    """Return the batches per second with noise on the device's part, as a share of those without it."""
    plain = float(batches_per_s(servers, devices, np.array([service_s]), host_s, contention)[0])
    return sum(
        count * _noisy_per_s(on_device, service_s, host_s, contention, noise)
        for on_device, count in _spread(servers, devices)
    ) / plain  # fmt: skip


def _spread(servers: int, devices: int) -> list[tuple[int, int]]:
    """Return (servers on a device, how many such devices)."""
    each, more = divmod(servers, devices)
    return [(on, count) for on, count in ((each + 1, more), (each, devices - more)) if count]


@functools.lru_cache(maxsize=4096)
def _noisy_per_s(servers: int, service_s: float, host_s: float, contention: float, noise: Noise) -> float:
    """Return what servers on one device compute: no formula is known for noise, so they are simulated.

    Many copies of the cycle at once, a batch each at a time. The servers keep their order, as batches leave
    the device in the order in which they came.
    """
    if servers == 1 or host_s == 0 or servers > MANY:  # no batch waits, or all do: only the mean counts
        return float(batches_per_s(servers, 1, np.array([service_s]), host_s, contention)[0])
    skip, steps = 20 * servers, 20 * servers + 200
    copies = SAMPLES // steps
    factors = noise.draw(np.random.default_rng(0), steps * copies)
    if noise.lasts:  # from one step to the next, not from copy to copy
        factors = factors.reshape(copies, steps).T.copy()
    factors = factors.reshape(steps, copies)
    factors /= factors.mean(axis=1, keepdims=True)  # most of the luck is in the mean, which is known
    finish_s, free_s = np.zeros((servers, copies)), np.zeros(copies)
    for step in range(steps):
        server = step % servers
        come_s = finish_s[server] + host_s
        seconds = (service_s - host_s) * factors[step]
        seconds[free_s > come_s] *= contention
        free_s = finish_s[server] = np.maximum(come_s, free_s) + seconds
        if step + 1 == skip:
            begin_s = free_s.mean()
    return float((steps - skip) / (free_s.mean() - begin_s))


def checked_slowdown(slowdown: Mapping[int, float], servers: int) -> dict[int, float]:
    """Return a copy of {busy servers: factor}, which has a factor for each number of busy servers."""
    _check.instance("slowdown", slowdown, Mapping, "{busy servers: factor}")
    factors = {}
    for busy, factor in slowdown.items():
        busy = _check.whole("a number of busy servers in slowdown", busy)
        factors[busy] = _check.real(f"slowdown of {busy} busy servers", factor, above=0)
    if missing := [busy for busy in range(1, servers + 1) if busy not in factors]:
        rule = f"slowdown must have a factor for each of 1..{servers} busy servers"
        raise ValueError(f"{rule}, got none for {missing[0]}")
    return factors
