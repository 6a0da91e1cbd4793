"""mixedbread's batched: @batched.dynamically."""

from batchsim import _check
from batchsim.scenario.rules import LARGEST_BATCH, SleepingPoll
from batchsim.servers.server import Server, ServerConfig, Words


def batched(batch_size: int = 32, timeout_ms: float = 5.0) -> SleepingPoll:
    """Return the rule of batched 0.1.5's loop.

    Unless a full batch waits, it sleeps for all of timeout_ms, then takes the q // batch_size full batches
    that wait, or fewer requests than one, and computes them without looking again. Nothing wakes it. It takes
    the oldest, as `batched.aio.dynamically` does; the decorator for threads keeps requests in a heap, which
    forgets who was first: sizes and mean are the same, but where some are left over p99 is up to three times
    as long.

    >>> batched(batch_size=8)
    SleepingPoll(max_batch_size=8, max_wait_ms=5.0)
    """
    size = _check.whole("batched's batch_size", batch_size, at_most=LARGEST_BATCH)
    return SleepingPoll(size, _check.real("batched's timeout_ms", timeout_ms, at_least=0))


def config(batch_size: int = 32, timeout_ms: float = 5.0) -> ServerConfig:
    """Return what the decorator means: one loop, without limits."""
    return ServerConfig("batched", batched(batch_size, timeout_ms))


SERVER = Server(
    "batched", "0.1.5", batched, config, ("small_batch_threshold", "pad_tokens", "padding_side"),
    words=Words("batch_size", "timeout_ms"),
)  # fmt: skip
