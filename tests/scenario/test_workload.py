"""Workloads draw the arrivals that their definitions say, varying rates included."""

import dataclasses
import itertools
import math
from decimal import Decimal, localcontext

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from oracles.arrivals import arrivals, stream
from refusals import refusals

import batchsim as bs
from batchsim.engines.draws import draw
from batchsim.scenario.workload import BLOCK, Limited, filled

OPEN = [
    bs.Poisson(200.0),
    bs.Constant(200.0),
    bs.Gamma(200.0, cv=0.3),
    bs.Gamma(200.0, cv=2.5),
    bs.OnOff(400.0, 50.0, 0.5, 0.3),
    bs.OnOff(400.0, 0.0, 0.05, 0.1),
    bs.Diurnal(200.0, 1.0, 10.0),
    bs.Diurnal(200.0, 2.0, 10.0),
    bs.Trace(np.sort(np.random.default_rng(1).uniform(0, 20, 4000))),
]
every_open_workload = pytest.mark.parametrize("workload", OPEN, ids=repr)


# What holds for all.


@every_open_workload
def test_arrivals_never_decrease_and_start_no_sooner_than_0(workload):
    times_s = arrivals(workload)
    assert times_s.shape == (4000,)
    assert times_s.dtype == float
    assert times_s[0] >= 0
    assert (np.diff(times_s) >= 0).all()
    assert np.isfinite(times_s).all()


@every_open_workload
@given(requests=st.integers(1, 4000), seed=st.integers(0, 50))
def test_a_shorter_run_is_a_prefix_of_a_longer_one(workload, requests, seed):
    longer = arrivals(workload, 4000, seed)
    assert np.array_equal(arrivals(workload, requests, seed), longer[:requests])


@every_open_workload
@pytest.mark.parametrize("size", [37, 1000, BLOCK + 1])
def test_arrivals_are_the_same_whatever_the_chunks(workload, size):
    requests = min(20_000, workload.max_requests or 20_000)
    chunks = list(workload.chunks_s(stream(), requests, size))
    assert max(chunk.size for chunk in chunks) <= size
    assert np.array_equal(np.concatenate(chunks), arrivals(workload, requests))


@every_open_workload
def test_the_same_seed_gives_the_same_arrivals(workload):
    assert np.array_equal(arrivals(workload, seed=3), arrivals(workload, seed=3))
    if not isinstance(workload, bs.Constant | bs.Trace):
        assert not np.array_equal(arrivals(workload, seed=3), arrivals(workload, seed=4))


@every_open_workload
def test_with_rate_sets_the_mean_rate_and_keeps_the_shape(workload):
    faster = workload.with_rate(1234.5)
    assert type(faster) is type(workload)
    assert faster.offered_per_s == pytest.approx(1234.5)
    assert faster.with_rate(workload.offered_per_s).offered_per_s == pytest.approx(workload.offered_per_s)


@pytest.mark.parametrize("workload", [OPEN[0], OPEN[1], OPEN[3], OPEN[8]], ids=repr)
def test_a_rate_only_rescales_the_same_traffic(workload):
    factor = 900.0 / workload.offered_per_s
    faster = arrivals(workload.with_rate(900.0))
    np.testing.assert_allclose(faster * factor, arrivals(workload), rtol=1e-12)


@every_open_workload
def test_the_rate_that_it_has_keeps_every_arrival(workload):
    same = workload.with_rate(workload.offered_per_s)
    np.testing.assert_allclose(arrivals(same), arrivals(workload), rtol=1e-14)


@every_open_workload
def test_the_long_run_rate_is_what_is_offered(workload):
    times_s = arrivals(workload, min(400_000, workload.max_requests or 400_000), seed=1)
    assert times_s.size / times_s[-1] == pytest.approx(workload.offered_per_s, rel=0.02)


@pytest.mark.parametrize("rate", [0, -1, math.nan, math.inf, "9", None])
@every_open_workload
def test_with_rate_refuses_what_is_no_rate(workload, rate):
    with pytest.raises((ValueError, TypeError), match=r"rate_per_s must be (greater than 0|a number|finite)"):
        workload.with_rate(rate)


# One by one.


