"""The latency's distribution under the textbook rule without noise.

A request that arrives w before the end of the current batch finds q others ahead of it. It waits w, then for
f = q // b full batches, and is computed in a batch of s: itself, the q % b others ahead of it, and the
requests that arrive behind it until then. With service times tau, its latency is w + f tau_b + tau_s. If the
batch still forms at the end, the request waits until the timer of the oldest expires, or the batch is full.
For each (f, s) the density over the wait w is smooth between the service times. So the distribution function
is a sum of shifted integrals of polynomials, plus jumps at latencies with a positive probability.

Near saturation the queue can be so long that this would take minutes. But the probability of leaving r
requests behind is a sum of terms pole^-r, one for each pole of its generating function. After a few batches
only the term of the smallest pole matters: from there on the latency's tail is exponential, exactly.
"""

import math
from typing import Any

import numpy as np
import scipy  # its optimize is loaded where it is used: that takes a quarter of a second
from numpy.polynomial import chebyshev
from scipy import fft, special

from batchsim._compat import kept
from batchsim.theory.answer import UnsolvedError
from batchsim.theory.chain import Forming, poisson, poisson_at, split

DEGREE = 12  # of the polynomials in w, over at most 4 arrivals (split): an error below 1e-9
NEGLIGIBLE = 1e-13
NOISE = 1e-14  # the sum of all rounding errors of a generating function's coefficients
FEW = 40  # arrivals between two edges, at most
BLOCK = 1 << 22  # numbers worked on at a time, to bound the memory
LARGEST = 1 << 24  # coefficients in all: 128 MB, and some 1.5 s


