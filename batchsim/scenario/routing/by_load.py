"""Routings that see the loads of the replicas."""

from dataclasses import dataclass
from typing import Any

from batchsim.scenario.routing.blind import at_random, in_turn
from batchsim.scenario.routing.routing import Known, Loads, Routing
from batchsim.scenario.rules.rule import helper


@helper
def least(inside: Any) -> int:
    """Return the replica with the least load, the lowest number among equals."""
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
    """Return the first replica whose batch is not full, else the one with the fewest requests."""
    for replica in range(loads.filling.size):
        if loads.filling[replica] < loads.full:
            return replica
    return least(loads.inside)


@helper
def to_fewest_tokens(request: int, loads: Loads, draws: Any, params: Any) -> int:
    """Return the replica with the fewest tokens."""
    return least(loads.tokens)


@helper
def to_shortest_queue(request: int, loads: Loads, draws: Any, params: Any) -> int:
    """Return the replica with the fewest requests, of which each that waits counts four times."""
    found = 0
    for replica in range(1, loads.inside.size):
        more = loads.inside[replica] - loads.inside[found]
        if more + 3 * (loads.waiting[replica] - loads.waiting[found]) < 0:
            found = replica
    return found


def routed_by(request: int, loads: Loads, draws: Any, params: Any) -> int:
    """Return the replica by any routing without parameters: for one function, a loop compiles only once."""
    if params.number == 0:
        return to_least(request, loads, draws, params)
    if params.number == 1:
        return better_of_two(request, loads, draws, params)
    if params.number == 2:
        return to_fill(request, loads, draws, params)
    if params.number == 5:
        return to_fewest_tokens(request, loads, draws, params)
    if params.number == 6:
        return to_shortest_queue(request, loads, draws, params)
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
    """A request goes to the first replica whose next batch is not full yet, else to the least loaded.

    Under continuous batching a replica is full with `max_num_seqs` requests inside.
    """

    title = "Fill first"
    route = staticmethod(to_fill)
    number = 2


@dataclass(frozen=True)
class LeastTokens(Routing):
    """A request goes to the replica with the fewest tokens: prompts, and what its requests have generated."""

    title = "Least tokens"
    needs_tokens = True
    route = staticmethod(to_fewest_tokens)
    number = 5


@dataclass(frozen=True)
class ShortestQueue(Routing):
    """A request goes to the least loaded replica; one that waits counts as four that run, as in vLLM."""

    title = "Shortest queue"
    route = staticmethod(to_shortest_queue)
    number = 6
