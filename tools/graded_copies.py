"""Make copies of the lessons for nbgrader or Otter-Grader: python tools/graded_copies.py FORMAT FOLDER.

They are students' copies whose exercises have what these systems need: the solution, which they remove, and a
hidden test worth a point. An answer is judged as `check` judges it, but without a record of earlier answers.
"""

import re
import sys
from copy import deepcopy
from pathlib import Path

import nbformat
from nbformat.v4 import new_code_cell, new_raw_cell
from student_copies import EXERCISE, NOTEBOOKS, YOUR_CODE, student_copy

CHECK = re.compile(r'^check\("([^"]+)", (\w+)\)$', re.MULTILINE)
MARKS = {
    "nbgrader": ("### BEGIN SOLUTION", "### END SOLUTION"),
    "otter": ("# BEGIN SOLUTION", "# END SOLUTION"),
}
TITLE = {"otter": "# ASSIGNMENT CONFIG\nexport_cell: false\nrun_tests: true"}


def graded_copy(solved, system):
    """Return the copy of a solved lesson for one of the systems."""
    copy = student_copy(with_outcomes(solved), lambda cell: exercise(cell, system))
    copy.cells = [cell for cell in copy.cells if cell.get("id") != "progress"]  # there is no record
    if system in TITLE:
        copy.cells.insert(0, new_raw_cell(TITLE[system]))
    return copy


def with_outcomes(solved):
    """Return the lesson; a solution also has the cells before it that copies omit, as it may use them."""
    lesson, omitted = deepcopy(solved), []
    for cell in lesson.cells:
        if cell.cell_type == "code" and "solution" in cell.metadata.get("tags", []):
            if not EXERCISE.search(cell.source):
                omitted.append(cell.source)
            elif not YOUR_CODE.search(cell.source):
                cell.source, omitted = "\n".join([*omitted, cell.source]), []
    return lesson


def exercise(cell, system):
    """Return the cells of a solved exercise."""
    name, answer = CHECK.search(cell.source).groups()
    judged = f'EXERCISES["{name}"].judge({answer})'
    marked = with_marks(cell.source, answer, *MARKS[system], system)
    imported = "from batchsim.teaching import EXERCISES"
    solution = new_code_cell(CHECK.sub(f"{imported}\n\nprint({judged}.text)", marked))
    return (for_nbgrader if system == "nbgrader" else for_otter)(name, solution, f"assert {judged}.right")


def with_marks(source, answer, begin, end, system):
    """Return a solution with marks around what the student writes."""
    if YOUR_CODE.search(source):

        def mark(found):
            code, blank = found[0].rstrip(), found[0][len(found[0].rstrip()) :]
            lines = code.split("\n")[1:]  # without `# your code`
            return "\n".join([found[1] + begin, *lines, found[1] + end]) + blank

        return YOUR_CODE.sub(mark, source)
    solution, checked, _ = re.split(r"^(check\(.*)$", source, flags=re.MULTILINE)
    begin += " NO PROMPT" if system == "otter" else ""
    return f"{answer} = ...\n{begin}\n{solution.strip()}\n{end}\n\n{checked}"


def for_nbgrader(name, solution, test):
    """Return the cell of the answer, and a locked cell of a point."""
    number = name.replace(".", "-")
    common = {"schema_version": 3, "task": False}
    solution.metadata.nbgrader = common | {
        "grade": False, "grade_id": f"answer-{number}", "locked": False, "solution": True,
    }  # fmt: skip
    hidden = f"# The test of exercise {name}\n### BEGIN HIDDEN TESTS\n{test}\n### END HIDDEN TESTS"
    graded = new_code_cell(hidden)
    graded.metadata.nbgrader = common | {
        "grade": True, "grade_id": f"test-{number}", "locked": True, "points": 1, "solution": False,
    }  # fmt: skip
    return [solution, graded]


def for_otter(name, solution, test):
    """Return the cells of a question, between the raw cells that Otter-Grader reads."""
    question = f"# BEGIN QUESTION\nname: q{name.replace('.', '_')}\npoints: 1"
    hidden = f'""" # BEGIN TEST CONFIG\nhidden: true\n""" # END TEST CONFIG\n{test}'
    raw = new_raw_cell
    return [
        raw(question), raw("# BEGIN SOLUTION"), solution, raw("# END SOLUTION"),
        raw("# BEGIN TESTS"), new_code_cell(hidden), raw("# END TESTS"), raw("# END QUESTION"),
    ]  # fmt: skip


def write(system, folder, pattern="*.ipynb"):
    """Write the lessons; nbgrader wants each in a folder of its own."""
    if system not in MARKS:
        raise SystemExit(f"FORMAT must be nbgrader or otter, got {system}")
    for path in sorted((NOTEBOOKS / "solutions").glob(pattern)):
        there = Path(folder, *(["source", path.stem] if system == "nbgrader" else []), path.name)
        there.parent.mkdir(parents=True, exist_ok=True)
        copy = graded_copy(nbformat.read(path, as_version=4), system)
        nbformat.write(copy, there)


if __name__ == "__main__":
    write(*sys.argv[1:])
