"""LitServe: a LitAPI's batch settings."""

from batchsim import _check
from batchsim.scenario.rules import LARGEST_BATCH, CompetingWindows
from batchsim.servers.server import Server, ServerConfig, Words

POLL_MS = 1.0  # how long a worker asks the queue for a request before it asks anew


def litserve(max_batch_size: int = 1, batch_timeout: float = 0.0) -> CompetingWindows:
    """Return the rule of LitServe 0.2.19's collation loop; the timeout is in seconds.

    A free worker collects in windows of batch_timeout, which begin anew while they stay empty: a lone request
    waits for half of one on average. A batch leaves when it is full or its window ends, and the next window
    begins when the batch is computed, however long requests have waited by then.

    Several free workers collect at the same time. Each asks the queue for 1 ms at a time, and a request goes
    to the worker that asked first, so that batches are smaller than if one worker collected at a time.

    >>> litserve(max_batch_size=8, batch_timeout=0.05)
    CompetingWindows(max_batch_size=8, max_wait_ms=50.0, poll_ms=1.0)
    """
    size = _check.whole("LitServe's max_batch_size", max_batch_size, at_most=LARGEST_BATCH)
    wait_ms = _check.real("LitServe's batch_timeout", batch_timeout, at_least=0) * 1000
    return CompetingWindows(size, wait_ms, POLL_MS)


def config(
    max_batch_size: int = 1, batch_timeout: float = 0.0, *, workers_per_device: int = 1, devices: int = 1,
    timeout: float = 30,
) -> ServerConfig:  # fmt: skip
    """Return what LitAPI and LitServer mean: a request that waits for `timeout` seconds is given up (504).

    A timeout of False or -1 is none.
    """
    workers = _check.whole("LitServe's workers_per_device", workers_per_device)
    workers *= _check.whole("LitServe's devices", devices)
    rule = litserve(max_batch_size, batch_timeout)
    if timeout is False or timeout == -1:
        return ServerConfig("litserve", rule, workers)
    timeout_ms = _check.real("LitServe's timeout", timeout, above=0) * 1000
    return ServerConfig("litserve", rule, workers, timeout_ms=timeout_ms)


SERVER = Server(
    "litserve", "0.2.19", litserve, config, ("accelerator", "api_path", "stream"),
    words=Words(
        "max_batch_size", "batch_timeout", 1000, servers="workers_per_device",
        timeout="timeout", timeout_unit_ms=1000,
    ),
)  # fmt: skip
