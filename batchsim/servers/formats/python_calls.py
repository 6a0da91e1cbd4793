"""Settings in Python: calls and decorators in a text that is parsed and never run."""

import ast
import itertools
import json
import math
import operator
import re
import warnings
from collections import ChainMap, Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from batchsim._format import brief, several
from batchsim.servers.formats.document import Document, Node, Place, Section, Source, Span, refused
from batchsim.servers.server import Format

_SUMS: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
}  # fmt: skip
ANY = r"(\w+\.)*"  # the modules in front of a name
MOST_PARTS, DEEPEST, LARGEST = 10_000, 50, 2**62  # of a value, of its nesting, and of a whole number
DECORATED = "async def model(): ..."  # added after a decorator at the end of a text
# The value of each name that a scope sets once, with the number of its parts; None: not known.
Constants = ChainMap[str, tuple[Any, int] | None]
_SCOPES = (
    ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp,
    ast.GeneratorExp,
)  # fmt: skip
_OF_CLASS = "class"  # in the constants of a class, which its functions do not see
_ENVIRONMENT = ("os.environ.get", "os.getenv", "environ.get", "getenv")


@dataclass(frozen=True)
class Callee:
    """A function whose arguments are settings: its title, a pattern of its name, its parameters.

    A parameter that begins with _ is an object, not a setting. `called` maps a parameter that shares its name
    with another setting to the name under which it is listed. `code` has the arguments that are functions:
    their settings are text.
    """

    title: str
    name: str
    params: tuple[str, ...]
    called: Mapping[str, str] = field(default_factory=dict)
    code: frozenset[str] = frozenset()

    def put(self, document: Document, name: str, node: Node, section: Section) -> None:
        """Add an argument to a document."""
        if name in self.called:
            document.unused[self.called[name]] = node.value
        elif name in self.params and not name.startswith("_"):
            document.put(name, node, section)
        elif f"_{name}" not in self.params and name not in self.params:
            known = [param for param in self.params if not param.startswith("_")]
            document.put_unknown(name, known, node)


@dataclass(frozen=True)
class Call:
    """A call, or a decorator without arguments."""

    callee: str
    node: ast.expr
    label: str  # the decorated function, or the worker or class of the call
    within: ast.ClassDef | None
    bases: tuple[str, ...] = ()  # of the called class, if the text defines it

    @property
    def place(self) -> Place:
        return self.node.lineno, self.node.col_offset + 1

    @property
    def keywords(self) -> list[str]:
        found = self.node.keywords if isinstance(self.node, ast.Call) else []
        return [keyword.arg or "" for keyword in found]

    def is_of(self, callee: Callee) -> bool:
        """Return whether this calls the function."""
        return re.fullmatch(callee.name, self.callee) is not None


