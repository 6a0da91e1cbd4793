"""A scenario on the wall clock: one thread sends; one per server asks the rule and runs the model."""

import math
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from batchsim._clock import later, on_grid
from batchsim._compat import need_computer
from batchsim.batcher import InferenceBatcher
from batchsim.engines.draws import Plan
from batchsim.engines.log import Log, Status
from batchsim.engines.reference.queue import WaitingQueue
from batchsim.engines.stopwatch import Stopwatch
from batchsim.scenario.rules.rule import START

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
