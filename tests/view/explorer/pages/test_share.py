"""For the class: links, Python, seeds and files."""

import csv
import io
import unicodedata

import pytest
from hands import looked_at

import batchsim as bs
from batchsim.view.explorer.pages.share import seed_of
from batchsim.view.explorer.services import PUBLISHED
from batchsim.view.explorer.state import DEFAULT


@pytest.fixture
def panel(panel_again):
    yield panel_again
    panel_again.tabs.selected_index = 0


def turn(panel, page):
    panel.tabs.selected_index = panel.tabs.titles.index(page)


def test_a_link_brings_another_panel_to_the_same_picture(panel):
    looked_at(panel)
    panel.move_to(DEFAULT.replace(workload="onoff", rule="at_least", servers=3, noise_cv=0.5, seed=9))
    turn(panel, "Share")
    other = looked_at(bs.explore(requests=300))
    turn(other, "Share")
    other.share.link.value = panel.share.link.value
    assert other.state == panel.state
    assert other.screen.frame == panel.screen.frame


def test_a_link_may_be_pasted_before_the_page_was_ever_open(panel):
    panel.share.link.value = "max_wait_ms=3&servers=2"
    assert panel.share.refusal.value == panel.status.value == ""
    assert panel.state == DEFAULT.replace(max_wait_ms=3, servers=2)
    assert panel.result.scenario == panel.scenario


def test_the_link_and_the_python_follow_while_the_picture_is_hidden():
    panel = bs.explore(requests=300)
    panel.predict.predicting.value = True
    turn(panel, "Share")
    for wait_ms in (50, 60):
        panel.controls["max_wait_ms"].value = wait_ms
        assert panel.screen.cover
        assert panel.share.link.value == f"max_wait_ms={wait_ms}"
        assert f"max_wait_ms={wait_ms})" in panel.share.python.value


@pytest.mark.parametrize(
    "link", ["max_batch_size=0", "hello", "rule=at_least&min_batch_size=40", "workload=given"]
)
def test_a_link_that_makes_no_sense_is_refused_beside_it_and_nothing_moves(panel, link):
    looked_at(panel)
    turn(panel, "Share")
    state, frame = panel.state, panel.screen.frame
    panel.share.link.value = link
    assert 'role="alert"' in panel.share.refusal.value
    assert (panel.state, panel.screen.frame) == (state, frame)
    panel.controls["max_wait_ms"].value = 3
    assert panel.status.value == ""


def test_reset_compares_with_nothing(panel):
    panel.controls["max_wait_ms"].value = 0
    assert panel.data.before.result.scenario.rule.max_wait_ms == DEFAULT.max_wait_ms
    panel.session.reset()
    assert panel.data.before is None


def test_reset_brings_every_control_back(panel):
    panel.move_to(DEFAULT.replace(workload="gamma", servers=2, queue_limit=5))
    panel.share.buttons["Reset"].click()
    assert panel.state == DEFAULT


def test_each_student_has_a_seed_and_so_a_traffic_of_their_own(panel):
    panel.share.student.value = "Ada"
    assert panel.controls["seed"].value == panel.result.seed == seed_of("ada")
    assert seed_of("Ada") != seed_of("Bob")


@pytest.mark.parametrize("name", ["Zoë", "Ångström", "Gisèle Müller", "김민준", "Nguyễn Thị Hồng"])
def test_a_name_has_one_seed_however_its_accents_are_encoded(name):
    composed, decomposed = (unicodedata.normalize(form, name) for form in ("NFC", "NFD"))
    assert composed != decomposed
    assert seed_of(composed) == seed_of(decomposed)


def test_the_students_name_is_removed_when_the_seed_is_another(panel):
    turn(panel, "Share")
    panel.share.student.value = "Ada"
    assert panel.state.seed == seed_of("Ada")
    panel.controls["max_wait_ms"].value = 3
    assert panel.share.student.value == "Ada"
    panel.share.buttons["Reset"].click()
    assert (panel.state.seed, panel.share.student.value) == (0, "")
    panel.share.student.value = "Ada"
    assert panel.state.seed == seed_of("Ada")


