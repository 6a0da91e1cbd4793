"""How much one page may ask of the shared server: messages of its socket, and memory of its kernel."""

import time
from collections.abc import Mapping
from typing import Any

from jupyter_server.services.kernels.connection.channels import ZMQChannelsWebsocketConnection
from jupyter_server.services.kernels.kernelmanager import ServerKernelManager

from batchsim.app.access import without_token

# A drag of a slider sends 60 messages a second; a page that opens asks for the states of its widgets once.
MESSAGES_PER_S, BURST = 200.0, 1_000.0
STATES = 250.0  # messages that a request for the states of all widgets counts as
MOST_BYTES = 2**20  # of a message
POLICY_VIOLATION = 1008  # of RFC 6455
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


class PageSocket(ZMQChannelsWebsocketConnection):
    """A page's connection to its kernel, closed when it sends more than a reader and a browser can."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.allowance = Allowance()
        self.allowance.since_s = time.monotonic()

    def handle_incoming_message(self, incoming_msg: Any) -> None:
        """Pass a message on, or close the page that sent too many."""
        data = incoming_msg if isinstance(incoming_msg, bytes) else incoming_msg.encode()
        count = STATES if b"request_states" in data[:MOST_BYTES] else 1.0
        if self.allowance.take(count, time.monotonic()):
            super().handle_incoming_message(incoming_msg)
        else:
            self.log.warning("A page sent too many messages: its socket is closed.")
            self.websocket_handler.close(POLICY_VIOLATION, "too many messages")


class PageKernel(ServerKernelManager):
    """A page's kernel: in a process with a limit on its memory, and without the server's token."""

    def format_kernel_cmd(self, extra_arguments: list[str] | None = None) -> list[str]:
        """Return the command of a kernel, with `batchsim.app.kernel` in place of ipykernel's own module."""
        command = super().format_kernel_cmd(extra_arguments)
        return ["batchsim.app.kernel" if part == "ipykernel_launcher" else part for part in command]


def without_secrets(environment: Mapping[str, str]) -> dict[str, str]:
    """Return variables of an environment without the server's token, also where an address holds it."""
    return {name: without_token(str(value)) for name, value in environment.items() if name not in TOKENS}
