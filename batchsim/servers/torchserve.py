"""TorchServe: a model's batch settings in config.properties (as JSON) or model-config.yaml."""

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

from batchsim import _check
from batchsim._format import several
from batchsim.scenario.rules import LARGEST_BATCH, PullThenWait
from batchsim.servers.formats.document import Document, Place, refused
from batchsim.servers.formats.keyed_text import Property, parse_properties, parse_yaml, property_of, yaml_of
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
    return ServerConfig(
        "torchserve", rule, workers, _check.whole("TorchServe's job_queue_size", job_queue_size)
    )


MODEL, VERSION = "model", "1.0"  # written for a model without a name
QUEUE, QUEUE_OF_MODEL = "job_queue_size", "jobQueueSize"
ZEROS = ("batchSize", "maxBatchDelay", "minWorkers")  # in a model's JSON, 0 means the default

# The keys of config.properties, and those of a model, there or in its own YAML file.
_PROPERTIES = """
    allowed_urls async_logging blacklist_env_vars certificate_file cors_allowed_headers
    cors_allowed_methods cors_allowed_origin cpp_log_config cpu_launcher_args cpu_launcher_enable debug
    decode_input_request default_response_timeout default_service_handler default_startup_timeout
    default_workers_per_model disable_system_metrics disable_token_authorization enable_envvars_config
    enable_grpc_ssl enable_metrics_api enable_model_api grpc_inference_address
    grpc_inference_max_connection_age_grace_ms grpc_inference_max_connection_age_ms grpc_inference_port
    grpc_management_address grpc_management_max_connection_age_grace_ms
    grpc_management_max_connection_age_ms grpc_management_port inference_address
    initial_distribution_port initial_worker_port install_py_dep_per_model io_ratio ipex_enable
    ipex_gpu_enable job_queue_size keystore keystore_pass keystore_type limit_max_image_pixels
    load_models management_address max_request_size max_response_size metric_time_interval
    metrics_address metrics_config metrics_mode model_metrics_auto_detect model_server_home
    model_snapshot model_store models netty_client_threads number_of_gpu number_of_netty_threads
    prefer_direct_buffer private_key_file python service_envelope snapshot_store system_metrics_cmd
    token_expiration_min ts_header_key_sequence_end ts_header_key_sequence_id
    ts_header_key_sequence_start ts_open_inference_protocol unregister_model_timeout use_env_allowed_urls
    use_native_io version vmargs workflow_store
"""
_MODEL_KEYS = """
    asyncCommunication batchSize clientTimeoutInMills continuousBatching defaultVersion deviceIds
    deviceType jobQueueSize marName maxBatchDelay maxNumSequence maxRetryTimeoutInSec
    maxSequenceJobQueueSize maxWorkers minWorkers modelName modelVersion parallelLevel parallelType
    responseTimeout runtimeType sequenceBatching sequenceMaxIdleMSec sequenceTimeoutMSec startupTimeout
    torchrun useJobTicket useVenv
"""
PROPERTIES, MODEL_KEYS = frozenset(_PROPERTIES.split()), frozenset(_MODEL_KEYS.split())
HANDLER_KEYS = frozenset(["handler", "deepspeed", "micro_batching", "pippy", "pt2"])  # read by handlers


def _read(document: Document, text: str, which: str | None) -> None:
    """Fill a document with a config.properties, for the model called `which` if it has several."""
    for prop in parse_properties(text):
        if prop.key not in PROPERTIES:
            document.put_unknown(prop.key, PROPERTIES, prop.place)
        elif prop.key == "models":
            _read_models(document, prop, which)
        else:
            value = _number(prop.value) if prop.key in document.server.settings else prop.value
            document.put(prop.key, value, prop.value_at(0))


def _number(value: Any) -> Any:
    return int(value) if isinstance(value, str) and re.fullmatch(r"\s*[+-]?\d{1,18}\s*", value) else value


