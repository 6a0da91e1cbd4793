"""A moment of a run is what the engine did there."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles.token_plans import crowded_plans, token_plans
from oracles.watched import Watched

import batchsim as bs
from batchsim.result import Result, moments
from batchsim.result.moments import moment, stacks, window
from batchsim.result.seats import seats
from batchsim.result.token_run import TokenRun


class Counting(Watched):
    """An engine that notes how many tokens of each step are of prompts, and how many of answers."""

    def __init__(self, plan):
        super().__init__(plan)
        self.tokens = []

    def start(self, engine):
        started = super().start(engine)
        if started:
            telling = [self.begun[row.request.number][1] is not None for row in engine.rows]
            counts = [row.tokens for row in engine.rows]
            answers = sum(count for count, tells in zip(counts, telling, strict=True) if tells)
            self.tokens.append((sum(counts) - answers, answers))
        return started


@settings(max_examples=60, deadline=None)
@given(st.one_of(token_plans(), crowded_plans()), st.floats(0, 1), st.sampled_from([(3, 9), (120, 600)]))
def test_a_moment_is_what_the_engine_does_and_who_sits_there_in_the_whole_run(plan, part, steps):
    engine = Counting(plan)
    log = engine.run()
    result = Result((TokenRun(plan.scenario, log),), 0, "")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(moments, "STEPS", steps)
        now = moment(result, part * float(log.batch_finish_s.max(initial=0)))
    if now is None:
        assert not (log.batch_server == 0).any()
        return
    assert (log.batch_server[now.steps] == 0).all()
    counted = np.array(engine.tokens)[now.steps]
    np.testing.assert_array_equal(np.stack([now.prompt_tokens, now.answer_tokens], axis=1), counted)
    whole = seats(result).within(now.begin_s, now.end_s)
    here = whole.of(whole.server == 0)
    columns = ("request", "seat", "begin_s", "again")
    assert sorted(zip(*(getattr(now.seats, name).tolist() for name in columns), strict=True)) == sorted(
        zip(*(getattr(here, name).tolist() for name in columns), strict=True)
    )


def test_the_window_of_a_run_has_its_requests_batch_by_batch_where_some_overtake():
    workload = bs.Poisson(2300).with_priorities({1: 0.2, 4: 0.5, 9: 0.3})
    result = bs.simulate(bs.Scenario(workload, bs.SizeOrWait(8, 5), bs.Affine(3, 0.1)), 1500)
    seen = window(result)
    batches = result.batch_index[seen.requests]
    assert (np.diff(batches) >= 0).all()
    assert np.unique(batches).tolist() == list(range(seen.first, seen.last + 1))
    assert seen.begin_s <= result.batches.start_s[seen.first]


SIZES = bs.Lognormal(80, cv=1, at_most=512)
RULE = bs.SizeOrWait(16, 20)
PADDED = bs.PaddedTime(5, 0.25, 0.01)
SERVICES = {
    "padded": PADDED,
    "to lengths": PADDED.padded_to([4, 16], lengths=[128, 256, 512]),
    "packed": bs.PackedTime(5, 0.25, 0.01),
    "by count": bs.Affine(5, 0.25),
}


def sized(service=PADDED, rule=RULE, **more):
    return bs.simulate(bs.Scenario(bs.Poisson(150).with_sizes(SIZES), rule, service, **more), 2000)


@pytest.mark.parametrize("name", SERVICES)
def test_stacks_are_the_batches_of_the_moment_with_their_units(name):
    result = sized(SERVICES[name])
    seen = window(result)
    found = stacks(result, seen.requests, 1000)
    batches = np.arange(seen.first, seen.last + 1)
    assert found.rows.size == batches.size
    for place, number in enumerate(batches):
        mine = found.batch == place
        assert sorted(found.requests[mine]) == np.flatnonzero(result.batch_index == number).tolist()
        assert found.size[mine].tolist() == result.size[found.requests[mine]].tolist()
        if result.batches.units is not None:
            computed = found.computed[place] * found.rows[place] or found.size[mine].sum()
            assert computed == result.batches.units[number]
    assert len(set(found.row)) == found.row.size
    assert stacks(result, seen.requests, 1).rows.size == 1


def test_a_request_that_is_cut_is_drawn_as_it_is_computed():
    result = sized(rule=bs.SizeOrWait(16, 20, max_batch_units=128), oversize_action="truncate")
    assert stacks(result, window(result).requests, 1000).size.max() <= 128 < result.size.max()
