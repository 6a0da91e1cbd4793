"""Where a request goes: the routings of a load balancer in front of replicas.

Each replica is a complete copy of the server: a queue, a rule with its memory, servers, limits and devices.
"""

import dataclasses
from typing import Any

from batchsim import _check
from batchsim.scenario.routing.by_key import ByKey
from batchsim.scenario.routing.routing import (
    FillFirst,
    LeastLoaded,
    LeastTokens,
    Loads,
    Random,
    RoundRobin,
    Routing,
    ShortestQueue,
    TwoChoices,
)

__all__ = [
    "NAMES", "ROUTINGS", "ByKey", "FillFirst", "LeastLoaded", "LeastTokens", "Loads", "Random", "RoundRobin",
    "Routing", "ShortestQueue", "TwoChoices",
]  # fmt: skip

MOST_REPLICAS = 1024

# The registry: scenarios, TOML and the shell offer these, in this order.
ROUTINGS: tuple[type[Routing], ...] = (
    Random, RoundRobin, LeastLoaded, TwoChoices, FillFirst, ByKey, ShortestQueue, LeastTokens,
)  # fmt: skip
NAMES = {routing.name: routing for routing in ROUTINGS}


def router_of(routing: "str | Routing") -> Routing:
    """Return a routing by its name, or itself."""
    return routing if isinstance(routing, Routing) else NAMES[routing]()


def checked_routing(routing: Any) -> "str | Routing":
    """Return a routing as a scenario stores it, a name if it has no parameters, or raise.

    >>> checked_routing(TwoChoices()), checked_routing(ByKey(100))
    ('two_choices', ByKey(keys=100, popularity=1.0))
    """
    if isinstance(routing, Routing):
        plain = type(routing) in ROUTINGS and not dataclasses.fields(routing)  # type: ignore[arg-type]
        return routing.name if plain else routing
    if not isinstance(routing, str):
        raise TypeError(f"routing must be one of {', '.join(NAMES)}, or a routing, got {routing!r}")
    _check.one_of("routing", routing, NAMES)
    if dataclasses.fields(NAMES[routing]):  # type: ignore[arg-type]
        raise ValueError(
            f"routing {routing!r} needs keys, as routing.ByKey(keys=1000, popularity=1), got none"
        )
    return routing
