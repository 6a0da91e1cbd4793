"""A server's own time for a batch: the model behind the batcher, beside the thread that sends."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from batchsim.device.rounds import FEWEST, SETTLING, Rounds
from batchsim.device.wall_clock import WallClock
from batchsim.engines.draws import draw
from batchsim.scenario import Affine, Poisson, Scenario
from batchsim.scenario.rules.rule import FULL, START, Decision, Rule, Waiting
from batchsim.scenario.service import Table

BUSY = 0.7  # by default: the server waits for some batches, and others wait for it
LEAST, MOST = 0.2, 0.9  # busier, and requests would come faster than a slow minute serves them
RUN_S = 0.5  # the shortest run: threads start in each


class InTurnParams(NamedTuple):
    """The parameters of `InTurn`."""

    sizes: tuple[int, ...]


@dataclass(frozen=True)
class InTurn(Rule):
    """Batches of the given sizes, in this order, each once its requests are there. Python asks it alone."""

    sizes: tuple[int, ...]

    Params = InTurnParams
    state_size = 1  # how many have started
    compiled = False

    @property
    def max_batch_size(self) -> int:  # type: ignore[override]  # of the others it is a field
        return max(self.sizes)

    @property
    def params(self) -> InTurnParams:
        return InTurnParams(self.sizes)

    @staticmethod
    def decide(now_s: float, waiting: Waiting, idle: int, state: Any, params: Any) -> Decision:
        size = params.sizes[int(state[0])]
        if waiting.length < size:
            return 0, 0, 0
        state[0] += 1
        return START, size, FULL

    @staticmethod
    def wake_s(now_s: float, waiting: Waiting, idle: int, state: Any, params: Any) -> float:
        return np.inf


class ServedRounds(Rounds):
    """Rounds in which a thread sends and another serves, as in a replay: `WallClock` itself.

    A time runs from the instant at which a batch may start, its requests there and the server free, until its
    answers are handed back. Requests come as a Poisson process, so fast that the server is `busy` for that
    part of the time: sends take time from the model, a thread that waited is late to start, and a processor
    that rested starts slowly, all this as often as in a replay.
    """

    def __init__(
        self, call: Callable[[Any], Any], batches: dict[int, Any], copy: bool,
        busy: float | Callable[[Table], float],
    ) -> None:  # fmt: skip
        super().__init__(call, batches, copy)
        self.busy = busy

    def load(self, times_ms: dict[int, list[float]]) -> float:
        """Return how busy to be, given what is known of the times so far."""
        if not callable(self.busy):
            return self.busy
        busy = self.busy(Table({size: float(np.median(times)) for size, times in times_ms.items()}))
        return min(max(busy, LEAST), MOST)

    def run(
        self, generator: np.random.Generator, target: float, limit_s: float, repeats: int | None, bar: Any
    ) -> None:
        """Time runs of whole rounds until every size is known well enough, or there is no time."""
        begin_s, rounds = time.perf_counter(), 0
        sizes = np.array(list(self.samples_ms))
        first = self.served(sizes, 1e9, generator)  # all at once; thrown away
        took_s = first.sum()
        load = self.load({size: [1000 * each] for size, each in zip(sizes.tolist(), first, strict=True)})
        while rounds != repeats:
            bar.set_postfix_str(f"round {rounds + 1:,}")
            more = max(1, round(RUN_S * load / took_s))
            more = more if repeats is None else min(more, repeats - rounds)
            order = np.concatenate([generator.permutation(sizes) for _ in range(more)])
            seconds = self.served(order, load * sizes.sum() / took_s, generator)
            took_s, rounds = seconds.sum() / more, rounds + more
            self.runs.append((order, seconds))
            for size, each_s in zip(order.tolist(), seconds.tolist(), strict=True):
                self.samples_ms[size].append(1000 * each_s)
            load = self.load(self.samples_ms)
            passed_s = time.perf_counter() - begin_s
            if repeats is None and rounds >= FEWEST and passed_s > SETTLING * limit_s:
                settled = sum(self.settled(size, target) for size in self.samples_ms)
                bar.update(settled - bar.n)
                if settled == sizes.size:
                    return
            if repeats is None and passed_s > limit_s:
                return

    def served(self, order: np.ndarray, rate_per_s: float, generator: np.random.Generator) -> np.ndarray:
        """Return the seconds of batches of these sizes, one after the other, at an arrival rate."""
        scenario = Scenario(Poisson(rate_per_s), InTurn(tuple(order.tolist())), Affine(1, 0))
        items = self.batches[max(self.batches)]
        plan = draw(scenario, int(order.sum()), int(generator.integers(2**32)))
        clock = WallClock(plan, self.call, items)
        log = clock.run()
        if clock.errors:
            raise clock.errors[0]
        ready_s = log.arrival_s[np.cumsum(order) - 1]
        free_s = np.concatenate([[-np.inf], log.batch_finish_s[:-1]])
        return log.batch_finish_s - np.maximum(ready_s, free_s)
