"""Java's .properties: keys, values, and where each letter of a value stands in the file."""

import re
from typing import NamedTuple

from batchsim.servers.formats.document import Place, refused

_BLANK = " \t\f"
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


class Property(NamedTuple):
    """A key and its value; `places` has one place for each letter of the value, and one for its end."""

    key: str
    value: str
    place: Place
    places: list[Place]


def parse(text: str) -> list[Property]:
    r"""Return the properties of a text, in its order, as Java reads them.

    A line that ends in a backslash goes on in the next; a key ends at the first =, : or blank.

    >>> [(key, value) for key, value, *_ in parse("# ports\na.b = 1\\\n   2\nc: d e")]
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
        places = [place for _, _, place in value]
        last = letters[-1][2]
        found.append(
            Property(_text(key), _text(value), letters[0][2], [*places, (last[0], last[1] + 1)]),
        )
    return found


Letter = tuple[str, bool, Place]  # a letter, whether a backslash stood before it, and where it is


def _ends_key(letter: str, escaped: bool) -> bool:
    return not escaped and letter in "=:" + _BLANK


def _text(letters: list[Letter]) -> str:
    return "".join(letter for letter, _, _ in letters)


def _logical_lines(text: str) -> list[list[Letter]]:
    """Return each line that is no comment, continued ones joined, escapes undone."""
    found: list[list[Letter]] = []
    goes_on = False
    for number, line in enumerate(re.split(r"\r\n|\r|\n", text), 1):
        column = len(line) - len(line.lstrip(_BLANK))
        if not goes_on:
            if column == len(line) or line[column] in "#!":
                continue
            found.append([])
        goes_on = False
        while column < len(line):
            letter, place = line[column], (number, column + 1)
            column += 1
            if letter != "\\":
                found[-1].append((letter, False, place))
                continue
            if column == len(line):
                goes_on = True
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


def escaped(value: str) -> str:
    """Return a value as a line of the file, which may go on in the next: newlines continue it."""
    return value.replace("\\", "\\\\").replace("\n", "\\\n")
