"""Triton's config.pbtxt: a ModelConfig in protocol buffers' text format."""

from collections.abc import Mapping
from typing import Any

from batchsim.servers.formats import text_proto
from batchsim.servers.formats.document import Document, Format, refused

# Where the settings of the preset stand, by the path to their message.
SECTIONS = ((), ("dynamic_batching",), ("dynamic_batching", "default_queue_policy"), ("instance_group",))
GROUP, BATCHING = "instance_group", "dynamic_batching"
OTHER_SCHEDULERS = ("sequence_batching", "ensemble_scheduling")
COUNT, GPUS = "count", "gpus"


def read(document: Document, text: str, which: str | None) -> None:
    """Fill a document with a config.pbtxt."""
    message, unknown, places = text_proto.parse(text, "ModelConfig")
    content = text_proto.plain(message)
    for key in unknown:
        document.put_unknown(".".join(key.path), key.siblings)
    for name in OTHER_SCHEDULERS:
        if name in content:
            raise refused(f"batchsim simulates Triton's dynamic_batching, got {name}", places[name,])
    _read_groups(document, content.pop(GROUP, []), places)
    batching = content.pop(BATCHING, None)
    _read_section(document, content, (), places)
    if batching is not None:
        _read_section(document, batching, (BATCHING,), places)
    elif (size := document.settings.get("max_batch_size", 0)) > 1:
        # Without dynamic batching, requests are never put together.
        document.settings["max_batch_size"] = 1
        document.unused["max_batch_size"] = size
        document.notes.append("there is no dynamic_batching: each request is computed by itself")
    if document.settings.setdefault("max_batch_size", 0) == 0:
        raise refused(
            "Triton batches only where max_batch_size is at least 1, got "
            + ("0" if ("max_batch_size",) in places else "none"),
            places.get(("max_batch_size",)),
        )


def _read_section(document: Document, content: Mapping[str, Any], path: tuple[str, ...], places: Any) -> None:
    for name, value in content.items():
        inner = (*path, name)
        if inner in SECTIONS:
            _read_section(document, value, inner, places)
        else:
            document.put(name, value, places.get(inner), ".".join(inner))


def _read_groups(document: Document, groups: list[dict[str, Any]], places: Any) -> None:
    if not groups:
        return
    spread = _spread(groups)
    document.put(COUNT, sum(spread), places.get((GROUP, COUNT)))
    if len(spread) > 1:
        document.put(GPUS, len(spread))
    if max(spread, default=0) > min(spread, default=0) + 1:
        document.notes.append(f"instances are taken to be spread evenly over {len(spread)} devices")
    if len(groups) > 1 or GPUS in groups[0]:
        document.kept[GROUP] = groups
    if len(groups) > 1:
        kinds = {group.get("kind", "KIND_AUTO") for group in groups}
        if len(kinds) > 1:
            document.notes.append(f"instances of {len(kinds)} kinds are taken to be equally fast")
        return
    for name, value in groups[0].items():
        if name not in (COUNT, GPUS):
            document.unused[f"{GROUP}.{name}"] = value


def _spread(groups: list[dict[str, Any]]) -> list[int]:
    """Return how many instances take requests on each device.

    A group has `count` on each of its GPUs; without a list, on each GPU of the machine, taken to have one.
    Where it is not on GPUs, each instance has a device of its own.
    """
    spread: dict[Any, int] = {}
    for number, group in enumerate(groups):
        if group.get("passive"):
            continue
        count, kind = group.get(COUNT, 1), group.get("kind", "KIND_AUTO")
        on_gpus = kind in ("KIND_AUTO", "KIND_GPU")
        for gpu in group.get(GPUS) or [0] if on_gpus else [(number, each) for each in range(count)]:
            spread[gpu] = spread.get(gpu, 0) + (count if on_gpus else 1)
    return list(spread.values())


def write(settings: dict[str, Any], unused: Mapping[str, Any]) -> str:
    """Return a config.pbtxt."""
    content: dict[str, Any] = {BATCHING: {}}
    for path, value in unused.items():
        if path != GROUP:
            _set(content, path.split("."), value)
    groups = unused.get(GROUP)
    count, gpus = settings.get(COUNT, 1), min(settings.pop(GPUS, 1), settings.get(COUNT, 1))
    if groups is not None and (sum(_spread(groups)), len(_spread(groups))) == (count, gpus):
        settings.pop(COUNT, None)
        content[GROUP] = groups
    elif gpus > 1 and GROUP not in content:
        each, more = divmod(count, gpus)
        numbers = range(gpus)
        parts = ((each + 1, [*numbers[:more]]), (each, [*numbers[more:]]))
        content[GROUP] = [{COUNT: n, "kind": "KIND_GPU", GPUS: on} for n, on in parts if on]
        settings.pop(COUNT, None)
    for name in list(settings):
        for section in SECTIONS:
            if name in _fields(section):
                _set(content, [*section, name], settings.pop(name))
                break
    if isinstance(content.get(GROUP), dict):
        content[GROUP] = [content[GROUP]]
    return text_proto.text_of(content, "ModelConfig")


def _set(content: dict[str, Any], path: list[str], value: Any) -> None:
    for step in path[:-1]:
        content = content.setdefault(step, {})
    content[path[-1]] = list(value) if isinstance(value, tuple) else value


def _fields(path: tuple[str, ...]) -> Any:
    kind = text_proto.message_class("ModelConfig").DESCRIPTOR
    for step in path:
        kind = kind.fields_by_name[step].message_type
    return kind.fields_by_name


CONFIG_PBTXT = Format(
    "triton", "a Triton config.pbtxt", "config.pbtxt", (".pbtxt",),
    r"\b(dynamic_batching|max_queue_delay_microseconds|preferred_batch_size|instance_group|sequence_batching"
    r"|ensemble_scheduling|default_queue_policy)\b|^\s*(max_batch_size|platform|backend)\s*:",
    read, write,
)  # fmt: skip
