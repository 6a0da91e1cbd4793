"""The interface of routings: where a request goes, of several replicas.

A routing is a frozen dataclass with one function, `route`, which Python runs and Numba compiles. To add one,
write such a class in a file of this package and list it in `ROUTINGS`: the engines, TOML and the shell read
everything else from it.
"""

import re
from collections import namedtuple
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from batchsim.scenario.parameters import Described
from batchsim.scenario.rules.rule import helper


class Loads(NamedTuple):
    """The replicas as `route` sees them; the same fields in Python and in Numba."""

    inside: Any  # by replica: requests that wait or are being computed
    waiting: Any  # by replica: those of them that wait
    filling: Any  # by replica: those that fill a batch: the waiting ones, or all under continuous batching
    tokens: Any  # by replica: their prompts, and what they have generated; 0 without tokens
    full: int  # the size of a full batch


class Known(NamedTuple):
    """The parameters of a routing without any: its number in `routed_by`."""

    number: int


class Routing(Described):
    """Which replica each request goes to.

    `route(request, loads, draws, params) -> replica` is a plain function: `request` is the number of the
    request, `draws` are two random numbers from 0 to 1 of its own, and `params` are the parameters. Without
    `sees_loads`, the sizes of `loads` are right, and its numbers are not.
    """

    name: ClassVar[str]  # in scenarios, TOML and the shell
    title: ClassVar[str]  # for people
    sees_loads: ClassVar[bool] = True
    needs_tokens: ClassVar[bool] = False  # whether it reads `loads.tokens`
    Params: ClassVar[type]  # its type tells Numba the routing
    route: ClassVar[Callable[..., int]]
    number: ClassVar[int | None] = None  # in `routed_by`, of a routing there
    by_params: ClassVar[dict[type, Callable[..., int]]] = {}  # the function that takes these parameters

    def __init_subclass__(cls) -> None:
        cls.name = re.sub("(?<!^)([A-Z])", r"_\1", cls.__name__).lower()
        if "route" not in vars(cls):  # that of its base
            return
        cls.number = None
        if "Params" not in vars(cls):
            cls.Params = namedtuple(f"{cls.__name__}Params", [], module=cls.__module__)  # type: ignore[misc]
            cls.Params.__qualname__ = f"{cls.__qualname__}.Params"  # where pickle finds it
        Routing.by_params[cls.Params] = cls.route

    @property
    def params(self) -> Any:
        """The parameters as `route` takes them."""
        return self.Params() if self.number is None else Known(self.number)

    def hottest(self, replicas: int) -> float:
        """Return the largest share of the requests that a replica must carry in the long run."""
        return 1 / replicas


RANDOM, ROUND_ROBIN, LEAST_LOADED, TWO_CHOICES, FILL_FIRST, SHORTEST_QUEUE, LEAST_TOKENS = range(7)


@helper
def least(load: Any) -> int:
    """Return the replica with the least load, the lowest number among equals."""
    found = 0
    for replica in range(1, load.size):
        if load[replica] < load[found]:
            found = replica
    return found


@helper
def shortest(inside: Any, waiting: Any) -> int:
    """Return the same where each that waits counts four times. One function for both would be slower."""
    found = 0
    for replica in range(1, inside.size):
        if inside[replica] - inside[found] + 3 * (waiting[replica] - waiting[found]) < 0:
            found = replica
    return found


@helper
def better_of_two(inside: Any, draws: Any) -> int:
    """Return the one with fewer requests of two different replicas; among equals the first drawn."""
    replicas = inside.size
    if replicas == 1:
        return 0
    first, second = int(draws[0] * replicas), int(draws[1] * (replicas - 1))
    if second >= first:
        second += 1
    return second if inside[second] < inside[first] else first


def routed_by(request: int, loads: Loads, draws: Any, params: Known) -> int:
    """Return the replica by the routing of a number."""
    number = params.number
    if number == RANDOM:
        return int(draws[0] * loads.inside.size)
    if number == ROUND_ROBIN:
        return request % loads.inside.size
    if number == TWO_CHOICES:
        return better_of_two(loads.inside, draws)
    if number == LEAST_TOKENS:
        return least(loads.tokens)
    if number == FILL_FIRST:
        for replica in range(loads.filling.size):
            if loads.filling[replica] < loads.full:
                return replica
    if number == SHORTEST_QUEUE:
        return shortest(loads.inside, loads.waiting)
    return least(loads.inside)


class _Plain(Routing):
    """A routing without parameters."""

    route = staticmethod(routed_by)
    Params = Known


@dataclass(frozen=True)
class Random(_Plain):
    """Each request goes to any replica."""

    title, number, sees_loads = "Random", RANDOM, False


@dataclass(frozen=True)
class RoundRobin(_Plain):
    """Request i goes to replica i modulo the number of replicas."""

    title, number, sees_loads = "Round robin", ROUND_ROBIN, False


@dataclass(frozen=True)
class LeastLoaded(_Plain):
    """A request goes to the replica with the fewest requests, those that compute included."""

    title, number = "Least loaded", LEAST_LOADED


@dataclass(frozen=True)
class TwoChoices(_Plain):
    """A request goes to the less loaded of two replicas, drawn at random, as in Ray Serve."""

    title, number = "Two choices", TWO_CHOICES


@dataclass(frozen=True)
class FillFirst(_Plain):
    """A request goes to the first replica whose next batch is not full yet, else to the least loaded.

    Under continuous batching a replica is full with `max_num_seqs` requests inside.
    """

    title, number = "Fill first", FILL_FIRST


@dataclass(frozen=True)
class LeastTokens(_Plain):
    """A request goes to the replica with the fewest tokens: prompts, and what its requests have generated."""

    title, number, needs_tokens = "Least tokens", LEAST_TOKENS, True


@dataclass(frozen=True)
class ShortestQueue(_Plain):
    """A request goes to the least loaded replica; one that waits counts as four that run, as in vLLM."""

    title, number = "Shortest queue", SHORTEST_QUEUE
