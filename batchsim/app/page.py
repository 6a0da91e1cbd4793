"""What each page of the app is sent with: what it may load, the theme, and the right to end its session."""

from contextvars import ContextVar
from typing import Any

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
