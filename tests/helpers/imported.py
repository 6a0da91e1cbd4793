"""What each module of the package imports."""

import ast
from functools import cache
from pathlib import Path
from typing import NamedTuple

import batchsim

ROOT = Path(batchsim.__file__).parent


class Import(NamedTuple):
    importer: str
    imported: str
    in_function: bool

    def __str__(self):
        return f"{self.importer} -> {self.imported}"


def module_name(path):
    return ".".join(["batchsim", *path.relative_to(ROOT).with_suffix("").parts]).removesuffix(".__init__")


FILES = {module_name(path): path for path in sorted(ROOT.rglob("*.py"))}


def named_by(node, importer):
    """Yield the full name of each module or attribute that an import statement names."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        # A dot is the package of the file, another dot the one around it.
        package = importer if FILES[importer].name == "__init__.py" else importer.rpartition(".")[0]
        above = package.split(".")[: len(package.split(".")) - (node.level - 1)] if node.level else []
        origin = ".".join([*above, *([node.module] if node.module else [])])
        yield from (f"{origin}.{alias.name}" for alias in node.names)


def statements(importer):
    """Yield each import statement of a file, and whether it is within a function."""
    todo = [(ast.parse(FILES[importer].read_text()), False)]
    while todo:
        node, in_function = todo.pop()
        in_function = in_function or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        # An expression, most of a file, holds no statement.
        todo += [
            (child, in_function) for child in ast.iter_child_nodes(node) if not isinstance(child, ast.expr)
        ]
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield node, in_function


def imports_of(importer):
    """Yield what a file imports: modules of the package by their full name, others by their library's.

    The packages around an imported module are not counted, though Python runs their __init__ before it:
    where that imports the module in turn, it finds what it needs.
    """
    for node, in_function in statements(importer):
        for name in named_by(node, importer):
            if not name.startswith("batchsim"):
                yield Import(importer, name.partition(".")[0], in_function)
            else:  # a module, or an attribute of one
                yield Import(importer, name if name in FILES else name.rpartition(".")[0], in_function)


@cache
def imports():
    return sorted({found for importer in FILES for found in imports_of(importer)})
