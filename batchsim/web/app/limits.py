"""How much one page may ask of the shared server: messages of its socket, and memory of its kernel."""

import time
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from jupyter_server.services.kernels.connection.channels import ZMQChannelsWebsocketConnection
from jupyter_server.services.kernels.kernelmanager import ServerKernelManager
from tornado.web import HTTPError

from batchsim.web.app.access import without_token

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
