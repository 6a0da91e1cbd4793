"""KServe: the batcher of an InferenceService."""

from batchsim import _check
from batchsim.scenario.rules import LARGEST_BATCH, PullThenWait
from batchsim.servers.server import Server, ServerConfig, Words

DEFAULT_MS = 5000  # also what a maxLatency of 0 is taken as


def kserve(maxBatchSize: int = 32, maxLatency: int = DEFAULT_MS) -> PullThenWait:
    """Return the rule of KServe's batcher, a sidecar of the model server (2026-06); maxLatency is in ms.

    It takes the first request, and sends a batch when it has maxBatchSize or maxLatency is over. Until the
    answer is there, it takes no other: then the clock starts anew, however long the next has waited. A
    maxLatency of 0 is taken as the default of 5 s.

    >>> kserve(maxBatchSize=8, maxLatency=20)
    PullThenWait(max_batch_size=8, max_wait_ms=20)
    """
    size = _check.whole("KServe's maxBatchSize", maxBatchSize, at_most=LARGEST_BATCH)
    return PullThenWait(size, _check.whole("KServe's maxLatency", maxLatency, at_least=0) or DEFAULT_MS)


def config(maxBatchSize: int = 32, maxLatency: int = DEFAULT_MS) -> ServerConfig:
    """Return what `spec.predictor.batcher` means: one batch at a time, without limits."""
    return ServerConfig("kserve", kserve(maxBatchSize, maxLatency))


SERVER = Server(
    "kserve", "2026-06", kserve, config, ("timeout",),
    words=Words("maxBatchSize", "maxLatency", whole=True, least=1),
)  # fmt: skip
