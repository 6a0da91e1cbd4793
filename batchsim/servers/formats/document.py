"""What is read of a server's file, before it is known what it means."""

import dataclasses
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from batchsim import _check
from batchsim.servers.server import Server, ServerConfig

Place = tuple[int, int]  # line and column, both from 1 on


class Source(str):
    """An expression of a Python file that was not evaluated, as it stands there."""

    def __repr__(self) -> str:
        return str(self)


def refused(message: str, place: Place | None) -> ValueError:
    """Return the error that something at a place of the text is refused."""
    return ValueError(f"line {place[0]}, column {place[1]}: {message}" if place else message)


@dataclass
class Document:
    """A server's file, sorted: settings that the server's preset takes, keys of no effect, unknown keys.

    `kept` is what settings were made of, written again as it stands. `places` tell where a setting stands,
    `notes` what a reader of the file should know.
    """

    server: Server
    settings: dict[str, Any] = field(default_factory=dict)
    unused: dict[str, Any] = field(default_factory=dict)
    unknown: dict[str, str] = field(default_factory=dict)
    kept: dict[str, Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    places: dict[str, Place] = field(default_factory=dict)
    said: set[str] = field(default_factory=set)  # what is not listed, as such a file cannot do without it

    def put(self, name: str, value: Any, place: Place | None = None, path: str = "") -> None:
        """Add a key that the server has: a setting if the preset takes it, else one without effect."""
        if name not in self.server.settings:
            self.unused[path or name] = value
            return
        if isinstance(value, Source):
            raise refused(f"{name} must be a value written out, got {value}", place)
        self.settings[name] = value
        if place is not None:
            self.places[name] = place

    def put_unknown(self, path: str, known: Iterable[str]) -> None:
        """Add a key that the server does not have, and the nearest that it has."""
        name = path.rpartition(".")[2]
        self.unknown[path] = _check.closest(name, known)

    def config(self) -> ServerConfig:
        """Return what the file means, or raise ValueError with the place of what the server refuses."""
        try:
            found = self.server.configure(self.settings)
        except (TypeError, ValueError) as error:
            words = re.findall(r"\w+", str(error))
            place = next((self.places[word] for word in words if word in self.places), None)
            raise refused(str(error), place) from None
        return dataclasses.replace(
            found,
            unused={**found.unused, **self.unused},
            unknown=self.unknown,
            kept=self.kept,
            notes=(*found.notes, *self.notes),
        )


@dataclass(frozen=True)
class Format:
    """A file format of a server: how it is told from others, read and written.

    `title` is what such a file is called, `file` its usual name, `suffixes` those of other names. `signs`
    finds words that no other server's file has. `read(document, text, which)` fills a document; `which`
    names one of several models or functions in it. `write(settings, unused)` returns the text, and takes
    out of `settings` what the text says; what it cannot say is left there. `unused` has no setting.
    `shared` finds words of a file that another server reads, too: this one where it is asked for by name.
    """

    server: str
    title: str
    file: str
    suffixes: tuple[str, ...]
    signs: str
    read: Callable[[Document, str, str | None], None]
    write: Callable[[dict[str, Any], Mapping[str, Any]], str]
    shared: str = ""

    def has_signs(self, text: str, named: bool = False) -> bool:
        """Return whether words of this format are in the text; `named`: its server was asked for."""
        signs = f"{self.signs}|{self.shared}" if named and self.shared else self.signs
        return re.search(signs, text, re.MULTILINE) is not None
