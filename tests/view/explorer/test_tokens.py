"""The explorer turned to tokens works without a browser: move a control, read the text."""

import html
import re

import pytest
from hands import is_hidden, is_shown, looked_at, slide
from ipywidgets.widgets.widget import _instances

import batchsim as bs
from batchsim.view.explorer.reasons import FALLS, RISES, STAYS, of_tokens
from batchsim.view.explorer.state import DEFAULTS, State
from batchsim.view.film.pseudocode import pseudocode
from batchsim.view.pictures.headline import token_figures_of
from batchsim.view.pictures.views import views_of

FIRST = DEFAULTS["tokens"]


@pytest.fixture
def panel(panel_of_tokens):
    return panel_of_tokens


def text(widget):
    return re.sub(r"<[^>]*>", "", widget.value)


def test_it_opens_with_requests_and_one_switch_turns_to_tokens_and_back():
    panel = bs.explore(requests=300)
    looked_at(panel)
    whole, frame = panel.readout.value, panel.screen.frame
    panel.controls["mode"].value = "tokens"
    assert panel.status.value == ""
    assert panel.result.scenario == FIRST.scenario()
    assert "TTFT" in panel.readout.value
    assert panel.screen.frame != frame
    assert [key for _, key in panel.large.options] == [*views_of("tokens")]
    panel.controls["rate_per_s"].value = 3
    panel.controls["mode"].value = "requests"
    assert (panel.state, panel.readout.value) == (DEFAULTS["requests"], whole)
    panel.controls["mode"].value = "tokens"
    assert panel.state == FIRST.replace(rate_per_s=3)
    panel.controls["seed"].value = 4
    panel.controls["mode"].value = "requests"
    assert panel.state == DEFAULTS["requests"].replace(seed=4)


def test_controls_are_those_of_the_mode_and_made_when_it_is_first_turned_to():
    panel = bs.explore(requests=300)
    assert "max_num_seqs" not in panel.controls.made
    panel.controls["mode"].value = "tokens"
    for name in ("mode", "max_num_seqs", "kv_blocks", "prompt_mean", "rate_per_s", "watermark_blocks"):
        assert is_shown(panel, name)
    for name in ("max_batch_size", "max_wait_ms", "objective_ms", "service"):
        assert not is_shown(panel, name)
    assert "Memory" in panel.tabs.titles
    assert "Device" not in panel.tabs.titles


def test_a_panel_of_tokens_has_about_as_many_widgets_as_one_of_requests():
    before = len(_instances)
    bs.explore(requests=300, link="mode=tokens")
    assert len(_instances) - before <= 160


def test_a_scenario_with_tokens_opens_in_tokens():
    scenario = bs.Scenario(
        bs.Poisson(3), bs.Continuous(32, 512, kv_blocks=2000), bs.published("llama-3.1-8b/rtx-4090"),
        tokens=bs.Tokens.sample([(100, 5), (20, 12), (900, 40)], again=True),
    )  # fmt: skip
    panel = bs.explore(scenario, requests=200, seed=4)
    assert (panel.result.scenario, panel.result.seed) == (scenario, 4)
    assert panel.controls["prompts"].value == "given"
    assert "tokens.prompt" in panel.session.python()
    assert "Continuous batching" in repr(panel)


def test_lengths_that_end_bound_the_run():
    pairs = [(100, 5)] * 90
    tokens = bs.Tokens.sample(pairs)
    panel = bs.explore(FIRST.scenario().replace(tokens=tokens), requests=300)
    assert panel.result.arrival_s.size == 90
    assert "requests=90" in panel.session.python()


def test_a_step_time_opens_in_tokens_with_its_numbers():
    panel = bs.explore(bs.published("mistral-7b/h100/trt-llm"), requests=100)
    assert panel.state.step == "mistral-7b/h100/trt-llm"
    assert panel.status.value == ""


def test_its_own_step_time_begins_as_the_one_that_was_chosen(panel):
    panel.controls["step"].value = "llama-2-7b/h100/vllm"
    words = panel.readout.value
    panel.controls["step"].value = "own"
    assert panel.readout.value == words
    assert panel.controls["weights_ms"].value == bs.published("llama-2-7b/h100/vllm").weights_ms


