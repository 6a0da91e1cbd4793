"""While an explorer loads, its cell shows a line at once, above the picture that the notebook has of it."""

import json
import sys
from types import SimpleNamespace

import pytest

import batchsim as bs
from batchsim.view.explorer import coming as module

CODE = "import batchsim as bs\nbs.explore()"


class Handle:
    """A displayed output: what it shows, one text after the other."""

    def __init__(self, shown):
        self.shown = [shown["text/html"]]

    def update(self, content, raw):
        assert raw
        self.shown.append(content["text/html"])


@pytest.fixture
def handles(monkeypatch, tmp_path):
    """The outputs of a cell of a notebook that stores a picture of it."""
    stored = {"data": {"image/png": "iVBO\nRw0=", "text/plain": "Explorer"}}
    cells = [{"source": ["other"], "outputs": []}, {"source": CODE.splitlines(True), "outputs": [stored]}]
    path = tmp_path / "notebook.ipynb"
    path.write_text(json.dumps({"cells": cells}))
    found = []

    def display(content, raw, display_id):
        found.append(Handle(content))
        return found[-1]

    shell = SimpleNamespace(kernel=1, get_parent=lambda: {"content": {"code": CODE}})
    monkeypatch.setattr(sys.modules["IPython"], "get_ipython", lambda: shell)
    monkeypatch.setattr("IPython.display.display", display)
    monkeypatch.setenv("JPY_SESSION_NAME", str(path))
    return found


def test_the_line_and_the_stored_picture_stay_until_a_page_has_the_explorer(handles):
    panel = bs.explore(requests=300)
    sent = []
    panel.screen.send = lambda content, buffers=None: sent.append(content)
    (handle,) = handles
    (shown,) = handle.shown
    assert "The explorer is loading" in shown
    assert 'src="data:image/png;base64,iVBORw0="' in shown
    for width_px in (800, 900):
        panel.screen.width_px = width_px
    assert handle.shown == [shown, ""]
    assert sent.count({"appear": True}) == 1  # so that the page brings it into the window again


def test_an_explorer_that_is_not_shown_takes_them_away_by_itself(handles, monkeypatch):
    timers = []

    def timer(*given):
        timers.append(given)
        return SimpleNamespace(start=int)

    monkeypatch.setattr(module.threading, "Timer", timer)
    bs.explore(requests=300)
    ((end, given),) = [rest for after_s, *rest in timers if after_s == module.LONGEST_S]
    end(*given)
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
    bs.explore(requests=300)
    assert handles == []
