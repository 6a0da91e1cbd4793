"""Ray Serve: the decorator @serve.batch."""

import math

from batchsim import _check
from batchsim.scenario.rules import LARGEST_BATCH, FrozenBatches, Rule, StalledBatches, WaitSinceLast
from batchsim.servers.server import Server, ServerConfig, Words


def ray_serve(
    max_batch_size: int = 10, batch_wait_timeout_s: float = 0.01, *, max_ongoing_requests: float = math.inf,
    handler: str = "async", before_mid_2023: bool = False,
) -> Rule:  # fmt: skip
    """Return the rule of Ray Serve 2.60's batch queue.

    It takes requests as they come, whether or not the handler computes, and closes a batch when it has
    max_batch_size or batch_wait_timeout_s after its first; closed, the batch waits for the handler as it is.
    A handler that blocks the event loop stalls that: with `handler="blocking"` requests get in when it is
    done, and the wait begins then, or with the batch before, if they did not all fit in that. So it is on
    Python 3.12 or newer. On 3.11 a batch that opened with the one before leaves without those who came
    since: where batches are often full, the mean is up to a third longer. Until the middle of 2023 the wait
    began when the batch before ended.

    At a high rate a short wait makes batches so small that the handler does not keep up:
    `batchsim.theory.frozen_wait_min_ms` is the wait above which it does. `max_ongoing_requests` is of another
    decorator, @serve.deployment, where it is 5 unless said otherwise: as many are inside at once, and batches
    never grow larger. Only the rule of an async handler knows of it.

    >>> ray_serve(max_batch_size=32, batch_wait_timeout_s=0.002)
    FrozenBatches(max_batch_size=32, max_wait_ms=2.0, max_ongoing=inf)
    """
    size = _check.whole("Ray Serve's max_batch_size", max_batch_size, at_most=LARGEST_BATCH)
    wait_ms = _check.real("Ray Serve's batch_wait_timeout_s", batch_wait_timeout_s, at_least=0) * 1000
    _check.one_of("handler", handler, ("async", "blocking"))
    _check.instance("before_mid_2023", before_mid_2023, bool, "True or False")
    if before_mid_2023:
        return WaitSinceLast(size, wait_ms)
    if handler == "blocking":
        return StalledBatches(size, wait_ms)
    if max_ongoing_requests != math.inf:
        _check.whole("Ray Serve's max_ongoing_requests", max_ongoing_requests)
    return FrozenBatches(size, wait_ms, max_ongoing_requests)


def config(
    max_batch_size: int = 10, batch_wait_timeout_s: float = 0.01, *, max_concurrent_batches: int = 1,
    max_ongoing_requests: int = 5, handler: str = "async", before_mid_2023: bool = False,
) -> ServerConfig:  # fmt: skip
    """Return what one replica's decorators mean: it computes `max_concurrent_batches` batches at once."""
    rule = ray_serve(
        max_batch_size, batch_wait_timeout_s, max_ongoing_requests=max_ongoing_requests, handler=handler,
        before_mid_2023=before_mid_2023,
    )  # fmt: skip
    at_once = _check.whole("Ray Serve's max_concurrent_batches", max_concurrent_batches)
    unused = {} if isinstance(rule, FrozenBatches) else {"max_ongoing_requests": max_ongoing_requests}
    return ServerConfig("ray_serve", rule, at_once, unused=unused)


SERVER = Server(
    "ray_serve", "2.60", ray_serve, config, ("num_replicas",),
    words=Words("max_batch_size", "batch_wait_timeout_s", 1000, servers="max_concurrent_batches"),
)  # fmt: skip
