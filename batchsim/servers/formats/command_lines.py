"""Settings on a command line: a shell's text, the commands in it, and their flags."""

import csv
import functools
import json
import re
import shlex
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal
from pathlib import Path
from typing import Any

from batchsim._format import several
from batchsim.servers.formats.document import Document, Node, Section, Source, place_in, refused
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
_ARRAY = re.compile(r"(?P<name>[A-Za-z_]\w*)(?P<more>\+?)=\(")
_EXPANSION = re.compile(
    r"\"?\$(?:(?P<plain>\w+)|\{(?P<name>\w+)(?:\[[@*]\])?(?::-(?P<default>[^{}'\"$]*))?\})\"?"
)
ENDS = ("fi", "done", "esac")
MOST_WORDS = 30_000  # of a script, with those of its variables
# Words in front of a command that is not run.
ABOUT = re.compile(
    r"(sudo )?(echo|printf|p?kill|p?grep|pip3?|which|docker (pull|push|rmi?|stop|logs|build))\b"
)


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
    """A word of a command, without its quotes, and as it stands; a `Source` if the shell expands it."""

    text: str
    raw: str
    at: int

    @property
    def value(self) -> "Word":
        """The part behind the first =."""
        head, sign, raw = self.raw.partition("=")
        return Word(type(self.text)(self.text.partition("=")[2]), raw, self.at + len(head + sign))

    def node(self, value: Any, key: "Word | None" = None) -> Node:
        """Return the word as a value, behind a key."""
        return Node(value, self.at if key is None else key.at, (self.at, self.at + len(self.raw)))


@dataclass
class Command:
    """A command: its words, and the words that set environment variables for it."""

    words: list[Word] = field(default_factory=list)
    variables: dict[str, Word] = field(default_factory=dict)
    sure: bool = True  # whether it runs


def commands(text: str, at: int = 0, known: dict[str, list[Word] | None] | None = None) -> list[Command]:
    r"""Return the commands of a shell's text, with variables set in front of them or exported earlier.

    `at` is where the text begins in a longer one. `known` has the words of variables that were set once, and
    under no condition: these, and defaults, stand where they are used. None: not known.

    >>> [command] = commands("# on one card\nCUDA_VISIBLE_DEVICES=0 vllm serve m \\\n  --max-num-seqs '64'")
    >>> [word.text for word in command.words], command.words[-1].raw
    (['vllm', 'serve', 'm', '--max-num-seqs', '64'], "'64'")
    """
    found, exported, depth, count = [Command()], dict[str, Word](), 0, 0
    known, array = {} if known is None else known, None

    def set_(name: str, words: list[Word], *, more: bool = False) -> None:
        before = known.get(name, [])
        once = found[-1].sure and before is not None and (more or not before)
        known[name] = [*(before or []), *words] if once else None

    for kind, word in _pieces(text, at):
        command = found[-1]
        if kind in ("end", "if") and array is None and (command.words or command.variables):
            for name, each in command.variables.items() if not command.words else ():
                set_(name, [each.value])
            found.append(Command(sure=kind == "end" and not depth))
        if word is None:
            continue
        if array is None and not command.words and (start := _ARRAY.match(word.raw)):
            array = (start["name"], bool(start["more"]), list[Word]())
            word = _word(word.raw[start.end() :], word.at + start.end())
        if array is not None:
            inner = _word(word.raw.removesuffix(")"), word.at)
            array[2].extend([inner] if inner.raw else [])
            if inner.raw != word.raw:
                set_(array[0], array[2], more=array[1])
                array = None
            continue
        name = word.text.partition("=")[0]
        if _VARIABLE.match(word.text) and [each.text for each in command.words] in ([], ["export"]):
            command.variables[name] = word
            if command.words:
                exported[name] = word
                set_(name, [word.value])
        elif command.words or word.text not in ("then", "else", "do", "{"):
            if not command.words:
                command.variables = exported | command.variables
                depth += (word.text in ("if", "for", "while", "until", "case")) - (word.text in ENDS)
            elif command.words[0].text == "for" or (depth and _VARIABLE.match(word.text)):
                known[name] = None  # of a loop, or behind a case
            new = _expanded(word, known)
            count += len(new)
            if count > MOST_WORDS:
                raise ValueError(f"a script must have at most {MOST_WORDS:,} words, got more")
            command.words += new
    return [inner for command in found if command.words for inner in _inside(command, known)]