def test_poisson_is_the_standard_exponential_stream_summed_and_divided():
    expected = np.cumsum(np.random.default_rng(stream(9)).standard_exponential(100)) / 300
    assert np.array_equal(arrivals(bs.Poisson(300), 100, seed=9), expected)


def test_poisson_gaps_are_exponential():
    gaps = np.diff(arrivals(bs.Poisson(50), 200_000), prepend=0)
    assert gaps.mean() * 50 == pytest.approx(1, abs=4 / math.sqrt(200_000))
    assert gaps.std() * 50 == pytest.approx(1, abs=0.02)
    assert (gaps > math.log(2) / 50).mean() == pytest.approx(0.5, abs=0.005)


@given(rate=st.floats(0.01, 1e5), count=st.integers(1, 300))
def test_constant_arrival_i_is_at_i_plus_1_over_the_rate(rate, count):
    assert arrivals(bs.Constant(rate), count).tolist() == [(i + 1) / rate for i in range(count)]


@pytest.mark.parametrize("cv", [0.2, 0.7, 1.0, 2.0, 3.0])
def test_gamma_gaps_have_the_mean_and_the_cv(cv):
    gaps = np.diff(arrivals(bs.Gamma(50, cv), 400_000), prepend=0)
    assert gaps.mean() * 50 == pytest.approx(1, abs=4 * cv / math.sqrt(400_000))
    assert gaps.std() / gaps.mean() == pytest.approx(cv, rel=0.03)


def test_gamma_of_cv_1_is_a_poisson_process():
    gaps = np.diff(arrivals(bs.Gamma(50, 1), 200_000), prepend=0)
    assert (gaps > math.log(2) / 50).mean() == pytest.approx(0.5, abs=0.005)


def thinking(workload, requests):
    return draw(bs.Scenario(workload, bs.SizeOrWait(8, 1), bs.Affine(1, 0)), requests, 0).think_s


def test_a_closed_loop_thinks_exponentially():
    think_s = thinking(bs.ClosedLoop(3, think_s=2.0), 100_000)
    assert np.array_equal(think_s, 2 * np.random.default_rng(stream(0, 2)).standard_exponential(100_000))
    assert think_s.mean() == pytest.approx(2, rel=0.015)
    assert np.array_equal(thinking(bs.ClosedLoop(8, think_s=4.0), 500), 2 * think_s[:500])
    assert not thinking(bs.ClosedLoop(3), 5).any()


# What the others refuse.


@refusals
def test_a_workload_refuses():
    """
    bs.Poisson(0) -> rate_per_s must be greater than 0, got 0
    bs.Poisson(-5) -> rate_per_s must be greater than 0, got -5
    bs.Poisson(math.nan) -> rate_per_s must be a number, got nan
    bs.Poisson(math.inf) -> rate_per_s must be finite, got inf
    bs.Poisson("9") -> TypeError: rate_per_s must be a number, got '9'
    bs.Poisson([9]) -> TypeError: rate_per_s must be a number, got [9]
    bs.Poisson(np.array([9.0])) -> TypeError: rate_per_s must be a number, got array
    bs.Poisson(1j) -> TypeError: rate_per_s must be a number, got 1j
    bs.Poisson(None) -> TypeError: rate_per_s must be a number, got None
    bs.Constant(0) -> rate_per_s must be greater than 0, got 0
    bs.Gamma(0, 1) -> rate_per_s must be greater than 0, got 0
    bs.Gamma(5, 0) -> cv must be at least 0.001, got 0
    bs.Gamma(5, math.inf) -> cv must be finite, got inf
    bs.OnOff(0, 0, 1, 1) -> on_rate_per_s must be greater than 0, got 0
    bs.OnOff(1, -1, 1, 1) -> off_rate_per_s must be at least 0, got -1
    bs.OnOff(1, 1, 0, 1) -> mean_on_s must be greater than 0, got 0
    bs.OnOff(1, 1, 1, math.nan) -> mean_off_s must be a number, got nan
    bs.Diurnal(0, 1, 1) -> mean_rate_per_s must be greater than 0, got 0
    bs.Diurnal(1, 0.9, 1) -> peak_to_mean must be at least 1, got 0.9
    bs.Diurnal(1, 2.1, 1) -> peak_to_mean must be at most 2, got 2.1
    bs.Diurnal(1, 1.5, 0) -> period_s must be greater than 0, got 0
    bs.ClosedLoop(0) -> clients must be at least 1, got 0
    bs.ClosedLoop(2.5) -> TypeError: clients must be a whole number, got 2.5
    bs.ClosedLoop(2, -1) -> think_s must be at least 0, got -1
    bs.ClosedLoop(2, math.inf) -> think_s must be finite, got inf
    Limited(2, times_s=()) -> the number of times_s must be at least 1, got 0
    """