class Latency:
    """The latency's distribution in a steady state, computed on first use."""

    def __init__(self, state: Forming) -> None:
        self.state, self.rate, self.seconds = state, state.rate, state.seconds
        self.largest = state.seconds.size - 1

    def cdf(self, latency_ms: Any) -> np.ndarray:
        """Return the fraction of requests with at most these latencies in ms, any shape."""
        latency_s = np.atleast_1d(np.asarray(latency_ms, dtype=float)).ravel() / 1000
        x = np.minimum(latency_s, self._tail_from_s)
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
        result = np.clip(result, 0, 1)
        tail = latency_s > self._tail_from_s
        decay = self.rate * (self._pole - 1) * (latency_s[tail] - self._tail_from_s)
        result[tail] = 1 - (1 - result[tail]) * np.exp(-decay)
        return result.reshape(np.shape(latency_ms))

    @kept
    def _tables(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Edges of the pieces of w; the integrals of each (f, s), by piece and in total; its f tau_b + tau_s.

        The integrals are Chebyshev coefficients, shape (pieces, number of (f, s), DEGREE + 2).
        """
        edges = self._edges
        numbers = edges.size * (self._longest + self._reach(self.largest)) * (DEGREE + 2)
        if numbers > LARGEST:
            got = f"{numbers:,}: {self.rate:,.6g}/s in batches of up to {self.largest:,}"
            raise UnsolvedError(f"the distribution must have at most {LARGEST:,} coefficients, got {got}")
        batches = self._batches
        nodes = np.cos(np.pi * (np.arange(DEGREE + 1) + 0.5) / (DEGREE + 1))
        half = np.diff(edges) / 2
        w = edges[:-1, None] + half[:, None] * (1 + nodes)
        rows = max(1, BLOCK // (2 * batches * self.largest))
        parts = [self._density(w.ravel()[i : i + rows]) for i in range(0, w.size, rows)]
        density = np.concatenate(parts)
        integrate = chebyshev.chebint(np.linalg.inv(chebyshev.chebvander(nodes, DEGREE)), lbnd=-1)
        at_end = integrate.sum(0)  # every Chebyshev polynomial is 1 at the piece's end
        total = np.outer(half, at_end).ravel() @ density
        shift_s = (np.arange(batches)[:, None] * self.seconds[-1] + self.seconds[1:]).ravel()
        some = np.flatnonzero(total > NEGLIGIBLE / total.size)
        density = density[:, some].reshape(*w.shape, -1) * half[:, None, None]
        integrals = (integrate @ density).swapaxes(1, 2)
        pieces = at_end @ density
        integrals[:, :, 0] += np.cumsum(pieces, axis=0) - pieces
        return edges, integrals, total[some], shift_s[some]

    def _density(self, w: np.ndarray) -> np.ndarray:
        """Return the density over w with each (f, s), shape (w, batches * b)."""
        cap, batches, wait_s = self.largest, self._batches, self.state.wait_s
        ahead = self._ahead(w).reshape(len(w), batches, cap)
        until = w[:, None] + np.arange(batches) * self.seconds[-1]
        density = _sums(ahead, poisson(self.rate * until, cap), cap)
        density[..., -1] = ahead.sum(2) - density[..., :-1].sum(2)  # full, or would overflow
        if wait_s > 0 and cap > 1:
            # Batches that still form at the end, with an unexpired timer, do not start then.
            mean = self.rate * self.state.unexpired_s
            still = (w[:, None] < self.state.unexpired_s) * self._still_forming
            density[:, 0, :-1] -= still @ poisson(mean, cap - 1)
            density[:, 0] += (w < wait_s)[:, None] * self._joined(w)
        return np.clip(density, 0, None).reshape(len(w), -1)

    @kept
    def _edges(self) -> np.ndarray:
        """Points where the density over w is not smooth, and more, so that at most 4 arrive in between."""
        return split(np.append(self.seconds[1:], [0.0, self.state.wait_s]), self.rate)

    @kept
    def _batches(self) -> int:
        """The most batches that the requests ahead of one fill, plus its own."""
        return -(-(self._left_behind.size + self._reach(self.largest)) // self.largest)

    def _ahead(self, w: np.ndarray) -> np.ndarray:
        """Return the density over w with each number ahead, shape (w, batches * b)."""
        edge = np.searchsorted(self._edges, w)
        came = poisson(self.rate * (self._edges[edge] - w), FEW)
        return _sums(self._at_edges[edge], came, self._batches * self.largest)

    @kept
    def _at_edges(self) -> np.ndarray:
        """`_ahead` just below each edge.

        At the start of a batch, the requests that it left behind are ahead. Others arrive until w before its
        end. They are added from edge to edge, because arrivals in different intervals are independent.
        """
        edges, starts = self._edges, self.state.chain
        count = self._batches * self.largest
        at_start = np.zeros((edges.size, count))
        np.add.at(at_start[:, 0], np.searchsorted(edges, self.state.service_s), starts.below)
        left = self._left_behind
        at_start[np.searchsorted(edges, self.seconds[-1]), : left.size] += left
        came = poisson(self.rate * np.diff(edges), FEW)
        for edge in range(edges.size - 2, -1, -1):
            at_start[edge] += np.convolve(at_start[edge + 1], came[edge])[:count]
        return at_start / self.state.cycle_s

    def _reach(self, size: int) -> int:
        """Return a number that the arrivals during a batch do not exceed: ten standard deviations out."""
        mean = self.rate * float(self.seconds[size])
        return int(mean + 10 * np.sqrt(mean) + 30)

    @property
    def _pole(self) -> float:
        """The least z > 1 with z^b = exp(m (z - 1)), where m is the mean arrivals during a batch of b.

        With load = m / b that is log(z) = load (z - 1), solved in z - 1 to keep the digits near a load of 1.
        """
        load = self._load
        most = 1.0
        while math.log1p(most) > load * most:
            most *= 2
        root = scipy.optimize.brentq(lambda x: math.log1p(x) - load * x, 1 - load, most, xtol=1e-300)
        return 1 + float(root)

    @property
    def _load(self) -> float:
        return self.rate * float(self.seconds[-1]) / self.largest

    @kept
    def _has_tail(self) -> bool:
        """Whether the pole is so close to 1 that its term is the tail; then the next pole is not."""
        return self._pole < 1 + 0.9 / self.largest

    @property
    def _next_pole(self) -> float:
        """The modulus of the next root, where z exp(-load z) is exp(-load) times a b-th root of unity."""
        load, turn = self._load, np.exp(2j * np.pi / self.largest) if self.largest > 1 else 1.0
        branches = [-1, 1] if self.largest > 1 else [1]
        return float(np.abs(special.lambertw(-load * np.exp(-load) * turn, branches)).min()) / load

    @property
    def _longest(self) -> int:
        """A number that is never left behind, or from which on its probability is one term in pole^-r."""
        pole = self._next_pole if self._has_tail else self._pole
        return self._reach(self.largest) + int(40 / np.log(pole))

    @kept
    def _tail_from_s(self) -> float:
        """The latency from which on the tail is exponential; inf if all of it is computed."""
        whole = (self._left_behind.size - 1) // self.largest
        return whole * float(self.seconds[-1]) if self._has_tail else np.inf

    @kept
    def _left_behind(self) -> np.ndarray:
        """P(a batch starts and leaves r behind) for r > 0, 0 for r = 0, from the chain's generating function.

        P(z) (z^b - f_b(z)) = sum over n <= b of P(n) (z^b f(z | n) - z^n f_b(z)), where f generates the
        next number and f_b the arrivals during a batch of b. The coefficients are Cauchy integrals on a
        circle between 1 and the least pole: outside the unit circle, small coefficients keep their digits. If
        that pole is too close to 1, a circle between it and the next one needs fewer points, and the residue
        of the pole is subtracted.
        """
        below, cap, longest = self.state.chain.below, self.largest, self._longest
        means = self.rate * self.seconds
        radius, pole, tail = min(np.sqrt(self._pole), 1 + 1 / cap), self._pole, self._has_tail
        if tail:
            radius = 1 + 1 / cap
        around = int(40 / np.log(radius / pole)) if tail else 0
        points = 1 << (4 * cap + 2 * self._reach(cap) + 2 * longest + around).bit_length()

        def numerator(z: np.ndarray, full: np.ndarray) -> np.ndarray:
            result = np.polynomial.Polynomial(below @ self.state.shift)(z)
            for n in range(1, cap + 1):
                result += below[n] * np.exp(means[n] * (z - 1))
            return z**cap * result - full * np.polynomial.Polynomial([0.0, *below[1:]])(z)

        z = radius * np.exp(-2j * np.pi * np.arange(points // 2 + 1) / points)
        full = np.exp(means[cap] * (z - 1))
        values = np.fft.irfft(numerator(z, full) / (z**cap - full), points) / radius ** np.arange(points)
        if tail:
            at = np.array([pole])
            residue = float(numerator(at, at**cap)[0]) / (pole ** (cap - 1) * (cap - means[cap] * pole))
            values -= residue * pole ** -(np.arange(points) + 1.0)
            left = np.clip(values[cap : cap + longest], 0, None)
            left[0] = 0.0
            return left * (self.state.chain.above / (left.sum() + left[-1] / (pole - 1)))
        left = np.clip(values[cap : cap + longest], 0, None)
        left[0] = 0.0
        rest = max(NEGLIGIBLE * left.sum(), NOISE)
        left = left[: 1 + int(np.searchsorted(np.cumsum(left), left.sum() - rest))]
        return left * (self.state.chain.above / left.sum()) if left.sum() > 0 else np.zeros(1)

    # Batches that still form when the server becomes free: the timer of the oldest request has not expired
    # then, or it arrives later.

    @property
    def _still_forming(self) -> np.ndarray:
        """How often per second the next batch still forms, by n in the system at a start, shape (b + 1,)."""
        state = self.state
        chance = np.exp(-self.rate * (state.service_s - state.unexpired_s))
        return state.chain.below * chance / state.cycle_s

    def _full_by(self, x: np.ndarray | float, joined: int) -> np.ndarray:
        """Return how many requests per second join a batch that still forms, after `joined` others.

        At most x after its oldest request, shape (x,). The integral over t of rate * P(joined in t) *
        exp(-rate (service - min(t, unexpired))).
        """
        unexpired_s = self.state.unexpired_s
        x = np.asarray(x)[..., None]
        until = np.minimum(x, unexpired_s)
        a, b = self.rate * until, self.rate * x
        came = poisson_at(joined + 1, a) + special.pdtrc(joined, b) - special.pdtrc(joined, a)
        return (self._still_forming * np.exp(-self.rate * (unexpired_s - until)) * came).sum(-1)

    def _joined(self, w: np.ndarray) -> np.ndarray:
        """Return the density over the wait w in a batch that still forms, by its size, shape (w, b)."""
        cap, wait_s, unexpired_s = self.largest, self.state.wait_s, self.state.unexpired_s
        density = np.zeros((len(w), cap))
        # All but the oldest wait for its timer. Given the batch's size, their waits are uniform.
        density[:, 1:-1] = self._still_forming.sum() * poisson(np.array(self.rate * wait_s), cap - 2)
        # The oldest of a batch that fills w after its arrival; then the others, by the last one to join.
        free = np.exp(-self.rate * (unexpired_s - np.minimum(w[:, None], unexpired_s))) @ self._still_forming
        density[:, -1] = free * poisson_at(cap - 2, self.rate * w)
        if cap > 2:
            density[:, -1] += self._full_by(wait_s, cap - 3) - self._full_by(w, cap - 3)
        return density

    @kept
    def _jumps(self) -> tuple[np.ndarray, np.ndarray]:
        """The latencies in s with a positive probability: after a full wait, and of the last to join."""
        cap, wait_s = self.largest, self.state.wait_s
        oldest = self._still_forming.sum() * poisson(np.array(self.rate * wait_s), cap - 1)
        filling = self._still_forming.sum() if cap == 1 else float(self._full_by(wait_s, cap - 2))
        at_s = np.append(wait_s + self.seconds[1:-1], self.seconds[-1])
        return at_s, np.append(oldest, filling) / self.rate


def _sums(first: np.ndarray, second: np.ndarray, count: int) -> np.ndarray:
    """Return the distribution of the sum of two numbers, for sums below count, along the last axis."""
    length = fft.next_fast_len(max(count, first.shape[-1] + second.shape[-1]), real=True)
    return fft.irfft(fft.rfft(first, length) * fft.rfft(second, length), length)[..., :count]
