import itertools
import math
from decimal import Decimal, localcontext

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from oracles.arrivals import arrivals, stream

import batchsim as bs
from batchsim.scenario.workload import filled

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
