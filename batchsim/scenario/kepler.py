"""Kepler's equation, by which a day's rate is integrated."""

import math

import numpy as np

# The series of (x - sin x) / x**3 and of (1 - cos x) / x**2 in x**2, the highest power first: up to pi their
# truncation error is below a rounding error, and nothing cancels near 0, as it does in x - sin x.
SINE = [(-1) ** k / math.factorial(2 * k + 3) for k in reversed(range(14))]
COSINE = [(-1) ** k / math.factorial(2 * k + 2) for k in reversed(range(14))]


def kepler(mean_angle: np.ndarray, swing: float) -> np.ndarray:
    """Solve Kepler's equation: angle - swing * sin(angle) = mean_angle.

    The angles are from 0 to pi, and `swing` from 0 to 1. The integral of a day's rate has this form, with the
    share of the day's arrivals as the mean angle. The solution is accurate to a few roundings everywhere.
    F. L. Markley's method (Kepler equation solver, 1995): a cubic's root, accurate to 3e-4, and one step of
    fifth order.

    >>> kepler(np.array([0.5, 3.0]), swing=1.0).round(6)
    array([1.4973  , 3.070767])
    """
    mean = np.maximum(mean_angle, 1e-90)  # with 0, the fraction below would be 0 / 0
    rest = 1 - swing
    alpha = (3 * math.pi**2 + 1.6 * math.pi / (1 + swing) * (math.pi - mean)) / (math.pi**2 - 6)
    d = 3 * rest + swing * alpha
    square = mean * mean
    q = 2 * rest * alpha * d - square
    r = (3 * alpha * d * (d - rest) + square) * mean
    w = np.cbrt(r + np.sqrt(q * q * q + r * r))
    w *= w
    angle = (2 * r * w / (w * w + w * q + q * q) + mean) / d

    square = angle * angle
    above_sine, below_one = np.polyval(SINE, square) * square * angle, np.polyval(COSINE, square) * square
    error = rest * angle + swing * above_sine - mean
    slope = rest + swing * below_one
    second, third = swing / 2 * (angle - above_sine), swing / 6 * (1 - below_one)
    step = -error / (slope - error * second / slope)
    step = -error / (slope + step * (second + step * third))
    return angle - error / (slope + step * (second + step * (third - step * second / 12)))
