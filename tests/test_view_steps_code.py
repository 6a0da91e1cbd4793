"""Continuous batching as pseudo-code: at which line the choice of a step's rows ends."""

import numpy as np
import pytest

import batchsim as bs
from batchsim.view.film.pseudocode import (
    MOST_LINES,
    endings_of,
    pseudocode,
    sentence,
    shares,
    step_lines,
    to_html,
)
from batchsim.view.film.token_film import StepFilm

STEP = bs.StepTime(10, 0, 0)
RULES = (
    bs.Continuous(),
    bs.Continuous(8, 300, kv_blocks=90),
    bs.Continuous(8, 300, kv_blocks=90, reserve="life"),
    bs.Continuous(8, 300, first="prefill", chunked=False),
    bs.Continuous(8, 300, chunked=False, kv_blocks=90),
)


def run(rule, arrivals_s, tokens, **more):
    return bs.simulate(bs.Scenario(bs.Trace(arrivals_s), rule, STEP, tokens=tokens, **more))


def words(result):
    """Return the condition of the line at which each step ended."""
    lines = step_lines(result.scenario.rule)
    return [lines[i].text.partition(":")[0].removeprefix("el") for i in endings_of(result)]


@pytest.mark.parametrize("rule", RULES, ids=repr)
def test_every_rule_has_few_lines_and_each_step_ends_at_one_of_them(rule):
    tokens = bs.Tokens(bs.Uniform(20, 200), bs.Uniform(1, 60))
    result = bs.simulate(bs.Scenario(bs.Poisson(9), rule, STEP, tokens=tokens), 400)
    lines, left = pseudocode(rule), shares(result)
    assert len(lines) <= MOST_LINES
    assert sum(share for share in left if share is not None) == pytest.approx(1)
    assert all((share is None) is (not line.ending) for share, line in zip(left, lines, strict=True))
    assert "steps" in sentence(lines, left)
    assert "In such a step" in to_html(lines, left)


def test_a_step_ends_where_others_wait_for_a_seat():
    result = run(bs.Continuous(1), [0.0, 0.0], bs.Tokens(5, 2))
    assert words(result) == ["if 1 run", "if 1 run", "se", "se"]


def test_a_step_ends_where_the_budget_is_used_and_others_wait():
    result = run(bs.Continuous(4, 5), [0.0, 0.0], bs.Tokens(5, 1))
    assert words(result) == ["if the budget is used", "se"]


def test_a_step_ends_where_no_blocks_are_free_for_the_next():
    result = run(bs.Continuous(4, 99, kv_blocks=3, block_size=4), [0.0, 0.0], bs.Tokens(8, 2))
    assert words(result)[0] == "if no blocks for the next"


def test_a_step_that_preempts_ends_there():
    result = run(bs.Continuous(4, 99, kv_blocks=4, block_size=4), [0.0, 0.0], bs.Tokens(7, 5))
    assert result.steps.preempted.sum() > 0
    preempting = np.array(words(result)) == "if blocks run out"
    assert (preempting == (result.steps.preempted > 0)).all()


def test_a_moment_of_the_film_says_the_step_that_is_computed_then():
    result = run(bs.Continuous(4, 99, kv_blocks=40), [0.0, 0.0, 1.0], bs.Tokens(7, 2))
    film = StepFilm.of(result)
    said = film.snapshot(0.005).said()
    assert "a step of 14 tokens for 2 requests; 2 run, 0 wait; 2 of 40 blocks are taken" in said
    assert "all that wait join; 2 arrived, 0 served" in said
    idle = film.snapshot(0.5)
    assert (idle.step, idle.acting(), idle.served) == (-1, None, 2)
    assert "nobody is there" in idle.said()
    assert film.instants().round(3).tolist() == [0, 0.01, 0.02, 1, 1.01, 1.02]
