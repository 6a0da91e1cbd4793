"""Every number of a map and of a load curve of token generation is that of a whole run, bit for bit."""

import itertools
import math
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import batchsim as bs
from batchsim.engines.compiled import grid_runs
from batchsim.engines.saturation import saturated
from batchsim.engines.token_log import draw_tokens, draw_tokens_cached
from batchsim.scenario import Limited
from batchsim.study.kinds import GOODPUT, TTFT_P99
from batchsim.study.surface import load_curve, surface
from batchsim.study.tokens import stable_cells

STEP = bs.StepTime(6.88, 9.997, 0.09631, 1.922e-4, 1.225e-6)
TOKENS = bs.Tokens(bs.Lognormal(500, 1.0, at_most=3000), bs.Geometric(60))
SCENARIO = bs.Scenario(bs.Poisson(8), bs.Continuous(kv_blocks=900), STEP, tokens=TOKENS)
SEATS, BUDGETS = [2, 16, 64, 256], [300, 1024, 4096, 40_000]
PLAIN = bs.Scenario(bs.Poisson(9), bs.SizeOrWait(8, 1), bs.Affine(5, 1))
WITHIN = {"ttft_objective_ms": 700, "tpot_objective_ms": 35}
TRACE = bs.Trace(np.cumsum(np.random.default_rng(3).exponential(1 / 8, 250)))
RULES = {
    "plain": bs.Continuous(),
    "memory short": bs.Continuous(kv_blocks=800, block_size=8, watermark_blocks=3),
    "prompts first": bs.Continuous(first="prefill", kv_blocks=600),
    "whole prompts": bs.Continuous(256, 4096, first="prefill", chunked=False, reserve="life", kv_blocks=900),
    "long prompts cut": bs.Continuous(long_prefill_token_threshold=200, kv_blocks=600),
}
CASES = {
    **{name: SCENARIO.replace(rule=rule, rate_per_s=7) for name, rule in RULES.items()},
    "two servers": SCENARIO.replace(servers=2, kv_blocks=400, rate_per_s=14),
    "clients": SCENARIO.replace(workload=bs.ClosedLoop(24, 0.5)),
    "lost": SCENARIO.replace(queue_limit=6, timeout_ms=900, rate_per_s=9),
    "noise": SCENARIO.replace(service=STEP.with_noise(0.4)),
    "trace": SCENARIO.replace(workload=TRACE),
    "in flight": SCENARIO.replace(workload=Limited(24, times_s=tuple(TRACE.times_s.tolist()))),
    "of one token": SCENARIO.replace(tokens=bs.Tokens(bs.Uniform(1, 900), 1), rate_per_s=15),
}


def test_the_largest_step_of_any_replica_decides_what_budgets_share():
    long, short = (600, 5), (10, 5)
    each_in_turn = bs.Scenario(
        bs.Poisson(4), bs.Continuous(8), STEP, tokens=bs.Tokens.sample([long, short] * 50),
        replicas=2, routing="round_robin",
    )  # fmt: skip
    found = surface(each_in_turn, [8], [128, 2048], 100, knobs=("max_num_seqs", "max_num_batched_tokens"))
    runs = [bs.simulate(each_in_turn.replace(max_num_batched_tokens=budget), 100) for budget in (128, 2048)]
    ttft_ms = [run.percentile(99, unserved="inf", column="ttft_ms") for run in runs]
    assert found.ttft_p99_ms[:, 0].tolist() == ttft_ms
    assert ttft_ms[0] > ttft_ms[1]


def rule_at(found, cell):
    return found.rules[cell[0] * len(found.x_values) + cell[1]]


def assert_each_is_a_run(found):
    ran = 0
    for row, y in enumerate(found.y_values):
        for column, x in enumerate(found.x_values):
            cell = row, column
            got = [grid[cell] for grid in (found.ttft_p99_ms, found.goodput_per_s, found.attainment)]
            try:
                point = found.scenario.replace({found.x: x, found.y: y})
                draw_tokens(point, found.requests, found.seed)
            except ValueError:
                assert found.refused[cell]
                assert rule_at(found, cell) is None
                assert np.isnan(got).all()
                continue
            assert not found.refused[cell]
            assert rule_at(found, cell) == point.rule
            assert found.overloaded[cell] == (not point.stable)
            if not point.stable:
                assert np.isnan(got).all()
                continue
            run = bs.simulate(point, found.requests, found.seed)
            limits = {name.replace("_objective", ""): limit_ms for name, limit_ms in WITHIN.items()}
            expected = [run.percentile(99, unserved="inf", column="ttft_ms"), math.nan, math.nan]
            if found.metric == GOODPUT:
                expected[1:] = run.goodput_per_s(**limits), run.attainment(**limits)
            assert np.array_equal(got, expected, equal_nan=True), (x, y)
            ran += 1
    return ran