class Program:
    """A Python text: its calls and constants."""

    def __init__(self, text: str) -> None:
        tree = _parsed(text)
        self.text = text
        self.lines = re.findall(r".*?(?:\r\n|\r|\n|$)", text, re.DOTALL)
        self.starts = [0, *itertools.accumulate(map(len, self.lines))]
        self.bases = {
            node.name: tuple(map(_dotted, node.bases))
            for node in ast.walk(tree)
            if isinstance(node, ast.ClassDef)
        }
        self._known: dict[ast.Name, tuple[Any, int] | None] = {}  # with the number of the value's parts
        calls = self._calls(tree, None, self._constants(tree, ChainMap()))
        self.calls = sorted(calls, key=lambda call: call.place)

    def _constants(self, node: ast.AST, outer: Constants) -> Constants:
        """Return the constants inside a module, a class or a function."""
        inner = [*_within(node)]
        names = Counter(name for each in inner for name in _bound(each))
        for each in ast.walk(node) if isinstance(node, ast.Module) else ():  # which functions may change
            names.update(each.names if isinstance(each, ast.Global) else ())
        names.update([_OF_CLASS] if isinstance(node, ast.ClassDef) else ())
        outer = outer.parents if _OF_CLASS in outer.maps[0] else outer
        found = outer.new_child(dict.fromkeys(names))
        for each in inner:
            match each:
                case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
                    if each.value is not None and names[name] == 1:
                        used = (part for part in ast.walk(each.value) if isinstance(part, ast.Name))
                        self._known |= {part: found.get(part.id) for part in used}
                        found[name] = self._value(each.value)
        return found

    def _calls(self, node: ast.AST, within: ast.ClassDef | None, constants: Constants) -> Iterator[Call]:
        if isinstance(node, ast.Name):
            self._known[node] = constants.get(node.id)
        decorators = getattr(node, "decorator_list", [])
        for decorator in decorators:
            called = decorator.func if isinstance(decorator, ast.Call) else decorator
            yield Call(_dotted(called), decorator, node.name, within)  # type: ignore[attr-defined]
        if isinstance(node, ast.Call):
            callee = _dotted(node.func)
            yield Call(callee, node, self._label(node, callee), within, self.bases.get(callee, ()))
        inner = node if isinstance(node, ast.ClassDef) else within
        own = self._constants(node, constants) if isinstance(node, _SCOPES) else constants
        for child in ast.iter_child_nodes(node):
            if child in decorators:  # their arguments may contain calls
                parts = [*child.args, *child.keywords] if isinstance(child, ast.Call) else []
                for part in parts:
                    yield from self._calls(part, inner, constants)
            else:
                yield from self._calls(child, inner, own)

    def _label(self, node: ast.Call, callee: str) -> str:
        for keyword in node.keywords:
            if keyword.arg == "name" and isinstance(keyword.value, ast.Constant):
                return str(keyword.value.value)
        if node.args and isinstance(node.args[0], ast.Name):
            return node.args[0].id
        return callee.rpartition(".")[2]

    def value(self, node: ast.expr) -> Any:
        """Return the value of an expression of literals and constants, else its `Source`."""
        return self._value(node)[0]

    def _value(self, node: ast.expr) -> tuple[Any, int]:
        try:
            return self._evaluated(node, 0)
        except (_NotLiteral, ArithmeticError, TypeError, ValueError):
            return Source(ast.unparse(node)), 1

    def _evaluated(self, node: ast.expr, depth: int) -> tuple[Any, int]:
        """Return the value of an expression, and the number of its parts; `_NotLiteral` for any other.

        A constant may be used many times, so a short text could make an endless list, or an endless number.
        """
        if depth > DEEPEST:
            raise _NotLiteral
        value: Any = None
        parts = 1
        match node:
            case ast.Constant():
                value = node.value
            case ast.Name() if known := self._known.get(node):
                value, parts = known
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                value = -_number(self._evaluated(operand, depth + 1)[0])
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _SUMS:
                pair = (_number(self._evaluated(each, depth + 1)[0]) for each in (left, right))
                value = _number(_SUMS[type(op)](*pair))
            case ast.Attribute(attr="inf", value=ast.Name()):
                value = math.inf
            case ast.Call(func=ast.Name(id="int" | "float" as kind), args=[given], keywords=[]):
                value = _number((int if kind == "int" else float)(self._evaluated(given, depth + 1)[0]))
            case ast.Call(func=function, args=[_, given]) if _dotted(function) in _ENVIRONMENT:
                value, parts = self._evaluated(given, depth + 1)  # unless the variable is set
            case ast.List(elts=items) | ast.Tuple(elts=items):
                value, parts = self._all(items, depth)
            case ast.Dict(keys=keys, values=items) if None not in keys:
                names, before = self._all([key for key in keys if key is not None], depth)
                values, parts = self._all(items, depth)
                if not all(isinstance(name, (str, int, float)) for name in names):
                    raise _NotLiteral
                value, parts = dict(zip(names, values, strict=True)), before + parts
            case _:
                raise _NotLiteral
        if (isinstance(value, Source) and depth) or parts > MOST_PARTS:
            raise _NotLiteral
        return value, parts

    def _all(self, items: list[ast.expr], depth: int) -> tuple[list[Any], int]:
        found = [self._evaluated(item, depth + 1) for item in items]
        return [value for value, _ in found], 1 + sum(parts for _, parts in found)

    def span(self, node: ast.expr | ast.keyword) -> Span:
        """Return where an expression or an argument stands; `ast` counts bytes of a line."""

        def at(line: int, column: int) -> int:
            return self.starts[line - 1] + len(self.lines[line - 1].encode()[:column].decode())

        return at(node.lineno, node.col_offset), at(node.end_lineno or 1, node.end_col_offset or 0)

    def section(self, call: Call, callee: Callee) -> Section:
        """Return the arguments of a call."""
        node = call.node

        def added(text: str, name: str, new: str) -> str:
            end, new = self.span(node)[1], f"{name}={new}"
            if not isinstance(node, ast.Call):
                return f"{text[:end]}({new}){text[end:]}"
            given = [*node.args, *(each.value for each in node.keywords)]
            at = max((self.span(each)[1] for each in given), default=end - 1)
            return f"{text[:at]}{', ' if given else ''}{new}{text[at:]}"

        return Section(
            lambda name: name in callee.params and name not in callee.called,
            lambda name, value: str(value) if name in callee.code else _written(value),
            added,
        )

    def put(self, document: Document, call: Call, callee: Callee) -> None:
        """Add a call's arguments to a document."""
        section = self.section(call, callee)
        document.sections.append(section)
        if not isinstance(call.node, ast.Call):
            return
        given: list[tuple[str | None, ast.expr, int]] = []
        for number, argument in enumerate(call.node.args):
            if isinstance(argument, ast.Starred):
                document.note(f"{ast.unparse(argument)} of {call.callee} is not read")
                break
            if number >= len(callee.params):
                raise refused(f"{call.callee} takes {len(callee.params)} arguments, got more", call.place)
            given.append((callee.params[number], argument, self.span(argument)[0]))
        given += [(keyword.arg, keyword.value, self.span(keyword)[0]) for keyword in call.node.keywords]
        for name, argument, at in given:
            value = ast.unparse(argument) if name in callee.code else self.value(argument)
            node = Node(value, at, self.span(argument))
            if name is not None:
                callee.put(document, name, node, section)
            elif isinstance(value, dict):
                for inner, each in value.items():
                    callee.put(document, str(inner), replace(node, value=each), BY_HAND)
            else:
                document.note(f"**{ast.unparse(argument)} of {call.callee} is not read")


