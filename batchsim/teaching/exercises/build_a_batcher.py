"""The exercises of notebooks/02-build-a-batcher.ipynb: the learner's batcher, on hidden cases."""

import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from batchsim.batcher import InferenceBatcher, batch_inference
from batchsim.teaching.exercises.program import Attempt, Case, Function, Program, attempt, fault, plain, shown

NAMES = ["Ann", "Bob", "Cem", "Dee", "Eve", "Fay", "Gil"]
MOVES = ("half", "deadline")  # of the clock


class Model:
    """A network that multiplies by 10, records its calls, and may fail."""

    def __init__(self) -> None:
        self.calls: list[Any] = []
        self.broken: Exception | None = None

    def __call__(self, batch: Any) -> Any:
        if not isinstance(batch, np.ndarray) or batch.ndim == 0:
            given = "a single item" if not isinstance(batch, (list, tuple)) else f"a {type(batch).__name__}"
            raise TypeError(f"model_fn takes one array, the inputs stacked with np.stack, got {given}")
        self.calls.append(batch.tolist())
        if self.broken is not None:
            raise self.broken
        return batch * 10


class Script(NamedTuple):
    """A case: the steps that are taken one after the other with a batcher of certain settings."""

    steps: tuple[str, ...]
    max_batch_size: int = 2
    max_wait_ms: float = 10
    start_s: float = 0.0
    vectors: bool = False  # is an input an array of two numbers?
    one_id: bool = False

    def missed(self, answer: Any) -> str:
        return Play(self, answer).missed()

    @property
    def possible(self) -> bool:
        """Return whether the steps make sense, and test something that no shorter script does."""
        first, last, pairs = self.steps[0], self.steps[-1], zip(self.steps, self.steps[1:], strict=False)
        timed = 0 < self.max_wait_ms < math.inf
        return (
            last not in MOVES
            and first not in MOVES
            and (first == "add" or len(self.steps) == 1)
            and not any(one in MOVES and other in MOVES for one, other in pairs)
            and (timed or "deadline" not in self.steps)
        )


