import time
from collections import deque

import numpy as np


class Queue:
    def __init__(self, model_fn, max_batch_size=32, max_wait_ms=50.0, *, clock=time.monotonic):
        self.model_fn, self.clock = model_fn, clock
        self.max_batch_size, self.max_wait_ms = max_batch_size, max_wait_ms
        self.queue = deque()

    def add_request(self, input_data, request_id):
        self.queue.append({"id": request_id, "input": input_data, "timestamp": self.clock()})

    def deadline_s(self):
        return self.queue[0]["timestamp"] + self.max_wait_ms / 1000

    def full(self):
        return len(self.queue) >= self.max_batch_size

    def should_process(self):
        return self.full() or (bool(self.queue) and self.clock() >= self.deadline_s())


class Batcher(Queue):
    def take(self):
        return [self.queue.popleft() for _ in range(min(len(self.queue), self.max_batch_size))]

    def process_batch(self):
        batch = self.take()
        return self.computed(batch) if batch else []

    def computed(self, batch):
        outputs = self.model_fn(np.stack([request["input"] for request in batch]))
        return [{"id": one["id"], "output": output} for one, output in zip(batch, outputs, strict=True)]


class Safe(Batcher):
    def process_batch(self):
        before = list(self.queue)
        try:
            return super().process_batch()
        except Exception:
            self.queue = deque(before)
            raise


def in_slices(model_fn, inputs, batch_size=32):
    outputs = []
    for first in range(0, len(inputs), batch_size):
        outputs += list(model_fn(np.stack(inputs[first : first + batch_size])))
    return outputs


def variants(base, **methods):
    """Classes by name, each with one method of its own."""
    return [type(name, (base,), {method: function}) for name, (method, function) in methods.items()]


def row(self, data, name):
    return {"id": name, "input": data, "timestamp": self.clock()}


def one_for_each_id(self, data, name):
    Queue.add_request(self, data, name)
    if len(self.queue) > self.max_batch_size:
        self.queue.popleft()


def difference(self):
    if not self.queue:
        return False
    waited_ms = (self.clock() - self.queue[0]["timestamp"]) * 1000
    return self.full() or waited_ms >= self.max_wait_ms


def forgets(self):
    now_s = Queue.should_process(self)
    self.queue.clear()
    return now_s


NewestFirst, Tuples, WallClock, Swapped, NoBrackets, OneForEachId = variants(
    Queue,
    NewestFirst=("add_request", lambda q, x, name: q.queue.appendleft(row(q, x, name))),
    Tuples=("add_request", lambda q, x, name: q.queue.append((name, x, q.clock()))),
    WallClock=(
        "add_request",
        lambda q, x, name: q.queue.append(row(q, x, name) | {"timestamp": time.time()}),
    ),
    Swapped=("add_request", lambda q, x, name: q.queue.append(row(q, name, x))),
    NoBrackets=("add_request", lambda q, x, name: q.queue.append(row(q, x, name) | {"timestamp": q.clock})),
    OneForEachId=("add_request", one_for_each_id),
)
NewestWaits, Seconds, MoreThanFull, OnlyWaits = variants(
    Queue,
    NewestWaits=("deadline_s", lambda q: q.queue[-1]["timestamp"] + q.max_wait_ms / 1000),
    Seconds=("deadline_s", lambda q: q.queue[0]["timestamp"] + q.max_wait_ms),
    MoreThanFull=("full", lambda q: len(q.queue) > q.max_batch_size),
    OnlyWaits=("full", lambda q: False),
)
Later, ClockItself, Difference, OnlyFull, FromZero, NothingForNo, Forgets, NobodyIsOldest = variants(
    Queue,
    Later=("should_process", lambda q: q.full() or (bool(q.queue) and q.clock() > q.deadline_s())),
    ClockItself=("should_process", lambda q: q.full() or (bool(q.queue) and q.clock >= q.deadline_s())),
    Difference=("should_process", difference),
    OnlyFull=("should_process", lambda q: q.full()),
    FromZero=("should_process", lambda q: q.full() or (bool(q.queue) and q.clock() >= q.max_wait_ms / 1000)),
    NothingForNo=("should_process", lambda q: Queue.should_process(q) or None),
    Forgets=("should_process", forgets),
    NobodyIsOldest=("should_process", lambda q: q.full() or q.clock() >= q.deadline_s()),
)

