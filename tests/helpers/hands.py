"""Hands on the controls of an explorer, without a page."""

from batchsim.view.explorer.controls import SETTINGS, widgets_of
from batchsim.view.explorer.rows import CONTROLS
from batchsim.view.explorer.widgets import HIDDEN


def all_made(panel):
    """Return an explorer after it has made its controls, those of the other kind of run, too."""
    for name, control in CONTROLS.items():
        if control.page:
            panel.controls[name]
    return panel


def looked_at(panel):
    """Return an explorer that draws its picture at each move, as one that a notebook shows."""
    panel.screen.appear()
    return panel


def slide(panel, name, value):
    """Move the slider of a control to the place that is nearest to a value."""
    knob = panel.controls[name]
    knob.slider.value = knob.range.place(value)


def slid(panel, name):
    """Return the value at which the slider of a control stands."""
    knob = panel.controls[name]
    return knob.range.value(knob.slider.value)


def is_hidden(widget):
    """Return whether a widget is hidden by its class."""
    return HIDDEN in widget._dom_classes


def is_shown(panel, name):
    """Turn to the page of a control, and return whether the control is there."""
    controls, page = panel.controls, CONTROLS[name].page
    if page in SETTINGS:
        panel.tabs.selected_index = SETTINGS.index(page)
    return {*widgets_of(controls[name])} <= {*controls.boxes[page].children}
