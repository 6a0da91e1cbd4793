import dataclasses
import math
import pickle
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from refusals import refusals

import batchsim as bs
from batchsim import Affine, AtLeast, ClosedLoop, Constant, Diurnal, Gamma, OnOff, Poisson, SizeOrWait, Table

SERVICE = Affine(5, 0.25)
BASE = bs.Scenario(Poisson(900), SizeOrWait(32, 10), SERVICE)


def scenario(**knobs):
    parts = {"workload": Poisson(900), "rule": SizeOrWait(32, 10), "service": SERVICE}
    return bs.Scenario(**{**parts, **knobs})


# Rules.


def test_the_textbook_rules_defaults():
    assert SizeOrWait() == SizeOrWait(max_batch_size=32, max_wait_ms=10.0)
    assert SizeOrWait(8, math.inf).max_wait_ms == math.inf
    assert SizeOrWait(8).enough == 8


def test_at_least_waits_for_ever():
    assert (AtLeast(2, 8).enough, AtLeast(2, 8).max_wait_ms) == (2, math.inf)
    assert AtLeast(8, 8).enough == 8


@refusals
def test_a_rule_refuses():
    """
    SizeOrWait(0, 1) -> max_batch_size must be at least 1, got 0
    SizeOrWait(1.5, 1) -> TypeError: max_batch_size must be a whole number, got 1.5
    SizeOrWait(8, -1) -> max_wait_ms must be at least 0, got -1
    SizeOrWait(8, math.nan) -> max_wait_ms must be a number, got nan
    SizeOrWait(8, None) -> TypeError: max_wait_ms must be a number, got None
    AtLeast(0, 4) -> min_batch_size must be at least 1, got 0
    AtLeast(2, 0) -> max_batch_size must be at least 1, got 0
    AtLeast(5, 4) -> min_batch_size must be at most max_batch_size, 4, got 5
    """


@pytest.mark.parametrize("rule", [SizeOrWait(8, 2.5), SizeOrWait(1, 0), AtLeast(2, 4)], ids=repr)
def test_the_repr_of_a_rule_makes_it_again(rule):
    assert eval(repr(rule)) == rule


# What a scenario is.


def test_a_scenario_is_a_value():
    assert scenario() == BASE
    assert hash(scenario()) == hash(BASE)
    assert scenario(servers=2) != BASE
    assert hash(scenario(slowdown={1: 1.0})) == hash(scenario(slowdown={1: 1.0}))
    with pytest.raises(dataclasses.FrozenInstanceError):
        BASE.servers = 2


def test_the_same_knobs_give_the_same_run_through_a_replace():
    there_and_back = BASE.replace(rate_per_s=300).replace(rate_per_s=900)
    assert there_and_back == BASE


# Capacity, load, stable.


def test_the_capacity_is_that_of_full_batches():
    assert BASE.saturation_per_s == pytest.approx(32 / 0.013)
    assert scenario(servers=3).saturation_per_s == pytest.approx(3 * 32 / 0.013)
    assert BASE.load == pytest.approx(900 / (32 / 0.013))


def test_the_capacity_of_a_table_that_is_not_monotone_is_the_largest_over_sizes():
    service = Table({1: 2.0, 2: 2.5, 4: 3.0, 5: 20.0, 8: 19.0})
    assert scenario(rule=SizeOrWait(8, 1), service=service).saturation_per_s == pytest.approx(4 / 0.003)
    assert scenario(rule=SizeOrWait(4, 1), service=service).saturation_per_s == pytest.approx(4 / 0.003)


def test_the_capacity_of_a_monotone_table_is_that_of_its_full_batch():
    service = Table({1: 1.0, 2: 10.0})  # two together are slower than one at a time
    assert scenario(rule=SizeOrWait(2, 1), service=service).saturation_per_s == pytest.approx(2 / 0.010)


def test_the_capacity_counts_the_padding():
    padded = SERVICE.padded_to([8, 64])
    assert scenario(service=padded).saturation_per_s == pytest.approx(32 / SERVICE(64))


def test_the_capacity_counts_the_slowdown_of_all_servers():
    shared = scenario(servers=2, slowdown={1: 1, 2: 1.6})
    assert shared.saturation_per_s == pytest.approx(2 * 32 / 0.013 / 1.6)


def test_noise_does_not_change_the_capacity():
    assert scenario(service=SERVICE.with_noise(1)).saturation_per_s == BASE.saturation_per_s


def test_stable_is_a_rate_below_the_capacity():
    at_capacity = bs.Scenario(Poisson(1000), SizeOrWait(1, 0), Affine(1, 0))
    assert at_capacity.load == 1
    assert not at_capacity.stable
    assert at_capacity.replace(rate_per_s=999.9).stable
    assert not at_capacity.replace(rate_per_s=1001).stable


