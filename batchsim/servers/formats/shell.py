"""A shell's text as commands: their words, each with its place, where variables and quotes put them."""

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from batchsim.servers.formats.document import Node, Source, Span
from batchsim.servers.formats.keyed_text import RENDERED

if TYPE_CHECKING:
    import tree_sitter

_SHELLS = re.compile(r"\b(cat|tee|(ba)?sh|ssh|docker)\b")  # whose heredocs may be scripts
_QUOTED = re.compile(r"\\(.)|'([^']*+)'|\"((?:[^\"\\]++|\\.)*+)\"", re.DOTALL)
YAML = re.compile(  # the first key of such a text, or the first section of a unit of systemd
    r"(?:[ \t]*(?:#[^\n]*)?\n|---[^\n]*\n)*(?:[ \t]*- )?[ \t]*"
    r"(?:(?:[$\w./-]+|'[^'\n]*'|\"[^\"\n]*\")[ \t]*:(?:\s|$)|\[(?:Unit|Service|Container)\])"
)
# $NAME, $@, ${NAME}, ${NAME[@]}, ${NAME:-default}, and $(NAME) of Kubernetes.
_EXPANSION = re.compile(
    r"\$\$?(?:(?P<plain>\w+|@)|\((?P<call>\w+)\)"
    r"|\{(?P<name>\w+)(?:\[[@*]\])?(?::?[-=](?P<default>[^{}'\"$]*))?\})"
)
# Statements in which others stand: those that run, and those that may run.
_RUN = {
    "program", "list", "pipeline", "negated_command", "redirected_statement", "variable_assignments",
    "compound_statement", "subshell", "function_definition",
}  # fmt: skip
_MAY_RUN = {
    "if_statement", "elif_clause", "else_clause", "case_statement", "case_item", "while_statement",
    "for_statement", "c_style_for_statement", "do_group",
}  # fmt: skip
_WITHIN = _RUN | _MAY_RUN | {"command", "declaration_command", "heredoc_redirect"}
_NO_WORDS = {"comment", "herestring_redirect", "<<<", "heredoc_start", "heredoc_body", "heredoc_end"}
SEVERAL = "may start several of these, here one"
MOST_WORDS = 30_000  # of a script, with those of its variables
# Of a script, since a parser may take the square of its time for many that do not fit together.
MOST_LETTERS, MOST_SIGNS = 100_000, 2000
_SIGN = re.compile(r"[()<>|&\[]|(?<!\S)=[=~](?!\S)")


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
    severity: str = "note"


@dataclass
class Command:
    """A command: its words, and the words that set environment variables for it.

    `item` is what stands in front of a word of a list, "" where a blank does; `alone` is where a list of
    arguments can be added to an image without one, and how. `remarks` are sentences, each with its place.
    `replicas` are 0 of a worker, for which its leader stands.
    """

    words: list[Word] = field(default_factory=list)
    variables: dict[str, Word] = field(default_factory=dict)
    item: str = ""
    alone: tuple[int, str] | None = None
    replicas: int = 1
    remarks: list[Remark] = field(default_factory=list)


Known = dict[str, list[Word] | None]  # the words of each variable; None: not known


def commands(text: str, at: int = 0, known: Known | None = None, meant: str = "") -> list[Command]:
    r"""Return the commands of a shell's text, with variables set in front of them or exported earlier.

    `at` is where the text begins in a longer one. `known` has the words of variables that were set once, and
    under no condition; None: not known. `meant` is the text without escapes: its words have no own places.

    >>> [command] = commands("# on one card\nCUDA_VISIBLE_DEVICES=0 vllm serve m \\\n  --max-num-seqs '64'")
    >>> [word.text for word in command.words], command.words[-1].raw
    (['vllm', 'serve', 'm', '--max-num-seqs', '64'], "'64'")
    """
    escapes = meant and len({re.sub(r"(\\?\s)+", " ", each.strip()) for each in (text, meant)}) > 1
    script = Script({} if known is None else known)
    script.read(*((meant, 0) if escapes else (text, at)))
    found = script.commands()
    for each in found if escapes else ():
        each.words = [Word(word.text, text, at) for word in each.words]
        each.remarks = [remark._replace(at=at) for remark in each.remarks]
    return found


