"""Bugs of one word or sign, one at a time, and which of them the nearest tests miss. Run by `make mutants`.

A mutant is a module in which one comparison, operator, constant or function is changed: `<` to `<=`, `and` to
`or`, `5` to `6`, `ceil` to `floor`. A mutant that survives is equivalent, or a line that no test holds. All
this happens in a copy of the tree: the checkout never changes. A module of the compiled loops runs in plain
Python, as each change would compile every loop; tests that then fail without a change are left out.

`--bugs tools/bugs.txt` tries a table instead: bugs as people make them, chosen before the tests were read.
"""

import argparse
import ast
import functools
import itertools
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent

COMPARISONS = {
    ast.Lt: ("<", "<="), ast.LtE: ("<=", "<"), ast.Gt: (">", ">="), ast.GtE: (">=", ">"),
    ast.Eq: ("==", "!="), ast.NotEq: ("!=", "=="), ast.Is: ("is", "is not"), ast.IsNot: ("is not", "is"),
    ast.In: ("in", "not in"), ast.NotIn: ("not in", "in"),
}  # fmt: skip
OPERATORS = {
    ast.Add: ("+", "-"), ast.Sub: ("-", "+"), ast.Mult: ("*", "/"), ast.Div: ("/", "*"),
    ast.FloorDiv: ("//", "/"), ast.Mod: ("%", "//"), ast.Pow: ("**", "*"),
    ast.And: ("and", "or"), ast.Or: ("or", "and"),
}  # fmt: skip
PAIRS = [("ceil", "floor"), ("min", "max"), ("minimum", "maximum"), ("argmin", "argmax"), ("any", "all")]
NAMES = dict(PAIRS) | {b: a for a, b in PAIRS}
SMALL = 10  # whole numbers up to here grow by one, others by half
PASSED, FAILED, NO_TESTS = 0, 1, 5  # what pytest returns
CACHE = ".mutants"  # where pytest keeps which tests failed
PATIENCE = 5  # times the seconds of the tests without a change; a mutant that takes longer loops for ever


class Mutant(NamedTuple):
    """A change of a text: its bytes from `begin` to `end` become `new`."""

    line: int
    begin: int
    end: int
    new: str

    def of(self, text: bytes) -> bytes:
        """Return the changed text."""
        return text[: self.begin] + self.new.encode() + text[self.end :]


def mutants(text: bytes) -> Iterator[Mutant]:
    """Yield every mutant of a module."""
    starts = [0]
    for line in text.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))

    def begin(node: ast.AST) -> int:
        return starts[node.lineno - 1] + node.col_offset

    def end(node: ast.AST) -> int:
        return starts[node.end_lineno - 1] + node.end_col_offset

    def between(left: ast.AST, right: ast.AST, old: str, new: str) -> Mutant:
        found = text.index(old.encode(), end(left), begin(right))
        return Mutant(text.count(b"\n", 0, found) + 1, found, found + len(old), new)

    for node in _code(ast.parse(text)):
        match node:
            case ast.Compare():
                sides = [node.left, *node.comparators]
                for left, operator, right in zip(sides, node.ops, sides[1:], strict=False):
                    yield between(left, right, *COMPARISONS[type(operator)])
            case ast.BinOp(left, operator, right) | ast.AugAssign(left, operator, right):
                if type(operator) in OPERATORS:
                    yield between(left, right, *OPERATORS[type(operator)])
            case ast.BoolOp(operator, values):
                for left, right in itertools.pairwise(values):
                    yield between(left, right, *OPERATORS[type(operator)])
            case ast.UnaryOp(ast.Not()):
                yield Mutant(node.lineno, begin(node), begin(node) + len("not "), "")
            case ast.Constant(bool() | int() | float() as value):
                yield Mutant(node.lineno, begin(node), end(node), repr(_other(value)))
            case ast.Call(ast.Name(name) | ast.Attribute(attr=name) as called) if name in NAMES:
                yield Mutant(called.end_lineno, end(called) - len(name), end(called), NAMES[name])