MISTAKES = {
    "02.1": [
        (NewestFirst, "add_request(2, 'Bob')", "The oldest request must be first"),
        (Tuples, "add_request(1, 'Ann')", "[['Ann', 1, 0.0]]"),
        (WallClock, "add_request(1, 'Ann')", "self.clock()"),
        (Swapped, "add_request(1, 'Ann')", "are swapped"),
        (NoBrackets, "add_request(1, 'Ann')", "call it with brackets, self.clock()"),
        (ClockItself, "should_process()", "called with brackets"),
        (OneForEachId, "max_batch_size=1", "2 should wait, not 1"),
        (Later, "should_process()", "at the deadline itself, the batch is ready"),
        (Difference, "at 0.11 s  should_process()", "is 9.999999999999995 in Python"),
        (NewestWaits, "at 0.01 s  should_process()", "of Ann, the oldest, is 0 + 10 / 1000 = 0.01 s"),
        (Seconds, "should_process()", "It gave False and should give True"),
        (MoreThanFull, "should_process()", "1 of at most 1 wait: the batch is full"),
        (OnlyFull, "max_wait_ms=0", "It gave False and should give True"),
        (OnlyWaits, "max_batch_size=1", "the batch is full"),
        (FromZero, "at 0.1 s  should_process()", "of Ann, the oldest, is 0.1 + 10 / 1000 = 0.11 s: not yet"),
        (NothingForNo, "should_process()", "It gave None and should give False. The queue is empty"),
        (Forgets, "should_process()", "1 should wait, not 0"),
        (NobodyIsOldest, "should_process()", "IndexError: deque index out of range"),
    ]
}


def all_of_it(self, most=None):
    batch = list(self.queue)[:most]
    self.queue.clear()
    return batch


def outputs(self, batch):
    return [answer["output"] for answer in Batcher.computed(self, batch)]


def crossed(self, batch):
    pairs = zip(batch, outputs(self, batch)[::-1], strict=True)
    return [{"id": one["id"], "output": output} for one, output in pairs]


def by_id(self, batch):
    found = {answer["id"]: answer["output"] for answer in Batcher.computed(self, batch)}
    return [{"id": name, "output": output} for name, output in found.items()]


def nothing_at_all(self):
    if batch := self.take():
        return self.computed(batch)


LastIn, ForgetsTheRest, TooMany, StaysInTheQueue = variants(
    Batcher,
    LastIn=("take", lambda b: [b.queue.pop() for _ in range(min(len(b.queue), b.max_batch_size))]),
    ForgetsTheRest=("take", lambda b: all_of_it(b, b.max_batch_size)),
    TooMany=("take", all_of_it),
    StaysInTheQueue=("take", lambda b: list(b.queue)[: b.max_batch_size]),
)
Crossed, OneByOne, Twice, NotStacked, ById, OutputsOnly = variants(
    Batcher,
    Crossed=("computed", crossed),
    OneByOne=("computed", lambda b, batch: [a for each in batch for a in Batcher.computed(b, [each])]),
    Twice=("computed", lambda b, batch: [Batcher.computed(b, batch) for _ in range(2)][1]),
    NotStacked=("computed", lambda b, batch: b.model_fn([request["input"] for request in batch])),
    ById=("computed", by_id),
    OutputsOnly=("computed", outputs),
)
EmptyToo, OnlyWhenFull, NothingAtAll = variants(
    Batcher,
    EmptyToo=("process_batch", lambda b: b.computed(b.take())),
    OnlyWhenFull=("process_batch", lambda b: Batcher.process_batch(b) if b.should_process() else []),
    NothingAtAll=("process_batch", nothing_at_all),
)

MISTAKES["02.2"] = [
    (LastIn, "add_request(2, 'Bob')", "once, with [2, 1]\n and should be called once, with [1, 2]"),
    (Crossed, "add_request(2, 'Bob')", "{'id': 'Ann', 'output': 20}"),
    (ForgetsTheRest, "max_batch_size=1", "1 should wait, not 0"),
    (TooMany, "max_batch_size=1", "once, with [1, 2]\n and should be called once, with [1]"),
    (StaysInTheQueue, "process_batch()", "0 should wait, not 1"),
    (OneByOne, "add_request(2, 'Bob')", "2 times, with [1], then [2]"),
    (Twice, "add_request(1, 'Ann')", "2 times, with [1], then [1]"),
    (NotStacked, "process_batch()", "stacked with np.stack, got a list"),
    (ById, "add_request(2, 'Ann')", "Each output goes back to its own id"),
    (OutputsOnly, "process_batch()", "It gave [10]\n and should give [{'id': 'Ann', 'output': 10}]"),
    (EmptyToo, "process_batch()", "need at least one array to stack"),
    (OnlyWhenFull, "add_request(1, 'Ann')\n  process_batch()", "already decided"),
    (NothingAtAll, "process_batch()", "It gave None\n and should give []"),
]


