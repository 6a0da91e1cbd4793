"""The loops for a browser's Python: an argument's type has one name, of Numba's type and of the value."""

import numpy as np
import pytest
from numba import typeof

from batchsim.engines.compiled import browser, token_columns
from batchsim.scenario.rules.rule import Threshold
from batchsim.web.loops import name_of

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