@pytest.mark.parametrize("case", CASES)
def test_each_cell_is_a_run_of_its_own(case):
    assert assert_each_is_a_run(surface(CASES[case], SEATS, BUDGETS, 250, seed=4, **WITHIN))


@pytest.mark.parametrize("case", ["plain", "two servers", "clients", "lost", "noise"])
def test_the_energy_of_each_cell_is_that_of_its_own_run_in_both_engines(case):
    slower = {} if case == "clients" else {"rate_per_s": 5}
    scenario = CASES[case].replace(watts={0: 100, 1: 300, 64: 700}, **slower)
    found = surface(scenario, SEATS[1:3], BUDGETS[1:3], 150, seed=4, metric="joules", **WITHIN)
    assert found.metric == "joules_per_token"
    assert not found.overloaded.all()
    for row, budget in enumerate(found.y_values):
        for column, seats in enumerate(found.x_values):
            cell = scenario.replace(max_num_seqs=seats, max_num_batched_tokens=budget)
            assert np.isnan(found.values[row, column]) == found.overloaded[row, column] == (not cell.stable)
            for engine in ("simpy", "compiled") if cell.stable else ():
                run = bs.simulate(cell, 150, seed=4, engine=engine)
                joules = run.summary()["joules_per_token"]
                assert found.values[row, column] == pytest.approx(joules, rel=1e-9)


def test_the_best_by_energy_keeps_both_objectives_for_99_of_100_requests():
    scenario = SCENARIO.replace(watts={0: 100, 1: 300, 64: 700}, rate_per_s=4, kv_blocks=None)
    found = surface(scenario, SEATS, BUDGETS, 400, metric="joules", **WITHIN)
    within = np.nan_to_num(found.attainment) >= 0.99
    assert within.any()
    assert not within.all()
    assert np.array_equal(found.within(), within)
    assert found.values[found.best()] <= 1.01 * found.values[within].min()
    late = surface(scenario, SEATS, BUDGETS, 400, metric="joules")  # without objectives
    assert np.array_equal(late.within(700), ~late.overloaded & (late.ttft_p99_ms <= 700))
    assert late.values[late.best()] <= 1.01 * np.nanmin(late.values)


def test_memory_is_an_axis_and_refuses_what_never_fits():
    found = surface(SCENARIO, SEATS, [100, 220, 500, 2000], 250, knobs=("max_num_seqs", "kv_blocks"))
    assert found.metric == TTFT_P99
    assert found.refused[0].all()
    assert not found.refused[1:].any()
    assert assert_each_is_a_run(found)


def test_prompts_that_are_not_cut_are_refused_by_a_small_budget_alone():
    rule = bs.Continuous(first="prefill", chunked=False, kv_blocks=900)
    scenario = SCENARIO.replace(rule=rule, rate_per_s=4)
    longest = int(draw_tokens_cached(scenario, 250, 0).prompts.max())
    found = surface(scenario, SEATS, [longest - 1, longest, 6000], 250)
    assert found.refused[0].all()
    assert found.refused[1].tolist() == [False, True, True, True]  # what is computed again may be longer
    assert not found.refused[2].any()
    assert assert_each_is_a_run(found)


def test_whole_batches_have_a_map_too():
    scenario = SCENARIO.replace(rule=bs.SizeOrWait(8, 100), rate_per_s=0.5)
    assert assert_each_is_a_run(surface(scenario, [1, 4, 16], [0, 200, math.inf], 200, **WITHIN)) > 4