def _code(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes that decide what a module does: no annotations, decorators or sentences."""
    todo = [tree]
    while todo:
        node = todo.pop()
        yield node
        skipped = {"annotation", "returns", "decorator_list", "type_params"}
        for name, value in ast.iter_fields(node):
            if name not in skipped:
                parts = value if isinstance(value, list) else [value]
                todo += [
                    part
                    for part in parts
                    if isinstance(part, ast.AST) and not isinstance(part, ast.JoinedStr)
                ]


def _other(value: float) -> float:
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + 1 if value <= SMALL else value + value // 2
    return 1.5 * value or 1.0


def bugs(table: Path, root: Path = ROOT) -> dict[Path, list[Mutant]]:
    """Return the bugs of a table, three lines each: where and what is wrong, a part of a line, a change."""
    found: dict[Path, list[Mutant]] = {}
    lines = iter(table.read_text(encoding="utf-8").splitlines())
    for about, old, new in zip(lines, lines, lines, strict=True):
        module = root / "batchsim" / about.partition(": ")[0]
        text, before = module.read_bytes(), old.removeprefix("- ").encode()
        if (count := text.count(before)) != 1:
            raise ValueError(f"{module.name} must have a bug's line once, got {count} times {old!r}")
        begin = text.index(before)
        line, end = text.count(b"\n", 0, begin) + 1, begin + len(before)
        found.setdefault(module, []).append(Mutant(line, begin, end, new.removeprefix("+ ")))
    return found


def nearest(module: Path, root: Path = ROOT) -> list[Path]:
    """Return the test files of a module's name and those that import it, or else those of its package.

    A module of the compiled loops has the agreement of all engines besides. A script has the tests of the
    page, or of a browser, and those that name it.
    """
    place = module.relative_to(root / "batchsim")
    dotted = ".".join(("batchsim", *place.with_suffix("").parts)).removesuffix(".__init__")
    tests = sorted((root / "tests").rglob("test_*.py"))

    def named(folder: Path, name: str) -> list[Path]:
        here = root / "tests" / folder
        return [path for path in tests if path.parent == here and f"{path.stem}_".startswith(f"test_{name}_")]

    if module.suffix != ".py":
        runs = "web" if "web" in place.parts else "browser"  # another script needs a kernel
        return [
            path
            for path in tests
            if (folder := path.parent.name) == runs
            or (folder not in ("browser", "tools") and module.name in path.read_text("utf-8"))
        ]
    importing = [path for path in tests if dotted in _imported(path)]
    found = list(dict.fromkeys([*named(place.parent, place.stem.lstrip("_")), *importing]))
    others = (named(folder, (root / "batchsim" / folder).name) for folder in place.parents)
    found = found or next(filter(None, others), [])
    if _is_compiled(root, module):
        found += [path for path in tests if path.parent.name == "agreement" and path not in found]
    return found


@functools.cache
def _imported(path: Path) -> set[str]:
    """Return the full names of the modules that a file imports, and of what it imports from them."""
    names = set()
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.Import):
            names |= {each.name for each in node.names}
        elif isinstance(node, ast.ImportFrom):
            names |= {str(node.module), *(f"{node.module}.{each.name}" for each in node.names)}
    return names


def copy_tree(root: Path, folder: Path) -> None:
    """Copy what git knows or does not ignore, and what Python and Numba have compiled of it."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=root, capture_output=True, check=True, text=True,
    )  # fmt: skip
    paths = [root / name for name in listed.stdout.split("\0") if name]
    for path in [*paths, *(root / "batchsim").rglob("__pycache__/*")]:
        if path.is_file():
            copied = folder / path.relative_to(root)
            copied.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(path, copied)


