"""The explorer's pages: what can be done with a run beside looking at it."""

from collections.abc import Sequence

import ipywidgets as widgets

from batchsim.view.explorer.session import Session


class Page(widgets.VBox):
    """Widgets of one tab; `update` brings them up to date, as long as the tab is open."""

    title = ""
    is_open = False

    def __init__(self, session: Session, children: Sequence[widgets.Widget]) -> None:
        self.session = session
        super().__init__(children)
        self.add_class("batchsim-page")

    def update(self) -> None:
        """Show what the session holds: called when it is opened, and at every change while it is open."""
