"""The best of all policies, as a yardstick: when to serve, and how many requests."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np
import scipy  # its linalg is loaded where it is used

from batchsim import _check
from batchsim.scenario import Noise, Service
from batchsim.theory import chain
from batchsim.theory.answer import UnsolvedError, check_load, checked
from batchsim.theory.chain import evaluate

RARE = 1e-9  # of the batches: rarer states do not count
LARGEST = 1024  # max batch size: the decision process needs four times as many states


@dataclass(frozen=True, eq=False, repr=False)
class Optimum:
    """The best of all policies, and its performance; times in ms.

    `policy[s]` is how many of s waiting requests to take when the server is free, 0 to wait for one
    more; its last entry holds for all s above. All s but the rarest are below `usual`. `objective`, the
    minimum over all policies, is mean_latency_ms + weight * cost_per_request.
    """

    policy: np.ndarray
    max_batch_size: int
    usual: int
    rate_per_s: float
    saturation_per_s: float
    mean_latency_ms: float
    mean_batch_size: float
    cost_per_request: float
    utilisation: float
    weight: float

    @property
    def objective(self) -> float:
        return self.mean_latency_ms + self.weight * self.cost_per_request

    def gap(self, mean_latency_ms: float, cost_per_request: float = 0.0) -> float:
        """Return how far a setting is above the best possible, in percent of it.

        `cost_per_request` counts if the optimum was computed with a cost.
        """
        latency = _check.real("mean_latency_ms", mean_latency_ms, above=0)
        cost = _check.real("cost_per_request", cost_per_request, at_least=0)
        return ((latency + self.weight * cost) / self.objective - 1) * 100

    @property
    def control_limit(self) -> int | None:
        """The number waiting from which all are served; None if the policy has no such form.

        States that occur less than once in 1e9 batches do not count.
        """
        waiting = np.arange(self.usual)
        least = int(np.argmax(self.policy > 0))
        simple = np.where(waiting < least, 0, np.minimum(waiting, self.max_batch_size))
        return least if np.array_equal(self.taken(waiting), simple) else None

    def taken(self, waiting: np.ndarray) -> np.ndarray:
        """Return the size of the batch for each number waiting, any shape."""
        return self.policy[np.minimum(waiting, self.policy.size - 1)]

    def __repr__(self) -> str:
        least = self.control_limit
        if least is None:
            words = self._policy_in_words()
        else:
            when = "as soon as the server is free" if least == 1 else f"once {least} wait"
            words = f"serve all that wait (at most {self.max_batch_size}) {when}"
        cost = f", cost {self.cost_per_request:.6g} a request, weight {self.weight:g}" if self.weight else ""
        return (
            f"Best possible: {words}\n  latency     mean {self.mean_latency_ms:.6g} ms{cost}\n"
            f"  batches     of {self.mean_batch_size:.6g} on average"
        )

    def _policy_in_words(self) -> str:
        """Return the policy for the usual states, as "wait at 1 to 3, serve all of 4 to 5, ..."."""
        taken = enumerate(self.taken(np.arange(1, self.usual)).tolist(), 1)
        words = []
        for kind, group in groupby(taken, lambda pair: "all" if pair[1] == pair[0] else pair[1]):
            waiting = [number for number, _ in group]
            where = f"{waiting[0]} to {waiting[-1]}" if len(waiting) > 1 else f"{waiting[0]}"
            words.append(f"wait at {where}" if kind == 0 else f"serve {kind} of {where}")
        return ", ".join(words)


def optimum(
    rate_per_s: float, service: Service, max_batch_size: int,
    batch_cost: Callable[[int], float] | Sequence[float] | None = None, weight: float = 1.0,
) -> Optimum:  # fmt: skip
    """Return the policy with the least mean latency plus weighted cost, for Poisson arrivals and one server.

    Over all policies that wait or serve at most `max_batch_size` of the waiting requests, whenever the server
    is free. Poisson arrivals have no memory, so a timer cannot do better. `batch_cost` is the cost of a batch
    of n, as a function of n or as an array by n (entry 0 unused), say in joules; the objective is
    mean_latency_ms + weight * cost per request.

    The semi-Markov decision process of Xu, Zhou and Niu (arXiv 2501.02181), on the infinite state space:
    a long queue is best served by the size with the highest throughput, so from some state on the
    relative values have a closed form, and policy iteration (Howard 1960) ends at the optimum.

    >>> from batchsim import Affine
    >>> best = optimum(2464.9, Affine(1.8874, 0.1438), max_batch_size=32)
    >>> best
    Best possible: serve all that wait (at most 32) once 3 wait
      latency     mean 4.57662 ms
      batches     of 7.26956 on average
    >>> round(best.gap(mean_latency_ms=5.0), 1)
    9.3
    """
    rate = checked(rate_per_s, service)
    size = _check.whole("max_batch_size", max_batch_size, at_most=LARGEST)
    weight = _check.real("weight", weight, at_least=0)
    seconds = service.table(size)
    cost = _costs(batch_cost, size)
    saturation_per_s = float((np.arange(1, size + 1) / seconds[1:]).max())
    check_load(rate, saturation_per_s)
    policy = DecisionProcess(rate, seconds, cost * weight / 1000, service.noise).best_policy()
    state = evaluate(policy, rate, seconds, service.noise)
    per_batch = float(state.batch_size_pmf @ np.nan_to_num(cost[: state.batch_size_pmf.size]))
    seen = np.cumsum(np.append(state.chain.below, state.chain.above)) < 1 - RARE
    usual = max(int(np.argmax(policy > 0)), int(seen.sum())) + 1
    return Optimum(
        policy, size, usual, rate, saturation_per_s, mean_latency_ms=state.mean_number / rate * 1000,
        mean_batch_size=state.mean_batch_size, cost_per_request=per_batch / state.mean_batch_size,
        utilisation=state.utilisation, weight=weight if batch_cost is not None else 0.0,
    )  # fmt: skip


def _costs(batch_cost: Callable[[int], float] | Sequence[float] | None, size: int) -> np.ndarray:
    """Return the cost of a batch by its size, shape (size + 1,), 0 at 0."""
    if batch_cost is None:
        return np.zeros(size + 1)
    costs = [0.0, *map(batch_cost, range(1, size + 1))] if callable(batch_cost) else batch_cost
    if not (isinstance(costs, (Sequence, np.ndarray)) and _check.listed(costs)):
        raise TypeError(f"batch_cost must be a function or a list, got {batch_cost!r}")
    if len(costs) <= size:
        raise ValueError(f"batch_cost must have {size + 1} entries, for sizes 0 to {size}, got {len(costs)}")
    checked = [_check.real(f"cost of a batch of {n}", costs[n], at_least=0) for n in range(1, size + 1)]
    return np.array([0.0, *checked])


# The decision process: semi-Markov, one server, solved on all states.
#
# A state is how many requests wait while the server is free. Its relative value is how much more the system
# costs in the long run from there than from an empty queue. The cost is the number in system (by Little's
# law, the mean latency times the rate) plus the cost of the batches. While the queue is long, every batch
# takes `top`; there the relative value is a quadratic plus the mean of the rest at the state where the queue
# comes out of that region. That closes the equations without a cut-off.
TIED = 1e-12  # sizes are equally fast if their throughputs differ relatively by less
ROUNDING = 1e-12  # of the largest value: without this least improvement, the iteration might not end
UNSEEN = 1e-14  # states less likely than this do not count
MOST_STATES = 4096


class DecisionProcess:
    """Poisson arrivals at a rate, service times by size with their noise, and a cost per batch by size."""

    def __init__(self, rate_per_s: float, seconds: np.ndarray, cost: np.ndarray, noise: Noise | None) -> None:
        self.rate, self.noise, self.args = rate_per_s, noise, (rate_per_s, seconds, noise)
        self.seconds, self.cost = seconds[1:], cost[1:]
        self.means = rate_per_s * self.seconds
        self.squares = chain.second_moment(self.means, noise)
        # The requests that arrive during a service of length S spend rate * S^2 / 2 in the system during it.
        self.lump = self.cost + (self.squares - self.means) / (2 * rate_per_s)
        throughput = np.arange(1, self.seconds.size + 1) / self.seconds
        self.fastest = 1 + np.flatnonzero(throughput >= throughput.max() * (1 - TIED))

    def best_policy(self) -> np.ndarray:
        """Return how many to take of s waiting, 0 to wait; the last entry holds for all s above.

        Policy iteration (Howard 1960). A long queue takes the fastest size, the better one of several equally
        fast. The threshold doubles until all decisions beyond it are `top` too.
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
        mass, tail = chain.pmf(self.means, self.noise, threshold + above)
        while True:
            values = _Values(self, policy, long_queue, mass, tail)
            decisions = values.best(mass[:, :above], mass[:, above:].sum(1) + tail, policy)
            if np.array_equal(decisions[:threshold], policy[:threshold]):
                return policy, decisions[threshold:]
            policy = np.append(decisions[:threshold], top)


class _Values:
    """The relative values of a policy, and its cost rate in the long run.

    At x waiting the value is q(x) + u(x), where q(x) = square x^2 + (line - 2 square rate) x with the cost
    `rate`. The coefficients satisfy q(x) = top's cost + E[q(x - top + A)] in a long queue. There u(x) is the
    mean of u at the first state below the threshold. Below it, u and the cost rate solve the linear equations
    of the policy.
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
        solution = scipy.linalg.solve(equations, constants)
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
        # E[value(left + A)], by the number that a batch leaves behind and by its size.
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
