"""A knob: a slider to feel a value, a field to type it, and what is wrong with what was typed."""

import html
import math
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import ipywidgets as widgets
import traitlets

from batchsim.view.explorer.fields import checked, read

ECHO_S = 3  # after which a page has said again what it was told
LABEL, SLIDER, TYPED = "10.5em", "10em", "5.2em"


class Knob(widgets.VBox):
    """One of the explorer's values by its name; `value` is the last one that made sense.

    A value that the rule refuses is refused in place: the field keeps what was typed, with the reason
    below it, and `value` stays. A value beyond the slider widens the slider.
    """

    value = traitlets.Any()

    def __init__(
        self,
        name: str,
        label: str,
        tip: str,
        value: Any,
        slider: widgets.Widget | None = None,
    ) -> None:
        self.name, self.slider = name, slider
        self.is_log = isinstance(slider, widgets.FloatLogSlider)
        self.whole = isinstance(slider, widgets.IntSlider)
        self.busy = False
        self.told: deque[tuple[float, float, float]] = deque(maxlen=8)  # places, steps, when
        self.guard: Callable[[Any], None] = lambda value: None  # refuses what others make senseless
        title = widgets.HTML(
            f'<span title="{html.escape(tip)}">{html.escape(label)}</span>', layout={"width": LABEL}
        )
        title.add_class("batchsim-label")
        self.typed = widgets.Text(
            value=shown(value),
            continuous_update=False,
            tooltip=f"{label}: {tip}",
            layout={"width": TYPED if slider is not None else "7em"},
        )
        self.refusal = widgets.HTML(layout={"display": "none"})
        row = [title, *([slider] if slider is not None else []), self.typed]
        if slider is not None:
            slider.layout = {"width": SLIDER}
            slider.readout = False
            slider.continuous_update = True
            slider.tooltip = tip
            slider.observe(self._slid, names="value")
        super().__init__([widgets.HBox(row), self.refusal], value=value)
        self.add_class(f"batchsim-knob-{name}")
        self.typed.observe(self._typed, names="value")
        self.observe(self.settle, names="value")
        self.settle()

    @traitlets.validate("value")
    def _check(self, proposal: dict[str, Any]) -> Any:
        value = checked(self.name, proposal["value"])
        self.guard(value)
        return value

    @property
    def shown(self) -> bool:
        return self.layout.display != "none"

    def show(self, shown: bool) -> None:
        """Let the knob be seen where it matters."""
        self.layout.display = None if shown else "none"

    @contextmanager
    def still(self) -> Iterator[None]:
        """Change slider and field without that being a hand's move, and tell the page once."""
        before, self.busy = self.busy, True
        told = (self.slider.value, self.slider.step) if self.slider is not None else None
        try:
            with self.slider.hold_sync() if self.slider is not None else nullcontext():
                yield
        finally:
            self.busy = before
            if not before and self.slider is not None and told != (self.slider.value, self.slider.step):
                self.told.append((self.slider.value, self.slider.step, time.monotonic()))

    def fit(self, low: float, high: float, step: float | None = None) -> None:
        """Give the slider a range, widened to the present value."""
        if self.slider is None:
            return
        with self.still():
            place = self._place(self.value)
            if self.is_log:
                low, high = math.log10(low), math.log10(high)
                place = math.log10(place) if place else low
            low, high = min(low, place), max(high, place)
            # A value must be within the range at every step: widen, move, narrow.
            self.slider.min, self.slider.max = min(self.slider.min, low), max(self.slider.max, high)
            self.slider.value = self._place(self.value)
            self.slider.min, self.slider.max = low, high
            if step is not None:
                self.slider.step = step

    def _place(self, value: Any) -> Any:
        return 0 if value is None else value

    def _slid(self, change: dict[str, Any]) -> None:
        """Take the slider's value, but not its echo."""
        if self.busy:
            return
        if self._is_echo(change["new"]):
            self._follow()
            return
        value = change["new"]
        try:
            self.value = value if self.whole else float(f"{value:.3g}" if self.is_log else f"{value:.6g}")
        except (TypeError, ValueError) as error:
            self._refuse(str(error))

    def _is_echo(self, place: float) -> bool:
        """Return whether a page says again what it was told, rounded to the slider's step.

        It says so once or not at all, in the order in which it was told, and perhaps after it was told
        something else. Of whole numbers there is nothing to round.
        """
        assert self.slider is not None
        while self.told and time.monotonic() - self.told[0][2] > ECHO_S:
            self.told.popleft()
        low, high = self.slider.min, self.slider.max
        if self.is_log:
            low, high = 10**low, 10**high
        for number, (said, step, _) in enumerate(self.told if not self.whole else ()):
            if self._near(place, min(max(said, low), high), step):
                for _ in range(number + 1):
                    self.told.popleft()
                return True
        return self._near(place, self._place(self.value), self.slider.step)

    def _near(self, place: float, there: float, step: float) -> bool:
        """Return whether two places are one, to half a step of the slider."""
        if self.is_log:
            if there <= 0:
                return False
            place, there = math.log10(place), math.log10(there)
        return abs(there - place) <= 0.51 * step

    def _typed(self, change: dict[str, Any]) -> None:
        if self.busy:
            return
        try:
            value = read(self.name, change["new"])
            if value == self.value:
                self.settle()
            self.value = value
        except (TypeError, ValueError) as error:
            self._refuse(str(error))

    def _refuse(self, reason: str) -> None:
        self.refusal.value = f'<span role="alert" class="batchsim-refusal">{html.escape(reason)}</span>'
        self.refusal.layout.display = None

    def settle(self, _: Any = None) -> None:
        """Let the slider, the field and the reason follow the value."""
        with self.still():
            self.typed.value = shown(self.value)
            if self.refusal.value:
                self.refusal.value, self.refusal.layout.display = "", "none"
        self._follow()

    def _follow(self) -> None:
        """Let the slider follow the value, unless it is there to half a step."""
        if self.slider is None or self.value is None:
            return
        place = self._place(self.value)
        if not self._near(self.slider.value, place, self.slider.step):
            with self.still():
                self._reach(place)
                self.slider.value = place

    def _reach(self, place: float) -> None:
        assert self.slider is not None
        at = math.log10(place) if self.is_log else place
        if at < self.slider.min:
            self.slider.min = at
        if at > self.slider.max:
            self.slider.max = at


class Choice(widgets.Dropdown):
    """A value that is one of several, by its name; `value` is the state's word for it."""

    def __init__(self, name: str, label: str, tip: str, options: list[tuple[str, Any]], value: Any) -> None:
        super().__init__(
            description=label,
            tooltip=f"{label}: {tip}",
            options=options,
            value=value,
            style={"description_width": LABEL},
            layout={"width": "26em", "max_width": "100%"},
        )
        self.name = name
        self.add_class(f"batchsim-knob-{name}")

    def show(self, shown: bool) -> None:
        """Let the choice be seen where it matters."""
        self.layout.display = None if shown else "none"


def flow(children: Iterable[widgets.Widget]) -> widgets.Box:
    """Return a row of widgets that goes on in the next line where the page is narrow."""
    box = widgets.Box(list(children))
    box.add_class("batchsim-page")
    return box


def shown(value: Any) -> str:
    """Return a value as its field shows it.

    >>> shown(None), shown(10.0), shown(0.125), shown(31)
    ('', '10', '0.125', '31')
    """
    if value is None:
        return ""
    if isinstance(value, tuple):
        return ", ".join(map(str, value))
    return f"{value:.10g}" if isinstance(value, float) else str(value)
