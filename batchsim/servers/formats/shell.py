"""A shell's text as commands: their words, each with its place, where variables and quotes put them."""

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from batchsim.servers.formats.document import Node, Source, place_in

_WORD = re.compile(  # "if": the next command may not run
    r"(?P<comment>\#[^\n]*)|(?P<continued>\\\r?\n)|(?P<if>(?:&&|\|\|)(?![;|&])\s*)|(?P<end>[\n;|&]+)"
    r"|(?P<blank>[ \t\r]+)"
    r"|(?P<open>\(+(?=\s*[\w./]))|(?P<word>(?:`[^`\n]*`|[$<>]\((?:[^()]|\([^()]*\))*+\)|[^\s'\"\\;|&]|\\.|'[^']*+'|\"(?:[^\"\\]++|\\.)*+\")++)|(?P<other>.)",
    re.DOTALL,
)
_HEREDOC = re.compile(r"(?<!<)<<-?[ \t]*(['\"]?)(?P<end>\w+)\1")
_SHELLS = re.compile(r"\b(cat|tee|(ba)?sh|ssh|docker)\b")  # whose heredocs may be scripts
_QUOTED = re.compile(r"\\(.)|'([^']*+)'|\"((?:[^\"\\]++|\\.)*+)\"", re.DOTALL)
_VARIABLE = re.compile(r"[A-Za-z_]\w*\+?=")
_ARRAY = re.compile(r"(?P<name>[A-Za-z_]\w*)(?P<more>\+?)=\(")
YAML = re.compile(  # the first key of such a text
    r"(?:[ \t]*(?:#[^\n]*)?\n|---[^\n]*\n)*(?:[ \t]*- )?[ \t]*"
    r"(?:[\w./-]+|'[^'\n]*'|\"[^\"\n]*\")[ \t]*:(?:\s|$)"
)
# $NAME, $@, ${NAME}, ${NAME[@]}, ${NAME:-default}, and $(NAME) of Kubernetes.
_EXPANSION = re.compile(
    r"\$\$?(?:(?P<plain>\w+|@)|\((?P<call>\w+)\)"
    r"|\{(?P<name>\w+)(?:\[[@*]\])?(?::?[-=](?P<default>[^{}'\"$]*))?\})"
)
_SETTERS: tuple[list[str], ...] = ([], ["export"], ["local"], ["readonly"], ["declare"])
ENDS = ("fi", "done", "esac")
SEVERAL = "may start several of these, here one"
MOST_WORDS = 30_000  # of a script, with those of its variables


@dataclass(frozen=True)
class Word:
    """A word of a command, without its quotes, and as it stands; a `Source` if the shell expands it."""

    text: str
    raw: str
    at: int
    use: "Word | None" = None  # which it stands for in a command

    @property
    def end(self) -> int:
        """Where the word ends, in its command."""
        word = self.use or self
        return word.at + len(word.raw)

    @property
    def value(self) -> "Word":
        """The part behind the first =."""
        head, sign, raw = self.raw.partition("=")
        if head[:1] in ("'", '"') and raw[-1:] == head[0]:  # the quotes are those of the whole word
            raw = raw[:-1]
        return Word(type(self.text)(self.text.partition("=")[2]), raw, self.at + len(head + sign))

    def node(self, value: Any, key: "Word | None" = None) -> Node:
        """Return the word as a value, behind a key."""
        return Node(value, self.at if key is None else key.at, (self.at, self.at + len(self.raw)))


class Remark(NamedTuple):
    """A sentence about a place: a "note", a "refusal", or on "variables" that another file sets."""

    at: int
    text: str
    kind: str = "note"


@dataclass
class Command:
    """A command: its words, and the words that set environment variables for it.

    `item` is what stands in front of a word of a list, "" where a blank does; `alone` is where a list of
    arguments can be added to an image without one, and how. `remarks` are sentences, each with its place.
    `replicas` are 0 of a worker, for which its leader stands.
    """

    words: list[Word] = field(default_factory=list)
    variables: dict[str, Word] = field(default_factory=dict)
    sure: bool = True  # whether it runs
    item: str = ""
    alone: tuple[int, str] | None = None
    replicas: int = 1
    remarks: list[Remark] = field(default_factory=list)


