"""BentoML: @bentoml.api(batchable=True)."""

from batchsim import _check
from batchsim.scenario.rules import LARGEST_BATCH, LearnedCork
from batchsim.servers.server import Server, ServerConfig, Words


def bentoml(max_batch_size: int = 100, max_latency_ms: float = 60_000) -> LearnedCork:
    """Return the rule of BentoML 1.4's dispatcher, the cork.

    It has no timer: it holds n requests while n * (w + 1 ms + a) <= 0.95 * W, for w the newest's wait, a the
    cost of one more request, and W the mean wait of the last batches, a and W being learned as it runs. It
    looks at its queue every ms, which a server with short service times feels: a batch starts half a ms late
    on average. `max_latency_ms` is no wait: at each look the oldest requests are refused as long as all that
    wait would be answered later than that after they came, by what it has learned.

    >>> bentoml(max_batch_size=32)
    LearnedCork(max_batch_size=32, patience=0.95, max_latency_ms=60000)
    """
    size = _check.whole("BentoML's max_batch_size", max_batch_size, at_most=LARGEST_BATCH)
    return LearnedCork(size, max_latency_ms=_check.real("BentoML's max_latency_ms", max_latency_ms, above=0))


def config(max_batch_size: int = 100, max_latency_ms: float = 60_000) -> ServerConfig:
    """Return what the decorator means."""
    return ServerConfig("bentoml", bentoml(max_batch_size, max_latency_ms))


SERVER = Server(
    "bentoml", "1.4", bentoml, config, ("batchable", "batch_dim", "workers"),
    words=Words("max_batch_size", timeout="max_latency_ms"),
)  # fmt: skip