@pytest.mark.parametrize("case", [case for case in CASES if case != "trace"])
def test_each_point_of_a_curve_is_a_run_of_its_own(case):
    curve = load_curve(CASES[case], 150, seed=2)
    assert len(curve.columns) == 11
    for place in range(0, curve.x_values.size, 3):
        point = CASES[case].replace({curve.x: curve.x_values[place].item()})
        summary = bs.simulate(point, 150, seed=2).summary()
        assert curve.overloaded[place] == (not point.stable)
        for name in curve.columns:
            assert np.array_equal(getattr(curve, name)[place], summary[name], equal_nan=True), name


def test_a_curve_reaches_from_almost_no_load_beyond_saturation():
    curve = load_curve(SCENARIO, 50)
    assert curve.x == "rate_per_s"
    assert curve.saturation == SCENARIO.saturation_per_s
    assert curve.x_values[0] < 0.05 * curve.saturation < 1.1 * curve.saturation < curve.x_values[-1]
    np.testing.assert_array_equal(curve.overloaded, curve.x_values >= curve.saturation)
    clients = load_curve(CASES["clients"], 50)
    assert (clients.x, clients.saturation, clients.x_values[0]) == ("clients", math.inf, 1)


def test_a_run_stands_for_all_settings_whose_limits_it_does_not_reach(monkeypatch):
    ran, run_times = [], grid_runs.run_times

    def counted(plan):
        ran.append(plan.scenario.rule)
        return run_times(plan)

    monkeypatch.setattr(grid_runs, "run_times", counted)
    quiet = SCENARIO.replace(rule=bs.Continuous(), rate_per_s=0.05)
    surface(quiet, [20, 64, 256], [10_000, 20_000, 40_000], 100)
    assert len(ran) == 1
    ran.clear()
    monkeypatch.setattr(grid_runs, "same_steps", lambda rule, _, other: rule == other)
    surface(quiet, [20, 64, 256], [10_000, 20_000, 40_000], 100)
    assert len(ran) == 9


def test_an_overloaded_setting_is_not_run():
    found = surface(SCENARIO.replace(rate_per_s=1000), SEATS, BUDGETS, 250, **WITHIN)
    assert found.overloaded.all()
    assert np.isnan(found.values).all()
    assert found.best() is None
    assert not found.ties().any()


def test_it_does_not_depend_on_the_threads(monkeypatch):
    alone = ThreadPoolExecutor(1)
    one = surface(SCENARIO, SEATS, BUDGETS, 200)
    monkeypatch.setattr(grid_runs, "_threads", lambda _: alone)
    other = surface(SCENARIO, SEATS, BUDGETS, 200)
    np.testing.assert_array_equal(one.values, other.values)
    assert one.best() == other.best()


# The best, and what ties with it.


@pytest.mark.parametrize("objectives", [{}, WITHIN])
def test_the_best_is_among_those_that_tie_with_the_best_value(objectives):
    found = surface(SCENARIO, SEATS, BUDGETS, 2000, **objectives)
    best, sign = found.best(), -1 if objectives else 1
    top = np.nanargmin(sign * found.values)
    assert found.ties()[best]
    assert found.ties().flat[top]
    assert not found.ties()[found.overloaded | found.refused].any()
    saturations = [
        found.scenario.replace(rule=rule_at(found, cell)).saturation_per_s
        for cell in np.argwhere(found.ties())
    ]
    chosen = found.scenario.replace(rule=rule_at(found, best)).saturation_per_s
    assert float(f"{chosen:.4g}") == float(f"{max(saturations):.4g}")


def test_settings_of_the_same_steps_tie_and_worse_ones_are_told_apart():
    found = surface(SCENARIO.replace(kv_blocks=None), [8, 200, 256], [256, 40_000, 50_000], 2000)
    np.testing.assert_array_equal(found.ties()[1:], [[False, True, True]] * 2)
    assert not found.ties()[0].any()  # prompts wait for a small budget


def test_where_no_request_is_in_time_no_setting_is_best():
    found = surface(SCENARIO, [64], [1024], 200, ttft_objective_ms=0.1, tpot_objective_ms=0.1)
    assert found.goodput_per_s == 0
    assert found.best() is None


# The traffic of the runs.


@pytest.mark.parametrize("case", ["plain", "clients", "trace"])
def test_the_cached_draws_are_those_of_a_run(case):
    scenario = CASES[case]
    for seed in (0, 7, 0):
        cached, drawn = (draw(scenario, 250, seed) for draw in (draw_tokens_cached, draw_tokens))
        for name in ("prompts", "outputs", "limits"):
            np.testing.assert_array_equal(getattr(cached, name), getattr(drawn, name))
        for name in ("arrival_s", "think_s"):
            np.testing.assert_array_equal(getattr(cached.base, name), getattr(drawn.base, name))


