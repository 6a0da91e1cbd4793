"""The lessons for nbgrader and Otter-Grader: what these tools remove, and what they judge, without the tools.

`make package` runs the tools themselves (tests/package/test_graders.py).
"""

import re
from functools import cache
from pathlib import Path

import nbformat
import pytest
from graded_copies import CHECK, graded_copy
from student_copies import NOTEBOOKS, YOUR_CODE

LESSONS = [path.stem for path in sorted(NOTEBOOKS.glob("solutions/*.ipynb"))]
REGION = re.compile(r"(?ms)^ *(?:### |# )BEGIN SOLUTION.*?END SOLUTION$\n?")
TEST = re.compile(r"^assert EXERCISES\[\"([^\"]+)\"\]\.judge\((\w+)\)\.right$", re.MULTILINE)
every_copy = pytest.mark.parametrize(
    ("lesson", "system"), [(lesson, system) for lesson in LESSONS for system in ("nbgrader", "otter")]
)


@cache
def solved(lesson):
    return nbformat.read(NOTEBOOKS / "solutions" / f"{lesson}.ipynb", as_version=4)


def code(notebook):
    return [cell.source for cell in notebook.cells if cell.cell_type == "code"]


def exercises(lesson):
    """Return the solutions of a lesson's exercises by their names; a game has none."""
    cells = [cell for cell in solved(lesson).cells if "solution" in cell.metadata.get("tags", [])]
    return {CHECK.search(cell.source)[1]: cell.source for cell in cells if CHECK.search(cell.source)}


@every_copy
def test_every_exercise_with_a_solution_has_one_test_that_is_worth_a_point(lesson, system):
    copy, asked = graded_copy(solved(lesson), system), [*exercises(lesson)]
    tests = [found[1] for source in code(copy) if (found := TEST.search(source))]
    assert tests == asked != []
    if system == "nbgrader":
        cells = [cell.metadata.get("nbgrader", {}) for cell in copy.cells]
        points = [cell.points for cell in cells if cell.get("grade")]
    else:
        raw = "\n".join(cell.source for cell in copy.cells if cell.cell_type == "raw")
        points = [int(found) for found in re.findall(r"^points: (\d+)$", raw, re.MULTILINE)]
    assert points == [1] * len(asked)
    kept = [found[1] for source in code(copy) if (found := CHECK.search(source))]
    assert not set(kept) & set(asked)  # `check` keeps a record


@every_copy
def test_what_is_left_without_the_regions_has_no_solution(lesson, system):
    left = "\n".join(REGION.sub("", source) for source in code(graded_copy(solved(lesson), system)))
    for name, source in exercises(lesson).items():
        written = YOUR_CODE.search(source)
        secret = written[0].partition("\n")[2] if written else CHECK.split(source)[0]
        assert len(secret.strip()) > 5, name
        assert secret.strip() not in left, name


@pytest.mark.parametrize("system", ["nbgrader", "otter"])
@pytest.mark.parametrize("right", [True, False])
def test_the_hidden_tests_accept_the_solution_and_nothing_else(system, right, monkeypatch, tmp_path):
    monkeypatch.setenv("BATCHSIM_PROGRESS", "off")
    monkeypatch.chdir(tmp_path)
    names, judged = {}, []
    for source in code(graded_copy(solved("03-a-second-in-slow-motion"), system)):
        if test := TEST.search(source):
            if not right:
                names[test[2]] = (lambda *_: (0, 0, 0)) if callable(names[test[2]]) else -1
            try:
                exec(test[0], names)
                judged.append(True)
            except AssertionError:
                judged.append(False)
        else:
            exec(source, names)
    assert judged == [right] * 3
    assert list(Path(tmp_path).iterdir()) == []
