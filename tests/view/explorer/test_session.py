"""A session: moves, runs that fail, what is stored; and all that is shown is its state."""

import gc
import html
import re
import threading
import weakref

import pytest
from hands import is_hidden, looked_at, slide
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from ipywidgets.widgets.widget import _instances

import batchsim as bs
from batchsim.view.explorer import parts
from batchsim.view.explorer.controls import widgets_of
from batchsim.view.explorer.kinds import KINDS, as_typed, on_page, relevant
from batchsim.view.explorer.knob import Knob
from batchsim.view.explorer.runs import Stored
from batchsim.view.film.pseudocode import pseudocode
from batchsim.view.pictures.live import LivePicture


def test_the_same_controls_give_the_same_words(panel):
    words = panel.readout.value
    panel.controls["max_wait_ms"].value = 50
    panel.controls["max_wait_ms"].value = 10
    assert panel.readout.value == words


def test_when_a_run_fails_the_last_picture_stays_and_the_reason_stands_below(panel, monkeypatch):
    looked_at(panel)
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
    artists, pictures = len(panel.picture.figure.findobj()), count(LivePicture)
    for wait_ms in (*range(20, 28), 12, 11):
        move(wait_ms)
    assert len(panel.session.stored.values) <= 4
    assert len(panel.picture.figure.findobj()) == artists
    assert count(LivePicture) == pictures


@pytest.mark.parametrize(("kind", "knob"), [("requests", "max_wait_ms"), ("tokens", "max_num_seqs")])
def test_a_move_of_a_slider_builds_its_scenario_once(monkeypatch, kind, knob):
    panel = bs.explore(requests=300, link=f"mode={kind}")
    built = []
    make = parts.made
    monkeypatch.setattr(parts, "made", lambda *given: built.append(1) or make(*given))
    panel.session.press()
    for value in (21, 22):
        slide(panel, knob, value)
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


# After any sequence of moves, pages, modes, plays and pauses, all that is shown is the session's state.


MOVES = {
    "requests": {"rate_per_s": (100, 800, 5000), "max_wait_ms": (0, 20), "max_batch_size": (4, 32),
        "objective_ms": (5, 30), "servers": (1, 3)},
    "tokens": {"rate_per_s": (2, 9), "max_num_seqs": (8, 200), "servers": (1, 2)},
}  # fmt: skip
modes = st.sampled_from(list(MOVES))
pages = st.none() | st.integers(0, 8)


def text(widget):
    """Return a widget's words, without its HTML."""
    return html.unescape(re.sub(r"<[^>]*>", "\n", widget.value))


