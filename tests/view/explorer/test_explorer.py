"""The explorer works without a browser: move a control, read the text."""

import base64
import re
import struct
from io import BytesIO

import pytest
from hands import looked_at
from PIL import Image
from refusals import refusals
from runs import in_python

import batchsim as bs
from batchsim._format import fixed, number
from batchsim.engines.compiled.jit import compiled_uncached
from batchsim.view.explorer.knob import Knob


def text(widget):
    return re.sub(r"<[^>]*>", "", widget.value)


def test_it_opens_with_a_picture_and_words_that_say_its_numbers(panel):
    looked_at(panel)
    assert Image.open(BytesIO(panel.screen.frame)).format == "WEBP"
    assert f"<b>{fixed(panel.result.percentile(99))}</b> <span>ms</span>" in panel.screen.numbers
    assert panel.screen.alt == panel.picture.describe(panel.data) == text(panel.readout)
    assert f"p99 {number(panel.result.percentile(99))} ms" in panel.readout.value
    assert panel.status.value == ""


def test_what_is_compiled_meanwhile_is_announced_and_then_forgotten(panel, monkeypatch):
    def loop():
        return 1

    loop.__module__ = "batchsim.engines.a_loop"
    run, compiled, told = panel.session.simulate, compiled_uncached(loop), []
    monkeypatch.setattr(panel.session, "simulate", lambda *given: compiled() and run(*given))
    monkeypatch.setattr(panel.session, "say", lambda text, alert=False: told.append(text))
    panel.session.refresh()
    assert ["compiling" in text for text in told] == [True, False]
    assert told[-1] == ""


@pytest.mark.rare("compiles all that an explorer needs; a loop of a line is announced above")
def test_what_is_compiled_on_opening_is_announced_and_then_forgotten(tmp_path):
    """As on a fresh machine: the loops of the run, and those of the numbers that its views ask for."""
    code = """
        from batchsim.view.explorer.session import Session
        say, told = Session.say, []
        Session.say = lambda session, text, alert=False: (told.append(text), say(session, text, alert))
        import batchsim as bs
        panel = bs.explore(requests=300)
        print(sum("compiling" in text for text in told) > 1, repr(panel.status.value))
    """
    process = in_python(code, NUMBA_CACHE_DIR=str(tmp_path))
    assert (*process.communicate(), process.returncode) == ("True ''\n", "", 0)


def test_a_whole_scenario_can_be_explored():
    scenario = bs.Scenario(
        bs.Gamma(300, 2), bs.AtLeast(2, 8), bs.Affine(3, 1).padded_to([2, 8]), servers=2, timeout_ms=90
    )
    panel = bs.explore(scenario, requests=300, seed=5)
    assert panel.result.scenario == scenario
    assert panel.result.seed == 5


def test_it_prints_as_one_short_line(panel):
    assert re.search("Poisson arrivals.*Size or wait", repr(panel))
    assert "\n" not in repr(panel)
    assert len(repr(panel)) < 100


PLAIN = bs.Scenario(bs.Poisson(900), bs.SizeOrWait(32, 10), bs.Affine(5, 0.25))


@refusals
def test_bad_input_is_refused():
    """
    bs.explore(service=3)
        -> TypeError: service must be a Measurement, a service time, a rule or a Scenario, got 3
    bs.explore(workload=3) -> TypeError: workload must be one of batchsim's, got 3
    bs.explore(requests=0) -> requests must be at least 1, got 0
    bs.explore(seed=-1) -> seed must be at least 0, got -1
    bs.explore(link="servers=0") -> servers must be at least 1, got 0
    bs.explore(PLAIN, link="objective_ms=30") -> must be one that needs it, got 'objective_ms=30'
    bs.explore(PLAIN, link="view=map") -> which is a whole state: give one of the two
    bs.explore(bs.SizeOrWait(8, 5), link="servers=2") -> must be one that needs it, got 'servers=2'
    bs.explore(workload=bs.Poisson(9), link="servers=2") -> must be one that needs it, got 'servers=2'
    bs.explore(service=bs.Scenario(bs.Poisson(3), bs.SizeOrWait(), bs.Affine(5, 1)), workload=bs.Poisson(3))
        -> TypeError: a Scenario must come without a workload
    """


def test_a_stored_notebook_keeps_a_picture_of_it(panel):
    bundle, metadata = panel._repr_mimebundle_()
    assert metadata["image/png"]["alt"] == panel.screen.alt != ""
    assert bundle["text/plain"] == repr(panel)
    picture = base64.b64decode(bundle["image/png"])
    assert len(picture) < 150_000
    panel.screen.set_state({"width_px": 800, "height_px": 500, "ratio": 2.0})
    kept = base64.b64decode(panel._repr_mimebundle_()[0]["image/png"])
    assert struct.unpack(">II", kept[16:24]) == struct.unpack(">II", picture[16:24])


@pytest.mark.parametrize(("mode", "view"), [("requests", "timeline"), ("tokens", "seats")])
def test_it_can_begin_with_the_film(mode, view):
    panel = bs.explore(requests=300, link=f"mode={mode}", play=True)
    assert panel.large.value == view
    assert panel.tabs.titles[panel.tabs.selected_index] == "Film"
    assert panel.status.value == ""


def test_plain_widgets_share_their_looks_as_a_page_makes_each_of_them(panel):
    knobs = [knob for knob in panel.controls.made.values() if isinstance(knob, Knob)]
    assert len({knob.field.layout.model_id for knob in knobs}) == 1
    assert len({knob.field.style.model_id for knob in knobs}) == 1


def test_a_page_shows_a_few_views_until_the_reader_wants_all_and_a_link_keeps_them():
    panel = bs.explore(requests=300)
    assert len(panel.picture.views) == 6  # without a page
    panel.screen.set_trait("width_px", 900)
    panel.screen.set_trait("height_px", 700)
    assert [*panel.picture.views] == ["latency", "map", "load"]
    assert "more=" not in panel.session.link()
    panel.more.click()
    assert len(panel.picture.views) == 6
    assert panel.more.description == "Less"
    other = bs.explore(requests=300, link=panel.session.link())
    assert other.screen.more
    panel.predict.predicting.value = True
    panel.turn_to(panel.predict)
    panel.controls["max_wait_ms"].value = 50
    panel.more.click()
    assert len(panel.picture.views) == 3
    assert panel.screen.cover == ""  # no page that could reveal it is there
    assert panel.tabs.selected_index == 0
    assert (panel.more.description, panel.screen.more) == ("More", False)
