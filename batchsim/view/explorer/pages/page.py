"""A page of the explorer: a tab that observes the session."""

from collections.abc import Sequence

import ipywidgets as widgets

from batchsim.view.explorer.session import Session


class Page(widgets.VBox):
    """Widgets of one tab; `update` brings them up to date, as long as the tab is open."""

    title = ""

    def __init__(self, session: Session, children: Sequence[widgets.Widget]) -> None:
        self.session = session
        self.is_open = False
        super().__init__(children)

    def update(self) -> None:
        """Show what the session holds: called when it is opened, and at every change while it is open."""
