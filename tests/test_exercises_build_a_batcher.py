"""The exercises of lesson 02: what is right passes, and each usual mistake is told by its smallest case."""

import contextlib
import gc
import math
import sys
import sysconfig
import time
from collections import deque

import numpy as np
import pytest

import batchsim as bs
from batchsim.teaching import check
from batchsim.teaching.exercises import program


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


def told(capsys, exercise, answer):
    check(exercise, answer)
    return capsys.readouterr().out


RIGHT = {"02.1": Queue, "02.2": Batcher, "02.3": in_slices, "02.4": Safe}


@pytest.mark.parametrize("exercise", RIGHT)
def test_what_is_right_is_right_and_says_in_how_many_cases(capsys, exercise):
    said = told(capsys, exercise, RIGHT[exercise])
    assert said.startswith("Right: in ")
    assert "hidden cases" in said


@pytest.mark.parametrize("exercise", RIGHT)
def test_batchsims_own_code_is_right(capsys, exercise):
    own = bs.batch_inference if exercise == "02.3" else bs.InferenceBatcher
    assert told(capsys, exercise, own).startswith("Right: ")


# 02.1: a queue that knows when it is time.


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


NewestFirst, Tuples, WallClock, Swapped, OneForEachId = variants(
    Queue,
    NewestFirst=("add_request", lambda q, x, name: q.queue.appendleft(row(q, x, name))),
    Tuples=("add_request", lambda q, x, name: q.queue.append((name, x, q.clock()))),
    WallClock=(
        "add_request",
        lambda q, x, name: q.queue.append(row(q, x, name) | {"timestamp": time.time()}),
    ),
    Swapped=("add_request", lambda q, x, name: q.queue.append(row(q, name, x))),
    OneForEachId=("add_request", one_for_each_id),
)
NewestWaits, Seconds, MoreThanFull, OnlyWaits = variants(
    Queue,
    NewestWaits=("deadline_s", lambda q: q.queue[-1]["timestamp"] + q.max_wait_ms / 1000),
    Seconds=("deadline_s", lambda q: q.queue[0]["timestamp"] + q.max_wait_ms),
    MoreThanFull=("full", lambda q: len(q.queue) > q.max_batch_size),
    OnlyWaits=("full", lambda q: False),
)
Later, Difference, OnlyFull, FromZero, NothingForNo, Forgets, NobodyIsOldest = variants(
    Queue,
    Later=("should_process", lambda q: q.full() or (bool(q.queue) and q.clock() > q.deadline_s())),
    Difference=("should_process", difference),
    OnlyFull=("should_process", lambda q: q.full()),
    FromZero=("should_process", lambda q: q.full() or (bool(q.queue) and q.clock() >= q.max_wait_ms / 1000)),
    NothingForNo=("should_process", lambda q: Queue.should_process(q) or None),
    Forgets=("should_process", forgets),
    NobodyIsOldest=("should_process", lambda q: q.full() or q.clock() >= q.deadline_s()),
)

WRONG = {
    "02.1": [
        (NewestFirst, "add_request(2, 'Bob')", "The oldest request must be first"),
        (Tuples, "add_request(1, 'Ann')", "[['Ann', 1, 0.0]]"),
        (WallClock, "add_request(1, 'Ann')", "self.clock()"),
        (Swapped, "add_request(1, 'Ann')", "{'id': 1, 'input': 'Ann', 'timestamp': 0.0}"),
        (OneForEachId, "max_batch_size=1", "2 should wait, not 1"),
        (Later, "should_process()", "at the deadline itself, the batch is ready"),
        (Difference, "at 0.11 s  should_process()", "is 9.999999999999995 in Python"),
        (NewestWaits, "at 0.01 s  should_process()", "Ann's deadline is 0 + 10 / 1000 = 0.01 s"),
        (Seconds, "should_process()", "It gave False and should give True"),
        (MoreThanFull, "should_process()", "1 of at most 1 wait: the batch is full"),
        (OnlyFull, "max_wait_ms=0", "It gave False and should give True"),
        (OnlyWaits, "max_batch_size=1", "the batch is full"),
        (FromZero, "at 0.1 s  should_process()", "Ann's deadline is 0.1 + 10 / 1000 = 0.11 s: not yet"),
        (NothingForNo, "should_process()", "It gave None and should give False. The queue is empty"),
        (Forgets, "should_process()", "1 should wait, not 0"),
        (NobodyIsOldest, "should_process()", "IndexError: deque index out of range"),
    ]
}


# 02.2: process_batch.


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

WRONG["02.2"] = [
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
    (OnlyWhenFull, "add_request(1, 'Ann')\n  process_batch()", "not at all\n and should be called once"),
    (NothingAtAll, "process_batch()", "It gave None\n and should give []"),
]


