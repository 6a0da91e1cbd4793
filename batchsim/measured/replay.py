"""A scenario on the wall clock: real arrivals, the real model, and a result like a simulation's."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np

from batchsim import _check
from batchsim._compat import kept
from batchsim._format import counted, duration
from batchsim.engines.draws import draw
from batchsim.engines.log import Status
from batchsim.engines.stopwatch import wait_for
from batchsim.measured.wall_clock import WallClock
from batchsim.result import Result, Run
from batchsim.scenario import Affine, OpenLoop, Scenario, SizeOrWait, Trace
from batchsim.scenario.service import Service, Sharing, Table, sharing
from batchsim.simulate import check_requests

POOL = 256  # items drawn by a Model; request i gets item i mod POOL
USUAL_REQUESTS, USUAL_S = 100_000, 10.0  # the default: the requests that arrive in 10 s, at most 100,000
LATE_MS, LATE_SHARE = 0.5, 0.05  # if the p99 of the sends' lateness exceeds both, a replay proves nothing


@dataclass(frozen=True, eq=False, repr=False)
class Replay(Result, _check.Renewed):
    """A result whose times were measured on the wall clock.

    `arrival_s` is the time at which a request entered the queue, `due_s` the time at which it should have
    been sent; latencies count from the former. A batch computes from when it is taken until its answers are
    returned: on average `model_ms` in the model, as `measure` times it, and `own_ms` in the batcher.
    `reaction_ms` is the mean delay until a batch that may start does.

    A request whose batch failed, or that was unanswered when the replay stopped, has the status FAILED;
    requests that were not sent (`unsent`) have no row.
    """

    requested: int = 0
    model_ms: float = 0.0
    reaction_ms: float = 0.0
    error: str = ""  # the first exception of the model and their number, or that the replay was stopped

    @kept
    def due_s(self) -> np.ndarray:
        """The time at which each request should have been sent, as in a simulation with this seed."""
        arrival_s = draw(self.scenario, self.requested, self.seed).arrival_s
        assert arrival_s is not None
        return arrival_s[: self.arrival_s.size]

    @property
    def late_ms(self) -> np.ndarray:
        """The lateness of each send."""
        return (self.arrival_s - self.due_s) * 1000

    @property
    def unsent(self) -> int:
        return self.requested - self.arrival_s.size

    @property
    def failed(self) -> int:
        return int(np.count_nonzero(self.status == Status.FAILED))

    @property
    def own_ms(self) -> float:
        """The mean time of a batch outside of the model: stacking, fetching and returning."""
        took_s = self.batches.finish_s - self.batches.start_s
        return float(took_s.mean()) * 1000 - self.model_ms if took_s.size else 0.0

    @property
    def disturbed(self) -> str:
        """The reason why this replay proves nothing, or "": late requests, or some without an answer."""
        if self.unsent or self.failed:
            return self.error
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
        rows["per batch"] = (
            f"model {duration(self.model_ms)}, batcher's own {duration(self.own_ms)}, "
            f"late to start {duration(self.reaction_ms)}"
        )
        return rows | ({"DISTURBED": self.disturbed} if self.disturbed else {})


def replay(
    scenario: Scenario, model: Callable[[Any], Any], requests: int | None = None, seed: int = 0, *,
    inputs: Sequence[Any] | None = None, warm: bool = True, warmup: float = 0.0,
) -> Replay:  # fmt: skip
    """Run a scenario on the wall clock with a real model, and return the times of every request.

    A thread sends the requests at the arrival times of `simulate` with the same seed. One thread per server
    takes batches from an `InferenceBatcher`, by the scenario's own rule, and runs `model` on them. The
    scenario's service time has no effect.

    `inputs`: one item per request; by default a `Model` draws 256 items, used in turn, or, if it has
    `lengths` and requests have sizes, a sequence of each request's size, and `requests` is the
    number that arrive in 10 s. `warm`: every batch size runs twice before the clock starts; otherwise
    compiling is part of the run (a `Model` drops its compiled code). `warmup` as in `simulate`.

    If the model raises, the requests of that batch get the status FAILED and the replay continues. Ctrl-C
    stops it after the batches in progress, and returns the result so far. Both warn. ValueError for a closed
    loop, and for rules that act while every server computes.

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
        raise ValueError(f"replay must have an open workload, got {workload!r}")
    if scenario.tokens is not None:
        raise ValueError(f"replay must have requests without tokens, got {scenario.tokens!r}")
    if rule.computed_as is not None:
        raise ValueError(f"replay must have a rule that does not fill up batches, got {rule!r}")
    if rule.freezes or rule.asked_while_busy:
        raise ValueError(f"replay must have a rule that acts only while a server is idle, got {rule!r}")
    if inputs is not None:
        inputs = list(inputs)
        requests = len(inputs) if requests is None else requests
    if requests is None and workload.max_requests is None:
        requests = max(1, min(USUAL_REQUESTS, round(USUAL_S * workload.offered_per_s)))
    count = check_requests(scenario, requests)
    if inputs is not None and len(inputs) != count:
        raise ValueError(f"inputs must be one item per request, {count:,}, got {len(inputs):,}")
    if getattr(scenario, "by_level", False):
        raise ValueError(f"replay must serve requests in order of arrival, got {scenario!r}")
    if inputs is None and not hasattr(model, "inputs"):
        raise TypeError("inputs must be one item per request if model is a plain callable, got None")
    sizes = draw(scenario, count, seed).size if getattr(model, "lengths", None) else None
    if sizes is not None and int(sizes.max()) > rule.largest_size:
        must = f"sizes must be at most the rule's limit in units, {rule.largest_size:,}, in a replay"
        raise ValueError(f"{must}, got {sizes.max():,}")
    if inputs is not None:
        items = inputs
    elif sizes is None:
        items = model.inputs(min(count, POOL), seed)  # type: ignore[attr-defined]
    else:  # each as long as it is
        items = model.inputs(count, seed, sizes)  # type: ignore[attr-defined]
    if warm:
        warm_up(model, np.asarray(items[0]), range(1, rule.largest_batch + 1))
        if inputs is None and sizes is not None:  # every length
            for length in model.lengths:  # type: ignore[attr-defined]
                warm_up(model, model.inputs(1, seed, length)[0], range(1, rule.largest_batch + 1))  # type: ignore[attr-defined]
    elif hasattr(model, "forget_compiled"):
        model.forget_compiled()
    result = play(scenario, model, items, count, seed, warmup)
    if result.error:
        _check.warn(f"a replay must answer every request, got {result.error}")
    return result


