"""The contents of a server's file: its keys with their places, and the table of a format that sorts them."""

import csv
import dataclasses
import functools
import itertools
import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from batchsim import _check, _format
from batchsim.servers.server import Format, Server, ServerConfig

Place = tuple[int, int]  # line and column, both counted from 1
Span = tuple[int, int]  # where a part of a text begins and ends
LONGEST = 400  # characters of a message
PLAIN = (None, False, -1, 0, 1, "", "auto", "fcfs", "null", "round_robin")  # values that switch nothing on
NAMED = 10  # unknown keys, and notes; others are counted
_LINE = re.compile(r"\r\n|\r|\n")


class Source(str):
    """An expression of a file that was not evaluated, as its source text."""

    def __repr__(self) -> str:
        return str(self)


def place_in(text: str, at: int) -> Place:
    r"""Return the line and the column of a character.

    >>> place_in("a\nbc", 3)
    (2, 2)
    """
    line = bisect_right(starts := _starts(text), at)
    return line, at - starts[line - 1] + 1


@lru_cache(maxsize=2)  # a text may have thousands of places
def _starts(text: str) -> list[int]:
    return [0, *(match.end() for match in _LINE.finditer(text))]


def refused(message: str, place: Place | None) -> ValueError:
    """Return an error about a place in the text."""
    message = _format.brief_text(message, LONGEST)
    return ValueError(f"line {place[0]}, column {place[1]}: {message}" if place else message)


@dataclass
class Node:
    """A value of a text, and its place: the span of the value itself, and that of all that its key has.

    `items` are the keys in it, `more` the places of the same key with further parts of the value.
    """

    value: Any
    at: int
    span: Span
    end: int = 0
    items: dict[str, "Node"] = field(default_factory=dict)
    more: list["Node"] = field(default_factory=list)

    @property
    def stop(self) -> int:
        """Where the key with its value ends."""
        return max(self.end, self.span[1])

    def find(self, path: str) -> "Node | None":
        """Return the node at a dotted path, None if there is none."""
        found: Node | None = self
        for name in path.split("."):
            found = found and found.items.get(name)
        return found


def replaced(text: str, node: Node, new: str) -> str:
    """Return a text with another value of a key."""
    for each in reversed(node.more):
        text = _without(text, each)
    return text[: node.span[0]] + new + text[node.span[1] :]


def _without(text: str, node: Node) -> str:
    """Return a text without a key, and without its line if nothing else stands there."""
    if not node.at <= node.span[0]:
        raise ValueError(
            "a setting must stand beside its name to be removed, got a variable: remove it by hand"
        )
    before, behind = text[: node.at], text[node.stop :]
    begin = len(before.rstrip(" \t"))
    line = re.match(r"[ \t]*[,;]?[ \t]*\\?[ \t]*(\r?\n|$)", behind)
    if line and before[begin - 1 : begin] in ("", "\n"):
        return before[:begin] + behind[line.end() :]
    if comma := re.match(r"\s*[,;]\s*|[ \t]+", behind):
        return before + behind[comma.end() :]
    return re.sub(r"[ \t]*,?\s*$", "", before) + behind


@dataclass(frozen=True)
class Section:
    """A part of a text: which settings can stand there, how a value is written, and one setting more.

    `literal(name, value)` is None if the text must not have the setting then; `added(text, name, literal)`
    returns the text with it.
    """

    has: Callable[[str], bool]
    literal: Callable[[str, Any], str | None]
    added: Callable[[str, str, str], str]


