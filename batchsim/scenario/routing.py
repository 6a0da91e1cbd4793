"""Where a request goes: the routings of a load balancer in front of replicas.

Each replica is a complete copy of the server: a queue, a rule with its memory, servers, limits and devices.
A routing is a frozen dataclass with one function, `route`, which Python runs and Numba compiles. To add one,
write its class here and list it in `ROUTINGS`: the engines, TOML and the shell read the rest from it.
"""

import dataclasses
import functools
import re
from collections import namedtuple
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from batchsim import _check
from batchsim.scenario.parameters import Described, parameter
from batchsim.scenario.rules.rule import helper

MOST_REPLICAS = 1024
MOST_KEYS = 1_000_000


class Loads(NamedTuple):
    """The replicas as `route` sees them; the same fields in Python and in Numba."""

    inside: Any  # by replica: requests that wait or are being computed
    waiting: Any  # by replica: those of them that wait
    full: int  # the size of a full batch


class Routing(Described):
    """Which replica each request goes to.

    `route(request, loads, draws, params) -> replica` is a plain function: `request` is the number of the
    request, `draws` are two random numbers from 0 to 1 of its own, and `params` are the parameters. Without
    `sees_loads`, the sizes of `loads` are right, and its numbers are not.
    """

    name: ClassVar[str]  # in scenarios, TOML and the shell
    title: ClassVar[str]  # for people
    sees_loads: ClassVar[bool] = True
    Params: ClassVar[type]  # its type tells Numba the routing
    route: ClassVar[Callable[..., int]]
    by_params: ClassVar[dict[type, type["Routing"]]] = {}

    def __init_subclass__(cls) -> None:
        cls.name = re.sub("(?<!^)([A-Z])", r"_\1", cls.__name__).lower()
        if "Params" not in vars(cls):
            cls.Params = namedtuple(f"{cls.__name__}Params", [], module=cls.__module__)  # type: ignore[misc]
            cls.Params.__qualname__ = f"{cls.__qualname__}.Params"  # where pickle finds it
        Routing.by_params[cls.Params] = cls

    @property
    def params(self) -> Any:
        """The parameters as `route` takes them."""
        return self.Params()

    @property
    def compiled_params(self) -> Any:
        """The parameters as compiled loops take them: their type tells Numba the function."""
        return _Known(TOGETHER.index(type(self))) if type(self) in TOGETHER else self.params

    @classmethod
    def function_of(cls, params: type) -> Callable[..., int]:
        """Return the function that takes parameters of this type."""
        return routed_by if params is _Known else cls.by_params[params].route

    def hottest(self, replicas: int) -> float:
        """Return the largest share of the requests that a replica must carry in the long run."""
        return 1 / replicas


def at_random(request: int, loads: Loads, draws: Any, params: Any) -> int:
    """Return any replica."""
    return int(draws[0] * loads.inside.size)


def in_turn(request: int, loads: Loads, draws: Any, params: Any) -> int:
    """Return one replica after the other."""
    return request % loads.inside.size


@helper
def least(inside: Any) -> int:
    """Return the replica with the fewest requests, the lowest number among equals."""
    found = 0
    for replica in range(1, inside.size):
        if inside[replica] < inside[found]:
            found = replica
    return found


@helper
def to_least(request: int, loads: Loads, draws: Any, params: Any) -> int:
    """Return the replica with the fewest requests."""
    return least(loads.inside)


@helper
def better_of_two(request: int, loads: Loads, draws: Any, params: Any) -> int:
    """Return the one with fewer requests of two different replicas; among equals the first drawn."""
    replicas = loads.inside.size
    if replicas == 1:
        return 0
    first, second = int(draws[0] * replicas), int(draws[1] * (replicas - 1))
    if second >= first:
        second += 1
    return second if loads.inside[second] < loads.inside[first] else first


