"""The app's sockets: a page that asks for too much is closed, and neither the server nor others notice."""

import asyncio
import contextlib
import json
import random
import re
import statistics
import struct
import time
import urllib.request
import uuid
from collections.abc import Callable
from pathlib import Path

import psutil
from browser.servers import TOKEN, Server, running
from jupyter_server.services.kernels.connection.base import deserialize_msg_from_ws_v1, serialize_msg_to_ws_v1
from tornado.httpclient import HTTPClientError
from tornado.websocket import WebSocketClientConnection, WebSocketClosedError, websocket_connect

from batchsim.web.app.sessions import BURST, MOST_BYTES, PROTOCOL

# The server closes a page that sends so much of these, or a malformed one.
BROKEN = ["parts", "old parts", "text", "rubbish"]
CLOSED = ["messages", "states", "large", *BROKEN]
KINDS = [*CLOSED, "comms", "pictures"]
TRIED = 40  # round trips of which the median is a page's response time


def attack_app(rng: random.Random, folder: Path) -> str:
    """Attack a page; compare the server's memory and another page's answers before and after."""
    home = folder / f"app-{rng.random()}"
    home.mkdir()
    kind = rng.choice(KINDS)
    with running("app", home) as server:
        asyncio.run(attacked(server, kind))
    return f"{kind}: contained"


async def attacked(server: Server, kind: str) -> None:
    """Send too much of a kind to one page of a running app."""
    kernels = [await opened_page(server) for _ in range(2)]
    assert await refuses(server, kernels[0]), "a socket without the format was let in"
    victim, other = [await connected(server, each) for each in kernels]
    process = server_of(server)
    await response_s(other)
    before_s, before = await response_s(other), process.memory_info().rss
    attack = asyncio.create_task(flood(victim, kind))
    await asyncio.sleep(0.2)
    during_s = await response_s(other)
    closed = await attack
    after_s, after = await response_s(other), process.memory_info().rss
    if kind in CLOSED:
        assert closed, f"{kind}: the page stayed open"
    await close(victim, other)
    assert after <= 1.1 * before, f"{kind}: the server grew from {before / 1e6:.0f} to {after / 1e6:.0f} MB"
    for what, seconds in (("during", during_s), ("after", after_s)):
        assert seconds <= 2 * before_s + 0.05, f"{kind}: {seconds:.3f} s {what}, {before_s:.3f} s before"


def server_of(server: Server) -> psutil.Process:
    """Return the process that serves, itself or a child of what was started."""
    process = psutil.Process(server.pid)
    processes = [process, *process.children(recursive=True)]
    return max(processes, key=lambda each: "voila" in " ".join(each.cmdline()))


async def opened_page(server: Server) -> str:
    """Open a page as a browser does, and return the name of its kernel."""
    page = await asyncio.to_thread(fetched, server.address())
    return re.findall(r'"kernelId": ?"([\w-]+)"', page)[0]


def address_of(server: Server, kernel: str) -> str:
    return f"ws{server.url.removeprefix('http')}api/kernels/{kernel}/channels?token={TOKEN}"


async def connected(
    server: Server, kernel: str, heard: Callable[[bytes | None], None] | None = None
) -> WebSocketClientConnection:
    """Return a socket to a page's kernel; `heard` is called with what comes, else one has to read."""
    return await websocket_connect(
        address_of(server, kernel),
        max_message_size=2**30,
        subprotocols=[PROTOCOL],
        on_message_callback=heard,
    )


async def refuses(server: Server, kernel: str) -> bool:
    """Return whether the server refuses a socket that does not name the format of its messages."""
    try:
        (await websocket_connect(address_of(server, kernel))).close()
    except HTTPClientError as error:
        return error.code == 400
    return False


def fetched(url: str) -> str:
    with urllib.request.urlopen(url, timeout=180) as answer:
        return answer.read().decode()


def message(kind: str, content: dict, size: int = 0, name: str = "") -> bytes:
    header = {"msg_id": name or uuid.uuid4().hex, "msg_type": kind, "session": "attack", "version": "5.3"}
    parts = header, {}, {"x": "x" * size}, content
    return serialize_msg_to_ws_v1([json.dumps(part).encode() for part in parts], "shell")


def update(state: dict) -> dict:
    return {"comm_id": uuid.uuid4().hex, "data": {"method": "update", "state": state, "buffer_paths": []}}


async def flood(socket: WebSocketClientConnection, kind: str) -> bool:
    """Send what a page never would; return whether the server closed the socket."""
    size_px = {"width_px": 10**9, "height_px": 10**9, "ratio": 1e9}
    made = {
        # A slow server handles fewer a second, while the allowance grows: it must be used up nevertheless.
        "messages": (20 * int(BURST), lambda: message("kernel_info_request", {})),
        "states": (20, lambda: message("comm_msg", {"comm_id": "x", "data": {"method": "request_states"}})),
        "large": (1, lambda: message("comm_msg", update({}), 2 * MOST_BYTES)),
        "comms": (
            200,
            lambda: message("comm_open", {"comm_id": uuid.uuid4().hex, "target_name": "x", "data": {}}),
        ),
        "pictures": (50, lambda: message("comm_msg", update(size_px))),
        "parts": (1, lambda: struct.pack("<2Q", 10**8, 0)),
        "old parts": (1, lambda: struct.pack("!2i", 2**27, 8) + b"{}.."),
        "text": (1, lambda: "{}"),
        "rubbish": (1, lambda: serialize_msg_to_ws_v1([b"\xff"] * 4, "shell")),
    }
    count, make = made[kind]
    reading = asyncio.create_task(_read_all(socket))
    with contextlib.suppress(WebSocketClosedError):
        for _ in range(count):
            if reading.done():
                break
            made = make()
            await socket.write_message(made, binary=isinstance(made, bytes))
            await asyncio.sleep(0)
    await asyncio.wait([reading], timeout=60 if kind in CLOSED else 0)
    reading.cancel()
    return reading.done() and not reading.cancelled()


async def _read_all(socket: WebSocketClientConnection) -> None:
    """Read until the server closes the socket."""
    while await socket.read_message() is not None:
        pass


async def close(*sockets: WebSocketClientConnection) -> None:
    """Close pages."""
    for socket in sockets:
        socket.close()
        with contextlib.suppress(TimeoutError):  # of one that is closed already, nothing comes
            while await asyncio.wait_for(socket.read_message(), 1) is not None:
                pass


async def response_s(socket: WebSocketClientConnection, tried: int = TRIED) -> float:
    """Return the median time of a page's round trip to its kernel."""
    taken_s = []
    for _ in range(tried):
        sent_s = time.perf_counter()
        wanted = uuid.uuid4().hex
        await socket.write_message(message("kernel_info_request", {}, name=wanted), binary=True)
        while True:
            _, parts = deserialize_msg_from_ws_v1(await asyncio.wait_for(socket.read_message(), 60))
            if wanted.encode() in parts[1] and b"kernel_info_reply" in parts[0]:
                break
        taken_s.append(time.perf_counter() - sent_s)
    return statistics.median(taken_s)
