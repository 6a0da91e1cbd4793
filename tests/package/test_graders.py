"""nbgrader and Otter-Grader themselves take the lessons: `make package` installs both."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from graded_copies import write

pytest.importorskip("nbgrader", reason="the graders extra is not installed")
LESSON = "03-a-second-in-slow-motion"
NUMBERS = ("my_latency_ms", "my_mean_ms")
SOLVED = {"right": [*NUMBERS, "split"], "partly": ["my_mean_ms"]}  # the others get a wrong answer
WRONG = "def split(arrival_ms, start_ms, finish_ms, free_ms):\n    return 0, 0, 0\n"


def run(folder, *command):
    """Run a command of this environment; return what it prints."""
    tool = [sys.executable, "-m", *command]
    unset = ("PYTEST", "BATCHSIM")
    env = {name: value for name, value in os.environ.items() if not name.startswith(unset)}
    env["PATH"] = (
        f"{Path(sys.executable).parent}{os.pathsep}{env['PATH']}"  # nbgrader calls alembic by its name
    )
    done = subprocess.run(tool, cwd=folder, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def answered(notebook, solved, student):
    """Return a student's notebook: some answers are right, the others wrong."""
    right = SOLVED[student]
    solutions = re.findall(r"(?s)(?:### |# )BEGIN SOLUTION[A-Z ]*\n(.*?)\n *(?:### |# )END SOLUTION",
                           "\n".join(cell.source for cell in solved.cells))  # fmt: skip
    for cell in notebook.cells:
        for name in NUMBERS:
            if cell.source.startswith(f"{name} = ..."):
                code = next(each for each in solutions if re.search(rf"^{name} = ", each, re.MULTILINE))
                cell.source = "\n".join([code if name in right else f"{name} = -1", checked(cell)])
        if cell.source.startswith("def split("):
            code = next(each for each in solutions if "return start_ms - alone_ms" in each)
            head = cell.source.split("\n    # YOUR CODE HERE")[0].split("\n    ...")[0]
            cell.source = "\n".join([f"{head}\n{code}" if "split" in right else WRONG, checked(cell)])
    return notebook


def checked(cell):
    return re.search(r"(?s)\nfrom batchsim.teaching import EXERCISES.*", cell.source)[0]


@pytest.fixture(scope="module")
def nbgrader(tmp_path_factory):
    folder = tmp_path_factory.mktemp("nbgrader")
    write("nbgrader", folder, f"{LESSON}.ipynb")
    patience = "c.ExecutePreprocessor.iopub_timeout = 120"  # a busy machine's kernels are slow to speak
    config = f'c = get_config()\nc.CourseDirectory.course_id = "batching"\n{patience}\n'
    (folder / "nbgrader_config.py").write_text(config)
    return folder


def test_nbgrader_validates_the_solution_and_hides_it_and_its_tests(nbgrader):
    source = f"source/{LESSON}/{LESSON}.ipynb"
    assert "Success! Your notebook passes all the tests." in run(nbgrader, "nbgrader", "validate", source)
    run(nbgrader, "nbgrader", "generate_assignment", LESSON)
    released = (nbgrader / "release" / LESSON / f"{LESSON}.ipynb").read_text()
    assert released.count("YOUR CODE HERE") == 3
    assert not re.search("SOLUTION|HIDDEN|assert|free_ms = 35", released)


@pytest.mark.parametrize("student", SOLVED)
def test_nbgraders_autograder_gives_points_for_right_answers_alone(nbgrader, student):
    run(nbgrader, "nbgrader", "generate_assignment", LESSON, "--force")
    read = [nbgrader / name / LESSON / f"{LESSON}.ipynb" for name in ("release", "source")]
    released, solved = (nbformat.read(path, as_version=4) for path in read)
    there = nbgrader / "submitted" / student / LESSON / f"{LESSON}.ipynb"
    there.parent.mkdir(parents=True)
    nbformat.write(answered(released, solved, student), there)
    run(nbgrader, "nbgrader", "autograde", LESSON, "--student", student)
    run(nbgrader, "nbgrader", "export", "--to", "grades.csv")
    rows = (nbgrader / "grades.csv").read_text().splitlines()
    (row,) = [
        dict(zip(rows[0].split(","), line.split(","), strict=True)) for line in rows[1:] if student in line
    ]
    assert (float(row["score"]), float(row["max_score"])) == (len(SOLVED[student]), 3)


@pytest.fixture(scope="module")
def otter(tmp_path_factory):
    """Lesson 3 as Otter-Grader assigns it, which runs its tests on the solution."""
    folder = tmp_path_factory.mktemp("otter")
    write("otter", folder, f"{LESSON}.ipynb")
    run(folder, "otter", "assign", f"{LESSON}.ipynb", "dist")
    return folder


def test_otter_hides_the_solutions(otter):
    student = (otter / "dist" / "student" / f"{LESSON}.ipynb").read_text()
    assert "my_latency_ms = ..." in student
    assert not re.search("SOLUTION|free_ms = 35|return start_ms - alone_ms", student)


@pytest.mark.parametrize("student", SOLVED)
def test_otters_autograder_gives_points_for_right_answers_alone(otter, student):
    read = [otter / "dist" / "student" / f"{LESSON}.ipynb", otter / f"{LESSON}.ipynb"]
    released, solved = (nbformat.read(path, as_version=4) for path in read)
    (otter / student).mkdir()
    submission = otter / student / f"{LESSON}.ipynb"
    nbformat.write(answered(released, solved, student), submission)
    (autograder,) = Path(otter, "dist", "autograder").glob("*.zip")
    run(otter, "otter", "run", "-a", str(autograder), "-o", student, str(submission))
    tests = json.loads((otter / student / "results.json").read_text())["tests"]
    scores = {test["name"]: test.get("score", 0) for test in tests if test["name"].startswith("q")}
    assert (len(scores), sum(scores.values())) == (3, len(SOLVED[student]))
