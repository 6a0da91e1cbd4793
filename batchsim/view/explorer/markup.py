"""Text as the HTML that the explorer's widgets show."""

import html


def line(text: str, role: str = "status") -> str:
    """Return text as HTML that a screen reader says when it changes; role "alert": at once."""
    return f'<div role="{role}">{html.escape(text)}</div>'


def refusal(text: str) -> str:
    """Return why something was refused, as HTML."""
    return f'<div role="alert" class="batchsim-refusal">{html.escape(text)}</div>'


def table(heads: list[str], rows: list[list[str]]) -> str:
    """Return a table as HTML; the first cell of each row is its head."""
    top = "".join(f'<th scope="col">{html.escape(head)}</th>' for head in heads)
    body = ""
    for name, *cells in rows:
        data = "".join(f"<td>{html.escape(cell)}</td>" for cell in cells)
        body += f'<tr><th scope="row">{html.escape(name)}</th>{data}</tr>'
    return f'<table class="batchsim-table"><tr>{top}</tr>{body}</table>'
