"""Who may reach the app, and what a page may load: its address, its token, and the headers of each page."""

import logging
import re
import socket
from contextvars import ContextVar
from ipaddress import ip_address
from typing import Any

from jupyter_server.auth.identity import IdentityProvider, User
from tornado.web import HTTPError

# Who asks for the page that the present task prepares.
ASKING: ContextVar[Any] = ContextVar("ASKING", default=None)

THEMES = ("light", "dark")

# Scripts come from files of this server alone: whatever text reaches the page, none of it runs. JupyterLab's
# own code makes functions of text ('unsafe-eval': its JSON schemas), and anywidget imports the picture's code
# from a blob. Sockets are named because older browsers do not count them as 'self'.
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


def theme_of(text: str) -> str:
    """Return the theme that an address asks for, the first one where it asks for none that there is.

    >>> theme_of("dark"), theme_of('"><script>')
    ('dark', 'light')
    """
    return text if text in THEMES else THEMES[0]


def prepare(handler: Any, notebook: Any, cwd: str) -> None:
    """Prepare a page before its kernel starts: Voila's `prelaunch_hook`."""
    # Voila by itself would write whatever `theme=` an address has into the page, unescaped.
    notebook.metadata["voila"] = {"theme": theme_of(handler.get_query_argument("theme", ""))}
    # A page that is closed or reloaded asks Voila to end its kernel, which Voila does for those who send the
    # value of a cookie along: a cookie that nothing sets before somebody asks for its value.
    _ = handler.xsrf_token
    ASKING.set(handler)


LOOPBACK = "127.0.0.1"
SHORTEST = 16  # letters of a token for others than this machine
LEAST_DIFFERENT = 8
MOST_PAGES = 1000
MB_A_PAGE = 205  # see docs/class.md


def listening(host: str, token: str) -> tuple[str, str | None]:
    """Return the address to listen on and the token, None for one that is drawn at each start.

    Other machines reach the app only where `host` says so, and then only with a token that nobody guesses:
    ValueError otherwise.

    >>> listening("", "")
    ('127.0.0.1', None)
    >>> listening("0.0.0.0", "tulip")
    Traceback (most recent call last):
    ValueError: TOKEN must have at least 16 letters, 8 of them different, for other machines, got 5
    """
    if not re.fullmatch(r"[\w.~-]*", token, re.ASCII):
        raise ValueError("TOKEN must be of letters, digits and - . _ ~ alone: it is a part of an address")
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


class Door(IdentityProvider):
    """Lets in who has the token, or came in with it before; 403 for others, and no form to guess in."""

    login_available = False
    logout_available = False

    async def get_user(self, handler: Any) -> User:
        """Return who asks, or raise HTTPError 403, for which the page is 403.html."""
        user = await self._get_user(handler)
        if user is None:
            handler.current_user = handler._jupyter_current_user = None
            raise HTTPError(403)
        return user


class Discreet(logging.Filter):
    """Writes no token of an address into the log: Tornado writes the address of each request it refuses.

    >>> record = logging.makeLogRecord({"msg": "503 GET %s", "args": ("/?token=tulips&theme=dark",)})
    >>> Discreet().filter(record), record.getMessage()
    (True, '503 GET /?token=...&theme=dark')
    """

    LOGGERS = "tornado.access", "tornado.general", "tornado.application"

    def filter(self, record: logging.LogRecord) -> bool:
        """Take tokens out of a record, which is always written."""
        record.msg, record.args = re.sub(r"(token=)[\w.~%-]+", r"\1...", record.getMessage()), ()
        return True


def said(host: str, port: int, token: str, pages: int) -> str:
    """Return what a teacher is to know of an app that others than this machine can reach."""
    gigabytes = pages * MB_A_PAGE / 1000
    return "\n".join(
        [
            f"The class opens http://{_name(host)}:{port}/?token={token}",
            f"At most {pages} pages at once (PAGES), some {MB_A_PAGE} MB each: {gigabytes:.1f} GB in all.",
            "This is HTTP without encryption: who can read the network's traffic can read the token.",
        ]
    )


def _name(host: str) -> str:
    """Return the name by which others call the address that is listened on."""
    if ":" in host and host != "::":
        return f"[{host}]"
    if host not in ("0.0.0.0", "::"):
        return host
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as here:
        try:
            here.connect(("192.0.2.1", 9))  # of nobody: it chooses the way out, and sends nothing
            return str(here.getsockname()[0])
        except OSError:
            return socket.gethostname()
