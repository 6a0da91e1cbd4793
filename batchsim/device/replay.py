"""The same scenario on the wall clock: real arrivals, the real model, and a result as of a simulation."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import median
from typing import Any

import numpy as np

from batchsim import _check
from batchsim._format import counted, duration
from batchsim.device.wall_clock import WallClock
from batchsim.engines.draws import draw
from batchsim.engines.log import Status
from batchsim.engines.stopwatch import wait_for
from batchsim.result import Result, Run
from batchsim.scenario import Affine, OpenLoop, Scenario, SizeOrWait, Trace
from batchsim.scenario.service import Service, Sharing, Table, sharing
from batchsim.simulate import check_requests

POOL = 256  # items that a Model draws itself; request i gets item i mod POOL
USUAL_REQUESTS, USUAL_S = 100_000, 10.0  # by default as many requests as arrive in so long, at most so many
LATE_MS, LATE_SHARE = 0.5, 0.05  # beyond both, the p99 of the sends' lateness makes a replay no evidence
OTHERS = 0.1  # and so does a larger part of the processors that other programs take
TOLD_S = 0.5  # the shortest run of which that part is known: systems count in hundredths of a second


@dataclass(frozen=True, eq=False, repr=False)
class Replay(Result):
    """A result whose times were measured: when requests really came, and when their answers were there.

    `arrival_s` is when a request was really in the queue, `due_s` when it should have been sent: latencies
    count from the former. A batch computes from when it is taken until its answers are handed back:
    `model_ms` of that, on average, is the model as `measure` times it, the rest (`own_ms`) the batcher's own
    work. `reaction_ms` is how long it takes on average until a batch that may start does; `others` is the
    part of the processors' time that went to other programs.

    A request whose batch failed, or that was not answered when the replay was stopped, has the status FAILED;
    requests that were not sent (`unsent`) have no row.
    """

    requested: int = 0
    model_ms: float = 0.0
    reaction_ms: float = 0.0
    others: float = 0.0
    error: str = ""  # what the model raised first, and how often; or that it was stopped

    @cached_property
    def due_s(self) -> np.ndarray:
        """When each request should have been sent: the arrival times of a simulation with this seed."""
        arrival_s = draw(self.scenario, self.requested, self.seed).arrival_s
        assert arrival_s is not None
        return arrival_s[: self.arrival_s.size]

    @property
    def late_ms(self) -> np.ndarray:
        """How late each request was sent."""
        return (self.arrival_s - self.due_s) * 1000

    @property
    def unsent(self) -> int:
        return self.requested - self.arrival_s.size

    @property
    def failed(self) -> int:
        return int(np.count_nonzero(self.status == Status.FAILED))

    @property
    def own_ms(self) -> float:
        """What a batch takes on average besides the model: stacking, fetching and handing back."""
        took_s = self.batches.finish_s - self.batches.start_s
        return float(took_s.mean()) * 1000 - self.model_ms if took_s.size else 0.0

    @property
    def disturbed(self) -> str:
        """Why this replay is no evidence, or "".

        Requests were sent too late, or not all of them were answered, or other programs were running.
        """
        if self.unsent or self.failed:
            return self.error
        if self.others > OTHERS and self.arrival_s[-1] > TOLD_S:
            return f"other programs took {self.others:.0%} of the processors; at most {OTHERS:.0%} will do"
        late_ms = float(np.percentile(self.late_ms, 99))
        most_ms = max(LATE_MS, LATE_SHARE * self.mean_latency_ms)
        if late_ms <= most_ms:
            return ""
        late = f"1 % of the requests were sent at least {duration(late_ms)} late"
        return f"{late}; at most {duration(most_ms)} will do"

    def _rows(self) -> dict[str, str]:
        rows, lost = super()._rows(), {"failed": self.failed, "not sent": self.unsent}
        rows["requests"] += "".join(f", {count:,} {name}" for name, count in lost.items() if count)
        late, most = np.percentile(self.late_ms, [50, 99]) if self.late_ms.size else (0.0, 0.0)
        rows["sent"] = f"{duration(late)} late in the median, p99 {duration(most)}"
        rows["others"] = f"took {self.others:.0%} of the processors"
        rows["per batch"] = (
            f"model {duration(self.model_ms)}, batcher's own {duration(self.own_ms)}, "
            f"late to start {duration(self.reaction_ms)}"
        )
        return rows | ({"DISTURBED": self.disturbed} if self.disturbed else {})


def replay(
    scenario: Scenario, model: Callable[[Any], Any], requests: int | None = None, seed: int = 0, *,
    inputs: Sequence[Any] | None = None, warm: bool = True, warmup: float = 0.0,
) -> Replay:  # fmt: skip
    """Run a scenario on the wall clock, with a real model, and return what happened to every request.

    A thread sends the requests at the times at which `simulate` with the same seed lets them arrive; a
    thread for each server takes batches from one `InferenceBatcher`, by the scenario's own rule, and runs
    `model` on them. The scenario's service time plays no part.

    `inputs`: one item a request; without them a `Model` draws 256 that take turns, and there are as many
    requests as arrive in 10 s, unless you say. `warm`: every batch size runs twice before the clock starts;
    without, compiling is part of the run (a `Model` forgets what it had compiled). `warmup` as in `simulate`.

    A batch on which the model raises is answered by nobody: its requests have the status FAILED, and the
    replay goes on. Ctrl-C stops it after the batches that compute, and returns what there is so far. Both
    warn. ValueError for a closed loop, and for rules that act while every server computes.

    >>> from batchsim import Affine, Poisson, Scenario, SizeOrWait
    >>> scenario = Scenario(Poisson(2000), SizeOrWait(8, 1), Affine(1, 0.1))
    >>> result = replay(scenario, lambda batch: batch * 2, inputs=range(100))
    >>> result.outputs[7], result.summary()["served"]
    (np.int64(14), 100)
    """
    _check.instance("scenario", scenario, Scenario, "a Scenario")
    _check.instance("model", model, Callable, "callable")
    workload, rule = scenario.workload, scenario.rule
    if not isinstance(workload, OpenLoop):
        raise ValueError(f"replay must have arrivals that are known before, got {workload!r}")
    if scenario.tokens is not None:
        raise ValueError(f"replay must have requests without tokens, got {scenario.tokens!r}")
    if rule.computed_as is not None:
        raise ValueError(f"replay computes batches as they are, and fills none up, got {rule!r}")
    if rule.asked_while_busy:
        raise ValueError(f"replay must ask the rule when a server is idle, and not before, got {rule!r}")
    if inputs is not None:
        inputs = list(inputs)
        requests = len(inputs) if requests is None else requests
    if requests is None and workload.max_requests is None:
        requests = max(1, min(USUAL_REQUESTS, round(USUAL_S * workload.offered_per_s)))
    count = check_requests(scenario, requests)
    if inputs is not None and len(inputs) != count:
        raise ValueError(f"inputs must be one item a request, {count:,}, got {len(inputs):,}")
    if getattr(scenario, "by_level", False):
        raise ValueError(f"replay must serve requests in order of arrival, got {scenario!r}")
    if inputs is None and not hasattr(model, "inputs"):
        raise TypeError("inputs must be one item a request if model is a plain callable, got None")
    items = model.inputs(min(count, POOL), seed) if inputs is None else inputs  # type: ignore[attr-defined]
    if warm:
        warm_up(model, np.asarray(items[0]), range(1, rule.largest_batch + 1))
    elif hasattr(model, "forget_compiled"):
        model.forget_compiled()
    result = play(scenario, model, items, count, seed, warmup)
    if result.error:
        _check.warn(f"a replay must answer every request, got {result.error}")
    return result


def warm_up(model: Callable[[Any], Any], item: np.ndarray, sizes: Iterable[int]) -> None:
    """Run every batch size twice, so that a model has compiled all its shapes.

    A model that raises now and then is left to the run; one that always does raises here.
    """
    works, error = False, None
    for size in sizes:
        for _ in range(2):
            try:
                wait_for(model(np.stack([item] * size)))
                works = True
            except Exception as raised:
                error = raised
    if error is not None and not works:
        raise error


def play(
    scenario: Scenario, model: Callable[[Any], Any], items: Sequence[Any], count: int, seed: int = 0,
    warmup: float = 0.0,
) -> Replay:  # fmt: skip
    """Run a scenario on the wall clock with the model as it is, unchecked; see `replay`."""
    clock = WallClock(draw(scenario, count, seed), model, items)
    log = clock.run()
    if not log.arrival_s.size:
        raise KeyboardInterrupt  # before the first request: there is nothing to return
    device = next((each.device for each in clock.stopwatches if each.device is not None), "host")
    model_ms, reaction_ms = (1000 * float(np.mean(each or [0])) for each in (clock.model_s, clock.late_s))
    run = Run(scenario, log, warmup=warmup, clock="wall")
    means = count, model_ms, reaction_ms, clock.others
    return Replay((run,), seed, f"replay on {device}", *means, "; ".join(_told(clock)))


def _told(clock: WallClock) -> list[str]:
    """Say what went wrong in a run."""
    told = []
    raised = [error for error in clock.errors if isinstance(error, Exception)]
    if raised:
        batches = counted(len(raised), "batch") + " failed"
        told.append(f"{batches}, the first by {type(raised[0]).__name__}: {raised[0]}")
    if len(raised) < len(clock.errors):
        told.append(f"it was stopped after {counted(len(clock.arrival_s), 'request')}")
    return told


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
