"""A knob: a slider to feel a value, a field to type it, and the reason if the value is refused."""

import html
import math
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import ipywidgets as widgets
import traitlets

from batchsim.view.explorer.control import Control
from batchsim.view.explorer.kinds import as_typed, in_labels
from batchsim.view.explorer.widgets import ECHO_S, SLIDERS, label, line, looks, plain

HALF = 0.51  # of a slider's step, with a margin for rounding


class Knob(widgets.VBox):
    """One of the explorer's values; `value` is the last accepted one.

    A refused text stays in the field, with the reason below it, and `value` does not change. A value beyond
    the slider's range widens the range.
    """

    value = traitlets.Any()

    def __init__(self, spec: Control, value: Any) -> None:
        self.spec = spec
        self.guard: Callable[[Any], None] = lambda value: None  # refuses a value that contradicts others
        self.busy = False  # while this code, not a hand, moves the widgets
        self.sliding = False  # while a hand moves the slider
        self.sent: deque[tuple[float, float, float]] = deque(maxlen=8)  # places, steps, when
        self.name = label("")
        self.say_also("")
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
        parts = [self.name, self.field, *sliders, self.refusal]
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
        """Change slider and field without making a move, and send each to the page once."""
        before, self.busy = self.busy, True
        slider = self.slider
        position = slider and (slider.value, slider.step)
        try:
            with nullcontext() if slider is None else slider.hold_sync():
                yield
        finally:
            self.busy = before
            if not before and slider is not None and position != (slider.value, slider.step):
                # With a new step, the page first rounds what it still shows.
                shown = [position[0]] if position[1] != slider.step else []
                for value in (*shown, slider.value):
                    self.sent.append((self._place(value), slider.step, time.monotonic()))

    def say_also(self, alias: str) -> None:
        """Show what a server calls this value, below its name."""
        name, about, alias = (html.escape(text) for text in (self.spec.label, self.spec.about, alias))
        more = f"<code>{alias}</code>" if alias else ""
        text = f'<span title="{about}">{name}</span>{more}'
        if self.name.value != text:
            self.name.value = text

    def fit(self, low: float, high: float, step: float | None = None) -> None:
        """Give the slider a range, widened to the present value."""
        with self.still():
            self._move(*self._ends(low, high))
            if step is not None:
                self.slider.step = step

    # Ranges, steps and places of a logarithmic slider are exponents; its value is the value itself.

    def _ends(self, low: float, high: float) -> tuple[float, float]:
        return (math.log10(low), math.log10(high)) if self.is_log else (low, high)

    def _place(self, value: Any) -> float:
        """Return the place of a value; infinity is at the end."""
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
        # The value must be within the range throughout: widen, move, narrow.
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
            self.settle()  # an equal value triggers no change
        except (TypeError, ValueError) as error:
            self.refusal.value = line(in_labels(str(error)), "alert")

    def _is_echo(self, position: float) -> bool:
        """Return whether a page repeats a value that was sent to it, rounded to the slider's step.

        It repeats each value at most once, in the order of sending, and perhaps after the next was sent.
        Whole numbers are not rounded.
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
        """Show the value on the slider and in the field, without a reason."""
        with self.still():
            self.field.value = as_typed(self.value)
            self.refusal.value = ""
        self._follow()

    def _follow(self) -> None:
        """Move the slider to the value, unless it is there to half a step."""
        slider = self.slider
        if slider is None or self.value is None:
            return
        if abs(self._place(slider.value) - self._place(self.value)) > HALF * slider.step:
            with self.still():
                self._move(slider.min, slider.max)
