"""The contents of a server's file, before the server interprets them."""

import dataclasses
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from batchsim import _check, _format
from batchsim.servers.server import Server, ServerConfig

Place = tuple[int, int]  # line and column, both counted from 1
LONGEST = 400  # characters of a message
NAMED = 10  # unknown keys, and notes; others are counted


class Source(str):
    """An expression of a file that was not evaluated, as its source text."""

    def __repr__(self) -> str:
        return str(self)


def refused(message: str, place: Place | None) -> ValueError:
    """Return an error about a place in the text."""
    message = _format.brief_text(message, LONGEST)
    return ValueError(f"line {place[0]}, column {place[1]}: {message}" if place else message)


@dataclass
class Document:
    """A server's file, sorted into settings that the preset takes, keys without effect, and unknown keys.

    `kept` has the parts that settings were derived from, to be written back unchanged. `places` has the place
    of each setting, `notes` remarks for the reader. `written` has the names of arguments that such a file
    needs anyway, which are not listed.
    """

    server: Server
    settings: dict[str, Any] = field(default_factory=dict)
    unused: dict[str, Any] = field(default_factory=dict)
    unknown: dict[str, str] = field(default_factory=dict)
    kept: dict[str, Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    places: dict[str, Place] = field(default_factory=dict)
    strange: dict[str, Place] = field(default_factory=dict)  # the places of unknown keys
    written: set[str] = field(default_factory=set)
    others: int = 0  # unknown keys that are not named

    def put(self, name: str, value: Any, place: Place | None = None, path: str = "") -> None:
        """Add a key that the server has: as a setting if the preset takes it, else as one without effect."""
        if name not in self.server.settings:
            self.unused[path or name] = value
            return
        if isinstance(value, Source):
            raise refused(f"{name} must be a literal value, got {value}", place)
        self.settings[name] = value
        if place is not None:
            self.places[name] = place

    def put_unknown(self, path: str, known: Iterable[str], place: Place | None = None) -> None:
        """Add a key that the server does not have, with the nearest that it has."""
        name, shown = path.rpartition(".")[2], _format.brief_text(path)
        if shown in self.unknown:
            return
        if len(self.unknown) < NAMED:
            self.unknown[shown] = _check.closest(name, known)
            if place is not None:
                self.strange[shown] = place
        else:
            self.others += 1

    def note(self, text: str) -> None:
        """Add a remark, unless there are many."""
        if len(self.notes) < NAMED:
            self.notes.append(_format.brief_text(text, LONGEST))

    def config(self) -> ServerConfig:
        """Return the meaning of the file, or raise ValueError with the place of a refused setting."""
        try:
            found = self.server.configure(self.settings)
        except (TypeError, ValueError) as error:
            words = re.findall(r"\w+", str(error))
            place = next((self.places[word] for word in words if word in self.places), None)
            raise refused(str(error), place) from None
        more = [f"{_format.counted(self.others, 'other unknown key')}"] if self.others else []
        return dataclasses.replace(
            found,
            unused={**found.unused, **self.unused},
            unknown=self.unknown,
            kept=self.kept,
            places=self.strange | self.places,
            notes=(*found.notes, *self.notes, *more),
        )
