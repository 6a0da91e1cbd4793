"""A knob: a slider to feel a value, a field to type it, and why what was typed is refused."""

import html
import math
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import ipywidgets as widgets
import traitlets

from batchsim.view.explorer.controls_table import Control, Slider, in_labels
from batchsim.view.explorer.markup import refusal

ECHO_S = 3  # after which a page has echoed what was sent to it
LABEL, SLIDER, FIELD = "10.5em", "10em", "5.2em"


class RangeFirst(widgets.Widget):
    """A slider that sends a page its range before its value, which the page would fit into the old range."""

    def send_state(self, key: str | Iterable[str] | None = None) -> None:
        """Send what has changed, the value as the last."""
        if key is not None and not isinstance(key, str):
            key = sorted(key, key=lambda name: (name == "value", name))
        super().send_state(key)


class Log(RangeFirst, widgets.FloatLogSlider):
    """A slider of powers of ten."""


class Whole(RangeFirst, widgets.IntSlider):
    """A slider of whole numbers."""


class Linear(RangeFirst, widgets.FloatSlider):
    """A slider of evenly spaced numbers."""


def slider_of(slider: Slider) -> Any:
    """Return a new slider widget."""
    kind = {"linear": Linear, "log": Log, "whole": Whole}[slider.scale]
    low, high = (math.log10(end) if slider.scale == "log" else end for end in (slider.low, slider.high))
    return kind(min=low, max=high, step=slider.step, readout=False, layout={"width": SLIDER})


class Shown(widgets.Widget):
    """A control that is hidden while it does not matter."""

    @property
    def shown(self) -> bool:
        return self.layout.display != "none"

    @shown.setter
    def shown(self, shown: bool) -> None:
        self.layout.display = None if shown else "none"


class Knob(Shown, widgets.VBox):
    """One of the explorer's values; `value` is the last one that was accepted.

    What is refused stays in the field, with the reason below it, and `value` is as before. A value beyond
    the slider widens the slider.
    """

    value = traitlets.Any()

    def __init__(self, name: str, spec: Control, value: Any) -> None:
        self.name, self.spec = name, spec
        self.guard: Callable[[Any], None] = lambda value: None  # refuses what contradicts other controls
        self.busy = False  # whether this code moves the widgets, and not a hand
        self.sent: deque[tuple[float, float, float]] = deque(maxlen=8)  # positions, steps, when
        title = label(f'<span title="{html.escape(spec.about)}">{html.escape(spec.label)}</span>')
        self.slider = None if spec.slider is None else slider_of(spec.slider)
        self.is_log, self.is_whole = isinstance(self.slider, Log), isinstance(self.slider, Whole)
        self.field = widgets.Text(
            value=as_typed(value),
            continuous_update=False,
            tooltip=f"{spec.label}: {spec.about}",
            layout={"width": "7em" if self.slider is None else FIELD},
        )
        self.refusal = widgets.HTML(layout={"display": "none"})
        row = [title, self.field]
        if self.slider is not None:
            row.insert(1, self.slider)
            self.slider.tooltip = spec.about
            self.slider.observe(self._slid, names="value")
        super().__init__([widgets.HBox(row), self.refusal], value=value)
        self.add_class(f"batchsim-knob-{name}")
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
                self.sent.append((slider.value, slider.step, time.monotonic()))

    def fit(self, low: float, high: float, step: float | None = None) -> None:
        """Give the slider a range, widened to the present value."""
        slider = self.slider
        if slider is None:
            return
        with self.still():
            value = self.value
            if self.is_log:
                low, high = math.log10(low), math.log10(high)
                value = math.log10(value) if value else low
            if value not in (None, math.inf):
                low, high = min(low, value), max(high, value)
            # A value must be within the range at every step: widen, move, narrow.
            slider.min, slider.max = min(slider.min, low), max(slider.max, high)
            slider.value = self._position(self.value)
            slider.min, slider.max = low, high
            if step is not None:
                slider.step = step

    def _position(self, value: Any) -> Any:
        """Return where the slider is for a value; one without a value is at 0, an infinite one at its end."""
        if value == math.inf:
            assert self.slider is not None
            return 10**self.slider.max if self.is_log else self.slider.max
        return 0 if value is None else value

    def _slid(self, change: dict[str, Any]) -> None:
        """Take the slider's value, but not its echo."""
        if self.busy:
            return
        value = change["new"]
        if self._is_echo(value):
            self._follow()
            return
        try:
            self.value = value if self.is_whole else float(f"{value:.3g}" if self.is_log else f"{value:.6g}")
        except (TypeError, ValueError) as error:
            self._refuse(error)

    def _is_echo(self, position: float) -> bool:
        """Return whether a page repeats what was sent to it, rounded to the slider's step.

        It does so once or not at all, in the order in which it was sent, and perhaps after something else was
        sent. Whole numbers are not rounded.
        """
        assert self.slider is not None
        while self.sent and time.monotonic() - self.sent[0][2] > ECHO_S:
            self.sent.popleft()
        low, high = self.slider.min, self.slider.max
        if self.is_log:
            low, high = 10**low, 10**high
        for number, (sent, step, _) in enumerate(self.sent if not self.is_whole else ()):
            if self._near(position, min(max(sent, low), high), step):
                for _ in range(number + 1):
                    self.sent.popleft()
                return True
        return self._near(position, self._position(self.value), self.slider.step)

    def _near(self, position: float, other: float, step: float) -> bool:
        """Return whether two positions are one, to half a step of the slider."""
        if self.is_log:
            if other <= 0:
                return False
            position, other = math.log10(position), math.log10(other)
        return abs(other - position) <= 0.51 * step

    def _typed(self, change: dict[str, Any]) -> None:
        if self.busy:
            return
        try:
            value = self.spec.read(self.spec.label, change["new"])
            if value == self.value:
                self.settle()
            self.value = value
        except (TypeError, ValueError) as error:
            self._refuse(error)

    def _refuse(self, error: Exception) -> None:
        self.refusal.value = refusal(in_labels(str(error)))
        self.refusal.layout.display = None

    def settle(self, _: Any = None) -> None:
        """Let the slider, the field and the reason follow the value."""
        with self.still():
            self.field.value = as_typed(self.value)
            if self.refusal.value:
                self.refusal.value, self.refusal.layout.display = "", "none"
        self._follow()

    def _follow(self) -> None:
        """Let the slider follow the value, unless it is there to half a step."""
        slider = self.slider
        if slider is None or self.value is None:
            return
        position = self._position(self.value)
        if self._near(slider.value, position, slider.step):
            return
        with self.still():
            end = math.log10(position) if self.is_log else position
            slider.min, slider.max = min(slider.min, end), max(slider.max, end)
            slider.value = position


