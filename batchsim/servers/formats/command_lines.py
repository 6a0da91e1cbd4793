"""Servers that are set up on their command line: `vllm serve`, `sglang serve`, `text-generation-launcher`."""

import json
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from batchsim.servers.formats.commands import Command, Word, commands, flags_of, value_of
from batchsim.servers.formats.document import Document, Source, refused

MODEL = "$MODEL"  # of a text that is written without one


@dataclass(frozen=True)
class CommandLine:
    """A server's command: how it starts, as text to write and as what tells it, and how it says things.

    `model` is the setting of the model, which stands first in the text if it is `positional`. `short` are
    other names of flags, `variables` settings of the environment, written there by what `said` makes of them.
    """

    server: str
    start: str
    told_by: str
    model: str
    positional: bool = False
    short: Mapping[str, str] = field(default_factory=dict)
    variables: Mapping[str, str] = field(default_factory=dict)
    dashes: bool = True  # whether --max_num_seqs is --max-num-seqs, too, and --no- switches off
    prefixes: bool = True  # whether the beginning of a flag will do
    sized: frozenset[str] = frozenset()  # flags whose numbers may end in one of `units`
    units: Mapping[str, int] = field(default_factory=dict)
    glued: str = ""  # a flag that its value may follow at once, as in -O3

    def read(self, document: Document, text: str, which: str | None) -> None:
        """Fill a document with the command; `which` names its model or line, where there are several."""
        found = [(command, at) for command in commands(text) if (at := self._arguments(command)) is not None]
        if which is not None and len(found) > 1:
            found = [
                each for each in found
                if which in (str(each[0].words[0].place[0]), *(word.text for word in each[0].words))
            ]  # fmt: skip
        if len(found) != 1:
            places = ", ".join(f"line {command.words[0].place[0]}" for command, _ in found) or "none"
            must = f"the text must have one command {self.start}, or which must name one"
            raise ValueError(f"{must}, got {places}")
        command, at = found[0]
        self._read_variables(document, command)
        alone = self.positional or command.words[at - 1].text == "serve"  # whether a model needs no flag
        self._read_arguments(document, command.words[at:], alone)

    def _arguments(self, command: Command) -> int | None:
        """Return where the arguments begin; None in another command."""
        line = " ".join(word.text for word in command.words)
        match = re.search(self.told_by, line)
        if match is None:
            return None
        length = 0
        for place, word in enumerate(command.words):
            length += len(word.text) + 1
            if length > match.end() - 1:
                return place + 1
        return None

    def _read_variables(self, document: Document, command: Command) -> None:
        given = dict(command.variables)
        for option, word in zip(command.words, command.words[1:], strict=False):
            said = word.text if option.text in ("-e", "--env") else option.text.removeprefix("--env=")
            if said != option.text:  # of docker run
                name, _, value = said.partition("=")
                given[name] = Word(value, word.place)
        for name, word in given.items():
            flag = "--" + name.lower().replace("_", "-")
            if name in self.variables:
                value_ = value_of(word.text)
                if self.variables[name] == "prefill_chunking":
                    value_ = value_ in (1, True)
                document.put(self.variables[name], value_, word.place)
            elif self.server == "tgi" and flag in flags_of(self.server):
                self.put(document, flag, value_of(word.text), word)

    def _read_arguments(self, document: Document, words: list[Word], alone: bool) -> None:
        flags, place = flags_of(self.server), 0
        while place < len(words):
            word, place = words[place], place + 1
            if not word.text.startswith("-") or word.text == "-":
                if re.match(r"\d*[<>]", word.text):  # to a file
                    place += word.text.endswith((">", "<"))
                elif alone and self.model not in document.said:
                    self._put_model(document, word)
                elif not isinstance(word.text, Source):
                    document.put_unknown(word.text, ())
                continue
            name, given, text = word.text.partition("=")
            if self.glued and name.startswith(self.glued) and name != self.glued:
                name, given, text = self.glued, "=", word.text.removeprefix(self.glued)
            flag, switched = self.flag_of(name)
            if (long := self._long(flag, flags)) != flag:
                document.notes.append(f"{flag} is short for {long}")
                flag = long
            following = place
            while following < len(words) and not re.match("--|-[A-Za-z]", words[following].text):
                following += 1
            takes = flags.get(flag.partition(".")[0], "optional")
            if given and takes != "switch":
                value = self.value(flag, text)
            elif given:
                raise refused(f"{flag} must have no value, got {text!r}", word.place)
            elif takes in ("value", "list") and following == place:
                raise refused(f"{flag} must have a value, got none", word.place)
            elif takes == "switch" or following == place:
                value = not switched
            elif takes == "list":
                value, place = [word.text for word in words[place:following]], following
            elif (
                takes == "optional" and place + 1 == len(words) and alone and self.model not in document.said
            ):
                value = True  # what stands last may be the model
            else:
                value, place = self.value(flag, words[place].text), place + 1
            self.put(document, flag, value, word)

    def value(self, flag: str, text: str) -> Any:
        """Return what a text says as a flag's value; a model's name stays as it is."""
        if flag[2:].replace("-", "_") == self.model:
            return text
        return value_of(text, self.units if flag in self.sized else None)

    def has(self, name: str) -> bool:
        """Return whether a setting is one of the flags."""
        return "--" + name.partition(".")[0].replace("_", "-") in flags_of(self.server)

    def flag_of(self, name: str) -> tuple[str, bool]:
        """Return a flag under its own name, and whether it is switched off."""
        flags = flags_of(self.server)
        name = self.short.get(name, name)
        if self.dashes and name.startswith("--"):
            head, dot, tail = name.partition(".")
            name = head.replace("_", "-") + dot + tail
        if name not in flags and name.startswith("--no-") and flags.get("--" + name[5:]) == "switch":
            return "--" + name[5:], True
        return name, False

    def _long(self, flag: str, flags: Mapping[str, str]) -> str:
        """Return the one flag that begins so, as Python's argparse takes it; else the flag itself."""
        if not self.prefixes or flag in flags or "." in flag or not flag.startswith("--"):
            return flag
        fits = [each for each in flags if each.startswith(flag)]
        return fits[0] if len(fits) == 1 else flag

    def put(self, document: Document, flag: str, value: Any, word: Word) -> None:
        """Add a flag: a setting, one without effect, or one that is not known."""
        if flag.partition(".")[0] not in flags_of(self.server):
            document.put_unknown(flag, flags_of(self.server))
            return
        name = flag.lstrip("-").replace("-", "_")
        if name == "config":
            document.notes.append(f"what {value} says is not read")
        if name == self.model:
            self._put_model(document, Word(str(value), word.place))
        elif isinstance(value, list) and name in document.server.settings:
            raise refused(f"{name} must be one value, got {value}", word.place)
        else:
            document.put(name, value, word.place)

    def _put_model(self, document: Document, word: Word) -> None:
        document.said.add(self.model)
        if not isinstance(word.text, Source) and word.text != MODEL:
            document.put(self.model, word.text, word.place)

    def write(self, settings: dict[str, Any], unused: Mapping[str, Any]) -> str:
        """Return the command, a flag a line."""
        flags, given = flags_of(self.server), dict(unused) | settings
        named = given.pop(self.model, None)
        before = [f"{name}={_said(given.pop(key))}" for name, key in self.variables.items() if key in given]
        lines = []
        for name, value in given.items():
            if self.has(name):
                head, dot, tail = name.partition(".")
                lines += self._written("--" + head.replace("_", "-") + dot + tail, value, flags)
        said = (self.model, *self.variables.values())
        for name in [each for each in settings if each in said or self.has(each)]:
            del settings[name]
        model = f'"{MODEL}"' if named is None else shlex.quote(str(named))
        start = [
            *before,
            self.start,
            model if self.positional else f"--{self.model.replace('_', '-')} {model}",
        ]
        return " \\\n  ".join([" ".join(start), *lines]) + "\n"

    def _written(self, flag: str, value: Any, flags: Mapping[str, str]) -> list[str]:
        takes = flags[flag.partition(".")[0]]
        if value is None:
            return []
        if takes == "switch":
            return [flag] if value else ["--no-" + flag[2:]] if self.dashes else []
        if isinstance(value, list):
            return [f"{flag} {' '.join(shlex.quote(str(each)) for each in value)}"]
        return [flag] if value is True and takes == "optional" else [f"{flag} {shlex.quote(_said(value))}"]


def _said(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return json.dumps(value) if isinstance(value, dict) else str(value)
