"""The explorer's page Config: a pasted text becomes settings, a film, marks on its lines, and a diff."""

import json
import re
import threading
from types import SimpleNamespace

import pytest
from hands import looked_at
from places import DATA

import batchsim as bs
from batchsim import servers
from batchsim.view.explorer import ahead
from batchsim.view.explorer.pages import config as page
from batchsim.view.explorer.session import Uncompiled
from batchsim.view.explorer.state import DEFAULTS

FOLDER = DATA / "servers"
FILES = sorted(path for path in FOLDER.rglob("*") if path.is_file())
TRITON = """\
name: "resnet"  # kept
max_batch_size: 16
dynamic_batching {
  max_queue_delay_microseconds: 500000
  prefered_batch_size: [8]
}
"""


@pytest.fixture(scope="module")
def made():
    return bs.explore(requests=5000)


@pytest.fixture
def panel(made):
    made.config.box.text = ""
    made.tabs.selected_index = 0
    made.session.left.update(DEFAULTS)
    made.session.reset()
    return made


@pytest.fixture
def unsearched(panel, monkeypatch):
    """The panel, whose pasted texts are read, but neither checked nor searched for better settings."""
    idle = SimpleNamespace(submit=lambda *_: None)
    monkeypatch.setattr(panel.session, "requests", 300)
    monkeypatch.setattr(page, "thread", lambda _: idle)
    return panel


@pytest.fixture
def linted(panel, monkeypatch):
    """The panel, whose pasted texts are checked, but not searched for better settings."""
    monkeypatch.setattr(page.ConfigPage, "_proposed", lambda *_: {})
    return panel


@pytest.fixture(scope="module")
def searched(made):
    """The answer to TRITON, and its scenario: several tests read what one search found."""
    made.config.box.text = ""
    made.session.left.update(DEFAULTS)
    made.session.reset()
    return answered(made, TRITON), made.scenario


def answered(panel, text):
    """Paste a text, and return the answer once the search is over."""
    panel.config.box.text = text
    if panel.config.job is not None:
        panel.config.job.result(timeout=120)
    return panel.config.box.answer


def marks(answer):
    return {line: words for line, _, words in answer["lines"] if words}


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}-{path.name}")
def test_an_example_of_each_format_gives_the_scenario_that_it_means(unsearched, path):
    panel, server = unsearched, path.parent.name
    if server in servers.TOKEN_SERVERS:
        panel.controls["mode"].value = "tokens"
    before, text = panel.scenario, path.read_text()
    panel.config.box.text = text
    answer = panel.config.box.answer
    config = servers.parse(text)
    if server in servers.SIZE_SERVERS:
        assert "Requests have sizes now" in answer["summary"]
        before = before.replace(workload=panel.scenario.workload)
    if server in servers.TOKEN_SERVERS:  # prompts that its model does not take are cut
        before = before.replace(tokens=panel.scenario.tokens)
    assert panel.scenario == config.apply(before, silent=True)
    assert panel.state.server == server
    assert [line for _, line, _ in answer["lines"]] == [each[: page.LONGEST] for each in text.splitlines()]


@pytest.mark.parametrize("name", ["triton", "tf_serving", "torchserve", "kserve"])
def test_a_written_config_is_read_back_as_the_same_settings(unsearched, name):
    panel = unsearched
    panel.controls["rule"].value = name
    panel.controls["max_batch_size"].value = 8
    written, rule = servers.write(name, panel.scenario), panel.scenario.rule
    answer = answered(panel, written)
    assert not answer.get("alert"), answer
    assert panel.scenario.rule == rule
    assert panel.state.server == name


def test_prompts_that_the_model_does_not_take_are_cut_and_it_says_so(unsearched):
    panel = unsearched
    panel.controls["mode"].value = "tokens"
    answer = answered(panel, "vllm serve meta --max-model-len 4096")
    lengths = panel.scenario.tokens
    assert (lengths.prompt.at_most, lengths.output.at_most) == (3276, 820)
    assert "cut to fit its model: Longest prompt 3,276 and Longest output 820." in answer["summary"]