class Trial:
    """A copy of the tree, in which a module is changed and its nearest tests run."""

    def __init__(self, root: Path, folder: Path, module: Path, tests: list[Path]) -> None:
        copy_tree(root, folder)
        self.root, self.folder, self.module = root, folder, folder / module.relative_to(root)
        self.tests = [str(path.relative_to(root)) for path in tests]
        self.environment = os.environ | {"PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
        if _is_compiled(root, module):
            self.environment["NUMBA_DISABLE_JIT"] = "1"
        self.left_out: list[str] = []
        begin = time.monotonic()
        code = self.run(None)
        if code == FAILED and "NUMBA_DISABLE_JIT" in self.environment:
            failed = json.loads((folder / CACHE / "v/cache/lastfailed").read_text(encoding="utf-8"))
            self.left_out = [f"--deselect={test}" for test in failed]
            code = self.run(None)
        if code != PASSED:
            why = "there are none" if code == NO_TESTS else "they failed"
            raise ValueError(
                f"the tests must pass before a change, got {', '.join(self.tests) or 'none'}: {why}"
            )
        self.limit_s = PATIENCE * (time.monotonic() - begin) + 10

    def run(self, limit_s: float | None) -> int:
        """Return what pytest returns of the tests, then of the examples; with a limit, -x."""
        options = ["-m", "pytest", "-q", "-p", "no:nbval", "-o", f"cache_dir={CACHE}", *self.left_out]
        options += ["-m", "not rare and not alone", *(() if limit_s is None else ("-x",))]
        has_examples = self.module.suffix == ".py" and b">>> " in self.module.read_bytes()
        examples = [str(self.module.relative_to(self.folder))] if has_examples else []
        code = NO_TESTS
        for paths in filter(None, (self.tests, examples)):
            code = subprocess.run(
                [sys.executable, *options, *paths], cwd=self.folder, env=self.environment, timeout=limit_s,
                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            ).returncode  # fmt: skip
            if code != PASSED:
                break
        return code

    def survives(self, mutant: Mutant) -> bool:
        """Return whether all tests pass with a change; one that never ends is seen by whoever waits."""
        text = self.module.read_bytes()
        try:
            self.module.write_bytes(mutant.of(text))
            return self.run(self.limit_s) == PASSED
        except subprocess.TimeoutExpired:
            return False
        finally:
            self.module.write_bytes(text)


def _is_compiled(root: Path, module: Path) -> bool:
    sys.path.insert(0, str(root))
    from batchsim.engines.compiled import jit

    return module.resolve() in jit.sources()


def drawn(module: Path, sample: int, seed: int) -> list[Mutant]:
    """Return some mutants of a module, drawn by lot; with a sample of 0, all."""
    found = sorted(mutants(module.read_bytes()))
    return sorted(random.Random(seed).sample(found, min(sample, len(found)))) if sample else found


def report(module: Path, chosen: list[Mutant], tests: list[Path], root: Path = ROOT) -> int:
    """Try mutants of a module, print those that survive, and return how many do."""
    text, tests = module.read_bytes(), tests or nearest(module, root)
    lines, place, survivors = text.decode().splitlines(), module.relative_to(root), 0
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        trial = Trial(root, Path(folder), module, tests)
        for mutant in chosen:
            if trial.survives(mutant):
                survivors += 1
                after = mutant.of(text).decode().splitlines()[mutant.line - 1]
                before = lines[mutant.line - 1]
                print(f"{place}:{mutant.line}\n  - {before.strip()}\n  + {after.strip()}", flush=True)
    tried = ", ".join(trial.tests)
    if trial.left_out:
        tried += f" without {len(trial.left_out)} tests that need the compiler"
    print(f"{place}: {survivors} of {len(chosen)} mutants survive {tried}", flush=True)
    return survivors


def main() -> int:
    """Return 1 if a mutant survives."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sample", type=int, default=0, help="mutants of each module at most (default: all)")
    parser.add_argument("--seed", type=int, default=0, help="of the sample")
    parser.add_argument("--tests", nargs="+", type=Path, default=[], help="test files (default: the nearest)")
    parser.add_argument("--bugs", type=Path, help="a table of bugs, in place of mutants (tools/bugs.txt)")
    parser.add_argument("modules", nargs="*", type=Path, help="files of the package (default: the table's)")
    asked = parser.parse_args()
    tests, modules = [path.resolve() for path in asked.tests], [path.resolve() for path in asked.modules]
    if asked.bugs:
        found = bugs(asked.bugs)
        chosen = {module: found[module] for module in modules or found}
    else:
        chosen = {module: drawn(module, asked.sample, asked.seed) for module in modules}
    survivors = [report(module, some, tests) for module, some in chosen.items()]
    return int(any(survivors))


if __name__ == "__main__":
    sys.exit(main())
