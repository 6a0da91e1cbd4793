"""The exercises of lesson 02: what is right passes, and each usual mistake is told by its smallest case."""

import contextlib
import gc
import math
import sys
import sysconfig
import time

import pytest
from wrong_answers.build_a_batcher import (
    MISTAKES,
    Batcher,
    Later,
    NewestFirst,
    NewestWaits,
    OneByOne,
    Queue,
    Safe,
    in_slices,
)

import batchsim as bs
from batchsim.teaching import check
from batchsim.teaching.exercises import program


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


# 02.4: a model that fails.


@pytest.mark.parametrize(
    ("exercise", "answer", "case", "hint"),
    [(exercise, *row) for exercise, rows in MISTAKES.items() for row in rows],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_a_usual_mistake_is_told_by_its_smallest_case(capsys, exercise, answer, case, hint):
    said = told(capsys, exercise, answer)
    assert said.startswith("Not yet: take ")
    assert case in said
    assert hint in said
    assert len(said.splitlines()) <= 9


@pytest.mark.parametrize("exercise", MISTAKES)
def test_each_exercise_is_tried_with_five_mistakes_at_least(exercise):
    assert len(MISTAKES[exercise]) >= 5


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
