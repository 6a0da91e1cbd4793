import itertools
import math
import threading
import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from refusals import refusals

from batchsim import InferenceBatcher, batch_inference


class Clock:
    """A clock that is set by hand."""

    def __init__(self, now=0.0):
        self.now = now

    def __call__(self):
        return self.now


def double(batch):
    return batch * 2


def batcher_of(items, model_fn=double, size=4, wait_ms=50.0, clock=None):
    batcher = InferenceBatcher(model_fn, size, wait_ms, clock=clock or Clock())
    for item in items:
        batcher.add_request(item, f"id{item}")
    return batcher


def ids(batcher):
    return [request["id"] for request in batcher.queue]


# When a batch is ready.


def test_a_full_queue_is_ready_and_one_less_is_not():
    batcher = batcher_of([1, 2, 3])
    assert not batcher.should_process()
    batcher.add_request(4, "id4")
    assert batcher.should_process()
    batcher.add_request(5, "id5")
    assert batcher.should_process()


def test_an_empty_queue_is_never_ready():
    batcher = batcher_of([], wait_ms=0)
    assert not batcher.should_process()
    assert batcher.next_deadline() is None


def test_the_oldest_requests_wait_makes_a_batch_ready():
    clock = Clock(10.0)
    batcher = batcher_of([1], wait_ms=500, clock=clock)
    clock.now = 10.25
    batcher.add_request(2, "two")
    assert batcher.next_deadline() == 10.5
    assert not batcher.should_process()
    clock.now = 10.5
    assert batcher.should_process()


def test_after_a_batch_the_deadline_is_the_next_oldests():
    clock = Clock(0.0)
    batcher = batcher_of([1, 2], size=2, wait_ms=500, clock=clock)
    clock.now = 0.25
    batcher.add_request(3, "three")
    batcher.process_batch()
    assert batcher.next_deadline() == 0.75
    batcher.process_batch()
    assert batcher.next_deadline() is None


def test_without_a_wait_a_lone_request_is_ready_at_once():
    assert batcher_of([1], wait_ms=0).should_process()


def test_an_infinite_wait_is_for_full_batches_only():
    clock = Clock(0.0)
    batcher = batcher_of([1, 2, 3], wait_ms=math.inf, clock=clock)
    clock.now = 1e18
    assert batcher.next_deadline() is None
    assert not batcher.should_process()
    batcher.add_request(4, "id4")
    assert batcher.should_process()


@given(
    stamp=st.floats(-1e9, 1e9) | st.floats(0, 1e3),
    wait_ms=st.floats(0, 1e6) | st.integers(0, 10_000) | st.floats(0, 10).map(lambda x: round(x, 1)),
)
def test_ready_exactly_at_the_deadline_and_not_one_float_before(stamp, wait_ms):
    clock = Clock(stamp)
    batcher = batcher_of([1], wait_ms=wait_ms, clock=clock)
    deadline = batcher.next_deadline()
    due = stamp + wait_ms / 1000
    # Rounded to whole nanoseconds where the clock counts these.
    assert deadline == due or (abs(deadline - due) < 1.5e-9 and round(deadline, 9) == deadline)
    for clock.now in (deadline, due):
        assert batcher.should_process()
    clock.now = float(np.nextafter(min(deadline, due), -math.inf))
    assert not batcher.should_process()


def test_the_default_clock_is_the_monotonic_one():
    batcher = InferenceBatcher(double, 4, 50.0)
    before = time.monotonic()
    batcher.add_request(1, 1)
    assert before <= batcher.queue[0]["timestamp"] <= time.monotonic()


# What a batch is.


def test_the_defaults_are_the_textbooks():
    batcher = InferenceBatcher(double)
    assert (batcher.max_batch_size, batcher.max_wait_ms) == (32, 50.0)


def test_a_request_in_the_queue_shows_its_id_input_and_timestamp():
    batcher = InferenceBatcher(double, clock=Clock(3.5))
    batcher.add_request([1, 2], "ann")
    (request,) = batcher.queue
    assert request.keys() == {"id", "input", "timestamp"}
    assert (request["id"], request["input"].tolist(), request["timestamp"]) == ("ann", [1, 2], 3.5)


def test_an_empty_queue_processes_to_nothing_without_the_model():
    def never(batch):
        raise AssertionError

    assert batcher_of([], never).process_batch() == []


