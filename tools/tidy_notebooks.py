"""Drop from executed notebooks what should not be kept: python tools/tidy_notebooks.py notebooks/*.ipynb.

Outputs and execution counts stay: they are what nbval checks. Widget state goes, being large, and
with it the saved views: without their state JupyterLab shows "Error displaying widget" in their
place, where the text beside them would do.
"""

import sys

import nbformat

from batchsim.engines.compiled.jit import WHAT

VIEW = "application/vnd.jupyter.widget-view+json"


def of_compiling(output):
    """Return whether an output is the line of a first run, which the next one has not."""
    return output.get("data", {}).get("text/plain", "").startswith(f"Compiled {WHAT}")


def tidy(notebook):
    notebook.metadata = {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
    }
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)  # when it ran
        if "outputs" in cell:
            cell.outputs = [output for output in cell.outputs if not of_compiling(output)]
        for output in cell.get("outputs", []):
            if "text/plain" in output.get("data", {}):
                output.data.pop(VIEW, None)
            output.get("metadata", {}).pop("needs_background", None)  # only a page that runs has our style
    return notebook


if __name__ == "__main__":
    for path in sys.argv[1:]:
        nbformat.write(tidy(nbformat.read(path, as_version=4)), path)
