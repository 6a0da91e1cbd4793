"""The lessons' notebooks, and their cells."""

import contextlib
import io

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


def say(source, namespace):
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        exec(source, namespace)
    return said.getvalue()
