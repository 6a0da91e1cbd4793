"""A page of the app cannot flood the server or fill its memory, and its kernel has no token."""

import asyncio
import subprocess
import sys

import pytest
from attack.app import CLOSED, KINDS, close, connected, flood, opened_page, response_s
from browser.servers import TOKEN, running

from batchsim.app.kernel import MEGABYTES
from batchsim.app.limits import BURST, STATES, Allowance, without_secrets

RARE = pytest.mark.rare("opens two pages, and the server computes what the floods ask for")


@pytest.mark.parametrize(
    ("kinds", "others"), [(CLOSED[1:], 0), pytest.param(KINDS, 1, marks=RARE)], ids=["soon", "each"]
)
def test_a_page_that_sends_too_much_is_closed_and_another_goes_on(tmp_path, kinds, others):
    async def attacked(server):
        page, *other = [await opened_page(server) for _ in range(1 + others)]
        other = [await connected(server, each) for each in other]
        for kind in kinds:
            victim = await connected(server, page)
            assert await flood(victim, kind) is (kind in CLOSED), kind
            assert all([await response_s(each) > 0 for each in other])
            await close(victim)
        await close(*other)

    with running("app", tmp_path / "app") as server:
        asyncio.run(attacked(server))


def test_dragging_for_a_minute_and_opening_a_page_are_within_the_allowance():
    allowance = Allowance()
    assert allowance.take(STATES, 0)
    assert all(allowance.take(1, number / 120) for number in range(120 * 60))
    assert not Allowance().take(BURST + 1, 0)


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
def test_a_kernel_that_takes_too_much_memory_gets_a_memory_error():
    code = "import os, batchsim.app.kernel as k; k.limit_memory(300); bytearray(400_000_000)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "MemoryError" in done.stderr
    assert MEGABYTES == "BATCHSIM_KERNEL_MB"
