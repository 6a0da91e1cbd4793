"""Requests of the app that no browser sends: each gets an answer, and the log a line of letters."""

import json
import random
import socket
from pathlib import Path
from urllib.parse import quote, urlsplit

from browser.servers import TOKEN, running
from classes import ANSWER

from attack.files import OTHERS, damaged, edit
from attack.terminal import EVIL

METHODS = [
    "GET",
    "GET",
    "GET",
    "POST",
    "POST",
    "PUT",
    "DELETE",
    "PATCH",
    "HEAD",
    "OPTIONS",
    "FOO",
    "TRACE",
    "get",
]
PLACES = [
    "/class", "/class/answers", "/class/votes", "/api/kernels", "/api/kernels/x/channels", "/custom",
    "/voila/templates", "/voila/static", "/voila/files", "/voila/render", "/voila/api/shutdown", "/static",
    "/voila/labextensions", "/voila/themes", "/nbextensions", "/voila/tree", "/x", "/login", "/logout",
]  # fmt: skip
PARTS = [
    "..",
    ".",
    "%00",
    "%ff",
    "%2f",
    "%5c",
    "%0a",
    "%1b[2J",
    "a" * 300,
    "x",
    "x.ipynb",
    "offline",
    "é",
    "%e2%80%ae",
]
REQUESTS = 200


def _body(rng: random.Random) -> bytes:
    """Return an answer for the class's chart, edited or damaged."""
    message = dict(ANSWER)
    edit(rng, message, [*OTHERS, *EVIL, 10**400])
    text = json.dumps(message).encode(errors="surrogateescape")
    return damaged(rng, text) if rng.random() < 0.3 else b"[" * 10**5 if rng.random() < 0.1 else text


def attack_addresses(rng: random.Random, folder: Path) -> str:
    """No path and no method writes a traceback to the app's log, or what a terminal obeys."""
    home = folder / f"app-{rng.random()}"
    home.mkdir()
    with running("app", home) as server:
        place = urlsplit(server.url)
        for _ in range(REQUESTS):
            parts = [rng.choice(PARTS) for _ in range(rng.randrange(4))]
            path = quote("/".join([rng.choice(PLACES), *parts]), safe="/%[]")
            method, body = rng.choice(METHODS), _body(rng)
            query = rng.choice(["", f"?token={TOKEN}", f"?token={TOKEN}&theme=%ff", "?token=%ff"])
            lines = [
                f"{method} {path}{query} HTTP/1.1",
                f"Host: {place.netloc}",
                f"Authorization: token {rng.choice([TOKEN, TOKEN, 'x'])}",
                f"Content-Length: {len(body)}",
                "Connection: close",
            ]
            with socket.create_connection((place.hostname, place.port), timeout=60) as asked:
                asked.sendall("\r\n".join([*lines, "", ""]).encode() + body)
                assert asked.recv(9) in (b"HTTP/1.1 ", b""), lines[0]
    log = (home / "log").read_text(errors="surrogateescape")
    assert "Traceback" not in log, log.partition("Traceback")[2][:300]
    hidden = {letter for letter in log if not letter.isprintable() and letter not in "\n\t"}
    assert not hidden, hidden
    return "answered"