@dataclass
class Document:
    """A server's file, sorted into settings that the preset takes, keys without effect, and unknown keys.

    `nodes` has the node of each setting and the section that it stands in, `sections` are those to which a
    setting can be added, `notes` are remarks for the reader.
    """

    server: Server
    form: Format
    text: str
    which: str | None = None
    settings: dict[str, Any] = field(default_factory=dict)
    nodes: dict[str, tuple[Node, Section]] = field(default_factory=dict)
    pending: dict[str, Node] = field(default_factory=dict)  # settings whose values are not known
    sections: list[Section] = field(default_factory=list)
    unused: dict[str, Any] = field(default_factory=dict)
    unknown: dict[str, str] = field(default_factory=dict)
    strange: dict[str, Place] = field(default_factory=dict)  # the places of unknown keys
    notes: list[str] = field(default_factory=list)
    others: int = 0  # unknown keys that are not named
    replicas: int = 1  # of all that it starts

    def place(self, node: Node) -> Place:
        """Return where a key begins."""
        return place_in(self.text, node.at)

    def put(self, name: str, node: Node, section: Section, path: str = "") -> None:
        """Add a key that the server has: as a setting if the preset takes it, else as one without effect."""
        source = isinstance(node.value, Source)
        if (why := self.server.caveats.get(path or name)) and (node.value is True or node.value not in PLAIN):
            self.note(f"{path or name} is not simulated: {why}", node.at)
        if name not in self.server.settings or (source and name in self.server.may_miss):
            self.unused[path or name] = node.value
            return
        if source:
            self.pending[name] = node
            return
        self.pending.pop(name, None)
        self.settings[name] = node.value
        self.nodes[name] = node, section

    def put_unknown(self, path: str, known: Iterable[str], node: Node) -> None:
        """Add a key that the server does not have, with the nearest that it has."""
        name, shown = path.rpartition(".")[2], _format.brief_text(path)
        if shown in self.unknown:
            return
        if len(self.unknown) < NAMED:
            self.unknown[shown] = _check.closest(name, known)
            self.strange[shown] = self.place(node)
        else:
            self.others += 1

    def settle(self) -> None:
        """Note the settings whose values are not known, or raise ValueError if one may change much."""
        for name, node in self.pending.items():
            if name in self.server.modest and "gpu" not in self.settings:
                self.note(f"{name} is {node.value}, which is not known: left out", node.at)
            elif name not in self.settings:
                raise self._unknown(name, f"set it in the file, or in a comment: # batchsim: {name}=...")

    def _unknown(self, name: str, then: str) -> ValueError:
        node = self.pending[name]
        return refused(f"{name} must be a literal value, got {node.value}; {then}", self.place(node))

    def note(self, text: str, at: int | None = None) -> None:
        """Add a remark, with the line of its place, unless there are many."""
        line = "" if at is None else f"line {place_in(self.text, at)[0]}: "
        if len(self.notes) < NAMED:
            self.notes.append(_format.brief_text(line + text, LONGEST))

    def changed(self, name: str, value: Any) -> str:
        """Return the text with another value of a setting, in its place or in a section; None: without."""
        if name in self.pending:
            raise self._unknown(name, f"set it by hand: {value}")
        text, (node, section) = self.text, self.nodes.get(name, (None, None))
        section = section or next(each for each in self.sections if each.has(name))
        if value is not None and (new := section.literal(name, value)) is not None:
            return section.added(text, name, new) if node is None else replaced(text, node, new)
        for each in [] if node is None else reversed([node, *node.more]):
            text = _without(text, each)
        return text

    def config(self) -> ServerConfig:
        """Return the meaning of the file, or raise ValueError with the place of a refused setting."""
        places = {name: self.place(node) for name, (node, _) in self.nodes.items() if name in self.settings}
        try:
            found = self.server.configure(self.settings)
        except (TypeError, ValueError) as error:
            named = (places[word] for word in re.findall(r"\w+", str(error)) if word in places)
            raise refused(str(error), next(named, None)) from None
        more = [f"{_format.counted(self.others, 'other unknown key')}"] if self.others else []
        return dataclasses.replace(
            found,
            unused={**found.unused, **self.unused},
            unknown=self.unknown,
            text=self.text,
            which=self.which,
            places=self.strange | places,
            replicas=found.replicas * self.replicas,
            routing=found.routing if self.replicas == 1 else "random",  # kube-proxy's
            notes=(*found.notes, *self.notes, *more),
        )


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
