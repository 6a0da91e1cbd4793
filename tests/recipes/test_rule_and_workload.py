"""CONTRIBUTING's recipes for a rule and a workload, followed literally in a copy of the package."""

import re
from pathlib import Path

import pytest
from project_copies import CONTRIBUTING, NUMBERS, copied, python

pytestmark = pytest.mark.plain  # a copy compiles each loop again

COPIED = ("batchsim", "docs/book", "tests/oracles", "tests/data")

RULE = '''
"""Even batches: an odd request waits for another, or for the timer."""

import math
from dataclasses import dataclass
from typing import Any

from batchsim._clock import later
from batchsim.scenario.parameters import parameter
from batchsim.scenario.rules import rule as rule_api
from batchsim.scenario.rules.rule import Decision, Rule, Step, Trigger, Waiting


def decide(now_s: float, waiting: Waiting, idle: int, state: Any, params: Any) -> Decision:
    """Send as many whole multiples as wait, or what waits once the oldest has waited."""
    if waiting.length >= params.max_batch_size:
        return rule_api.START, params.max_batch_size, rule_api.FULL
    whole = waiting.length // params.multiple * params.multiple
    if whole > 0:
        return rule_api.START, whole, rule_api.ENOUGH
    due_s = later(rule_api.oldest_s(waiting), params.max_wait_s)
    if now_s >= due_s:
        return rule_api.START, waiting.length, rule_api.WAIT if now_s == due_s else rule_api.BACKLOG
    if waiting.ended and params.max_wait_s == math.inf:
        return rule_api.START, waiting.length, rule_api.DRAIN
    return rule_api.NOTHING, 0, rule_api.FULL


@dataclass(frozen=True)
class Multiples(Rule):
    """A batch leaves when it holds a multiple of `multiple`, or when its oldest request has waited."""

    max_batch_size: int = rule_api.max_batch_size(default=32)
    max_wait_ms: float = rule_api.max_wait_ms(default=10.0)
    multiple: int = parameter(
        "Multiple", "Batches hold a multiple of this", slider=(1, 8, 1), usual=2, default=2
    )

    decide = staticmethod(decide)
    wake_s = staticmethod(rule_api.deadline_s)
    title = "Multiples"

    @property
    def steps(self) -> tuple[Step, ...]:
        because = f"{self.multiple} or more requests wait"
        whole = Step(f"{self.multiple} or more wait", "send multiples", Trigger.ENOUGH, because, "multiple")
        return rule_api.send_full(self.max_batch_size), whole, *rule_api.send_after(self.max_wait_ms)
'''
NAIVE = '''
@dataclass
class Several(Naive):
    """So many at a time, or whoever has waited."""

    multiple: int = 2

    def look(self, now):
        while self.waiting and None in self.computing:
            count, due = len(self.waiting), self.deadline(self.waiting[0])
            if count >= self.max_batch_size:
                size, why = self.max_batch_size, FULL
            elif count >= self.multiple:
                size, why = count - count % self.multiple, ENOUGH
            elif now >= due:
                size, why = count, WAIT if now == due else BACKLOG
            elif self.max_wait_ms == math.inf and not self.someone_may_come():
                size, why = count, DRAIN
            else:
                return
            self.take(now, self.pull(size), why)


NAIVE = {
    "Multiples": Several,
'''
WORKLOAD = '''
@dataclass(frozen=True, repr=False)
class Groups(OpenLoop):
    """Evenly spaced groups of `group_size` requests that arrive together."""

    rate_per_s: float = parameter(
        "Arrival rate (per s)", "Mean number of requests per second", type="real", above=0
    )
    group_size: int = parameter("Group size", "Requests that arrive together", slider=(1, 64, 1), usual=4)

    title = "Groups"

    @property
    def offered_per_s(self) -> float:
        return self.rate_per_s

    @property
    def dispersion(self) -> float:
        return 0.0

    def with_rate(self, rate_per_s: float) -> Self:
        return replace(self, rate_per_s=rate_per_s)

    def chunks_s(self, seed: np.random.SeedSequence, requests: int, size: int) -> Iterator[np.ndarray]:
        for begin in range(0, requests, size):
            number = np.arange(begin, min(begin + size, requests)) // self.group_size + 1
            yield number * self.group_size / self.rate_per_s


# The registry: '''