def commands(text: str, at: int = 0, known: dict[str, list[Word] | None] | None = None) -> list[Command]:
    r"""Return the commands of a shell's text, with variables set in front of them or exported earlier.

    `at` is where the text begins in a longer one. `known` has the words of variables that were set once, and
    under no condition: these, and defaults, stand where they are used. None: not known.

    >>> [command] = commands("# on one card\nCUDA_VISIBLE_DEVICES=0 vllm serve m \\\n  --max-num-seqs '64'")
    >>> [word.text for word in command.words], command.words[-1].raw
    (['vllm', 'serve', 'm', '--max-num-seqs', '64'], "'64'")
    """
    found, exported, depth, count, within = [Command()], dict[str, Word](), 0, 0, False
    loop: int | None = None  # where it begins
    known, array = {} if known is None else known, None

    def counted(words: list[Word]) -> list[Word]:
        nonlocal count
        count += len(words)
        if count > MOST_WORDS:
            raise ValueError(f"a script must have at most {MOST_WORDS:,} words, got more")
        return words

    def set_(name: str, words: list[Word], *, more: bool = False) -> None:
        if name.endswith("+"):  # =, of a text
            more, name = True, name[:-1]
            if known.get(name) and not re.match(r"['\"]\s", words[0].raw):  # within a word
                known[name] = None
                return
        before, own = known.get(name, []), re.match(rf'"?\$\{{?{name}\b', words[0].raw) if words else None
        parts = [part for word in words for part in split(word) if part.text]
        new = counted([each for part in parts for each in expanded(part, known)])
        if not found[-1].sure and (more or own) and before and new:  # perhaps more
            raw = f"{name}={words[0].raw}" if own else f"{name}+=({' '.join(each.raw for each in words)})"
            new, own = [Word(Source(raw), raw, words[0].at)], None
        elif not found[-1].sure or before is None or not (more or own or not before):
            known[name] = None
            return
        known[name] = [*((not own and before) or []), *new]

    for kind, word in _pieces(text, at):
        command = found[-1]
        within |= kind == "open"  # a subshell
        if kind in ("end", "if", "open") and array is None and (command.words or command.variables):
            for name, each in command.variables.items() if not command.words else ():
                set_(name, [each.value])
            if [each.text for each in command.words[:2]] == ["set", "--"]:  # the arguments of the script
                known["@"] = command.words[2:] if command.sure else None
            found.append(Command(sure=kind == "end" and not depth))
        if word is None:
            continue
        if within and array is None and word.raw.endswith(")") and "(" not in word.raw:
            within, word = False, _word(word.raw[:-1], word.at)
        heads = [each.text for each in command.words[:3] if each.text != "-a"]
        if array is None and heads in _SETTERS and (start := _ARRAY.match(word.raw)):
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
        if _VARIABLE.match(word.text) and heads in _SETTERS:
            command.variables[name] = word
            if command.words:
                exported |= {name: word} if command.words[0].text == "export" else {}
                set_(name, [word.value])
        elif command.words or word.text not in ("then", "else", "do", "{"):
            if not command.words:
                command.variables = exported | command.variables
                depth += (word.text in ("if", "for", "while", "until", "case")) - (word.text in ENDS)
                loop = word.at if word.text == "for" else loop if depth else None
                if loop is not None:
                    command.remarks.append(Remark(loop, f"a loop {SEVERAL}"))
            elif command.words[0].text == "for" or (depth and _VARIABLE.match(word.text)):
                known[name.removesuffix("+")] = None  # of a loop, or behind a case
            command.words += counted(expanded(word, known))
    found = [command for command in found if command.words]
    _mark_functions(found)
    return [inner for command in found for inner in inside(command, known)]


def _mark_functions(found: list[Command]) -> None:
    """Add a remark to the commands of a function that is called several times."""
    calls, function = Counter(command.words[0].text for command in found), ""
    for command in found:
        words = [word.text for word in command.words if word.text != "function"]
        if words[1:2] == ["{"] or words[0].endswith("()"):
            function = words[0].removesuffix("()")
        if calls[function] > 1:
            text = f"{function} is called {calls[function]} times, and {SEVERAL}"
            command.remarks.append(Remark(command.words[0].at, text))
        if words[-1] == "}":
            function = ""


def split(word: Word) -> list[Word]:
    """Return the words of a text in double quotes, as a variable without quotes gives them; else the word."""
    if re.fullmatch(r"(['\"])[^'\"\\]*\s[^'\"\\]*\1", word.raw) is None:
        return [word]
    return words_of(word.raw[1:-1], word.at + 1)


def words_of(text: str, at: int) -> list[Word]:
    """Return the words of a text that begins at a place, whatever stands between them."""
    return [word for _, word in _pieces(text, at) if word is not None]


