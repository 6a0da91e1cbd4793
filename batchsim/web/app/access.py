"""Who may reach the app, and what its pages may load: the address, the token, and the headers."""

import logging
import re
import socket
from contextvars import ContextVar
from ipaddress import ip_address
from traceback import walk_tb
from typing import Any

from jupyter_server.auth.identity import IdentityProvider, User
from tornado.web import HTTPError

from batchsim._format import in_one_line

ASKING: ContextVar[Any] = ContextVar("ASKING", default=None)  # the request that the current task serves
LOOPBACK = "127.0.0.1"
SHORTEST, LEAST_DIFFERENT = 16, 8  # characters of a token for other machines
MOST_PAGES = 1000
MB_A_PAGE = 205  # see docs/class.md
THEMES = ("light", "dark")

# Scripts come only from this server's files, so text that reaches the page never runs. Two exceptions:
# JupyterLab compiles JSON schemas ('unsafe-eval'), and anywidget imports the picture's code from a blob.
# Sockets are listed because older browsers do not include them in 'self'.
POLICY = {
    "default-src": "'self'",
    "script-src": "'self' 'unsafe-eval' blob:",
    "style-src": "'self' 'unsafe-inline'",
    "img-src": "'self' data: blob:",
    "font-src": "'self' data:",
    "connect-src": "'self' data: blob: ws://127.0.0.1:* ws://localhost:*",
    "object-src": "'none'",
    "base-uri": "'none'",
    "form-action": "'self'",
    "frame-ancestors": "'self'",
}
HEADERS = {
    "Content-Security-Policy": "; ".join(f"{name} {sources}" for name, sources in POLICY.items()),
    "Referrer-Policy": "no-referrer",  # the address holds the token
}


def listening(host: str, token: str) -> tuple[str, str | None]:
    """Return the address to listen on and the token; None: Jupyter draws a token at each start.

    Other machines reach the app only if `host` allows it, and then only with a token that is hard to guess:
    ValueError otherwise.

    >>> listening("", "")
    ('127.0.0.1', None)
    >>> listening("0.0.0.0", "tulip")
    Traceback (most recent call last):
    ValueError: TOKEN must have at least 16 letters, 8 of them different, for other machines, got 5
    """
    if not re.fullmatch(r"[\w.~-]*", token, re.ASCII):
        raise ValueError("TOKEN must consist of letters, digits and - . _ ~: it is part of an address")
    if not host or _is_loopback(host):
        return host or LOOPBACK, token or None
    if len(token) < SHORTEST or len(set(token)) < LEAST_DIFFERENT:
        rule = f"at least {SHORTEST} letters, {LEAST_DIFFERENT} of them different"
        raise ValueError(f"TOKEN must have {rule}, for other machines, got {len(token)}")
    return host, token


def pages(text: str) -> int:
    """Return how many pages may be open at once."""
    if not re.fullmatch(r"[0-9]+", text) or not 1 <= int(text) <= MOST_PAGES:
        raise ValueError(f"PAGES must be a whole number from 1 to {MOST_PAGES:,}, got {text!r}")
    return int(text)


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


class TokenAccess(IdentityProvider):
    """Admits requests with the token or a cookie from an earlier one; others get 403 and no login form."""

    login_available = False
    logout_available = False

    async def get_user(self, handler: Any) -> User:
        """Return the user; HTTPError 403, shown as 403.html, without a token."""
        user = await self._get_user(handler)
        if user is None:
            handler.current_user = handler._jupyter_current_user = None
            raise HTTPError(403)
        return user


class HideTokens(logging.Filter):
    """Removes tokens from the log, where Tornado writes the address of each refused request.

    An error in others' code is one line, as of a path that they cannot read, whose answer has the status 500,
    or of a page that is left while its kernel starts.

    >>> record = logging.makeLogRecord({"msg": "503 GET %s", "args": ("/?token=tulips&theme=dark",)})
    >>> HideTokens().filter(record), record.getMessage()
    (True, '503 GET /?token=...&theme=dark')
    """

    LOGGERS = "tornado.access", "tornado.general", "tornado.application", "asyncio"

    def filter(self, record: logging.LogRecord) -> bool:
        """Remove tokens and others' tracebacks from a record, and keep the record."""
        text, (kind, error, trace) = record.getMessage(), record.exc_info or (None, None, None)
        modules = (frame.f_globals["__name__"] for frame, _ in walk_tb(trace))  # a template's is its path
        if kind and not any(module.partition(".")[0] == "batchsim" for module in modules):
            text, record.exc_info = f"{text}: {kind.__name__}: {error}", None
        record.msg, record.args = in_one_line(without_token(text)), ()
        return True


def without_token(text: str) -> str:
    """Return a text in which the tokens of addresses are left out.

    >>> without_token("http://host/?token=tulips&theme=dark")
    'http://host/?token=...&theme=dark'
    """
    return re.sub(r"(token=)[\w.~%-]+", r"\1...", text)


def instructions(host: str, port: int, token: str, pages: int) -> str:
    """Return the lines for the teacher: the class's address, the memory, and who can read the traffic."""
    gigabytes = pages * MB_A_PAGE / 1000
    network = (
        "The app listens on this computer alone: other computers do not reach it (HOST)."
        if _is_loopback(host)
        else "This is HTTP without encryption: anyone who can read the network's traffic can read the token."
    )
    return (
        f"The class opens http://{name_of(host)}:{port}/?token={token}\n"
        f"At most {pages} pages at once (PAGES), about {MB_A_PAGE} MB each: {gigabytes:.1f} GB in all.\n"
        f"{network}"
    )


def name_of(host: str) -> str:
    """Return the name that other machines use for the address."""
    if ":" in host and host != "::":
        return f"[{host}]"
    if host not in ("0.0.0.0", "::"):
        return host
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as here:
        try:
            here.connect(("192.0.2.1", 9))  # a reserved address: this picks a route and sends nothing
            return str(here.getsockname()[0])
        except OSError:
            return socket.gethostname()


def theme_of(text: str) -> str:
    """Return the theme that an address names, or the first theme if it names no valid one.

    >>> theme_of("dark"), theme_of('"><script>')
    ('dark', 'light')
    """
    return text if text in THEMES else THEMES[0]


def prepare(handler: Any, notebook: Any, cwd: str) -> None:
    """Prepare a page before its kernel starts: Voila's `prelaunch_hook`."""
    # Without this, Voila would copy the `theme=` of an address into the page, unescaped.
    asked = handler.get_query_argument("theme", "")
    # The page follows the browser's preference unless its address names a theme.
    notebook.metadata["voila"] = {"theme": theme_of(asked), "follows": asked not in THEMES}
    # A page that closes asks Voila to end its kernel. Voila requires the XSRF cookie with that request, and
    # sets the cookie only when its value is read.
    _ = handler.xsrf_token
    ASKING.set(handler)