def forgets_the_last(model_fn, inputs, batch_size=32):
    return in_slices(model_fn, inputs[: len(inputs) // batch_size * batch_size], batch_size)


def one_by_one(model_fn, inputs, batch_size=32):
    return in_slices(model_fn, inputs, 1)


def all_at_once(model_fn, inputs, batch_size=32):
    return in_slices(model_fn, inputs, max(len(inputs), 1))


def takes_the_callers_list(model_fn, inputs, batch_size=32):
    outputs = []
    while len(inputs):
        outputs += list(model_fn(np.stack(inputs[:batch_size])))
        del inputs[:batch_size]
    return outputs


def backwards(model_fn, inputs, batch_size=32):
    return in_slices(model_fn, inputs, batch_size)[::-1]


def batches_of_outputs(model_fn, inputs, batch_size=32):
    firsts = range(0, len(inputs), batch_size)
    return [model_fn(np.stack(inputs[first : first + batch_size])) for first in firsts]


def yields(model_fn, inputs, batch_size=32):
    yield from in_slices(model_fn, inputs, batch_size)


def for_ever(model_fn, inputs, batch_size=32):
    outputs = []
    while len(outputs) < len(inputs):
        outputs += in_slices(model_fn, [], batch_size)
    return outputs


MISTAKES["02.3"] = [
    (forgets_the_last, "batch_inference(model, [1], batch_size=2)", "not at all"),
    (one_by_one, "batch_inference(model, [1, 2], batch_size=2)", "2 times, with [1], then [2]"),
    (all_at_once, "batch_inference(model, [1, 2], batch_size=1)", "once, with [1, 2]"),
    (takes_the_callers_list, "batch_inference(model, [1], batch_size=1)", "the caller's list is []"),
    (backwards, "batch_inference(model, [1, 2], batch_size=1)", "gave [20, 10] and should give [10, 20]"),
    (batches_of_outputs, "batch_inference(model, [1], batch_size=1)", "gave [[10]] and should give [10]"),
    (yields, "batch_inference(model, [], batch_size=1)", "an object of type generator"),
    (for_ever, "batch_inference(model, [1], batch_size=1)", "did not come to an end"),
]


def after_a_failure(base, failed):
    """`process_batch` of a base, with something else for an error of the model."""

    def process_batch(self):
        batch = list(self.queue)[: self.max_batch_size]
        try:
            return base.process_batch(self)
        except Exception as error:
            return failed(self, batch, error)

    return "process_batch", process_batch


def raising(put_back):
    def failed(self, batch, error):
        put_back(self, batch)
        raise error

    return after_a_failure(Batcher, failed)


def another(self, batch, error):
    raise ValueError("the batch failed") from None


def stamps_anew(self, batch):
    for request in batch:
        self.add_request(request["input"], request["id"])


Drops, PutsBackAtTheEnd, PutsBackTurnedRound, StampsAnew = variants(
    Batcher,
    Drops=raising(lambda b, batch: None),
    PutsBackAtTheEnd=raising(lambda b, batch: b.queue.extend(batch)),
    PutsBackTurnedRound=raising(lambda b, batch: b.queue.extendleft(batch)),
    StampsAnew=raising(stamps_anew),
)
Swallows, RaisesAnother, TriesAgain = variants(
    Safe,
    Swallows=after_a_failure(Safe, lambda b, batch, error: []),
    RaisesAnother=after_a_failure(Safe, another),
    TriesAgain=after_a_failure(Safe, lambda b, batch, error: Safe.process_batch(b)),
)

MISTAKES["02.4"] = [
    (Drops, "add_request(1, 'Ann')\n  process_batch(), and the model raises", "1 should wait, not 0"),
    (PutsBackAtTheEnd, "add_request(2, 'Bob')", "The oldest request must be first"),
    (PutsBackTurnedRound, "add_request(2, 'Bob')", "The oldest request must be first"),
    (Swallows, "process_batch(), and the model raises", "It gave []. The caller must get"),
    (RaisesAnother, "process_batch(), and the model raises", "ValueError: the batch failed"),
    (TriesAgain, "process_batch(), and the model raises", "2 times, with [1], then [1]"),
    (StampsAnew, "add_request(2, 'Bob')", "The oldest request must be first"),
]
WRONG = {
    name: [(lambda asked, answer=answer: answer, word) for answer, _, word in lines]
    for name, lines in MISTAKES.items()
}
