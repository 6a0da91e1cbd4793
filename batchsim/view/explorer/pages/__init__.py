"""The explorer's pages: tasks for a run in addition to looking at it."""

from collections.abc import Sequence

import ipywidgets as widgets

from batchsim.view.explorer.session import Session


class Page(widgets.VBox):
    """The widgets of one tab."""

    title = ""
    is_open = False  # or folded while it was open
    follows = False  # whether it is updated while it is closed, too

    def __init__(self, session: Session, children: Sequence[widgets.Widget]) -> None:
        self.session = session
        super().__init__(children, _dom_classes=["batchsim-page"])

    def update(self) -> None:
        """Show the session's data: called when it opens, at every change while open, or if it `follows`."""
