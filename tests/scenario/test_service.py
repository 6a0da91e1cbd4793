import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from refusals import refusals

import batchsim as bs

SERVICES = [
    bs.Affine(2.0, 0.5),
    bs.Affine(0.0, 0.5),
    bs.Affine(2.0, 0.0),
    bs.Table({1: 2.0, 2: 3.0, 8: 6.0}),
    bs.Table({1: 5.0, 2: 3.0, 8: 9.0}).with_noise(0.5),
    bs.Affine(2.0, 0.5).padded_to([1, 4, 8]).with_noise(1, "exponential"),
]


def test_an_affine_batch_costs_a_fixed_part_and_one_for_each_item():
    assert [bs.Affine(2, 0.5)(size) for size in (1, 2, 8)] == [0.0025, 0.003, 0.006]


def test_a_table_is_itself_at_its_points_and_linear_between():
    service = bs.Table({1: 2.08, 2: 2.65, 8: 3.29})
    assert service(1) == 2.08 / 1000
    assert service(2) == 2.65 / 1000
    assert service(8) == 3.29 / 1000
    assert service(5) == pytest.approx((2.65 + 3.29) / 2 / 1000)
    assert service(3) == pytest.approx((2.65 + 0.64 / 6) / 1000)


def test_below_its_smallest_size_a_table_costs_what_the_smallest_does():
    service = bs.Table({4: 3.0, 8: 5.0})
    assert [service(size) for size in (1, 2, 3, 4)] == [0.003] * 4


def test_a_table_takes_pairs_in_any_order_and_numbers_of_numpy():
    assert bs.Table([(8, 6), (1, 2)]) == bs.Table({1: 2, 8: 6})
    assert bs.Table({np.int64(1): np.float32(2)})(1) == 0.002


@given(
    points=st.dictionaries(st.integers(1, 64), st.floats(0.01, 1e4), min_size=1, max_size=8),
    share=st.floats(0, 1),
)
def test_a_table_stays_between_its_neighbouring_points(points, share):
    service = bs.Table(points)
    size = max(1, round(share * max(points)))
    near = [ms for k, ms in points.items() if k == max((p for p in points if p <= size), default=min(points))]
    near += [ms for k, ms in points.items() if k == min(p for p in points if p >= size)]
    assert min(near) / 1000 * (1 - 1e-12) <= service(size) <= max(near) / 1000 * (1 + 1e-12)


@pytest.mark.parametrize("service", SERVICES, ids=repr)
def test_the_table_of_seconds_is_the_service_time_itself(service):
    table = service.table(8)
    assert table.shape == (9,)
    assert math.isnan(table[0])
    assert table[1:].tolist() == [service(size) for size in range(1, 9)]


@pytest.mark.parametrize("service", SERVICES, ids=repr)
def test_the_repr_of_a_service_makes_it_again(service):
    assert eval(f"bs.{service!r}") == service
    assert hash(eval(f"bs.{service!r}")) == hash(service)


SIZES = range(1, 9)


@pytest.mark.parametrize("service", SERVICES, ids=repr)
def test_a_scaled_service_takes_that_many_times_as_long_and_keeps_its_noise(service):
    scaled = service.scaled(0.3, 8)
    assert [scaled(size) for size in range(1, 9)] == [
        service(size) * 1000 * 0.3 / 1000 for size in range(1, 9)
    ]
    assert scaled.noise == service.noise


# Padding.


def test_a_padded_batch_costs_what_the_next_size_does():
    service = bs.Affine(2, 1).padded_to([1, 2, 4, 8])
    assert [service(size) for size in range(1, 9)] == [
        pytest.approx(ms / 1000) for ms in (3, 4, 6, 6, 10, 10, 10, 10)
    ]


def test_padding_reaches_beyond_the_batch_but_not_beyond_itself():
    service = bs.Table({1: 2, 16: 9}).padded_to([16])
    assert service(1) == 0.009
    with pytest.raises(ValueError, match="batch_size must be at most the largest padded size, 16, got 17"):
        service(17)


def test_padding_may_be_any_iterable_of_sizes():
    expected = bs.Affine(2, 1).padded_to((1, 4))
    assert bs.Affine(2, 1).padded_to(np.array([1, 4])) == expected
    assert bs.Affine(2, 1).padded_to(size for size in (1, 4)) == expected
    assert bs.Affine(2, 1, padding=[1, 4]) == expected
    assert hash(bs.Affine(2, 1, padding=[1, 4])) == hash(expected)