# 02.3: batch_inference.


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


WRONG["02.3"] = [
    (forgets_the_last, "batch_inference(model, [1], batch_size=2)", "not at all"),
    (one_by_one, "batch_inference(model, [1, 2], batch_size=2)", "2 times, with [1], then [2]"),
    (all_at_once, "batch_inference(model, [1, 2], batch_size=1)", "once, with [1, 2]"),
    (takes_the_callers_list, "batch_inference(model, [1], batch_size=1)", "the caller's list is []"),
    (backwards, "batch_inference(model, [1, 2], batch_size=1)", "gave [20, 10] and should give [10, 20]"),
    (batches_of_outputs, "batch_inference(model, [1], batch_size=1)", "gave [[10]] and should give [10]"),
    (yields, "batch_inference(model, [], batch_size=1)", "an object of type generator"),
    (for_ever, "batch_inference(model, [1], batch_size=1)", "did not come to an end"),
]


# 02.4: a model that fails.


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

WRONG["02.4"] = [
    (Drops, "add_request(1, 'Ann')\n  process_batch(), and the model raises", "1 should wait, not 0"),
    (PutsBackAtTheEnd, "add_request(2, 'Bob')", "The oldest request must be first"),
    (PutsBackTurnedRound, "add_request(2, 'Bob')", "The oldest request must be first"),
    (Swallows, "process_batch(), and the model raises", "It gave []. The caller must get"),
    (RaisesAnother, "process_batch(), and the model raises", "ValueError: the batch failed"),
    (TriesAgain, "process_batch(), and the model raises", "2 times, with [1], then [1]"),
    (StampsAnew, "add_request(2, 'Bob')", "The oldest request must be first"),
]