def test_a_map_does_not_change_the_draws_of_the_next():
    first = surface(CASES["clients"], SEATS, BUDGETS, 200)
    again = surface(CASES["clients"], SEATS, BUDGETS, 200)
    np.testing.assert_array_equal(first.values, again.values)


def test_all_requests_of_a_trace_or_of_listed_lengths_are_taken():
    assert surface(CASES["trace"], [64], [1024], 20_000).requests == 250
    listed = SCENARIO.replace(tokens=bs.Tokens.sample([(100, 5), (200, 9), (50, 30)]))
    assert surface(listed, [64], [1024], 20_000).requests == 3


# Which cells keep up, decided by few of them.

LONG = bs.Tokens(bs.Lognormal(512, 1.0, 4096), bs.Lognormal(128, 0.8, 1024))
ACROSS, DOWN = (4, 8, 16, 24, 32, 48, 64), (128, 256, 512, 1024, 2048, 4096)


def grid_of(rate_per_s, **others):
    step = bs.published("llama-3.1-8b/rtx-4090")
    one = bs.Scenario(bs.Poisson(rate_per_s), bs.Continuous(kv_blocks=2000), step, tokens=LONG)
    knobs = ("max_num_batched_tokens", "max_num_seqs")
    pairs = itertools.product(DOWN, ACROSS)
    return [one.replace({**dict(zip(knobs, pair, strict=True)), **others}) for pair in pairs]


@pytest.mark.parametrize("rate_per_s", [1.0, 6.0, 9.0, 30.0])
def test_it_is_as_each_cell_says_of_itself(rate_per_s):
    asked = grid_of(rate_per_s)
    found = stable_cells(asked, len(ACROSS))
    assert found.tolist() == [cell.stable for cell in asked]


def test_where_the_traffic_is_far_from_what_they_carry_few_are_measured():
    saturated.cache_clear()
    before = saturated.cache_info().misses
    asked = grid_of(4.0, block_size=8)
    found = stable_cells(asked, len(ACROSS), roughly=True)
    assert 0 < found.sum() < found.size
    assert saturated.cache_info().misses - before < found.size * 2 / 3


def test_cells_that_are_refused_do_not_keep_up_and_disturb_no_other():
    asked = grid_of(6.0)
    whole = stable_cells(asked, len(ACROSS), roughly=True)
    gone = [0, 3, len(asked) - 1]
    for place in gone:
        asked[place] = None
    found = stable_cells(asked, len(ACROSS), roughly=True)
    assert not found[gone].any()
    kept = np.delete(np.arange(len(asked)), gone)
    assert (found[kept] == whole[kept]).all()
    assert not stable_cells([None] * 4, 2).any()


def test_a_limited_queue_stays_finite_at_any_rate():
    assert stable_cells(
        [cell.replace(queue_limit=9) for cell in grid_of(500.0)], len(ACROSS), roughly=True
    ).all()


# Bad input.


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"knobs": ("max_num_seqs", "max_num_seqs")}, "two different"),
        ({"knobs": ("max_num_seqs", "kv_block")}, "kv_blocks"),
        ({"x_values": [0, 4]}, "max_num_seqs must be at least 1, got 0"),
        ({"ttft_objective_ms": 100}, "no tpot_objective_ms"),
        ({"ttft_objective_ms": 0, "tpot_objective_ms": 1}, "ttft_objective_ms must be greater than 0"),
        ({"scenario": SCENARIO.replace(rule=bs.servers.sglang())}, "compiled engine"),
        ({"scenario": PLAIN, "x_values": [4], "y_values": [1], **WITHIN}, "tokens, got one without"),
    ],
)
def test_what_makes_no_sense_is_refused(change, words):
    given = {"scenario": SCENARIO, "x_values": [4, 8], "y_values": [512, 1024], "requests": 100} | change
    with pytest.raises(ValueError, match=words):
        surface(**given)


def test_a_curve_of_requests_that_never_fit_is_refused():
    with pytest.raises(ValueError, match="must fit into the memory"):
        load_curve(SCENARIO.replace(kv_blocks=50), 100)
