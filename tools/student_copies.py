"""Make the students' copies of the lessons: python tools/student_copies.py.

notebooks/solutions/ has the lessons with everything solved, run and checked by nbval. In the copies, in
notebooks/, nothing is seen before it is predicted: no output below the first prediction is kept but the
questions, cells tagged `solution` are left out, and those that check an exercise are left unanswered: in a
class or a function to write, what stands below a line `# your code`, as far as it is indented, is left out.

In the copies each prediction has a key, under which the student's progress notes it: the lesson's number, as
its exercises say it, and a letter. Below the last exercise a cell shows that progress.
"""

import re
from copy import deepcopy
from pathlib import Path
from string import ascii_lowercase

import nbformat

NOTEBOOKS = Path(__file__).parent.parent / "notebooks"
EXERCISE = re.compile(r'^check\("[^"]+", (\w+)\)$', re.MULTILINE)
YOUR_CODE = re.compile(r"^( *)# your code\n(?:(?:\1.*| *)(?:\n|\Z))+", re.MULTILINE)
PROGRESS = "bs.teaching.progress()  # what you have done, and what is next"
LESSON = re.compile(r'^check\("(\d\d)\.', re.MULTILINE)
NOT_CHECKED = "nbval-ignore-output"


def student_copy(solved, unanswered=None):
    """Return a student's copy of a solved lesson; `unanswered` returns the cells of an exercise."""
    unanswered = unanswered or blank
    copy = deepcopy(solved)
    copy.cells, predicting = [], False
    lesson = next(filter(None, (LESSON.search(cell.source) for cell in solved.cells)), "")
    keys = iter(ascii_lowercase)
    for cell in deepcopy(solved.cells):
        cell.source = cell.source.replace("](../", "](")  # the copy is one folder higher
        if cell.cell_type == "code":
            asking = cell.source.startswith(("predict(", "draw_p99("))
            predicting = predicting or asking
            if asking:
                cell.source = with_key(cell.source, f"{lesson[1]}.{next(keys)}")
            forget(cell, outputs=predicting and not asking)
        if "solution" in cell.metadata.get("tags", []):
            if EXERCISE.search(cell.source):
                copy.cells += unanswered(cell)
        else:
            copy.cells.append(cell)
    if lesson:
        shown = nbformat.v4.new_code_cell(PROGRESS, id="progress", metadata={"tags": [NOT_CHECKED]})
        checked = [number for number, cell in enumerate(copy.cells) if LESSON.search(cell.source)]
        copy.cells.insert(max(checked, default=-1) + 1, shown)
    return copy


def blank(cell):
    """Return the cell of an exercise without its answer."""
    if YOUR_CODE.search(cell.source):
        cell.source = YOUR_CODE.sub(without_code, cell.source)
    else:
        exercise = EXERCISE.search(cell.source)
        cell.source = f"{exercise[1]} = ...\n\n{exercise[0]}"
    cell.metadata.tags = [tag for tag in cell.metadata.tags if tag != "solution"]
    return [cell]


def without_code(found):
    """Return a place for the learner's code, and the blank lines that followed the solution's."""
    blank = "\n" * (found[0].count("\n") - found[0].rstrip().count("\n"))
    return f"{found[1]}# your code\n{found[1]}...{blank}"


def with_key(source, key):
    """Return a call of `predict` or `draw_p99` with a key as its last argument."""
    call = source.rstrip()
    assert call.endswith(",\n)"), "the arguments of predict() are one a line, with a comma after the last"
    return f'{call[:-1]}    key="{key}",\n)'


def forget(cell, outputs):
    """Forget the counts of a code cell, and its outputs if so asked."""
    cell.execution_count = None
    for output in cell.outputs:
        if "execution_count" in output:
            output.execution_count = None
    if outputs:
        cell.outputs = []
        cell.metadata.tags = sorted({*cell.metadata.get("tags", []), NOT_CHECKED})


if __name__ == "__main__":
    for path in sorted((NOTEBOOKS / "solutions").glob("*.ipynb")):
        nbformat.write(student_copy(nbformat.read(path, as_version=4)), NOTEBOOKS / path.name)