def test_what_limits_the_queue_makes_any_load_stable():
    flooded = bs.Scenario(Poisson(5000), SizeOrWait(1, 0), Affine(1, 0))
    assert flooded.load == 5
    assert not flooded.stable
    assert flooded.replace(queue_limit=10).stable
    assert flooded.replace(timeout_ms=10).stable
    assert flooded.replace(timeout_ms=0).stable


def test_a_closed_loop_is_stable_and_has_no_load():
    closed = scenario(workload=ClosedLoop(500))
    assert closed.stable
    assert math.isnan(closed.load)


def test_stable_is_a_plain_bool():
    assert scenario(workload=Poisson(np.float64(9))).stable is True
    assert scenario(workload=Poisson(np.float64(9e9))).stable is False


def test_a_trace_of_one_moment():
    assert scenario(workload=bs.Trace([0])).stable
    assert not scenario(workload=bs.Trace([0, 0])).stable


# Replace: any knob by its name.


def test_replace_finds_a_knob_wherever_it_is():
    assert BASE.replace(max_batch_size=16) == scenario(rule=SizeOrWait(16, 10))
    assert BASE.replace(max_wait_ms=3) == scenario(rule=SizeOrWait(32, 3))
    assert BASE.replace(per_item_ms=1) == scenario(service=Affine(5, 1))
    assert BASE.replace(servers=2) == scenario(servers=2)
    assert BASE.replace(rate_per_s=1) == scenario(workload=Poisson(1))
    assert BASE.replace(padding=[8, 32]) == scenario(service=SERVICE.padded_to([8, 32]))
    assert scenario(workload=ClosedLoop(4)).replace(clients=9) == scenario(workload=ClosedLoop(9))
    noisy = scenario(service=SERVICE.with_noise(0.5))
    assert noisy.replace(cv=0.2) == scenario(service=SERVICE.with_noise(0.2))
    assert noisy.replace(noise=None) == BASE


def test_replace_takes_several_at_once_and_by_a_dict():
    changed = BASE.replace({"rule.max_batch_size": 16, "servers": 2}, max_wait_ms=1, rate_per_s=5)
    assert changed == bs.Scenario(Poisson(5), SizeOrWait(16, 1), SERVICE, servers=2)
    assert BASE.replace() == BASE
    assert scenario() == BASE  # and the first is as it was


def test_a_part_replaced_whole_takes_its_knobs_with_it():
    changed = BASE.replace(rule=AtLeast(2, 8), min_batch_size=4)
    assert changed.rule == AtLeast(4, 8)
    assert BASE.replace(workload=Gamma(5, 2), cv=3, rate_per_s=7).workload == Gamma(7, 3)


def test_an_ambiguous_name_is_refused_with_the_names_to_use():
    two = scenario(workload=Gamma(900, 2), service=SERVICE.with_noise(0.5))
    with pytest.raises(ValueError, match=r"knob 'cv' is ambiguous: use 'service.noise.cv' or 'workload.cv'"):
        two.replace(cv=1)
    assert two.replace({"workload.cv": 1.5}).workload == Gamma(900, 1.5)
    for name in ("service.noise.cv", "noise.cv", "service.cv"):
        assert two.replace({name: 0.1}).service == SERVICE.with_noise(0.1)


@refusals
def test_an_unknown_name_is_refused_with_the_nearest():
    """
    BASE.replace({"max_batchsize": 1}) -> got 'max_batchsize'; did you mean 'max_batch_size'
    BASE.replace({"wait_ms": 1}) -> got 'wait_ms'; did you mean 'max_wait_ms'
    BASE.replace({"rate": 1}) -> got 'rate'; known: ...rate_per_s
    BASE.replace({"zzz": 1}) -> got 'zzz'; known: ...fixed_ms, ...max_wait_ms, ...rate_per_s, ...timeout_ms
    BASE.replace({"workload.max_wait_ms": 1}) -> got 'workload.max_wait_ms'
    BASE.replace({"rule.rate_per_s": 1}) -> got 'rule.rate_per_s'
    BASE.replace({"": 1}) -> got ''
    scenario(rule=AtLeast(2, 4)).replace(max_wait_ms=3) -> got 'max_wait_ms'
    """


@pytest.mark.parametrize(
    "workload",
    [
        Poisson(10),
        Constant(10),
        Gamma(10, 2),
        OnOff(100, 10, 1, 2),
        Diurnal(10, 1.5, 60),
        bs.Trace([0, 1, 4]),
    ],
    ids=repr,
)
@pytest.mark.parametrize("name", ["rate_per_s", "workload.rate_per_s"])
def test_the_rate_of_any_open_workload_can_be_set(workload, name):
    changed = scenario(workload=workload).replace({name: 55})
    assert changed.workload.offered_per_s == pytest.approx(55)
    assert type(changed.workload) is type(workload)


