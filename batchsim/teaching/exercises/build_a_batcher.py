"""The exercises of notebooks/02-build-a-batcher.ipynb: the learner's batcher, on hidden cases."""

import math
from collections.abc import Iterable, Iterator
from itertools import product
from typing import Any

from batchsim.teaching.exercises.batcher_cases import Call, scripts
from batchsim.teaching.exercises.exercise import Exercise
from batchsim.teaching.exercises.program import Case, Function, Program

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
            kind = type(answer).__name__
            hint = f": write {kind} without brackets" if hasattr(answer, "queue") else ""
            raise TypeError(f"the answer must be the class itself, got an object of type {kind}{hint}")
        return {name: getattr(answer, name, None) for name in self.methods}

    def cases(self, written: Iterable[str]) -> Iterator[Case]:
        open_ = {*self.methods} - {*written}
        steps = [step for step in self.steps if CALLS.get(step) not in open_]
        for script in scripts(steps, self.length, self.settings):
            if not self.must or self.must in script.steps:
                yield script


class Ready(Batcher):
    """A queue that keeps requests in order, and knows when it is time."""

    methods = "add_request", "should_process"
    steps = "add", "ready", "half", "deadline"
    length = 5
    parts = (
        "a queue in order of arrival, a test for a full batch, and the oldest request's deadline as a time"
    )
    look = "Step 1: when is a batch ready?"
    settings = (
        {},
        {"max_batch_size": 1},
        {"max_batch_size": 3},
        {"max_wait_ms": 0},
        {"max_wait_ms": math.inf},
        {"start_s": 0.1},  # 0.11 - 0.1 is a little less than 0.01
    )

    def because(self, count: int) -> str:
        same = "your queue held the same requests as batchsim's, and was ready at the same moments"
        return f"in {count:,} hidden cases {same}."


class Process(Batcher):
    """One call of the model for the oldest requests, and each output back to its own id."""

    after, after_name = Ready(), "02.1"
    methods = ("process_batch",)
    steps = "add", "process"
    parts = "the oldest requests, at most max_batch_size, one call of the model, and each output with its id"
    look = "Step 2: compute a batch"
    length = 6
    settings = tuple(
        {"max_batch_size": size, **kind}
        for kind in ({}, {"vectors": True}, {"one_id": True})
        for size in (2, 1, 3)
    )

    def because(self, count: int) -> str:
        return f"in {count:,} hidden cases each request got its own answer, with one model call per batch."


class KeepsRequests(Batcher):
    """A batch that the model could not compute goes back to where it stood."""

    after, after_name = Process(), "02.2"
    methods = ("process_batch",)
    steps = "add", "process", "fail"
    parts = "an error that reaches the caller, and a queue with the same requests as before the call"
    look = "When the model fails: what do you expect?"
    length = 6
    must = "fail"
    settings = tuple({"max_batch_size": size} for size in (2, 1, 3))

    def because(self, count: int) -> str:
        return f"in {count:,} hidden cases the model failed at least once, and no request was lost."


class Whole(Function):
    """A function that computes a whole list in batches."""

    parts = (
        "slices of batch_size inputs, one call of the model per slice, and the outputs in the inputs' order"
    )
    look = "Step 2: compute a batch"
    signature = "batch_inference(model_fn, inputs, batch_size)"

    def cases(self, written: Iterable[str]) -> Iterator[Case]:
        if written:
            for inputs, size, vectors in product(range(8), range(1, 5), (False, True)):
                if inputs or not vectors:
                    yield Call(inputs, size, vectors)

    def because(self, count: int) -> str:
        return f"in {count:,} hidden cases each input got its output, in order, in as few calls as possible."


EXERCISES: dict[str, Exercise] = {
    "02.1": Ready(),
    "02.2": Process(),
    "02.3": Whole(),
    "02.4": KeepsRequests(),
}