def warm_up(model: Callable[[Any], Any], item: np.ndarray, sizes: Iterable[int]) -> None:
    """Run every batch size twice, so that a model has compiled all its shapes.

    Raises the model's exception if no call succeeds.
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
    """Run a scenario on the wall clock without checks and warm-up; see `replay`."""
    clock = WallClock(draw(scenario, count, seed), model, items)
    log = clock.run()
    if not log.arrival_s.size:
        raise KeyboardInterrupt  # stopped before the first request
    device = next((each.device for each in clock.stopwatches if each.device is not None), "host")
    model_ms, reaction_ms = (1000 * float(np.mean(each or [0])) for each in (clock.model_s, clock.late_s))
    run = Run(scenario, log, warmup=warmup, clock="wall")
    error = "; ".join(_failures(clock))
    return Replay((run,), seed, f"replay on {device}", count, model_ms, reaction_ms, error)


def _failures(clock: WallClock) -> list[str]:
    found = []
    raised = [error for error in clock.errors if isinstance(error, Exception)]
    if raised:
        batches = counted(len(raised), "batch") + " failed"
        found.append(f"{batches}, the first by {type(raised[0]).__name__}: {raised[0]}")
    if len(raised) < len(clock.errors):
        found.append(f"it was stopped after {counted(len(clock.arrival_s), 'request')}")
    return found


LEAST = 20  # batches in a round


def measure_sharing(
    model: Callable[[Any], Any], batch_size: int = 16, *, seconds: float = 6.0, rounds: int = 3,
    inputs: Sequence[Any] | None = None, service: Service | None = None,
) -> Sharing:  # fmt: skip
    """Measure how two servers share this machine's device: `host_ms` and `contention` of a scenario.

    One server and two servers in turn replay full batches of requests that are all there from the start,
    `rounds` times within about `seconds`; `sharing` takes the medians of their throughputs. `service` is the
    service time of one server; the default is measured in the rounds with one server. A plain callable needs
    `inputs`, some items.

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
