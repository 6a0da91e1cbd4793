"""A session: moves, runs that fail, and what is stored."""

import gc
import threading
import weakref

import pytest
from ipywidgets.widgets.widget import _instances

import batchsim as bs
from batchsim.view.explorer.kinds import KINDS
from batchsim.view.explorer.runs import Stored
from batchsim.view.pictures.live import LivePicture


@pytest.fixture
def panel():
    return bs.explore(requests=300)


def test_the_same_controls_give_the_same_words(panel):
    words = panel.readout.value
    panel.controls["max_wait_ms"].value = 50
    panel.controls["max_wait_ms"].value = 10
    assert panel.readout.value == words


def test_when_a_run_fails_the_last_picture_stays_and_the_reason_stands_below(panel, monkeypatch):
    frame, words, result = panel.screen.frame, panel.readout.value, panel.result

    def fail(*_, **__):
        raise ValueError("the moon must be full, got <half>")

    monkeypatch.setattr("batchsim.view.explorer.runs.simulated", fail)
    panel.controls["max_wait_ms"].value = 33
    assert "the moon must be full, got &lt;half&gt;" in panel.status.value
    assert 'role="alert"' in panel.status.value
    assert (panel.screen.frame, panel.readout.value, panel.result) == (frame, words, result)
    monkeypatch.undo()
    panel.controls["max_wait_ms"].value = 34
    assert panel.status.value == ""


def test_moves_that_come_while_one_is_drawn_are_drawn_once_at_the_end(panel, monkeypatch):
    drawn, threads = [], []
    draw = panel.session.refresh

    def slow(before):
        drawn.append(panel.controls["max_wait_ms"].value)
        if len(drawn) == 1:  # two more moves arrive on other threads while this one is drawn
            for wait_ms in (21.0, 22.0):
                moves = panel.session.moves
                thread = threading.Thread(
                    target=setattr, args=(panel.controls["max_wait_ms"], "value", wait_ms)
                )
                thread.start()
                while panel.session.moves == moves:
                    pass
                threads.append(thread)
        draw(before)

    monkeypatch.setattr(panel.session, "refresh", slow)
    panel.controls["max_wait_ms"].value = 20.0
    for thread in threads:
        thread.join()
    assert drawn == [20.0, 22.0]
    assert panel.result.scenario.rule.max_wait_ms == 22.0


def test_moving_does_not_pile_up_artists_pictures_or_curves(panel, monkeypatch):
    def count(kind):
        gc.collect()
        return sum(type(thing) is kind for thing in gc.get_objects())

    def move(wait_ms):
        panel.controls["max_wait_ms"].value = wait_ms
        panel.session.release()

    monkeypatch.setattr(Stored, "LARGEST", 4)
    move(11)
    move(12)
    move(11)
    artists, pictures = len(panel.picture.findobj()), count(LivePicture)
    for wait_ms in (*range(20, 28), 12, 11):
        move(wait_ms)
    assert len(panel.session.runner.stored.values) <= 4
    assert len(panel.picture.findobj()) == artists
    assert count(LivePicture) == pictures


@pytest.mark.parametrize(("kind", "knob"), [("requests", "max_wait_ms"), ("tokens", "max_num_seqs")])
def test_a_move_of_a_slider_builds_its_scenario_once(monkeypatch, kind, knob):
    panel = bs.explore(requests=300, link=f"mode={kind}")
    built = []
    make = KINDS[kind].scenario
    monkeypatch.setattr(KINDS[kind], "scenario", lambda *given: built.append(1) or make(*given))
    panel.session.press()
    for value in (21, 22):
        panel.controls[knob].slider.value = value
    panel.session.release()
    assert getattr(panel.result.scenario.rule, knob) == 22
    assert len(built) == 2


def test_a_panel_that_is_closed_is_let_go():
    before = set(_instances)
    picture = weakref.ref(bs.explore(requests=300).picture)
    for key in _instances.keys() - before:
        _instances[key].close()
    gc.collect()
    assert picture() is None