def expanded(word: Word, known: dict[str, list[Word] | None]) -> list[Word]:
    """Return the words that a variable or its default gives; else the word, with known values."""
    if not isinstance(word.text, Source) or re.search(r"['\s]", word.raw):
        return [word]

    def given(match: re.Match[str], at: int) -> list[Word] | None:
        each = match.groupdict()
        name = each["plain"] or each["call"] or each["name"]
        if known.get(name, []) != [] or each["default"] is None:
            return known.get(name)
        found = [_word(each["default"], at + match.start("default"))]
        return known.setdefault(name, found) if f"{name}:=" in match[0] else found

    flag = re.match(r"--[\w.-]+=", word.raw)
    raw, at = (word.raw, word.at) if flag is None else (word.value.raw, word.value.at)
    quote = raw[:1] == raw[-1:] == '"'
    whole = _EXPANSION.fullmatch(raw[quote : len(raw) - quote])
    words = None if whole is None else given(whole, at + quote)
    if words or (words is not None and flag is None and not quote):
        head = [] if flag is None else [Word(flag[0][:-1], flag[0][:-1], word.at)]
        return [replace(each, use=word) for each in (*head, *words)]

    def joined(match: re.Match[str]) -> str:
        return match[0] if (it := given(match, 0)) is None else " ".join(each.text for each in it)

    found = _word(_EXPANSION.sub(joined, word.raw), word.at)
    return [word if isinstance(found.text, Source) else replace(word, text=found.text)]


def inside(command: Command, known: dict[str, list[Word] | None]) -> list[Command]:
    """Return the commands in the text of `bash -c` or `eval`, or the command itself."""
    texts = [word.text for word in command.words]
    shells = (n for n, text in enumerate(texts) if re.search(r"(^|/)(ba|z|da)?sh$|^eval$", text))
    run = next(shells, len(texts))
    options = (n for n, text in enumerate(texts) if n > run and re.fullmatch(r"-\w*c\w*", text))
    at_ = next(options, len(texts))
    if texts[run : run + 1] == ["eval"] or texts[0] in ("ssh", "tmux", "screen"):
        at_ = len(texts) - 2 if " " in texts[-1] else len(texts)
    if at_ + 1 >= len(texts):
        return [command]
    last = command.words[at_ + 1]
    quoted = last.raw[:1] in ("'", '"')
    raw, at = (last.raw[1:-1], last.at + 1) if quoted else (last.raw, last.at)
    if raw.split() == last.text.split():
        inner = commands(raw, at, known)
    else:  # which escapes something: its words have no places of their own
        inner = commands(str(last.text), 0, known)
        for each in inner:
            each.words = [Word(word.text, raw, at) for word in each.words]
    for each in inner:
        each.variables = command.variables | each.variables
    return [replace(command, words=each.words, variables=each.variables, item="") for each in inner]


def heredocs(text: str) -> Iterator[tuple[str, int, int]]:
    """Yield the heredocs of a text: the line in front of each, and where it begins and ends."""
    if "<<" not in text:
        return
    lines, begin, end, head, at = text.splitlines(keepends=True), 0, "", "", 0
    last = {line.strip(): number for number, line in enumerate(lines)}
    for number, line in enumerate(lines):
        match = None if end else _HEREDOC.search(line)
        if match and last.get(match["end"], 0) > number:
            begin, end, head = at + len(line), match["end"], line[: match.start()]
        elif end and line.strip() == end:
            yield head, begin, at
            end = ""
        at += len(line)


def blanked(text: str) -> str:
    """Return blanks in place of a text, with its ends of lines."""
    return re.sub(r"[^\r\n]", " ", text)


def without_heredocs(text: str, *, but_scripts: bool = False) -> str:
    """Return a text with blanks for its heredocs, except for those that a shell may run."""
    parts, done = list[str](), 0
    for head, begin, end in heredocs(text):
        script = but_scripts and _SHELLS.search(head) and not YAML.match(text, begin)
        parts += [text[done:begin], text[begin:end] if script else blanked(text[begin:end])]
        done = end
    return "".join(parts) + text[done:]


def _pieces(text: str, at: int) -> Iterator[tuple[str, Word | None]]:
    text = without_heredocs(text, but_scripts=True)
    for match in _WORD.finditer(text):
        kind, raw = match.lastgroup or "", match.group()
        if kind == "other" and raw.strip():  # an unclosed quote
            line = "" if at else f"line {place_in(text, match.start())[0]}: "  # else of another text
            raise ValueError(f"{line}a quote must end, got {raw}")
        yield kind, _word(raw, at + match.start()) if kind == "word" else None


def _word(raw: str, at: int) -> Word:
    plain = _QUOTED.sub(_unquoted, raw)
    # By the shell, to an unknown value.
    expanded = re.search(r"[$`]", re.sub(r"'[^']*'", "", raw).replace(r"\$", ""))
    return Word(Source(plain) if expanded else plain, raw, at)


def _unquoted(match: re.Match[str]) -> str:
    escaped, single, double = match.groups()
    return escaped or single or re.sub(r'\\(["\\])', r"\1", double or "")
