"""After any sequence of moves, pages, modes, plays and pauses, all that is shown is the session's state."""

import html
import re

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

import batchsim as bs
from batchsim.view.explorer.kinds import KINDS
from batchsim.view.explorer.widgets import is_hidden
from batchsim.view.film.pseudocode import pseudocode

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
        self.panel = panel = bs.explore(requests=200, play=True)
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
            knob.slider.value = min(max(value, 10**knob.slider.min if knob.is_log else knob.slider.min),
                10**knob.slider.max if knob.is_log else knob.slider.max)  # fmt: skip
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
        self.panel.screen.enlarge(data.draw(st.sampled_from([key for _, key in self.panel.large.options])))

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
        assert session.data.result.scenario == session.runner.scenario(session.data_state)
        assert session.data_state == session.state or 'role="alert"' in self.panel.status.value

    @invariant()
    def the_controls_are_the_state(self):
        panel = self.panel
        for name, control in panel.controls.by_name.items():
            if name not in ("service", "mode") and name in panel.state.kind.controls:
                assert control.value == getattr(panel.state, name), name
        assert panel.controls["mode"].value == panel.state.mode
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
            assert ("batchsim-acting" in panel.pseudocode._dom_classes) == films
            pinned = films and not panel.config.is_open
            assert ("batchsim-pinned" in panel.pseudocode._dom_classes) == pinned
            assert "%" not in shown or not films

    @invariant()
    def the_film_is_the_run(self):
        panel, session, player = self.panel, self.panel.session, self.player
        kind, style = KINDS[session.style.mode], session.style
        opened = (
            panel.tabs.selected_index in (None, panel.tabs.children.index(panel.play)) and panel.play.is_open
        )
        expected = opened and session.visible and style.large == kind.film
        window = kind.window(session.data, style.server) if expected else None
        assert player.shown == (window is not None)
        assert is_hidden(panel.play.back) or not panel.play.filming
        if window is None:
            assert not player.playing
            return
        begin_s, until_s = window.stretch
        assert player.film == window.message()
        assert begin_s <= player.time_s <= until_s
        within_s = window.start_s[1] if player.moved_s is None else 0.0
        assert player.words == window.words(player.time_s, within_s)
        line = None if player.playing else window.line(player.time_s, within_s)
        marked = [
            number
            for number, row in enumerate(
                re.findall(r'<div style="display:flex.*?</div>', panel.pseudocode.value)
            )
            if "aria-current" in row
        ]
        assert marked == ([] if line is None else [line])


TestReader = Reader.TestCase
TestReader.settings = settings(stateful_step_count=10, max_examples=15, deadline=None)
