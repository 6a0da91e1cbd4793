"""A committed prediction's way to the class's chart: without a name, in the background, never in the way."""

import hashlib
import http.client
import json
import os
import platform
import secrets
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing, suppress
from typing import NamedTuple
from urllib.parse import parse_qs, urlsplit

from batchsim._compat import need_computer

ADDRESS, STUDENT = "BATCHSIM_CLASS", "BATCHSIM_STUDENT"  # environment variables
PATH = "/class/answers"
MEMBER = "X-Member"  # the header that tells one member of the class from another
PAUSES_S = 0.0, 0.5, 2.0, 5.0  # before each try
TIMEOUT_S = 5.0
_SELF = secrets.token_hex()  # this kernel, where nothing lasts longer


class Vote(NamedTuple):
    """A committed answer; `right` is None if there is no right one."""

    question: str
    choices: list[str]
    chosen: str
    right: str | None


def joined() -> bool:
    """Return whether this kernel's predictions go to a class."""
    return bool(os.environ.get(ADDRESS))


def join(address: str) -> None:
    """Send predictions that are committed from now on to a class's chart, without a name; "": to none.

    The app prints the address for the class, and the projector shows it. The variable BATCHSIM_CLASS joins a
    class for all kernels.
    """
    os.environ.pop(ADDRESS, None)
    if address:
        need_computer("joining a class")
        refusal = _asked(address, "GET")
        if not refusal:
            os.environ[ADDRESS] = address
        joined = "Joined the class: its chart shows your predictions, without your name"
        print(f"{refusal or joined}.")


def send(votes: Iterable[Vote], tell: Callable[[str], None], student: str = _SELF) -> None:
    """Send votes to the class without waiting; `tell` gets a sentence if they do not arrive.

    `student` is random: its hash with the question lets a later answer replace the earlier one.
    """
    address, whose = os.environ.get(ADDRESS, ""), os.environ.get(STUDENT) or platform.node() + student

    def run() -> None:
        for question, choices, chosen, right in votes:
            name = hashlib.sha256(json.dumps([whose, question, *choices]).encode()).hexdigest()[:32]
            message = {
                "question": question, "choices": choices, "student": name, "chosen": choices.index(chosen),
                "right": None if right is None else choices.index(right),
            }  # fmt: skip
            if refusal := _asked(address, "POST", json.dumps(message), PAUSES_S):
                return tell(f"{refusal}: the chart lacks your prediction.")

    threading.Thread(target=run, daemon=True).start()


def _member() -> str:
    """Return what tells this student from the others who join, and nothing else: the same in every kernel."""
    whose = f"{platform.node()} {os.path.expanduser('~')}"
    return hashlib.sha256(whose.encode(errors="replace")).hexdigest()[:32]


def _asked(address: str, method: str, body: str = "", pauses_s: Sequence[float] = (0.0,)) -> str:
    """Return why the class's server does not take a message; "" if it does."""
    try:
        place = urlsplit(address)
        kind = {"http": http.client.HTTPConnection, "https": http.client.HTTPSConnection}[place.scheme]
        # Straight to the class, and not to where a proxy or an answer might lead.
        connection = kind(place.hostname or "?", place.port, timeout=TIMEOUT_S)
        headers = {"Authorization": "token " + parse_qs(place.query).get("token", [""])[0], MEMBER: _member()}
        for pause_s in pauses_s:
            time.sleep(pause_s)
            with suppress(OSError, http.client.HTTPException), closing(connection):
                connection.request(method, place.path.rstrip("/") + PATH, body, headers)
                answer = connection.getresponse()
                why = answer.read(200).decode(errors="replace")
                if answer.headers.get_content_type() != "text/plain":
                    why = f"HTTP {answer.status} {answer.reason}"
                if answer.status < 500:
                    return "" if answer.status == 204 else f"The class's server refuses, {why}"
    except (KeyError, ValueError, AttributeError, http.client.InvalidURL):
        return f"A class's address must be like http://192.168.1.7:8888/?token=..., got {address!r:.80}"
    return f"The class's server, {place.hostname}, does not answer"
