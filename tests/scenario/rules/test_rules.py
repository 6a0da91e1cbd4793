"""The seam for rules: one spelling for both engines, and what a rule says of itself."""

import dataclasses
import math
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from by_hand import run
from hypothesis import given, settings
from oracles.agreement import assert_columns_equal, assert_equal_to_naive, naive_of
from oracles.naive import Naive
from oracles.plans import RULES, SERVERS_RULES, plans_with_ties
from refusals import refusals

import batchsim as bs
from batchsim.engines.compiled import engine as compiled
from batchsim.engines.compiled import instants, summaries
from batchsim.engines.draws import Streams, draw
from batchsim.engines.reference import engine as reference
from batchsim.scenario.rules import RULES as REGISTRY
from batchsim.scenario.rules import RULES_OF_SIZES
from batchsim.scenario.rules.rule import BACKLOG, FREEZE, FULL, NOTHING, START, WAIT, Rule, later, oldest_s
from batchsim.study.surface import surface

SCENARIO = bs.Scenario(bs.Poisson(900), bs.SizeOrWait(8, 5), bs.Affine(5, 0.5))

OF_SERVERS = list({type(rule): rule for rule in SERVERS_RULES}.values())  # one of each class


# Rules that are nobody's: the textbook's as the seam spells it, one that freezes, one that remembers.


class SpelledParams(NamedTuple):
    max_batch_size: int
    max_wait_s: float
    max_batch_units: int
    units: int


class Spelled(bs.SizeOrWait):
    """The textbook's rule, through `decide` and `wake_s` alone."""

    Params = SpelledParams
    decide, wake_s = staticmethod(bs.SizeOrWait.decide), staticmethod(bs.SizeOrWait.wake_s)

    @property
    def params(self):
        return SpelledParams(self.max_batch_size, self.max_wait_ms / 1000, *self.unit_limit)


class FrozenParams(NamedTuple):
    max_batch_size: int
    max_wait_s: float


def decide_frozen(now_s, waiting, idle, state, params):
    if waiting.length >= params.max_batch_size:
        return FREEZE, params.max_batch_size, FULL
    if waiting.length > 0:
        due_s = later(oldest_s(waiting), params.max_wait_s)
        if now_s >= due_s:
            return FREEZE, waiting.length, WAIT if now_s == due_s else BACKLOG
    if idle > 0 and waiting.frozen > 0:
        return START, 0, FULL
    return NOTHING, 0, FULL


def wake_frozen(now_s, waiting, idle, state, params):
    return later(oldest_s(waiting), params.max_wait_s) if waiting.length > 0 else math.inf


class Frozen(bs.SizeOrWait):
    """Batches form whether or not a server is idle, and wait as they are."""

    Params = FrozenParams
    decide, wake_s = staticmethod(decide_frozen), staticmethod(wake_frozen)
    freezes = True

    @property
    def params(self):
        return FrozenParams(self.max_batch_size, self.max_wait_ms / 1000)


def decide_learning(now_s, waiting, idle, state, params):
    """Send as many as the last batches took milliseconds on average, which `state` remembers."""
    wanted = min(max(int(state[0] * 1000), 1), params.max_batch_size)
    if waiting.length >= wanted or waiting.ended:
        state[1] += 1
        return START, min(waiting.length, wanted), WAIT
    return NOTHING, 0, FULL


def finished_learning(now_s, size, seconds, state, params):
    state[0] = 0.5 * state[0] + 0.5 * seconds


@dataclass(frozen=True)
class Learning(Rule):
    max_batch_size: int = 8

    decide, finished = staticmethod(decide_learning), staticmethod(finished_learning)
    state_size = 2


def decide_by_units(now_s, waiting, idle, state, params):
    """Send the oldest requests whose sizes add up to at most `max_batch_size`."""
    size = units = 0
    while size < waiting.length and units < params.max_batch_size:
        units += waiting.size[waiting.queue[waiting.head + size]]
        size += 1
    return START, size, FULL