class Script:
    """The commands of a shell's texts, and where manifests stand in them: in the text of a heredoc.

    `_functions` has the name of each function, the index of its first command, and that behind its last.
    """

    def __init__(self, known: Known) -> None:
        self.known = known
        self.manifests: list[Span] = []
        self._found: list[Command] = []
        self._exported: dict[str, Word] = {}
        self._calls = Counter[str]()
        self._functions: list[tuple[str, int, int]] = []
        self._count = 0
        self._text, self._at = "", 0

    def commands(self) -> list[Command]:
        """Return all commands; those of a function that is called several times have a remark."""
        for name, first, last in self._functions:
            if (calls := self._calls[name]) > 1:
                for command in self._found[first:last]:
                    remark = Remark(command.words[0].at, f"{name} is called {calls} times, and {SEVERAL}")
                    command.remarks = [*command.remarks, remark]
        return self._found

    def read(self, text: str, at: int = 0) -> None:
        """Add the commands of a text that begins at a place; of an invalid text, one that is refused."""
        outer, self._text, self._at = (self._text, self._at), text, at
        root = _tree(text)
        if not root.has_error:
            self._visit(root, sure=True, remarks=[])
        elif words := self._counted(words_of(text, at)):
            wrong = min(_wrong(root).start_byte, len(text))
            got = text[wrong:].strip().partition("\n")[0] or "its end"
            hint = RENDERED if "{{" in text else "; read its command in a file of its own"
            remark = Remark(at + wrong, f"a script must be valid for a shell, got {got}{hint}", "refusal")
            self._found.append(Command(words, remarks=[remark]))
        self._text, self._at = outer

    def _counted(self, words: list[Word]) -> list[Word]:
        self._count += len(words)
        if self._count > MOST_WORDS:
            raise ValueError(f"a script must have at most {MOST_WORDS:,} words, got more")
        return words

    def _visit(self, node: "tree_sitter.Node", *, sure: bool, remarks: list[Remark]) -> None:
        """Add the commands of a statement; `sure`: whether it runs."""
        kind, first = node.type, len(self._found)
        if kind == "variable_assignment":
            self._assign(node, sure=sure)
        elif kind == "declaration_command":
            for child in node.named_children:
                if child.type == "variable_assignment":
                    name, word = self._assign(child, sure=sure)
                    if node.children[0].type == "export":
                        self._exported[name] = word
        elif kind == "unset_command":
            for child in node.named_children:
                self.known[self._word(child).raw] = [] if sure else None
        elif kind in ("command", "redirected_statement"):
            body = node.child_by_field_name("body")
            if body is None or body.type == "command":
                self._add(node, sure=sure, remarks=remarks)
            else:
                self._visit(body, sure=sure, remarks=remarks)
            for child in node.named_children:
                if child.type == "heredoc_redirect":
                    self._read_heredoc(child, sure=sure, remarks=remarks)
        elif kind in _WITHIN:
            if kind in ("for_statement", "c_style_for_statement"):
                remarks = [Remark(self._at + node.start_byte, f"a loop {SEVERAL}")]
                if variable := node.child_by_field_name("variable"):
                    self.known[self._word(variable).raw] = None
            for number, child in enumerate(node.named_children):
                runs = sure and kind in _RUN and not (kind == "list" and number)
                self._visit(child, sure=runs, remarks=remarks)
            if kind == "function_definition":
                name = self._word(node.named_children[0]).raw
                self._functions.append((name, first, len(self._found)))

    def _add(self, node: "tree_sitter.Node", *, sure: bool, remarks: list[Remark]) -> None:
        """Add a command, or the commands in its text."""
        command = Command(remarks=remarks)
        for part in _parts(node):
            word = self._word(part)
            if part.type == "variable_assignment":
                command.variables[word.text.partition("=")[0]] = word
            else:
                command.words += self._counted(expanded(word, self.known))
        if command.words:
            command.variables = self._exported | command.variables
            self._calls[command.words[0].text] += 1
            if [each.text for each in command.words[:2]] == ["set", "--"]:  # the arguments of the script
                self.known["@"] = command.words[2:] if sure else None
            elif command.words[0].text in ("read", "mapfile", "readarray", "getopts"):
                self.known |= dict.fromkeys((each.text for each in command.words[1:]), None)
            inner = inside(command, self.known)
            for each in inner if inner != [command] else ():
                self._counted(each.words)
            self._found += inner

    def _read_heredoc(self, node: "tree_sitter.Node", *, sure: bool, remarks: list[Remark]) -> None:
        """Read the text of a heredoc, if that may be a script, and the commands behind its sign."""
        line = self._text[self._text.rfind("\n", 0, node.start_byte) + 1 : node.start_byte]
        for child in node.named_children:
            if child.type != "heredoc_body":
                self._visit(child, sure=sure and child.type == "pipeline", remarks=remarks)
                continue
            begin, end = child.start_byte, child.end_byte
            if YAML.match(self._text, begin):
                self.manifests.append((self._at + begin, self._at + end))
            elif _SHELLS.search(line) and ".py" not in self._text[node.start_byte : begin]:
                self.read(self._text[begin:end], self._at + begin)

    def _assign(self, node: "tree_sitter.Node", *, sure: bool) -> tuple[str, Word]:
        """Set a variable, and return its name, and the word that does so."""
        word, name, more = self._word(node), self._word(node.children[0]).raw, node.children[1].type == "+="
        before, value = self.known.get(name, []), node.child_by_field_name("value")
        words, array = [word.value], value is not None and value.type == "array"
        if value is not None and array:
            words = [self._word(each) for each in value.named_children if each.type != "comment"]
        elif more and before and not re.match(r"['\"]\s", words[0].raw):  # within a word
            sure, more = True, False
        if "[" in name:  # an item of an array
            sure = more = False
        own = re.match(rf'"?\$\{{?{re.escape(name)}\b', words[0].raw) if words else None
        parts = [part for each in words for part in split(each) if part.text or array]
        new = self._counted([each for part in parts for each in expanded(part, self.known)])
        if not sure and (more or own) and before and new:  # perhaps more
            self.known[name] = [*before, Word(Source(word.raw), word.raw, word.at)]
        elif not sure or before is None or not (more or own or not before):
            self.known[name.partition("[")[0]] = None
        else:
            self.known[name] = new if own else [*before, *new]
        return name, word

    def _word(self, node: "tree_sitter.Node") -> Word:
        return _word(self._text[node.start_byte : node.end_byte], self._at + node.start_byte)