def test_the_python_runs_and_gives_the_same_numbers(panel):
    turn(panel, "Share")
    panel.controls["service"].value = PUBLISHED + "nnunet/t4/fp16"
    names = {}
    exec(panel.share.python.value.replace("print(result)", ""), names)
    assert 'bs.published("nnunet/t4/fp16")' in panel.share.python.value
    assert names["result"].summary() == panel.result.summary()


def test_the_python_of_a_short_trace_asks_for_no_more_requests_than_it_has():
    trace = bs.Trace([0.0, 0.1, 0.2, 0.5, 0.6])
    panel = bs.explore(workload=trace, requests=300)
    turn(panel, "Share")
    names = {"traffic": trace}
    exec(panel.share.python.value.replace("print(result)", ""), names)
    assert names["result"].summary() == panel.result.summary()


def test_the_exports_are_what_they_say(panel, monkeypatch):
    files = {}
    monkeypatch.setattr(panel.screen, "download", lambda name, kind, content: files.update({name: content}))
    for kind in ("PNG", "SVG", "CSV"):
        panel.share.buttons[f"Save {kind}"].click()
    assert files["batchsim.png"].startswith(b"\x89PNG")
    assert b"<svg" in files["batchsim.svg"]
    rows = list(csv.DictReader(io.StringIO(files["batchsim.csv"].decode())))
    assert len(rows) == 300
    assert float(rows[7]["arrival_s"]) == panel.result.arrival_s[7]


@pytest.mark.parametrize("link", ["", "rule=at_least&servers=3&seed=9", "mode=tokens&max_num_seqs=64"])
def test_the_copied_python_opens_the_same_state_and_view(link):
    panel = bs.explore(requests=300, link=link)
    panel.session.enlarge("map")
    sent = []
    panel.screen.send = lambda content, buffers=None: sent.append(content)
    panel.share.buttons["Copy link"].click()
    names = {}
    exec(sent[0]["copy"].replace("bs.explore", "panel = bs.explore"), names)
    other = names["panel"]
    assert (other.state, other.session.style.large) == (panel.state, "map")
    assert other.result.arrival_s.size == panel.result.arrival_s.size
    panel.session.enlarge("latency" if panel.state.mode == "requests" else "load")
    panel.share.link.value = sent[0]["link"]
    assert panel.session.style.large == "map"


def test_a_link_with_an_unknown_view_is_refused():
    with pytest.raises(ValueError, match="got 'moon'"):
        bs.explore(link="view=moon")


@pytest.mark.parametrize("link", ["view=replicas", "mode=tokens&view=replicas"])
def test_a_link_to_a_view_that_its_run_has_not_opens_another_view(panel, link):
    first = bs.explore(requests=300, link=link)
    assert first.session.style.large != "replicas"
    assert first.session.status == ("", False)
    panel.session.open_link(link)
    assert panel.session.style.large != "replicas"
    several = "replicas=2&" + link.removeprefix("mode=tokens&")
    assert bs.explore(requests=300, link=several).session.style.large == "replicas"


@pytest.mark.parametrize(
    "scenario",
    [
        bs.Scenario(bs.Poisson(500), bs.SizeOrWait(8, 2), bs.Affine(5, 0.25)),
        bs.Scenario(bs.Poisson(5), bs.Continuous(8), bs.StepTime(5, 1, 0.1), tokens=bs.Tokens(100, 20)),
    ],
    ids=lambda scenario: scenario.kind,
)
def test_the_price_and_the_power_of_a_server_stay_with_a_scenario(scenario):
    scenario = scenario.replace(price_per_hour=2, watts={0: 60, 1: 100, 8: 200})
    panel = bs.explore(scenario, requests=300)
    assert panel.result.scenario == panel.scenario == scenario
    panel.controls["rate_per_s"].value = 4
    moved = scenario.replace(rate_per_s=4)
    assert panel.result.scenario == moved
    names = {}
    exec(panel.session.python(), names)
    assert names["scenario"] == moved
    copied = panel.session.explored(panel.state.to_link())
    again = eval(copied.removeprefix("import batchsim as bs; "), {"bs": bs, "scenario": scenario})
    assert again.scenario == moved
    alone = bs.explore(requests=300, link=panel.state.to_link())
    assert alone.scenario == moved
    assert alone.controls["watts"].field.value == "0:60, 1:100, 8:200"
