"""Keys and values with their places in the text: YAML, and Java's .properties."""

import itertools
import math
import re
from bisect import bisect
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from batchsim.servers.formats.document import Place, refused

Places = dict[tuple[str, ...], Place]
MOST_PARTS, DEEPEST = 30_000, 50  # of a YAML document


def parse_yaml(text: str) -> list[tuple[Any, Places]]:
    """Return each document of a text, with the places of its keys by path.

    Raises ValueError with line and column for invalid YAML and for repeated keys.
    """
    import yaml

    try:
        loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)(text)  # libyaml's is ten times as fast
        found = []
        while loader.check_node():
            node = loader.get_node()
            _parts(node, {})
            places: Places = {}
            _mark(node, (), places, set())
            try:
                found.append((loader.construct_document(node), places))
            except (ValueError, OverflowError) as error:  # an endless number, or the 30th of February
                raise ValueError(f"values must be those of YAML: {error!s:.60}") from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = None if mark is None else (mark.line + 1, mark.column + 1)
        raise refused(str(error.problem or error.context), place) from None
    except yaml.YAMLError as error:
        raise ValueError(f"the text must be YAML, got {str(error).splitlines()[0]}") from None
    return found or [({}, {})]


def _parts(node: Any, known: dict[int, int], depth: int = 0) -> int:
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
        known[id(node)] = 1 + sum(_parts(each, known, depth + 1) for each in inner)
        if known[id(node)] > MOST_PARTS:
            place = (node.start_mark.line + 1, node.start_mark.column + 1)
            raise refused(
                f"a value must have at most {MOST_PARTS:,} parts, those of aliases included, got more", place
            )
    return known[id(node)]


def _mark(node: Any, path: tuple[str, ...], places: Places, seen: set[int]) -> None:
    if node.id != "mapping" or id(node) in seen:  # the target of an alias is marked once
        return
    seen.add(id(node))
    for key, value in node.value:
        here = (*path, str(key.value))
        place = (key.start_mark.line + 1, key.start_mark.column + 1)
        if here in places:
            raise refused(f"a key must be given once, got {key.value} twice", place)
        places[here] = place
        _mark(value, here, places, seen)


def yaml_of(content: Mapping[str, Any]) -> str:
    """Return a document as YAML."""
    import yaml

    return yaml.safe_dump(dict(content), sort_keys=False)


class Property(NamedTuple):
    """A key and its value, and where the key begins."""

    key: str
    value: str
    place: Place
    value_at: Callable[[int], Place]  # the place of a character of the value, or of its end


_BLANK = " \t\f"
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_PLAIN, _KEY = re.compile(r"[^\\]+"), re.compile(f"[^=:{_BLANK}]*")
_SEPARATOR = re.compile(f"[{_BLANK}]*[=:]?[{_BLANK}]*")


def parse_properties(text: str) -> list[Property]:
    r"""Return the properties of a text, in its order, as Java reads them.

    A line that ends in a backslash continues on the next; a key ends at the first =, : or blank.

    >>> [(key, value) for key, value, *_ in parse_properties("# ports\na.b = 1\\\n   2\nc: d e")]
    [('a.b', '12'), ('c', 'd e')]
    """
    return [line.property() for line in _logical_lines(text) if line.runs]


@dataclass
class _Line:
    """A logical line: its text without escapes, and where each run of letters begins in it and in the file.

    `masked` is the text with a backslash for each letter that was escaped: this never ends a key.
    """

    text: str = ""
    masked: str = ""
    runs: list[tuple[int, int, int]] = field(default_factory=list)  # index, line, column

    def add(self, text: str, line: int, column: int, escaped: bool = False) -> None:
        self.runs.append((len(self.text), line, column))
        self.text += text
        self.masked += "\\" if escaped else text

    def property(self) -> Property:
        end = _KEY.match(self.masked).end()  # type: ignore[union-attr]
        start = _SEPARATOR.match(self.masked, end).end()  # type: ignore[union-attr]
        return Property(self.text[:end], self.text[start:], self.place(0), lambda at: self.place(start + at))

    def place(self, at: int) -> Place:
        """Return the place in the file of a letter, or of the end."""
        index, line, column = self.runs[bisect(self.runs, (at, math.inf, 0)) - 1]
        return line, column + at - index


def _logical_lines(text: str) -> Iterator[_Line]:
    """Yield the lines without comments, with continued lines joined and escapes decoded."""
    found: _Line | None = None
    for number, line in enumerate(re.split(r"\r\n|\r|\n", text), 1):
        column = len(line) - len(line.lstrip(_BLANK))
        if found is None and (column == len(line) or line[column] in "#!"):
            continue
        found, continued = found or _Line(), False
        while column < len(line):
            if plain := _PLAIN.match(line, column):
                found.add(plain.group(), number, column + 1)
                column = plain.end()
                continue
            letter, place = line[column + 1 : column + 2], (number, column + 1)
            column += 2
            if letter == "u":
                code = line[column : column + 4]
                if not re.fullmatch("[0-9a-fA-F]{4}", code):
                    raise refused(f"\\u must be followed by four hexadecimal digits, got {code!r}", place)
                letter, column = chr(int(code, 16)), column + 4
            if letter:
                found.add(_ESCAPES.get(letter, letter), *place, escaped=True)
            else:
                continued = True
        if not continued:
            yield found
            found = None
    if found is not None:
        yield found


def property_of(key: str, value: Any) -> str:
    """Return a property as text; a newline in its value continues the line."""
    escaped = str(value).replace("\\", "\\\\").replace("\n", "\\\n")
    return f"{key}={escaped}\n"
