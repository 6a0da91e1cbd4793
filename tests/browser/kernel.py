"""A word with the kernel of a notebook, past the page."""

import ast
import json
from pathlib import Path
from typing import Any

import zmq
from jupyter_client.session import Session


class Kernel:
    """What a kernel says, asked without a page and without an event loop: Playwright has its own.

    `connection` is the kernel's connection file.
    """

    def __init__(self, connection: Path) -> None:
        said = json.loads(connection.read_text())
        self.session = Session(key=said["key"].encode(), signature_scheme=said["signature_scheme"])
        self.context = zmq.Context()
        self.shell = self.context.socket(zmq.DEALER)
        self.shell.connect(f"{said['transport']}://{said['ip']}:{said['shell_port']}")
        self.last = ""  # the message that was run last

    def close(self) -> None:
        self.shell.close(linger=0)
        self.context.term()

    def run(self, source: str, result: str = "None", timeout_s: float = 300) -> Any:
        """Run Python, then return the value of an expression, which JSON can say."""
        return self._answer(self._ask(source, result), timeout_s, source or result)

    def start(self, source: str) -> str:
        """Begin to run Python without waiting for its end: see `wait`."""
        return self._ask(source, "None")

    def wait(self, started: str, timeout_s: float = 300) -> None:
        """Wait for the end of what `start` began."""
        self._answer(started, timeout_s, started)

    def _ask(self, source: str, result: str) -> str:
        asked = {
            "code": source,
            "silent": False,
            "store_history": False,
            "user_expressions": {"it": f"__import__('json').dumps({result})"},
            "allow_stdin": False,
            "stop_on_error": True,
        }
        sent = self.session.send(self.shell, "execute_request", asked)
        self.last = sent["header"]["msg_id"]
        return self.last

    def _answer(self, asked: str, timeout_s: float, what: str) -> Any:
        while self.shell.poll(timeout_s * 1000):
            _, parts = self.session.feed_identities(self.shell.recv_multipart())
            reply = self.session.deserialize(parts)
            if reply["parent_header"].get("msg_id") == asked:
                content = reply["content"]
                assert content["status"] == "ok", "\n".join(content.get("traceback", []))
                it = content["user_expressions"]["it"]
                assert it["status"] == "ok", it
                return json.loads(ast.literal_eval(it["data"]["text/plain"]))  # a repr of JSON
        raise TimeoutError(f"no answer in {timeout_s} s to: {what}")

    def ask(self, expression: str) -> Any:
        return self.run("", expression)
