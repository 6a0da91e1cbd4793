"""The latency's distribution under the textbook rule without noise.

A request that comes when the batch being computed will end in w finds q ahead of it. It waits w, then
for f = q // b full batches, and is computed in a batch of s: itself, the q % b ahead of it that are left,
and those who come behind it until then. Its latency is w + f tau_b + tau_s; where the batch still forms
at the end, its wait is until the oldest is ripe, or the batch is full. For each (f, s) the density over
the wait w is smooth between the service times, so the distribution function is a sum of integrals of
polynomials, shifted, and of jumps for the waits that have a length of their own.
"""

from functools import cached_property
from typing import Any

import numpy as np
from numpy.polynomial import chebyshev
from scipy import fft, special

from batchsim.theory.answer import UnsolvedError
from batchsim.theory.arrivals import poisson, split
from batchsim.theory.forming import Forming

DEGREE = 12  # of the polynomials in w, over at most 4 arrivals (split): an error below 1e-9
NEGLIGIBLE = 1e-13
BLOCK = 1 << 22  # numbers worked on at a time
LARGEST = 1 << 24  # numbers kept


class Latency:
    """The latency's distribution in a steady state; it is worked out when first asked for."""

    def __init__(self, state: Forming) -> None:
        self.state, self.rate, self.seconds, self.cap = state, state.rate, state.seconds, state.cap

    def cdf(self, latency_ms: Any) -> np.ndarray:
        """Return the fraction of the requests with at most these latencies in ms, any shape."""
        x = np.atleast_1d(np.asarray(latency_ms, dtype=float)).ravel() / 1000
        edges, integrals, total, shift_s = self._tables
        at_s, jump = self._jumps
        result = jump @ (at_s[:, None] <= x * (1 + 1e-15))
        order = np.arange(DEGREE + 2)
        step = max(1, BLOCK // (shift_s.size * order.size))
        for part in (slice(begin, begin + step) for begin in range(0, x.size, step)):
            w = x[part, None] - shift_s
            piece = np.clip(np.searchsorted(edges, w, side="right") - 1, 0, edges.size - 2)
            at = 2 * (w - edges[piece]) / (edges[piece + 1] - edges[piece]) - 1
            chebyshevs = np.cos(np.arccos(np.clip(at, -1, 1))[..., None] * order)
            inside = (chebyshevs * integrals[piece, np.arange(shift_s.size)]).sum(-1)
            result[part] += np.where(w <= 0, 0, np.where(w >= edges[-1], total, inside)).sum(1)
        return np.clip(result, 0, 1).reshape(np.shape(latency_ms))

    @cached_property
    def mean_s(self) -> float:
        """The mean of the distribution, which is that of the chain: a check of either."""
        edges, integrals, total, shift_s = self._tables
        areas = chebyshev.chebint(integrals, lbnd=-1, axis=2).sum(2) * np.diff(edges)[:, None] / 2
        at_s, jump = self._jumps
        return float((total * (edges[-1] + shift_s) - areas.sum(0)).sum() + jump @ at_s)

    @cached_property
    def _tables(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Edges of the pieces of w; the integrals of each (f, s), up to the end, and its f tau_b + tau_s.

        The integrals are Chebyshev coefficients, shape (pieces, number of (f, s), DEGREE + 2).
        """
        state = self.state
        edges = split(np.append(self.seconds[1:], [0.0, state.wait_s]), self.rate)
        numbers = edges.size * (self._longest + self._reach(self.cap)) * (DEGREE + 2)
        if numbers > LARGEST:
            raise UnsolvedError(
                f"the distribution must have at most {LARGEST:,} coefficients to be worked out, "
                f"got {numbers:,}: {self.rate:,.6g}/s in batches of up to {self.cap:,}"
            )
        batches = -(-(self._left_behind.size + self._reach(self.cap)) // self.cap)
        nodes = np.cos(np.pi * (np.arange(DEGREE + 1) + 0.5) / (DEGREE + 1))
        half = np.diff(edges) / 2
        w = edges[:-1, None] + half[:, None] * (1 + nodes)
        rows = max(1, BLOCK // (2 * batches * self.cap))
        parts = [self._density(w.ravel()[i : i + rows], batches) for i in range(0, w.size, rows)]
        density = np.concatenate(parts).reshape(*w.shape, -1)
        to_coefficients = np.linalg.inv(chebyshev.chebvander(nodes, DEGREE))
        coefficients = np.einsum("cn,pnj->pjc", to_coefficients, density)
        integrals = chebyshev.chebint(coefficients, lbnd=-1, axis=2) * half[:, None, None]
        pieces = integrals.sum(2)  # every Chebyshev polynomial is 1 at the piece's end
        integrals[:, :, 0] += np.cumsum(pieces, axis=0) - pieces
        total = pieces.sum(0)
        shift_s = (np.arange(batches)[:, None] * self.seconds[-1] + self.seconds[1:]).ravel()
        some = total > NEGLIGIBLE / total.size
        return edges, integrals[:, some], total[some], shift_s[some]

    def _density(self, w: np.ndarray, batches: int) -> np.ndarray:
        """Return the density over w with each (f, s), shape (w, batches * b)."""
        cap, wait_s = self.cap, self.state.wait_s
        ahead = self._ahead(w, batches * cap).reshape(len(w), batches, cap)
        until = w[:, None] + np.arange(batches) * self.seconds[-1]
        density = _sums(ahead, poisson(self.rate * until, cap), cap)
        density[..., -1] = ahead.sum(2) - density[..., :-1].sum(2)  # full, whoever else comes
        if wait_s > 0 and cap > 1:
            # Those found unripe at the end, and not full: their waits are others.
            unripe = self._unripe
            mean = self.rate * self.state.unripe_s
            late = (w[:, None] < self.state.unripe_s) * unripe @ poisson(mean, cap - 1)
            density[:, 0, :-1] -= late
            density[:, 0] += (w < wait_s)[:, None] * self._formed(w)
        return np.clip(density, 0, None).reshape(len(w), -1)

    def _ahead(self, w: np.ndarray, count: int) -> np.ndarray:
        """Return the density over w with each number q < count ahead, shape (w, count)."""
        starts, cap, cycle_s = self.state.starts, self.cap, self.state.cycle_s
        full = poisson(self.rate * np.clip(self.seconds[cap] - w, 0, None), self._reach(cap))
        result = _sums(self._left_behind * (w < self.seconds[cap])[:, None], full, count)
        for size in np.flatnonzero(starts.below > NEGLIGIBLE / cap):  # of which nobody was left behind
            now = np.flatnonzero(w < self.seconds[size])
            came = poisson(self.rate * (self.seconds[size] - w[now]), min(self._reach(int(size)), count))
            result[now, : came.shape[1]] += starts.below[size] * came
        return result / cycle_s

    def _reach(self, size: int) -> int:
        """Return more than ever arrive while a batch computes."""
        mean = self.rate * float(self.seconds[size])
        return int(mean + 10 * np.sqrt(mean) + 30)

    @property
    def _pole(self) -> float:
        """The least z > 1 with z^b = exp(m (z - 1)), m the arrivals while b compute."""
        load = self.rate * float(self.seconds[-1]) / self.cap
        return float(-special.lambertw(-load * np.exp(-load), -1).real / load)

    @property
    def _longest(self) -> int:
        """More than are ever left behind: their number falls off by the pole."""
        return self._reach(self.cap) + int(40 / np.log(self._pole))

    @cached_property
    def _left_behind(self) -> np.ndarray:
        """P(a batch starts and leaves r behind) for r > 0, 0 for r = 0, from the chain's generating function.

        P(z) (z^b - f_b(z)) = sum over n <= b of P(n) (z^b f(z | n) - z^n f_b(z)), f of the next number,
        f_b(z) that of the arrivals while b compute; by Cauchy's integrals between 1 and the least pole.
        """
        below, cap, longest = self.state.starts.below, self.cap, self._longest
        means = self.rate * self.seconds
        radius = min(np.sqrt(self._pole), 1 + 1 / cap)
        points = 1 << (4 * cap + 2 * self._reach(cap) + 2 * longest).bit_length()
        z = radius * np.exp(-2j * np.pi * np.arange(points // 2 + 1) / points)
        full = np.exp(means[cap] * (z - 1))
        numerator = z**cap * np.polynomial.Polynomial(below @ self.state.shift)(z)
        for n in range(1, cap + 1):
            numerator += below[n] * (z**cap * np.exp(means[n] * (z - 1)) - z**n * full)
        values = np.fft.irfft(numerator / (z**cap - full), points) / radius ** np.arange(points)
        left = np.clip(values[cap : cap + longest], 0, None)
        left[0] = 0.0
        left = left[: 1 + int(np.searchsorted(np.cumsum(left), (1 - NEGLIGIBLE) * left.sum()))]
        return left * (self.state.starts.above / left.sum()) if left.sum() > 0 else np.zeros(1)

    # Batches that still form when the server is free: the oldest came unripe, or found it free.

    @property
    def _unripe(self) -> np.ndarray:
        """Of each n in the system at a start, how often the next batch forms so, a second, shape (b + 1,)."""
        state = self.state
        chance = np.exp(-self.rate * (state.service_s - state.unripe_s))
        return state.starts.below * chance / state.cycle_s

    def _full_by(self, x: np.ndarray | float, joined: int) -> np.ndarray:
        """Return how often, a second, the one after `joined` others comes to a batch that still forms.

        At most x after its oldest, which was unripe or found the server free; shape (x,). The integral
        over t of rate * P(joined in t) * exp(-rate (service - min(t, unripe))).
        """
        unripe = self.state.unripe_s
        x = np.asarray(x)[..., None]
        until = np.minimum(x, unripe)
        a, b = self.rate * until, self.rate * x
        came = _poisson_at(joined + 1, a) + special.pdtrc(joined, b) - special.pdtrc(joined, a)
        return (self._unripe * np.exp(-self.rate * (unripe - until)) * came).sum(-1)

    def _formed(self, w: np.ndarray) -> np.ndarray:
        """Return the density over the wait w of who is in a batch that forms on, by size, shape (w, b)."""
        cap, wait_s, unripe_s = self.cap, self.state.wait_s, self.state.unripe_s
        density = np.zeros((len(w), cap))
        # Those after the oldest wait for it: evenly, whatever the batch becomes.
        density[:, 1:-1] = self._unripe.sum() * poisson(np.array(self.rate * wait_s), cap - 2)
        # The oldest until the batch is full, w after it came; then the others, by who fills it.
        free = np.exp(-self.rate * (unripe_s - np.minimum(w[:, None], unripe_s))) @ self._unripe
        density[:, -1] = free * _poisson_at(cap - 2, self.rate * w)
        if cap > 2:
            density[:, -1] += self._full_by(wait_s, cap - 3) - self._full_by(w, cap - 3)
        return density

    @cached_property
    def _jumps(self) -> tuple[np.ndarray, np.ndarray]:
        """The latencies that have a probability, in s: an oldest's full wait, and of who fills a batch."""
        cap, wait_s = self.cap, self.state.wait_s
        oldest = self._unripe.sum() * poisson(np.array(self.rate * wait_s), cap - 1)
        filling = self._unripe.sum() if cap == 1 else float(self._full_by(wait_s, cap - 2))
        at_s = np.append(wait_s + self.seconds[1:-1], self.seconds[-1])
        return at_s, np.append(oldest, filling) / self.rate


def _poisson_at(n: int, mean: np.ndarray) -> np.ndarray:
    """Return the Poisson probability of n, of each mean, same shape."""
    return np.exp(special.xlogy(n, mean) - mean - special.gammaln(n + 1))


def _sums(first: np.ndarray, second: np.ndarray, count: int) -> np.ndarray:
    """Return the distribution of the sum of two numbers, for sums below count, along the last axis."""
    length = fft.next_fast_len(max(count, first.shape[-1] + second.shape[-1]), real=True)
    return fft.irfft(fft.rfft(first, length) * fft.rfft(second, length), length)[..., :count]
