"""TorchServe: a model's batch settings in config.properties (as JSON) or model-config.yaml."""

import json
import re
from dataclasses import replace
from typing import Any

from batchsim import _check
from batchsim._format import several
from batchsim.scenario.rules import LARGEST_BATCH, PullThenWait
from batchsim.servers.formats import keyed_text
from batchsim.servers.formats.document import Document, Keys, Node, Place, place_in, refused, table
from batchsim.servers.server import Format, Server, ServerConfig, Words


def torchserve(batchSize: int = 1, maxBatchDelay: int = 100) -> PullThenWait:
    """Return the rule of TorchServe (2025-03); the delay is in ms.

    A free worker takes the first job. Then it waits for others until it has batchSize of them or
    maxBatchDelay is over, however long the first had been in the queue. A lock lets one worker collect at a
    time.

    >>> torchserve(batchSize=8, maxBatchDelay=50)
    PullThenWait(max_batch_size=8, max_wait_ms=50)
    """
    size = _check.whole("TorchServe's batchSize", batchSize, at_most=LARGEST_BATCH)
    return PullThenWait(size, _check.whole("TorchServe's maxBatchDelay", maxBatchDelay, at_least=0))


def config(*, minWorkers: int = 1, job_queue_size: int = 100, **settings: int) -> ServerConfig:
    """Return the meaning of a model's settings; beyond `job_queue_size` jobs, TorchServe answers 503."""
    rule = torchserve(**settings)
    workers = _check.whole("TorchServe's minWorkers", minWorkers)
    jobs = _check.whole("TorchServe's job_queue_size", job_queue_size)
    return ServerConfig("torchserve", rule, workers, jobs)


SNAPSHOT = "model_snapshot"  # of a running server, in whose file it writes its models
QUEUE, QUEUE_OF_MODEL = "job_queue_size", "jobQueueSize"
ZEROS = ("batchSize", "maxBatchDelay", "minWorkers")  # in a model's JSON, 0 means the default

# The keys of config.properties, those of a model, there or in its own YAML file, and those of handlers.
_KNOWN = table("keys.csv", "torchserve")
TOP = Keys(keyed_text.PROPERTIES, {"": _KNOWN["config.properties"]})
OWN = Keys(keyed_text.JSON, {"": _KNOWN["model"]}, {QUEUE_OF_MODEL: QUEUE})
FILE = Keys(keyed_text.YAML, {"": _KNOWN["model"] | _KNOWN["handler"]}, OWN.called)


def _no_model(text: str, name: str, new: str) -> str:
    raise ValueError(f"models must have the model whose {name} is to be {new}, got none")


def _read(document: Document, text: str, which: str | None) -> None:
    """Fill a document with a config.properties, for the model called `which` if it has several."""
    top, model = Node({}, 0, (0, len(text))), Node({}, 0, (0, 0))
    for key, node, places in keyed_text.parse_properties(text):
        top.items[key] = node
        # The snapshot wins (ModelServer.java).
        if key == SNAPSHOT or (key == "models" and SNAPSHOT not in top.items):
            model = _model(document, node, places, which, within="models" if key == SNAPSHOT else "")
        elif key in document.server.settings:
            node.value = _number(node.value)
    for key, node in model.items.items():
        if OWN.called.get(key, key) in document.server.settings:
            node.value = _number(node.value)
    TOP.read(document, top)
    for key in ("models", SNAPSHOT):
        document.unused.pop(key, None)
    OWN.read(document, model)
    if not model.span[1]:
        document.sections[-1] = replace(document.sections[-1], added=_no_model)
        document.note("models is left out: their archives have the batch sizes, batchsim the defaults")
    for key in ZEROS:
        if document.settings.get(key) == 0:
            del document.settings[key]
            document.note(f"{key} of 0 in config.properties means TorchServe's default")
    workers = _number(document.unused.get("default_workers_per_model"))
    if "minWorkers" not in document.settings and isinstance(workers, int) and workers > 0:
        document.settings["minWorkers"] = workers
        del document.unused["default_workers_per_model"]
    _settle(document, model)


