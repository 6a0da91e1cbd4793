"""Protocol buffers' text format, read by protobuf itself, for messages of our own tables."""

import itertools
import re
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from batchsim._compat import kept
from batchsim.servers.formats.document import Document, Node, Syntax, indent_of, refused

_FIELD = re.compile(r"(\w+):(\*?)(?:map<(\w+),([\w.]+)>|([\w.]+))(?:@(\w+))?")


@dataclass(frozen=True, eq=False)
class Schema:
    """Messages and enumerations by name, as compact text from which protobuf's descriptors are built.

    A message lists its fields as name:type, with *type for a repeated one, map<key,value> for a map, and
    @choice for one of several. An enumeration lists its values from 0 on. Fields have no numbers, because the
    text format names them.
    """

    messages: Mapping[str, str]
    enums: Mapping[str, str] = field(default_factory=dict)

    @kept
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

    def names(self, name: str) -> list[str]:
        """Return the names of a message's fields."""
        return [field.partition(":")[0] for field in self.messages[name].split()]

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


def parse(text: str, kind: Any, document: Document) -> Node:
    """Return a text as a message of a class, with its keys; the document lists those that the class lacks.

    Raises ValueError with line and column if protobuf refuses the text.
    """
    from google.protobuf import text_format

    lines = text.split("\n")
    try:
        with warnings.catch_warnings(action="ignore"):  # for instance about a backslash in a string
            message = text_format.Parse(text, kind(), allow_unknown_field=True)
            root = Node(plain(message), 0, (0, len(text)))
            _Keys(text, lines, document).read(kind.DESCRIPTOR, root, "")
    except text_format.ParseError as error:
        place = (error.GetLine(), error.GetColumn())
        words = re.sub(r"^\d+:\d+ : ", "", str(error)).replace("batchsim.", "")
        words = re.sub(r"^'.*': (?=[A-Z])", "", words, flags=re.DOTALL)  # the source line
        end = (len(lines), len(lines[-1]) + 1)  # without a place, the text ends too early
        if re.search(r"\$\{|\{\{", text) or re.search(r"(parse \w+: [A-Z_]{2,}| named \w+_\.)$", words):
            words += "; a template must be filled in first"
        raise refused(words, end if None in place else place) from None
    return root


class _Keys:
    """The keys of a text that protobuf has accepted; those of unknown messages are skipped."""

    def __init__(self, text: str, lines: list[str], document: Document) -> None:
        from google.protobuf import text_format

        self.document = document
        self.starts = list(itertools.accumulate((len(line) + 1 for line in lines), initial=0))
        self.tokens = text_format.Tokenizer(lines)
        self.end = 0  # of the token before

    def at(self) -> int:
        """Return where the next token begins."""
        here = self.tokens.ParseError("")
        return int(self.starts[here.GetLine() - 1] + here.GetColumn() - 1)

    def next(self) -> str:
        self.end = self.at() + len(self.tokens.token)
        token = str(self.tokens.token)
        self.tokens.NextToken()
        return token

    def read(self, kind: Any, node: Node, path: str) -> None:
        """Add the keys of a message to its node, until it ends."""
        known = dict(kind.fields_by_name) if kind is not None else {}
        while not self.tokens.AtEnd() and self.tokens.token not in ("}", ">"):
            begin, name = self.at(), self.next()
            while name.startswith("[") and not name.endswith("]"):  # an extension, or the type of an Any
                name += self.next()
            inner, field = f"{path}.{name}".strip("."), known.get(name)
            if self.tokens.token == ":":
                self.next()
            value = node.value.get(name) if field is not None else None
            found = Node(value, begin, (self.at(), 0))
            if kind is not None and field is None:
                self.document.put_unknown(inner, known, found)
            elif field is not None and node.items.setdefault(name, found) is not found:
                node.items[name].more.append(found)
            self._values(field.message_type if field is not None else None, found, inner)
            found.span = (found.span[0], self.end)
            if self.tokens.token in (",", ";"):
                self.next()

    def _values(self, kind: Any, node: Node, path: str) -> None:
        """Read a value, or a list of them."""
        token = self.next()
        if token in ("{", "<"):
            one = replace(node, value=node.value if isinstance(node.value, dict) else {})
            self.read(kind, one, path)
            self.next()
        elif token == "[":
            while self.tokens.token != "]":
                self._values(kind, node, path)
                if self.tokens.token == ",":
                    self.next()
            self.next()
        elif token[:1] in ("'", '"'):
            while self.tokens.token[:1] in ("'", '"'):  # adjacent strings are one value
                self.next()


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


def _literal(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(_literal, value))}]"
    if isinstance(value, dict) and all(isinstance(key, int) for key in value):  # a map
        return _literal([{"key": key, "value": each} for key, each in value.items()])
    if isinstance(value, dict):
        return f"{{ {' '.join(_pair(key, _literal(each)) for key, each in value.items())} }}"
    return str(value).lower() if isinstance(value, bool) else str(value)


def _pair(key: str, literal: str) -> str:
    return f"{key} {literal}" if literal.startswith("{") else f"{key}: {literal}"


def _alone(section: str, line: str, pair: str) -> str:
    if section[:1] not in ("{", "<"):  # the whole text
        return f"{section}{pair}\n"
    if "\n" not in section:
        return " ".join(filter(None, [section[0], section[1:-1].strip(), pair, section[-1]]))
    inner, indent = section[1:-1].rstrip(" \t"), indent_of(line)
    return f"{section[0]}{inner}{indent}  {pair}\n{indent}{section[-1]}"


PROTO = Syntax(_literal, _pair, " ", _alone)
