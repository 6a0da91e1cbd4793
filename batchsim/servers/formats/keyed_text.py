"""Keys and values with their places in the text: YAML, JSON, and Java's .properties."""

import itertools
import json
import re
from collections.abc import Iterable, Iterator
from typing import Any

from batchsim.servers.formats.document import Node, Syntax, indent_of, place_in, refused

MOST_PARTS, DEEPEST = 30_000, 50  # of a YAML document
RENDERED = "; a template must be rendered first, as by `helm template`"


def _literal(value: Any) -> str:
    import yaml

    text = yaml.safe_dump(value, default_flow_style=True, width=float("inf"), allow_unicode=True)
    return text.removesuffix("...\n").strip()


def _alone(section: str, line: str, pair: str) -> str:
    if not section:  # the whole text
        return f"{pair}\n"
    return f"{{{pair}}}" if "{" in line else f"\n{indent_of(line)}  {pair}"


YAML = Syntax(_literal, "{}: {}".format, ", ", _alone)
JSON = Syntax(json.dumps, '"{}": {}'.format, ", ", lambda section, line, pair: f"{{{pair}}}")
PROPERTIES = Syntax(str, "{}={}".format, "\n", lambda section, line, pair: f"{section}{pair}\n")


def parse_yaml(text: str) -> list[Node]:
    """Return each document of a text.

    Raises ValueError with line and column for invalid YAML and for repeated keys.
    """
    import yaml

    try:
        loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)(text)  # libyaml's is ten times as fast
        found = []
        while loader.check_node():
            node = loader.get_node()
            _parts(node, {}, text)
            tree = _tree(node, node, text, set())
            try:
                _fill(tree, loader.construct_document(node))
            except (ValueError, OverflowError) as error:  # an endless number, or the 30th of February
                raise ValueError(f"values must be those of YAML: {error!s:.60}") from None
            found.append(tree)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = None if mark is None else (mark.line + 1, mark.column + 1)
        hint = RENDERED if "{{" in text else ""
        raise refused(f"{error.problem or error.context}{hint}", place) from None
    except yaml.YAMLError as error:
        raise ValueError(f"the text must be YAML, got {str(error).splitlines()[0]}") from None
    return found or [Node({}, 0, (0, 0))]


def _parts(node: Any, known: dict[int, int], text: str, depth: int = 0) -> int:
    """Return the number of a node's parts with each alias written out: construction would copy some of them.

    ValueError for too many or too deep parts, and for a node that contains itself.
    """
    if id(node) not in known:
        known[id(node)] = MOST_PARTS  # as if infinite, in case it contains itself
        inner: Iterable[Any] = ()
        if depth > DEEPEST:
            raise ValueError(f"the text must be YAML of at most {DEEPEST} levels, got more")
        if node.id != "scalar":
            inner = itertools.chain(*node.value) if node.id == "mapping" else node.value
        known[id(node)] = 1 + sum(_parts(each, known, text, depth + 1) for each in inner)
        if known[id(node)] > MOST_PARTS:
            must = f"a value must have at most {MOST_PARTS:,} parts, those of aliases included, got more"
            raise refused(must, place_in(text, node.start_mark.index))
    return known[id(node)]


def _tree(key: Any, node: Any, text: str, seen: set[int]) -> Node:
    begin, end = node.start_mark.index, node.end_mark.index  # of a block, where the next one begins
    found = Node(None, key.start_mark.index, (begin, begin + len(text[begin:end].rstrip())))
    if node.id != "scalar" and id(node) not in seen:  # the target of an alias is marked once
        seen.add(id(node))
        pairs = node.value if node.id == "mapping" else [(value, value) for value in node.value]
        for number, (inner, value) in enumerate(pairs):
            name = str(inner.value if node.id == "mapping" else number)
            if name in found.items:
                place = place_in(text, inner.start_mark.index)
                raise refused(f"a key must be given once, got {name} twice", place)
            found.items[name] = _tree(inner, value, text, seen)
    return found


def _fill(node: Node, value: Any) -> None:
    """Give a node and those in it their values; a merged key stands where its mapping does."""
    node.value = value
    if isinstance(value, (dict, list)):
        marked, node.items = node.items, {}
        for name, each in value.items() if isinstance(value, dict) else enumerate(value):
            inner = marked.get(str(name)) or Node(None, node.at, node.span)
            node.items[str(name)] = inner
            _fill(inner, each)


_JSON, _BLANKS = json.JSONDecoder(), re.compile(r"[ \t\r\n]*")


def parse_json(text: str, at: int = 0) -> Node:
    """Return the JSON value at a place in a text, or raise `json.JSONDecodeError`."""
    at = _blanks(text, at)
    value, end = _JSON.raw_decode(text, at)
    found = Node(value, at, (at, end))
    if isinstance(value, dict):
        at = _blanks(text, at + 1)
        while text[at] == '"':
            name, colon = _JSON.raw_decode(text, at)
            inner = parse_json(text, _blanks(text, colon) + 1)
            inner.at, found.items[name] = at, inner
            at = _blanks(text, inner.span[1])
            at = _blanks(text, at + 1) if text[at] == "," else at
    return found


def _blanks(text: str, at: int) -> int:
    return _BLANKS.match(text, at).end()  # type: ignore[union-attr]


_LINE = re.compile(
    r"[ \t\f]*(?:[#!][^\r\n]*|(?P<key>(?:\\(?:\r\n|[\s\S])|[^\\=: \t\f\r\n])*+)[ \t\f]*[=:]?[ \t\f]*"
    r"(?P<value>(?:\\(?:\r\n|[\s\S]|$)|[^\\\r\n])*+))(?:\r\n|\r|\n|$)"
)
_PART = re.compile(r"\\(?:u(?P<code>.{0,4})|(?P<end>(?:\r\n|\r|\n|$)[ \t\f]*)|(?P<letter>[\s\S]))|[^\\]")
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def parse_properties(text: str) -> Iterator[tuple[str, Node, list[int]]]:
    r"""Yield each property of a text as Java reads it: its key, its value, and each letter's place.

    A line that ends in a backslash continues on the next; a key ends at the first =, : or blank.

    >>> [(key, node.value) for key, node, _ in parse_properties("# ports\na.b = 1\\\n   2\nc: d e")]
    [('a.b', '12'), ('c', 'd e')]
    """
    for line in _LINE.finditer(text):
        if line["key"] or line["value"]:
            key, letters = _plain(text, *line.span("key"))
            value, places = _plain(text, *line.span("value"))
            if key or value:
                yield key, Node(value, letters[0], line.span("value")), places


def _plain(text: str, begin: int, end: int) -> tuple[str, list[int]]:
    """Return a part of a text without escapes, and the place of each of its letters and of its end."""
    found, places = "", []
    for part in _PART.finditer(text, begin, end):
        if part["end"] is not None:
            continue
        letter = part["letter"]
        if (code := part["code"]) is not None:
            if not re.fullmatch("[0-9a-fA-F]{4}", code):
                must = f"\\u must be followed by four hexadecimal digits, got {code!r}"
                raise refused(must, place_in(text, part.start()))
            letter = chr(int(code, 16))
        found += _ESCAPES.get(letter, letter) if letter else part.group()
        places.append(part.start())
    return found, [*places, end]
