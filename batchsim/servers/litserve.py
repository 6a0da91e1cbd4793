"""LitServe: a LitAPI's batch settings."""

from collections.abc import Sequence

from batchsim import _check
from batchsim._format import as_typed
from batchsim.scenario.rules import LARGEST_BATCH, CompetingWindows
from batchsim.servers.formats.document import Document
from batchsim.servers.formats.python_calls import ANY, Call, Callee, PythonForm
from batchsim.servers.server import Server, ServerConfig, Words

POLL_MS = 1.0  # how long a worker blocks on the queue before it polls again


def litserve(max_batch_size: int = 1, batch_timeout: float = 0.0) -> CompetingWindows:
    """Return the rule of LitServe 0.2.19's collation loop; the timeout is in seconds.

    A free worker collects in windows of batch_timeout; an empty window is followed by the next one, so a
    lone request waits for half a window on average. A batch leaves when it is full or its window ends. The
    next window begins when the batch is computed, however long requests have waited by then.

    Free workers collect at the same time. Each polls the queue for 1 ms at a time, and a request goes to the
    worker that polled first. So batches are smaller than if one worker collected at a time.

    >>> litserve(max_batch_size=8, batch_timeout=0.05)
    CompetingWindows(max_batch_size=8, max_wait_ms=50.0, poll_ms=1.0)
    """
    size = _check.whole("LitServe's max_batch_size", max_batch_size, at_most=LARGEST_BATCH)
    wait_s = _check.real("LitServe's batch_timeout", batch_timeout, at_least=0)
    return CompetingWindows(size, as_typed(1000 * wait_s), POLL_MS)


def config(
    *, workers_per_device: int = 1, devices: int | Sequence[int] = 1, timeout: float = 30, **settings: float
) -> ServerConfig:
    """Return the meaning of LitAPI and LitServer: a request that waits `timeout` seconds fails (504).

    A timeout of False or -1 is no limit.
    """
    workers = _check.whole("LitServe's workers_per_device", workers_per_device)
    devices = len(devices) if isinstance(devices, (list, tuple)) else devices
    workers *= _check.whole("LitServe's devices", devices)
    rule = litserve(**settings)  # type: ignore[arg-type]
    if timeout is False or timeout == -1:
        return ServerConfig("litserve", rule, workers)
    timeout_s = _check.real("LitServe's timeout", timeout, above=0)
    return ServerConfig("litserve", rule, workers, timeout_ms=as_typed(1000 * timeout_s))


def _settle(document: Document) -> None:
    if document.settings.get("devices", "auto") == "auto":
        document.settings.pop("devices", None)
        if document.settings.get("accelerator") not in ("cpu", "mps"):
            document.note("devices='auto' means every device; batchsim simulates one")


def _is_lit_api(call: Call) -> bool:
    name = call.callee.rpartition(".")[2]
    if any(base.rpartition(".")[2] == "LitAPI" for base in call.bases):
        return True
    # A class of another file, or a subclass that calls LitAPI's __init__.
    is_class = name == "__init__" or (name[:1].isupper() and name != "LitServer")
    return is_class and bool({"max_batch_size", "batch_timeout"} & {*call.keywords})


FORM = PythonForm(
    (
        Callee(
            "a LitAPI", ANY + "LitAPI",
            ("max_batch_size", "batch_timeout", "api_path", "stream", "loop", "spec", "mcp", "enable_async"),
        ),
    ),
    Callee(
        "LitServer", ANY + "LitServer",
        (
            "_lit_api", "accelerator", "devices", "workers_per_device", "timeout", "healthcheck_path",
            "info_path", "shutdown_path", "enable_shutdown_api", "model_metadata", "spec",
            "max_payload_size", "track_requests", "callbacks", "middlewares", "loggers", "fast_queue",
            "disable_openapi_url", "max_batch_size", "batch_timeout", "stream", "api_path", "loop",
            "restart_workers",
        ),
    ),
    also=_is_lit_api, settle=_settle,
)  # fmt: skip

SERVER = Server(
    "litserve", "0.2.19", litserve, config, ("accelerator", "api_path", "stream"),
    title="LitServe",
    words=Words(
        "max_batch_size", "batch_timeout", 1000, servers="workers_per_device",
        timeout="timeout", timeout_unit_ms=1000,
    ),
    extras=lambda target: {"devices": 1},
    formats=(FORM.format(
        "a LitServe server", "server.py", r"\bLit(API|Server)\b|\blitserve\b|\bbatch_timeout\s*="
    ),),
)  # fmt: skip