def test_the_rate_is_the_mean_rate_whatever_else_changes():
    bursts = scenario(workload=OnOff(100, 10, 1, 2))
    for changes in ({"mean_off_s": 7}, {"on_rate_per_s": 900}, {"off_rate_per_s": 0}):
        for knobs in ({**changes, "rate_per_s": 55}, {"rate_per_s": 55, **changes}):
            assert bursts.replace(knobs).workload.offered_per_s == pytest.approx(55)
    trace = scenario(workload=bs.Trace([0, 1, 4]))
    assert trace.replace(rate_per_s=2, times_s=[0, 9]).workload == bs.Trace([0, 0.5])


@refusals
def test_replace_checks_what_it_is_given():
    """
    BASE.replace({"max_batch_size": 0}) -> max_batch_size must be at least 1, got 0
    BASE.replace({"rate_per_s": -1}) -> rate_per_s must be greater than 0, got -1
    BASE.replace({"rate_per_s": "fast"}) -> TypeError: rate_per_s must be a number, got 'fast'
    BASE.replace({"servers": 0}) -> servers must be at least 1, got 0
    BASE.replace({"fixed_ms": math.nan}) -> fixed_ms must be a number, got nan
    BASE.replace({"padding": 8}) -> TypeError: padded sizes must be a list of sizes, got 8
    BASE.replace({"noise": 0.3}) -> TypeError: noise must be a Noise, got 0.3
    BASE.replace({"rule": 8}) -> TypeError: rule must be a rule of batchsim, got 8
    scenario(workload=ClosedLoop(4)).replace(rate_per_s=5)
        -> rate_per_s needs an open workload, got ClosedLoop
    scenario(workload=ClosedLoop(4)).replace({"workload.rate_per_s": 5})
        -> rate_per_s needs an open workload, got
    """


# What a scenario refuses.


@refusals
def test_a_scenario_refuses():
    """
    scenario(workload=900) -> TypeError: workload must be a workload of batchsim, got 900
    scenario(workload=SERVICE) -> TypeError: workload must be a workload of batchsim, got Affine
    scenario(rule=None) -> TypeError: rule must be a rule of batchsim, got None
    scenario(service=0.5) -> TypeError: service must be a service of batchsim, got 0.5
    scenario(service=Affine) -> TypeError: service must be a service of batchsim, got <class
    scenario(servers=0) -> servers must be at least 1, got 0
    scenario(servers=1.5) -> TypeError: servers must be a whole number, got 1.5
    scenario(servers=None) -> TypeError: servers must be a whole number, got None
    scenario(queue_limit=0) -> queue_limit must be at least 1, got 0
    scenario(queue_limit=math.inf) -> TypeError: queue_limit must be a whole number, got inf
    scenario(timeout_ms=-1) -> timeout_ms must be at least 0, got -1
    scenario(timeout_ms=math.nan) -> timeout_ms must be a number, got nan
    scenario(timeout_ms=math.inf) -> timeout_ms must be finite, got inf
    scenario(slowdown=1.5) -> TypeError: slowdown must be {busy servers: factor}, got 1.5
    scenario(slowdown=[1, 2]) -> TypeError: slowdown must be {busy servers: factor}, got
    scenario(slowdown={}) -> a factor for each of 1..1 busy servers, got none for 1
    scenario(slowdown={1: 1}, servers=2) -> a factor for each of 1..2 busy servers, got none for 2
    scenario(slowdown={1: 0}) -> slowdown of 1 busy servers must be greater than 0, got 0
    scenario(slowdown={1: math.nan}) -> slowdown of 1 busy servers must be a number, got nan
    scenario(slowdown={0: 1, 1: 1}) -> busy servers in slowdown must be at least 1, got 0
    scenario(slowdown={1: 1, "2": 1}) -> TypeError: busy servers in slowdown must be a whole number, got '2'
    scenario(service=Table({1: 2, 8: 3})) -> at most the Table's largest size, 8, got 9
    scenario(service=SERVICE.padded_to([16])) -> at most the largest padded size, 16, got 17
    scenario(workload=ClosedLoop(4), queue_limit=2)
        -> a queue_limit below the clients on a ClosedLoop needs think_s greater than 0 ...got 0
    scenario(workload=ClosedLoop(4), rule=SizeOrWait(5, math.inf))
        -> a ClosedLoop must have at least 5 clients to gather a batch of 5, got 4
    scenario(workload=ClosedLoop(1), rule=AtLeast(2, 4))
        -> a ClosedLoop must have at least 2 clients to gather a batch of 2, got 1
    scenario(workload=ClosedLoop(6).with_sizes(bs.Uniform(1, 9)), rule=bs.Buckets([5, 9], 4, math.inf))
        -> a ClosedLoop must have at least 7 clients to gather a batch of 4, got 6
    """


