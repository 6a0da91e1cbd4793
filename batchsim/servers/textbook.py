"""The textbook's batcher, `batchsim.InferenceBatcher`."""

from batchsim.scenario.rules import SizeOrWait
from batchsim.servers.server import Server, ServerConfig, Words


def textbook(max_batch_size: int = 32, max_wait_ms: float = 50.0) -> SizeOrWait:
    """Return the rule of `batchsim.InferenceBatcher`.

    A free server takes a batch when max_batch_size requests wait or the oldest has waited max_wait_ms. While
    all servers compute, the queue grows, and with it the next batch.

    >>> textbook(max_batch_size=8, max_wait_ms=5)
    SizeOrWait(max_batch_size=8, max_wait_ms=5)
    """
    return SizeOrWait(max_batch_size, max_wait_ms)


def config(max_batch_size: int = 32, max_wait_ms: float = 50.0) -> ServerConfig:
    """Return the rule on one server, without limits."""
    return ServerConfig("textbook", textbook(max_batch_size, max_wait_ms))


SERVER = Server(
    "textbook", "batchsim", textbook, config,
    words=Words("max_batch_size", "max_wait_ms"),
)  # fmt: skip
