"""A crew says what it does; threads give the answers in order, and stop with the first error."""

import sys
import threading
import time
from contextvars import ContextVar

import pytest

from batchsim import _workers
from batchsim._workers import Crew


def test_the_bar_says_what_is_done():
    with Crew(progress=True, about="Search") as crew:
        for settings in (8, 4):
            crew.begin("full runs", settings)
        assert crew.bar.desc == "Search: full runs: "
        assert (crew.bar.n, crew.bar.total) == (0, 4)


def test_threads_answer_in_order_after_the_first_calls_here():
    where = []

    def square(number):
        where.append(threading.current_thread())
        time.sleep(0.001 * (number % 3))
        return number**2

    crew = Crew(cancelled=ContextVar("stop", default=None))
    crew.threads = True
    assert [*crew.map(square, ((number,) for number in range(100)), here=2)] == [n**2 for n in range(100)]
    assert where[:2] == [threading.main_thread()] * 2
    assert threading.main_thread() not in where[2:]


def test_an_error_stops_the_other_threads():
    variable, events = ContextVar("stop", default=None), []

    def fails(number):
        if number:
            events.append(variable.get())
            raise KeyboardInterrupt

    crew = Crew(cancelled=variable)
    crew.threads = True
    with pytest.raises(KeyboardInterrupt):
        list(crew.map(fails, ((number,) for number in range(9))))
    assert events[0].is_set()
    assert variable.get() is None
    assert crew.executor is None


def test_without_stderr_there_is_no_bar_and_no_error(monkeypatch):  # as in `pythonw`
    monkeypatch.setattr(sys, "stderr", None)
    monkeypatch.setattr(_workers, "SHOWN_S", 0.0)
    with Crew(progress=True) as crew:
        assert [*crew.map(abs, [(-1,), (2,)])] == [1, 2]
