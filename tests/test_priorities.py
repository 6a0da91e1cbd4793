"""Priority levels and delayed requests: who goes first, in both engines and an independent spelling."""

from hypothesis import given, settings
from hypothesis import strategies as st
from oracles.plans import RULES, SERVERS_RULES, TIMERS, plans_with_ties, scenarios_at_random
from test_servers_rules import assert_three_alike

import batchsim as bs
from batchsim.engines.draws import draw

KINDS = [bs.SizeOrWait, bs.AtLeast, bs.PreferredSizes, bs.PreferredUntilLate, bs.LearnedCork, *TIMERS]


@settings(max_examples=600)
@given(plans_with_ties(kinds=KINDS, priorities=True))
def test_both_engines_and_the_oracle_agree_where_everything_is_tied(plan):
    assert_three_alike(plan)


@settings(max_examples=150)
@given(scenarios_at_random(rules=[*RULES, *SERVERS_RULES], priorities=True), st.integers(0, 99))
def test_both_engines_and_the_oracle_agree_on_random_traffic(scenario, seed):
    assert_three_alike(draw(scenario, 200, seed))
