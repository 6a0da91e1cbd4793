"""A knob: a slider to feel a value, a field to type it, and why what was typed is refused."""

import html
import math
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any, TypeVar

import ipywidgets as widgets
import traitlets

from batchsim.view.explorer.control import Control
from batchsim.view.explorer.kinds import as_typed, in_labels

HALF = 0.51  # of a step of a slider, and what rounding adds
HIDDEN = "batchsim-hidden"
ECHO_S = 3  # after which a page has echoed what was sent to it


class RangeFirst(widgets.Widget):
    """A slider that sends a page its range before its value, which the page would fit into the old range."""

    def send_state(self, key: str | Iterable[str] | None = None) -> None:
        if key is not None and not isinstance(key, str):
            key = sorted(key, key=lambda name: (name == "value", name))
        super().send_state(key)


# What makes the slider of a scale.
SLIDERS: dict[str, Any] = {
    "linear": type("Linear", (RangeFirst, widgets.FloatSlider), {}),
    "share": type("Share", (RangeFirst, widgets.FloatSlider), {}),  # of level 1, of two priority levels
    "log": type("Log", (RangeFirst, widgets.FloatLogSlider), {}),
    "whole": type("Whole", (RangeFirst, widgets.IntSlider), {}),
}
AnyWidget = TypeVar("AnyWidget", bound=widgets.DOMWidget)
_shared: dict[Any, Any] = {}


def plain(kind: type[AnyWidget], *arguments: Any, **options: Any) -> AnyWidget:
    """Return a widget that shares its layout and style with all that look alike: hide it by `hide`.

    Each widget has two of its own otherwise, each a message to a page that opens an explorer.
    """
    return kind(*arguments, **options | looks(kind, options))


def looks(kind: type[widgets.DOMWidget], options: dict[str, Any]) -> dict[str, Any]:
    """Return the layout and the style of a kind of widget, with the values that the options have for them."""
    found = {}
    for name in ("layout", "style"):
        trait = kind.class_traits().get(name)
        if trait is not None:
            given = options.get(name, {})
            look = trait.klass, *sorted(given.items())
            if look not in _shared or _shared[look].comm is None:  # none yet, or it was closed
                _shared[look] = trait.klass(**given)
            found[name] = _shared[look]
    return found


def hide(widget: widgets.DOMWidget, hidden: bool) -> None:
    """Hide a widget in the page, or show it again."""
    if hidden is not is_hidden(widget):
        (widget.add_class if hidden else widget.remove_class)(HIDDEN)


def is_hidden(widget: widgets.DOMWidget) -> bool:
    """Return whether a widget is hidden."""
    return HIDDEN in widget._dom_classes