@dataclass(frozen=True)
class ByUnits(Rule):
    """It reads sizes, but does not say so (`by_size`)."""

    max_batch_size: int = 8

    decide = staticmethod(decide_by_units)


# Both engines, and the oracle that spells each rule again.


@pytest.mark.plain  # no rule of anybody's: nothing keeps what would be compiled for it
@settings(max_examples=100)
@given(plans_with_ties())
def test_the_seam_spells_the_textbooks_rule_as_its_own_loops_do(plan):
    rule = plan.scenario.rule
    if not isinstance(rule, bs.SizeOrWait):
        rule = bs.SizeOrWait(rule.max_batch_size, 2)
    plan = dataclasses.replace(plan, scenario=plan.scenario.replace(rule=rule))
    spelled = plan.scenario.replace(rule=Spelled(rule.max_batch_size, rule.max_wait_ms))
    seam = dataclasses.replace(plan, scenario=spelled)
    assert spelled.rule.threshold is None
    for engine in (compiled, reference):
        assert_columns_equal(engine.run(seam), engine.run(plan))


@pytest.mark.plain
@settings(max_examples=80)
@given(plans_with_ties())
def test_frozen_batches_are_the_same_in_both_engines_and_the_oracle(plan):
    rule = plan.scenario.rule
    wait_ms = 0.0 if math.isinf(rule.max_wait_ms) else rule.max_wait_ms
    scenario = plan.scenario.replace(rule=Frozen(rule.max_batch_size, wait_ms), timeout_ms=None)
    plan = dataclasses.replace(plan, scenario=scenario)
    log = reference.run(plan)
    assert_columns_equal(compiled.run(plan), log)
    oracle = naive_of(dataclasses.replace(plan, scenario=scenario.replace(rule=bs.SizeOrWait(1, 0))))
    fields = {f.name: getattr(oracle, f.name) for f in dataclasses.fields(Naive) if f.init}
    empty = {name: [] for name, value in fields.items() if isinstance(value, list)}
    inputs = {name: fields[name] for name in ("service_s", "arrivals_s", "think_s", "noise")}
    service_s = [math.nan] + [scenario.service(size) for size in range(1, rule.max_batch_size + 1)]
    changes = {
        "service_s": service_s, "max_batch_size": rule.max_batch_size, "max_wait_ms": wait_ms,
        "freezes": True,
    }  # fmt: skip
    oracle = Naive(**{**fields, **empty, **inputs, **changes}).run()
    assert_equal_to_naive(scenario, log, oracle)


@pytest.mark.parametrize("knobs", [{}, {"queue_limit": 9, "timeout_ms": 12}, {"servers": 2}], ids=repr)
@pytest.mark.parametrize(
    "rule",
    [
        *(pytest.param(rule, marks=pytest.mark.plain) for rule in (Frozen(8, 4), ByUnits(8))),
        *(Learning(8), *RULES, *OF_SERVERS),
    ],
    ids=repr,
)  # fmt: skip
def test_engines_agree_and_windows_do_not_matter(rule, knobs):
    for workload in (bs.Poisson(1100.0), bs.ClosedLoop(9, think_s=0.003)):
        scenario = SCENARIO.replace(rule=rule, workload=workload, **knobs)
        plan = draw(scenario, 1500, 1)
        log = compiled.run(plan)
        assert_columns_equal(log, reference.run(draw(scenario, 1500, 1)))
        one, many = (summaries.summarise(scenario, 1500, Streams(scenario, 1), 70, n) for n in (1500, 111))
        for name in vars(one[0]):
            assert np.allclose(getattr(one[0], name), getattr(many[0], name), rtol=1e-12), name
        assert one[0].triggers.sum() <= log.batch_size.size


