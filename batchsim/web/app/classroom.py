"""The class's part of the app: answers, the projector's page, and who may use which.

Answers are counted in memory, without names, in bounded number; they end with the server.
"""

import io
import json
import re
from collections import Counter
from collections.abc import Callable
from secrets import compare_digest, token_urlsafe
from typing import Any

from tornado.web import HTTPError, RequestHandler
from traitlets import Unicode

from batchsim import _compat
from batchsim.view.voting import ADDRESS, MEMBER, PATH, STUDENT
from batchsim.web.app.access import ASKING, HEADERS, TokenAccess, name_of

QUESTIONS, STUDENTS, CHOICES, LETTERS = 100, 1000, 10, 500  # at most: questions, and of each
STATES = {"open": "open", "close": "closed", "reveal": "revealed"}
NAMELESS = re.compile("[0-9a-f]{32}")  # random, and another one for each question
RULE = (
    f"an answer must have a question and 2 to {CHOICES} choices of 1 to {LETTERS} letters each, the numbers "
    "of the chosen and the right choice, and a student of 32 hexadecimal digits"
)


class Question:
    """A question, and each student's latest answer."""

    def __init__(self, number: int, text: str, choices: list[str], right: int | None, sender: Any) -> None:
        self.number, self.text, self.choices, self.right, self.sender = number, text, choices, right, sender
        self.answers: dict[str, int] = {}
        self.state = "open"  # to answers; then "closed", when the projector shows them, and "revealed"

    def shown(self) -> dict[str, Any]:
        """Return what the projector shows: not the right choice, unless it is revealed."""
        counts = [0] * len(self.choices)
        for chosen in self.answers.values():
            counts[chosen] += 1
        shown = {name: value for name, value in vars(self).items() if name not in ("answers", "sender")}
        return shown | {"counts": counts, "right": self.right if self.state == "revealed" else None}


class Votes:
    """The questions of a class, in the order of their first answers.

    >>> votes = Votes()
    >>> answer = {"question": "p99?", "choices": ["falls", "rises"], "right": 1, "student": "a" * 32}
    >>> for chosen in (0, 1):  # the same student changes the answer
    ...     votes.add(answer | {"chosen": chosen})
    >>> [question["counts"] for question in votes.shown()]
    [[0, 1]]
    """

    def __init__(self) -> None:
        self.asked, self.questions = 0, dict[tuple[Any, ...], Question]()
        self.members: set[str] = set()  # of the class, each under a name that tells nothing

    def add(self, message: Any, sender: Any = "") -> None:
        """Count an answer; ValueError if it makes no sense, or if this sender has filled the chart."""
        try:
            names = "question", "choices", "right", "student", "chosen"
            text, choices, right, student, chosen = (message[name] for name in names)
            fits = (
                type(choices) is list and 2 <= len(choices) <= CHOICES
                and all(type(each) is str and 1 <= len(each) <= LETTERS for each in (text, *choices))
                and all(type(each) is int and each in range(len(choices))
                    for each in (chosen, 0 if right is None else right))
                and NAMELESS.fullmatch(student)
            )  # fmt: skip
        except (TypeError, LookupError):
            fits = None
        if not fits:
            raise ValueError(f"{RULE}, got {message!r:.80}")
        key = (text, *choices, right)
        question = self.questions.get(key) or Question(self.asked + 1, text, choices, right, sender)
        if question.number > self.asked and len(self.questions) == QUESTIONS:
            most = Counter(each.sender for each in self.questions.values()).most_common(1)[0][0]
            if most == sender:
                raise ValueError(
                    f"the chart must have at most {QUESTIONS} questions: the teacher can remove some"
                )
            theirs = [key for key, each in self.questions.items() if each.sender == most]
            del self.questions[min(theirs, key=lambda key: len(self.questions[key].answers))]
        if question.state != "open":
            raise ValueError("the vote on this question is closed")
        if student not in question.answers and len(question.answers) == STUDENTS:
            raise ValueError(f"a question must have at most {STUDENTS:,} answers")
        self.questions[key], self.asked = question, max(self.asked, question.number)
        question.answers[student] = chosen

    def join(self, member: str) -> None:
        """Count a member of the class, once."""
        if member and len(self.members) < STUDENTS:
            self.members.add(member)

    def change(self, message: Any) -> None:
        """Close, reveal, open or remove a question, as {"number": 3, "do": "close"}; else ValueError."""
        do = message.get("do") if isinstance(message, dict) else None
        if do not in (*STATES, "remove"):
            rule = "a teacher must close, reveal, open or remove a question"
            raise ValueError(f"{rule}, got {message!r:.80}")
        for key, question in list(self.questions.items()):
            if question.number == message.get("number"):
                if do == "remove":
                    del self.questions[key]
                else:
                    question.state = STATES[do]

    def shown(self) -> list[dict[str, Any]]:
        """Return what the projector shows, the first question first."""
        return [question.shown() for question in self.questions.values()]


