"""Protocol buffers' text format, read and written by protobuf itself, for messages of our own tables."""

import re
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

from batchsim.servers.formats.document import Document, Place, refused

_FIELD = re.compile(r"(\w+):(\*?)(?:map<(\w+),([\w.]+)>|([\w.]+))(?:@(\w+))?")
_OPENING = {"{": "}", "<": ">"}


@dataclass(frozen=True, eq=False)
class Schema:
    """Messages and enumerations by name, as compact text from which protobuf's descriptors are built.

    A message lists its fields as name:type, with *type for a repeated one, map<key,value> for a map, and
    @choice for one of several. An enumeration lists its values from 0 on. Fields have no numbers, because the
    text format names them.
    """

    messages: Mapping[str, str]
    enums: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def _pool(self) -> Any:
        from google.protobuf import descriptor_pool

        # A pool of its own does not collide with another library's message of the same name.
        pool = descriptor_pool.DescriptorPool()
        pool.AddSerializedFile(self._file().SerializeToString())
        return pool

    def message(self, name: str) -> Any:
        """Return the class of a message."""
        from google.protobuf import message_factory

        return message_factory.GetMessageClass(self._pool.FindMessageTypeByName(f"batchsim.{name}"))

    def _file(self) -> Any:
        """Return the descriptor of all messages, in proto2, which keeps explicit default values."""
        from google.protobuf import descriptor_pb2

        file = descriptor_pb2.FileDescriptorProto(name="batchsim.proto", package="batchsim", syntax="proto2")
        found: dict[str, Any] = {"": file}
        for name in sorted(self.messages):  # outer messages first
            outer, _, own = name.rpartition(".")
            parent = found[outer]
            found[name] = (parent.nested_type if outer else parent.message_type).add(name=own)
        for name, values in self.enums.items():
            outer, _, own = name.rpartition(".")
            enum = found[outer].enum_type.add(name=own)
            for number, value in enumerate(values.split()):
                enum.value.add(name=value, number=number)
        for name, fields in self.messages.items():
            for number, text in enumerate(fields.split(), 1):
                self._add_field(found[name], name, number, text)
        return file

    def _add_field(self, message: Any, owner: str, number: int, text: str) -> None:
        name, many, key, value, plain, choice = _FIELD.fullmatch(text).groups()  # type: ignore[union-attr]
        if key:  # a map is a list of entries, each a message
            entry = message.nested_type.add(name=name.title().replace("_", "") + "Entry")
            entry.options.map_entry = True
            self._add_field(entry, "", 1, f"key:{key}")
            self._add_field(entry, "", 2, f"value:{value}")
            plain, many = f"{owner}.{entry.name}", "*"
        new = message.field.add(name=name, number=number, label=3 if many else 1)
        if number_of := dict(new.Type.items()).get(f"TYPE_{plain.upper()}"):
            new.type = number_of
        else:
            new.type_name = f".batchsim.{plain}"
            new.type = 14 if plain in self.enums else 11
        if choice:
            names = [each.name for each in message.oneof_decl]
            if choice not in names:
                message.oneof_decl.add(name=choice)
                names.append(choice)
            new.oneof_index = names.index(choice)


class Key(NamedTuple):
    """A field named in a text: its path, such as ("dynamic_batching", "priority_levels")."""

    path: tuple[str, ...]
    place: Place
    siblings: tuple[str, ...]  # the fields of its message


def read(document: Document, text: str, kind: Any) -> tuple[Any, dict[tuple[str, ...], Place]]:
    """Return a text's message and the places of its keys; the document lists its unknown keys."""
    message, unknown, places = parse(text, kind)
    for key in unknown:
        document.put_unknown(".".join(key.path), key.siblings, key.place)
    return message, places


def parse(text: str, kind: Any) -> tuple[Any, list[Key], dict[tuple[str, ...], Place]]:
    """Return a text as a message of a class, the keys that the class lacks, and the places of all keys.

    Raises ValueError with line and column if protobuf refuses the text.
    """
    from google.protobuf import text_format

    lines = text.split("\n")
    try:
        with warnings.catch_warnings(action="ignore"):  # for instance about a backslash in a string
            message = text_format.Parse(text, kind(), allow_unknown_field=True)
            keys = list(_keys(text_format.Tokenizer(lines), kind.DESCRIPTOR, ()))
    except text_format.ParseError as error:
        raise _plain_error(error, (len(lines), len(lines[-1]) + 1)) from None
    places: dict[tuple[str, ...], Place] = {}
    for key in keys:
        places.setdefault(key.path, key.place)
    return message, [key for key in keys if key.path[-1] not in key.siblings], places


def _plain_error(error: Any, end: Place) -> ValueError:
    place = (error.GetLine(), error.GetColumn())
    message = re.sub(r"^\d+:\d+ : ", "", str(error)).replace("batchsim.", "")
    message = re.sub(r"^'.*': (?=[A-Z])", "", message, flags=re.DOTALL)  # the source line
    return refused(message, end if None in place else place)  # no place: the text ends too early


def _keys(tokens: Any, kind: Any, path: tuple[str, ...]) -> Iterator[Key]:
    """Yield the fields of a text that protobuf has accepted; the fields of unknown messages are skipped."""
    known = tuple(kind.fields_by_name) if kind is not None else ()
    while not tokens.AtEnd() and tokens.token not in _OPENING.values():
        here = tokens.ParseError("")
        if tokens.TryConsume("["):  # an extension, or the type of an Any
            name = "["
            while not tokens.TryConsume("]"):
                name += tokens.token
                tokens.NextToken()
            name += "]"
        else:
            name = tokens.ConsumeIdentifierOrNumber()
        field = kind.fields_by_name.get(name) if kind is not None else None
        if kind is not None:
            yield Key((*path, name), (here.GetLine(), here.GetColumn()), known)
        tokens.TryConsume(":")
        inside = field.message_type if field is not None else None
        if tokens.TryConsume("["):
            while not tokens.TryConsume("]"):
                yield from _value(tokens, inside, (*path, name))
                tokens.TryConsume(",")
        else:
            yield from _value(tokens, inside, (*path, name))
        if not tokens.TryConsume(","):
            tokens.TryConsume(";")


def _value(tokens: Any, kind: Any, path: tuple[str, ...]) -> Iterator[Key]:
    if (opening := tokens.token) in _OPENING:
        tokens.NextToken()
        yield from _keys(tokens, kind, path)
        tokens.Consume(_OPENING[opening])
    elif opening[:1] in ("'", '"'):
        while tokens.token[:1] in ("'", '"'):  # adjacent strings are one value
            tokens.NextToken()
    else:
        tokens.NextToken()


def plain(message: Any) -> dict[str, Any]:
    """Return a message as dictionaries and lists; explicit defaults are included."""
    return {field.name: _plain(field, value) for field, value in message.ListFields()}


def _plain(field: Any, value: Any) -> Any:
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        inner = field.message_type.fields_by_name["value"]
        return {key: _plain(inner, each) for key, each in value.items()}
    single = isinstance(value, (str, bytes, int, float)) or hasattr(value, "ListFields")
    return _one(field, value) if single else [_one(field, each) for each in value]


def _one(field: Any, value: Any) -> Any:
    if field.message_type is not None:
        return plain(value)
    return field.enum_type.values_by_number[value].name if field.enum_type is not None else value


def text_of(content: Mapping[str, Any], kind: Any) -> str:
    """Return the text of a message of a class."""
    from google.protobuf import json_format, text_format

    message = json_format.ParseDict(dict(content), kind())
    return text_format.MessageToString(message, use_short_repeated_primitives=True)
