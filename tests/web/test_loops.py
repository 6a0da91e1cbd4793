"""The loops for a browser's Python: an argument's type has one name, of Numba's type and of the value."""

import os
import pickle
import subprocess
import sys

import numpy as np
import pytest
from numba import typeof

from batchsim.engines.compiled import browser, token_columns
from batchsim.scenario.rules.rule import Threshold
from batchsim.web.loops import call_of, name_of

VALUES = [
    1, 0.5, True, None, np.zeros(3), np.zeros((2, 3), np.int64), np.zeros(2, np.uint8), np.zeros(2, bool),
    Threshold(0.5, 1, 2), (1, (np.zeros(2), None)), token_columns.TokenLimits(1, 0.5, 1, 1, 0.5, True, 0.5),
    np.zeros(2, np.dtype([("count", np.int64), ("taken", bool)], align=True)),
]  # fmt: skip


@pytest.mark.parametrize("value", VALUES, ids=range(len(VALUES)))
def test_a_type_has_one_name(value):
    assert name_of(typeof(value)) == browser.code_of(value)


def test_without_a_module_a_loop_is_plain_python(monkeypatch):
    monkeypatch.setattr(browser, "module", lambda: None)
    assert browser.loop(divmod)(7, 2) == (3, 1)


def test_views_of_an_array_share_its_place():
    whole = np.zeros((4, 2))
    assert browser.root_of(whole[1:, 0].view(np.int64)) is whole


# What the compiled engine calls as each slider of the first page is dragged.
DRAGGED = """
import pickle, sys
from batchsim.engines.compiled import jit
loops, compiled = [], jit.compiled
jit.compiled = lambda function, **options: loops.append(compiled(function, **options)) or loops[-1]
import batchsim as bs
from batchsim.view.explorer.control import MAIN
from batchsim.view.explorer.kinds import KINDS, relevant
from batchsim.view.explorer.rows import CONTROLS
panel = bs.explore(play=True, requests=2000)
session, called = panel.session, {}
def note(what):
    for loop in loops:
        for kinds in loop.overloads:
            called.setdefault((loop.__name__, tuple(kinds)), what)
for kind in KINDS:
    session.turn_to(kind)
    panel.screen.appear()
    first = session.state
    note(kind)
    for name in first.kind.controls:
        control = CONTROLS[name]
        if control.page == MAIN and control.slider and relevant(name, vars(first)):
            session.press()
            for place in 0, control.slider.steps:
                session.state = first.replace(**{name: control.slider.value(place)})
                session.move(continuous=True)
            session.release()
            note(f"{kind} {name}")
            session.state = first
sys.stdout.buffer.write(pickle.dumps(called))
"""


def run_apart(*command, **variables):
    return subprocess.run(
        [sys.executable, *command], env=os.environ | variables, check=True, stdout=subprocess.PIPE
    ).stdout


@pytest.mark.dear("an explorer's sliders move in one process, and plain Python runs loops in another")
def test_a_browser_has_every_loop_that_a_slider_of_the_first_page_calls():
    noting = "-m", "batchsim.web.loops", "note", "requests", "tokens"
    noted = {
        call_of(name, kinds) for _, name, kinds in pickle.loads(run_apart(*noting, NUMBA_DISABLE_JIT="1"))
    }
    called = pickle.loads(run_apart("-c", DRAGGED))
    assert {"form_batches", "run_thresholds", "pass_steps", "count_within"} <= {name for name, _ in called}
    assert {call_of(*each): what for each, what in called.items() if call_of(*each) not in noted} == {}
