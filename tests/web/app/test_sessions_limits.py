"""A page of the app cannot flood the server or fill its memory, and its kernel has no token."""

import asyncio
import os
import random
import subprocess
import sys

import pytest
from attack.app import BROKEN, CLOSED, KINDS, close, connected, flood, opened_page, response_s
from browser.servers import TOKEN, running
from jupyter_server.services.kernels.connection.base import serialize_msg_to_ws_v1
from tornado.httpclient import HTTPClientError
from tornado.websocket import websocket_connect

from batchsim.web.app.kernel import MEGABYTES
from batchsim.web.app.sessions import BURST, MOST_PARTS, STATES, Allowance, is_whole, without_secrets

REASONS = "a malformed message", "a message that cannot be read"
RARE = pytest.mark.rare("opens two pages, and the server computes what the floods ask for")


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with running("app", tmp_path_factory.mktemp("app")) as server:
        yield server


@pytest.mark.parametrize(
    ("kinds", "others"), [(CLOSED[1:], 0), pytest.param(KINDS, 1, marks=RARE)], ids=["soon", "each"]
)
def test_a_page_that_sends_too_much_is_closed_and_another_goes_on(server, kinds, others):
    async def attacked():
        page, *other = [await opened_page(server) for _ in range(1 + others)]
        other = [await connected(server, each) for each in other]
        for kind in kinds:
            victim = await connected(server, page)
            assert await flood(victim, kind) is (kind in CLOSED), kind
            assert kind not in BROKEN or victim.close_reason in REASONS, victim.close_reason
            assert all([await response_s(each) > 0 for each in other])
            await close(victim)
        await close(*other)

    asyncio.run(attacked())


def test_a_page_that_does_not_name_the_format_of_its_messages_is_refused(server):
    async def refused():
        address = f"ws{server.url.removeprefix('http')}api/kernels/{await opened_page(server)}/channels"
        for protocols in ([], ["v0.kernel.websocket.jupyter.org"]):
            with pytest.raises(HTTPClientError, match="Sec-WebSocket-Protocol must name v1") as error:
                await websocket_connect(f"{address}?token={TOKEN}", subprotocols=protocols)
            assert error.value.code == 400

    asyncio.run(refused())


def test_a_message_has_as_many_parts_as_it_says_each_after_the_one_before():
    parts = [b"{}"] * 4
    for buffers in (0, 1, MOST_PARTS - 7):
        assert is_whole(serialize_msg_to_ws_v1([*parts, *[b"x"] * buffers], "shell"))
    assert not is_whole(serialize_msg_to_ws_v1([*parts, *[b""] * (MOST_PARTS - 6)], "shell"))
    assert not is_whole(serialize_msg_to_ws_v1(parts[:3], "shell"))
    whole = serialize_msg_to_ws_v1([*parts, b"a buffer"], "shell")
    assert not any(is_whole(whole[:length]) for length in range(len(whole)))
    for place in range(0, 8 * 8, 8):  # the count, or one of seven offsets
        assert not is_whole(whole[:place] + (10**8).to_bytes(8, "little") + whole[place + 8 :])
    generator = random.Random(0)
    assert not any(is_whole(generator.randbytes(generator.randrange(200))) for _ in range(2000))
    assert not is_whole("{}")


def test_dragging_for_a_minute_and_opening_a_page_are_within_the_allowance():
    allowance = Allowance()
    assert allowance.take(STATES, 0)
    assert all(allowance.take(1, number / 120) for number in range(120 * 60))
    for quiet_s in (0, 1e6):  # who was quiet for days has saved up no more
        assert not Allowance().take(BURST + 1, quiet_s)


def test_a_kernel_has_no_token_in_its_environment():
    given = {
        "BATCHSIM_TOKEN": TOKEN, "JUPYTER_TOKEN": TOKEN, "QUERY_STRING": f"token={TOKEN}&servers=2",
        "VOILA_REQUEST_URL": f"http://x/?token={TOKEN}", "HOME": "/home",
    }  # fmt: skip
    found = without_secrets(given)
    assert TOKEN not in str(found)
    assert found["QUERY_STRING"] == "token=...&servers=2"
    assert found["HOME"] == "/home"


@pytest.mark.skipif(sys.platform != "linux", reason="RLIMIT_DATA is Linux's")
def test_a_table_with_text_takes_no_gibibyte_of_a_kernels_memory():
    code = """import batchsim.web.app.kernel as k; k.limit_memory(2000)
import pandas; pandas.Series(["a", "b"])
print(next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmData")))"""
    environment = {name: each for name, each in os.environ.items() if name != "ARROW_DEFAULT_MEMORY_POOL"}
    asked = [sys.executable, "-W", "ignore", "-c", code]
    done = subprocess.run(asked, env=environment, capture_output=True, text=True, check=True)
    assert int(done.stdout) < 600_000  # kB; with Arrow's own pool a GiB more


@pytest.mark.skipif(sys.platform != "linux", reason="RLIMIT_DATA is Linux's")
def test_a_kernel_that_takes_too_much_memory_gets_a_memory_error():
    code = "import os, batchsim.web.app.kernel as k; k.limit_memory(300); bytearray(400_000_000)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "MemoryError" in done.stderr
    assert MEGABYTES == "BATCHSIM_KERNEL_MB"