@helper
def to_fill(request: int, loads: Loads, draws: Any, params: Any) -> int:
    """Return the first replica where less than a full batch waits, else the one with the fewest requests."""
    for replica in range(loads.waiting.size):
        if loads.waiting[replica] < loads.full:
            return replica
    return least(loads.inside)


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


@dataclass(frozen=True)
class Random(Routing):
    """Each request goes to any replica."""

    title = "Random"
    sees_loads = False
    route = staticmethod(at_random)


@dataclass(frozen=True)
class RoundRobin(Routing):
    """Request i goes to replica i modulo the number of replicas."""

    title = "Round robin"
    sees_loads = False
    route = staticmethod(in_turn)


@dataclass(frozen=True)
class LeastLoaded(Routing):
    """A request goes to the replica with the fewest requests, waiting or computing: "join the shortest queue"."""

    title = "Least loaded"
    route = staticmethod(to_least)


@dataclass(frozen=True)
class TwoChoices(Routing):
    """A request goes to the less loaded of two replicas, drawn at random, as in Ray Serve."""

    title = "Two choices"
    route = staticmethod(better_of_two)


@dataclass(frozen=True)
class FillFirst(Routing):
    """A request goes to the first replica whose next batch is not full yet, else to the least loaded."""

    title = "Fill first"
    route = staticmethod(to_fill)


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
        "Popularity", "Exponent of Zipf's law; 0: all keys alike", kind="real", at_least=0, at_most=10,
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
        keys = given if given.size else np.arange(shares.size)
        weights = None if given.size else np.diff(shares, prepend=0)
        of_each = np.bincount(hashed(keys) % replicas, weights)
        return float(of_each.max() / of_each.sum())


@functools.lru_cache(maxsize=8)
def _keys(keys: int | tuple[int, ...], popularity: float) -> _KeyParams:
    if not isinstance(keys, int):
        return _KeyParams(np.ones(1), np.array(keys, np.int64))
    shares = np.cumsum(np.arange(1, keys + 1) ** -float(popularity))
    return _KeyParams(shares / shares[-1], np.empty(0, np.int64))


class _Known(NamedTuple):
    number: int  # in `routed_by`


def routed_by(request: int, loads: Loads, draws: Any, params: Any) -> int:
    """Return the replica by a routing that sees loads: as one function, so that a loop compiles once for all."""
    if params.number == 0:
        return to_least(request, loads, draws, params)
    if params.number == 1:
        return better_of_two(request, loads, draws, params)
    return to_fill(request, loads, draws, params)


TOGETHER: tuple[type[Routing], ...] = (LeastLoaded, TwoChoices, FillFirst)


# The registry: scenarios, TOML and the shell offer these, in this order.
ROUTINGS: tuple[type[Routing], ...] = (Random, RoundRobin, LeastLoaded, TwoChoices, FillFirst, ByKey)
NAMES = {routing.name: routing for routing in ROUTINGS}


def router_of(routing: "str | Routing") -> Routing:
    """Return a routing by its name, or itself."""
    return routing if isinstance(routing, Routing) else NAMES[routing]()


def checked(routing: Any) -> "str | Routing":
    """Return a routing as a scenario stores it, a name if it has no parameters, or raise.

    >>> checked(TwoChoices()), checked(ByKey(100))
    ('two_choices', ByKey(keys=100, popularity=1.0))
    """
    if isinstance(routing, Routing):
        plain = type(routing) in ROUTINGS and not dataclasses.fields(routing)  # type: ignore[arg-type]
        return routing.name if plain else routing
    if not isinstance(routing, str):
        raise TypeError(f"routing must be one of {', '.join(NAMES)}, or a routing, got {routing!r}")
    _check.one_of("routing", routing, NAMES)
    if dataclasses.fields(NAMES[routing]):  # type: ignore[arg-type]
        raise ValueError(f"routing {routing!r} needs keys, as routing.ByKey(keys=1000, popularity=1), got none")
    return routing
