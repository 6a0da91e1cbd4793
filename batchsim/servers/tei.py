"""text-embeddings-inference (TEI): `text-embeddings-router`."""

import re
from typing import Any

from batchsim import _check
from batchsim.scenario.rules import LARGEST_BATCH, PrefetchedBatches
from batchsim.servers.formats.command_lines import CommandLine, starts
from batchsim.servers.formats.document import Document
from batchsim.servers.server import Server, ServerConfig, Words


def tei(
    max_batch_tokens: int = 16_384, max_batch_requests: int | None = None, *,
    max_concurrent_requests: int = 512, padded_model: bool = False,
) -> PrefetchedBatches:  # fmt: skip
    """Return the rule of text-embeddings-inference 1.9.3.

    It has no timer. The server holds one batch in advance, formed of the oldest requests that wait as the
    batch before it starts, and takes requests in order until the next one would exceed max_batch_tokens. With
    `padded_model`, this limit counts padding: models on a CPU, and those without flash attention, pad.
    Without it, it is the sum of the tokens. No file has this setting, because the back end determines it.

    At most `max_concurrent_requests` are inside, so no batch is larger. That the server refuses more than
    these is not simulated.

    >>> tei(max_batch_tokens=8192, max_batch_requests=64)
    PrefetchedBatches(max_batch_size=64, max_batch_units=8192, units='summed')
    """
    inside = _check.whole("TEI's max_concurrent_requests", max_concurrent_requests)
    given = inside if max_batch_requests is None else max_batch_requests
    size = _check.whole("TEI's max_batch_requests", given)
    tokens = _check.whole("TEI's max_batch_tokens", max_batch_tokens)
    _check.instance("padded_model", padded_model, bool, "True or False")
    units = "padded" if padded_model else "summed"
    return PrefetchedBatches(min(size, inside, tokens, LARGEST_BATCH), max_batch_units=tokens, units=units)


def config(*, auto_truncate: bool = True, **settings: Any) -> ServerConfig:
    """Return the meaning of the command: it truncates a request above max_batch_tokens, or refuses it."""
    _check.instance("TEI's auto_truncate", auto_truncate, bool, "True or False")
    return ServerConfig("tei", tei(**settings), oversize_action="truncate" if auto_truncate else "reject")


def _extras(target: ServerConfig) -> dict[str, Any]:
    rule = target.rule
    limit, units = getattr(rule, "max_batch_units", None), getattr(rule, "units", "summed")
    found: dict[str, Any] = {} if limit is None else {"max_batch_tokens": limit}
    if units == "padded" and limit is not None:
        found["padded_model"] = True
    if (inside := max(rule.max_batch_size, target.settings.get("max_concurrent_requests", 512))) > 512:
        found["max_concurrent_requests"] = inside
    return found | ({"auto_truncate": False} if target.oversize_action == "reject" else {})


# Requests in a batch of the CPU images, whatever is set (backends/ort, 4 in backends/candle, and
# router/src/lib.rs of 1.9.3), which pad. Those with ipex run Python, which has no such limit.
ON_CPU = 8
IMAGE = re.compile(r"\btext-embeddings-inference(?P<cpu>:cpu-(?!ipex)|-cpu[:.])?")
BUILT = re.compile(r"(?:-F|--features)[ =][\w,-]*\b(mkl|ort)\b")  # for a CPU, by cargo


def _complete(document: Document, words: str, text: str) -> None:
    images = [*IMAGE.finditer(words)] or [*IMAGE.finditer(text)]
    if BUILT.search(text) or (images and all(image["cpu"] for image in images)):
        given = document.settings.get("max_batch_requests", ON_CPU)
        document.settings |= {"padded_model": True, "max_batch_requests": ON_CPU}
        forced = "" if given == ON_CPU else f", not {given}"
        document.note(f"a CPU image forms batches of at most {ON_CPU}{forced}, with Candle 4, and pads them")


LINE = CommandLine(
    "tei", "text-embeddings-router", starts(r"text-embeddings-router(?:-\d+)?", "text-embeddings-inference"),
    "model_id", short={"-p": "--port"}, dashes=False, prefixes=False, flags_as_variables=True,
    complete=_complete,
)  # fmt: skip
SERVER = Server(
    "tei", "1.9.3", tei, config, ("max_client_batch_size", "model_id", "tokenization_workers"),
    title="text-embeddings-inference",
    words=Words(
        "max_batch_requests", others={"max_batch_units": "max_batch_tokens", "units": "padded_model"}
    ),
    extras=_extras,
    formats=(
        LINE.format(
            "a command line of text-embeddings-inference", "tei-launch.sh",
            r"\btext-embeddings-(router|inference)\b",
        ),
    ),
)  # fmt: skip