def _parts(node: "tree_sitter.Node") -> "Iterator[tree_sitter.Node]":
    """Yield the words of commands, and what sets variables in front of them, without redirections."""
    for child in node.children:
        if child.type in _WITHIN:
            if node.type != "heredoc_redirect":  # behind whose sign others may stand
                yield from _parts(child)
        elif child.type == "file_redirect":
            yield from child.children_by_field_name("destination")[1:]
        elif child.type not in _NO_WORDS and (child.is_named or node.type == "command"):
            yield child


def split(word: Word) -> list[Word]:
    """Return the words of a text in double quotes, as a variable without quotes gives them; else the word."""
    plain = re.sub(r"\\\r?\n", "  ", word.raw) if word.raw[:1] == '"' else word.raw  # continued lines
    if re.fullmatch(r"(['\"])[^'\"\\]*\s[^'\"\\]*\1", plain) is None:
        return [word]
    return words_of(word.raw[1:-1], word.at + 1)


def words_of(text: str, at: int) -> list[Word]:
    """Return the words of a text that begins at a place, whatever stands between them."""
    root = _tree(text)
    spans = [(node.start_byte, node.end_byte) for node in _parts(root)]
    if root.has_error:
        spans = [match.span() for match in re.finditer(r"\S+", text)]
    return [_word(text[begin:end], at + begin) for begin, end in spans]