def _number(value: Any) -> Any:
    return int(value) if isinstance(value, str) and re.fullmatch(r"\s*[+-]?\d{1,18}\s*", value) else value


def _model(document: Document, models: Node, places: list[int], which: str | None, within: str) -> Node:
    """Return the settings of the model called `which`, with their places in the text."""
    try:
        json.loads(models.value)
    except json.JSONDecodeError as error:
        place = place_in(document.text, places[error.pos])
        raise refused(f"models must be JSON: {error.msg}", place) from None
    root, start = keyed_text.parse_json(models.value), document.place(models)
    root = root.items.get(within, root)
    named = {
        (model, version): _table(settings, f"version {version} of {model}", start)
        for model, versions in _table(root, "models", start).items.items()
        for version, settings in _table(versions, f"model {model}", start).items.items()
    }
    if not named:
        return Node({}, 0, (0, 0))
    alone = {model for model, versions in root.items.items() if len(versions.items) == 1}
    fits = [
        settings
        for (model, version), settings in named.items()
        if which == f"{model}/{version}"
        or (which in (None, model) and (model in alone or settings.value.get("defaultVersion")))
    ]
    if len(fits) != 1:
        rule = "which must name one of the models" if which else "models must be one, or which must name it"
        listed = several([f"{model}/{version}" for model, version in named])
        raise refused(f"{rule}: {listed}" + (f"; got {which!r}" if which else ""), start)
    for node in (fits[0], *fits[0].items.values()):
        node.at, node.span = places[node.at], (places[node.span[0]], places[node.span[1] - 1] + 1)
    return fits[0]


def _table(node: Node, what: str, place: Place) -> Node:
    if not isinstance(node.value, dict):
        raise refused(f"{what} must be a JSON object, got {node.value!r}", place)
    return node


def _settle(document: Document, model: Node) -> None:
    for key in ("continuousBatching", "sequenceBatching"):  # by another aggregator (wlm, 2025-03)
        if model.value.get(key) is True:
            place = document.place(model.items[key])
            raise refused(f"{key} must be false: it forms batches in another way, got true", place)
    if "minWorkers" not in document.settings:
        document.note("minWorkers is left out: the server starts one per GPU or core, batchsim one")


def _read_yaml(document: Document, text: str, which: str | None) -> None:
    root = keyed_text.parse_yaml(text)[0]
    FILE.read(document, root)
    _settle(document, root)
    if document.unknown:
        document.note("a handler may read keys that TorchServe itself does not have")


SERVER = Server(
    "torchserve", "2025-03", torchserve, config, ("maxWorkers", "responseTimeout"),
    title="TorchServe", started=r"\btorchserve\b",
    caveats={
        "micro_batching": "a batch is computed whole",
        "asyncCommunication": "a worker computes one batch at a time",
        "useJobTicket": "requests wait for a worker",
        "clientTimeoutInMills": "no request leaves the queue",
    },
    words=Words("batchSize", "maxBatchDelay", whole=True, least=1, servers="minWorkers", queue=QUEUE),
    formats=(
        Format(
            "a TorchServe config.properties", "config.properties", (".properties",),
            r"^[ \t]*(models(?=\s*[=:]\s*[\\{])|inference_address|management_address|job_queue_size"
            r"|model_store|load_models|default_workers_per_model|model_snapshot|number_of_netty_threads)\s*[=:]",
            _read, 'models={"model": {"1.0": {}}}\n',
        ),
        Format(
            "a TorchServe model-config.yaml", "model-config.yaml", (".yaml", ".yml"),
            r"^[ \t]*\b(batchSize|maxBatchDelay|minWorkers|maxWorkers|jobQueueSize|parallelType)\b\s*:",
            _read_yaml, "",
        ),
    ),
)  # fmt: skip
