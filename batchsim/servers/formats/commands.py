"""Command lines in a shell's text: their words, what each is, and where it stands."""

import csv
import functools
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

from batchsim.servers.formats.document import Place, Source

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