class Choice(Shown, widgets.Dropdown):
    """A value that is one of several; the options are (label, value)."""

    def __init__(self, name: str, spec: Control, options: list[tuple[str, str]], value: Any) -> None:
        super().__init__(
            description=spec.label,
            tooltip=f"{spec.label}: {spec.about}",
            options=options,
            value=value,
            style={"description_width": LABEL},
            layout={"width": "26em", "max_width": "100%"},
        )
        self.name = name
        self.add_class(f"batchsim-knob-{name}")


def flow(children: Iterable[widgets.Widget]) -> widgets.Box:
    """Return a row of widgets that continues on the next line where the page is narrow."""
    box = widgets.Box(list(children))
    box.add_class("batchsim-page")
    return box


def button(text: str, tip: str, act: Callable[[], None], **options: Any) -> widgets.Button:
    """Return a button that acts when it is clicked."""
    made = widgets.Button(description=text, tooltip=tip, **options)
    made.on_click(lambda _: act())
    return made


def toggle(options: list[str], tip: str, width: str = "auto") -> widgets.ToggleButtons:
    """Return buttons, one of them pressed."""
    tips = [f"{tip}: {option}" for option in options]
    return widgets.ToggleButtons(options=options, tooltips=tips, style={"button_width": width})


def label(text: str, width: str = LABEL) -> widgets.HTML:
    """Return the name that stands before a control."""
    name = widgets.HTML(text, layout={"width": width})
    name.add_class("batchsim-label")
    return name


def as_typed(value: Any) -> str:
    """Return a value as its field shows it.

    >>> as_typed(None), as_typed(10.0), as_typed(0.125), as_typed(31), as_typed((2, 4))
    ('', '10', '0.125', '31', '2, 4')
    """
    if value is None:
        return ""
    if isinstance(value, tuple):
        return ", ".join(map(str, value))
    return f"{value:.10g}" if isinstance(value, float) else str(value)
