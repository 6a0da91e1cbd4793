"""The page's widgets: plain ones that share their looks."""

import html
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import ipywidgets as widgets

HIDDEN = "batchsim-hidden"
OF_RESULT = "batchsim-told"  # dimmed while the controls say something else than the picture


AnyWidget = TypeVar("AnyWidget", bound=widgets.DOMWidget)
_shared: dict[Any, Any] = {}


def plain(made: type[AnyWidget], *arguments: Any, classes: str = "", **options: Any) -> AnyWidget:
    """Return a widget that shares its layout and style with others of the same looks.

    Otherwise each widget would have two of its own, and a page would receive a message for each. `classes`
    are for the style sheet.
    """
    traits = made.class_traits()
    for name in ("layout", "style"):
        if name in traits:
            kind, given = traits[name].klass, options.get(name, {})
            look = kind, *sorted(given.items())
            if look not in _shared or _shared[look].comm is None:  # none yet, or it was closed
                _shared[look] = kind(**given)
            options[name] = _shared[look]
    return made(*arguments, _dom_classes=classes.split(), **options)


def set_class(widget: widgets.DOMWidget, name: str, on: bool) -> None:
    """Give a widget a class of the style sheet, or take it away."""
    (widget.add_class if on else widget.remove_class)(name)


def flow(children: Iterable[widgets.Widget]) -> widgets.Box:
    """Return a row of widgets that wraps if it is too long."""
    return plain(widgets.Box, list(children), classes="batchsim-row")


def dropdown(spec: str, tip: str, options: Any, value: Any, classes: str = "") -> widgets.Dropdown:
    """Return a list of options, below its name."""
    return plain(
        widgets.Dropdown, description=spec, tooltip=tip, options=options, value=value, classes=classes,
        style={"description_width": "auto"},
    )  # fmt: skip


def button(text: str, tip: str, act: Callable[[], None], **options: Any) -> widgets.Button:
    """Return a button that acts when it is clicked."""
    made = plain(widgets.Button, description=text, tooltip=tip, **options)
    made.on_click(lambda _: act())
    return made


def toggle(options: list[str], tip: str, value: str | None, **more: Any) -> widgets.ToggleButtons:
    """Return buttons, at most one of them pressed."""
    return plain(
        widgets.ToggleButtons, options=options, tooltips=[f"{tip}: {option}" for option in options],
        value=value, style={"button_width": "auto"}, **more,
    )  # fmt: skip


def label(text: str) -> widgets.HTML:
    """Return the name in front of a control."""
    return plain(widgets.HTML, text, classes="batchsim-label")


def line(text: str, role: str = "status") -> str:
    """Return text as HTML that a screen reader reads when it changes; role "alert": immediately."""
    return f'<div role="{role}">{html.escape(text)}</div>'
