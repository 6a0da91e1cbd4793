"""CONTRIBUTING's recipe for an exercise is complete: its exercise is graded, recorded and handed out."""

import json
import os
import re

import nbformat
import pytest
from places import ROOT
from project_copies import CONTRIBUTING, NUMBERS, copied
from project_copies import python as python_in

pytestmark = pytest.mark.plain  # a copy compiles each loop again

LESSON = "why_batch"

EXERCISE = '''

class TimeOfABatch(Number, name="01.4"):
    """The service time of a batch of 20."""

    unit = "ms"
    size = 20
    parts = "the fixed time, and the time for each of the requests"
    look = "Why 32 requests take little more time than one"

    def right(self) -> float:
        return 1000 * SERVICE(self.size)

    def because(self, right: float) -> str:
        return f"a batch of {self.size} takes {right:.2f} ms."

    def mistakes(self, right: float) -> Mistakes:
        yield self.size * 1000 * SERVICE(1), "that is the time one at a time."
        yield self.size * 0.15, "that leaves the fixed time out."

    def hint(self, answer: float, right: float) -> str:
        return "what does a batch cost, and what does each request add?"
'''
WRONG = '    "01.4": [(40, "one at a time"), (3, "fixed time out"), (7, "what does a batch cost")],\n}'

# What a student sees, then what the files of the class say.
LESSON_TAKEN = """
import runpy
from batchsim.teaching import EXERCISES, check, progress
import test_exercises as feedback
from wrong_answers import WRONG

assert list(EXERCISES)[:5] == ["01.1", "01.2", "01.3", "01.4", "02.1"]
assert set(WRONG) == set(EXERCISES)
for answer, word in WRONG["01.4"]:
    right, text = EXERCISES["01.4"].judge(answer)
    assert not right and word in text, text
feedback.test_every_exercise_with_a_number_has_its_truths()
feedback.test_a_number_in_the_feedback_is_true("01.4")
progress(name="Ann")
for answer in (..., 7, 3, 40, 4.85):
    check("01.4", answer)
print(progress())
progress().export("ann.json")
runpy.run_path("tools/student_copies.py", run_name="__main__")
"""


@pytest.fixture
def copy(tmp_path):
    """A copy of the files that the recipe concerns."""
    return copied(
        tmp_path,
        "batchsim",
        "notebooks",
        "tests/wrong_answers",
        "tools/student_copies.py",
        "tests/teaching/exercises/test_exercises.py",
    )


def follow(copy):
    """Follow the recipe, and return the files that it changes."""
    module = copy / "batchsim" / "teaching" / "exercises" / f"{LESSON}.py"
    module.write_text(module.read_text() + EXERCISE)

    lesson = copy / "notebooks" / "solutions" / "01-why-batch.ipynb"
    notebook = nbformat.read(lesson, as_version=4)
    last = max(number for number, cell in enumerate(notebook.cells) if 'check("01.3"' in cell.source)
    source, tags = 'my_ms = 4.85\n\ncheck("01.4", my_ms)', {"tags": ["solution"]}
    solved = nbformat.v4.new_code_cell(source, metadata=tags)
    notebook.cells[last + 1 : last + 1] = [nbformat.v4.new_markdown_cell("### Exercise 4"), solved]
    nbformat.write(notebook, lesson)

    wrong = copy / "tests" / "wrong_answers" / f"{LESSON}.py"
    wrong.write_text(re.sub(r"\}\s*\Z", WRONG + "\n", wrong.read_text()))

    feedback = copy / "tests/teaching/exercises/test_exercises.py"
    true = '    "01.4": lambda asked, answer: [1000 * SERVICE(asked.size)],\n}  # fmt: skip\nLOOSE'
    feedback.write_text(feedback.read_text().replace("}  # fmt: skip\nLOOSE", true))
    return module, lesson, wrong, feedback


def test_the_recipe_for_an_exercise_is_complete(copy):
    changed = follow(copy)
    (recipe,) = re.findall(r"^\| an exercise \| (\w+) files", CONTRIBUTING, re.M)
    assert len(changed) == NUMBERS[recipe]

    folders = ("", "tests", "tests/helpers", "tests/teaching/exercises", "tools")
    path = os.pathsep.join(str(root / folder) for root in (copy, ROOT) for folder in folders)
    environment = {"PYTHONPATH": path, "BATCHSIM_PROGRESS": str(copy / "progress.json")}

    def python(*arguments):
        done = python_in(copy, *arguments, **environment)
        assert done.returncode == 0, done.stderr
        return done.stdout

    # Grading: a hint, the parts of an answer, the place in the lesson, then the answer.
    told = python("-c", LESSON_TAKEN)
    assert "Not answered yet: put your answer in place of the ...: a number (ms)." in told
    assert "What you need: the fixed time" in told
    assert "Where to look: “Why 32 requests take little more time than one”" in told
    assert "Right: a batch of 20 takes 4.85 ms." in told

    # Progress, and the record that is handed in.
    assert re.search(r"01-why-batch +- +1 of 4 +4 solved \(4 tries\)", told)
    tried = json.loads((copy / "ann.json").read_text())["exercises"]["01.4"]
    assert tried["tries"] == 4
    assert [wrong["answer"] for wrong in tried["wrong"]] == ["7", "3", "40"]
    (row,) = json.loads(python("-m", "batchsim", "grade", "ann.json", "--json"))["students"]
    assert (row["student"], row["01_tried"], row["solved"]) == ("Ann", 1, 1)

    # The students' copy asks it, without the solution.
    students = (copy / "notebooks" / "01-why-batch.ipynb").read_text()
    assert "my_ms = ...\\n" in students
    assert "4.85\\n" not in students
