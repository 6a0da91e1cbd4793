"""The rules of real servers: both engines and an independent spelling of each."""

from hypothesis import given, settings
from hypothesis import strategies as st
from oracles.plans import SERVERS_RULES, TIMERS, plans_with_ties, scenarios_at_random
from test_reference_engine import assert_same, naive_of
from test_rules import assert_equal

import batchsim as bs
from batchsim.engines import compiled, reference
from batchsim.engines.draws import draw
from batchsim.result import Result, Run


def assert_three_alike(plan):
    log = reference.run(plan)
    assert_equal(compiled.run(plan), log)
    assert_same(Result((Run(plan.scenario, log),), 0, ""), naive_of(plan))


@settings(max_examples=400)
@given(plans_with_ties(kinds=[*TIMERS, bs.LearnedCork]))
def test_both_engines_and_the_oracle_agree_where_everything_is_tied(plan):
    assert_three_alike(plan)


@settings(max_examples=150)
@given(scenarios_at_random(rules=SERVERS_RULES), st.integers(0, 99))
def test_both_engines_and_the_oracle_agree_on_random_traffic(scenario, seed):
    assert_three_alike(draw(scenario, 200, seed))
