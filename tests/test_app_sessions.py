"""The app has room for so many sessions, and no more."""

import asyncio
import os
import signal
import subprocess
import sys
from datetime import timedelta

import pytest
from jupyter_client.session import Session
from jupyter_server._tz import utcnow
from tornado.web import HTTPError

from batchsim.app import standby
from batchsim.app.access import ASKING
from batchsim.app.sessions import Sessions


async def started(sessions, count, **settings):
    """Start kernels at once; return those that did and the status of each refusal."""
    starts = (sessions.start_kernel(**settings) for _ in range(count))
    done = await asyncio.gather(*starts, return_exceptions=True)
    refusals = [it.status_code for it in done if isinstance(it, HTTPError)]
    return [it for it in done if isinstance(it, str)], refusals


@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_sessions_are_bounded_and_make_room_when_they_end(tmp_path):
    async def use():
        sessions = Sessions(max_sessions=1, connection_dir=str(tmp_path))
        try:
            (kernel,), refusals = await started(sessions, 3)
            sessions.notify_connect(kernel)
            assert refusals == [503, 503]
            assert await started(sessions, 1) == ([], [503])
            await sessions.shutdown_kernel(kernel, now=True)
            (_,), refusals = await started(sessions, 1)
            assert refusals == []
        finally:
            await sessions.shutdown_all(now=True)

    asyncio.run(use())


def test_pages_come_up_in_turn(tmp_path):
    async def use():
        sessions = Sessions(connection_dir=str(tmp_path), turns=asyncio.Semaphore(1))
        try:
            first = await sessions.start_kernel()
            second = asyncio.create_task(sessions.start_kernel())
            for _ in range(10):
                await asyncio.sleep(0)
            assert sessions.list_kernel_ids() == [first]
            for _ in range(2):  # a page may have two sockets, and has one turn
                sessions.notify_connect(first)
            sessions.notify_connect(await second)
            assert not sessions.turns.locked()
        finally:
            await sessions.shutdown_all(now=True)

    asyncio.run(use())


async def asked(sessions, kernel_id, expression):
    """Return what an expression is worth in a kernel, as Python writes it."""
    kernel = sessions.get_kernel(kernel_id)
    client = kernel.client(session=Session(key=kernel.session.key))
    client.start_channels(iopub=False, stdin=False, hb=False, control=False)
    try:
        reply = await client.execute("", user_expressions={"it": expression}, reply=True, timeout=300)
        return reply["content"]["user_expressions"]["it"]["data"]["text/plain"]
    finally:
        client.stop_channels()


def with_a_standby(use, folder, **settings):
    """Use sessions with a kernel that waits for a page."""

    async def run():
        sessions = Sessions(
            connection_dir=str(folder), standby_settings={"kernel_name": "python3"}, **settings
        )
        try:
            while sessions.standby is None:
                await asyncio.sleep(0)
            await use(sessions, sessions.standby)
        finally:
            await sessions.shutdown_all(now=True)

    asyncio.run(run())


def page(**environment):
    return {"kernel_name": "python3", "env": {**os.environ, **environment}}


def test_the_next_page_gets_the_kernel_that_waits_and_its_environment(tmp_path, monkeypatch):
    monkeypatch.setattr(standby, "WARM_UP", ("warmed = 1",))
    link = "rate_per_s=900&x='\"\\é"

    async def use(sessions, waiting):
        await waiting.warm
        assert sessions.pages() == set()
        assert not waiting.suits({"kernel_name": "python3", "path": "elsewhere"})
        kernel = await sessions.start_kernel(**page(QUERY_STRING=link))
        assert kernel == waiting.kernel_id
        assert sessions.pages() == {kernel}
        assert sessions.standby is None
        said = "(warmed, __import__('os').environ['QUERY_STRING'])"
        assert await asked(sessions, kernel, said) == repr((1, link))

    with_a_standby(use, tmp_path)


def test_a_page_that_comes_early_does_not_wait_for_the_warm_up(tmp_path, monkeypatch):
    monkeypatch.setattr(standby, "WARM_UP", ("warmed = 1",))

    async def use(sessions, waiting):
        kernel = await sessions.start_kernel(**page())
        await waiting.warm
        assert await asked(sessions, kernel, "'warmed' in globals()") == "False"

    with_a_standby(use, tmp_path)


