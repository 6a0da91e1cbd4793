"""Two servers side by side on one device: how they share it, measured."""

import math
from collections.abc import Callable, Sequence
from statistics import median
from typing import Any

import numpy as np

from batchsim import _check
from batchsim.device.replay import POOL, play, warm_up
from batchsim.scenario import Affine, Scenario, SizeOrWait, Trace
from batchsim.scenario.service import Service, Sharing, Table, sharing

LEAST = 20  # batches in a round, however long they take


def measure_sharing(
    model: Callable[[Any], Any], batch_size: int = 16, *, seconds: float = 6.0, rounds: int = 3,
    inputs: Sequence[Any] | None = None, service: Service | None = None,
) -> Sharing:  # fmt: skip
    """Measure how two servers share this machine's device: `host_ms` and `contention` of a scenario.

    Replays of requests that are all there from the start, in full batches, by one server and by two in turn,
    `rounds` times within about `seconds`; the medians of their throughputs go to `sharing`. `service` is of
    one server alone; by default it is what the rounds of one server show, alike for all batch sizes. A plain
    callable needs `inputs`, some items.

    >>> from batchsim.device import load_model
    >>> found = measure_sharing(load_model("mlp", width=8), batch_size=2, seconds=0.1, rounds=1)
    >>> list(found)
    ['host_ms', 'contention']
    """
    batch_size = _check.whole("batch_size", batch_size)
    seconds = _check.real("seconds", seconds, above=0)
    rounds = _check.whole("rounds", rounds)
    if inputs is None and not hasattr(model, "inputs"):
        raise TypeError("inputs must be some items if model is a plain callable, got None")
    items = model.inputs(POOL) if inputs is None else list(inputs)  # type: ignore[attr-defined]
    warm_up(model, np.asarray(items[0]), [batch_size])

    def per_s_of(servers: int, batches: int) -> float:
        every = Trace(np.zeros(batches * batch_size))
        full = Scenario(every, SizeOrWait(batch_size, math.inf), Affine(1, 0), servers=servers)
        result = play(full, model, items, every.times_s.size)
        if result.error:
            raise RuntimeError(f"every batch must be computed, got {result.error}")
        return result.throughput_per_s

    batches = max(LEAST, round(seconds / (2 * rounds) * per_s_of(1, LEAST) / batch_size))
    per_s: dict[int, list[float]] = {1: [], 2: []}
    for _ in range(rounds):
        for servers, found in per_s.items():
            found.append(per_s_of(servers, batches))
    one_per_s, two_per_s = map(median, per_s.values())
    if service is None:
        service = Table({batch_size: 1000 * batch_size / one_per_s})
    return sharing(one_per_s, two_per_s, service, batch_size)
