"""Fixtures of several files."""

import pytest
from conftest import KEPT
from hands import all_made
from ipywidgets.widgets.widget import _instances

import batchsim as bs
from batchsim.engines import saturation
from batchsim.view.explorer.state import DEFAULTS


@pytest.fixture(scope="module", autouse=True)
def roughly_saturated():
    """Without the compiler a saturation rate takes a second of SimPy: others test how exact it is."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(saturation, "SLOW_ROWS", 10_000)
        saturation.saturated.cache_clear()
        yield
    saturation.saturated.cache_clear()


@pytest.fixture(scope="module")
def one_of_tokens():
    before = set(_instances)
    panel = all_made(bs.explore(requests=300, link="mode=tokens"))
    KEPT.update(_instances.keys() - before)
    yield panel
    KEPT.difference_update(_instances.keys() - before)


@pytest.fixture
def panel_of_tokens(one_of_tokens):
    """The panel of earlier tests, back at the beginning."""
    one_of_tokens.screen.has_appeared = False
    one_of_tokens.tabs.selected_index = 0
    one_of_tokens.session.left.update(DEFAULTS)
    one_of_tokens.session.pinned = one_of_tokens.session.pinned_state = None
    one_of_tokens.session.reset()
    return one_of_tokens
