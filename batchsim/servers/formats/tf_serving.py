"""TensorFlow Serving's file of --batching_parameters_file: BatchingParameters in the text format."""

from collections.abc import Mapping
from typing import Any

from batchsim.servers.formats import text_proto
from batchsim.servers.formats.document import Document, Format

MESSAGE = "BatchingParameters"


def read(document: Document, text: str, which: str | None) -> None:
    """Fill a document with batching parameters."""
    message, unknown, places = text_proto.parse(text, MESSAGE)
    for key in unknown:
        document.put_unknown(".".join(key.path), key.siblings)
    for name, value in text_proto.plain(message).items():
        # A number is wrapped in a message, whose value is 0 where it is left out.
        given = getattr(message, name).value if isinstance(value, dict) else value
        document.put(name, given, places.get((name,)))
    if "num_batch_threads" not in document.settings:
        document.notes.append("num_batch_threads is left out: a thread for each core there, one here")


def write(settings: dict[str, Any], unused: Mapping[str, Any]) -> str:
    """Return batching parameters."""
    fields = text_proto.message_class(MESSAGE).DESCRIPTOR.fields_by_name
    given = {name: settings.pop(name) for name in list(settings) if name in fields}
    given |= {name: value for name, value in unused.items() if name in fields}
    content = {
        name: {"value": value} if fields[name].message_type else list(value) if name in LISTS else value
        for name, value in given.items()
    }
    return text_proto.text_of(content, MESSAGE)


LISTS = ("allowed_batch_sizes",)

BATCHING_PARAMETERS = Format(
    "tf_serving", "TensorFlow Serving's batching parameters", "batching_parameters.txt", (".txt", ".pbtxt"),
    r"\b(batch_timeout_micros|num_batch_threads|max_enqueued_batches|allowed_batch_sizes|thread_pool_name"
    r"|pad_variable_length_inputs)\b|^\s*max_batch_size\s*:?\s*[{<]",
    read, write,
)  # fmt: skip