@given(items=st.lists(st.integers(-99, 99), max_size=30), size=st.integers(1, 9))
def test_every_output_goes_to_its_own_id_oldest_first_in_batches_no_larger_than_allowed(items, size):
    sizes = []

    def model(batch):
        sizes.append(len(batch))
        return batch * 2

    batcher = InferenceBatcher(model, size, 50.0, clock=Clock())
    for position, item in enumerate(items):
        batcher.add_request(item, (position, item))
    answers = []
    while batcher.queue:
        answers += batcher.process_batch()
    assert [answer["id"] for answer in answers] == list(enumerate(items))
    assert [answer["output"] for answer in answers] == [2 * item for item in items]
    whole, rest = divmod(len(items), size)
    assert sizes == [size] * whole + [rest] * (rest > 0)


def test_a_batch_that_is_not_ready_may_be_processed_all_the_same():
    assert batcher_of([1]).process_batch() == [{"id": "id1", "output": 2}]


def test_the_model_gets_one_stacked_array():
    shapes = []

    def model(batch):
        shapes.append((type(batch), batch.shape))
        return batch

    batcher = InferenceBatcher(model, 3)
    for _ in range(3):
        batcher.add_request(np.zeros((4, 5)), "x")
    batcher.process_batch()
    assert shapes == [(np.ndarray, (3, 4, 5))]


def test_ids_may_repeat_and_be_anything():
    batcher = InferenceBatcher(double, 4)
    odd = ["same", "same", None, [1]]
    for position, request_id in enumerate(odd):
        batcher.add_request(position, request_id)
    assert batcher.process_batch() == [{"id": i, "output": 2 * p} for p, i in enumerate(odd)]


@pytest.mark.parametrize("convert", [list, tuple, np.asarray])
def test_a_model_may_return_a_list_a_tuple_or_an_array(convert):
    batcher = batcher_of([1, 2, 3], lambda batch: convert(batch + 1))
    assert [answer["output"] for answer in batcher.process_batch()] == [2, 3, 4]


def test_outputs_may_differ_in_kind_and_shape():
    batcher = batcher_of([1, 2], lambda batch: ["a", {"b": np.zeros(3)}])
    first, second = batcher.process_batch()
    assert first == {"id": "id1", "output": "a"}
    assert second["output"]["b"].shape == (3,)


def test_a_batch_that_was_taken_runs_once_and_does_not_go_back():
    batcher = InferenceBatcher(lambda batch: batch * 10, max_batch_size=2)
    for number in range(3):
        batcher.add_request(number, number)
    batch = batcher.take_batch()
    assert [answer["output"] for answer in batcher.run_batch(batch)] == [0, 10]
    batcher.model_fn = lambda batch: batch[1:]
    with pytest.raises(ValueError, match="one output per input, 2, got 1"):
        batcher.run_batch(batch)
    assert [request["id"] for request in batcher.queue] == [2]


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_batches_that_fail_in_any_order_go_back_in_order(order):
    batcher = batcher_of(range(8), size=2, clock=itertools.count().__next__)
    oldest, taken, waiting = (
        batcher.next_deadline(),
        [batcher.take_batch() for _ in range(3)],
        [*batcher.queue],
    )
    for number in order:
        batcher.take_batch = lambda number=number: taken[number]
        batcher.model_fn = lambda batch: 1 / 0
        with pytest.raises(ZeroDivisionError):
            batcher.process_batch()
    assert [*batcher.queue] == [*itertools.chain(*taken), *waiting]
    assert batcher.next_deadline() == oldest


@pytest.mark.parametrize("whole", [2**53 + 1, -(2**53) - 1, 2**63 - 1, 2**64 - 1])
def test_whole_numbers_beside_floats_stay_exact_or_are_refused(whole):
    batcher = InferenceBatcher(lambda batch: batch)
    for item in (0.5, 2**53, whole):
        batcher.add_request(item, item)
    with pytest.raises(ValueError, match="inputs must be exact as float64"):
        batcher.process_batch()
    batcher.queue.pop()
    assert [answer["output"] for answer in batcher.process_batch()] == [0.5, 2**53]


def test_take_batch_drops_the_oldest():
    batcher = batcher_of([1, 2, 3, 4, 5, 6])
    assert [request["id"] for request in batcher.take_batch()] == ["id1", "id2", "id3", "id4"]
    assert ids(batcher) == ["id5", "id6"]
    assert [request["id"] for request in batcher.take_batch()] == ["id5", "id6"]
    assert batcher.take_batch() == []


# A model that fails.


