"""Clipper: a model container's batches."""

from batchsim import _check
from batchsim.scenario.rules import LARGEST_BATCH, SizeOrWait
from batchsim.servers.server import Server, ServerConfig, Words


def clipper(batch_size: int = 32) -> SizeOrWait:
    """Return the rule of Clipper (HEAD): a container that is free takes what waits, batch_size at most.

    Clipper has no timer. Left out: it learns the largest batch that meets the objective from the latencies of
    those before (a batch_size of -1 there), which here has to be said, and it takes the earliest deadline
    first, which is the order of arrival where all requests have one objective.

    >>> clipper(batch_size=16)
    SizeOrWait(max_batch_size=16, max_wait_ms=0)
    """
    return SizeOrWait(_check.whole("Clipper's batch_size", batch_size, at_most=LARGEST_BATCH), 0)


def config(batch_size: int = 32, slo_micros: int = 100_000) -> ServerConfig:
    """Return what a model and its application mean: a request that waits for `slo_micros` is dropped."""
    timeout_ms = _check.whole("Clipper's slo_micros", slo_micros) / 1000
    return ServerConfig("clipper", clipper(batch_size), timeout_ms=timeout_ms)


SERVER = Server(
    "clipper", "HEAD", clipper, config, ("default_output",),
    words=Words("batch_size", timeout="slo_micros", timeout_unit_ms=0.001),
)  # fmt: skip