@pytest.mark.parametrize("engine", ["simpy", "compiled"])
@pytest.mark.parametrize("more", [{}, {"timeout_ms": 4.0}], ids=str)
def test_a_queue_limit_that_no_closed_loop_reaches_changes_nothing(engine, more):
    limited, free = (
        scenario(workload=ClosedLoop(4), rule=SizeOrWait(2, 1), queue_limit=limit, **more)
        for limit in (4, None)
    )
    runs = [bs.simulate(each, 200, engine=engine) for each in (limited, free)]
    assert not (runs[0].status == bs.Status.REJECTED).any()
    assert np.array_equal(runs[0].finish_s, runs[1].finish_s, equal_nan=True)


def test_what_is_nearly_refused_is_allowed():
    scenario(workload=ClosedLoop(4, think_s=0.1), queue_limit=2)
    scenario(workload=ClosedLoop(5), rule=SizeOrWait(5, math.inf))
    scenario(workload=ClosedLoop(2), rule=AtLeast(2, 4))
    scenario(timeout_ms=0, queue_limit=1)
    scenario(slowdown={1: 1, 2: 1.5, 3: 2})
    scenario(service=Table({1: 2, 32: 3}))


@pytest.mark.parametrize("wait_ms", [np.float32(10.3), np.float16(2.5), Fraction(1, 3), Decimal("2.5")])
def test_a_knob_of_another_number_type_changes_no_answer(wait_ms):
    scenario = bs.Scenario(bs.Poisson(900), bs.SizeOrWait(8, wait_ms), bs.Affine(5, 0.25))
    assert type(scenario.rule.max_wait_ms) is float
    plain = scenario.replace(max_wait_ms=float(wait_ms))
    assert scenario == plain
    runs = [bs.simulate(scenario, 500, engine=engine) for engine in ("simpy", "compiled")]
    assert np.array_equal(runs[0].finish_s, runs[1].finish_s)


def test_replace_names_a_knob_once_and_by_text():
    scenario = bs.Scenario(bs.Poisson(900), bs.SizeOrWait(8, 1), bs.Affine(5, 0.25))
    with pytest.raises(ValueError, match="a knob must be given once, got 'rate_per_s' twice"):
        scenario.replace({"workload.rate_per_s": 5, "rate_per_s": 9})
    with pytest.raises(TypeError, match="a knob must be named by text, got 1"):
        scenario.replace({1: 2})


@pytest.mark.parametrize(
    ("knob", "value", "message"),
    [
        ("max_batch_size", 10**8, "max_batch_size must be at most 65,536, got 100000000"),
        ("servers", 10**12, "servers must be at most 65,536"),
        ("queue_limit", 2**70, "queue_limit must be at most"),
        ("slowdown", {1: 1e308}, "slowdown of 1 busy servers must be at most 1e\\+12"),
    ],
)
def test_what_no_memory_or_float_holds_is_refused(knob, value, message):
    scenario = bs.Scenario(bs.Poisson(900), bs.SizeOrWait(8, 1), bs.Affine(5, 0.25))
    with pytest.raises(ValueError, match=message):
        scenario.replace({knob: value})


def test_a_scenario_survives_pickling():
    scenario = bs.Scenario(
        bs.Trace([0, 1]), bs.AtLeast(1, 2), bs.Table({1: 2, 2: 3}).with_noise(0.1), slowdown={1: 1.5}
    )
    assert pickle.loads(pickle.dumps(scenario)) == scenario


def test_a_queue_that_full_batches_cannot_clear_is_not_stable():
    # Batches of 7 are faster than of 2; but a long queue is served in batches of 16.
    table = bs.Table({1: 2.97, 7: 2.5, 11: 5.47, 16: 7.745})
    scenario = bs.Scenario(bs.Poisson(2500), bs.SizeOrWait(16, 0), table)
    assert scenario.saturation_per_s == pytest.approx(7 / 0.0025)
    assert scenario.full_batches_per_s == pytest.approx(16 / 0.007745)
    assert scenario.load < 1
    assert not scenario.stable
    short, long = (bs.simulate(scenario, requests).mean_latency_ms for requests in (100_000, 300_000))
    assert long > 2 * short
    assert "UNSTABLE: the queue grows without end (full batches: 2065.8/s)" in repr(
        bs.simulate(scenario, 100)
    )
    assert scenario.replace(rate_per_s=2000).stable


def test_a_scenario_shows_what_differs_from_the_defaults_and_folds_the_rest():
    shown = BASE.replace(queue_limit=9)
    assert eval(repr(shown), vars(bs)) == shown
    assert "queue_limit=9" in repr(shown)
    assert "contention" not in repr(shown)
    own, folded = shown._repr_html_().split("<details>")
    assert ("queue_limit" in own, "contention" in own, "contention" in folded) == (True, False, True)