@pytest.mark.parametrize(
    ("sizes", "error", "message"),
    [
        ([], ValueError, "padded sizes must not be empty"),
        ([4, 2], ValueError, r"padded sizes must increase, got \[4, 2\]"),
        ([2, 2], ValueError, r"padded sizes must increase, got \[2, 2\]"),
        ([0, 2], ValueError, "must be at least 1, got 0"),
        ([1.5], TypeError, "must be a whole number, got 1.5"),
        (8, TypeError, "padded sizes must be a list of sizes, got 8"),
        ("18", TypeError, "padded sizes must be a list of sizes, got '18'"),
    ],
)
@pytest.mark.parametrize("service", [bs.Affine(1, 1), bs.Table({1: 1})], ids=repr)
def test_padding_refuses(service, sizes, error, message):
    with pytest.raises(error, match=message):
        service.padded_to(sizes)


# Noise.


@pytest.mark.parametrize("cv", [0.05, 0.5, 1.0, 2.0])
def test_lognormal_noise_has_mean_1_and_its_cv(cv):
    factors = bs.Noise(cv).draw(np.random.default_rng(1), 1_000_000)
    assert factors.mean() == pytest.approx(1, abs=4 * cv / 1000)
    assert factors.std() == pytest.approx(cv, rel=0.04)
    assert (factors > 0).all()
    assert np.log(factors).mean() == pytest.approx(-math.log(1 + cv**2) / 2, abs=0.01)


def test_exponential_noise_has_mean_1_and_cv_1():
    factors = bs.Noise(1, "exponential").draw(np.random.default_rng(1), 400_000)
    assert factors.mean() == pytest.approx(1, abs=0.007)
    assert factors.std() == pytest.approx(1, abs=0.02)
    assert (factors > math.log(2)).mean() == pytest.approx(0.5, abs=0.004)


def test_noise_of_cv_0_is_none():
    assert bs.Noise(0).draw(np.random.default_rng(1), 9).tolist() == [1] * 9


def test_lasting_noise_has_mean_1_its_cv_and_its_correlations():
    noise = bs.Noise(0.5, correlation=0.6, memory_batches=8)
    factors = noise.draw(np.random.default_rng(1), 1_000_000)
    assert factors.mean() == pytest.approx(1, abs=0.006)
    assert factors.std() == pytest.approx(0.5, rel=0.03)
    logs = np.log(factors) - np.log(factors).mean()
    for lag in (1, 2, 4, 8, 16, 32):
        found = float(logs[lag:] @ logs[:-lag] / (logs @ logs))
        assert found == pytest.approx(0.6 * math.exp(-(lag - 1) / 8), abs=0.02)


def test_a_queue_sees_of_lasting_noise_the_variance_of_long_sums():
    noise = bs.Noise(0.1, correlation=0.6, memory_batches=8)
    sums = noise.draw(np.random.default_rng(2), 4_000_000).reshape(-1, 1000).sum(axis=1)
    assert sums.var() / 1000 == pytest.approx(noise.dispersion, rel=0.08)
    assert noise.dispersion > 10 * bs.Noise(0.1).dispersion == 10 * 0.1**2


def test_under_a_heavy_load_waits_grow_with_the_dispersion_of_the_noise():
    # The heavy-traffic limit of G/G/1 (Kingman 1962; for dependent services Fendick, Saksena and Whitt 1989).
    load, means_ms = 0.95, []
    noise = bs.Noise(0.5, correlation=0.5, memory_batches=6)
    scenario = bs.Scenario(bs.Poisson(1000 * load), bs.SizeOrWait(1, 0), bs.Affine(1, 0, noise=noise))
    expected_ms = load / (1 - load) * (1 + noise.dispersion) / 2
    means_ms = [bs.simulate(scenario, 1_000_000, seed=seed).mean_latency_ms - 1 for seed in range(3)]
    assert np.mean(means_ms) == pytest.approx(expected_ms, rel=0.12)
    alone = bs.simulate(scenario.replace(service=bs.Affine(1, 0).with_noise(0.5)), 1_000_000)
    assert np.mean(means_ms) > 1.5 * alone.mean_latency_ms


def test_lasting_noise_is_the_same_however_it_is_drawn():
    noise = bs.Noise(0.3, correlation=0.4)
    whole, draw = noise.draw(np.random.default_rng(4), 3000), noise.source(np.random.default_rng(4))
    assert np.array_equal(whole, np.concatenate([draw(count) for count in (1, 0, 999, 2000)]))


@pytest.mark.parametrize("engine", ["simpy", "compiled"])
def test_engines_and_summaries_agree_on_lasting_noise(engine):
    service = bs.Affine(1, 0.1).with_noise(0.4, correlation=0.5, memory_batches=5)
    scenario = bs.Scenario(bs.Poisson(3000), bs.SizeOrWait(8, 1), service)
    own = bs.simulate(scenario, 3000, seed=3, engine=engine)
    summary = bs.simulate(scenario, 3000, seed=3, keep="summary")
    assert own.mean_latency_ms == pytest.approx(summary.mean_latency_ms, rel=1e-12)


