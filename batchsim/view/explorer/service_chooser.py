"""The choice of a service time: its source, and of a published table the model, device and precision."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import ipywidgets as widgets
import traitlets

from batchsim.measured.published import published_names
from batchsim.view.explorer.knob import dropdown, hide
from batchsim.view.explorer.services import PUBLISHED

TABLES = "Published table"
Parts = tuple[str, str, str]  # model, device, precision and what follows it


class ServiceChooser(widgets.VBox):
    """One choice among many in at most four short lists; `value` is the label of what is chosen.

    The label of a published table is `PUBLISHED` and its name, model/device/precision.
    """

    value = traitlets.Unicode()

    def __init__(self, name: str, tip: str, labels: Iterable[str]) -> None:
        self.labels: list[str] = []
        self.tables: list[Parts] = [parts_of(table) for table in published_names()]
        self.busy = False  # whether this code moves the lists, and not a hand
        self.source = dropdown(name, tip, [TABLES])
        self.parts = [
            dropdown(part, f"{part} of the published table", []) for part in ("Model", "Device", "Precision")
        ]
        super().__init__([self.source, *self.parts])
        self.add_class("batchsim-page")
        self.offer(labels)
        self.value = self.labels[0]
        self.source.observe(lambda _: self._chosen(), names="value")
        for part in self.parts:
            part.observe(lambda _: self._chosen(), names="value")

    @property
    def options(self) -> tuple[tuple[str, str], ...]:
        """All that can be chosen, as (label, value)."""
        tables = [PUBLISHED + "/".join(table) for table in self.tables]
        return tuple((label, label) for label in (*self.labels, *tables))

    def offer(self, labels: Iterable[str]) -> None:
        """Offer these beside the published tables."""
        labels = list(dict.fromkeys(labels))
        if labels != self.labels:
            self.labels = labels
            with self._moving():
                self.source.options = [*labels, TABLES]
                self._follow()

    @traitlets.validate("value")
    def _check(self, proposal: dict[str, Any]) -> str:
        label = str(proposal["value"])
        if (label, label) not in self.options:
            raise traitlets.TraitError(f"a service time must be one that is offered, got {label!r}")
        return label

    @traitlets.observe("value")
    def _changed(self, _: Any) -> None:
        with self._moving():
            self._follow()

    @contextmanager
    def _moving(self) -> Iterator[None]:
        before, self.busy = self.busy, True
        try:
            yield
        finally:
            self.busy = before

    def _follow(self) -> None:
        """Let the lists show what is chosen."""
        published = self.value.startswith(PUBLISHED)
        self.source.value = TABLES if published else (self.value or self.labels[0])
        for part in self.parts:
            hide(part, not published)
        if published:
            chosen = parts_of(self.value.removeprefix(PUBLISHED))
            for number, part in enumerate(self.parts):
                fitting = [table[number] for table in self.tables if table[:number] == chosen[:number]]
                options = [(text(number, word), word) for word in dict.fromkeys(fitting)]
                if part.options != tuple(options):
                    part.options = options
                part.value = chosen[number]

    def _chosen(self) -> None:
        """Take what a hand chose: the table most like the one before."""
        if self.busy:
            return
        if self.source.value != TABLES:
            self.value = self.source.value
            return
        wanted = tuple(part.value for part in self.parts)
        table = max(self.tables, key=lambda table: common(table, wanted))
        self.value = PUBLISHED + "/".join(table)


def parts_of(table: str) -> Parts:
    """Return a published name in three parts.

    >>> parts_of("bert-large/t4/fp16/trt")
    ('bert-large', 't4', 'fp16/trt')
    """
    model, device, precision = table.split("/", 2)
    return model, device, precision


def text(number: int, word: str) -> str:
    """Return a part of a name as its list shows it.

    >>> text(1, "a100-80gb"), text(2, "fp16/trt")
    ('A100 80GB', 'fp16, trt')
    """
    return word.upper().replace("-", " ") if number == 1 else word.replace("/", ", ")


def common(table: Parts, wanted: tuple[str | None, ...]) -> tuple[bool, ...]:
    """Return which parts are as wanted: the model counts most, then the device."""
    return tuple(part == word for part, word in zip(table, wanted, strict=True))
