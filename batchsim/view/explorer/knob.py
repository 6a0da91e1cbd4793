"""A knob: a field to type a value, perhaps a slider to feel it, and the reason if the value is refused."""

import html
from collections.abc import Callable
from typing import Any

import ipywidgets as widgets

from batchsim.view.explorer.control import Control, Slider
from batchsim.view.explorer.kinds import as_typed, in_labels
from batchsim.view.explorer.widgets import plain


class Knob:
    """One of the explorer's values, in the field `field` and on the slider `slider`, if it has one.

    `show` sets both to the state's value; `take` ignores the changes that this causes (`Controls.showing`).
    What the user does goes to `take`, with whether it slides; if `take` raises, the refused text stays in the
    field, with the reason below it. A slider counts steps: a page would round any other number, and send it
    back.
    """

    def __init__(
        self, name: str, spec: Control, value: Any, slider: Slider | None, alias: str,
        take: Callable[[Any, bool], None],
    ) -> None:  # fmt: skip
        self.spec, self.take, self.refusal = spec, take, ""
        self.shown = value, slider, alias
        is_wide = slider is None or slider.scale == "share"
        self.field = plain(
            widgets.Text,
            value=as_typed(value),
            description=self._name(alias),
            description_allow_html=True,
            continuous_update=False,
            placeholder=spec.when_empty,
            tooltip=spec.tip,
            classes=f"batchsim-knob batchsim-knob-{name}{' batchsim-wide' * is_wide}",
        )
        self.field.observe(self._typed, names="value")
        self.widgets: list[widgets.Widget] = [self.field]
        if slider is not None:
            self.range = slider if value is None else slider.covering(value)
            place = 0 if value is None else self.range.place(value)
            self.slider = plain(
                widgets.IntSlider, value=place, max=self.range.steps, readout=False,
                classes=f"batchsim-knob-{name}",
            )  # fmt: skip
            self.slider.observe(self._slid, names="value")
            self.widgets.append(self.slider)

    @property
    def value(self) -> Any:
        """The value of the state; setting it moves the state, or raises why not."""
        return self.shown[0]

    @value.setter
    def value(self, value: Any) -> None:
        self.take(self.spec.check(self.spec.label, value), False)

    def show(self, value: Any, slider: Slider | None, alias: str, anew: bool) -> None:
        """Show a value on a slider of this range, widened to it, and what a server calls the value.

        What a hand left, such as a refused text, stays unless the value is another one, or is shown `anew`.
        """
        if (value, slider, alias) == self.shown and not anew:
            return
        if slider is not None and slider != self.shown[1]:
            self.range = slider
        self.shown, self.refusal = (value, slider, alias), ""
        self.field.value, self.field.description = as_typed(value), self._name(alias)
        if slider is not None and value is not None:
            self.range = self.range.covering(value)
            # A page clips each place to the range that it has then: widen, move, narrow.
            self.slider.max = max(self.slider.max, self.range.steps)
            self.slider.value = self.range.place(value)
            self.slider.max = self.range.steps

    def _name(self, alias: str) -> str:
        """Return the name with what a server calls the value, and the reason of a refusal."""
        text = f"<span>{html.escape(self.spec.label)}</span>"
        if alias:
            text += f"<code>{html.escape(alias)}</code>"
        if self.refusal:
            text += f'<span class="batchsim-refusal">{html.escape(self.refusal)}</span>'
        return text

    def _typed(self, change: dict[str, Any]) -> None:
        self._try(lambda: self.take(self.spec.read(self.spec.label, change["new"]), False))

    def _slid(self, change: dict[str, Any]) -> None:
        self._try(lambda: self.take(self.range.value(change["new"]), True))

    def _try(self, move: Callable[[], None]) -> None:
        try:
            move()
        except (TypeError, ValueError) as error:
            self.refusal = in_labels(str(error))
            self.field.description = self._name(self.shown[2])
