"""What is waited for is said once it is late; another process compiles what a state needs meanwhile."""

import threading
import weakref

import pytest
from runs import in_python

import batchsim as bs
from batchsim.engines.compiled.jit import compiled_uncached
from batchsim.view.explorer import ahead
from batchsim.view.explorer.ahead import Wait
from batchsim.view.explorer.state import DEFAULTS


@pytest.fixture
def session(monkeypatch):
    """A page's session whose tokens need a loop that is not compiled, and that no disk keeps."""
    session = bs.explore(requests=300).session
    monkeypatch.setattr(ahead, "missing", list)
    session.open_page()

    def loop():
        return 1

    loop.__module__ = "batchsim.engines.a_loop"
    run, compiled = session.simulate, compiled_uncached(loop)

    def of_tokens(state, *given):
        return (state.mode != "tokens" or compiled()) and run(state, *given)

    monkeypatch.setattr(session, "simulate", of_tokens)
    return session


@pytest.mark.dear("another process compiles the loop of tokens")
def test_a_page_is_answered_while_another_process_compiles(session):
    shown, of_requests = threading.Event(), session.data
    session.subscribe("change", shown.set)
    session.turn_to("tokens")
    assert session.wait.busy
    assert session.data is of_requests
    assert not shown.is_set()
    session.turn_to("requests")  # is answered at once
    assert shown.is_set()
    assert not session.wait.text
    shown.clear()
    session.turn_to("tokens")
    assert session.wait.busy
    assert shown.wait(300)
    with session.lock:
        assert session.data.result.scenario.kind == "tokens"
        assert not session.wait.text


def test_without_a_second_process_a_page_compiles_itself(session, monkeypatch):
    monkeypatch.setattr(ahead.sys, "executable", "no such Python")
    session.turn_to("tokens")
    assert session.data.result.scenario.kind == "tokens"
    assert not session.wait.text


def test_what_a_refused_setting_shows_is_said_to_be_of_another(session):
    session.move_to(session.state.replace(max_wait_ms=5))
    assert session.wait.text == ""
    session.simulate = lambda *_: exec("raise ValueError('no')")
    session.move_to(session.state.replace(max_wait_ms=6))
    assert (session.wait.text, session.wait.busy) == ("This is another setting", False)


def test_of_two_processes_for_one_kind_of_run_the_second_waits_or_ends():
    with ahead.turn("a-test", patient=False):
        with pytest.raises(BlockingIOError), ahead.turn("a-test", patient=False):
            pass
        with ahead.turn("another-test", patient=False):
            pass
    with ahead.turn("a-test", patient=True):
        pass


@pytest.mark.rare("compiles the loops of tokens")
def test_what_another_process_has_compiled_is_no_longer_missing(tmp_path):
    code = """
        from batchsim.view.explorer import ahead
        for state in ahead.missing():
            print(ahead.begin(state, patient=True).wait())
        print(ahead.missing())
    """
    process = in_python(code, NUMBA_CACHE_DIR=str(tmp_path))
    assert (*process.communicate(), process.returncode) == ("0\n0\n[]\n", "", 0)


EACH_CONTROL = """
    import os, sys, threading
    from types import SimpleNamespace

    import batchsim as bs
    from batchsim.engines.compiled.backend import Listener, register
    from batchsim.view.explorer import ahead
    from batchsim.view.explorer.rows import CONTROLS

    TYPED = {
        "queue_limit": 5, "timeout_ms": 9, "priorities": ((1, 0.2), (2, 0.8)), "padding": (8, 32, 64),
        "lengths": (128, 512), "devices": 1, "watts": ((0, 60), (8, 300)), "captured": (1, 2, 4, 8),
    }
    compiled, never = [], threading.Event()

    class Compiled(Listener):
        def on_start(self, event):
            pass

        def on_end(self, event):
            name = event.data["dispatcher"].py_func.__module__
            if name.startswith("batchsim") and sys.exc_info()[0] is None:
                compiled.append(name)

    panel = bs.explore(requests=300, link="mode=" + os.environ["MODE"])
    session, first = panel.session, panel.state
    ahead.begin = lambda *_: SimpleNamespace(wait=never.wait)
    panel.screen.width_px, panel.screen.height_px = 900, 640
    register("numba:compile", Compiled())

    def moved():
        for name, control in CONTROLS.items():
            if control.type == "choice" and name in first.kind.controls and control.page:
                for value in first.kind.options.get(name, control.bounds["options"]):
                    yield first.replace(**first.kind.changes(first, name, value))
            elif name in TYPED and name in first.kind.controls:
                yield first.replace(**{name: TYPED[name]})
            elif name in first.kind.controls and control.slider:
                yield first.replace(**{name: control.slider.value(control.slider.steps // 3)})
        yield from (state for mode, state in session.left.items() if mode != first.mode)

    clicked = waited = 0
    for state in moved():
        try:
            session.move_to(state)
        except ValueError:  # such as a table without points
            continue
        clicked, waited = clicked + 1, waited + session.wait.busy
        if session.data_state != state and not session.wait.text:
            print("not dimmed:", state.to_link())
        session.move_to(first)
        if session.data_state != first or session.wait.text:
            print("not answered after", state.to_link())
    print(clicked > 60, waited > 1, compiled)
"""


@pytest.mark.rare("compiles all that an explorer needs")
@pytest.mark.parametrize("mode", DEFAULTS)
def test_each_control_that_may_compile_is_dimmed_and_a_click_back_is_answered(mode, tmp_path):
    process = in_python(EACH_CONTROL, NUMBA_CACHE_DIR=str(tmp_path), MODE=mode)
    assert (process.communicate()[0], process.returncode) == ("True True []\n", 0)


def test_the_next_clicks_are_states_that_the_explorer_offers():
    assert {state.mode for state in ahead.NEXT.values()} == {*DEFAULTS}


@pytest.fixture
def told(monkeypatch):
    """A wait that says at once that it is late, and what it has told."""
    monkeypatch.setattr(ahead, "LATE_S", 0)
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
    ahead._late(weakref.ref(waits), "Running")  # as a timer that fired just before it was stopped
    assert said == []


def test_what_never_comes_stays_said_and_is_not_busy(told):
    waits, said, _ = told
    waits.show("Compiling", busy=True)
    waits.end("This is another setting")
    assert said == [("Compiling", True), ("This is another setting", False)]