class Reader(RuleBasedStateMachine):
    """Hands on the explorer, and a page that reports its film, sometimes late."""

    def __init__(self):
        super().__init__()
        self.panel = panel = looked_at(bs.explore(requests=200, play=True))
        self.player, self.late = panel.play.player, []
        self.player.send = lambda content, buffers=None: None

    def report(self, number, time_s, playing):
        self.player._handle_custom_msg({"moment": [number, time_s, playing]}, [])

    @rule(data=st.data(), slid=st.booleans(), held=st.booleans())
    def move(self, data, slid, held):
        panel = self.panel
        moves = MOVES[panel.state.mode]
        name = data.draw(st.sampled_from(list(moves)))
        knob, value = panel.controls[name], data.draw(st.sampled_from(moves[name]))
        if held:
            panel.session.press()
        if slid:
            slide(panel, name, min(max(value, knob.range.low), knob.range.high))
        else:
            knob.value = value
        panel.session.release()  # as a page does at the end of a gesture, and at a frame that comes later

    @rule(mode=modes)
    def turn_to_mode(self, mode):
        self.panel.controls["mode"].value = mode

    @rule(at=pages)
    def turn_to_page(self, at):
        self.panel.tabs.selected_index = at

    @rule()
    def open_the_film(self):
        self.panel.turn_to(self.panel.play)

    @rule(data=st.data())
    def enlarge(self, data):
        self.panel.session.enlarge(data.draw(st.sampled_from([key for _, key in self.panel.large.options])))

    @rule(share=st.floats(0, 1), playing=st.booleans(), late=st.booleans())
    def play_or_pause_in_the_page(self, share, playing, late):
        if self.player.shown:
            begin_s, until_s = self.player.stretch
            moment = self.player.moment[0], begin_s + share * (until_s - begin_s), playing
            self.late.append(moment) if late else self.report(*moment)

    @rule()
    def hear_late_reports(self):
        for moment in self.late:
            self.report(*moment)
        self.late = []

    @rule()
    def step(self):
        if self.player.shown:
            self.player.next()

    @rule(on=st.booleans())
    def predict(self, on):
        self.panel.predict.predicting.value = on

    @rule()
    def pin(self):
        self.panel.compare.pin.click()

    @rule()
    def reset(self):
        self.panel.share.buttons["Reset"].click()

    @invariant()
    def the_session_is_settled(self):
        session = self.panel.session
        assert not session.moving
        assert not session.data_coarse
        assert session.data.result.scenario == session.scenario(session.data_state)
        assert session.data_state == session.state or 'role="alert"' in self.panel.status.value

    @invariant()
    def the_controls_are_the_state(self):
        panel = self.panel
        made, values = panel.controls.made, vars(panel.state)
        for name, control in made.items():
            if name != "service" and relevant(name, values):
                assert control.value == values[name], name
            if isinstance(control, Knob) and relevant(name, values):
                assert control.field.value == as_typed(values[name]), name
        for page, box in panel.controls.boxes.items():
            names = [name for name in on_page(page) if name in made and relevant(name, values)]
            shown = [part for name in names for part in widgets_of(made[name])]
            assert list(box.children)[: len(shown)] == shown
        assert panel.share.text == (panel.state.to_link() or "seed=0")
        assert not panel.share.is_open or panel.share.link.value == panel.share.text

    @invariant()
    def the_words_are_the_picture(self):
        panel, session = self.panel, self.panel.session
        assert panel.large.value == session.style.large
        if not session.visible:
            assert panel.screen.cover
            assert panel.readout.value == panel.pseudocode.value == ""
            return
        assert text(panel.readout).strip() == panel.screen.alt == panel.picture.describe(session.data)

    @invariant()
    def the_pseudo_code_is_the_rule(self):
        panel = self.panel
        if panel.session.visible:
            shown = text(panel.pseudocode)
            for line in pseudocode(panel.result.scenario):
                assert line.text in shown
            films = panel.play.player.shown
            assert ("batchsim-acting" in panel.rule._dom_classes) == films
            assert "%" not in shown or not films

    @invariant()
    def the_film_is_the_run(self):
        panel, session, player = self.panel, self.panel.session, self.player
        kind, style = KINDS[session.style.mode], session.style
        opened = (
            panel.tabs.selected_index in (None, panel.tabs.children.index(panel.play)) and panel.play.is_open
        )
        expected = opened and session.visible and style.large == kind.film
        window = kind.clip(session.data, style.server) if expected else None
        assert player.shown == (window is not None)
        assert is_hidden(panel.play.back) or not panel.play.filming
        if window is None:
            assert not player.playing
            return
        begin_s, until_s = window.stretch
        assert player.film == window.message()
        assert begin_s <= player.time_s <= until_s
        within_s = window.start_s[1] if player.moved_s is None else 0.0
        assert player.words == window.said(player.time_s, within_s)
        line = None if player.playing else window.line(player.time_s, within_s)
        rows = re.findall(r"<div[^>]*><span>.*?</div>", panel.pseudocode.value.partition("</span>")[2])
        marked = [number for number, row in enumerate(rows) if "aria-current" in row]
        assert marked == ([] if line is None else [line])


TestReader = pytest.mark.dear("hundreds of moves are followed by runs")(Reader.TestCase)
TestReader.settings = settings(stateful_step_count=10, max_examples=15, deadline=None)


def test_another_objective_is_no_move_to_compare_with():
    panel = bs.explore(requests=300)
    panel.controls["objective_ms"].value = 30
    assert panel.data.before is None
    panel.controls["max_wait_ms"].value = 20
    assert panel.data.before is not None