def test_a_kernel_that_waits_takes_no_place_and_is_not_there_when_all_are_taken(tmp_path, monkeypatch):
    monkeypatch.setattr(standby, "WARM_UP", ())

    async def use(sessions, waiting):
        (kernel,), refusals = await started(sessions, 2, **page())
        assert kernel == waiting.kernel_id
        assert refusals == [503]
        sessions.notify_connect(kernel)
        sessions.start_standby()
        assert sessions.standby is None
        await sessions.shutdown_kernel(kernel, now=True)
        sessions.start_standby()
        assert sessions.standby is not None
        assert sessions.pages() == set()
        await sessions.standby.warm

    with_a_standby(use, tmp_path, max_sessions=1)


def test_a_kernel_that_waits_is_not_idle_until_it_has_been_a_page_s(tmp_path, monkeypatch):
    monkeypatch.setattr(standby, "WARM_UP", ())

    async def use(sessions, waiting):
        await waiting.warm
        kernel = sessions.get_kernel(waiting.kernel_id)
        long_ago = kernel.last_activity = utcnow() - timedelta(hours=9)
        await sessions.cull_kernel_if_idle(waiting.kernel_id)
        await sessions.start_kernel(**page())
        # What the kernel says before the server has subscribed to it is lost.
        while kernel.last_activity == long_ago or kernel.execution_state != "idle":
            await asked(sessions, waiting.kernel_id, "1")
        await sessions.cull_kernel_if_idle(waiting.kernel_id)
        assert waiting.kernel_id in sessions
        kernel.last_activity = long_ago
        await sessions.cull_kernel_if_idle(waiting.kernel_id)
        assert waiting.kernel_id not in sessions

    with_a_standby(use, tmp_path, cull_idle_timeout=600)


def test_a_page_gets_a_kernel_though_the_one_that_waits_has_died(tmp_path, monkeypatch):
    monkeypatch.setattr(standby, "WARM_UP", ())

    async def use(sessions, waiting):
        await waiting.warm
        dead = sessions.get_kernel(waiting.kernel_id)
        dead.stop_restarter()
        await dead.signal_kernel(signal.SIGKILL)
        while await dead.is_alive():
            await asyncio.sleep(0.01)
        kernel = await sessions.start_kernel(**page())
        assert await sessions.get_kernel(kernel).is_alive()
        assert await asked(sessions, kernel, "1 + 1") == "2"
        assert sessions.pages() == {kernel}

    with_a_standby(use, tmp_path)


def test_the_warm_up_loads_what_a_page_begins_with_and_makes_no_widget():
    """In a process of its own, as a kernel is."""
    source = """
import sys
for source in WARM_UP: exec(source)
from ipywidgets.widgets import widget
assert not widget._instances
known = set(sys.modules)
import batchsim
batchsim.explore(requests=1000, play=True)
print(sorted(set(sys.modules) - known))
"""
    command = [sys.executable, "-c", f"WARM_UP = {standby.WARM_UP}{source}"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


class Connection:
    """What a page comes by, as far as sessions use it."""

    def __init__(self):
        self.request, self.connection = self, self

    def set_close_callback(self, callback):
        self.close = callback

    def on_connection_close(self):
        pass


def test_a_page_that_is_left_while_it_waits_for_its_turn_gets_no_kernel(tmp_path):
    async def use():
        sessions = Sessions(connection_dir=str(tmp_path), turns=asyncio.Semaphore(1))
        try:
            first = await sessions.start_kernel()
            connection = Connection()
            page_of = ASKING.set(connection)
            second = asyncio.create_task(started(sessions, 1))
            while not sessions.starting:
                await asyncio.sleep(0)
            ASKING.reset(page_of)
            connection.close()
            sessions.notify_connect(first)
            assert await second == ([], [410])
            assert sessions.pages() == {first}
            assert not sessions.turns.locked()
        finally:
            await sessions.shutdown_all(now=True)

    asyncio.run(use())
