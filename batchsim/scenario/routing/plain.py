"""Routings without parameters: one function has them all, so that a loop compiles only once."""

from dataclasses import dataclass
from typing import Any

from batchsim.scenario.routing.routing import Known, Loads, Routing
from batchsim.scenario.rules.rule import helper

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
