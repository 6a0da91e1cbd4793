"""Each exercise tells typical wrong answers what is wrong with them."""

import math
import re
from functools import cache

import nbformat
import pytest
from places import ROOT
from tracked import notebooks
from wrong_answers import WRONG, given

from batchsim.teaching import EXERCISES, check
from batchsim.teaching.exercises.exercise import Number, unit_of

pytestmark = pytest.mark.usefixtures("right_once")
SOLUTIONS = ROOT / "notebooks" / "solutions"


@cache
def headings():
    """Return the headings of each lesson, by its number."""
    found = {}
    for path in notebooks("notebooks/solutions/*.ipynb"):
        cells = nbformat.read(path, as_version=4).cells
        text = "\n".join(cell.source for cell in cells if cell.cell_type == "markdown")
        found[path.name[:2]] = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return found


def test_every_exercise_has_three_typical_wrong_answers():
    assert set(WRONG) == set(EXERCISES)
    assert [name for name, lines in WRONG.items() if len(lines) < 3] == []


@pytest.mark.parametrize("name", WRONG)
def test_typical_wrong_answers_are_told_what_is_wrong_with_each(name):
    told = set()
    for answer, word in WRONG[name]:
        right, text = EXERCISES[name].judge(given(EXERCISES[name], answer))
        assert not right, word
        assert word in text
        told.add(text)
    assert len(told) >= 3


NUMBERS = {name: asked for name, asked in EXERCISES.items() if isinstance(asked, Number)}
SLIPS = [(name, times) for name, asked in NUMBERS.items() for times in unit_of(asked.unit).others]


@pytest.mark.parametrize(("name", "times"), SLIPS)
def test_the_right_number_in_another_unit_is_told_its_unit_and_not_that_it_is_right(name, times):
    asked = NUMBERS[name]
    right, text = asked.judge(times * asked.right())
    assert not right
    assert text == unit_of(asked.unit).others[times]


@pytest.mark.parametrize("name", NUMBERS)
def test_a_number_that_no_answer_can_be_is_told_what_the_answer_must_be(name):
    asked, unit = NUMBERS[name], unit_of(NUMBERS[name].unit)
    impossible = [-7] if not asked.signed else []
    impossible += [2.5] if not asked.within else []
    impossible += [unit.most + 1] if math.isfinite(unit.most) else []
    for answer in impossible:
        right, text = asked.judge(answer)
        assert not right
        assert text == f"the answer must be {unit.must_be}, got {answer}."
    assert asked.signed == (not asked.judge(-asked.right()).text.startswith("the answer must be "))


@pytest.mark.parametrize("name", EXERCISES)
@pytest.mark.parametrize("answer", [object(), None, True], ids=["object", "None", "True"])
def test_an_answer_of_another_type_is_told_what_the_exercise_asks_for(capsys, name, answer):
    check(name, answer)
    told = capsys.readouterr().out
    assert told.startswith("Not yet: ")
    assert told.endswith(f"The exercise asks for {EXERCISES[name].asks}.\n")
    assert len(told.splitlines()) == 1


@pytest.mark.parametrize("name", EXERCISES)
def test_an_exercise_says_what_its_answer_is_made_of_and_where_its_lesson_explains_it(name):
    asked = EXERCISES[name]
    assert asked.parts
    assert not asked.parts.endswith(".")
    assert asked.look in headings()[name[:2]]
