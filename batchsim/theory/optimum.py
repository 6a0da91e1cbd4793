"""The best of all policies, as a yardstick: when to serve, and how many."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np

from batchsim import _check
from batchsim.scenario import Service
from batchsim.theory.answer import check_load, checked
from batchsim.theory.chain import evaluate
from batchsim.theory.decision import DecisionProcess

RARE = 1e-9  # of the batches; states that are seen less often do not count
LARGEST = 1024  # max batch size: the decision process needs four times as many states


@dataclass(frozen=True, eq=False, repr=False)
class Optimum:
    """The best of all policies, and what it attains; times in ms.

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

        States that are seen less than once in 1e9 batches do not count.
        """
        waiting = np.arange(self.usual)
        least = int(np.argmax(self.policy > 0))
        simple = np.where(waiting < least, 0, np.minimum(waiting, self.max_batch_size))
        return least if np.array_equal(self.taken(waiting), simple) else None

    def taken(self, waiting: np.ndarray) -> np.ndarray:
        """Return how many are taken of each number waiting, any shape."""
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

    Over all policies that, whenever the server is free, wait or serve some of the waiting requests, at
    most `max_batch_size`. Poisson arrivals have no memory, so a timer cannot do better. `batch_cost` is
    the cost of a batch of n, as a function of n or as an array by n (entry 0 unused), say in joules;
    the objective is mean_latency_ms + weight * cost per request.

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
