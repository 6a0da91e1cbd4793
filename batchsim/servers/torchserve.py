"""TorchServe: a model's batch settings in config.properties or model-config.yaml."""

from batchsim import _check
from batchsim.scenario.rules import LARGEST_BATCH, PullThenWait
from batchsim.servers.server import Server, ServerConfig, Words


def torchserve(batchSize: int = 1, maxBatchDelay: int = 100) -> PullThenWait:
    """Return the rule of TorchServe (2025-03); the delay is in ms.

    A free worker takes the first job, and then waits for others until it has batchSize of them or
    maxBatchDelay is over, however long the first had been in the queue. One worker collects at a time,
    by a lock.

    >>> torchserve(batchSize=8, maxBatchDelay=50)
    PullThenWait(max_batch_size=8, max_wait_ms=50)
    """
    size = _check.whole("TorchServe's batchSize", batchSize, at_most=LARGEST_BATCH)
    return PullThenWait(size, _check.whole("TorchServe's maxBatchDelay", maxBatchDelay, at_least=0))


def config(
    batchSize: int = 1, maxBatchDelay: int = 100, *, minWorkers: int = 1, job_queue_size: int = 100
) -> ServerConfig:
    """Return what a model's settings mean: `minWorkers` workers, and 503 beyond `job_queue_size` jobs."""
    rule = torchserve(batchSize, maxBatchDelay)
    workers = _check.whole("TorchServe's minWorkers", minWorkers)
    return ServerConfig(
        "torchserve", rule, workers, _check.whole("TorchServe's job_queue_size", job_queue_size)
    )


SERVER = Server(
    "torchserve", "2025-03", torchserve, config, ("maxWorkers", "responseTimeout"),
    words=Words(
        "batchSize", "maxBatchDelay", whole=True, least=1, servers="minWorkers", queue="job_queue_size",
    ),
)  # fmt: skip
