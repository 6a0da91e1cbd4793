"""The app has room for so many sessions, and no more."""

import asyncio
import os

import psutil
import pytest
from browser.servers import TOKEN
from tornado.web import HTTPError
from traitlets.config import Config

from batchsim.web.app.access import ASKING
from batchsim.web.app.sessions import Sessions


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


def test_the_settings_say_how_many_pages_may_be_open_and_the_machine_how_many_open_at_once():
    asked = Config(Sessions={"max_sessions": 3})
    assert Sessions(config=asked).max_sessions == 3

    async def at_once():
        turns, count = Sessions().turns, 0
        while not turns.locked():
            await turns.acquire()
            count += 1
        return count

    assert asyncio.run(at_once()) == os.cpu_count()


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


def test_a_kernel_has_its_page_s_environment_without_the_server_s_token(tmp_path):
    async def use():
        sessions = Sessions(connection_dir=str(tmp_path))
        try:
            page = {**os.environ, "QUERY_STRING": f"token={TOKEN}&servers=2", "BATCHSIM_TOKEN": TOKEN}
            kernel = sessions.get_kernel(await sessions.start_kernel(env=page))
            found = psutil.Process(kernel.provisioner.pid).environ()
            assert found["QUERY_STRING"] == "token=...&servers=2"
            assert TOKEN not in str(found)
        finally:
            await sessions.shutdown_all(now=True)

    asyncio.run(use())


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