@pytest.mark.parametrize("engine", ["compiled", "simpy"])
def test_a_source_of_given_times_has_no_more_requests(engine):
    limited = Limited(2, times_s=(0.0, 0.1, 0.2))
    assert (limited.max_requests, limited.with_sizes([7, 8]).max_requests) == (3, 2)
    scenario = bs.Scenario(limited, bs.SizeOrWait(2, 1), bs.Affine(5, 1))
    assert bs.simulate(scenario, engine=engine).arrival_s.tolist() == [0, 0.1, 0.2]
    with pytest.raises(ValueError, match=r"requests must be at most .* 3, got 4"):
        bs.simulate(scenario, 4, engine=engine)


@pytest.mark.parametrize("workload", [*OPEN[:-1], bs.ClosedLoop(3), bs.ClosedLoop(3, think_s=0.5)], ids=repr)
def test_the_repr_of_a_workload_makes_it_again(workload):
    assert eval(f"bs.{workload!r}") == workload


@refusals
def test_what_would_hang_or_overflow_is_refused():
    """
    bs.Poisson(1e-320) -> rate_per_s must be at least 1e-12
    bs.Constant(10000000000000.0) -> rate_per_s must be at most 1e+12
    bs.Gamma(1, 1e-200) -> cv must be at least 0.001
    bs.Gamma(1, 1e200) -> cv must be at most
    bs.OnOff(100, 0, 1e-09, 1) -> must see at least 0.001 arrivals, got 1e-07
    bs.Diurnal(100, 1.5, 1e-308) -> period_s must be at least 1e-12
    bs.ClosedLoop(4, 1e308) -> think_s must be at most 1e+12
    bs.ClosedLoop(10**12) -> clients must be at most 10,000,000
    bs.Trace([-1e308, 1e308]) -> times_s must be at most 1e+12 s from 0, got -1e+308
    bs.Trace([0, 10000000000000.0]) -> times_s must be at most 1e+12 s from 0, got 1e+13
    """


def test_a_knob_of_numpys_types_is_the_plain_number():
    assert repr(bs.Poisson(np.float64(3))) == "Poisson(rate_per_s=3.0)"
    assert type(bs.ClosedLoop(np.uint8(200)).clients) is int


# Diurnal.


@pytest.mark.parametrize("peak", [1.0, 1.3, 1.9, 2.0])
def test_diurnal_inverts_the_integral_of_its_rate(peak):
    mean, period = 200.0, 7.0
    times_s = arrivals(bs.Diurnal(mean, peak, period), 5000, seed=2)
    points = np.cumsum(np.random.default_rng(stream(2)).standard_exponential(5000))
    turn = 2 * math.pi / period
    integral = mean * (times_s - (peak - 1) * np.sin(turn * times_s) / turn)
    np.testing.assert_allclose(integral, points, rtol=1e-9)


def stretched_s(workload, points):
    return filled(workload.stretched_s([np.array(points, float)]), len(points))


def bisected_s(workload, points):
    """The times by bisection of the integral, and how fast the rate then is, as a part of its mean."""
    swing, turn = workload.peak_to_mean - 1, 2 * math.pi / workload.period_s
    mean_angle = np.array(points) / workload.mean_rate_per_s * turn
    low, high = np.maximum(mean_angle - swing, 0), mean_angle + swing
    for _ in range(60):
        middle = (low + high) / 2
        early = middle - swing * np.sin(middle) < mean_angle
        low, high = np.where(early, middle, low), np.where(early, high, middle)
    return high / turn, 1 - swing * np.cos(high)


PEAKS = [1, math.nextafter(1, 2), 1 + 1e-9, 1.001, 1.5, 1.999, 2 - 1e-9, math.nextafter(2, 1), 2]
peaks = st.sampled_from(PEAKS) | st.floats(1, 2)
knobs = st.sampled_from([1e-12, 10**12, 1]) | st.floats(-12, 12).map(lambda power: 10**power)


