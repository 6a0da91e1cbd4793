"""The table of controls: every value is described once, and a registered rule brings its controls along."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from places import ROOT

from batchsim.view.explorer import kinds
from batchsim.view.explorer.kinds import KINDS, in_labels, on_page, relevant
from batchsim.view.explorer.options import SHOWN
from batchsim.view.explorer.rows import CONTROLS
from batchsim.view.explorer.state import DEFAULT, DEFAULTS


@pytest.mark.parametrize("name", CONTROLS)
def test_every_default_is_a_value_that_the_control_takes(name):
    control = CONTROLS[name]
    assert control.check(name, control.default) == control.default
    for state in DEFAULTS.values():
        assert control.check(name, getattr(state, name)) == getattr(state, name)
    if control.slider and control.slider.scale == "share":
        assert control.default == ()  # at 0, its low end
    elif control.slider and control.default is not None:
        assert control.slider.low <= control.default <= control.slider.high


NEW_RULE = """
import dataclasses
from batchsim import scenario
from batchsim.scenario.parameters import parameter

@dataclasses.dataclass(frozen=True)
class NewRule(scenario.SizeOrWait):
    level: float = parameter("Level", "A level", type="real", at_least=2, slider=(2, 8, 0.5), default=3)

scenario.RULES += (NewRule,)

from batchsim.view.explorer.rows import CONTROLS
from batchsim.view.explorer.state import State

state = State.from_link("rule=new_rule&level=4&max_batch_size=8")
assert state.scenario().rule == NewRule(8, 10, 4)
assert State.of(state.scenario()) == state
assert (CONTROLS["level"].label, CONTROLS["level"].default) == ("Level", 2)
assert CONTROLS["level"].slider[1:] == (2, 8, 0.5)
assert CONTROLS["rule"].bounds["options"]["new_rule"] == NewRule.title
"""


def test_a_rule_appears_by_being_registered():
    subprocess.run([sys.executable, "-c", NEW_RULE], check=True, cwd=ROOT)


def test_only_the_modules_of_a_kind_of_run_ask_which_it_is():
    asks = re.compile(
        r"in_tokens|tokens is (not )?None|isinstance\([^)]*\b(StepTime|Continuous|TokenViewData)\b"
    )
    modules = Path(kinds.__file__).parent.rglob("*.py")
    own = ("requests.py", "tokens.py", "runs.py")
    assert [path.name for path in modules if path.name not in own and asks.search(path.read_text())] == []


def test_labels_and_pages_are_those_of_one_control_each():
    labels = [control.label for control in CONTROLS.values()]
    assert len(set(labels)) == len(labels)
    pages = {control.page for control in CONTROLS.values()} - {None}
    assert sorted(name for page in pages for name in on_page(page)) == sorted(
        name for name, control in CONTROLS.items() if control.page is not None
    )


@pytest.mark.parametrize("rule", SHOWN, ids=lambda rule: rule.__name__)
def test_a_registered_rule_is_offered_with_a_control_for_each_parameter(rule):
    options = KINDS["requests"].options["rule"].values()
    (option,) = (option for option in options if option.part is rule and option.make is None)
    assert option.label == rule.label()
    for name, parameter in rule.parameters().items():
        assert CONTROLS[name].label == parameter.label
    assert set(rule.map_knobs) <= set(option.controls)


def test_a_control_matters_to_the_options_that_use_it():
    def seen(**changes):
        values = vars(DEFAULT.replace(**changes))
        return {name for name in CONTROLS if relevant(name, values)}

    assert {"max_wait_ms"} == seen() - seen(rule="full_only")
    assert {"preferred"} == seen(rule="preferred_sizes") - seen()
    assert {"cv"} == seen(workload="gamma") - seen()
    assert {"sharing"} == seen(servers=2) - seen()
    assert {"host_ms", "contention"} == seen(devices=1) - seen()
    assert "sharing" not in seen(servers=2, devices=1)
    sized = {"sizes": "lognormal"}
    assert seen(**sized) - seen() == {"size_mean", "size_cv", "size_most", "max_batch_units", "request_map"}
    assert seen(**sized, max_batch_units=900) - seen(**sized) == {"units", "oversize_action"}
    assert seen(**sized, rule="sorted_window") - seen(**sized) == {"window"}


def test_a_message_about_parameters_becomes_one_about_controls():
    assert in_labels("max_wait_ms + fixed_ms of 2 servers") == "Max wait (ms) + Fixed cost (ms) of 2 servers"
    assert in_labels("no_control is left") == "no_control is left"