def _expanded(word: Word, known: Mapping[str, list[Word] | None]) -> list[Word]:
    """Return the words that a variable stands for, or its default; else the word itself."""
    if (match := _EXPANSION.fullmatch(word.raw)) is None:
        return [word]
    words, default = known.get(match["plain"] or match["name"], []), match["default"]
    if words == [] and default is not None:
        return [_word(default, word.at + match.start("default"))]
    return words or [word]


def _inside(command: Command, known: dict[str, list[Word] | None]) -> list[Command]:
    """Return the commands in the text of `bash -c` or `eval`, or the command itself."""
    texts = [word.text for word in command.words]
    run = next((n for n, text in enumerate(texts) if re.search(r"(^|/)(ba|z|da)?sh$|^eval$", text)), -1)
    last = command.words[-1]
    is_text = run >= 0 and texts[run + 1 : -1] == ["-c"] * (texts[run] != "eval")
    if not is_text or run + 1 == len(texts) or last.raw[1:-1] != last.text:  # not between plain quotes
        return [command]
    return commands(str(last.text), last.at + 1, known)


def _pieces(text: str, at: int) -> Iterator[tuple[str, Word | None]]:
    for match in _WORD.finditer(text):
        kind, raw = match.lastgroup or "", match.group()
        if kind == "other" and raw.strip():  # an unclosed quote
            raise ValueError(f"line {place_in(text, match.start())[0]}: a quote must end, got {raw}")
        if re.fullmatch(r"&&|\|\|", raw):  # the next command may not run
            kind = "if"
        yield kind, _word(raw, at + match.start()) if kind == "word" else None


def _word(raw: str, at: int) -> Word:
    plain = _QUOTED.sub(_unquoted, raw)
    # By the shell, to an unknown value.
    expanded = re.search(r"[$`]", re.sub(r"'[^']*'", "", raw).replace(r"\$", ""))
    return Word(Source(plain) if expanded else plain, raw, at)


def _line(text: str, command: Command) -> str:
    return str(place_in(text, command.words[0].at)[0])


def _arguments(words: list[Word]) -> Iterator[Word]:
    """Yield words without redirections."""
    after = ""
    for word in words:
        if not re.match(r"\d*[<>]", word.text) and not after.endswith((">", "<")):
            yield word
            after = ""
        else:
            after = "" if after else word.text


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


LONGEST_LINE = 100  # letters of a line with one more flag
RUNNERS = ("docker", "podman")
MODEL = "$MODEL"  # of a command whose model is not known


