"""Text as the HTML that the explorer's widgets show."""

import html


def line(text: str, role: str = "status") -> str:
    """Return text as HTML that a screen reader says when it changes; role "alert": at once."""
    return f'<div role="{role}">{html.escape(text)}</div>'


def refusal(text: str) -> str:
    """Return why something was refused, as HTML."""
    return f'<div role="alert" class="batchsim-refusal">{html.escape(text)}</div>'
