"""Settings on a command line: a shell's text, the commands in it, and their flags."""

import csv
import functools
import json
import re
import shlex
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

from batchsim._format import several
from batchsim.servers.formats.document import Document, Place, Source, refused
from batchsim.servers.server import Format

# The flags of each server, and whether a flag takes a "value", a "list", an "optional" value, or nothing (a
# "switch"). Sources: the parsers of vLLM 0.19.0 and SGLang 0.5.23 (tools/real_parsers.py), the code of
# text-embeddings-inference 1.9.3, and the reference of TGI 3.3.
FLAGS = Path(__file__).with_name("flags.csv")

_WORD = re.compile(
    r"(?P<comment>\#[^\n]*)|(?P<continued>\\\r?\n)|(?P<end>[\n;|&]+)|(?P<blank>[ \t\r]+)"
    r"|(?P<word>(?:[^\s'\"\\;|&]++|\\.|'[^']*+'|\"(?:[^\"\\]++|\\.)*+\")++)|(?P<other>.)",
    re.DOTALL,
)
_QUOTED = re.compile(r"\\(.)|'([^']*+)'|\"((?:[^\"\\]++|\\.)*+)\"", re.DOTALL)
_VARIABLE = re.compile(r"[A-Za-z_]\w*=")


@functools.cache
def flags_of(server: str) -> dict[str, str]:
    """Return a server's flags, each with the kind of its value.

    >>> flags_of("vllm")["--max-num-seqs"], flags_of("tgi")["--json-output"]
    ('value', 'switch')
    """
    with FLAGS.open(newline="", encoding="utf-8") as file:
        return {row["flag"]: row["takes"] for row in csv.DictReader(file) if row["server"] == server}


@functools.cache
def _sorted_flags(server: str) -> list[str]:
    return sorted(flags_of(server))


@dataclass(frozen=True)
class Word:
    """A word of a command, without its quotes; a `Source` if the shell expands it."""

    text: str
    place: Place


@dataclass
class Command:
    """A command: its words, and the environment variables set for it."""

    words: list[Word] = field(default_factory=list)
    variables: dict[str, Word] = field(default_factory=dict)


def commands(text: str) -> list[Command]:
    r"""Return the commands of a shell's text, with variables set in front of them or exported earlier.

    >>> [command] = commands("# on one card\nCUDA_VISIBLE_DEVICES=0 vllm serve m \\\n  --max-num-seqs '64'")
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
    line, begin = 1, 0  # of the text, and where that line begins
    for match in _WORD.finditer(text):
        kind, place = match.lastgroup or "", (line, match.start() - begin + 1)
        if newlines := match.group().count("\n"):
            line, begin = line + newlines, match.start() + match.group().rindex("\n") + 1
        if kind == "other" and match.group().strip():  # an unclosed quote
            raise ValueError(f"line {place[0]}: a quote must end, got {match.group()}")
        if kind == "word":
            raw = match.group()
            unquoted = re.sub(r"'[^']*'", "", raw)
            plain = _QUOTED.sub(_unquoted, raw)
            expanded = re.search(r"[$`]", unquoted.replace(r"\$", ""))  # by the shell, to an unknown value
            yield kind, Word(Source(plain) if expanded else plain, place)
        else:
            yield kind, None


def _unquoted(match: re.Match[str]) -> str:
    escaped, single, double = match.groups()
    return escaped or single or re.sub(r'\\(["\\])', r"\1", double or "")


_SIZE = re.compile(r"(\d+)(\.\d+)?([a-zA-Z]+)")


def value_of(text: str, units: Mapping[str, int] | None = None) -> Any:
    """Return a word as a number, True or False if it is one, else as text.

    `units` are suffixes of whole numbers; with a binary suffix, a fraction makes the word text.

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


MODEL = "$MODEL"  # written for an unknown model


