"""What a class sends to the app, and what the projector shows of it."""

import http.client
import json
import re
from urllib.parse import urlsplit

from browser.servers import Server

from batchsim.web.app.classroom import CHOICES, COOKIE, LETTERS


def teacher_token(server: Server) -> str:
    return re.findall(r"teacher_token=([\w-]+)", (server.folder.parent / "log").read_text())[0]


def asked(server, path, body=None, **headers):
    """Return the status of an answer, its headers, and its text."""
    line = http.client.HTTPConnection(urlsplit(server.url).netloc, timeout=300)
    try:
        line.request("GET" if body is None else "POST", path, body, headers)
        answer = line.getresponse()
        return answer.status, answer.headers, answer.read().decode()
    finally:
        line.close()


def shown(server, text=None):
    """Return the projector's questions, or those with a text."""
    answer = asked(server, f"/class/votes?teacher_token={teacher_token(server)}")
    assert answer[0] == 302  # the token goes into a cookie
    answer = asked(server, "/class/votes", Cookie=f"{COOKIE}={teacher_token(server)}")
    return [each for each in json.loads(answer[2])["questions"] if text in (None, each["text"])]


STUDENT = "0123456789abcdef" * 2
ANSWER = {
    "question": "p99?",
    "choices": ["falls", "stays", "rises"],
    "right": 2,
    "student": STUDENT,
    "chosen": 0,
}
WRONG = [
    None, 1, "x", [], [1, 2, 3, 4, 5], {}, {"question": "p99?"},
    *({**ANSWER, "question": value} for value in ("", "x" * (LETTERS + 1), None, 3, ["p99?"])),
    *({**ANSWER, "choices": value} for value in (
        [], ["one"], "falls", {"a": 1, "b": 2}, ["a", 2], ["a", None, "c"], ["a", ""],
        ["a", "b" * (LETTERS + 1)], ["x"] * (CHOICES + 1), [["a"], ["b"]],
    )),
    *({**ANSWER, "chosen": value} for value in (-1, 3, 10**400, 1.0, "1", None, True, [0])),
    *({**ANSWER, "right": value} for value in (-1, 3, 0.5, "rises", False, "", [], {})),
    *({**ANSWER, "student": value} for value in (
        "", "ann", STUDENT + "0", STUDENT.upper(), None, 7, STUDENT[:-1] + "\n",
    )),
]  # fmt: skip
