"""The app has room for so many sessions, and no more."""

import asyncio

import pytest
from tornado.web import HTTPError

from batchsim.app.sessions import Sessions


async def started(sessions, count):
    """Start kernels at once; return how many did and the status of each refusal."""
    done = await asyncio.gather(*(sessions.start_kernel() for _ in range(count)), return_exceptions=True)
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