def _read_models(document: Document, prop: Property, which: str | None) -> None:
    try:
        models = json.loads(prop.value)
    except json.JSONDecodeError as error:
        raise refused(f"models must be JSON: {error.msg}", prop.value_at(error.pos)) from None
    named = {
        (model, version): _table(settings, f"version {version} of {model}", prop.value_at(0))
        for model, versions in _table(models, "models", prop.value_at(0)).items()
        for version, settings in _table(versions, f"model {model}", prop.value_at(0)).items()
    }
    if not named:
        return
    fits = [
        (model, version)
        for (model, version), settings in named.items()
        if which == f"{model}/{version}"
        or (which in (None, model) and (len(models[model]) == 1 or settings.get("defaultVersion")))
    ]
    if len(fits) != 1:
        rule = "which must name one of the models" if which else "models must be one, or which must name it"
        listed = several([f"{model}/{version}" for model, version in named])
        raise refused(f"{rule}: {listed}" + (f"; got {which!r}" if which else ""), prop.place)
    ((model, version),) = fits
    if (model, version) != (MODEL, VERSION):
        document.unused["models"] = f"{model}/{version}"
    # The first mention after the model's name, then its version's.
    start = prop.value.find(f'"{version}"', max(prop.value.find(f'"{model}"'), 0))

    def place_of(key: str) -> Place:
        return prop.value_at(max(prop.value.find(f'"{key}"', start), 0))

    _put_model(document, named[model, version], place_of)
    for key in ZEROS:
        if document.settings.get(key) == 0:
            del document.settings[key]
            document.note(f"{key} of 0 in config.properties means TorchServe's default")


def _table(value: Any, what: str, place: Place) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise refused(f"{what} must be a JSON object, got {value!r}", place)
    return value


def _put_model(document: Document, settings: dict[str, Any], place_of: Callable[[str], Place]) -> None:
    for key, value in settings.items():
        if key in MODEL_KEYS:
            own = QUEUE if key == QUEUE_OF_MODEL else key
            document.put(own, _number(value) if own in document.server.settings else value, place_of(key))
        else:
            document.put_unknown(key, MODEL_KEYS, place_of(key))


def _write(settings: dict[str, Any], unused: Mapping[str, Any]) -> str:
    """Return a config.properties, or raise ValueError for a 0, which means a default there."""
    for key in ZEROS:
        if settings.get(key) == 0:
            rule = f"{key} must be at least 1 in a config.properties, where less means the default"
            raise ValueError(f"{rule}, got 0: write a model-config.yaml")
    top = {key: value for key, value in unused.items() if key in PROPERTIES and key != "models"}
    if QUEUE in settings:
        top[QUEUE] = settings.pop(QUEUE)
    own = {key: settings.pop(key) for key in list(settings) if key in MODEL_KEYS}
    own |= {key: value for key, value in unused.items() if key in MODEL_KEYS}
    name, _, version = unused.get("models", f"{MODEL}/{VERSION}").rpartition("/")
    top["models"] = json.dumps({name: {version: own}}, indent=2)
    return "".join(property_of(key, value) for key, value in top.items())


def _read_yaml(document: Document, text: str, which: str | None) -> None:
    (content, places), *_ = parse_yaml(text)
    for key, value in _table(content, "model-config.yaml", (1, 1)).items():
        own = QUEUE if key == QUEUE_OF_MODEL else key
        if key in MODEL_KEYS or key in HANDLER_KEYS:
            document.put(own, value, places.get((key,)))
        else:
            document.put_unknown(str(key), MODEL_KEYS | HANDLER_KEYS, places.get((str(key),)))
    if document.unknown:
        document.note("a handler may read keys that TorchServe itself does not have")


def _write_yaml(settings: dict[str, Any], unused: Mapping[str, Any]) -> str:
    own = {key: settings.pop(key) for key in list(settings) if key in MODEL_KEYS}
    if QUEUE in settings:
        own[QUEUE_OF_MODEL] = settings.pop(QUEUE)
    return yaml_of(own | {key: unused[key] for key in unused if key in MODEL_KEYS | HANDLER_KEYS})


SERVER = Server(
    "torchserve", "2025-03", torchserve, config, ("maxWorkers", "responseTimeout"),
    title="TorchServe",
    words=Words(
        "batchSize", "maxBatchDelay", whole=True, least=1, servers="minWorkers", queue=QUEUE,
    ),
    formats=(
        Format(
            "a TorchServe config.properties", "config.properties", (".properties",),
            r"^[ \t]*(models|inference_address|management_address|job_queue_size|model_store|load_models"
            r"|default_workers_per_model|number_of_netty_threads)\s*[=:]",
            _read, _write,
        ),
        Format(
            "a TorchServe model-config.yaml", "model-config.yaml", (".yaml", ".yml"),
            r"^[ \t]*\b(batchSize|maxBatchDelay|minWorkers|maxWorkers|jobQueueSize|parallelType)\b\s*:",
            _read_yaml, _write_yaml,
        ),
    ),
)  # fmt: skip