@settings(max_examples=100)
@given(peaks, knobs, knobs, st.integers(0, 99))
def test_diurnal_is_what_bisection_finds(peak, rate, period, seed):
    workload, generator = bs.Diurnal(rate, peak, period), np.random.default_rng(seed)
    periods = np.append(generator.uniform(0, 3, 300), 10 ** generator.uniform(-5, 15, 100))
    points = np.sort(np.append(periods * (rate * period), 10 ** generator.uniform(-16, 7, 100)))
    times_s = stretched_s(workload, points)
    expected_s, speed = bisected_s(workload, points)
    # Elsewhere it is the bisection that is not so exact: the rate is nearly 0, or the angle.
    exact = (speed > 1e-3) & (expected_s > 1e-5 * period)
    assert exact.sum() > 250
    np.testing.assert_allclose(times_s[exact], expected_s[exact], rtol=1e-12)


PI = Decimal("3.14159265358979323846264338327950288419716939937510582097494459230781640628620899862803482534")


def integral(time, swing):
    """The integral of a Diurnal's rate, its mean and its period 1, to 80 digits."""
    angle = 2 * PI * (time % 1)
    term, sine = angle, Decimal(0)
    for power in itertools.count(2, 2):
        sine += term
        term *= -angle * angle / (power * (power + 1))
        if abs(term) <= angle * Decimal("1e-80"):
            return time - swing * sine / (2 * PI)


@settings(max_examples=200)
@given(peaks, st.floats(-41, 15).map(lambda power: 10**power) | st.floats(1e-6, 3))
@example(2, 1e-41)
@example(2, math.nextafter(1, 0))
@example(2, math.nextafter(1, 2))
@example(2, 7.0)
@example(2, 0.036)  # where the cubic is farthest off
@example(1.5, 0.5)
def test_diurnal_is_exact_to_some_roundings_everywhere(peak, point):
    (time,) = stretched_s(bs.Diurnal(1, peak, 1), [point])
    with localcontext(prec=90):
        time, swing, part = Decimal(float(time)), Decimal(peak) - 1, Decimal("1e-15")
        assert integral(time * (1 - part), swing) <= Decimal(point) <= integral(time * (1 + part), swing)


@given(peaks, knobs, knobs, st.lists(st.just(0.0) | knobs, min_size=1))
def test_diurnal_is_finite_and_rises_at_any_knob(peak, rate, period, points):
    times_s = stretched_s(bs.Diurnal(rate, peak, period), sorted(points))
    assert np.isfinite(times_s).all()
    assert (np.diff(times_s, prepend=0) >= 0).all()


@pytest.mark.parametrize("peak", PEAKS)
def test_diurnal_is_all_but_0_at_0(peak):
    assert 0 <= stretched_s(bs.Diurnal(1, peak, 1), [0])[0] < 1e-30


def test_diurnal_has_its_night_at_0_and_its_peak_half_a_period_later():
    phase = arrivals(bs.Diurnal(1000, 1.8, 2.0), 200_000) % 2.0
    counts, _ = np.histogram(phase, bins=20, range=(0, 2))
    rates = counts / counts.mean()
    assert rates[0] == pytest.approx(0.2, abs=0.05)
    assert rates[-1] == pytest.approx(0.2, abs=0.05)
    assert rates[9] == pytest.approx(1.8, abs=0.08)


def test_a_flat_diurnal_is_poisson():
    np.testing.assert_allclose(arrivals(bs.Diurnal(200, 1, 10)), arrivals(bs.Poisson(200)), rtol=1e-9)


def test_on_off_with_nothing_at_night_has_silences():
    gaps = np.diff(arrivals(bs.OnOff(1000, 0, 0.1, 5.0), 20_000))
    assert gaps.max() > 5
    assert np.median(gaps) < 0.002


def test_on_off_starts_in_each_state_as_often_as_it_is_in_it():
    workload = bs.OnOff(1000.0, 1e-9, 1.0, 3.0)
    first_s = np.array([arrivals(workload, 1, seed)[0] for seed in range(1500)])
    started_on = (first_s < 0.01).mean()  # an off state of mean 3 s ends so soon in 0.3 % of runs
    assert started_on == pytest.approx(0.25, abs=4 * math.sqrt(0.25 * 0.75 / 1500))