def test_while_a_slider_is_dragged_runs_are_shorter_and_whole_when_it_is_let_go():
    panel = bs.explore(requests=5000, link="mode=tokens")
    panel.session.press()
    slide(panel, "rate_per_s", 5)
    assert panel.result.arrival_s.size == 2000
    panel.session.release()
    assert panel.result.arrival_s.size == 5000
    panel.controls["rate_per_s"].value = 6
    assert panel.result.arrival_s.size == 5000


def test_a_click_on_the_heat_map_moves_to_its_setting(panel):
    looked_at(panel)
    panel.session.enlarge("map")
    box, whole = panel.picture.views["map"].ax.bbox, panel.picture.figure.bbox
    for across in (0.2, 0.3, 0.45, 0.6):
        place = (box.x0 + across * box.width) / whole.width, 1 - (box.y0 + 0.7 * box.height) / whole.height
        panel.screen._receive(None, {"click": place}, None)
    surface = panel.data.surface
    assert panel.status.value == ""
    assert panel.state.max_num_seqs in surface.x_values
    assert panel.state.max_num_batched_tokens in surface.y_values
    assert panel.state != FIRST
    seats = panel.state.max_num_seqs
    panel.screen._receive(None, {"key": "right"}, None)
    assert panel.state.max_num_seqs > seats


def test_a_and_b_compare_tokens_pair_by_pair(panel):
    panel = bs.explore(requests=20_000, link="mode=tokens")
    panel.compare.pin.click()
    a = panel.result
    panel.controls["max_num_batched_tokens"].value = 256
    row = bs.compare(a, panel.result, ["ttft_p99_ms"])["ttft_p99_ms"]
    table = text(panel.compare.table)
    assert f"{row.difference:,.0f}" in table
    assert "goodput (per s)" in table
    assert "A: max_num_batched_tokens=2048" in table
    panel.controls["mode"].value = "requests"
    assert "Whole requests and tokens" in panel.compare.table.value
    panel.compare.swap.click()
    assert panel.state == FIRST


def test_predict_asks_of_ttft_tpot_and_tokens(panel):
    page = panel.predict
    page.predicting.value = True
    panel.controls["max_num_seqs"].value = 8
    assert "TTFT, TPOT" in panel.session.cover
    for answer, way in zip(page.answers.values(), (RISES, FALLS, STAYS), strict=True):
        answer.value = way
    page.reveal.click()
    said = [text(row) for row in page.rows.values()]
    assert "TTFT p99: you said it rises: right" in said[0]
    assert "TPOT p99: you said it falls: right" in said[1]
    assert "requests share a step" in said[1]
    assert panel.session.cover == ""
    panel.controls["max_num_seqs"].value = 4
    assert panel.session.cover
    panel.controls["mode"].value = "requests"
    assert panel.session.cover == ""
    assert list(page.answers) == ["p50", "p99", "throughput"]
    page.predicting.value = False


def test_the_pseudo_code_marks_where_most_steps_end(panel):
    panel.controls["max_num_seqs"].value = 8
    marked = panel.pseudocode.value.partition('aria-current="step"')[2].partition("</div>")[0]
    assert "8 run: others wait" in marked
    panel.controls["max_num_seqs"].value = 256
    panel.controls["rate_per_s"].value = 2
    marked = panel.pseudocode.value.partition('aria-current="step"')[2].partition("</div>")[0]
    assert "all that wait join" in marked


def test_it_is_shared_as_a_link_and_saved(panel, monkeypatch):
    panel.controls["max_num_seqs"].value = 8
    panel.turn_to(panel.share)
    assert panel.share.link.value == "mode=tokens&max_num_seqs=8"
    kept = []
    monkeypatch.setattr(panel.screen, "download", lambda *file: kept.append(file))
    panel.share.buttons["Save CSV"].click()
    panel.share.buttons["Save PNG"].click()
    assert b"ttft_ms" in kept[0][2]
    assert kept[1][2].startswith(b"\x89PNG")
    panel.share.link.value = "mode=tokens&servers=2"
    assert panel.state == FIRST.replace(servers=2)
    panel.share.student.value = "Ada"
    assert panel.state.seed != 0


def test_reset_goes_back_to_the_beginning(panel):
    panel.controls["mode"].value = "requests"
    panel.session.reset()
    assert panel.state == FIRST
    assert panel.controls["mode"].value == "tokens"