def _by_hand(name: str, value: Any) -> str:
    raise ValueError(f"{name} must stand in its call, got it in a dictionary: set it by hand, {value}")


BY_HAND = Section(lambda name: False, _by_hand, lambda text, name, new: text)


def _written(value: Any) -> str:
    if isinstance(value, float) and math.isinf(value):
        return 'float("inf")'
    if type(value) is str:
        return json.dumps(value, ensure_ascii=False)  # between double quotes
    return repr(list(value) if isinstance(value, tuple) else value)


class _NotLiteral(Exception):
    """An expression that is not evaluated."""


def _number(value: Any) -> Any:
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        raise _NotLiteral
    if isinstance(value, int) and abs(value) > LARGEST:
        raise _NotLiteral
    return value


def _within(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the parts of a node, without those of functions and classes in it, as they stand."""
    rest = [*ast.iter_child_nodes(node)][::-1]
    while rest:
        yield (each := rest.pop())
        if not isinstance(each, _SCOPES):
            rest += [*ast.iter_child_nodes(each)][::-1]


def _bound(node: ast.AST) -> list[str]:
    """Return the names that a node sets: a variable, an argument, an import, a function, an exception."""
    match node:
        case ast.Name(id=name) if not isinstance(node.ctx, ast.Load):
            return [name]
        case ast.Global(names=names) | ast.Nonlocal(names=names):
            return names
        case ast.alias(name=name):
            return [(node.asname or name).partition(".")[0]]
        case ast.arg(arg=name):
            return [name]
    other = getattr(node, "name", None)
    return [other] if isinstance(other, str) else []


def _dotted(node: ast.expr) -> str:
    """Return a dotted name; its first part may be any expression."""
    match node:
        case ast.Name(id=name):
            return name
        case ast.Attribute(value=value, attr=name):
            return f"{_dotted(value)}.{name}"
        case ast.Call(func=function):
            return f"{_dotted(function)}()"
    return "_"


def _parsed(text: str) -> ast.Module:
    """Return the tree of a text, which may be indented, or end with a decorator."""
    first = next((line for line in text.splitlines() if line.strip()), "")
    indent = first[: len(first) - len(first.lstrip())]
    # Inside an `if`, indented text is valid and keeps its columns.
    head = "if True:\n" if indent else ""
    try:
        try:
            tree = _tree(head + text)
        except SyntaxError as error:
            try:
                tree = _tree(f"{head}{text.rstrip()}\n{indent}{DECORATED}" if "@" in text else "")
            except SyntaxError:
                raise error from None
            if not tree.body:
                raise
    except SyntaxError as error:
        place = (max((error.lineno or 1) - bool(head), 1), error.offset or 1)
        raise refused(f"the text must be Python: {error.msg}", place) from None
    except (ValueError, MemoryError) as error:
        got = error if str(error) else "too many brackets or signs in a row"
        raise ValueError(f"the text must be Python, got {got}") from None
    if head:
        tree = ast.Module(tree.body[0].body, [])  # type: ignore[attr-defined]
        ast.increment_lineno(tree, -1)
    return tree


def _tree(text: str) -> ast.Module:
    with warnings.catch_warnings(action="ignore"):  # about the users' own text, such as a backslash
        return ast.parse(text)


@dataclass(frozen=True)
class PythonForm:
    """A server's calls: `batching` has the spellings of the call with the batching settings.

    `around` is a second call with settings: with `by_class`, a decorator of the class around the function;
    else a call anywhere, once. `overrides` is a method of what `around` decorates, whose arguments come last;
    `setters` are methods that change settings while the program runs. `renamed` maps old names of settings
    to new ones. `also` recognises calls of the users' own classes. `settle` completes the document.
    """

    batching: tuple[Callee, ...]
    around: Callee | None = None
    by_class: bool = False
    overrides: str = ""
    setters: tuple[str, ...] = ()
    renamed: Mapping[str, str] = field(default_factory=dict)
    also: Callable[[Call], bool] = lambda call: False
    settle: Callable[[Document], None] = lambda document: None

    def format(self, title: str, file: str, signs: str) -> Format:
        """Return the format of a Python file with these calls."""
        return Format(title, file, (".py",), signs, self.read)

    def read(self, document: Document, text: str, which: str | None) -> None:
        """Fill a document with the calls of a text; `which` selects a function, worker or line."""
        program = Program(text)
        call = self._one([call for call in program.calls if self._callee(call)], which)
        program.put(document, call, self._callee(call) or self.batching[0])
        if self.around is not None and (around := self._around(program, call)) is not None:
            program.put(document, around, self.around)
            later = f"{around.label}.{self.overrides}" if self.overrides else ""
            if last := _once([each for each in program.calls if later and each.callee == later]):
                program.put(document, last, self.around)
        for each in program.calls:
            if each.callee.rpartition(".")[2] in self.setters:
                call_of = f"line {each.place[0]}: {each.callee}"
                document.note(f"{call_of} is not simulated: the settings stay as they begin")
        for name, now in self.renamed.items():
            if name in document.unknown:
                document.unknown[name] = now
        self.settle(document)

    def _callee(self, call: Call) -> Callee | None:
        own = self.batching[0] if self.also(call) else None
        return next((callee for callee in self.batching if call.is_of(callee)), own)

    def _one(self, calls: list[Call], which: str | None) -> Call:
        title = self.batching[0].title
        listed = several([f"{call.label} (line {call.place[0]})" for call in calls])
        if not calls:
            raise ValueError(f"the text must have a call of {title}, got none")
        if which is not None:
            fits = [call for call in calls if which in (call.label, str(call.place[0]))]
            if len(fits) != 1:
                rule = f"which must name one call of {title}, or its line"
                raise ValueError(f"{rule}, of {listed}; got {brief(which)}")
            return fits[0]
        if len(calls) > 1:  # perhaps only one of several stages batches
            calls = [
                call for call in calls if {"max_batch_size", "batch_size", "batchable"} & {*call.keywords}
            ] or calls
        if len(calls) > 1:
            raise ValueError(f"a call of {title} must be there once, or which must name it, got {listed}")
        return calls[0]

    def _around(self, program: Program, call: Call) -> Call | None:
        found = [each for each in program.calls if self.around is not None and each.is_of(self.around)]
        if self.by_class and call.within is not None:
            return next((each for each in found if each.node in call.within.decorator_list), None)
        return (found[0] if len(found) == 1 else None) if self.by_class else _once(found)


def _once(calls: list[Call]) -> Call | None:
    """Return the only call, None if there is none, or raise."""
    if len(calls) > 1:
        lines = several([str(each.place[0]) for each in calls])
        raise ValueError(f"{calls[0].callee} must be called once, got it in lines {lines}")
    return calls[0] if calls else None