def test_theory_has_no_answer_for_noise_that_lasts():
    service = bs.Affine(1, 0.1).with_noise(0.4, correlation=0.5)
    answer = bs.theory.expected(bs.Scenario(bs.Poisson(500), bs.SizeOrWait(1, 0), service))
    assert not answer
    assert "independent" in str(answer)
    with pytest.raises(ValueError, match="independent of each other, got Noise"):
        bs.theory.capped(500, service, 8)


@pytest.mark.parametrize(
    "noise",
    [bs.Noise(0.7), bs.Noise(1, "exponential"), bs.Noise(0.7, correlation=0.5, memory_batches=3)],
    ids=repr,
)
def test_a_shorter_draw_of_noise_is_a_prefix(noise):
    longer = noise.draw(np.random.default_rng(4), 1000)
    assert np.array_equal(noise.draw(np.random.default_rng(4), 77), longer[:77])


def test_noise_and_padding_do_not_change_the_mean_and_come_in_any_order():
    service = bs.Affine(2, 1)
    assert service.with_noise(0.5)(3) == service(3)
    assert service.with_noise(0.5).padded_to([4]) == service.padded_to([4]).with_noise(0.5)
    assert service.with_noise(0.5).with_noise(0.2) == service.with_noise(0.2)
    assert service.noise is None


@refusals
def test_noise_refuses():
    """
    bs.Affine(1, 1).with_noise(-0.1) -> cv must be at least 0, got -0.1
    bs.Affine(1, 1).with_noise(math.nan) -> cv must be a number, got nan
    bs.Affine(1, 1).with_noise(math.inf) -> cv must be finite, got inf
    bs.Affine(1, 1).with_noise("half") -> TypeError: cv must be a number, got 'half'
    bs.Affine(1, 1).with_noise(0.5, "lognorm")
        -> shape must be one of ..., got 'lognorm'; did you mean 'lognormal'
    bs.Affine(1, 1).with_noise(0.5, None) -> shape must be one of lognormal, exponential, got None
    bs.Affine(1, 1).with_noise(0.5, "exponential") -> cv of exponential noise must be 1, got 0.5
    bs.Affine(1, 1).with_noise(1, "exponential", 0.2) -> correlation of exponential noise must be 0, got 0.2
    bs.Affine(1, 1).with_noise(0.5, "lognormal", -0.1) -> correlation must be at least 0, got -0.1
    bs.Affine(1, 1).with_noise(0.5, "lognormal", 0.5, 0) -> memory_batches must be greater than 0, got 0
    bs.Affine(1, 1).with_noise(0.5, "lognormal", 0.5, 1) -> correlation must be at most 0.3679 ..., got 0.5
    """


# A cold start.


def cold(service, largest):
    seconds, shapes = service.cold_start(largest)
    return [round(1000 * each, 9) for each in seconds.tolist()], shapes.tolist()


def test_each_size_is_a_shape_that_costs_what_lies_between_the_given_sizes():
    service = bs.Affine(2, 1).compiling({2: 100, 4: 300})
    assert cold(service, 5) == ([0, 100, 100, 200, 300, 300], [0, 1, 2, 3, 4, 5])


def test_padded_sizes_are_one_shape():
    service = bs.Affine(2, 1).padded_to([1, 4, 8]).compiling({1: 300, 4: 500, 8: 650})
    assert cold(service, 6) == ([0, 300, 500, 500, 500, 650, 650], [0, 1, 4, 4, 4, 8, 8])


def test_one_cost_is_that_of_all_sizes_and_none_is_none():
    assert bs.Affine(2, 1).compiling(800) == bs.Affine(2, 1).compiling({1: 800})
    assert cold(bs.Table({1: 2, 2: 3}).compiling(800), 2) == ([0, 800, 800], [0, 1, 2])
    assert bs.Affine(2, 1).cold_start(4) is None


def test_a_cold_start_changes_no_mean_and_comes_in_any_order():
    one = bs.Table({1: 2, 4: 3}).compiling({1: 9}).with_noise(0.1).padded_to([1, 4])
    other = bs.Table({1: 2, 4: 3}).padded_to([1, 4]).with_noise(0.1).compiling([(1, 9)])
    assert one == other
    assert hash(one) == hash(other)
    assert eval(f"bs.{one!r}") == one
    assert one(3) == 0.003
    scenario = bs.Scenario(bs.Poisson(10), bs.SizeOrWait(4, 1), one)
    warm = scenario.replace(compile_ms=None)
    assert scenario.saturation_per_s == warm.saturation_per_s
    steady, after = (bs.theory.expected(each.replace(max_batch_size=1)) for each in (warm, scenario))
    assert after.mean_latency_ms == steady.mean_latency_ms
    assert after.model == f"{steady.model}, after the cold start"