def test_it_plays_step_by_step_in_the_picture_of_the_seats(panel):
    panel.turn_to(panel.play)
    player = panel.play.player
    assert panel.large.value == "seats"
    assert panel.status.value == ""
    player.next()
    first_ms, words = player.time_ms, player.words
    assert re.search(r"a step of [\d,]+ tokens? for \d+ requests?; \d+ run, \d+ wait;", words)
    assert "blocks are taken" in words
    assert 'aria-current="step"' in panel.pseudocode.value
    player.next()
    assert player.time_ms > first_ms
    steps = panel.result.steps
    at = int(steps.start_s.searchsorted(player.time_ms / 1000 + 1e-9)) - 1
    assert f"a step of {steps.tokens[at]:,} token" in player.words
    player.time_ms = 1000 * player.stretch.until_s
    player.previous()
    window = player.clip
    panel.controls["rate_per_s"].value = 3
    assert panel.status.value == ""
    assert player.clip is not window
    now = panel.data.moment()
    assert player.stretch.begin_s == now.begin_s


def test_answers_of_one_token_have_no_tpot_and_keep_its_objective():
    panel = bs.explore(FIRST.replace(outputs="fixed", output_mean=1).scenario(), requests=20_000)
    assert panel.status.value == ""
    said = text(panel.readout)
    assert "TPOT: there is none, each answer has one token." in said
    assert "missed" not in said
    assert token_figures_of(panel.data)[1].name == "TPOT p99 \N{CHECK MARK} \N{LESS-THAN OR EQUAL TO} 60 ms"


def test_a_server_with_one_seat_is_told_of_in_the_singular(panel):
    panel.controls["max_num_seqs"].value = 1
    said = text(panel.readout)
    assert "the server carries" in said
    assert " of 1 seat and" in said
    panel.controls["servers"].value = 2
    assert "2 servers carry" in text(panel.readout)
    outcome = of_tokens("tpot", panel.result, panel.result)
    assert "On average 1 request is in a step, as before." in outcome.why


def test_a_long_step_counts_for_as_long_as_it_takes_among_those_that_share_one():
    tokens, step = bs.Tokens(9, [3, 1]), bs.StepTime(0, 0, 1)
    run = bs.simulate(bs.Scenario(bs.Trace([0.0, 0.0]), bs.Continuous(4), step, tokens=tokens))
    assert [run.steps.rows.tolist(), run.steps.tokens.tolist()] == [[2, 1, 1], [18, 1, 1]]  # a ms a token
    assert "On average 1.9 requests share a step, as before." in of_tokens("tpot", run, run).why


WHOLE = {"size_or_wait": bs.SizeOrWait(32, 1000), "whole": bs.SizeOrWait(32, float("inf")),
         "at_least": bs.AtLeast(8, 32)}  # fmt: skip


@pytest.mark.parametrize("rule", WHOLE)
def test_whole_batches_are_seen_played_and_compared_with_the_same_controls(panel, rule):
    panel.controls["rate_per_s"].value = 1
    panel.compare.pin.click()
    panel.controls["batching"].value = rule
    assert panel.status.value == ""
    assert panel.result.scenario.rule == WHOLE[rule]
    for name in ("max_num_seqs", "kv_blocks", "token_map", "reserve"):
        assert not is_shown(panel, name)
    assert is_shown(panel, "max_batch_size")
    surface = panel.data.surface
    assert (surface.x, surface.y) == WHOLE[rule].map_knobs
    assert "Whole batches have no settings here" in panel.note.value
    assert "batching=continuous" in panel.compare.table.value
    assert 'aria-current="step"' in panel.pseudocode.value
    panel.turn_to(panel.play)
    player, result = panel.play.player, panel.result
    lines, acted = [line.text for line in pseudocode(result.scenario)], set()
    for _ in range(80):
        player.next()
        time_s = player.time_s
        acts = lines[player.line]
        acted.add(acts)
        marked = panel.pseudocode.value.partition('aria-current="step"')[2].partition("</div>")[0]
        assert html.escape(acts) in marked
        waits = (result.arrival_s <= time_s) & (result.start_s > time_s)
        steps = result.steps
        busy = bool(((steps.start_s <= time_s) & (time_s < steps.finish_s)).any())
        if acts.startswith("while"):
            assert not waits.any()
        elif acts.startswith("if every"):
            assert waits.any()
            assert busy
        elif acts.startswith("else"):
            assert waits.any()
            assert not busy
        else:
            assert time_s in result.start_s
        assert f"{waits.sum()} waiting" in player.words or not waits.any()
    assert len(acted) >= 3
    panel.controls["batching"].value = "continuous"
    assert panel.note.value == ""
    assert panel.data.surface.y == "max_num_batched_tokens"


