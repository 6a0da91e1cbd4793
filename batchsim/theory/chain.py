"""The chain of what waits when a batch ends, for one server and Poisson arrivals."""

import math
from dataclasses import dataclass

import numpy as np
from scipy import linalg

from batchsim.scenario import Noise
from batchsim.theory import arrivals
from batchsim.theory.answer import UnsolvedError

MOST_STATES = 8192
MOST_POINTS = 2**21
DIGITS = 37  # exp(-37) is what a float cannot see beside 1


class Crowd:
    """The queue while `threshold` or more wait, so that every batch takes `top` of them.

    It is a random walk that falls by at most `top` a batch, so it returns to one of the `top` states
    just below the threshold. From x, the chance of each is a coefficient of z^(x - threshold + top)
    modulo Q(z), whose roots are those of z^top = E[z^A] in the closed unit disc, A the arrivals in a
    batch's time: z^x is a martingale at each root. So nothing of the infinite queue is cut off.
    """

    def __init__(self, top: int, top_mean: float, noise: Noise | None, threshold: int, above: int) -> None:
        """`above`: from how many states at and above the threshold returns are told apart (`reach`)."""
        self.top, self.threshold, self.noise = top, threshold, noise
        first = landing(top, top_mean, noise)
        # Row x: from threshold + x. From one higher, all is one higher; what is then at the threshold
        # itself goes on from there. Sums of products of probabilities: nothing cancels.
        self.returns = np.empty((above, top))
        self.returns[0] = first
        for x in range(1, above):
            before = self.returns[x - 1]
            self.returns[x, 0] = 0.0
            self.returns[x, 1:] = before[:-1]
            self.returns[x] += before[-1] * first

    def matrix(self, left: np.ndarray, kinds: np.ndarray, mass: np.ndarray, tail: np.ndarray) -> np.ndarray:
        """Return where the queue is next seen below the threshold, shape (rows, threshold).

        Each row starts a batch that leaves `left` behind; while one of its kind computes, n arrive with
        chance mass[kind, n], and as many as mass has columns (threshold + above) or more with tail[kind].
        """
        size, above = self.threshold, len(self.returns)
        matrix, over = np.zeros((len(left), size)), np.zeros((len(left), above))
        for row, (r, kind) in enumerate(zip(left, kinds, strict=True)):
            matrix[row, r:] = mass[kind, : size - r]
            over[row] = mass[kind, size - r : size - r + above]
            over[row, -1] += mass[kind, size - r + above :].sum() + tail[kind]
        matrix[:, size - self.top :] += over @ self.returns
        return matrix


def landing(top: int, mean: float, noise: Noise | None) -> np.ndarray:
    """Return where a walk of steps A - top, from `top`, is when first below it, shape (top,).

    The factor Q of z^top - E[z^A] is found by Cauchy integrals of its logarithm on a circle just inside
    the unit circle, with twice the points until it stands still.
    """
    if top == 1:
        return np.ones(1)
    points = 1 << (64 * top - 1).bit_length()
    found = None
    while True:
        mass, tail = arrivals.pmf(np.array([mean]), noise, points)
        overflow = mass[0, top:].sum() + tail[0]  # how much of an error in the landing matters
        if overflow < 1e-17:
            return mass[0, :top] / mass[0, :top].sum()
        before, found = found, _factor(top, mass[0])
        wrong = math.inf if before is None else float(np.abs(found - before).max()) * overflow
        points *= 2
        if wrong < 1e-14 or (wrong < 1e-11 and points > MOST_POINTS):
            return found
        if points > MOST_POINTS:
            raise UnsolvedError(
                f"batches must fill often enough, or next to never, for the chain to be solved, "
                f"got batches of {top} that see {mean:.6g} arrivals"
            )


def _factor(top: int, mass: np.ndarray) -> np.ndarray:
    points = mass.size
    radius = np.exp(-DIGITS / points)
    turn = np.arange(points // 2 + 1)
    z = radius * np.exp(-2j * np.pi * turn / points)
    transform = np.fft.rfft(mass * radius ** np.arange(points))
    # Without the root at 1, which is known, and scaled to wind about 0 not at all.
    values = (1 - transform / z**top) / (1 - 1 / z)
    logarithm = np.log(np.abs(values)) + 1j * np.unwrap(np.angle(values))
    powers = np.fft.irfft(logarithm, points)
    powers[: points // 2 + 1] = 0  # the roots inside are in the negative powers of z
    factor = np.fft.irfft(np.exp(np.fft.rfft(powers)), points)
    # Coefficients of z^-i, i < top: the chance to land below top - i.
    below = np.append(factor[-np.arange(top) % points] * radius ** np.arange(top), 0.0)
    chance = np.clip(below[:-1] - below[1:], 0, None)[::-1]
    return chance / chance.sum()


def reach(mean: float, noise: Noise | None, top: int) -> int:
    """Return up to how many arrivals must be told apart, where `mean` is the largest mean of any batch."""
    poisson = int(mean + 10 * np.sqrt(mean) + 40)
    if not arrivals.is_noisy(noise):
        return poisson
    # Beyond this many batches' worth the walk has forgotten where it came from.
    batches = 40 * max(1.0, np.sqrt(arrivals.squared_cv(noise)))
    return max(poisson, int(min(DIGITS * (1 + mean), batches * top)) + 40)


@dataclass(frozen=True)
class Stationary:
    """How often each number waits when a batch ends.

    `below[L]` is the probability of L below the threshold, `above` that of the threshold or more, and
    `above_left` the mean over those of what the next batch leaves, times that probability.
    """

    below: np.ndarray
    above: float
    above_left: float


def stationary(
    left: np.ndarray,
    means: np.ndarray,
    top: int,
    top_mean: float,
    noise: Noise | None,
    shift: np.ndarray | float = 0.0,
) -> Stationary:
    """Solve the chain L' = left[L] + A(means[L]) below the threshold len(left), L - top + A above it.

    `shift`, shape (threshold, threshold), is added to its transition probabilities. The means of L and
    of L^2 do not change from batch to batch, which gives what lies above the threshold.
    """
    threshold = len(left)
    if threshold > MOST_STATES:
        raise UnsolvedError(f"the chain must have at most {MOST_STATES:,} states, got {threshold:,}")
    apart = reach(float(max(means.max(), top_mean)), noise, top)
    crowd = Crowd(top, top_mean, noise, threshold, apart)
    matrix = np.zeros((threshold, threshold)) + shift
    L = np.arange(threshold)
    change = left + means - L + matrix @ L
    top_square = float(arrivals.second_moment(np.array(top_mean), noise))
    squares = left**2 + 2 * left * means + arrivals.second_moment(means, noise) - L**2 + matrix @ L**2
    unique, kinds = np.unique(means, return_inverse=True)
    mass, tail = arrivals.pmf(unique, noise, threshold + apart)
    below = balance(matrix + crowd.matrix(left, kinds, mass, tail))
    above = max(0.0, float(below @ change) / (top - top_mean))
    above_left = float(below @ squares + above * (top_square - top**2)) / (2 * (top - top_mean))
    total = 1 + above
    return Stationary(below / total, above / total, max(0.0, above_left) / total)


def balance(matrix: np.ndarray) -> np.ndarray:
    """Return the stationary distribution of a stochastic matrix, shape (states,)."""
    equations = matrix.T - np.eye(len(matrix))
    equations[-1] = 1
    answer = linalg.solve(equations, np.append(np.zeros(len(matrix) - 1), 1.0), check_finite=False)
    answer = np.clip(answer, 0, None)
    return answer / answer.sum()
