"""When to serve, and how many: the semi-Markov decision process of one server, solved on all states.

A state is how many wait while the server is free. Its relative value is how much more the system costs in the
long run from there than from an empty queue. The cost is the number in system (by Little's law the mean
latency times the rate) plus what the batches cost. While the queue is long every batch takes `top`, so there
the relative value is a quadratic, plus the mean of the rest where the queue is no longer long: that closes
the equations without a cut-off.
"""

import numpy as np
from scipy import linalg

from batchsim.scenario import Noise
from batchsim.theory import arrivals, chain
from batchsim.theory.answer import UnsolvedError

TIED = 1e-12  # sizes whose throughputs differ by less than this part are equally fast
ROUNDING = 1e-12  # how much better a new decision must be, as a part of the largest value: else no end
UNSEEN = 1e-14  # states less likely than this do not count
MOST_STATES = 4096


class DecisionProcess:
    """Poisson arrivals at a rate, service times by size with their noise, and a cost per batch by size."""

    def __init__(self, rate_per_s: float, seconds: np.ndarray, cost: np.ndarray, noise: Noise | None) -> None:
        self.rate, self.noise, self.args = rate_per_s, noise, (rate_per_s, seconds, noise)
        self.seconds, self.cost = seconds[1:], cost[1:]
        self.means = rate_per_s * self.seconds
        self.squares = arrivals.second_moment(self.means, noise)
        # The arrivals of a service of length S spend rate * S^2 / 2 in the system during it.
        self.lump = self.cost + (self.squares - self.means) / (2 * rate_per_s)
        throughput = np.arange(1, self.seconds.size + 1) / self.seconds
        self.fastest = 1 + np.flatnonzero(throughput >= throughput.max() * (1 - TIED))

    def best_policy(self) -> np.ndarray:
        """Return how many to take of s waiting, 0 to wait; the last entry holds for all s above.

        Policy iteration (Howard 1960). A long queue takes the fastest size; of several equally fast, the
        better one. The threshold doubles until the decisions beyond it are all `top` too.
        """
        size = self.seconds.size
        top, threshold = int(self.fastest[-1]), max(2 * size, 16)
        policy = np.minimum(np.arange(threshold + 1), top)
        while True:
            policy, beyond = self._iterate(policy)
            other = int(beyond[-1])
            if other != top and other in self.fastest:
                top = other
                policy[-1] = top
            elif (beyond == top).all() or chain.evaluate(policy, *self.args).chain.above < UNSEEN:
                return policy[: max(top, int(np.max(np.flatnonzero(policy != top), initial=0)) + 1) + 1]
            elif len(policy) > MOST_STATES:
                raise UnsolvedError(f"the best policy must settle within {MOST_STATES:,} waiting, got more")
            else:
                policy = np.append(policy, np.full(len(policy) - 1, top))

    def _iterate(self, policy: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the best policy below this threshold, and the best decisions for as many states beyond."""
        threshold, top = len(policy) - 1, int(policy[-1])
        above = threshold + chain.resolved_arrivals(float(self.means.max()), self.noise, top)
        long_queue = chain.LongQueue(top, float(self.means[top - 1]), self.noise, threshold, above)
        mass, tail = arrivals.pmf(self.means, self.noise, threshold + above)
        while True:
            values = _Values(self, policy, long_queue, mass, tail)
            decisions = values.best(mass[:, :above], mass[:, above:].sum(1) + tail, policy)
            if np.array_equal(decisions[:threshold], policy[:threshold]):
                return policy, decisions[threshold:]
            policy = np.append(decisions[:threshold], top)


class _Values:
    """The relative values of a policy, and its cost rate in the long run.

    At x waiting the value is q(x) + u(x), where q(x) = square x^2 + (line - 2 square rate) x with the
    cost `rate`, chosen so that in a long queue q(x) = top's cost + E[q(x - top + A)]. There u(x) is the
    mean of u where the queue comes below the threshold; below it, u and the cost rate solve the linear
    equations of the policy.
    """

    def __init__(
        self, process: DecisionProcess, policy: np.ndarray, long_queue: chain.LongQueue,
        mass: np.ndarray, tail: np.ndarray,
    ) -> None:  # fmt: skip
        self.process = process
        threshold, top = len(policy) - 1, int(policy[-1])
        mean, second = process.means[top - 1], process.squares[top - 1]
        self.square = process.seconds[top - 1] / (2 * (top - mean))
        constant = process.lump[top - 1] + self.square * (top**2 - 2 * top * mean + second)
        self.line = constant / (top - mean)

        waits = np.flatnonzero(policy[:-1] == 0)
        serves = np.flatnonzero(policy[:-1])
        left, chosen = serves - policy[serves], policy[serves] - 1
        matrix = np.zeros((threshold, threshold))
        matrix[serves] = long_queue.matrix(left, chosen, mass, tail)
        inner = waits[waits + 1 < threshold]
        matrix[inner, inner + 1] = 1
        if inner.size < waits.size:  # waiting at the last state leads into the long queue
            matrix[-1, threshold - top :] = long_queue.returns[0]

        s = np.arange(threshold)
        stay, cost, ahead, ahead_squared = np.empty((4, threshold))
        stay[waits], cost[waits] = 1 / process.rate, waits / process.rate
        ahead[waits], ahead_squared[waits] = waits + 1, (waits + 1) ** 2
        stay[serves] = process.seconds[chosen]
        cost[serves] = serves * process.seconds[chosen] + process.lump[chosen]
        ahead[serves] = left + process.means[chosen]
        ahead_squared[serves] = left**2 + 2 * left * process.means[chosen] + process.squares[chosen]

        equations = np.eye(threshold) - matrix
        equations[:, 0] = stay + 2 * self.square * (ahead - s)  # u(0) = 0: in its place the cost rate
        constants = cost + self.square * (ahead_squared - s**2) + self.line * (ahead - s)
        solution = linalg.solve(equations, constants)
        self.rate = float(solution[0])
        below = np.append(0.0, solution[1:])
        self.rest = np.append(below, long_queue.returns @ below[threshold - top :])
        self.slope = self.line - 2 * self.square * self.rate

    def best(self, mass: np.ndarray, tail: np.ndarray, policy: np.ndarray) -> np.ndarray:
        """Return the best decision at each state below twice the threshold; the policy's if as good."""
        process, count = self.process, 2 * (len(policy) - 1)
        s = np.arange(count)
        sizes = np.arange(1, process.seconds.size + 1)
        ahead = mass.shape[1]
        rest = np.append(self.rest, np.full(max(0, count + ahead - self.rest.size), self.rest[-1]))
        windows = np.lib.stride_tricks.sliding_window_view(rest, ahead)[:count]
        # E[value(left + A)], by how many a batch leaves behind and by its size.
        value = windows @ mass.T + tail * rest[-1]
        value += self.square * (s[:, None] ** 2 + 2 * s[:, None] * process.means + process.squares)
        value += self.slope * (s[:, None] + process.means)
        value += process.lump - self.rate * process.seconds
        left = s[:, None] - sizes
        costs = np.empty((count, sizes.size + 1))
        serving = value[np.maximum(left, 0), sizes - 1] + s[:, None] * process.seconds
        costs[:, 1:] = np.where(left >= 0, serving, np.inf)
        after, stay = s + 1, (s - self.rate) / process.rate
        costs[:, 0] = stay + self.square * after**2 + self.slope * after + rest[after]
        old = np.append(policy, np.full(count - len(policy), policy[-1]))
        best = costs.argmin(1)
        better = costs[s, best] < costs[s, old] - ROUNDING * np.abs(costs[:, 0]).max()
        return np.where(better, best, old)
