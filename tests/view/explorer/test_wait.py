"""What is waited for is said once it is late, and no longer once it is there."""

import threading
import weakref

import pytest

from batchsim.view.explorer import wait
from batchsim.view.explorer.wait import Wait


@pytest.fixture
def told(monkeypatch):
    """A wait that says at once that it is late, and what it has told."""
    monkeypatch.setattr(wait, "LATE_S", 0)
    told, late = [], threading.Semaphore(0)
    waits = Wait(lambda: (told.append((waits.text, waits.busy)), late.release()))
    return waits, told, late


def test_what_is_late_is_said_until_it_is_there(told):
    waits, said, late = told
    waits.begin("Running")
    assert late.acquire(timeout=300)
    waits.end()
    waits.end()
    assert said == [("Running", True), ("", False)]


def test_what_is_there_in_time_is_not_mentioned(monkeypatch):
    said = []
    waits = Wait(lambda: said.append(waits.text))
    waits.begin("Running")
    timer = waits._timer
    waits.end()
    timer.join(300)
    wait._late(weakref.ref(waits), "Running")  # as a timer that fired just before it was stopped
    assert said == []


def test_what_never_comes_stays_said_and_is_not_busy(told):
    waits, said, _ = told
    waits.show("Compiling", busy=True)
    waits.end("This is another setting")
    assert said == [("Compiling", True), ("This is another setting", False)]