class Knob(widgets.VBox):
    """One of the explorer's values; `value` is the last one that was accepted.

    What is refused stays in the field, with the reason below it, and `value` is as before. A value beyond
    the slider widens the slider.
    """

    value = traitlets.Any()

    def __init__(self, spec: Control, value: Any) -> None:
        self.spec = spec
        self.guard: Callable[[Any], None] = lambda value: None  # refuses what contradicts other controls
        self.busy = False  # whether this code moves the widgets, and not a hand
        self.sliding = False  # whether the hand is on the slider
        self.sent: deque[tuple[float, float, float]] = deque(maxlen=8)  # places, steps, when
        name = label(f'<span title="{html.escape(spec.about)}">{html.escape(spec.label)}</span>')
        self.slider: Any = None
        scale = spec.slider and spec.slider.scale
        self.is_log, self.is_whole, self.is_share = scale == "log", scale == "whole", scale == "share"
        if spec.slider is not None:
            low, high = self._ends(spec.slider.low, spec.slider.high)
            kind, step = SLIDERS[spec.slider.scale], spec.slider.step
            self.slider = plain(kind, min=low, max=high, step=step, readout=False, tooltip=spec.about)
            self.slider.observe(self._slid, names="value")
        self.field = plain(
            widgets.Text,
            value=as_typed(value),
            continuous_update=False,
            placeholder=spec.when_empty,
            tooltip=f"{spec.label}: {spec.about}",
        )
        if self.slider is None or self.is_share:
            self.field.add_class("batchsim-wide")
        self.refusal = plain(widgets.HTML)
        self.refusal.add_class("batchsim-refusal")
        sliders = [] if self.slider is None else [self.slider]
        parts = [name, self.field, *sliders, self.refusal]
        super().__init__(parts, value=value, **looks(type(self), {}))
        self.add_class("batchsim-knob")
        self.field.observe(self._typed, names="value")
        self.observe(self.settle, names="value")
        self.settle()

    @traitlets.validate("value")
    def _check(self, proposal: dict[str, Any]) -> Any:
        value = self.spec.check(self.spec.label, proposal["value"])
        self.guard(value)
        return value

    @contextmanager
    def still(self) -> Iterator[None]:
        """Change slider and field without that being a hand's move, and send it to the page once."""
        before, self.busy = self.busy, True
        slider = self.slider
        position = slider and (slider.value, slider.step)
        try:
            with nullcontext() if slider is None else slider.hold_sync():
                yield
        finally:
            self.busy = before
            if not before and slider is not None and position != (slider.value, slider.step):
                self.sent.append((self._place(slider.value), slider.step, time.monotonic()))

    def fit(self, low: float, high: float, step: float | None = None) -> None:
        """Give the slider a range, widened to the present value."""
        with self.still():
            self._move(*self._ends(low, high))
            if step is not None:
                self.slider.step = step

    # A slider's range, steps and places are exponents where it is logarithmic; its value is the value.

    def _ends(self, low: float, high: float) -> tuple[float, float]:
        return (math.log10(low), math.log10(high)) if self.is_log else (low, high)

    def _place(self, value: Any) -> float:
        """Return the place of a value; an infinite one is at the end."""
        if value == math.inf:
            return self.slider.max
        if isinstance(value, tuple):
            return value[0][1] if value else 0
        if self.is_log:
            return math.log10(value) if value else -math.inf
        return value or 0

    def _move(self, low: float, high: float) -> None:
        """Give the slider a range, widened to the value, and move it there."""
        slider, value = self.slider, self.value
        if value not in (None, math.inf):
            low, high = min(low, self._place(value)), max(high, self._place(value))
        # A value must be within the range at every step: widen, move, narrow.
        slider.min, slider.max = min(slider.min, low), max(slider.max, high)
        end = 10**slider.max if self.is_log else slider.max
        shown = self._place(value) if self.is_share else value or 0
        slider.value = end if value == math.inf else shown
        slider.min, slider.max = low, high

    def _slid(self, change: dict[str, Any]) -> None:
        value, digits = change["new"], 3 if self.is_log else 6
        if not self.busy and self._is_echo(value):
            self._follow()
        elif not self.busy:
            self.sliding = True
            try:
                self._take(lambda: self._value(value, digits))
            finally:
                self.sliding = False

    def _value(self, position: float, digits: int) -> Any:
        """Return the value at a position of the slider."""
        if self.is_whole:
            return position
        value = float(f"{position:.{digits}g}")
        if self.spec.kind == "whole":
            return round(value)
        if not self.is_share:
            return value
        return ((1, value), (2, float(f"{1 - value:.{digits}g}"))) if 0 < value < 1 else ()

    def _typed(self, change: dict[str, Any]) -> None:
        if not self.busy:
            self._take(lambda: self.spec.read(self.spec.label, change["new"]))

    def _take(self, read: Callable[[], Any]) -> None:
        try:
            self.value = read()
            self.settle()  # if the value is the same, nobody else does
        except (TypeError, ValueError) as error:
            self.refusal.value = line(in_labels(str(error)), "alert")

    def _is_echo(self, position: float) -> bool:
        """Return whether a page repeats what was sent to it, rounded to the slider's step.

        It does so once or not at all, in the order in which it was sent, and perhaps after something else was
        sent. Whole numbers are not rounded.
        """
        while self.sent and time.monotonic() - self.sent[0][2] > ECHO_S:
            self.sent.popleft()
        slider, place = self.slider, self._place(position)
        for number, (sent, step, _) in enumerate(() if self.is_whole else self.sent):
            if abs(min(max(sent, slider.min), slider.max) - place) <= HALF * step:
                for _ in range(number + 1):
                    self.sent.popleft()
                return True
        return abs(self._place(self.value) - place) <= HALF * slider.step

    def settle(self, _: Any = None) -> None:
        """Let the slider, the field and the reason follow the value."""
        with self.still():
            self.field.value = as_typed(self.value)
            self.refusal.value = ""
        self._follow()

    def _follow(self) -> None:
        """Let the slider follow the value, unless it is there to half a step."""
        slider = self.slider
        if slider is None or self.value is None:
            return
        if abs(self._place(slider.value) - self._place(self.value)) > HALF * slider.step:
            with self.still():
                self._move(slider.min, slider.max)


def stack(children: Iterable[widgets.Widget]) -> widgets.Box:
    """Return widgets one below the other, as wide as the column; side by side where it is wide enough."""
    return _box(children, "batchsim-page")


def flow(children: Iterable[widgets.Widget]) -> widgets.Box:
    """Return a row of widgets that continues on the next line where it is too long."""
    return _box(children, "batchsim-row")


def _box(children: Iterable[widgets.Widget], name: str) -> widgets.Box:
    box = plain(widgets.Box, list(children))
    box.add_class(name)
    return box


def dropdown(spec: str, tip: str, options: Any, value: Any = None) -> widgets.Dropdown:
    """Return a list to choose from, below its name."""
    chosen = {} if value is None else {"value": value}
    style = {"description_width": "auto"}
    return plain(widgets.Dropdown, description=spec, tooltip=tip, options=options, style=style, **chosen)


def button(text: str, tip: str, act: Callable[[], None], **options: Any) -> widgets.Button:
    """Return a button that acts when it is clicked."""
    made = plain(widgets.Button, description=text, tooltip=tip, **options)
    made.on_click(lambda _: act())
    return made


def toggle(options: list[str], tip: str, value: str | None = None) -> widgets.ToggleButtons:
    """Return buttons, one of them pressed."""
    tips, chosen = [f"{tip}: {option}" for option in options], {} if value is None else {"value": value}
    look = {"button_width": "auto"}
    return plain(widgets.ToggleButtons, options=options, tooltips=tips, style=look, **chosen)


def label(text: str) -> widgets.HTML:
    """Return the name that stands before a control."""
    name = plain(widgets.HTML, text)
    name.add_class("batchsim-label")
    return name


def line(text: str, role: str = "status") -> str:
    """Return text as HTML that a screen reader says when it changes; role "alert": at once."""
    return f'<div role="{role}">{html.escape(text)}</div>'