@dataclass(frozen=True)
class CommandLine:
    """A server's command: how it starts, and how its flags are read and written.

    `start` begins a written text; the pattern `starts` finds it in a text to read. `model` is the setting for
    the model, the first argument if `positional`. `short` maps other names of flags to their own, `variables`
    maps environment variables to settings; `switches` are the settings among these that are on or off.
    `refuses` maps a variable with a value to the message that refuses it.
    """

    server: str
    start: str
    starts: str
    model: str
    positional: bool = False
    short: Mapping[str, str] = field(default_factory=dict)
    variables: Mapping[str, str] = field(default_factory=dict)
    switches: frozenset[str] = frozenset()
    refuses: Mapping[str, str] = field(default_factory=dict)
    flags_as_variables: bool = False  # whether each flag is also an environment variable
    dashes: bool = True  # whether --max_num_seqs is also --max-num-seqs, and --no- switches off
    prefixes: bool = True  # whether a unique prefix of a flag is enough
    sized: frozenset[str] = frozenset()  # flags whose numbers may end in one of `units`
    units: Mapping[str, int] = field(default_factory=dict)
    glued: str = ""  # a flag whose value may follow without a space, as in -O3

    def format(self, title: str, file: str, signs: str) -> Format:
        """Return the format of a shell script with this command."""
        return Format(title, file, (".sh", ".bash"), signs, self.read, self.write)

    def read(self, document: Document, text: str, which: str | None) -> None:
        """Fill a document with the command; of several, `which` selects one by its model or line."""
        found = [(command, at) for command in commands(text) if (at := self._arguments(command)) is not None]
        if which is not None and len(found) > 1:
            found = [
                each for each in found
                if which in (str(each[0].words[0].place[0]), *(word.text for word in each[0].words))
            ]  # fmt: skip
        if len(found) != 1:
            places = several([f"line {command.words[0].place[0]}" for command, _ in found]) or "none"
            must = f"the text must have one command {self.start} (choose one with which=)"
            raise ValueError(f"{must}, got {places}")
        command, at = found[0]
        self._read_variables(document, command)
        alone = self.positional or command.words[at - 1].text == "serve"  # a model without a flag
        self._read_arguments(document, command.words[at:], alone)

    def _arguments(self, command: Command) -> int | None:
        """Return the index of the first argument; None for another command."""
        line = " ".join(word.text for word in command.words)
        match = re.search(self.starts, line)
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
            setting = word.text if option.text in ("-e", "--env") else option.text.removeprefix("--env=")
            if setting != option.text:  # an option of docker run
                name, _, value = setting.partition("=")
                given[name] = Word(value, word.place)
        for name, word in given.items():
            flag = "--" + name.lower().replace("_", "-")
            if why := self.refuses.get(f"{name}={word.text}"):
                raise refused(why, word.place)
            if name in self.variables:
                setting, value = self.variables[name], value_of(word.text)
                document.put(setting, value in (1, True) if setting in self.switches else value, word.place)
            elif self.flags_as_variables and flag in flags_of(self.server):
                self.put(document, flag, value_of(word.text), word)

    def _read_arguments(self, document: Document, words: list[Word], alone: bool) -> None:
        flags, place = flags_of(self.server), 0
        while place < len(words):
            word, place = words[place], place + 1
            if not word.text.startswith("-") or word.text == "-":
                if re.match(r"\d*[<>]", word.text):  # a redirection
                    place += word.text.endswith((">", "<"))
                elif alone and self.model not in document.written:
                    self._put_model(document, word)
                elif not isinstance(word.text, Source):
                    document.put_unknown(word.text, (), word.place)
                continue
            name, given, text = word.text.partition("=")
            if self.glued and name.startswith(self.glued) and name != self.glued:
                name, given, text = self.glued, "=", word.text.removeprefix(self.glued)
            flag, switched = self.flag_of(name)
            if (long := self._long(flag, flags)) != flag:
                document.note(f"{flag} is short for {long}")
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
                takes == "optional"
                and place + 1 == len(words)
                and alone
                and self.model not in document.written
            ):
                value = True  # the last word may be the model
            else:
                value, place = self.value(flag, words[place].text), place + 1
            self.put(document, flag, value, word)

    def value(self, flag: str, text: str) -> Any:
        """Return the value of a flag from its text; a model's name stays text."""
        if flag[2:].replace("-", "_") == self.model:
            return text
        return value_of(text, self.units if flag in self.sized else None)

    def has(self, name: str) -> bool:
        """Return whether a setting is one of the flags."""
        return "--" + name.partition(".")[0].replace("_", "-") in flags_of(self.server)

    def flag_of(self, name: str) -> tuple[str, bool]:
        """Return a flag's own name, and whether it is switched off."""
        flags = flags_of(self.server)
        name = self.short.get(name, name)
        if self.dashes and name.startswith("--"):
            head, dot, tail = name.partition(".")
            name = head.replace("_", "-") + dot + tail
        if name not in flags and name.startswith("--no-") and flags.get("--" + name[5:]) == "switch":
            return "--" + name[5:], True
        return name, False

    def _long(self, flag: str, flags: Mapping[str, str]) -> str:
        """Return the only flag with this prefix, as Python's argparse does; else the flag itself."""
        if not self.prefixes or flag in flags or "." in flag or not flag.startswith("--"):
            return flag
        names = _sorted_flags(self.server)
        first = bisect_left(names, flag)  # those that begin with it follow each other
        fits = [each for each in names[first : first + 2] if each.startswith(flag)]
        return fits[0] if len(fits) == 1 else flag

    def put(self, document: Document, flag: str, value: Any, word: Word) -> None:
        """Add a flag: as a setting, as one without effect, or as an unknown one."""
        if flag.partition(".")[0] not in flags_of(self.server):
            document.put_unknown(flag, flags_of(self.server), word.place)
            return
        name = flag.lstrip("-").replace("-", "_")
        if name == "config":
            document.note(f"{value} is not read")
        if name == self.model:
            self._put_model(document, Word(str(value), word.place))
        elif isinstance(value, list) and name in document.server.settings:
            raise refused(f"{name} must be one value, got {value}", word.place)
        else:
            document.put(name, value, word.place)

    def _put_model(self, document: Document, word: Word) -> None:
        document.written.add(self.model)
        if not isinstance(word.text, Source) and word.text != MODEL:
            document.put(self.model, word.text, word.place)

    def write(self, settings: dict[str, Any], unused: Mapping[str, Any]) -> str:
        """Return the command, one flag per line."""
        flags, given = flags_of(self.server), dict(unused) | settings
        named = given.pop(self.model, None)
        before = [f"{name}={_text(given.pop(key))}" for name, key in self.variables.items() if key in given]
        lines = []
        for name, value in given.items():
            if self.has(name):
                head, dot, tail = name.partition(".")
                lines += self._written("--" + head.replace("_", "-") + dot + tail, value, flags)
        others = (self.model, *self.variables.values())
        for name in [each for each in settings if each in others or self.has(each)]:
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
        return [flag] if value is True and takes == "optional" else [f"{flag} {shlex.quote(_text(value))}"]


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return json.dumps(value) if isinstance(value, dict) else str(value)
