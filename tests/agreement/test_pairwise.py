"""A pairwise cover of all that a scenario is made of: `oracles/pairwise.py` has the table."""

import dataclasses
import os
import sys
from subprocess import run

import pytest
from oracles import pairwise
from places import TESTS

import batchsim as bs
from batchsim.scenario.autoscale import SIGNALS
from batchsim.scenario.routing import router_of
from batchsim.scenario.rules import RULES, RULES_OF_SIZES
from batchsim.scenario.workload import WORKLOADS


@pytest.mark.parametrize("kind", pairwise.TABLES)
def test_every_pair_of_levels_is_in_a_scenario_or_is_refused_with_a_reason(kind):
    found, levels = pairwise.stored()[kind], pairwise.levels_of(kind)
    covered = set().union(*(pairwise.pairs_of(row.items()) for row in found["rows"]))
    assert covered | {*found["refused"]} == pairwise.pairs_of(levels), (
        "python -m oracles.pairwise writes it again"
    )
    assert not covered & {*found["refused"]}
    default = dict.fromkeys(pairwise.TABLES[kind], 0)
    for pair in found["refused"]:
        with pytest.raises((ValueError, TypeError), match=r"must|need|give"):
            pairwise.scenario_of(kind, default | dict(pair))


def test_the_table_has_all_that_there_is():
    common, requests = pairwise.COMMON, pairwise.OF_REQUESTS
    fields = {field.name for field in dataclasses.fields(bs.Scenario)} - {"tokens"}
    assert fields <= {*common, *requests}
    assert {field.name for field in dataclasses.fields(bs.Tokens)} <= {*pairwise.OF_TOKENS}
    assert {*map(type, common["workload"])} == {*WORKLOADS, bs.Trace}
    assert {router_of(each).name for each in pairwise.OF_TOKENS["routing"]} == {*bs.routing.NAMES}
    assert {each.signal for each in common["autoscale"][1:]} == {*SIGNALS}
    for rule in (*RULES, *RULES_OF_SIZES):
        own = set().union(*pairwise.MORE.get(rule, []))
        assert {*rule.parameters()} <= own | {*requests}, rule


@pytest.mark.dear("some hundred scenarios go through everything that takes a scenario")
@pytest.mark.parametrize("kind", pairwise.TABLES)  # a process each: to import all takes seconds
def test_a_scenario_has_the_same_numbers_everywhere(kind):
    # The loops of requests run as Python here: to compile them takes minutes, for each rule, with priorities,
    # and with each kind of routing. `tests/agreement/test_agreement.py` compares the compiled ones.
    environment = {**os.environ, "NUMBA_DISABLE_JIT": "1" if kind == "requests" else "0"}
    done = run(
        [sys.executable, "-m", "oracles.pairwise_checks", kind],
        cwd=TESTS,
        env=environment | {"PYTHONPATH": str(TESTS.parent)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
