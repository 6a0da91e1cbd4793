"""CONTRIBUTING's recipe for a control of the explorer, followed literally in a copy of the package."""

import re

import pytest
from project_copies import CONTRIBUTING, NUMBERS, changed, copied, python

pytestmark = [
    pytest.mark.plain,  # a copy compiles each loop again
    pytest.mark.rare,  # the table of parts has its own tests
]

RECIPE = re.compile(
    r"\| a control of the explorer \| (\w+) file: a row of `(\w+)` in `(\S+)`, named as a field"
)

ROW = '    **rows(RULE, "price_per_hour"),\n'

CHECK = """
import batchsim as bs
from batchsim.view.explorer.state import State

for mode in ("requests", "tokens"):
    panel = bs.explore(requests=300, link=f"mode={mode}")
    assert panel.scenario.price_per_hour is None
    panel.controls["price_per_hour"].slider.value = 25  # steps of 0.1
    assert panel.result.scenario.price_per_hour == 2.5
    assert panel.result.summary()["cost_per_million"] > 0
    assert "price_per_hour=2.5" in panel.session.python()
    assert State.from_link(panel.state.to_link()) == panel.state
    assert bs.explore(panel.scenario, requests=300).state.price_per_hour == 2.5
    panel.controls["price_per_hour"].field.value = "-1"
    assert "Price (per hour) must be at least 0, got -1" in panel.controls["price_per_hour"].refusal
    panel.controls["price_per_hour"].field.value = ""
    assert panel.scenario.price_per_hour is None
"""


@pytest.fixture(scope="module")
def copy(tmp_path_factory):
    """The package, with the recipe followed."""
    project = copied(tmp_path_factory.mktemp("recipe"), "batchsim")
    ((files, table, name),) = RECIPE.findall(CONTRIBUTING)
    file = project / "batchsim" / name
    without, count = re.subn(
        r'^    \*\*rows\(COMPUTING, "price_per_hour"\),\n', "", file.read_text(), flags=re.MULTILINE
    )
    assert count == 1  # the row is there already, on another page
    text, count = re.subn(rf"^{table}: .* = {{\n", rf"\g<0>{ROW}", without, flags=re.MULTILINE)
    assert count == 1
    file.write_text(text)
    return project, NUMBERS[files]


def test_a_control_is_one_row_in_as_many_files_as_contributing_says(copy):
    project, files = copy
    assert len(changed(project)) == files


def test_a_row_of_a_field_is_a_control_of_both_kinds_of_run(copy):
    done = python(copy[0], "-c", CHECK)
    assert done.returncode == 0, done.stderr
