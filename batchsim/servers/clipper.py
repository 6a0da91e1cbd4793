"""Clipper: a model container's batches."""

from batchsim import _check
from batchsim.scenario.rules import LARGEST_BATCH, LearnedSizes, Rule, SizeOrWait
from batchsim.servers.server import Server, ServerConfig, Words

LEARNED = -1  # the batch size that says so
MOST = 128  # tried here, or as many as the service time is known of; Clipper has no limit


def clipper(batch_size: int = LEARNED, slo_micros: int = 100_000) -> Rule:
    """Return the rule of Clipper (HEAD): a container that is free takes what waits, batch_size at most.

    Clipper has no timer, and takes the earliest deadline first, which is the order of arrival where all
    requests have one objective. A batch_size of -1 is learned: as many as the batches before say can be
    computed within the objective, `slo_micros` from a request's arrival. Of what it learns this is left out:
    it tries larger sizes by a random step, here by its mean; its line is a ridge regression, here least
    squares; and each container learns for itself, here all in common.

    >>> clipper(slo_micros=20_000)
    LearnedSizes(max_batch_size=128, deadline_ms=20.0)
    >>> clipper(batch_size=16)
    SizeOrWait(max_batch_size=16, max_wait_ms=0)
    """
    deadline_ms = _check.whole("Clipper's slo_micros", slo_micros) / 1000
    if batch_size == LEARNED:
        return LearnedSizes(MOST, deadline_ms)
    return SizeOrWait(_check.whole("Clipper's batch_size", batch_size, at_most=LARGEST_BATCH), 0)


def config(batch_size: int = LEARNED, slo_micros: int = 100_000) -> ServerConfig:
    """Return what a model and its application mean: a request that waits for `slo_micros` is dropped."""
    rule = clipper(batch_size, slo_micros)
    return ServerConfig("clipper", rule, timeout_ms=slo_micros / 1000)


SERVER = Server(
    "clipper", "HEAD", clipper, config, ("default_output",),
    words=Words("batch_size", timeout="slo_micros", timeout_unit_ms=0.001),
)  # fmt: skip
