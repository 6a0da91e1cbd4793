"""Sticky routing: requests with one key have one replica."""

import functools
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from batchsim import _check
from batchsim._compat import bincount
from batchsim.scenario.parameters import parameter
from batchsim.scenario.routing.routing import Loads, Routing
from batchsim.scenario.rules.rule import helper

MOST_KEYS = 1_000_000


@helper
def hashed(key: int) -> int:
    """Return a number from 0 to 2**32 - 1 that looks random, the same for the same key."""
    mixed = key + 1
    for _ in range(2):
        mixed = ((mixed >> 16) ^ mixed) * 0x45D9F3B & 0xFFFFFFFF
    return (mixed >> 16) ^ mixed


def to_its_own(request: int, loads: Loads, draws: Any, params: Any) -> int:
    """Return the replica of the request's key: its hash modulo the number of replicas."""
    if params.given.size > 0:
        key = params.given[request]
    else:  # the first key whose cumulative share is above the draw
        key, above = 0, params.shares.size - 1
        while key < above:
            middle = (key + above) // 2
            if params.shares[middle] > draws[0]:
                above = middle
            else:
                key = middle + 1
    return hashed(key) % loads.inside.size


class _KeyParams(NamedTuple):
    shares: Any  # of the keys from the most popular on, cumulative
    given: Any  # the key of each request; empty: they are drawn


@dataclass(frozen=True)
class ByKey(Routing):
    """Requests with the same key go to the same replica, chosen by the key's hash.

    `keys` is the number of different keys, or the key of each request, whole numbers. Drawn keys follow
    Zipf's law: the k-th most popular has a share proportional to 1 / k**popularity; 0 makes all alike.

    >>> ByKey(keys=1000, popularity=0.9)
    ByKey(keys=1000, popularity=0.9)
    """

    keys: int | tuple[int, ...]
    popularity: float = parameter(
        "Popularity", "Exponent of Zipf's law; 0: all keys alike", type="real", at_least=0, at_most=10,
        slider=(0, 2, 0.05), usual=1.0, default=1.0,
    )  # fmt: skip

    title = "By key: sticky"
    sees_loads = False
    Params = _KeyParams
    route = staticmethod(to_its_own)

    def check(self) -> None:
        if not _check.listed(self.keys):
            _check.fix_whole(self, "keys", at_most=MOST_KEYS)
            return
        keys = tuple(_check.whole("a key", key, at_least=0, at_most=2**32 - 1) for key in self.keys)  # type: ignore[union-attr]
        if not keys:
            raise ValueError("keys must be a number of keys, or the key of each request, got none")
        object.__setattr__(self, "keys", keys)

    @property
    def params(self) -> Any:
        return _keys(self.keys, self.popularity)

    def hottest(self, replicas: int) -> float:
        shares, given = self.params
        keys: Any = given if given.size else np.arange(shares.size)
        weights = None if given.size else np.diff(shares, prepend=0)
        of_each = bincount(hashed(keys) % replicas, weights)
        return float(of_each.max() / of_each.sum())


@functools.lru_cache(maxsize=8)
def _keys(keys: int | tuple[int, ...], popularity: float) -> _KeyParams:
    if not isinstance(keys, int):
        return _KeyParams(np.ones(1), np.array(keys, np.int64))
    shares = np.cumsum(np.arange(1, keys + 1) ** -float(popularity))
    return _KeyParams(shares / shares[-1], np.empty(0, np.int64))