def test_a_known_model_without_a_card_has_the_memory_of_the_step_time_s_card(panel):
    panel.controls["mode"].value = "tokens"
    text = "vllm serve meta-llama/Llama-3.1-8B-Instruct --max-num-batched-tokens 256"
    answer = answered(panel, text)
    assert panel.scenario.rule == servers.vllm(
        model="llama-3.1-8b", gpu="rtx-4090", max_num_batched_tokens=256
    )
    assert "Memory is that of rtx-4090." in answer["summary"]
    changed = [line for line in answer["diff"].splitlines() if line.startswith("+vllm")]
    assert len(changed) == 1
    assert "blocks" not in changed[0]  # only what was searched changes
    answer = answered(panel, text.replace("meta-llama/Llama-3.1-8B-Instruct", "acme/Our-7B"))
    assert panel.scenario.rule.kv_blocks is None
    assert any("memory is unlimited" in each for each in answer["below"])


def test_findings_are_on_the_lines_that_they_are_about_and_the_diff_keeps_the_rest(searched):
    answer, _ = searched
    found = marks(answer)
    assert sorted(found) == [4, 5]
    assert re.match("max_queue_delay_microseconds=500000 .* is too long", found[4][0])
    assert "preferred_batch_size" in found[5][0]
    assert "+max_batch_size: 32" in answer["diff"] or "+max_batch_size: 64" in answer["diff"]
    assert answer["diff"].count("\n-") == 2  # the size and the wait
    assert "within the objective (p99 at most 25 ms)" in answer["result"]


def test_the_diff_is_the_one_of_edit_for_the_setting_that_tune_finds(searched):
    answer, scenario = searched
    new = {
        match[1]: int(match[2]) for match in re.finditer(r"^\+ *(\w+): (\d+)", answer["diff"], re.MULTILINE)
    }
    rule = bs.SizeOrWait(new["max_batch_size"], new["max_queue_delay_microseconds"] / 1000)
    assert servers.edited(TRITON, scenario.replace(rule=rule)).diff == answer["diff"]
    assert bs.simulate(scenario.replace(rule=rule), 50_000).percentile(99) < 25


def test_a_limit_in_tokens_is_searched_too(panel):
    text = "text-embeddings-router --model-id m --max-batch-tokens 600 --max-batch-requests 16\n"
    answer = answered(panel, text)
    (new,) = re.findall(r"^\+text.*--max-batch-tokens (\d+)", answer["diff"], re.MULTILINE)
    assert int(new) in panel.data.surface.y_values


@pytest.mark.parametrize(
    "text",
    [
        'max_batch_size: 64\ndynamic_batching { max_queue_delay_microseconds: 1000 }',
        "vllm serve meta-llama/Llama-3.1-8B-Instruct --max-num-batched-tokens 8192",
    ],
    ids=["triton", "vllm"],
)  # fmt: skip
def test_no_setting_is_proposed_that_is_not_better(panel, text):
    if text.startswith("vllm"):
        panel.controls["mode"].value = "tokens"
    answer = answered(panel, text)
    assert "diff" not in answer
    assert " setting meets the objective (" in answer["result"]
    assert answer["result"].endswith("; the search found no better one.")


def test_a_proposed_setting_has_a_lower_latency_than_the_pasted_one(panel):
    answer = answered(panel, TRITON.replace("500000", "20000").replace("  prefered_batch_size: [8]\n", ""))
    assert "No single setting is clearly wrong under" in answer["summary"]
    proposed, now = re.search(r"p99 ([\d.]+) ms \(now p99 ([\d.]+) ms\)", answer["result"]).groups()
    assert float(proposed) < 25 < float(now)


def test_without_an_objective_no_diff_is_proposed(panel):
    panel.controls["objective_ms"].value = None
    answer = answered(panel, TRITON)
    assert "diff" not in answer
    assert answer["result"].startswith("Set an objective")


def test_the_editor_takes_the_large_view_while_the_page_is_open(unsearched):
    panel = unsearched
    assert not panel.config.box.shown
    for large in ("map", panel.state.kind.film):
        panel.large.value = large
        panel.turn_to(panel.config)
        assert panel.config.box.shown
        assert panel.config.box.place == panel.picture.places()[large]
        assert not panel.play.player.shown
        panel.tabs.selected_index = 0
        assert not panel.config.box.shown


def test_a_command_of_vllm_turns_to_tokens(linted):
    panel = linted
    flags = "--max-num-seqs 64 --max-model-len 8192"
    answer = answered(panel, f"vllm serve meta \\\n  {flags} \\\n  --zzz 3")
    assert panel.state.mode == "tokens"
    assert (panel.scenario.rule.max_num_seqs, panel.scenario.rule.max_model_len) == (64, 8192)
    assert marks(answer) == {3: ["Note: vllm does not have --zzz."]}