@pytest.mark.parametrize(
    ("exercise", "answer", "case", "hint"),
    [(exercise, *row) for exercise, rows in WRONG.items() for row in rows],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_a_usual_mistake_is_told_by_its_smallest_case(capsys, exercise, answer, case, hint):
    said = told(capsys, exercise, answer)
    assert said.startswith("Not yet: take ")
    assert case in said
    assert hint in said
    assert len(said.splitlines()) <= 9


@pytest.mark.parametrize("exercise", WRONG)
def test_each_exercise_is_tried_with_five_mistakes_at_least(exercise):
    assert len(WRONG[exercise]) >= 5


def test_a_case_that_is_told_has_no_step_too_many(capsys):
    said = told(capsys, "02.1", NewestWaits)
    assert [line.split("  ")[-1] for line in said.splitlines()[1:4]] == [
        "add_request(1, 'Ann')",
        "add_request(2, 'Bob')",
        "should_process()",
    ]


# Code that is unfinished, or goes wrong altogether.


class Open(Queue):
    def add_request(self, input_data, request_id):
        """Put a request at the end of the queue."""
        ...

    def should_process(self): ...


class HalfOpen(Queue):
    def should_process(self):
        """Return whether it is time."""


class OpenBatcher(Open):
    def process_batch(self): ...


def open_function(model_fn, inputs, batch_size=32):
    """Compute."""
    ...


@pytest.mark.parametrize(
    ("exercise", "answer"),
    [("02.1", Open), ("02.2", OpenBatcher), ("02.3", open_function), ("02.4", OpenBatcher)],
)
def test_what_the_lesson_left_open_is_not_answered_yet(capsys, exercise, answer):
    assert told(capsys, exercise, answer).startswith("Not answered yet: ")


def test_of_a_class_half_written_the_half_is_judged(capsys):
    said = told(capsys, "02.1", HalfOpen)
    assert "should_process is still empty. The code that you wrote is right in " in said

    class Wrong(HalfOpen, NewestFirst):
        pass

    assert "The oldest request must be first" in told(capsys, "02.1", Wrong)


def test_a_method_that_gives_an_answer_at_once_is_not_empty():
    assert not program.blank(lambda: True)
    assert not program.blank(Queue.full)
    assert not program.blank(len)
    assert program.blank(lambda: None)


def test_an_exercise_comes_after_the_one_that_it_builds_on(capsys):
    class Early(Batcher, NewestFirst):
        pass

    class Unwritten(OpenBatcher):
        def process_batch(self):
            return []

    assert "exercise 02.1 comes first. There, take a batcher" in told(capsys, "02.2", Early)
    assert "exercise 02.1 comes first. There, add_request is still empty" in told(capsys, "02.2", Unwritten)
    assert "exercise 02.2 comes first. There, take a batcher" in told(capsys, "02.4", OneByOne)


@pytest.mark.parametrize(
    ("exercise", "answer", "hint"),
    [
        ("02.1", Queue(None), "got an object of type Queue: write Queue without brackets"),
        ("02.1", 3, "must be the class itself, got an object of type int"),
        ("02.1", in_slices, "got an object of type function"),
        ("02.2", Queue, "Queue has no method process_batch"),
        ("02.3", Batcher, "must be the function itself, without brackets, got a class"),
        ("02.3", [1], "got an object of type list"),
    ],
)
def test_another_type_is_told_what_the_exercise_asks_for(capsys, exercise, answer, hint):
    assert hint in told(capsys, exercise, answer)


def test_an_error_is_told_with_its_line(capsys):
    class Broken(Queue):
        def add_request(self, input_data, request_id):
            self.queue.push(request_id)

    said = told(capsys, "02.1", Broken)
    assert "add_request(1, 'Ann')\nIt raised AttributeError: " in said
    line = Broken.add_request.__code__.co_firstlineno + 1
    assert f"in line {line} of your cell: self.queue.push(request_id)\n" in said


def test_an_error_in_init_is_told_too(capsys):
    class Nameless(Queue):
        def __init__(self, model_fn):
            self.model_fn = model_fn

    assert "Making it raised TypeError: " in told(capsys, "02.1", Nameless)


@pytest.mark.parametrize("catches", [False, True])
def test_a_loop_without_end_is_stopped_and_told_with_its_line(capsys, catches):
    class Waits(Queue):
        def should_process(self):
            while self.clock() < math.inf:
                with contextlib.suppress(Exception):
                    self.full()

    class Spins(Queue):
        def should_process(self):
            while True:
                pass

    before = sys.gettrace()
    said = told(capsys, "02.1", Waits if catches else Spins)
    assert "should_process()\nIt did not come to an end\n  in line " in said
    assert sys.gettrace() is before


def test_code_is_stopped_although_a_library_is_called_back_at_any_line(capsys, monkeypatch):
    where, begun = f"{sysconfig.get_path('stdlib')}/finalizers.py", {}
    exec(compile("def called_back(phase, info):\n    assert phase\n    assert info\n", where, "exec"), begun)

    class Spins(Queue):
        def should_process(self):
            for _ in range(500):
                gc.collect(0)

    gc.callbacks.append(begun["called_back"])
    monkeypatch.setattr(program, "LINES", 300)
    try:
        assert "It did not come to an end" in told(capsys, "02.1", Spins)
    finally:
        gc.callbacks.remove(begun["called_back"])


def test_a_machine_that_stood_still_for_a_while_is_not_the_codes_fault(capsys, monkeypatch):
    slept_s, now_s = [], time.monotonic
    monkeypatch.setattr(program.time, "monotonic", lambda: now_s() + sum(slept_s))

    class Stalls(Queue):
        def should_process(self):
            if not slept_s:
                slept_s.append(2 * program.SECONDS)
            return super().should_process()

    assert told(capsys, "02.1", Stalls).startswith("Right")


@pytest.mark.parametrize(("share", "verdict"), [(0.01, "Does your code sleep?"), (0.03, "Right")])
def test_code_that_sleeps_is_stopped_and_told_from_a_busy_machine(capsys, monkeypatch, share, verdict):
    monkeypatch.setattr(program, "ALL_CASES_S", 0.0)
    monkeypatch.setattr(program.time, "thread_time", lambda: share * time.monotonic())
    assert verdict in told(capsys, "02.1", Queue)


def test_a_thread_that_sleeps_computes_little(capsys, monkeypatch):
    class Sleeps(Queue):
        def should_process(self):
            time.sleep(0.2)
            return super().should_process()

    monkeypatch.setattr(program, "ALL_CASES_S", 1.0)
    assert "Does your code sleep?" in told(capsys, "02.1", Sleeps)


def test_what_the_code_prints_is_shown_with_the_case_that_goes_wrong(capsys):
    class Talks(Queue):
        def add_request(self, input_data, request_id):
            print("got", request_id)
            super().add_request(input_data, request_id)

    class TalksWrongly(Talks, Later):
        pass

    said = told(capsys, "02.1", TalksWrongly)
    assert said.endswith("Meanwhile your code printed:\n  got Ann\n")
    assert told(capsys, "02.1", Talks).endswith("The output of your code is not shown.\n")


def test_of_much_that_is_printed_some_lines_are_shown(capsys):
    class Shouts(Later):
        def should_process(self):
            print("\n".join(map(str, range(50))))
            return super().should_process()

    assert told(capsys, "02.1", Shouts).endswith("  3\n  4\n  ... and 45 lines more\n")