def test_a_scaled_service_compiles_as_it_did():
    service = bs.Affine(2, 1).padded_to([1, 4, 8]).compiling({1: 300, 8: 650})
    scaled = service.scaled(2, 6)
    assert [scaled(size) for size in range(1, 7)] == [2 * service(size) for size in range(1, 7)]
    seconds, shapes = service.cold_start(6)
    assert scaled.cold_start(6)[0].tolist() == seconds.tolist()
    same = shapes[:, None] == shapes
    assert np.array_equal(scaled.cold_start(6)[1][:, None] == scaled.cold_start(6)[1], same)


@refusals
def test_a_cold_start_refuses():
    """
    bs.Affine(1, 1).compiling({}) -> compile_ms must have at least one point, got none
    bs.Affine(1, 1).compiling({1: -1}) -> the time of batch size 1 must be at least 0, got -1
    bs.Affine(1, 1).compiling({0: 1}) -> a batch size must be at least 1, got 0
    bs.Affine(1, 1).compiling([(1, 2), (1, 3)]) -> batch sizes of compile_ms must differ, got [1, 1]
    bs.Affine(1, 1).compiling(-5) -> compile_ms must be at least 0, got -5
    bs.Affine(1, 1).compiling("800") -> TypeError: compile_ms must be a number, got '800'
    bs.Affine(1, 1).compiling([1, 2]) -> TypeError: compile_ms must be given as {batch_size: ms}
    """


# What they refuse.


@refusals
def test_a_service_refuses():
    """
    bs.Affine(-1, 1) -> fixed_ms must be at least 0, got -1
    bs.Affine(1, -1) -> per_item_ms must be at least 0, got -1
    bs.Affine(0, 0) -> fixed_ms + per_item_ms must be greater than 0, got 0
    bs.Affine(math.nan, 1) -> fixed_ms must be a number, got nan
    bs.Affine(1, math.inf) -> per_item_ms must be finite, got inf
    bs.Affine("1", 1) -> TypeError: fixed_ms must be a number, got '1'
    bs.Affine(1, 1, noise=0.5) -> TypeError: noise must be a Noise, got 0.5
    bs.Affine(1e308, 1e308).table(2) -> fixed_ms must be at most 1e+12, got 1e+308
    bs.Affine(5e-324, 0).table(2) -> batch of 1 must be greater than 0 and finite
    bs.Table({}) -> a Table must have at least one point, got none
    bs.Table([]) -> a Table must have at least one point, got none
    bs.Table({0: 1.0}) -> a batch size must be at least 1, got 0
    bs.Table({1.5: 1.0}) -> TypeError: a batch size must be a whole number, got 1.5
    bs.Table({1: 0}) -> the time of batch size 1 must be greater than 0, got 0
    bs.Table({2: -3}) -> the time of batch size 2 must be greater than 0, got -3
    bs.Table({2: math.nan}) -> the time of batch size 2 must be a number, got nan
    bs.Table({2: math.inf}) -> the time of batch size 2 must be finite, got inf
    bs.Table({2: "3"}) -> TypeError: the time of batch size 2 must be a number, got '3'
    bs.Table([(1, 2), (1, 3)]) -> batch sizes of a Table must differ, got [1, 1]
    bs.Table(5) -> TypeError: a Table must be given as {batch_size: ms}, got 5
    bs.Table([1, 2]) -> TypeError: a Table must be given as {batch_size: ms}, got [1, 2]
    bs.Table({1: 2}, noise="loud") -> TypeError: noise must be a Noise, got 'loud'
    bs.Affine(1, 1)(0) -> batch_size must be at least 1, got 0
    bs.Affine(1, 1)(2.0) -> TypeError: batch_size must be a whole number, got 2.0
    bs.Table({1: 2})(0) -> batch_size must be at least 1, got 0
    bs.Table({1: 2.0, 8: 6.0})(9) -> at most the Table's largest size, 8, got 9
    bs.Table({1: 2, 8: 9}).padded_to([16])(1) -> at most the Table's largest size, 8, got 16
    """


def test_numpys_small_integers_do_not_overflow():
    assert bs.Affine(np.int8(5), np.int8(100))(2) == 0.205
    assert repr(bs.Affine(np.float64(5), 1)) == "Affine(fixed_ms=5.0, per_item_ms=1)"


def test_a_tables_largest_batch_is_the_largest_padded_size_that_it_has():
    service = bs.Table({1: 1, 8: 2}).padded_to([1, 4, 16])
    assert service.largest_batch == 4
    assert service(4) > 0
    assert service.padded_to([1, 8, 16]).largest_batch == 8


def test_a_table_that_was_handed_out_is_the_callers_own():
    service = bs.Affine(1, 1)
    service.table(3)[:] = 0
    assert service.table(3)[1] == 0.002
