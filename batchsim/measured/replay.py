"""A scenario on the wall clock: real arrivals, the real model, and a result like a simulation's."""

import math
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np

from batchsim import _check
from batchsim._clock import later, on_grid
from batchsim._compat import kept, need_computer
from batchsim._format import counted, duration
from batchsim.batcher import InferenceBatcher
from batchsim.engines.draws import Plan, draw
from batchsim.engines.log import Log, Status
from batchsim.engines.reference.queue import WaitingQueue
from batchsim.engines.stopwatch import Stopwatch, wait_for
from batchsim.result import Result, Run
from batchsim.scenario import Affine, OpenLoop, Scenario, SizeOrWait, Trace
from batchsim.scenario.rules.rule import START
from batchsim.scenario.service import Service, Sharing, Table, sharing
from batchsim.simulate import check_requests

LEAD_S = 0.02  # from the start of the threads to time 0
NAP_S = 0.1  # the longest sleep, so that all threads notice an end soon


class WallClock:
    """One run of a plan on a real model, by threads that share a queue.

    The lock `changed` protects all shared state; the model runs outside it, and JAX releases Python's lock
    while it computes. A server's thread takes its batches itself, without a dispatcher.
    """

    def __init__(self, plan: Plan, model_fn: Callable[[Any], Any], items: Sequence[Any]) -> None:
        assert plan.arrival_s is not None
        self.plan, self.items = plan, items
        self.due_s: list[float] = plan.arrival_s.tolist()
        self.arrival_s: list[float] = []
        self.status: list[int] = []
        self.batch_index: list[int] = []
        self.outputs: list[Any] = []
        self.batches: list[tuple[float, float, int, int, int]] = []
        self.now_s = 0.0  # the time seen by the queue and the rule: the present instant
        self.line = WaitingQueue(plan, lambda: self.now_s, self.arrival_s, None, None)
        servers = plan.scenario.servers
        self.stopwatches = [Stopwatch(model_fn, warm=False) for _ in range(servers)]
        self.idle_since_s = [-math.inf] * servers  # inf: computing
        self.changed = threading.Condition()
        self.stopping = False
        self.errors: list[BaseException] = []  # from the model
        self.crash: BaseException | None = None  # from anything else
        self.model_s: list[float] = []  # the model's part of each batch
        self.late_s: list[float] = []  # from the rule's decision to the start of the batch
        self.origin_s = math.inf

    def clock(self) -> float:
        """Return the seconds since time 0 of the run, on the grid of nanoseconds that rules use."""
        return float(on_grid(time.perf_counter() - self.origin_s))

    # Sending.

    def send(self) -> None:
        """Send each request at its time, or at once if that has passed."""
        for request, due_s in enumerate(self.due_s):
            # A plain sleep ends about 0.1 ms late. Spinning would take a core, and Python's lock, from the
            # servers; so the result reports the lateness instead.
            while (left_s := due_s - self.clock()) > 0 and not self.stopping:
                time.sleep(min(left_s, NAP_S))
            if self.stopping:
                break
            with self.changed:
                self.enter(request)
                self.changed.notify()
        with self.changed:
            self.line.ended = True
            self.changed.notify_all()

    def enter(self, request: int) -> None:
        limit: Any = self.plan.scenario.queue_limit
        self.now_s = self.clock()
        self.arrival_s.append(self.now_s)
        self.batch_index.append(-1)
        self.outputs.append(None)
        full = limit is not None and len(self.line) >= limit
        self.status.append(Status.REJECTED if full else Status.FAILED)  # until it is served
        if not full:
            self.line.batcher.add_request(self.items[request % len(self.items)], request)

    # Serving.

    def serve(self, server: int) -> None:
        """Take and compute batches until the last request."""
        stopwatch = self.stopwatches[server]
        runner = InferenceBatcher(stopwatch, self.plan.scenario.rule.max_batch_size)
        while (taken := self.next_batch(server)) is not None:
            batch, start_s, trigger = taken
            try:
                answers = runner.run_batch(batch)
            except BaseException as error:
                finish_s = self.clock()
                with self.changed:
                    self.errors.append(error)
                    # An interrupt inside the model stops all threads.
                    self.stopping |= not isinstance(error, Exception)
                    self.release(server, len(batch), start_s, finish_s)
                continue
            with self.changed:
                self.model_s.append(stopwatch.seconds)
                for answer in answers:
                    request = answer["id"]
                    self.outputs[request] = answer["output"]
                    self.status[request] = Status.SERVED
                    self.batch_index[request] = len(self.batches)
                finish_s = self.clock()  # the answers are returned, and the server is free
                self.batches.append((start_s, finish_s, len(batch), server, int(trigger)))
                self.release(server, len(batch), start_s, finish_s)

    def release(self, server: int, size: int, start_s: float, finish_s: float) -> None:
        self.idle_since_s[server] = self.now_s = finish_s
        if (finished := self.line.rule.finished) is not None:
            finished(finish_s, size, finish_s - start_s, self.line.memory, self.line.params)

    def next_batch(self, server: int) -> tuple[list[dict[str, Any]], float, int] | None:
        """Wait for the rule to start a batch, and return it, its start and its trigger; None at the end."""
        line = self.line
        with self.changed:
            while not self.stopping:
                wake_s = math.inf
                for now_s in self.instants():
                    self.now_s = now_s
                    self.expire()
                    if not line.queue:
                        break
                    action, size, trigger = line.decide(self.idle())
                    if action == START:
                        line.bring(size)
                        batch = [line.queue.popleft() for _ in range(size)]
                        self.idle_since_s[server] = math.inf
                        if line.queue:
                            self.changed.notify()  # another server may take more
                        start_s = self.clock()
                        self.late_s.append(start_s - now_s)
                        return batch, start_s, trigger
                    wake_s = line.wake_s(self.idle())
                if line.ended and not line.queue:
                    break
                # The rule has already seen an alarm in the past.
                left_s = min(wake_s if wake_s > self.now_s else math.inf, self.timeout_s()) - self.clock()
                self.changed.wait(None if left_s == math.inf else max(left_s, 0))
            self.changed.notify_all()
            return None

    def instants(self) -> list[float]:
        """Return the instants at which to ask the rule: the last event, and a timer that ran out.

        A thread wakes up slightly late. The rule gets the instant that woke it, as in a simulation: otherwise
        every batch whose wait was over would count as backlog.
        """
        queue = self.line.queue
        if not queue:
            return [self.clock()]
        since_s = min(self.idle_since_s)
        last_s = max(since_s, queue[-1]["timestamp"])
        due_s = self.line.wake_s(self.idle())
        ran_out = max(since_s, queue[0]["timestamp"]) <= due_s <= self.clock()
        return sorted({last_s, due_s}) if ran_out else [last_s]

    def idle(self) -> int:
        """Return the number of idle servers."""
        return sum(since_s < math.inf for since_s in self.idle_since_s)

    def timeout_s(self) -> float:
        """Return the time at which the oldest request times out."""
        queue, timeout_s = self.line.queue, self.plan.scenario.timeout_s
        return later(queue[0]["timestamp"], timeout_s) if queue else math.inf

    def expire(self) -> None:
        """Remove the requests that timed out before this instant."""
        while self.timeout_s() < self.now_s:
            self.status[self.line.queue.popleft()["id"]] = Status.TIMED_OUT

    # The whole run.

    def run(self) -> Log:
        """Send and serve all requests; Ctrl-C ends the run after the batches in progress.

        A second Ctrl-C raises KeyboardInterrupt at once.
        """
        need_computer("a run on the wall clock")
        jobs: list[Callable[[], None]] = [self.send]
        jobs += [lambda server=server: self.serve(server) for server in range(len(self.idle_since_s))]  # type: ignore[misc]
        threads = [threading.Thread(target=self.guarded, args=(job,), daemon=True) for job in jobs]
        self.origin_s = time.perf_counter() + LEAD_S
        try:
            for thread in threads:
                thread.start()
            self.wait_for(threads)
        except KeyboardInterrupt as interrupt:
            self.stop()
            self.errors.append(interrupt)
            self.wait_for(threads)
        if self.crash is not None:
            raise self.crash
        return self.log()

    def guarded(self, job: Callable[[], None]) -> None:
        try:
            job()
        except BaseException as error:  # of this package or a rule: a thread would hide it
            self.crash = error
            self.stop()

    def stop(self) -> None:
        with self.changed:
            self.stopping = True
            self.changed.notify_all()

    def wait_for(self, threads: Sequence[threading.Thread]) -> None:
        for thread in threads:
            while thread.is_alive():
                thread.join(NAP_S)

    def log(self) -> Log:
        """Return the log, with batches ordered by start and without failed ones."""
        order = sorted(range(len(self.batches)), key=lambda batch: (self.batches[batch][0], batch))
        number = np.empty(len(order) + 1, np.int64)
        number[order], number[-1] = np.arange(len(order)), -1
        kinds = float, float, np.int64, np.int64, np.uint8
        rows: Any = zip(*(self.batches[batch] for batch in order), strict=True) if order else ((),) * 5
        names = "batch_start_s", "batch_finish_s", "batch_size", "batch_server", "batch_trigger"
        columns = {name: np.array(row, kind) for name, row, kind in zip(names, rows, kinds, strict=True)}
        return Log(
            arrival_s=np.array(self.arrival_s), batch_index=number[np.array(self.batch_index, np.int64)],
            status=np.array(self.status, np.uint8), outputs=self.outputs,
            size=None if self.plan.size is None else self.plan.size[: len(self.arrival_s)], **columns,
        )  # fmt: skip


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
