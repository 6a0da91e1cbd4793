"""A format as a table of its keys, which sorts those of a text."""

import csv
import functools
import itertools
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from batchsim.servers.formats.document import Document, Node, Section, refused

_REST = re.compile(r"[ \t]*[,;]?[ \t]*((#|//).*)?$", re.MULTILINE)  # of a line, without another key


@functools.cache
def table(file: str, name: str) -> dict[str, dict[str, str]]:
    """Return the rows of a table in this folder under a name: by their section, each key with its type.

    >>> table("keys.csv", "triton messages")["ModelResponseCache"], table("flags.csv", "vllm")[""]["--seed"]
    ({'enable': 'bool'}, 'value')
    """
    found: dict[str, dict[str, str]] = {}
    with Path(__file__).with_name(file).open(newline="", encoding="utf-8") as rows:
        for first, *section, key, kind in itertools.islice(csv.reader(rows), 1, None):
            if first == name:
                found.setdefault("".join(section), {})[key] = kind
    return found


class Syntax(NamedTuple):
    """How a syntax writes a value, a key with its value, and a key more on a line or in an empty section.

    `alone(section, line, pair)` returns the text of an empty section with its first key; `line` is what
    stands before the section on its line.
    """

    literal: Callable[[Any], str]
    pair: Callable[[str, str], str]
    between: str
    alone: Callable[[str, str, str], str]

    def added(self, text: str, section: Node, pair: str) -> str:
        """Return a text with one more key in a section: behind its last, and on a line alone if that is."""
        last = max(section.items.values(), key=lambda node: node.span, default=None)
        begin, end = section.span if last is None else (last.at, last.stop)
        line = text[text.rfind("\n", 0, begin) + 1 : begin]
        if last is None:
            new = self.alone(text[begin:end], line, pair)
            return (text[:begin].rstrip(" ") if new[0] == "\n" else text[:begin]) + new + text[end:]
        rest = _REST.match(text, end)
        if rest is None or line.strip():
            return f"{text[:end]}{self.between}{pair}{text[end:]}"
        return f"{text[: rest.end()]}\n{line}{pair}{text[rest.end() :]}"


def indent_of(line: str) -> str:
    """Return the blanks in front of a line."""
    return line[: len(line) - len(line.lstrip(" \t"))]


@dataclass(frozen=True)
class Keys:
    """The keys of a format: the names that each section has, by its dotted path; None: any.

    `called` maps the path of a key to its setting, if that has another name. A key that is no setting is
    without effect, and one that its section lacks is unknown.
    """

    syntax: Syntax
    sections: Mapping[str, Iterable[str] | None]
    called: Mapping[str, str] = field(default_factory=dict)

    def section(self, root: Node) -> Section:
        """Return a text of the format, to which keys can be added."""
        syntax = self.syntax

        def added(text: str, name: str, new: str) -> str:
            node, steps = root, self.path_of(name).split(".")
            while steps[0] in node.items:
                node = node.items[steps.pop(0)]
            for step in steps[:0:-1]:
                new = f"{{ {syntax.pair(step, new)} }}"
            return syntax.added(text, node, syntax.pair(steps[0], new))

        return Section(lambda name: self.path_of(name) != "", lambda _, value: syntax.literal(value), added)

    def read(self, document: Document, root: Node) -> None:
        """Sort the keys of a text into a document."""
        section = self.section(root)
        document.sections.append(section)
        self._sort(document, root, "", section)

    def _sort(self, document: Document, node: Node, path: str, section: Section) -> None:
        if not isinstance(node.value, dict):
            must = f"{path or 'the text'} must have keys, got {node.value!r}"
            raise refused(must, document.place(node))
        known = self.sections[path]
        for name, each in node.items.items():
            inner = f"{path}.{name}".strip(".")
            if known is not None and name not in known:
                document.put_unknown(inner, known, each)
            elif inner in self.sections:
                self._sort(document, each, inner, section)
            else:
                document.put(self.called.get(inner, name), each, section, self.called.get(inner, inner))

    def path_of(self, setting: str) -> str:
        """Return the path of a setting, "" if the format does not have it."""
        for path, name in self.called.items():
            if name == setting:
                return path
        having = (path for path, known in self.sections.items() if known is not None and setting in known)
        paths = (f"{path}.{setting}".strip(".") for path in having)
        return next((path for path in paths if path not in self.called), "")