# By file: what is found there, and what takes its place. A new file has only the latter.
RULE_STEPS = {
    "batchsim/scenario/rules/multiples.py": [("", RULE)],
    "batchsim/scenario/rules/__init__.py": [
        ("\nfrom batchsim.scenario.rules.preferred_sizes", "\nfrom batchsim.scenario.rules.multiples import "
         "Multiples\nfrom batchsim.scenario.rules.preferred_sizes"),
        ("    LearnedSizes, CompetingWindows,", "    LearnedSizes, CompetingWindows, Multiples,"),
    ],
    "batchsim/__init__.py": [
        ("    LearnedSizes,\n", "    LearnedSizes,\n    Multiples,\n"),
        ('"LoadTest", "Lognormal",', '"LoadTest", "Lognormal", "Multiples",'),
    ],
    "tests/oracles/naive_rules.py": [("\nNAIVE = {\n", NAIVE)],
    "tests/oracles/plans.py": [
        ("SERVERS_RULES = [\n", "SERVERS_RULES = [\n    bs.Multiples(7, 3.3, 3),\n"),
    ],
}  # fmt: skip
WORKLOAD_STEPS = {
    "batchsim/scenario/workload.py": [
        ("\n# The registry: ", WORKLOAD),
        ("OnOff, Diurnal, ClosedLoop,\n", "OnOff, Diurnal, ClosedLoop, Groups,\n"),
    ],
    "batchsim/__init__.py": [
        ("Gamma, OnOff, OpenLoop, Poisson\n", "Gamma, Groups, OnOff, OpenLoop, Poisson\n"),
        ('"Geometric",', '"Geometric", "Groups",'),
    ],
    "tests/oracles/plans.py": [("WORKLOADS = [\n", "WORKLOADS = [\n    bs.Groups(900.0, 3),\n")],
}

CHECKS = """
import json, sys
sys.path[:0] = ["tests", "docs/book"]
import numpy as np
from typer.testing import CliRunner
import reference
from oracles.agreement import assert_requests_agree
from oracles.plans import SERVERS_RULES, WORKLOADS
import batchsim as bs
from batchsim.cli import app
from batchsim.engines.draws import draw, draw_cached
from batchsim.view.explorer.rows import CONTROLS
from batchsim.view.explorer.state import State

scenario = bs.Scenario(bs.Groups(800, 3), bs.Multiples(8, 5, 2), bs.Affine(5, 0.25), servers=2)
simpy, numba = (bs.simulate(scenario, 500, engine=engine) for engine in ("simpy", "compiled"))
assert (simpy.latency_ms > 0).all() and np.array_equal(simpy.latency_ms, numba.latency_ms)
sizes = simpy.batches.batch_size
assert np.array_equal(sizes, numba.batches.batch_size) and {2, 4} <= set(sizes)
assert_requests_agree(draw(scenario, 200, 0))
assert np.array_equal(draw(scenario, 500, 0).arrival_s, draw_cached(scenario, 500, 0, 8).arrival_s)
assert len(simpy.to_frame()) == 500 and "Multiples" in repr(simpy) + repr(scenario)
table = bs.sweep(scenario, {"group_size": [1, 3], "multiple": [1, 2]}, requests=500)
assert table["mean_latency_ms"].nunique() == 4
assert bs.Scenario.from_toml(scenario.to_toml()) == scenario and 'kind = "Groups"' in scenario.to_toml()
shell = ["simulate", "--workload", "Groups(800, 3)", "--rule", "Multiples(8, 5, 2)", "--servers", "2",
         "--fixed-ms", "5", "--per-item-ms", "0.25", "--requests", "500", "--json"]
answer = CliRunner().invoke(app, shell)
assert answer.exit_code == 0, answer.output
assert json.loads(answer.stdout)["scenario"]["rule"]["kind"] == "Multiples", answer.stdout
state = State(workload="groups", group_size=3, rule="multiples", multiple=2, rate_per_s=800, max_batch_size=8)
assert state.scenario().workload == scenario.workload and state.scenario().rule.multiple == 2
assert CONTROLS["multiple"].label == "Multiple" and CONTROLS["group_size"].page == "Arrivals"
assert not isinstance(bs.theory.expected(scenario), bs.theory.Answer)
assert reference.missing() == set()
assert any(type(each) is bs.Multiples for each in SERVERS_RULES) and bs.Groups(900.0, 3) in WORKLOADS
print("all checked")
"""


@pytest.fixture(scope="module")
def copy(tmp_path_factory):
    return copied(tmp_path_factory.mktemp("copy"), *COPIED)


def follow(steps, folder):
    for name, changes in steps.items():
        path = folder / name
        text = path.read_text() if path.exists() else ""
        for before, after in changes:
            assert text.count(before) == 1 or not text, (name, before)
            text = text.replace(before, after) if before else after.lstrip()
        path.write_text(text)


@pytest.mark.parametrize(("addition", "steps"), [("rule", RULE_STEPS), ("workload", WORKLOAD_STEPS)])
def test_contributing_names_as_many_files_as_the_addition_takes(addition, steps):
    (recipe,) = re.findall(rf"^\| a {addition} \| (.*) \|$", CONTRIBUTING, re.MULTILINE)
    assert NUMBERS[recipe.split()[0]] == len(steps)
    for name in steps:
        assert Path(name).name in recipe or str(Path(name).parent).removeprefix("batchsim/") in recipe, name


def test_a_rule_and_a_workload_that_follow_the_recipes_work_everywhere(copy):
    follow(RULE_STEPS, copy)
    follow(WORKLOAD_STEPS, copy)
    done = python(copy, "-c", CHECKS, NUMBA_CACHE_DIR=str(copy / "cache"))
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "all checked"
