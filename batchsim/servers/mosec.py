"""mosec: `append_worker`."""

import math

from batchsim import _check
from batchsim.scenario.rules import LARGEST_BATCH, CompetingWindows
from batchsim.servers.server import Server, ServerConfig, Words

SHORTEST_MS, INSTEAD_MS = 1, 10  # a shorter wait is taken as this one


def mosec(max_batch_size: int = 1, max_wait_time: int = 0) -> CompetingWindows:
    """Return the rule of a mosec stage (2026-06); the wait is in ms, and 10 ms where it is below 1.

    A free worker takes a request, and then waits for others until it has max_batch_size of them or
    max_wait_time is over, however long the first had been in the queue.

    Several free workers do so at the same time. A request goes to the worker that has asked for one for the
    longest time. It wakes the next worker, too, which finds nothing and asks anew, behind the others. So two
    free workers fill one batch at a time, and three or more share the requests. A worker's timer ends up to
    1 ms late, which is left out.

    >>> mosec(max_batch_size=8)
    CompetingWindows(max_batch_size=8, max_wait_ms=10, poll_ms=inf)
    """
    size = _check.whole("mosec's max_batch_size", max_batch_size, at_most=LARGEST_BATCH)
    wait_ms = _check.whole("mosec's max_wait_time", max_wait_time, at_least=0)
    return CompetingWindows(size, INSTEAD_MS if wait_ms < SHORTEST_MS else wait_ms, poll_ms=math.inf)


def config(
    max_batch_size: int = 1, max_wait_time: int = 0, *, num: int = 1, capacity: int = 1024,
    timeout: int = 3000,
) -> ServerConfig:  # fmt: skip
    """Return what one stage means: `num` workers, 429 beyond `capacity` requests, 408 after `timeout` ms."""
    return ServerConfig(
        "mosec", mosec(max_batch_size, max_wait_time), _check.whole("mosec's num", num),
        _check.whole("mosec's capacity", capacity), _check.whole("mosec's timeout", timeout),
    )  # fmt: skip


SERVER = Server(
    "mosec", "2026-06", mosec, config, ("env", "start_method"),
    words=Words(
        "max_batch_size", "max_wait_time", whole=True, least=1, servers="num", queue="capacity",
        timeout="timeout",
    ),
)  # fmt: skip
