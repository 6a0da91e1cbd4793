"""Settings on a command line: the flags of a server, and its environment variables."""

import itertools
import json
import re
import shlex
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any

from batchsim._format import several
from batchsim.servers.formats.containers import END, commands_of
from batchsim.servers.formats.document import (
    Document,
    Node,
    Section,
    Source,
    indent_of,
    place_in,
    refused,
    table,
)
from batchsim.servers.formats.shell import Command, Word
from batchsim.servers.server import Format

# The flags of each server, and whether a flag takes a "value", a "list", an "optional" value, or nothing (a
# "switch"). Sources: the parsers of vLLM 0.19.0 and SGLang 0.5.23 (tools/real_parsers.py), the code of
# text-embeddings-inference 1.9.3, the reference of TGI 3.3, and TensorRT-LLM's commands/serve.py of 2026.
FLAGS = "flags.csv"

# Words in front of a command that is not run.
ABOUT = re.compile(
    r"(sudo )?(echo|printf|p?kill|p?grep|pip3?|which|command|type|cd|cp|mv|sed|git|cargo|ls|cat|chmod|ldd"
    r"|docker (pull|push|rmi?|stop|logs|build|tag|image|manifest))\b|[^;]* --(help|version)( |$)"
)


def starts(program: str, image: str) -> str:
    """Return a pattern of words that start a program, in a folder, or an image with registry and tag."""
    name = rf"(?:[^\s/=:]+(?::\d+)?/)*[\w.-]*{image}(?:-[\w.-]+)?(?:[:@]\S*)?"
    return rf"(?:(?<!\S)(?:\S*/)?{program}|(?<![^\s=])(?:\$\{{\w+:?-|docker://)?{name}\}}?)(?=\s|$)"


def flags_of(server: str) -> dict[str, str]:
    """Return a server's flags, each with the kind of its value.

    >>> flags_of("vllm")["--max-num-seqs"], flags_of("tgi")["--json-output"]
    ('value', 'switch')
    """
    return table(FLAGS, server).get("", {})


def _line(text: str, command: Command) -> str:
    word = command.words[0]
    return str(place_in(text, (word.use or word).at)[0])


def _arguments(words: list[Word]) -> Iterator[Word]:
    """Yield words without redirections, up to the end of a command."""
    after = ""
    for word in itertools.takewhile(lambda word: word.raw != END, words):
        if not re.match(r"\d*[<>]", word.text) and not after.endswith((">", "<")):
            yield word
            after = ""
        else:
            after = "" if after else word.text


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
HOLDERS = (".yaml", ".yml", ".service", ".container", ".txt")  # suffixes of other files that hold commands
STARTERS = ("exec", "nohup", "time", "env", "setsid", "sudo", "numactl", "srun")
RUNNERS = ("docker", "podman")
MODEL = "$MODEL"  # of a command whose model is not known
# Of a shell, what may be several words, and which of them are not named like a model's name.
_SEVERAL = re.compile(r'[$`]|"\$\{?(@|\w+\[@\])|\w+\+?=')
_FLAGS = re.compile(r"(?i)arg|opt|flag|param|extra|[@*]")


