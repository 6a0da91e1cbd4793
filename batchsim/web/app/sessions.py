"""The app's sessions: one kernel per page, a bounded number of pages, and how much each may ask.

A page has limits for the messages of its socket, and for the memory of its kernel.
"""

import asyncio
import gc
import os
import time
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from jupyter_server.services.kernels.connection.channels import ZMQChannelsWebsocketConnection
from jupyter_server.services.kernels.kernelmanager import AsyncMappingKernelManager, ServerKernelManager
from tornado.ioloop import IOLoop
from tornado.web import HTTPError
from traitlets import Dict, Instance, Integer, Set

from batchsim.web.app.access import ASKING, without_token
from batchsim.web.app.classroom import environment

# A drag of a slider sends 60 messages a second; a page that opens asks for the states of its widgets once.
MESSAGES_PER_S, BURST = 200.0, 1_000.0
STATES = 250.0  # messages that a request for the states of all widgets counts as
MOST_BYTES = 2**20  # of a message
MOST_PARTS = 1_000  # of a message: four, and the buffers of a widget's state
POLICY_VIOLATION = 1008  # of RFC 6455
PROTOCOL_HEADER, PROTOCOL = "Sec-WebSocket-Protocol", "v1.kernel.websocket.jupyter.org"
TOKENS = "BATCHSIM_TOKEN", "JUPYTER_TOKEN"


class Allowance:
    """A number of messages that grows with time up to a burst.

    >>> allowance = Allowance(per_s=2, burst=3)
    >>> [allowance.take(1, now_s) for now_s in (0, 0, 0, 0, 0.5, 0.5)]
    [True, True, True, False, True, False]
    """

    def __init__(self, per_s: float = MESSAGES_PER_S, burst: float = BURST) -> None:
        self.per_s, self.burst = per_s, burst
        self.left, self.since_s = burst, 0.0

    def take(self, count: float, now_s: float) -> bool:
        """Take some messages at a time; False if there are fewer left."""
        self.left = min(self.left + (now_s - self.since_s) * self.per_s, self.burst)
        self.since_s = now_s
        if self.left < count:
            return False
        self.left -= count
        return True


def is_whole(message: str | bytes) -> bool:
    """Return whether a message has the format `PROTOCOL`: the offsets of its parts rise, and end within it.

    jupyter_server makes a list as long as the message's first number says, before it looks for the numbers.
    """
    if isinstance(message, str):
        return False
    count = int.from_bytes(message[:8], "little")
    if not 6 <= count < MOST_PARTS:
        return False
    first = 8 * (count + 1)
    offsets = [int.from_bytes(message[place : place + 8], "little") for place in range(8, first, 8)]
    return all(low <= high for low, high in pairwise([first, *offsets, len(message)]))


class PageSocket(ZMQChannelsWebsocketConnection):
    """A page's connection to its kernel, closed when it sends more than a reader and a browser can.

    Jupyter has an older format of messages, for pages and proxies that do not name one. It is refused: its
    count of parts is not checked either, and a binary answer in it is read as one of the newer format.
    """

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.allowance = Allowance()
        self.allowance.since_s = time.monotonic()
        self.is_closed = False  # messages that were on their way may follow

    async def prepare(self) -> None:
        """Refuse a page that does not name the format of its messages."""
        named = self.websocket_handler.request.headers.get(PROTOCOL_HEADER, "")
        if PROTOCOL not in map(str.strip, named.split(",")):
            raise HTTPError(400, reason=f"The header {PROTOCOL_HEADER} must name {PROTOCOL}")
        await super().prepare()  # type: ignore[no-untyped-call]

    def handle_incoming_message(self, incoming_msg: str | bytes) -> None:
        """Pass a message on, or close the page that sent too many, or a malformed one."""
        if self.is_closed:
            return None
        if not is_whole(incoming_msg):
            return self._close("a malformed message")
        assert isinstance(incoming_msg, bytes)
        count = STATES if b"request_states" in incoming_msg[:MOST_BYTES] else 1.0
        if not self.allowance.take(count, time.monotonic()):
            return self._close("too many messages")
        try:
            super().handle_incoming_message(incoming_msg)  # type: ignore[arg-type]
        except Exception:  # of text that is not JSON, of a header without a type, ...
            self._close("a message that cannot be read")

    def _close(self, reason: str) -> None:
        self.is_closed = True
        self.log.warning("A page sent %s: its socket is closed.", reason)
        self.websocket_handler.close(POLICY_VIOLATION, reason)


