"""What a notebook's cell shows beside a widget: a line and the last picture at first, a picture later."""

import json
import re
from base64 import b64encode
from types import SimpleNamespace

import IPython
import pytest

import batchsim as bs
from batchsim.view import cell as module

CODE = "import batchsim as bs\nbs.explore()"
SCENARIO = bs.Scenario(bs.Poisson(800), bs.SizeOrWait(32, 10), bs.Affine(5, 0.25))


class Handle:
    """A displayed output: what it shows, one text after the other."""

    def __init__(self, shown):
        self.shown = [shown["text/html"]]

    def update(self, content, raw):
        assert raw
        self.shown.append(content["text/html"])


@pytest.fixture
def path(tmp_path):
    """The notebook of the cell, which stores a picture of it."""
    stored = {"data": {"image/png": "iVBO\nRw0=", "text/plain": "Explorer"}}
    cells = [{"source": ["other"], "outputs": []}, {"source": CODE.splitlines(True), "outputs": [stored]}]
    path = tmp_path / "notebook.ipynb"
    path.write_text(json.dumps({"cells": cells}))
    return path


@pytest.fixture
def handles(monkeypatch, path):
    """The outputs of the cell."""
    found = []

    def display(content, raw, display_id=None):
        found.append(Handle(content))
        return found[-1]

    shell = SimpleNamespace(kernel=1, get_parent=lambda: {"content": {"code": CODE}})
    monkeypatch.setattr(IPython, "get_ipython", lambda: shell)
    monkeypatch.setattr("IPython.display.display", display)
    monkeypatch.setenv("JPY_SESSION_NAME", str(path))
    return found


@pytest.fixture(autouse=True)
def timers(monkeypatch):
    """The timers that were started; none ends by itself, however busy the machine is."""
    found = []

    def timer(*given):
        found.append(given)
        return SimpleNamespace(start=int)

    monkeypatch.setattr(module.threading, "Timer", timer)
    return found


def test_the_line_and_the_stored_picture_stay_until_the_cell_shows_the_explorer(handles):
    panel = bs.explore(requests=300)
    (handle,) = handles
    (shown,) = handle.shown
    assert "The explorer is loading" in shown
    assert 'src="data:image/png;base64,iVBORw0="' in shown
    panel._repr_mimebundle_()
    assert handle.shown == [shown, ""]


def test_an_explorer_that_is_not_shown_takes_them_away_by_itself(handles, timers):
    bs.explore(requests=300)
    (end,) = [act for after_s, act, *_ in timers if after_s == module.LONGEST_S]
    end()
    assert handles[0].shown[1:] == [""]


def test_a_refusal_takes_them_away_at_once(handles):
    with pytest.raises(ValueError, match="requests must be"):
        bs.explore(requests=0)
    assert handles[0].shown[1:] == [""]


@pytest.mark.parametrize("content", ["", "[]", '{"cells": [{}]}', '{"cells": 3}', None])
def test_there_is_no_picture_where_the_file_has_none(handles, monkeypatch, tmp_path, content):
    assert module.last_picture("bs.explore(seed=1)") == ""
    path = tmp_path / "other.ipynb"
    if content is not None:
        path.write_text(content)
    monkeypatch.setenv("JPY_SESSION_NAME", str(path))
    assert module.last_picture(CODE) == ""


def test_outside_of_a_notebook_nothing_is_said(handles, monkeypatch):
    monkeypatch.delenv("JPY_SESSION_NAME")
    bs.explore(requests=300)._repr_mimebundle_()
    assert handles == []


# The picture that stays once the kernel is gone.

MADE = {
    "figure": lambda: bs.figure(SCENARIO),
    "film": lambda: bs.film(SCENARIO, requests=50),
    "explorer": lambda: bs.explore(requests=300),
}


@pytest.mark.parametrize("what", MADE)
def test_a_notebook_stores_the_picture_beside_the_widget_and_others_in_it(what, monkeypatch, request):
    monkeypatch.setattr("batchsim.web.notebook.loops", lambda rules: b"loops")
    shown = MADE[what]()
    with_picture, about = shown._repr_mimebundle_()
    handles = request.getfixturevalue("handles")  # from here on the cell is of a notebook
    bundle, _ = shown._repr_mimebundle_()
    assert set(bundle) == {"text/plain", "application/vnd.jupyter.widget-view+json"}
    (handle,) = handles
    (picture,) = handle.shown
    assert re.findall(module.STORED, picture) == [with_picture["image/png"]]
    assert f'alt="{about["image/png"]["alt"]}"' in picture


def test_what_words_and_tags_a_picture_has_stays_text(handles):
    module.with_picture({}, b"png", '"><script>')
    assert 'alt="&quot;&gt;&lt;script&gt;"' in handles[0].shown[0]


def test_the_next_explorer_dims_the_picture_that_was_stored_beside_the_last(handles, path):
    module.with_picture({}, b"a picture", "words")
    written = {"output_type": "display_data", "data": {"text/html": handles[0].shown[0].splitlines(True)}}
    path.write_text(json.dumps({"cells": [{"source": CODE, "outputs": [written]}]}))
    found = module.last_picture(CODE)
    assert b64encode(b"a picture").decode() in found
    assert "opacity" in found