def test_every_rule_that_needs_no_sizes_runs_without_them():
    tested = {type(rule) for rule in (*RULES, *OF_SERVERS)}
    assert {kind for kind in (*REGISTRY, *RULES_OF_SIZES) if kind.by_size is not True} == tested


@pytest.mark.plain
@pytest.mark.parametrize("knobs", [{}, {"replicas": 3, "routing": "least_loaded"}, {"clients": 20}], ids=repr)
def test_a_rule_that_reads_sizes_where_there_are_none_finds_1_each(knobs):
    scenario = SCENARIO.replace(workload=bs.ClosedLoop(9, think_s=0.01)) if "clients" in knobs else SCENARIO
    scenario = scenario.replace(knobs)
    for engine in ("compiled", "simpy"):
        found, counted = (
            bs.simulate(scenario.replace(rule=rule), 2000, engine=engine)
            for rule in (ByUnits(8), bs.SizeOrWait(8, 0))
        )
        assert np.array_equal(found.finish_s, counted.finish_s)
        assert found.size is None


def test_a_rule_of_ones_own_leaves_nothing_on_disk_that_others_would_load():
    """Its type is of a module that another process may not have."""
    for rule in (Learning(8), bs.PreferredSizes([2], 2, 1)):
        bs.simulate(SCENARIO.replace(rule=rule), 9, engine="compiled")
    folder = Path(instants.pass_instants.stats.cache_path)
    kept = [file.read_bytes() for file in folder.glob("rule_calls*.nbc")]
    assert any(bs.PreferredSizes.Params.__name__.encode() in content for content in kept)
    assert not any(Learning.__module__.encode() in content for content in kept)


def test_one_copy_of_the_loop_serves_all_rules_with_and_without_levels():
    of_levels = SCENARIO.replace(workload=bs.Poisson(900).with_priorities({1: 0.5, 2: 0.5}))
    copies = []
    for rule in (bs.PullThenWait(8, 5), Learning(8), bs.PreferredSizes([2], 2, 1)):
        for scenario in (SCENARIO, of_levels):
            bs.simulate(scenario.replace(rule=rule), 9, engine="compiled")
        copies.append(len(instants.pass_instants.signatures))
    assert copies[0] == copies[-1]


def test_a_rule_that_remembers_learns_the_same_in_both_engines():
    scenario = SCENARIO.replace(rule=Learning(8))
    sizes = bs.simulate(scenario, 3000).batches.batch_size
    assert sizes[0] == 1
    assert sizes.max() == 8  # 5 + 0.5 k ms are 8 ms and more


# Preferred sizes.


def test_an_idle_server_takes_the_largest_preferred_size_that_waits():
    rule = bs.PreferredSizes([2, 4], max_batch_size=8, max_wait_ms=5)
    # Two go at once; of the seven that come meanwhile four go when the server is free, then two, then one.
    assert run([0, 0, 1, 1, 1, 1, 1, 1, 1], rule) == [
        (0, 2, "ENOUGH"), (10, 4, "ENOUGH"), (20, 2, "ENOUGH"), (30, 1, "BACKLOG"),
    ]  # fmt: skip


def test_else_it_takes_what_waits_when_the_oldest_has_waited():
    rule = bs.PreferredSizes([4], max_batch_size=4, max_wait_ms=5)
    assert run([0, 1, 2, 30, 30, 30, 30], rule) == [(5, 3, "WAIT"), (30, 4, "FULL")]


def test_without_a_timer_only_preferred_sizes_leave_and_the_remainder_at_the_end():
    rule = bs.PreferredSizes([3], max_batch_size=8, max_wait_ms=math.inf)
    assert run([0, 1, 2, 3, 4], rule) == [(2, 3, "ENOUGH"), (12, 2, "DRAIN")]