class Play:
    """A script that runs with the learner's batcher and with batchsim's own."""

    def __init__(self, script: Script, answer: Any) -> None:
        self.script, self.answer, self.now_s, self.added = script, answer, script.start_s, 0
        self.models = Model(), Model()
        self.told: list[str] = []
        self.expected = self.built(InferenceBatcher, self.models[1])
        self.own: Any = None

    def built(self, batcher: Any, model: Model) -> Any:
        return batcher(model, self.script.max_batch_size, self.script.max_wait_ms, clock=lambda: self.now_s)

    def missed(self) -> str:
        """Take the steps until one fails; return the steps and the problem, or ""."""
        made = attempt(self.built, self.answer, self.models[0])
        if made.error is not None:
            return self.tell(f"Making it {fault(made.error, self.answer)}")
        self.own = made.value
        for step in self.script.steps:
            if step == "half":
                wait_ms = self.script.max_wait_ms
                self.now_s += (wait_ms / 2 if 0 < wait_ms < math.inf else 10) / 1000
            elif step == "deadline":
                self.now_s = max(self.now_s, self.deadline_s())
            elif problem := getattr(self, step)():
                return self.tell(problem)
        return ""

    def deadline_s(self) -> float:
        """Return the oldest request's deadline, at least the plain sum, which may be a fraction later."""
        if not self.expected.queue:
            return 0.0
        plain_s: float = self.expected.queue[0]["timestamp"] + self.script.max_wait_ms / 1000
        return max(plain_s, self.expected.next_deadline())

    def tell(self, problem: str) -> str:
        script = self.script
        settings = f"max_batch_size={script.max_batch_size} and max_wait_ms={script.max_wait_ms:g}"
        return "\n".join([f"take a batcher with {settings}.", *self.told, problem])

    def say(self, call: str) -> None:
        timed = any(step in MOVES for step in self.script.steps) or self.script.start_s > 0
        self.told.append(f"  at {self.now_s:g} s  {call}" if timed else f"  {call}")

    # The steps. Each returns the problem, or "".

    def add(self) -> str:
        name = NAMES[0 if self.script.one_id else self.added]
        self.added += 1
        item: Any = np.array([float(self.added), -1.0]) if self.script.vectors else self.added
        self.say(f"add_request({plain(item)}, {name!r})")
        self.expected.add_request(item, name)
        made = attempt(self.own.add_request, item, name)
        return self.raised(made) or self.queue()

    def ready(self) -> str:
        self.say("should_process()")
        made, expected = attempt(self.own.should_process), self.expected.should_process()
        if problem := self.raised(made):
            return problem
        if plain(made.value) == expected:
            return self.queue()
        return f"It gave {shown(made.value)} and should give {expected}. {self.why(expected)}"

    def why(self, expected: bool) -> str:
        waiting, size = len(self.expected.queue), self.script.max_batch_size
        if not waiting:
            return "The queue is empty, so there is nothing to process."
        if waiting >= size:
            return f"{waiting} of at most {size} wait: the batch is full."
        oldest, deadline_s = self.expected.queue[0], self.expected.next_deadline()
        if deadline_s is None:
            return "It is not full, and an infinite wait is never over."
        came_s, wait_ms = oldest["timestamp"], self.script.max_wait_ms
        summed = f"{came_s:g} + {wait_ms:g} / 1000 = {deadline_s:g} s"
        over = f"deadline of {oldest['id']}, the oldest, is {summed}"
        if not expected:
            return f"It is not full, and the {over}: not yet."
        rounded_ms = (self.now_s - came_s) * 1000
        if rounded_ms >= wait_ms:
            return f"The {over}, and it is {self.now_s:g} s: at the deadline itself, the batch is ready."
        rounding = f"({self.now_s:g} - {came_s:g}) * 1000 is {rounded_ms!r} in Python"
        return (
            f"The {over}, and it is {self.now_s:g} s.\nBut {rounding}: compare the clock with the deadline."
        )

    def process(self) -> str:
        return self.processed("process_batch()")

    def fail(self) -> str:
        for model in self.models:
            model.broken = RuntimeError("out of memory")
        problem = self.processed("process_batch(), and the model raises RuntimeError")
        for model in self.models:
            model.broken = None
        return problem

    def processed(self, call: str) -> str:
        for model in self.models:
            model.calls.clear()
        self.say(call)
        mine, model = attempt(self.own.process_batch), self.models[0]
        theirs = attempt(self.expected.process_batch)
        if theirs.error is None and (problem := self.raised(mine)):
            return problem
        calls, expected = model.calls, self.models[1].calls
        if calls != expected:
            names = getattr(getattr(self.answer.process_batch, "__code__", None), "co_names", ())
            asked = not calls and "should_process" in names
            why = "\nDo not ask should_process() here: the caller has already decided." if asked else ""
            return f"The model was called {_with(calls)}\n and should be called {_with(expected)}.{why}"
        if theirs.error is not None and mine.error is not model.broken:
            came = fault(mine.error, self.answer) if mine.error is not None else f"gave {shown(mine.value)}"
            return f"It {came}. The caller must get the model's own error, RuntimeError."
        if theirs.error is None and plain(mine.value) != plain(theirs.value):
            rule = "Each output goes back to its own id, the oldest first."
            return f"It gave {shown(mine.value)}\n and should give {plain(theirs.value)!r}.\n{rule}"
        return self.queue()

    # The visible state after each step.

    def raised(self, made: Attempt) -> str:
        return "" if made.error is None else f"It {fault(made.error, self.answer)}"

    def queue(self) -> str:
        """Return the problem with the learner's queue, or ""."""
        made, expected = attempt(getattr, self.own, "queue", None), plain(self.expected.queue)
        if problem := self.raised(made):
            return problem
        queue = plain(made.value)
        if queue == expected:
            return ""
        told = f"Then the queue is {shown(queue)}\n       and should be {expected!r}."
        if not isinstance(queue, list):
            return f"{told}\nIt is a deque, self.queue, made in __init__."
        if sorted(map(shown, queue)) == sorted(map(shown, expected)):
            return f"{told}\nThe oldest request must be first."
        if len(queue) != len(expected):
            return f"{told}\n{len(expected)} should wait, not {len(queue)}."
        if [_swapped(row) for row in queue] == expected:
            return f'{told}\n"id" and "input" are swapped: the arguments are (input_data, request_id).'
        if any(callable(row.get("timestamp")) for row in made.value if isinstance(row, dict)):
            return f"{told}\nThe clock is a function: call it with brackets, self.clock()."
        stamps = [row.get("timestamp") if isinstance(row, dict) else None for row in queue]
        if any(isinstance(stamp, float) and abs(stamp - self.now_s) > 1 for stamp in stamps):
            return f"{told}\nRead the time from self.clock() only."
        return told


def _swapped(row: Any) -> Any:
    both = isinstance(row, dict) and {"id", "input"} <= {*row}
    return row | {"id": row["input"], "input": row["id"]} if both else row


def _with(calls: list[Any]) -> str:
    if not calls:
        return "not at all"
    times = "once" if len(calls) == 1 else f"{len(calls)} times"
    return f"{times}, with {', then '.join(map(shown, calls))}"


def scripts(alphabet: Iterable[str], length: int, settings: Sequence[dict[str, Any]]) -> Iterator[Script]:
    """Yield all possible scripts, the shortest first."""
    for steps in range(1, length + 1):
        for setting, chosen in product(settings, product(tuple(alphabet), repeat=steps)):
            if (script := Script(chosen, **setting)).possible:
                yield script