@dataclass(frozen=True)
class CommandLine:
    """A server's command: how it starts, and how its flags are read.

    `start` begins a new command; the pattern `starts` finds one in a text. `model` is the setting for
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
        flag = "" if self.positional else f"--{self.model.replace('_', '-')} "
        return Format(
            title, file, (".sh", ".bash"), signs, self.read, f'{self.start} {flag}"{MODEL}"\n'
        )  # fmt: skip

    def read(self, document: Document, text: str, which: str | None) -> None:
        """Fill a document with the command; of several, `which` selects one by its model or line."""
        found = [(command, at) for command in commands(text) if (at := self._arguments(command)) is not None]
        if which is not None and len(found) > 1:
            found = [
                each for each in found
                if which in (_line(text, each[0]), *(word.text for word in each[0].words))
            ]  # fmt: skip
        if len(found) != 1:
            places = several([f"line {_line(text, command)}" for command, _ in found]) or "none"
            must = f"the text must have one command {self.start} (choose one with which=)"
            raise ValueError(f"{must}, got {places}")
        command, at = found[0]
        words = [*_arguments(command.words[at:])]
        document.sections += self._options(command, [*command.words[:at], *words][-1]), self._set(command, at)
        self._read_variables(document, command)
        alone = self.positional or command.words[at - 1].text == "serve"  # a model without a flag
        self._read_arguments(document, words, alone)

    def _options(self, command: Command, last: Word) -> Section:
        """Return the flags of a command, to which others are added behind a last word."""
        begin, end = command.words[0].at, last.at + len(last.raw)

        def literal(name: str, value: Any) -> str | None:
            head, dot, tail = name.partition(".")
            flag = "--" + head.replace("_", "-") + dot + tail
            if flags_of(self.server)[flag.partition(".")[0]] != "switch":
                return f"{flag} {_quoted(value)}"
            return flag if value else "--no-" + flag[2:] if self.dashes else None

        def added(text: str, name: str, new: str) -> str:
            line = end - begin - text[begin:end].rfind("\n") + len(new)
            blank = " \\\n  " if "\n" in text[begin:end] or line > LONGEST_LINE else " "
            return f"{text[:end]}{blank}{new}{text[end:]}"

        return Section(self.has, literal, added)

    def _set(self, command: Command, at: int) -> Section:
        """Return the environment variables of a command, to which others are added in front."""
        names = {setting: name for name, setting in self.variables.items()}
        run = command.words[0].text in RUNNERS
        place = command.words[at - 1 if run else 0].at

        def added(text: str, name: str, new: str) -> str:
            return f"{text[:place]}{'-e ' if run else ''}{names[name]}={new} {text[place:]}"

        return Section(names.__contains__, lambda _, value: _quoted(value), added)

    def _arguments(self, command: Command) -> int | None:
        """Return the index of the first argument; None for another command."""
        line = " ".join(re.sub(r"\s", "\0", word.text) for word in command.words)  # none begins in a word
        match = re.search(self.starts, line)
        if match is None or ABOUT.match(line):
            return None
        length = 0
        for place, word in enumerate(command.words):
            length += len(word.text) + 1
            if length > match.end() - 1:
                return place + 1
        return None

    def _read_variables(self, document: Document, command: Command) -> None:
        given, section = dict(command.variables), document.sections[-1]
        for option, word in zip(command.words, command.words[1:], strict=False):
            if option.text in ("-e", "--env"):  # an option of docker run
                given[word.text.partition("=")[0]] = word
            elif option.text.startswith("--env="):
                given[option.value.text.partition("=")[0]] = option.value
        for name, word in given.items():
            flag = "--" + name.lower().replace("_", "-")
            node = word.value.node(value_of(word.value.text), word)
            if why := self.refuses.get(word.text):
                raise refused(why, document.place(node))
            if name in self.variables:
                setting = self.variables[name]
                if setting in self.switches:
                    node.value = node.value in (1, True)
                document.put(setting, node, section)
            elif self.flags_as_variables and flag in flags_of(self.server):
                self.put(document, flag, node, section)

    def _read_arguments(self, document: Document, words: list[Word], alone: bool) -> None:
        flags, place, section = flags_of(self.server), 0, document.sections[-2]
        values = replace(section, literal=lambda _, value: _quoted(value))  # in a word of its own
        while place < len(words):
            word, place = words[place], place + 1
            if not word.text.startswith("-") or word.text == "-":
                if alone and self.model not in document.nodes:
                    self._put_model(document, word.node(word.text), values)
                elif not isinstance(word.text, Source):
                    document.put_unknown(word.text, (), word.node(None))
                else:
                    line = place_in(document.text, word.at)[0]
                    document.note(f"line {line}: {word.raw} is not read, and may set more")
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
            last = place + 1 == len(words) and alone and self.model not in document.nodes  # may be the model
            if given and takes != "switch":
                self.put(document, flag, word.value.node(self.value(flag, text), word), values)
            elif given:
                must = f"{flag} must have no value, got {text!r}"
                raise refused(must, place_in(document.text, word.at))
            elif takes in ("value", "list") and following == place:
                must = f"{flag} must have a value, got none"
                raise refused(must, place_in(document.text, word.at))
            elif takes == "switch" or following == place or (takes == "optional" and last):
                self.put(document, flag, word.node(not switched), section)
            elif takes == "list":
                self.put(document, flag, word.node([each.text for each in words[place:following]]), section)
                place = following
            else:
                value = self.value(flag, words[place].text)
                self.put(document, flag, words[place].node(value, word), values)
                place += 1

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

    def put(self, document: Document, flag: str, node: Node, section: Section) -> None:
        """Add a flag: as a setting, as one without effect, or as an unknown one."""
        if flag.partition(".")[0] not in flags_of(self.server):
            document.put_unknown(flag, flags_of(self.server), node)
            return
        name = flag.lstrip("-").replace("-", "_")
        if name == "config":
            document.note(f"{node.value} is not read")
        if name == self.model:
            self._put_model(document, node, section)
        elif isinstance(node.value, list) and name in document.server.settings:
            raise refused(f"{name} must be one value, got {node.value}", document.place(node))
        else:
            document.put(name, node, section)

    def _put_model(self, document: Document, node: Node, section: Section) -> None:
        document.nodes[self.model] = node, section
        if not isinstance(node.value, Source) and node.value != MODEL:
            node.value = str(node.value)
            document.put(self.model, node, section)


def _quoted(value: Any) -> str:
    """Return a value as a word, or a list as words."""
    return " ".join(shlex.quote(_text(each)) for each in (value if isinstance(value, list) else [value]))


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return json.dumps(value) if isinstance(value, dict) else str(value)
