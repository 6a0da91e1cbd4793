"""BentoML: @bentoml.api(batchable=True)."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from batchsim import _check
from batchsim.scenario.rules import LARGEST_BATCH, LearnedCork
from batchsim.servers.formats.document import Document
from batchsim.servers.formats.python_calls import Callee, PythonForm
from batchsim.servers.language import ENGINE
from batchsim.servers.server import Server, ServerConfig, Words

LIMIT = "max_latency_ms"


def bentoml(max_batch_size: int = 100, max_latency_ms: float = 60_000) -> LearnedCork:
    """Return the rule of BentoML 1.4's dispatcher, the cork.

    It has no timer. It holds n requests while n * (w + 1 ms + a) <= 0.95 * W, where w is the wait of the
    newest, a the cost of one more request, and W the mean wait of recent batches; it learns a and W as it
    runs. It looks at its queue every millisecond, so a batch starts half a millisecond late on average,
    which matters for short service times. `max_latency_ms` is not a wait: at each look the dispatcher refuses
    the oldest requests until it expects to answer all others within that time of their arrival.

    >>> bentoml(max_batch_size=32)
    LearnedCork(max_batch_size=32, patience=0.95, max_latency_ms=60000)
    """
    size = _check.whole("BentoML's max_batch_size", max_batch_size, at_most=LARGEST_BATCH)
    return LearnedCork(size, max_latency_ms=_check.real("BentoML's max_latency_ms", max_latency_ms, above=0))


def _extras(target: ServerConfig) -> dict[str, Any]:
    rule = target.rule
    return {LIMIT: rule.max_latency_ms} if isinstance(rule, LearnedCork) and rule.refuses else {}


def _notes(settings: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    if LIMIT in settings:
        yield "no-wait", f"{LIMIT} is a limit beyond which requests are refused, not a wait."


def _settle(document: Document) -> None:
    traffic = document.unused.get("traffic")
    if isinstance(traffic, dict) and traffic.get("max_concurrency"):
        document.note("max_concurrency of traffic is not simulated: only max_latency_ms refuses requests")
    if document.settings.get("batchable") is True:
        del document.settings["batchable"]
        if document.settings.get("max_batch_size") == 1:
            document.note("BentoML 1.4 stops at its first batch with a max_batch_size of 1")
    elif re.search(ENGINE, document.text):
        raise ValueError("a BentoML service must have a batchable api, got none")
    else:
        size = document.settings.get("max_batch_size")
        document.unused |= {} if size is None else {"max_batch_size": size}
        document.settings["max_batch_size"] = 1
        document.note("batchable is not True: each request is computed alone")


FORM = PythonForm(
    (
        Callee(
            "@bentoml.api", r"(bentoml\.)?api",
            (
                "_func", "route", "name", "input_spec", "output_spec", "batchable", "batch_dim",
                "max_batch_size", "max_latency_ms",
            ),
        ),
    ),
    Callee(
        "@bentoml.service", r"(bentoml\.)?service",
        (
            "_inner", "name", "image", "description", "path_prefix", "envs", "labels", "cmd",
            "service_class", "traffic", "extra_ports", "backlog", "max_runner_connections",
            "runner_connection", "resources", "workers", "replicate_process", "threads", "metrics", "logging",
            "ssl", "http", "grpc", "runner_probe", "tracing", "monitoring", "endpoints",
        ),
        {"name": "service.name"},
    ),
    by_class=True, settle=_settle,
)  # fmt: skip

SERVER = Server(
    "bentoml", "1.4", bentoml, None, ("batchable", "batch_dim"),
    caveats={"threads": "a worker computes one batch"},
    title="BentoML", started=r"\bbentoml serve\b|^runners\s*:|^service\s*:\s*\S+:\w",
    routing="random",  # of the kernel, among processes that each have a batcher
    words=Words("max_batch_size", timeout=LIMIT, replicas="workers"), extras=_extras, notes=_notes,
    formats=(FORM.format("a BentoML service", "service.py", r"\bbentoml\b|\bbatchable\b"),),
)  # fmt: skip