def test_a_preferred_size_that_is_the_largest_batch_alone_is_the_textbooks_rule():
    ours, textbook = bs.PreferredSizes([8], 8, 5), bs.SizeOrWait(8, 5)
    a, b = (bs.simulate(SCENARIO.replace(rule=rule, servers=2), 20_000) for rule in (ours, textbook))
    for name in ("start_s", "finish_s", "batch_index"):
        assert np.array_equal(getattr(a, name), getattr(b, name))
    assert np.array_equal(a.batches.trigger, b.batches.trigger)


def test_its_load_is_that_of_the_largest_preferred_size():
    rule = bs.PreferredSizes([2, 4], max_batch_size=32, max_wait_ms=5)
    scenario = SCENARIO.replace(rule=rule, rate_per_s=500)
    assert scenario.saturation_per_s == 4 / SCENARIO.service(4)
    assert scenario.stable
    assert not scenario.replace(rate_per_s=600).stable
    assert bs.simulate(scenario, 5000).batches.batch_size.max() == 4


@refusals
def test_what_makes_no_rule_is_refused():
    """
    bs.PreferredSizes([], 8, 5) -> preferred must not be empty
    bs.PreferredSizes([4, 2], 8, 5) -> preferred must increase
    bs.PreferredSizes([2, 2], 8, 5) -> preferred must increase
    bs.PreferredSizes([0], 8, 5) -> at least 1, got 0
    bs.PreferredSizes([2.5], 8, 5) -> TypeError: whole number, got 2.5
    bs.PreferredSizes(4, 8, 5) -> TypeError: list of sizes, got 4
    bs.PreferredSizes("48", 8, 5) -> TypeError: list of sizes, got '48'
    bs.PreferredSizes([4, 16], 8, 5) -> at most max_batch_size, 8, got 16
    bs.PreferredSizes([4], 0, 5) -> max_batch_size must be at least 1, got 0
    bs.PreferredSizes([4], 8, -1) -> max_wait_ms must be at least 0, got -1
    bs.PreferredSizes([4], 8, math.nan) -> max_wait_ms must be a number
    """


def test_its_heat_map_does_without_sizes_above_the_limit():
    rule = bs.PreferredSizes([2, 8], 8, 5)
    found = surface(SCENARIO.replace(rule=rule, rate_per_s=300), [1, 2, 4, 8, 12], [0, 5, math.inf], 3000)
    assert found.refused.tolist() == [[True, False, False, False, False]] * 3
    assert rule.at(4, 0) == bs.PreferredSizes([2], 4, 0)
    for row, wait_ms in enumerate(found.y_values):
        for column, size in enumerate(found.x_values[1:], 1):
            run = bs.simulate(found.scenario.replace(rule=rule.at(size, wait_ms)), 3000)
            assert found.p99_ms[row, column] == run.percentile(99, unserved="inf")