WRONG = [
    (lambda batch: batch[:-1], "model_fn must return one output per input, 4, got 3"),
    (lambda batch: [*batch, 1], "model_fn must return one output per input, 4, got 5"),
    (lambda batch: [], "model_fn must return one output per input, 4, got 0"),
    (lambda batch: None, "model_fn must return one output per input, 4, got None"),
    (lambda batch: 7.0, "model_fn must return one output per input, 4, got 7.0"),
    (lambda batch: {"y": batch}, "model_fn must return one output per input, 4, got {'y'"),
]


@pytest.mark.parametrize(("model", "message"), WRONG)
def test_a_wrong_number_of_outputs_loses_no_request(model, message):
    batcher = batcher_of([1, 2, 3, 4, 5], model)
    before = list(batcher.queue)
    with pytest.raises(ValueError, match=message):
        batcher.process_batch()
    assert list(batcher.queue) == before
    batcher.model_fn = double
    assert [answer["output"] for answer in batcher.process_batch()] == [2, 4, 6, 8]
    assert ids(batcher) == ["id5"]


@pytest.mark.parametrize("error", [RuntimeError("no memory"), KeyboardInterrupt()])
def test_a_model_that_raises_loses_no_request_and_keeps_the_order(error):
    def model(batch):
        batcher.add_request(9, "while it ran")
        raise error

    batcher = batcher_of([1, 2, 3, 4, 5], model)
    with pytest.raises(type(error)) as caught:
        batcher.process_batch()
    assert caught.value is error
    assert ids(batcher) == ["id1", "id2", "id3", "id4", "id5", "while it ran"]
    assert batcher.next_deadline() == 0.05  # the timer still counts from the first arrival


def test_a_retry_after_an_error_answers_everyone_once():
    attempts = []

    def flaky(batch):
        attempts.append(len(batch))
        if len(attempts) in (1, 3):
            raise RuntimeError("try again")
        return batch * 2

    batcher = batcher_of(range(6), flaky)
    answers = []
    while batcher.queue:
        try:
            answers += batcher.process_batch()
        except RuntimeError:
            continue
    assert attempts == [4, 4, 2, 2]
    assert answers == [{"id": f"id{i}", "output": 2 * i} for i in range(6)]


def test_what_cannot_be_computed_can_be_dropped():
    def picky(batch):
        if 3 in batch:
            raise ValueError("cannot")
        return batch

    batcher = batcher_of([3, 1, 2], picky, size=1)
    with pytest.raises(ValueError, match="cannot"):
        batcher.process_batch()
    batcher.take_batch()
    assert [batcher.process_batch()[0]["output"] for _ in range(2)] == [1, 2]


# Threads.


def test_requests_added_while_another_thread_processes_are_all_answered_once():
    writers, each = 4, 500
    attempts = []

    def model(batch):
        attempts.append(len(batch))
        if len(attempts) % 7 == 0:
            raise RuntimeError("now and then")
        return batch

    batcher = InferenceBatcher(model, 8, 0.0)
    answers = []
    written = threading.Event()

    def write(number):
        for k in range(each):
            batcher.add_request(number * each + k, (number, k))

    def read():
        while not written.is_set() or batcher.queue:
            if batcher.should_process():
                try:
                    answers.extend(batcher.process_batch())
                except RuntimeError:
                    continue

    reader = threading.Thread(target=read)
    threads = [threading.Thread(target=write, args=(number,)) for number in range(writers)]
    reader.start()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    written.set()
    reader.join()
    assert len(answers) == writers * each
    assert max(attempts) <= 8
    for number in range(writers):
        mine = [answer for answer in answers if answer["id"][0] == number]
        assert [answer["id"][1] for answer in mine] == list(range(each))
        assert [answer["output"] for answer in mine] == list(range(number * each, (number + 1) * each))


