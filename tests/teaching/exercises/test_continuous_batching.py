"""The exercises of lesson 10: what is right, from simulated runs."""

import math

import pytest

import batchsim as bs
from batchsim.teaching import check
from batchsim.teaching.exercises import continuous_batching as lesson

pytestmark = pytest.mark.usefixtures("right_once")


def told(number, answer, capsys):
    check(number, answer)
    return capsys.readouterr().out


def test_the_useful_share_is_that_of_a_simulated_batch(capsys):
    answers = lesson.UsefulShare.answers
    tokens = bs.Tokens(100, [*answers])
    scenario = bs.Scenario(
        bs.Trace([0.0] * 8), bs.SizeOrWait(8, math.inf), bs.StepTime(10, 0, 0), tokens=tokens
    )
    result = bs.simulate(scenario)
    share = sum(answers) / result.steps.rows.sum()
    assert lesson.UsefulShare().right() == pytest.approx(share)
    assert told("10.1", share, capsys).startswith("Right: ")


def test_the_steps_of_a_prompt_are_those_of_a_simulated_run(capsys):
    task = lesson.StepsOfPrompt()
    prompts, outputs = [*[1] * task.others, task.prompt], [*[500] * task.others, 5]
    rule = bs.Continuous(max_num_seqs=128, max_num_batched_tokens=task.budget)
    arrivals_s = [0.0] * task.others + [1.0]
    scenario = bs.Scenario(
        bs.Trace(arrivals_s), rule, bs.StepTime(10, 0, 0), tokens=bs.Tokens(prompts, outputs)
    )
    result = bs.simulate(scenario)
    last = task.others
    began, made = result.log.batch_index[last], result.log.token_step[last]
    assert task.right() == made - began + 1 == 10
    assert told("10.2", 10, capsys).startswith("Right: ")
