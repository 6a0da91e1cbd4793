"""Servers that are set up on their command line: `vllm serve`, `sglang serve`, `text-generation-launcher`."""

import csv
import functools
import json
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

from batchsim.servers.formats.document import Document, Place, Source, refused

# By server: each of its flags, and whether it takes a "value", a "list" of them, a value or none
# ("optional"), or none ("switch"). Of vLLM 0.19.0 and SGLang 0.5.23 as their own parsers have them
# (tests/real_parsers.py), of vLLM 0.6.6.post1 as its source declares them, of TGI 3.3 as its reference lists.
FLAGS = Path(__file__).with_name("flags.csv")

_WORD = re.compile(
    r"(?P<comment>\#[^\n]*)|(?P<goes_on>\\\r?\n)|(?P<end>[\n;|&]+)|(?P<blank>[ \t\r]+)"
    r"|(?P<word>(?:[^\s'\"\\;|&]|\\.|'[^']*'|\"(?:[^\"\\]|\\.)*\")+)|(?P<other>.)",
    re.DOTALL,
)
_VARIABLE = re.compile(r"[A-Za-z_]\w*=")


@functools.cache
def flags_of(server: str) -> dict[str, str]:
    """Return a server's flags, and what each takes.

    >>> flags_of("vllm")["--max-num-seqs"], flags_of("tgi")["--json-output"]
    ('value', 'switch')
    """
    with FLAGS.open(newline="", encoding="utf-8") as file:
        return {row["flag"]: row["takes"] for row in csv.DictReader(file) if row["server"] == server}


@dataclass(frozen=True)
class Word:
    """A word of a command without its quotes, and its place; a `Source` if the shell puts something in."""

    text: str
    place: Place


@dataclass
class Command:
    """A command: its words, and the variables that are set for it."""

    words: list[Word] = field(default_factory=list)
    variables: dict[str, Word] = field(default_factory=dict)


def commands(text: str) -> list[Command]:
    r"""Return the commands of a shell's text, with the variables that they, or exports before them, set.

    >>> [command] = commands("# on one card\nVLLM_USE_V1=0 vllm serve m \\\n  --max-num-seqs '64'")
    >>> [word.text for word in command.words], command.words[-1].place
    (['vllm', 'serve', 'm', '--max-num-seqs', '64'], (3, 18))
    """
    found, exported = [Command()], dict[str, Word]()
    for kind, word in _pieces(text):
        command = found[-1]
        if kind == "end" and (command.words or command.variables):
            found.append(Command())
        if word is None:
            continue
        name, is_set, value = word.text.partition("=")
        if is_set and _VARIABLE.match(word.text) and command.words in ([], _export(command)):
            set_ = Word(type(word.text)(value), word.place)
            command.variables[name] = set_
            if command.words:
                exported[name] = set_
        else:
            if not command.words:
                command.variables = exported | command.variables
            command.words.append(word)
    return [command for command in found if command.words]


def _export(command: Command) -> list[Word] | None:
    return command.words if [word.text for word in command.words] == ["export"] else None


def _pieces(text: str) -> Iterator[tuple[str, Word | None]]:
    for match in _WORD.finditer(text):
        kind = match.lastgroup or ""
        if kind == "other" and match.group().strip():  # a quote without its end
            raise ValueError(f"line {_place(text, match.start())[0]}: a quote must end, got {match.group()}")
        if kind == "word":
            raw = match.group()
            unquoted = re.sub(r"'[^']*'", "", raw)
            try:
                plain = "".join(shlex.split(raw))
            except ValueError:
                plain = raw
            # What the shell puts in is not known here.
            told = Source(plain) if re.search(r"[$`]", unquoted.replace(r"\$", "")) else plain
            yield kind, Word(told, _place(text, match.start()))
        else:
            yield kind, None


def _place(text: str, start: int) -> Place:
    before = text.rfind("\n", 0, start)
    return text.count("\n", 0, start) + 1, start - before


_SIZE = re.compile(r"(\d+)(\.\d+)?([a-zA-Z]+)")


def value_of(text: str, units: Mapping[str, int] | None = None) -> Any:
    """Return a word as the number or the truth that it says, else as text.

    `units` are endings of whole numbers; before those of binary sizes a fraction is none.

    >>> value_of("64"), value_of("0.3"), value_of("false"), value_of("fp8"), value_of("2K", {"K": 1024})
    (64, 0.3, False, 'fp8', 2048)
    """
    if isinstance(text, Source):
        return text
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    if units and (match := _SIZE.fullmatch(text)):
        whole, fraction, ending = match.groups()
        unit = units.get(ending, 0)
        if unit and not (fraction and unit % 1000):
            return int(Decimal(whole + (fraction or "")) * unit)
    for kind in (int, float):
        try:
            return kind(text) if "_" not in text else text
        except ValueError:
            continue
    return text


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
