"""Routings that see the loads of the replicas."""

from dataclasses import dataclass
from typing import Any

from batchsim.scenario.routing.blind import at_random, in_turn
from batchsim.scenario.routing.routing import Known, Loads, Routing
from batchsim.scenario.rules.rule import helper


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


def routed_by(request: int, loads: Loads, draws: Any, params: Any) -> int:
    """Return the replica by any routing without parameters: for one function, a loop compiles only once."""
    if params.number == 0:
        return to_least(request, loads, draws, params)
    if params.number == 1:
        return better_of_two(request, loads, draws, params)
    if params.number == 2:
        return to_fill(request, loads, draws, params)
    return (
        at_random(request, loads, draws, params)
        if params.number == 3
        else in_turn(request, loads, draws, params)
    )


Routing.by_params[Known] = routed_by


@dataclass(frozen=True)
class LeastLoaded(Routing):
    """A request goes to the replica with the fewest requests, those that compute included."""

    title = "Least loaded"
    route = staticmethod(to_least)
    number = 0


@dataclass(frozen=True)
class TwoChoices(Routing):
    """A request goes to the less loaded of two replicas, drawn at random, as in Ray Serve."""

    title = "Two choices"
    route = staticmethod(better_of_two)
    number = 1


@dataclass(frozen=True)
class FillFirst(Routing):
    """A request goes to the first replica whose next batch is not full yet, else to the least loaded."""

    title = "Fill first"
    route = staticmethod(to_fill)
    number = 2