def test_the_queue_is_in_time_order_whoever_adds():
    ticks = iter(range(10**6))
    batcher = InferenceBatcher(double, 8, clock=lambda: float(next(ticks)))
    threads = [
        threading.Thread(target=lambda: [batcher.add_request(0, 0) for _ in range(500)]) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [request["timestamp"] for request in batcher.queue] == list(range(2000))


# What it refuses.


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"model_fn": 5}, TypeError, "model_fn must be callable, got 5"),
        ({"max_batch_size": 0}, ValueError, "max_batch_size must be at least 1, got 0"),
        ({"max_batch_size": -2}, ValueError, "max_batch_size must be at least 1, got -2"),
        ({"max_batch_size": 2.0}, TypeError, "max_batch_size must be a whole number, got 2.0"),
        ({"max_batch_size": True}, TypeError, "max_batch_size must be a whole number, got True"),
        ({"max_batch_size": "8"}, TypeError, "max_batch_size must be a whole number, got '8'"),
        ({"max_batch_size": math.inf}, TypeError, "max_batch_size must be a whole number, got inf"),
        ({"max_wait_ms": -1}, ValueError, "max_wait_ms must be at least 0, got -1"),
        ({"max_wait_ms": math.nan}, ValueError, "max_wait_ms must be a number, got nan"),
        ({"max_wait_ms": -math.inf}, ValueError, "max_wait_ms must be at least 0, got -inf"),
        ({"max_wait_ms": None}, TypeError, "max_wait_ms must be a number, got None"),
        ({"max_wait_ms": "5"}, TypeError, "max_wait_ms must be a number, got '5'"),
        ({"max_wait_ms": True}, TypeError, "max_wait_ms must be a number, got True"),
        ({"max_wait_ms": [1.0]}, TypeError, r"max_wait_ms must be a number, got \[1.0\]"),
        ({"max_wait_ms": 10**400}, ValueError, "max_wait_ms must be finite, got a number too large"),
        ({"clock": 0.0}, TypeError, "clock must be callable, got 0.0"),
    ],
)
def test_a_batcher_refuses(arguments, error, message):
    with pytest.raises(error, match=message):
        InferenceBatcher(**{"model_fn": double, **arguments})


def test_numbers_of_numpy_are_numbers():
    batcher = InferenceBatcher(double, np.int64(3), np.float32(2.5))
    assert (batcher.max_batch_size, batcher.max_wait_ms) == (3, 2.5)


def test_another_shape_than_the_first_items_is_refused_and_not_queued():
    batcher = InferenceBatcher(double, 4)
    batcher.add_request([1, 2], "a")
    batcher.process_batch()
    with pytest.raises(
        ValueError, match=r"input_data must have the shape of the first item, \(2,\), got \(3,\)"
    ):
        batcher.add_request([1, 2, 3], "b")
    assert ids(batcher) == []


# batch_inference.


@given(count=st.integers(0, 40), size=st.integers(1, 50))
def test_batch_inference_keeps_the_order_and_fills_every_batch_but_the_last(count, size):
    sizes = []

    def model(batch):
        sizes.append(len(batch))
        return batch.sum(axis=1)

    inputs = np.arange(2 * count).reshape(count, 2)
    assert batch_inference(model, inputs, size) == inputs.sum(axis=1).tolist()
    whole, rest = divmod(count, size)
    assert sizes == [size] * whole + [rest] * (rest > 0)


def test_batch_inference_of_nothing_is_nothing():
    assert batch_inference(double, []) == []


def test_batch_inference_by_default_takes_32():
    sizes = []
    batch_inference(lambda batch: sizes.append(len(batch)) or batch, range(70))
    assert sizes == [32, 32, 6]


@refusals
def test_batch_inference_refuses():
    """
    batch_inference(double, [1], 0) -> batch_size must be at least 1, got 0
    batch_inference(double, [1], 1.5) -> TypeError: batch_size must be a whole number, got 1.5
    batch_inference(None, [1]) -> TypeError: model_fn must be callable, got None
    batch_inference(double, [[1], [1, 2]]) -> shape of the first item
    batch_inference(lambda b: b[:1], [1, 2]) -> one output per input, 2, got 1
    batch_inference(lambda b: 1 / 0, [1, 2]) -> ZeroDivisionError: division by zero
    """


def test_it_prints_its_settings_and_how_many_wait():
    batcher = InferenceBatcher(len, max_batch_size=4)
    batcher.add_request(1.0, "ann")
    assert repr(batcher) == "InferenceBatcher(max_batch_size=4, max_wait_ms=50.0; 1 waiting)"


def test_the_caller_may_use_its_array_again():
    batcher = InferenceBatcher(lambda batch: batch, max_batch_size=3)
    buffer = np.zeros(1)
    for value in range(3):
        buffer[:] = value
        batcher.add_request(buffer, value)
    assert [answer["output"].item() for answer in batcher.process_batch()] == [0, 1, 2]


def test_outputs_in_a_list_may_have_any_shape():
    outputs = batch_inference(lambda batch: [np.zeros(int(n)) for n in batch], [1, 2, 3])
    assert [output.shape for output in outputs] == [(1,), (2,), (3,)]


def test_a_clock_that_fails_leaves_the_batcher_as_it_was():
    batcher = InferenceBatcher(len, clock=lambda: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        batcher.add_request([1, 2], "ann")
    batcher.clock = lambda: 0.0
    batcher.add_request(1, "bob")
    assert len(batcher.queue) == 1