class PageKernel(ServerKernelManager):
    """A page's kernel: in a process with a limit on its memory, and without the server's token."""

    def format_kernel_cmd(self, extra_arguments: list[str] | None = None) -> list[str]:
        """Return the command of a kernel, with our own kernel in place of ipykernel's module."""
        command = super().format_kernel_cmd(extra_arguments)
        return ["batchsim.web.app.kernel" if part == "ipykernel_launcher" else part for part in command]


def without_secrets(environment: Mapping[str, str]) -> dict[str, str]:
    """Return variables of an environment without the server's token, also where an address holds it."""
    return {name: without_token(str(value)) for name, value in environment.items() if name not in TOKENS}


TURN_S = 30  # the longest that other pages wait for one that never opens


class Sessions(AsyncMappingKernelManager):
    """Voila's kernels: at most `max_sessions` of them.

    A class opens its pages all at once. Each page occupies a core for some seconds, in its kernel and in its
    browser, whose front end gives up after a timeout. So pages open in turn, one per core.
    """

    max_sessions = Integer(40, config=True, help="Pages that may be open at once.")
    starting = Set()  # kernels that `list_kernel_ids` does not have yet
    abandoned = Set()  # those of them whose page has closed already
    opening = Dict()  # timers of the kernels whose page has no socket yet
    turns = Instance(asyncio.Semaphore, (os.cpu_count() or 1,))

    async def start_kernel(self, **settings: Any) -> str:  # type: ignore[override]
        """Start a kernel; HTTPError 503, shown as 503.html, if the app is full."""
        if len(self.pages()) >= self.max_sessions:
            raise HTTPError(503, "%d pages are open", self.max_sessions)
        kernel_id = self.new_kernel_id()
        self.starting.add(kernel_id)
        self.end_with(ASKING.get(), kernel_id)
        await self.turns.acquire()
        self.opening[kernel_id] = asyncio.get_running_loop().call_later(TURN_S, self.has_opened, kernel_id)
        try:
            if kernel_id in self.abandoned:
                raise HTTPError(410)
            settings["env"] = without_secrets(settings.get("env") or os.environ) | environment(self.parent)
            await super().start_kernel(kernel_id=kernel_id, **settings)
            if kernel_id in self.abandoned:
                raise HTTPError(410)
            return kernel_id
        except BaseException:
            self.has_opened(kernel_id)
            if kernel_id in self:
                await self.shutdown_kernel(kernel_id, now=True)
            raise
        finally:
            self.starting.remove(kernel_id)
            self.abandoned.discard(kernel_id)

    def end_with(self, handler: Any, kernel_id: str) -> None:
        """End a kernel whose page closes before it is complete: such a page cannot ask for it."""
        if handler is None:
            return

        def abandon() -> None:
            handler.on_connection_close()
            if kernel_id in self.starting:
                self.abandoned.add(kernel_id)
            elif kernel_id in self:
                IOLoop.current().add_callback(self.shutdown_kernel, kernel_id, now=True)

        handler.request.connection.set_close_callback(abandon)

    def pages(self) -> set[str]:
        """Return the kernels that have a page, or will have one."""
        return self.starting.union(self.list_kernel_ids())

    async def shutdown_kernel(self, kernel_id: str, *args: Any, **settings: Any) -> None:  # type: ignore[override]
        """End a kernel, and free the memory that Voila used for its page."""
        await super().shutdown_kernel(kernel_id, *args, **settings)  # type: ignore[no-untyped-call]
        self.has_opened(kernel_id)
        # A page leaves 2 MB in cycles, of so few objects that Python would collect only after hundreds of
        # pages.
        gc.collect()

    def notify_connect(self, kernel_id: str) -> None:
        """Record a page's socket, which it opens when it is about to draw."""
        super().notify_connect(kernel_id)  # type: ignore[no-untyped-call]
        self.has_opened(kernel_id)

    def has_opened(self, kernel_id: str) -> None:
        """Give a kernel's turn to the next."""
        timer = self.opening.pop(kernel_id, None)
        if timer is not None:
            timer.cancel()
            self.turns.release()