def expanded(word: Word, known: Known) -> list[Word]:
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


def inside(command: Command, known: Known) -> list[Command]:
    """Return the commands in the text of `bash -c` or `eval`, or the command itself."""
    texts = [word.text for word in command.words]
    shells = (n for n, text in enumerate(texts) if re.search(r"(^|/)(ba|z|da)?sh$|^eval$", text))
    run = next(shells, len(texts))
    options = (n for n, text in enumerate(texts) if n > run and re.fullmatch(r"-\w*c\w*", text))
    at_ = next(options, len(texts))
    at_ += texts[at_ + 1 : at_ + 2] == ["--"]
    if (joined := texts[run : run + 1] == ["eval"]) or {*texts[:1]} & {"ssh", "tmux", "screen"}:
        at_ = len(texts) - 2 if " " in texts[-1] else len(texts)
    if joined and " " in "".join(texts) and command.words[-1 if run + 1 == len(texts) else run + 1].use:
        at_ = run
    if at_ + 1 >= len(texts):
        return [command]
    last = command.words[at_ + 1]
    same = [word for word in command.words if last.use and word.use == last.use]
    same = command.words[run + 1 :] if last.use and joined else same
    if len(same) > 1:
        found = replace(command, words=[], item="")
        for word in same:  # the text of a variable, and what a condition or an edit may add to it
            inner = commands(word.raw[1:-1], word.at + 1, known) if word.raw[:1] == '"' else []
            found.words += [replace(each, use=word.use) for one in inner for each in one.words] or [word]
        return [found]
    quoted = last.raw[:1] in ("'", '"')
    raw, at = (last.raw[1:-1], last.at + 1) if quoted else (last.raw, last.at)
    return [
        replace(
            command, words=each.words, variables=command.variables | each.variables, item="",
            remarks=[*command.remarks, *each.remarks],
        )
        for each in commands(raw, at, known, str(last.text))
    ]  # fmt: skip


@cache
def _bash() -> "tree_sitter.Language":
    import tree_sitter
    import tree_sitter_bash

    return tree_sitter.Language(tree_sitter_bash.language())


def _tree(text: str) -> "tree_sitter.Node":
    """Return the syntax tree of a text, whose bytes are its characters."""
    letters, signs = sum(map(len, text.split())), len(_SIGN.findall(text))
    if letters > MOST_LETTERS or signs > MOST_SIGNS:
        must = f"a script must have at most {MOST_LETTERS:,} letters and {MOST_SIGNS:,} signs"
        raise ValueError(f"{must}, got {letters:,} and {signs:,}")
    # For the grammar, <> is no redirection, a continued line must not be the last, and a case no *"text"*.
    plain = re.sub(r"[^\x01-\x7f]", ".", text).replace("<>", ">>") + "\n\n"
    plain = re.sub(r"(?m)^([ \t]*)(\*\"[^\n]*)(?=\)[ \t]*$)", lambda it: it[1] + "x" * len(it[2]), plain)
    return (_parsed if letters < MOST_LETTERS // 10 else _parsed.__wrapped__)(plain)


@lru_cache(maxsize=32)  # a variable may be run again and again
def _parsed(plain: str) -> "tree_sitter.Node":
    import tree_sitter

    return tree_sitter.Parser(_bash()).parse(plain.encode()).root_node


def _wrong(node: "tree_sitter.Node") -> "tree_sitter.Node":
    """Return the first node at which a text is invalid."""
    while not (node.is_error or node.is_missing):
        node = next(child for child in node.children if child.has_error)
    return node


def _word(raw: str, at: int) -> Word:
    plain = _QUOTED.sub(_unquoted, raw)
    # By the shell, to an unknown value.
    expanded = re.search(r"[$`]", re.sub(r"'[^']*'", "", raw).replace(r"\$", ""))
    return Word(Source(plain) if expanded else plain, raw, at)


def _unquoted(match: re.Match[str]) -> str:
    escaped, single, double = match.groups()
    return escaped or single or re.sub(r'\\(["\\])', r"\1", double or "")
