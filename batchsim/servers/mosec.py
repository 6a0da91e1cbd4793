"""mosec: `append_worker`."""

import math

from batchsim import _check
from batchsim.scenario.rules import LARGEST_BATCH, CompetingWindows
from batchsim.servers.formats.python_calls import Callee, PythonForm
from batchsim.servers.server import Server, ServerConfig, Words

SHORTEST_MS, INSTEAD_MS = 1, 10  # a shorter wait is replaced by the second


def mosec(max_batch_size: int = 1, max_wait_time: int = 0) -> CompetingWindows:
    """Return the rule of a mosec stage (2026-06); the wait is in ms, and a wait below 1 means 10 ms.

    A free worker takes a request. Then it waits for others until it has max_batch_size of them or
    max_wait_time is over, however long the first had been in the queue.

    Free workers collect at the same time. A request goes to the worker that has polled longest. It also wakes
    the next worker, which finds nothing and polls again, behind the others. So two free workers fill one
    batch at a time, and three or more share the requests. A worker's timer ends up to 1 ms late; that is not
    simulated.

    >>> mosec(max_batch_size=8)
    CompetingWindows(max_batch_size=8, max_wait_ms=10, poll_ms=inf)
    """
    size = _check.whole("mosec's max_batch_size", max_batch_size, at_most=LARGEST_BATCH)
    wait_ms = _check.whole("mosec's max_wait_time", max_wait_time, at_least=0)
    return CompetingWindows(size, INSTEAD_MS if wait_ms < SHORTEST_MS else wait_ms, poll_ms=math.inf)


def config(*, num: int = 1, capacity: int = 1024, timeout: int = 3000, **settings: int) -> ServerConfig:
    """Return the meaning of one stage: 429 beyond `capacity` requests, 408 after `timeout` ms."""
    return ServerConfig(
        "mosec", mosec(**settings), _check.whole("mosec's num", num),
        _check.whole("mosec's capacity", capacity), _check.whole("mosec's timeout", timeout),
    )  # fmt: skip


FORM = PythonForm(
    (
        Callee(
            "append_worker", r"(.*\.)?append_worker",
            ("_worker", "num", "max_batch_size", "max_wait_time", "start_method", "env", "timeout", "route"),
            {"timeout": "append_worker.timeout"},  # the worker's; the setting is the server's
        ),
        Callee(  # for `register_runtime`
            "Runtime", r"(mosec\.)?Runtime",
            ("_worker", "num", "max_batch_size", "max_wait_time", "timeout", "start_method", "env"),
            {"timeout": "Runtime.timeout"},
        ),
    ),
)  # fmt: skip

SERVER = Server(
    "mosec", "2026-06", mosec, config, ("env", "start_method"),
    title="Mosec",
    words=Words(
        "max_batch_size", "max_wait_time", whole=True, least=1, servers="num", queue="capacity",
        timeout="timeout",
    ),
    formats=(FORM.format("a mosec server", "server.py", r"\bmosec\b|\bappend_worker\b"),),
)  # fmt: skip