def test_a_text_whose_loops_are_compiled_first_is_checked_then(linted, monkeypatch):
    session, compiled, checked, run = (
        linted.session,
        threading.Event(),
        threading.Event(),
        linted.session.simulate,
    )

    def simulate(state, *given):
        if state.mode == "tokens" and not compiled.is_set():
            raise Uncompiled
        return run(state, *given)

    monkeypatch.setattr(session, "simulate", simulate)
    monkeypatch.setattr(ahead, "begin", lambda *_: SimpleNamespace(wait=compiled.wait))
    linted.config.box.observe(lambda change: "below" in change["new"] and checked.set(), names="answer")
    linted.config.box.text = "vllm serve meta-llama/Llama-3.1-8B"
    session.say("Compiling")
    assert session.wait.busy
    assert linted.config.box.answer["lines"]
    assert page.CHECKING in linted.config.box.answer["summary"]
    assert linted.config.job is None
    compiled.set()
    assert checked.wait(300)
    assert not linted.config.box.answer.get("alert")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("max_batch_size: many\ndynamic_batching { }", "Line 1, column 17: "),
        ("max_batch_size: 8\ndynamic_batching { max_queue_delay_microseconds: -1 }", "Line 2, column "),
        ("\x00\x01\x02\xff\ufffd", "A config must have a key "),
        ("<script>alert(1)</script>", "A config must have a key "),
        ("models={", "Line 1, column 9: models must be JSON"),
        ("x" * 100_001, "A pasted config must have at most 100,000 characters, got 100,001."),
        ("a " * 40_000, "A config must have at most 30,000 words and signs, got more."),
        ("max_batch_size: 9999999\ndynamic_batching { }", "Line 1, column 1: "),
        ("{" * 5000, ""),
    ],
    ids=lambda value: value[:20],
)
def test_a_bad_text_gives_a_sentence_and_changes_nothing(panel, text, said):
    looked_at(panel)
    before, frame = panel.state, panel.screen.frame
    panel.config.box.text = text
    answer = panel.config.box.answer
    assert answer["alert"]
    assert answer["summary"].startswith(said)
    assert "\n" not in answer["summary"]
    assert len(answer["summary"]) < 600
    assert (panel.state, panel.screen.frame, panel.config.job) == (before, frame, None)


def test_a_text_that_a_page_holds_back_as_too_long_gives_the_same_sentence(panel):
    panel.config._hear(None, {"long": 2_000_000}, [])
    assert panel.config.box.answer == {
        "summary": "A pasted config must have at most 100,000 characters, got 2,000,000.", "alert": True,
    }  # fmt: skip


def test_a_text_that_fits_several_servers_is_read_as_the_chosen_one(unsearched):
    panel = unsearched
    text = "max_batch_size { value: 8 }\nbatch_timeout_micros { value: 2000 }\n"
    panel.controls["rule"].value = "tf_serving"
    answered(panel, text)
    assert panel.scenario.rule == bs.SizeOrWait(8, 2)


def test_a_text_that_is_gone_meanwhile_does_not_answer(panel, monkeypatch):
    reached, go_on = threading.Event(), threading.Event()
    lint = page.lint

    def slow(*arguments, **options):
        reached.set()
        go_on.wait(300)
        return lint(*arguments, **options)

    monkeypatch.setattr(page, "lint", slow)
    panel.config.box.text = TRITON
    first = panel.config.job
    assert reached.wait(300)
    panel.controls["rate_per_s"].value = 900  # meanwhile, the controls move
    assert panel.result.scenario.workload.rate_per_s == 900
    panel.config.box.text = "nonsense"
    go_on.set()
    first.result(60)
    assert panel.config.box.answer["alert"]


def test_another_check_is_offered_once_the_controls_have_moved(linted):
    panel = linted
    panel.turn_to(panel.config)
    answered(panel, TRITON)
    assert not panel.config.box.answer.get("again")
    panel.controls["rate_per_s"].value = 500
    assert panel.config.box.answer["again"]
    panel.config._hear(None, {"again": True}, [])
    panel.config.job.result(60)
    assert not panel.config.box.answer.get("again")
    assert "rate_per_s=500" in panel.config.box.answer["summary"]


def test_a_long_config_shows_the_lines_around_its_marks(linted):
    panel = linted
    answer = answered(panel, "# a comment\n" * 300 + TRITON)
    numbers = [line for line, _, _ in answer["lines"]]
    assert sorted(marks(answer)) == [304, 305]
    assert numbers == list(range(302, 307))


def test_an_answer_is_plain_values_for_the_page(searched):
    answer, _ = searched
    assert json.loads(json.dumps(answer))["lines"][3][0] == 4