class Call(NamedTuple):
    """A case: a list of inputs for `batch_inference`."""

    inputs: int
    batch_size: int
    vectors: bool

    def missed(self, answer: Any) -> str:
        numbers = [index + 1 for index in range(self.inputs)]
        inputs: Any = np.array([[number, -1.0] for number in numbers]) if self.vectors else numbers
        given, mine, theirs = plain(inputs), Model(), Model()
        told = f"take batch_inference(model, {given}, batch_size={self.batch_size}).\n"
        expected = plain(batch_inference(theirs, list(inputs), self.batch_size))
        made = attempt(answer, mine, inputs, self.batch_size)
        if made.error is not None:
            return f"{told}It {fault(made.error, answer)}"
        if plain(inputs) != given:
            return f"{told}Afterwards the caller's list is {shown(inputs)}: your function must not change it."
        if mine.calls != theirs.calls:
            should = f" and should be called {_with(theirs.calls)}."
            return f"{told}The model was called {_with(mine.calls)}\n{should}"
        if plain(made.value) != expected:
            return f"{told}It gave {shown(made.value)} and should give {expected!r}: one output per input."
        return ""


# The method that each step of a script calls.
CALLS = {"add": "add_request", "ready": "should_process", "process": "process_batch", "fail": "process_batch"}


class Batcher(Program):
    """A class with certain methods, compared with batchsim's own."""

    methods: tuple[str, ...]
    steps: tuple[str, ...]
    length: int  # of the longest script, in steps
    settings: tuple[dict[str, Any], ...]
    must = ""  # a step that every script has

    @property
    def asks(self) -> str:
        return f"a class with the method{'s' * (len(self.methods) > 1)} {' and '.join(self.methods)}"

    def named(self, answer: Any) -> dict[str, Any]:
        if not isinstance(answer, type):
            name = type(answer).__name__
            hint = f": write {name} without brackets" if hasattr(answer, "queue") else ""
            raise TypeError(f"the answer must be the class itself, got an object of type {name}{hint}")
        return {name: getattr(answer, name, None) for name in self.methods}

    def cases(self, written: Iterable[str]) -> Iterator[Case]:
        open_ = {*self.methods} - {*written}
        steps = [step for step in self.steps if CALLS.get(step) not in open_]
        for script in scripts(steps, self.length, self.settings):
            if not self.must or self.must in script.steps:
                yield script


class Ready(Batcher, name="02.1"):
    """A queue that keeps requests in order, and knows when it is time."""

    methods = "add_request", "should_process"
    steps = "add", "ready", "half", "deadline"
    length = 5
    parts = "a queue in order of arrival, a test for a full batch, and the oldest request's deadline"
    look = "Step 1: when is a batch ready?"
    done = "your queue held the same requests as batchsim's, and was ready at the same moments"
    settings = (
        {},
        {"max_batch_size": 1},
        {"max_batch_size": 3},
        {"max_wait_ms": 0},
        {"max_wait_ms": math.inf},
        {"start_s": 0.1},  # 0.11 - 0.1 is a little less than 0.01
    )


class Process(Batcher, name="02.2"):
    """One call of the model for the oldest requests, and each output back to its own id."""

    after = Ready
    methods = ("process_batch",)
    steps = "add", "process"
    parts = "the oldest requests, at most max_batch_size, one call of the model, and each output with its id"
    look = "Step 2: compute a batch"
    done = "each request got its own answer, with one model call per batch"
    length = 6
    settings = tuple(
        {"max_batch_size": size, **more}
        for more in ({}, {"vectors": True}, {"one_id": True})
        for size in (2, 1, 3)
    )


class KeepsRequests(Batcher, name="02.4"):
    """A batch that the model could not compute goes back to where it stood."""

    after = Process
    methods = ("process_batch",)
    steps = "add", "process", "fail"
    parts = "an error that reaches the caller, and a queue with the same requests as before the call"
    look = "When the model fails: what do you expect?"
    done = "the model failed at least once, and no request was lost"
    length = 6
    must = "fail"
    settings = tuple({"max_batch_size": size} for size in (2, 1, 3))


class Whole(Function, name="02.3"):
    """A function that computes a whole list in batches."""

    parts = "slices of batch_size inputs, one call of the model for each, and the outputs in order"
    look = "Step 2: compute a batch"
    done = "each input got its output, in order, in as few calls as possible"
    signature = "batch_inference(model_fn, inputs, batch_size)"

    def cases(self, written: Iterable[str]) -> Iterator[Case]:
        if written:
            for inputs, size, vectors in product(range(8), range(1, 5), (False, True)):
                if inputs or not vectors:
                    yield Call(inputs, size, vectors)
