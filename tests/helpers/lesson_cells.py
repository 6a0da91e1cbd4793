"""The lessons' notebooks, and their cells."""

import ast
import contextlib
import io
import re

import nbformat
from places import ROOT
from tracked import notebooks

NOTEBOOKS = ROOT / "notebooks"
LESSONS = notebooks("notebooks/solutions/*.ipynb")


def read(path):
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    return notebook


def code(notebook):
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def of_seeds(words):
    """Return the ranges in sentences on seeds: other runs than the lesson's."""
    sentences = re.split(r"\. |[()]", " ".join(words.split()))
    ranges = r"\d[\d.]* to \d[\d.]* (?:ms|s|%|times)"
    return [each for one in sentences if re.search(r"\bseeds\b", one) for each in re.findall(ranges, one)]


def say(source, namespace):
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        exec(source, namespace)
    return said.getvalue()


def define(cells, namespace):
    """Run what cells import, define, or name in capitals; a name that the namespace has stays as it is."""
    given = dict(namespace)
    for statement in [each for cell in cells for each in ast.parse(cell.source).body]:
        stored = [each for each in ast.walk(statement) if isinstance(getattr(each, "ctx", None), ast.Store)]
        names = [each.id for each in stored if isinstance(each, ast.Name)]
        kept = isinstance(statement, ast.Assign) and names and all(map(str.isupper, names))
        kept = kept or isinstance(getattr(statement, "value", None), ast.List)
        if kept or isinstance(statement, (ast.Import, ast.ImportFrom, ast.FunctionDef, ast.ClassDef)):
            with contextlib.suppress(NameError):  # a default that is the result of a cell
                exec(ast.unparse(statement), namespace)
                namespace |= given
