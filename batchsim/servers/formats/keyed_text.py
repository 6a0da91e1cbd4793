"""Keys and values with their places in the text: YAML, and Java's .properties."""

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from batchsim.servers.formats.document import Place, refused

Places = dict[tuple[str, ...], Place]


def parse_yaml(text: str) -> list[tuple[Any, Places]]:
    """Return each document of a text, with the places of its keys by path.

    Raises ValueError with line and column for invalid YAML and for repeated keys.
    """
    import yaml

    try:
        loader = yaml.SafeLoader(text)
        found = []
        while loader.check_node():
            node = loader.get_node()
            places: Places = {}
            _mark(node, (), places, set())
            found.append((loader.construct_document(node), places))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = None if mark is None else (mark.line + 1, mark.column + 1)
        raise refused(str(error.problem or error.context), place) from None
    except yaml.YAMLError as error:
        raise ValueError(f"the text must be YAML, got {str(error).splitlines()[0]}") from None
    return found or [({}, {})]


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
    """A key and its value; `places` has one place per character of the value, and one for its end."""

    key: str
    value: str
    place: Place
    places: list[Place]


Letter = tuple[str, bool, Place]  # a character, whether a backslash escaped it, and its place
_BLANK = " \t\f"
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def parse_properties(text: str) -> list[Property]:
    r"""Return the properties of a text, in its order, as Java reads them.

    A line that ends in a backslash continues on the next; a key ends at the first =, : or blank.

    >>> [(key, value) for key, value, *_ in parse_properties("# ports\na.b = 1\\\n   2\nc: d e")]
    [('a.b', '12'), ('c', 'd e')]
    """
    found = []
    for letters in _logical_lines(text):
        end = next((i for i, (letter, escaped, _) in enumerate(letters) if _ends_key(letter, escaped)), None)
        key, rest = letters[:end], letters[end:] if end is not None else []
        start, separators = 0, 0
        while start < len(rest) and _ends_key(*rest[start][:2]):
            separators += rest[start][0] not in _BLANK
            if separators > 1:
                break
            start += 1
        value = rest[start:]
        (line, column), places = letters[-1][2], [place for _, _, place in value]
        found.append(Property(_text(key), _text(value), letters[0][2], [*places, (line, column + 1)]))
    return found


def _ends_key(letter: str, escaped: bool) -> bool:
    return not escaped and letter in "=:" + _BLANK


def _text(letters: list[Letter]) -> str:
    return "".join(letter for letter, _, _ in letters)


def _logical_lines(text: str) -> list[list[Letter]]:
    """Return the lines without comments, with continued lines joined and escapes decoded."""
    found: list[list[Letter]] = []
    continued = False
    for number, line in enumerate(re.split(r"\r\n|\r|\n", text), 1):
        column = len(line) - len(line.lstrip(_BLANK))
        if not continued:
            if column == len(line) or line[column] in "#!":
                continue
            found.append([])
        continued = False
        while column < len(line):
            letter, place = line[column], (number, column + 1)
            column += 1
            if letter != "\\":
                found[-1].append((letter, False, place))
                continue
            if column == len(line):
                continued = True
                break
            letter = line[column]
            column += 1
            if letter == "u":
                code = line[column : column + 4]
                if not re.fullmatch("[0-9a-fA-F]{4}", code):
                    raise refused(f"\\u must be followed by four hexadecimal digits, got {code!r}", place)
                letter, column = chr(int(code, 16)), column + 4
            found[-1].append((_ESCAPES.get(letter, letter), True, place))
    return [letters for letters in found if letters]


def property_of(key: str, value: Any) -> str:
    """Return a property as text; a newline in its value continues the line."""
    escaped = str(value).replace("\\", "\\\\").replace("\n", "\\\n")
    return f"{key}={escaped}\n"