def test_it_stands_in_toml_the_shell_and_the_knobs():
    scenario = SCENARIO.replace(rule=bs.PreferredSizes([2, 4], 8, 5))
    assert bs.Scenario.from_toml(scenario.to_toml()) == scenario
    assert scenario.replace(preferred=[2, 8]).rule.preferred == (2, 8)
    done = subprocess.run(
        [sys.executable, "-m", "batchsim", "simulate", "--rate-per-s", "800", "--fixed-ms", "5",
         "--rule", "PreferredSizes([2, 4], 8, 5)", "--requests", "500", "--json"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert '"PreferredSizes"' in done.stdout


# What a rule says of itself.


@pytest.mark.parametrize("rule", [*RULES, *SERVERS_RULES], ids=repr)
def test_every_trigger_that_occurs_has_its_step(rule):
    told = {step.trigger for step in rule.steps}
    for rate in (100, 900, 2000):
        for requests in (7, 3000):
            result = bs.simulate(SCENARIO.replace(rule=rule, rate_per_s=rate, servers=2), requests)
            assert {bs.Trigger(each) for each in result.batches.trigger} <= told


@pytest.mark.parametrize("kind", REGISTRY, ids=lambda kind: kind.__name__)
def test_every_parameter_describes_itself(kind):
    assert kind.title
    described = kind.parameters()
    assert [f.name for f in dataclasses.fields(kind)] == list(described)
    rule = kind(**{name: each.usual for name, each in described.items()})
    assert all(each.label and each.about for each in described.values())
    assert set(kind.map_knobs) <= described.keys()
    assert all(step.because and step.label and step.action for step in rule.steps)


# What a rule must not do.


def test_a_rule_with_its_own_decide_has_its_own_params():
    class Heir(bs.SizeOrWait):
        decide = staticmethod(decide_frozen)

    assert Heir.Params._fields == bs.SizeOrWait.Params._fields
    assert (Rule.by_params[Heir.Params], Rule.by_params[bs.SizeOrWait.Params]) == (Heir, bs.SizeOrWait)


def test_a_rule_that_sends_more_than_wait_or_none_is_refused():
    class Params(NamedTuple):
        size: int

    def decide(now_s, waiting, idle, state, params):
        return START, params.size, FULL

    class Greedy(bs.SizeOrWait):
        pass

    Greedy.Params, Greedy.decide, Greedy.wake_s = Params, staticmethod(decide), Rule.wake_s
    Greedy.count_threshold = None
    Rule.by_params[Params] = Greedy
    for size in (0, 99):
        Greedy.params = Params(size)
        for engine in ("simpy", "compiled"):
            with pytest.raises(ValueError, match="1 to as many requests as wait"):
                bs.simulate(SCENARIO.replace(rule=Greedy(8, 5)), 10, engine=engine)


def decide_by_number(now_s, waiting, idle, state, params):
    """The N-policy: begin once `enough` wait, and then send one after the other until nobody waits."""
    if state[0] == 1 and now_s > state[1] and state[2] == 0:
        state[0] = 0
    if state[0] == 0 and waiting.length >= params.enough:
        state[0] = 1
    if state[0] == 1 or waiting.ended:
        state[2] = 1
        return bs.START, 1, bs.FULL
    return bs.NOTHING, 0, bs.FULL


def finished_by_number(now_s, size, seconds, state, params):
    state[1], state[2] = now_s, 0


@dataclass(frozen=True)
class ByNumber(bs.Rule):
    enough: int = 4
    max_batch_size: int = 1
    longest_ms: "float" = 3

    decide, finished = staticmethod(decide_by_number), staticmethod(finished_by_number)
    state_size = 3


def test_a_rule_of_ones_own_has_plain_fields_and_public_names():
    assert ByNumber(6).params == (6, 1, 0.003)
    with pytest.raises(TypeError, match=r"enough must be a whole number, got 1\.5"):
        ByNumber(1.5)
    service = bs.Affine(10, 0, noise=bs.Noise(1, "exponential"))
    scenario = bs.Scenario(bs.Poisson(60), ByNumber(4), service)
    waits_ms = [bs.simulate(scenario.replace(enough=n), 100_000, seed=2).mean_latency_ms - 10 for n in (1, 4)]
    assert waits_ms[0] == pytest.approx(15, rel=0.05)  # M/M/1
    assert waits_ms[1] - waits_ms[0] == pytest.approx(3 / 2 / 60 * 1000, rel=0.02)  # (N - 1) / (2 rate)


@dataclass(frozen=True)
class ByNone(bs.Rule):
    enough: int = 1
    max_batch_size: int = 0

    decide = staticmethod(decide_by_number)


def test_the_default_of_a_plain_field_is_checked_as_any_value():
    assert ByNone(1, 1).max_batch_size == 1
    with pytest.raises(ValueError, match="max_batch_size must be at least 1, got 0"):
        ByNone()


def not_known(now_s, waiting, idle, state, params):
    return bs.START, params.enough, bs.FULL


def not_compiled(now_s, waiting, idle, state, params):
    return bs.START, len(sorted(["a"], key=str)), bs.FULL


def not_numbers(now_s, waiting, idle, state, params):
    return "start", 1, bs.FULL


@pytest.mark.parametrize(
    ("decide", "message"),
    [
        (not_known, r"in test_rules.py, line \d+: Unknown attribute 'enough' of type BrokenParams"),
        (not_compiled, r"in test_rules.py, line \d+: .*sorted"),
        (not_numbers, "Cannot unify .* and .*start"),
    ],
)
def test_what_numba_cannot_compile_is_said_in_a_line(decide, message):
    broken = type("Broken", (Rule,), {"max_batch_size": 1, "decide": staticmethod(decide)})
    scenario = SCENARIO.replace(rule=dataclass(frozen=True)(broken)())
    with pytest.raises(
        TypeError, match=f"^Broken must be a rule that Numba compiles, got.*{message}"
    ) as error:
        bs.simulate(scenario, 10, engine="compiled")
    assert "\n" not in str(error.value)
    assert len(str(error.value)) < 400


def test_a_model_computes_the_batches_of_any_rule():
    scenario = SCENARIO.replace(rule=bs.PreferredSizes([2, 4], 8, 5))
    inputs = np.arange(50.0)
    result = bs.simulate(scenario, model_fn=lambda batch: batch * 2, inputs=inputs)
    assert result.outputs == (inputs * 2).tolist()


def all_that_wait(now_s, waiting, idle, state, params):
    return bs.START, min(waiting.length, params.max_batch_size), bs.FULL


PLAIN = {"__annotations__": {"max_batch_size": int}, "max_batch_size": 8, "__doc__": "Send all that wait."}
ALL = "now_s, waiting, idle, state, params"


@pytest.mark.parametrize(
    ("members", "message"),
    [
        (PLAIN, rf"Mine must have decide({ALL}), got none"),
        (PLAIN | {"decide": lambda now, queue: 0}, rf"Mine must have decide({ALL}), got decide(now, queue)"),
        (PLAIN | {"decide": lambda self, now_s, waiting, idle, state, params: 0}, f"got decide(self, {ALL})"),
        (PLAIN | {"decide": all_that_wait, "wake_s": lambda now_s: 0}, f"must have wake_s({ALL}), got"),
        (PLAIN | {"decide": all_that_wait, "picked": lambda k: 0}, "must have picked(k, state, params), got"),
        ({"decide": all_that_wait}, "Mine must have a field max_batch_size: int, got none"),
    ],
)  # fmt: skip
def test_a_rule_of_ones_own_is_told_what_it_lacks_as_it_is_made(members, message):
    with pytest.raises(TypeError, match=re.escape(message)):
        type("Mine", (bs.Rule,), members)


def test_a_rule_that_is_no_dataclass_is_told_so():
    mine = type("Mine", (bs.Rule,), PLAIN | {"decide": all_that_wait})
    with pytest.raises(
        TypeError, match=r"^Mine must be a frozen dataclass: @dataclass\(frozen=True\), got none$"
    ):
        mine()


def test_a_rule_without_words_is_drawn_and_played_by_the_names_of_its_triggers():
    mine = dataclasses.dataclass(frozen=True)(type("Mine", (bs.Rule,), PLAIN | {"decide": all_that_wait}))
    scenario = bs.Scenario(bs.Poisson(300), mine(4), bs.Affine(5, 1))
    result = bs.simulate(scenario, 200)
    assert np.array_equal(result.latency_ms, bs.simulate(scenario, 200, engine="simpy").latency_ms)
    assert len(result.batches.trigger) > 50
    assert "FULL" in mine().steps[0].condition
    bs.plot(result)
    assert "Film of 200 requests" in repr(bs.film(scenario))
    tuned = bs.tune(scenario, bs.SLO(p99_ms=90), {"max_batch_size": [4, 8]}, 2000, progress=False)
    assert "because the rule returned FULL" in tuned.explain()