COOKIE = "batchsim-teacher"
LONGEST = 500  # letters of an address, or of a member's name
MOST_BYTES = 2**17  # of a message: an answer with the longest texts, in JSON's escapes


class ClassAccess(TokenAccess):
    """Adds the class's addresses, with a token for the teacher, and one that can only send answers."""

    teacher_token = Unicode(config=True, help="Opens the projector's page.")

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.votes, self.answers_token = Votes(), token_urlsafe()

    def get_handlers(self) -> list[Any]:
        """Return the class's addresses."""
        own = [(PATH, Students, {"access": self}), (r"/class(/votes|/code)?", Teacher, {"access": self})]
        return super().get_handlers() + own


def environment(app: Any) -> dict[str, str]:
    """Return what a page's kernel needs to send answers, not the app's token; nothing without a class."""
    access = getattr(app, "identity_provider", None)
    if not isinstance(access, ClassAccess) or not access.token or access.token_generated:
        return {}
    here = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(app.ip, app.ip)
    found = {ADDRESS: f"http://{name_of(here)}:{app.port}/?token={access.answers_token}"}
    if page := ASKING.get():  # one that is reloaded is the same student
        found[STUDENT] = page.current_user.username
        access.votes.join(page.current_user.username)
    return found


class Handler(RequestHandler):
    """What students and the teacher have in common."""

    def initialize(self, access: ClassAccess) -> None:
        """Keep the class."""
        self.access, self.votes = access, access.votes

    def set_default_headers(self) -> None:
        """Send the headers of the app's pages."""
        for name, value in (*HEADERS.items(), ("Cache-Control", "no-store")):
            self.set_header(name, value)

    def allow(self, given: str, *tokens: str) -> None:
        """Refuse a request without one of the tokens."""
        if not any(token and compare_digest(given.encode(), token.encode()) for token in tokens):
            raise HTTPError(403, reason="This address needs its token, which the app printed at its start")

    def take(self, act: Callable[[Any], None]) -> None:
        """Act on the message that was sent, or refuse it in a sentence."""
        try:
            if len(self.request.body) > MOST_BYTES:
                raise ValueError(f"a message must have at most {MOST_BYTES:,} bytes")
            act(json.loads(self.request.body))
            self.set_status(204)
        except (ValueError, RecursionError) as error:
            self.set_status(400)
            self.set_header("Content-Type", "text/plain")
            self.write(str(error).encode(errors="replace"))


class Students(Handler):
    """Where answers arrive."""

    def prepare(self) -> None:
        """Admit students, and the kernels of their pages."""
        given = self.request.headers.get("Authorization", "").removeprefix("token ")
        self.allow(given, self.access.token, self.access.answers_token)

    def get(self) -> None:
        """Admit a student who joins."""
        self.votes.join(self.request.headers.get(MEMBER, "")[:LONGEST])
        self.set_status(204)

    def post(self) -> None:
        """Count an answer."""
        self.take(lambda message: self.votes.add(message, self.request.remote_ip))


class Teacher(Handler):
    """The projector's page, its counts, and its code."""

    def prepare(self) -> None:
        """Admit the teacher, whose token becomes a cookie: a projector must not show it."""
        given = self.get_query_argument("teacher_token", "")
        self.allow(given or self.get_cookie(COOKIE) or "", self.access.teacher_token)
        if given:
            self.set_cookie(COOKIE, given, path="/class", httponly=True, samesite="Lax")
            self.redirect("/class")

    def get(self, part: str | None) -> None:
        """Send the counts; an address as a QR code; the page, with the address for the class."""
        if part == "/votes":
            self.write({"questions": self.votes.shown(), "members": len(self.votes.members)})
        elif part:
            self.set_header("Content-Type", "image/svg+xml")
            self.write(code(self.get_query_argument("address")))
        else:
            app, page = self.settings["voila"], self.settings["voila_jinja2_env"].get_template("class.html")
            self.write(page.render(host=f"{name_of(app.ip)}:{app.port}", token=self.access.token))

    def post(self, part: str | None) -> None:
        """Close, reveal, open or remove a question."""
        self.take(self.votes.change)


def code(address: str) -> bytes:
    """Return an address as a QR code, in SVG."""
    _compat.need("segno")
    import segno

    drawn = io.BytesIO()
    segno.make(address[:LONGEST], micro=False).save(drawn, kind="svg", light="#fff", border=2, scale=4)
    return drawn.getvalue()
