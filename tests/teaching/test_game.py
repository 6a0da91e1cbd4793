"""The game of the batcher: sends are simulated, in Python as in the page."""

import json
import shutil
import subprocess

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from shell import graded

import batchsim as bs
from batchsim.simulate import simulate
from batchsim.teaching import be_the_batcher, check, progress, progress_store
from batchsim.teaching.game import SERVICE, UNTIL_S, ByHand, Game, checked
from batchsim.view.scripts import JS, bundle

NODE = shutil.which("node")
AT_ONCE = np.arange(0, UNTIL_S, 0.001).tolist()
SENDS = st.lists(st.floats(0, UNTIL_S), max_size=60).map(sorted)
RULES = [bs.SizeOrWait(32, 0), bs.SizeOrWait(32, 10), bs.SizeOrWait(8, 4), bs.AtLeast(3, 32)]


@pytest.fixture
def kept(tmp_path, monkeypatch):
    """The folder of a student who begins."""
    monkeypatch.setenv("BATCHSIM_PROGRESS", str(tmp_path / "progress.json"))
    progress_store.forget()
    progress(name="Ann")
    return tmp_path


@pytest.mark.parametrize("rule", RULES, ids=repr)
def test_sends_at_a_rules_instants_make_its_batches(rule):
    for seed in "abc":
        game = Game(seed)
        by_rule = game.run(rule)
        sends_s = [float(at_s) for at_s in by_rule.batches.start_s if at_s < UNTIL_S]
        by_hand = game.run(ByHand(checked(sends_s), rule.max_batch_size))
        count = len(sends_s)
        for column in ("start_s", "finish_s", "batch_size"):
            ours, rules = (getattr(run.batches, column)[:count] for run in (by_hand, by_rule))
            assert np.array_equal(ours, rules)


@given(SENDS, st.text("abc", max_size=3))
def test_whatever_is_sent_no_request_is_lost_and_the_server_computes_one_batch_at_a_time(sends_s, seed):
    result = Game(seed).run(ByHand(checked(sends_s)))
    batches = result.batches
    assert batches.batch_size.sum() == result.arrival_s.size
    assert batches.batch_size.max() <= 32
    assert (batches.start_s[1:] >= batches.finish_s[:-1]).all()
    assert (result.start_s >= result.arrival_s).all()
    assert result.latency_ms.min() >= 1000 * SERVICE(1) - 1e-6


@pytest.mark.skipif(NODE is None, reason="there is no Node, which runs the page's script")
def test_the_page_replays_sends_as_python_simulates_them(tmp_path):
    random = np.random.default_rng(3)
    games, jobs = [], []
    for seed in range(40):
        game = be_the_batcher()
        game.game = Game(str(seed))
        count = int(random.integers(0, 80))
        sends_s = checked(np.sort(random.random(count) * UNTIL_S).round(int(random.integers(2, 10))).tolist())
        setting = game.given["setting"] | {"arrival_s": game.game.traffic.times_s.tolist()}
        games.append(game.game.run(ByHand(sends_s)))
        jobs.append([setting, sends_s])
    (tmp_path / "jobs.json").write_text(json.dumps(jobs))
    told = "for (const [setting, sends_s] of JSON.parse(readFileSync(process.argv[2]))) {\n"
    told += "  console.log(JSON.stringify(modules.play.replay(setting, sends_s)));\n}"
    script = 'import { readFileSync } from "node:fs";\n' + bundle(JS / "play.js", told)
    (tmp_path / "replay.mjs").write_text(script)
    command = [NODE, str(tmp_path / "replay.mjs"), str(tmp_path / "jobs.json")]
    ran = subprocess.run(command, capture_output=True, text=True, check=True)
    for line, result in zip(ran.stdout.splitlines(), games, strict=True):
        found = json.loads(line)
        assert found["start_s"] == result.start_s.tolist()
        assert found["finish_s"] == result.finish_s.tolist()
        assert found["batches"]["size"] == result.batches.batch_size.tolist()


def test_the_rivals_are_simulated_on_the_same_requests():
    game = be_the_batcher().play(AT_ONCE)
    rows = {row["name"]: row for row in game.answered["rows"]}
    assert list(rows) == ["You", "Wait of 10 ms", "No wait", "Best possible policy"]
    without = simulate(bs.Scenario(game.game.traffic, bs.SizeOrWait(32, 0), SERVICE))
    assert rows["No wait"]["mean_ms"] == without.mean_latency_ms
    assert (
        rows["You"]["mean_ms"] - rows["No wait"]["mean_ms"] < 1
    )  # who presses each millisecond waits that long
    assert rows["You"]["p99_ms"] == game.result.percentile(99)


def test_what_cannot_be_sent_is_refused():
    for wrong in ("0.1", [0.2, 0.1], [-1], [float("nan")], [3], [True], None, [0.1] * 20_000):
        with pytest.raises((TypeError, ValueError)):
            be_the_batcher().play(wrong)
    with pytest.raises(ValueError, match="play first"):
        be_the_batcher().result  # noqa: B018
    with pytest.raises(ValueError, match="exercise must be"):
        be_the_batcher("one")


def test_a_game_without_a_send_loses_nothing():
    game = be_the_batcher().play([])
    assert game.answered["rows"][0]["batches"] >= 5
    assert game.answered["rows"][0]["mean_ms"] > 80


def test_a_student_has_their_own_requests_the_same_ones_each_time(kept):
    first, again = be_the_batcher("01.4"), be_the_batcher("01.4")
    assert first.given == again.given
    progress().start_over("Bob")
    assert be_the_batcher("01.4").given["setting"] != first.given["setting"]


def test_a_game_that_beats_the_wait_solves_its_exercise(kept, capsys):
    game = be_the_batcher("01.4")
    check("01.4", game)
    assert "play the game" in capsys.readouterr().out
    check("01.4", game.play(AT_ONCE))
    assert capsys.readouterr().out.startswith("Right: ")
    file = progress().export(kept / "ann.json")
    (ann,) = json.loads(graded(file, "--json").stdout)["students"]
    assert (ann["01_solved"], ann["01_tried"]) == (1, 1)
