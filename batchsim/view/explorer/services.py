"""The service times that the explorer offers, and the lists that choose among them."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import ipywidgets as widgets
import traitlets

from batchsim._format import brief
from batchsim.measured.published import published_names
from batchsim.scenario import Service
from batchsim.view.explorer.kind import Kind
from batchsim.view.explorer.kinds import KINDS
from batchsim.view.explorer.parts import Given, Values, read
from batchsim.view.explorer.requests import SERVICES
from batchsim.view.explorer.state import State
from batchsim.view.explorer.widgets import dropdown, hide

FORMULAS = {
    option.label: {"service": name} for name, option in SERVICES.items() if "fixed_ms" in option.controls
}
MEASURE_HERE = {f"Measure here: {name}": name for name in ("mlp", "convnet", "transformer")}
PUBLISHED = "Published: "


def given(service: Any) -> tuple[str, Kind, Values, dict[str, Given]]:
    """Return the label, the kind of run, the values and the unsaid parts of a service time or Measurement."""
    label, curve_of = f"Given: {brief(service)}", ""
    if isinstance(getattr(service, "service", None), Service):  # a Measurement, without loading JAX
        curve_of = f"{service.model} on {service.device}"
        label, service = f"Measured: {curve_of}", service.service
    kinds = [kind for kind in KINDS.values() if isinstance(service, kind.service_type)]
    if not kinds:
        raise TypeError(
            f"service must be a Measurement, a service time, a rule or a Scenario, got {service!r}"
        )
    # The last one, as a `StepTime` is also a `Service`.
    kind = kinds[-1]
    values, kept = read(kind.parts, kind.controls, SimpleNamespace(service=service), "service")
    values |= {"curve_of": curve_of} if {"curve", "size_table"} & values.keys() else {}
    return label, kind, values, kept


def measure(model: str) -> Values:
    """Return a model's service time, measured on this machine: JAX loads with the first one."""
    from batchsim import device

    measured = device.measure(device.load_model(model), roofline=False, progress=False)
    return given(measured)[2]


def label_of(state: State, services: Mapping[str, Values]) -> str | None:
    """Return the label of a state's service time, None if it has none."""
    if state.service == "published":
        return PUBLISHED + state.published
    names = {"service", "curve_of", *state.option("service").controls}
    for label, values in services.items():
        # A given formula loses its label when its costs are moved.
        if all(values[name] == getattr(state, name) for name in names & set(values)):
            return label
    return None


TABLES = "Published table"
Parts = tuple[str, str, str]  # model, device, precision and what follows it


class ServiceChooser(widgets.VBox):
    """One choice among many in at most four short lists; `value` is the label of the choice.

    The label of a published table is `PUBLISHED` and its name, model/device/precision.
    """

    value = traitlets.Unicode()

    def __init__(self, name: str, tip: str, labels: Iterable[str]) -> None:
        self.labels: list[str] = []
        self.tables: list[Parts] = [parts_of(table) for table in published_names()]
        self.busy = False  # while this code, not a hand, moves the lists
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
        """All choices, as (label, value)."""
        tables = [PUBLISHED + "/".join(table) for table in self.tables]
        return tuple((label, label) for label in (*self.labels, *tables))

    def offer(self, labels: Iterable[str]) -> None:
        """Offer these in addition to the published tables."""
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
            raise traitlets.TraitError(f"a service time must be on the list, got {label!r}")
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
        """Let the lists show the choice."""
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
        """Take a hand's choice: the table most like the previous one."""
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
