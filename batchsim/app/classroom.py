"""The class's part of the app: where answers arrive, the projector's page, and who may use which."""

import json
from collections.abc import Callable
from secrets import compare_digest, token_urlsafe
from typing import Any

from tornado.web import HTTPError, RequestHandler
from traitlets import Unicode

from batchsim._vote import ADDRESS, PATH, STUDENT
from batchsim.app.access import ASKING, HEADERS, TokenAccess, name_of
from batchsim.app.votes import Votes

COOKIE = "batchsim-teacher"
MOST_BYTES = 2**17  # of a message: an answer with the longest texts, in JSON's escapes


class ClassAccess(TokenAccess):
    """Adds the class's addresses, with a token for the teacher, and one that can only send answers."""

    teacher_token = Unicode(config=True, help="Opens the projector's page.")

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.votes, self.answers_token = Votes(), token_urlsafe()

    def get_handlers(self) -> list[Any]:
        """Return the class's addresses."""
        own = [(PATH, Students, {"access": self}), (r"/class(/votes)?", Teacher, {"access": self})]
        return super().get_handlers() + own


def environment(app: Any) -> dict[str, str]:
    """Return what a page's kernel needs to send answers, not the app's token; nothing without a class."""
    access = getattr(app, "identity_provider", None)
    if not isinstance(access, ClassAccess) or not access.token or access.token_generated:
        return {}
    here = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(app.ip, app.ip)
    found = {ADDRESS: f"http://{name_of(here)}:{app.port}/?token={access.answers_token}"}
    # A page that is reloaded is the same student.
    return found | ({STUDENT: page.current_user.username} if (page := ASKING.get()) else {})


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
        self.set_status(204)

    def post(self) -> None:
        """Count an answer."""
        self.take(lambda message: self.votes.add(message, self.request.remote_ip))


class Teacher(Handler):
    """The projector's page, and its counts."""

    def prepare(self) -> None:
        """Admit the teacher, whose token becomes a cookie: a projector must not show it."""
        given = self.get_query_argument("teacher_token", "")
        self.allow(given or self.get_cookie(COOKIE) or "", self.access.teacher_token)
        if given:
            self.set_cookie(COOKIE, given, path="/class", httponly=True, samesite="Lax")
            self.redirect("/class")

    def get(self, votes: str | None) -> None:
        """Send the counts; the page, with the address for the class."""
        if votes:
            self.write({"questions": self.votes.shown()})
        else:
            app, page = self.settings["voila"], self.settings["voila_jinja2_env"].get_template("class.html")
            self.write(page.render(host=f"{name_of(app.ip)}:{app.port}", token=self.access.token))

    def post(self, votes: str | None) -> None:
        """Reveal, hide or remove a question."""
        self.take(self.votes.change)
