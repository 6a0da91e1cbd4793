"""A and B: a pinned setting, and the comparison of later settings with it."""

import html
import math
import textwrap

import ipywidgets as widgets

from batchsim._format import MINUS, number, signed
from batchsim.result.metrics import heading
from batchsim.view.explorer.kinds import KINDS
from batchsim.view.explorer.pages import Page
from batchsim.view.explorer.session import Session, incomparable
from batchsim.view.explorer.state import State, as_text
from batchsim.view.explorer.widgets import OF_RESULT, button, flow, plain
from batchsim.view.pictures.data import ViewData

HELP = "Pin the present setting as A, then move the controls: the present setting, with the same seed, is B."


class ComparePage(Page):
    """Buttons that pin A, and a table of the differences B - A, each with its interval."""

    title = "A and B"
    follows = True

    def __init__(self, session: Session) -> None:
        self.pin = button("Pin as A", "Keep the present setting to compare with", session.pin)
        self.unpin = button("Unpin", "Forget A", session.unpin)
        self.swap = button("Swap A and B", "Move to A, and pin the present setting", self._swap)
        self.table = plain(widgets.HTML, classes=OF_RESULT)
        super().__init__(session, [flow([self.pin, self.unpin, self.swap]), self.table])

    def _swap(self) -> None:
        if (state := self.session.pinned_state) is not None and self.session.visible:
            self.session.pin(refresh=False)
            self.session.move_to(state)

    def update(self) -> None:
        """Show the differences."""
        session = self.session
        self.unpin.disabled = self.swap.disabled = session.pinned is None
        if session.pinned_state is None:
            self.table.value = HELP
        elif session.data_coarse:  # too short a run to compare with A: a longer one follows
            return
        elif (data := session.data) is not None and session.visible and session.pinned is not None:
            a, b = (html.escape(text) for text in settings(session.pinned_state, session.data_state))
            heads = f"A: <code>{a}</code><br>B: <code>{b}</code>" if a else "A and B are one setting."
            why_not = incomparable(session.pinned.result, data.result)
            if why_not or data.comparison is not None:  # otherwise A has just been pinned
                self.table.value = f"<p>{heads}</p>" + (f"<p>{why_not}</p>" if why_not else comparison(data))


def settings(a: State, b: State) -> tuple[str, str]:
    """Return the values of two states where they differ.

    >>> settings(State(servers=2), State(max_wait_ms=5))
    ('max_wait_ms=10, servers=2', 'max_wait_ms=5, servers=1')
    """
    differ = a.differences(b)
    if a.mode != b.mode:  # their values differ anyway
        differ = {"mode": a.mode}
    if {"curve_of", "service"} & differ.keys():  # they identify the curve in fewer words
        differ = {name: value for name, value in differ.items() if name not in ("curve", "size_table")}

    def text(state: State) -> str:
        values = {name: as_text(getattr(state, name)).replace(",", ", ") for name in differ}
        return ", ".join(f"{name}={textwrap.shorten(value, 60) or 'none'}" for name, value in values.items())

    return text(a), text(b)


def comparison(data: ViewData) -> str:
    """Return the differences as an HTML table, each above its interval, as the column is narrow."""
    assert data.comparison is not None
    heads = "".join(f'<th scope="col">{head}</th>' for head in ("", "A", "B", f"B {MINUS} A"))
    table = f"<thead><tr>{heads}</tr></thead>"
    rows = {heading(key): row for key, row in data.comparison.rows.items()}
    rows |= KINDS[data.result.scenario.kind].differences(data)
    for name, row in rows.items():
        interval, verdict = f"95 %: {signed(row.low)} to {signed(row.high)}", ", differs"
        if math.isnan(row.low):
            interval, verdict = "no interval: the run is too short, or its traffic drifts", ""
        elif row.low <= 0 <= row.high:
            verdict = ", may be chance" if row.difference else ""
        cells = "".join(f"<td>{cell}</td>" for cell in (number(row.a), number(row.b), signed(row.difference)))
        first = f'<tr><th scope="rowgroup">{html.escape(name)}</th>{cells}</tr>'
        second = f'<td colspan="4" title="The 95 % interval of B {MINUS} A">{interval}{verdict}</td>'
        table += f'<tbody>{first}<tr class="batchsim-second">{second}</tr></tbody>'
    return f'<table class="batchsim-table">{table}</table>'
