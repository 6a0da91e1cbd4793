"""A learner's code is stopped, whatever it does, and what it returns is told in a few words."""

import signal
import sys
import threading
import time

import numpy as np
import pytest

from batchsim.teaching import check
from batchsim.teaching.exercises import program
from batchsim.teaching.exercises.program import Endless, attempt, fault, plain, shown


def one_line():
    while True: pass  # fmt: skip # noqa: E701


def catches_everything():
    while True:
        try:
            sum(range(1000))
        except BaseException:  # as a bare except does
            continue


def sleeps():
    time.sleep(1000)


def waits():
    threading.Event().wait()


def untraced():
    sys.settrace(None)
    while True:
        pass


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="no alarms here")
@pytest.mark.parametrize("endless", [one_line, catches_everything, sleeps, waits, untraced])
def test_code_that_does_not_end_is_stopped_and_leaves_nothing_behind(monkeypatch, endless):
    monkeypatch.setattr(program, "SECONDS", -0.9)  # the alarm a tenth of a second from now
    before = sys.gettrace(), signal.getsignal(signal.SIGALRM)
    made = attempt(endless)
    assert isinstance(made.error, Endless)
    assert fault(made.error, endless).startswith("did not come to an end")
    assert (sys.gettrace(), signal.getsignal(signal.SIGALRM)) == before
    assert signal.getitimer(signal.ITIMER_REAL)[0] == 0


def test_a_loop_in_one_line_is_stopped_in_any_thread(monkeypatch):
    monkeypatch.setattr(program, "SECONDS", 0.1)
    made = []
    thread = threading.Thread(target=lambda: made.append(attempt(one_line)), daemon=True)
    thread.start()
    thread.join(300)
    assert isinstance(made[0].error, Endless)


def leaves(*_):
    sys.exit(3)


class Unsaid(Exception):
    def __str__(self):
        raise RuntimeError("no text")


def raises_unsaid(*_):
    raise Unsaid


def raises_a_book(*_):
    raise ValueError("x" * 10**6)


@pytest.mark.parametrize(
    ("answer", "word"),
    [
        (leaves, "wanted to end the program"),
        (raises_unsaid, "raised Unsaid"),
        (raises_a_book, "ValueError: xxx"),
    ],
)
def test_whatever_the_code_raises_is_told_in_short(capsys, answer, word):
    check("03.2", answer)
    told = capsys.readouterr().out
    assert word in told
    assert len(told) < 700


def test_an_interrupt_by_the_learner_ends_the_check():
    def interrupted(*_):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        check("03.2", interrupted)


class EqualToAll(list):
    """A value that says it is right, and has no text."""

    __hash__ = None

    def __eq__(self, other):
        return True

    def __repr__(self):
        raise RuntimeError("no text")


class EqualAlso:
    def __eq__(self, other):
        return True

    __hash__ = None


def round_and_round():
    value = []
    value.append(value)
    return value


@pytest.mark.parametrize(
    "value",
    [
        EqualToAll(),
        EqualAlso(),
        round_and_round(),
        [0] * 10**6,
        "x" * 10**6,
        np.zeros((10**3, 10**3)),
        object,
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_is_returned_is_never_right_by_its_own_word_and_is_told_in_short(capsys, value):
    assert plain(value) != [1, 2]
    assert len(shown(value)) < 500
    check("02.3", lambda model_fn, inputs, batch_size=32: value if inputs else [])
    assert capsys.readouterr().out.startswith("Not yet: ")


def test_a_value_of_a_case_is_shown_whole():
    queue = [{"id": "Ann", "input": [1.0, -1.0], "timestamp": 0.1}]
    assert shown(queue) == repr(queue)
