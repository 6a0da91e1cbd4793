"""The contents of a server's file: its keys with their places, before the server interprets them."""

import dataclasses
import re
from bisect import bisect_right
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

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
