"""Films of token generation: what a server does at any time, and as many wait and sit as the steps say."""

import re

import numpy as np
import pytest
from oracles.naive_film import Moment

import batchsim as bs
from batchsim.view.film.film import by_replica
from batchsim.view.film.token_film import SeatFilm, TokenFilm

CARD = bs.StepTime(6.88, 9.997, 0.09631, 1.922e-4, 1.225e-6)  # an 8B model on an RTX 4090
TOKENS = bs.Tokens(bs.Lognormal(500, 1, at_most=4000), bs.Geometric(150))
WHOLE = bs.Scenario(bs.Poisson(6), bs.SizeOrWait(4, 300), CARD, tokens=TOKENS)
SHORT = bs.Continuous(64, kv_blocks=320)


def test_a_moment_says_the_step_that_is_computed_then():
    tokens, step = bs.Tokens(7, 2), bs.StepTime(10, 0, 0)
    rule = bs.Continuous(4, 99, kv_blocks=40)
    film = TokenFilm(bs.simulate(bs.Scenario(bs.Trace([0.0, 0.0, 1.0]), rule, step, tokens=tokens)))
    said = film.words(0.005)
    assert "a step of 14 tokens for 2 requests; 2 run, 0 wait; 2 of 40 blocks are taken" in said
    assert "all that wait join; 2 arrived, 0 served" in said
    assert film.line(0.5) is None
    assert "nobody is there; 2 arrived, 2 served" in film.words(0.5)
    assert film.instants.round(3).tolist() == [0, 0.01, 0.02, 1, 1.01, 1.02]


@pytest.mark.parametrize("knobs", [{}, {"servers": 2}, {"replicas": 3, "rate_per_s": 9}], ids=str)
def test_a_server_of_whole_batches_says_how_far_its_batch_is_and_why_the_next_one_waits(knobs):
    result = bs.simulate(WHOLE.replace(knobs), 150)
    steps, seen = result.steps, set()
    for server in range(result.scenario.all_servers):
        film, starts_s = TokenFilm(result, server), steps.start_s[steps.server == server]
        for time_s in film.instants[::5].tolist():
            now, said = Moment(result, time_s), film.words(time_s)
            seen.add(now.state())
            assert now.state() in said
            assert film.lines[film.line(time_s)].activity == ("" if now.leaves(0) else now.state())
            waits = f"{len(now.waiting)} waiting{by_replica(now.at_replicas)}, the oldest"
            assert (waits in said) == bool(now.waiting)
            assert f"{now.arrived} arrived, {now.served} served" in said
            members = now.computing[server]
            assert ("server is idle" in said) == (members is None)
            if members:
                outputs, start_s = result.output_tokens[members], result.start_s[members[0]]
                made = np.count_nonzero((starts_s >= start_s) & (starts_s <= time_s)) - 1
                done = f"token {made + 1} of {outputs.max():,}, {(outputs <= made).sum()} done"
                assert f"a batch of {outputs.size}, {done if made else 'the prompts'};" in said
    assert seen >= {"leaves", "waiting for company", "waiting for a server"}


@pytest.mark.parametrize(
    "knobs",
    [
        {"rate_per_s": 4, "rule": SHORT},
        {"rate_per_s": 4, "rule": bs.SizeOrWait(8, 500), "servers": 2},
        {"rate_per_s": 9, "rule": bs.Continuous(4), "queue_limit": 5},
        {"rate_per_s": 9, "rule": bs.Continuous(4), "timeout_ms": 800, "servers": 2},
    ],
    ids=str,
)  # fmt: skip
def test_as_many_wait_and_sit_as_the_steps_say(knobs):
    result = bs.simulate(WHOLE.replace(**knobs), 300)
    film, steps = SeatFilm(result), result.steps
    last = np.append(np.diff(steps.start_s) > 0, True)  # of those that begin at one instant
    for number in np.flatnonzero(last)[::7].tolist():
        waiting, *seated = map(int, re.findall(r"\d+", film.words(float(steps.start_s[number]))))
        assert waiting == steps.waiting[number]
        if result.scenario.servers == 1:
            assert sum(seated) == steps.running[number]
    assert film.words(float(film.instants[-1])) == "0 waiting, all seats empty"
    if isinstance(film.rule, bs.SizeOrWait):
        assert TokenFilm(result).instants.tolist() == film.instants.tolist()