def test_on_off_counts_are_burstier_than_poissons():
    times_s = arrivals(bs.OnOff(400, 0, 0.5, 0.5), 100_000)
    counts = np.histogram(times_s, bins=np.arange(0, times_s[-1], 0.5))[0]
    assert counts.var() > 10 * counts.mean()


def test_on_off_rates_do_not_change_when_the_states_change():
    slow, fast = bs.OnOff(100, 0, 1, 1), bs.OnOff(10_000, 0, 1, 1)
    times_s = arrivals(fast, 100_000)
    silences = times_s[:-1][np.diff(times_s) > 0.1], times_s[1:][np.diff(times_s) > 0.1]
    for begin, end in zip(*silences, strict=True):  # nobody comes to the slow one then either
        assert not ((arrivals(slow, 900) > begin + 0.1) & (arrivals(slow, 900) < end - 0.1)).any()


@pytest.mark.parametrize("workload", [bs.OnOff(90, 0, 0.3, 0.5), bs.OnOff(5, 20, 0.01, 0.02)], ids=repr)
@pytest.mark.parametrize("seed", range(3))
def test_on_off_is_a_walk_through_its_states(workload, seed):
    points, states = (np.random.default_rng(one) for one in stream(seed).spawn(2))
    on_part = workload.mean_on_s / (workload.mean_on_s + workload.mean_off_s)
    on, time, expected_s = states.random() < on_part, 0.0, []
    until = states.standard_exponential() * (workload.mean_on_s if on else workload.mean_off_s)
    for due in points.standard_exponential(3000):
        while due > (until - time) * (rate := workload.on_rate_per_s if on else workload.off_rate_per_s):
            due -= (until - time) * rate
            on, time = not on, until
            until += states.standard_exponential() * (workload.mean_on_s if on else workload.mean_off_s)
        time += due / rate
        expected_s.append(time)
    np.testing.assert_allclose(arrivals(workload, 3000, seed), expected_s, rtol=1e-10)


def test_on_off_of_equal_rates_is_poisson():
    gaps = np.diff(arrivals(bs.OnOff(50, 50, 0.1, 0.3), 100_000))
    assert gaps.mean() * 50 == pytest.approx(1, abs=0.015)
    assert gaps.std() * 50 == pytest.approx(1, abs=0.02)


def test_the_mean_rate_of_on_off_is_weighted_by_time():
    assert bs.OnOff(100, 20, 1, 3).offered_per_s == 40
    assert bs.OnOff(100, 20, 1, 3).with_rate(80) == bs.OnOff(200, 40, 1, 3)


def test_only_a_day_has_rates_along_it():
    for workload in OPEN:
        assert (workload.rates_per_s(0, 5).size > 0) is isinstance(workload, bs.Diurnal)


def arrivals_s(self, seed, requests, size):
    yield np.arange(requests) / 9.0


WHOLE = {
    "offered_per_s": 9.0, "dispersion": 0.0, "with_rate": lambda self, rate_per_s: self,
    "chunks_s": arrivals_s,
}  # fmt: skip


@pytest.mark.parametrize("name", WHOLE)
def test_a_workload_of_ones_own_is_told_what_it_lacks_as_it_is_made(name):
    with pytest.raises(TypeError, match=rf"^Mine must have {name}.*, got none$"):
        type("Mine", (bs.OpenLoop,), {each: value for each, value in WHOLE.items() if each != name})


def test_a_workload_of_ones_own_is_told_which_arguments_it_is_given():
    rule = r"Mine must have chunks_s\(self, seed, requests, size\), got chunks_s\(self, requests\)"
    with pytest.raises(TypeError, match=rule):
        type("Mine", (bs.OpenLoop,), WHOLE | {"chunks_s": lambda self, requests: []})
    known = {name: value for name, value in WHOLE.items() if name != "dispersion"}
    made = dataclasses.dataclass(frozen=True)(type("Mine", (bs.OpenLoop,), known | {"gamma_cv": 0.0}))
    scenario = bs.Scenario(made(), bs.SizeOrWait(4, 0), bs.Affine(5, 1))
    assert bs.simulate(scenario, 50).arrival_s[-1] == pytest.approx(49 / 9)