def test_a_click_on_the_map_of_whole_batches_moves_to_its_rule(panel):
    panel.move_to(FIRST.replace(batching="size_or_wait", rate_per_s=1, max_batch_size=16))
    for arrow in ("up",) * 9:
        panel.screen._receive(None, {"key": arrow}, None)
    assert (panel.state.batching, panel.state.max_batch_size) == ("whole", 16)
    panel.screen._receive(None, {"key": "down"}, None)
    assert (panel.state.batching, panel.state.max_wait_ms) == ("size_or_wait", 10_000)


def test_arrows_on_the_map_of_memory_move_the_memory(panel):
    panel.controls["token_map"].value = "memory"
    panel.screen._receive(None, {"key": "up"}, None)
    assert panel.state.kv_blocks in panel.data.surface.y_values
    assert (panel.state.kv_blocks > 2599, panel.state.max_num_batched_tokens) == (True, 2048)


def test_the_server_that_is_seen_and_played_is_said_and_can_be_chosen(panel):
    looked_at(panel)
    assert is_hidden(panel.server)
    panel.controls["servers"].value = 2
    assert not is_hidden(panel.server)
    assert panel.server.options[panel.server.value][0] == "Server 1 of 2"
    panel.turn_to(panel.play)
    assert ", server 1 of 2: " in panel.play.player.words
    panel.server.value = 1
    assert ", server 2 of 2: " in panel.play.player.words
    assert "of server 2 of 2 in these steps" in panel.readout.value
    (lane,) = panel.play.player.clip.lanes
    mine = panel.data.moment(1).seats
    assert set(mine.request) <= set(lane["stays"]["request"])
    panel.large.value = "latency"
    assert any(view.heading.get_text().endswith(", server 2") for view in panel.picture.views.values())
    panel.controls["replicas"].value = 3
    assert panel.server.options[-1] == ("Server 6 of 6", 5)
    panel.controls["replicas"].value = 1
    panel.controls["servers"].value = 1
    assert is_hidden(panel.server)
    assert panel.session.style.server == 0
    assert "server 2" not in panel.readout.value


@pytest.mark.parametrize("refused", [{"kv_blocks": 20}, {"queue_limit": 3, "workload": "closed"}])
def test_turning_to_tokens_whose_last_state_is_refused_shows_no_foreign_picture(panel, refused):
    for control, value in refused.items():
        panel.controls[control].value = value
    said = text(panel.status)
    panel.controls["mode"].value = "requests"
    assert panel.session.data_state.mode == "requests"
    panel.controls["mode"].value = "tokens"
    assert panel.session.data_state.mode == panel.state.mode == "tokens"
    assert "TTFT" in panel.readout.value
    assert text(panel.status).startswith(said.rstrip("."))
    assert "The picture shows" in text(panel.status)
    assert 'role="alert"' in panel.status.value
    assert {name: getattr(panel.state, name) for name in refused} == refused


@pytest.mark.parametrize(
    ("link", "shown"),
    [
        ("mode=tokens&kv_blocks=20&rate_per_s=3", "kv_blocks = 2599"),
        ("mode=tokens&chunked=off&servers=2", "Chunked prefill = On"),
    ],
)
def test_a_link_whose_first_run_is_refused_shows_the_nearest_setting_and_says_so(link, shown):
    panel = bs.explore(requests=300, link=link, play=True)
    looked_at(panel)
    assert panel.screen.frame
    assert "TTFT" in panel.readout.value
    assert "must fit into the" in panel.status.value
    assert f"The picture shows {shown}" in text(panel.status)
    assert panel.state == State.from_link(link)
    panel.controls["kv_blocks"].value = 2000
    panel.controls["chunked"].value = "on"
    assert panel.status.value == ""
    assert panel.result.scenario == panel.scenario
