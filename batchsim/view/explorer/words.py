"""A line of text as HTML, for screen readers too."""

import html


def line(text: str, role: str = "status") -> str:
    """Return text as HTML that a screen reader says when it changes; role "alert" at once."""
    return f'<div role="{role}">{html.escape(text)}</div>'
