"""What a kernel does before there is a page for it: import, compile and draw what a page begins with."""

import gc

import ipywidgets as widgets

from batchsim.view.explorer import explore


def draw() -> None:
    """Draw the first picture of an explorer that nobody sees, and leave no widget behind."""
    explore(play=True)
    widgets.Widget.close_all()
    gc.collect()
