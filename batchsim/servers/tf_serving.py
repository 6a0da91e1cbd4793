"""TensorFlow Serving: the file of --batching_parameters_file."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from batchsim import _check
from batchsim._format import brief
from batchsim.scenario.rules import LARGEST_BATCH, SizeOrWait
from batchsim.servers.formats.document import Document, Keys, Node
from batchsim.servers.formats.text_proto import PROTO, Schema, parse
from batchsim.servers.server import Format, Server, ServerConfig, Words

ONE_SHAPE = "TensorFlow Serving fails a batch of different sizes unless pad_variable_length_inputs is true"
THREADS, SIZES = "num_batch_threads", "allowed_batch_sizes"


def tf_serving(max_batch_size: int = 1000, batch_timeout_micros: int = 0) -> SizeOrWait:
    """Return the rule of TensorFlow Serving's shared batch scheduler (2026-06).

    A free batch thread takes a full batch, or the open one once its first task came batch_timeout_micros
    ago. While all threads compute, full batches queue and the open one grows, as in the textbook's rule. The
    server has no largest size; here it is 65,536.

    >>> tf_serving(max_batch_size=32, batch_timeout_micros=2000)
    SizeOrWait(max_batch_size=32, max_wait_ms=2)
    """
    size = min(_check.whole("TensorFlow Serving's max_batch_size", max_batch_size), LARGEST_BATCH)
    name = "TensorFlow Serving's batch_timeout_micros"
    micros = _check.whole(name, batch_timeout_micros, at_least=0)
    return SizeOrWait(size, micros // 1000 if micros % 1000 == 0 else micros / 1000)


def config(
    *, num_batch_threads: int = 1, max_enqueued_batches: int = 10, allowed_batch_sizes: Sequence[int] = (),
    pad_variable_length_inputs: bool = False, enable_large_batch_splitting: bool = False,
    max_execution_batch_size: int | None = None, **settings: int,
) -> ServerConfig:  # fmt: skip
    """Return the meaning of the file; batches are padded to the next of `allowed_batch_sizes`.

    TensorFlow Serving starts a batch thread per core by default; the default here is 1, because a scenario
    does not know the machine. A request is refused when max_enqueued_batches full batches wait, the open one
    included. That is a limit of requests, because only full batches close before a thread takes them. With
    pad_variable_length_inputs, requests of a batch are padded to the longest; without it, a batch of
    different lengths fails. With enable_large_batch_splitting, batches have at most max_execution_batch_size
    (bundle_factory_util.h).
    """
    rule, unused = tf_serving(**settings), dict[str, Any]()
    wanted = settings.get("max_batch_size", 0)
    capped = f"max_batch_size is {wanted:,}, which has no limit there; here it is {LARGEST_BATCH:,}"
    threads = _check.whole("TensorFlow Serving's num_batch_threads", num_batch_threads)
    batches = _check.whole("TensorFlow Serving's max_enqueued_batches", max_enqueued_batches)
    allowed: tuple[int, ...] = ()
    if len(allowed_batch_sizes):
        allowed = _check.sizes("TensorFlow Serving's allowed_batch_sizes", allowed_batch_sizes)
        if allowed[-1] != rule.max_batch_size:
            must = "TensorFlow Serving's allowed_batch_sizes must end with max_batch_size"
            raise ValueError(f"{must}, {rule.max_batch_size}, got {brief(list(allowed))}")
    for name, given in (
        ("pad_variable_length_inputs", pad_variable_length_inputs),
        ("enable_large_batch_splitting", enable_large_batch_splitting),
    ):
        _check.instance(f"TensorFlow Serving's {name}", given, bool, "a bool")
    if max_execution_batch_size is not None:
        name = "TensorFlow Serving's max_execution_batch_size"
        size = _check.whole(name, max_execution_batch_size, at_most=rule.max_batch_size)
        if enable_large_batch_splitting:
            rule = replace(rule, max_batch_size=size)
        else:
            unused = {"max_execution_batch_size": size}
    return ServerConfig(
        "tf_serving", rule, threads, batches * rule.max_batch_size, pad_to=allowed,
        one_shape="" if pad_variable_length_inputs else ONE_SHAPE, unused=unused,
        notes=(capped,) if wanted > LARGEST_BATCH else (),
    )  # fmt: skip


def _extras(target: ServerConfig) -> dict[str, Any]:
    allowed = target.pad_to and target.pad_to[-1] == target.rule.max_batch_size
    return {SIZES: list(target.pad_to)} if allowed else {}


def _notes(settings: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    if THREADS not in settings:
        why = f"{THREADS} is one per core unless set; here it is 1: give the cores (--cores)."
        yield "threads-default", why


SCHEMA = Schema({
    "Int64Value": "value:int64",
    "StringValue": "value:string",
    "BoolValue": "value:bool",
    "BatchingParameters": "max_batch_size:Int64Value batch_timeout_micros:Int64Value "
    "max_enqueued_batches:Int64Value num_batch_threads:Int64Value thread_pool_name:StringValue "
    "allowed_batch_sizes:*int64 pad_variable_length_inputs:bool "
    "enable_large_batch_splitting:BoolValue max_execution_batch_size:Int64Value",
})  # fmt: skip
MESSAGE = "BatchingParameters"


_WRAPPED = re.findall(r"(\w+):\w+Value", SCHEMA.messages[MESSAGE])  # each value in a message
KEYS = Keys(
    PROTO, {"": SCHEMA.names(MESSAGE), **dict.fromkeys(_WRAPPED, ("value",))},
    {f"{name}.value": name for name in _WRAPPED},
)  # fmt: skip


def _read(document: Document, text: str, which: str | None) -> None:
    root = parse(text, SCHEMA.message(MESSAGE), document)
    for name in {*_WRAPPED} & {*root.items}:
        message = root.items[name]
        kind = False if name == "enable_large_batch_splitting" else 0
        value = message.items.setdefault("value", Node(kind, message.at, message.span))  # if left out
        value.at, value.end = message.at, message.span[1]
    KEYS.read(document, root)
    if THREADS not in document.settings:
        document.note(f"{THREADS} is left out: the server starts one per core, batchsim one")


SERVER = Server(
    "tf_serving", "2026-06", tf_serving, config,
    title="TensorFlow Serving", started=r"\btensorflow(_model_server|/serving)\b|--batching_param",
    words=Words(
        "max_batch_size", "batch_timeout_micros", 0.001, whole=True, servers=THREADS,
        queue="max_enqueued_batches", queue_in_batches=True, sizes=SIZES,
    ),
    extras=_extras, notes=_notes, per_core=THREADS,
    formats=(
        Format(
            "TensorFlow Serving's batching parameters", "batching_parameters.txt", (".txt", ".pbtxt"),
            r"\b(batch_timeout_micros|num_batch_threads|max_enqueued_batches|allowed_batch_sizes"
            r"|thread_pool_name|pad_variable_length_inputs|max_execution_batch_size)\b"
            r"|^[ \t]*max_batch_size\s*:?\s*[{<]",
            _read, "",
        ),
    ),
)  # fmt: skip