@dataclass(frozen=True)
class CommandLine:
    """A server's command: how it starts, and how its flags are read.

    `start` begins a new command; the pattern `starts` finds one in a text. `model` is the setting for
    the model, the first argument if `positional`. `short` maps other names of flags to their own, `variables`
    maps environment variables to settings; `switches` are the settings among these that are on or off.
    `refuses` maps a variable, or a flag, with a value to the message that refuses it.
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
    joined: str = "-"  # between the words of a flag
    # What an image or a variable implies: called with the document, the words in lines, and the whole text.
    complete: Callable[[Document, str, str], None] = lambda document, words, text: None
    glued: str = ""  # a flag whose value may follow without a space, as in -O3

    def format(self, title: str, file: str, signs: str) -> Format:
        """Return the format of a shell script with this command."""
        flag = "" if self.positional else f"--{self.model.replace('_', '-')} "
        return Format(
            title, file, (".sh", ".bash"), signs, self.read, f'{self.start} {flag}"{MODEL}"\n', HOLDERS
        )  # fmt: skip

    def read(self, document: Document, text: str, which: str | None) -> None:
        """Fill a document with the command; of several, `which` selects one by its model or line."""
        all_ = ((command, self._arguments(command)) for command in commands_of(text))
        found = [(command, at) for command, at in all_ if at is not None]
        # A command that another one gets as words is only shown, or saved.
        found = [
            each for each in found
            if each[0].words[0].use or not each[0].words[each[1] - 1].use or each[0].words[0].text in STARTERS
        ] or found  # fmt: skip
        workers = [command for command, _ in found if not command.replicas]
        found = [each for each in found if each[0].replicas]
        if not self.flags_as_variables:  # an image alone has its arguments elsewhere
            found = [each for each in found if len(each[0].words) > 1 or "/" not in each[0].words[0].text]
        if which is not None and len(found) > 1:
            names = ((_line(text, each[0]), *(word.text for word in each[0].words)) for each in found)
            found = [each for each, own in zip(found, [*names], strict=True) if which in own]
        if len(found) != 1:
            places = several([f"line {_line(text, command)}" for command, _ in found])
            must = f"the text must have one command {self.start}"
            none = "none; read the script or the rendered manifest in which it stands with its flags"
            got = f" (choose one with which=), got {places}" if found else f", got {none}"
            raise ValueError(must + got)
        command, at = found[0]
        words = [*_arguments(command.words[at:])]
        options = self._options(command, words or command.words[at - 1 : at])
        document.sections += options, self._set(command, at)
        document.replicas = command.replicas
        self._read_variables(document, command)
        for worker in workers:
            document.note("a worker has a command of its own, which an edit leaves", worker.words[0].at)
        for remark in command.remarks:
            if remark.severity == "refusal":
                raise refused(remark.text, place_in(text, remark.at))
            if remark.severity == "note" or self.flags_as_variables:
                document.note(remark.text, remark.at)
        alone = self.positional or command.words[at - 1].text == "serve"  # a model without a flag
        self._read_arguments(document, words, alone)
        every = (word.text for word in command.words if word.text != document.settings.get(self.model))
        self.complete(document, "\n".join([*every, *command.variables]), text)

    def _options(self, command: Command, words: list[Word]) -> Section:
        """Return the flags of a command, to which others are added behind the last of its words."""
        first, begin, end = command.words[0].at, (words[0].use or words[0]).at, words[-1].end

        def literal(name: str, value: Any) -> str | None:
            head, dot, tail = name.partition(".")
            takes = flags_of(self.server)["--" + head.replace("_", "-")]
            flag = "--" + head.replace("_", self.joined) + dot + tail
            if takes != "switch":
                return f"{flag} {_quoted(value)}"
            return flag if value else "--no-" + flag[2:] if self.dashes and self.joined == "-" else None

        def added(text: str, name: str, new: str) -> str:
            if command.alone:
                at, form = command.alone
                return text[:at] + form.format(", ".join(map(json.dumps, shlex.split(new)))) + text[at:]
            if command.item:
                new = "".join(command.item + json.dumps(word) for word in shlex.split(new))
                own = re.compile(r"[^\n]*" if "\n" in command.item else "[\"']?").match(text, end)
                at = own.end() if own else end  # behind a comment, or a quote
                return f"{text[:at]}{new}{text[at:]}"
            new += " " * (text[end : end + 1] in ("<", ">"))  # else a number is that of a file
            before, start = text[begin:end], text.rfind("\n", 0, end) + 1
            alone = start <= first and not text[start:first].strip()  # on lines of its own
            long = end - start + len(new) > LONGEST_LINE and alone
            if "\n" not in before and not long:
                return f"{text[:end]} {new}{text[end:]}"
            folded = "\n" in before and "\\" not in before  # in YAML
            indent = indent_of(text[start:end]) or "  "
            return text[:end] + ("\n" if folded else " \\\n") + indent + new + text[end:]

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
        line = " ".join(map(_opaque, command.words))
        match = None
        for each in re.finditer(self.starts, line):
            part = line.rfind(f"{END} ", 0, each.end())
            if not ABOUT.match(line, part + 2 if part > 0 else 0):
                match = each  # the last one, as a container's image stands in front of its command
        if match is None:
            return None
        length = 0
        for place, word in enumerate(command.words):
            length += len(word.text) + 1
            if length > match.end() - 1:
                return self._behind_image(command.words, place)
        return None

    def _behind_image(self, words: list[Word], place: int) -> int | None:
        """Return the index of the first argument; None if an --entrypoint replaces the image's."""
        own = re.search(r" --entrypoint[= ](\S*)", " ".join(word.text for word in words[:place]))
        if own is None or not re.match(r"[\w.-]+/", words[place].text):
            return place + 1
        match = re.search(self.starts, " ".join([own[1], *(word.text for word in words[place + 1 :])]))
        return match and place + 1 + (match.end() > len(own[1]))

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
                if alone and self.model not in document.nodes and not _more(word, first=place == 1):
                    self._put_model(document, word.node(word.text), values)
                elif not isinstance(word.text, Source):
                    document.put_unknown(word.text, (), word.node(None))
                else:
                    document.note(f"{word.raw} is not read, and may set more", word.at)
                continue
            if word.text == "--":
                continue
            (name, given, _), text = word.text.partition("="), word.value.text
            if self.glued and name.startswith(self.glued) and name != self.glued:
                name, given, text = self.glued, "=", word.text.removeprefix(self.glued)
            flag, switched = self.flag_of(name)
            if (long := self._long(flag, flags)) != flag:
                document.note(f"{flag} is short for {long}")
                flag = long
            following = place
            while following < len(words) and not re.match("--|-[A-Za-z]", words[following].text):
                following += 1
            modelless = alone and self.model not in document.nodes  # so the last word may be the model
            unknown = "optional" if modelless or following < place + 2 else "list"
            takes, last = flags.get(flag.partition(".")[0], unknown), modelless and place + 1 == len(words)
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
                following = next((n for n in range(place + 1, following) if _more(words[n])), following)
                node = word.node([each.text for each in words[place:following]])
                node.span = (word.at, words[following - 1].end)
                self.put(document, flag, node, section)
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
        if self.dashes and name.startswith("--"):
            head, dot, tail = name.partition(".")
            name = head.replace("_", "-") + dot + tail
        name = self.short.get(name, name)
        if name not in flags and name.startswith("--no-") and flags.get("--" + name[5:]) == "switch":
            return "--" + name[5:], True
        return name, False

    def _long(self, flag: str, flags: Mapping[str, str]) -> str:
        """Return the only flag with this prefix, as Python's argparse does; else the flag itself."""
        if not self.prefixes or flag in flags or "." in flag or not flag.startswith("--"):
            return flag
        fits = [each for each in flags if each.startswith(flag)]
        return fits[0] if len(fits) == 1 else flag

    def put(self, document: Document, flag: str, node: Node, section: Section) -> None:
        """Add a flag: as a setting, as one without effect, or as an unknown one."""
        if why := self.refuses.get(f"{flag}={node.value}"):
            raise refused(why, document.place(node))
        if flag.partition(".")[0] not in flags_of(self.server):
            document.put_unknown(flag, flags_of(self.server), node)
            return
        name = flag.lstrip("-").replace("-", "_")
        if name == "config":
            document.note(f"{node.value} is not read, and may set more")
        if name == self.model:
            self._put_model(document, node, section)
        elif isinstance(node.value, list) and flags_of(self.server)[flag.partition(".")[0]] == "list":
            node.value = [value_of(str(each)) for each in node.value]
            document.put(name, node, section)
        elif isinstance(node.value, list) and name in document.server.settings:
            raise refused(f"{name} must be one value, got {node.value}", document.place(node))
        else:
            document.put(name, node, section)

    def _put_model(self, document: Document, node: Node, section: Section) -> None:
        document.nodes[self.model] = node, section
        if not isinstance(node.value, Source) and node.value != MODEL:
            node.value = str(node.value)
            document.put(self.model, node, section)


def _more(word: Word, *, first: bool = False) -> bool:
    """Return whether a word may be several of a shell, and flags; `first`: it may be a model."""
    model = not _FLAGS.search(word.raw) and (first or "model" in word.raw.lower())
    return isinstance(word.text, Source) and bool(_SEVERAL.match(word.raw)) and not model


def _opaque(word: Word) -> str:
    """Return a word, or as many signs: a text of several words, such as a script of Python, is no command."""
    text = re.sub(r"\{\{.*?\}\}", lambda template: "_" * len(template[0]), word.text)
    return "\0" * len(text) if re.search(r"\s", text) else text


def _quoted(value: Any) -> str:
    """Return a value as a word, or a list as words."""
    return " ".join(shlex.quote(_text(each)) for each in (value if isinstance(value, list) else [value]))


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return json.dumps(value) if isinstance(value, dict) else str(value)
