"""The service times that the explorer offers, and the lists that choose among them."""

from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import ipywidgets as widgets

from batchsim._format import brief
from batchsim.measured.published import published_names
from batchsim.scenario import Service
from batchsim.view.explorer.kind import Kind
from batchsim.view.explorer.kinds import KINDS
from batchsim.view.explorer.options import SERVICES
from batchsim.view.explorer.parts import Given, Values, read
from batchsim.view.explorer.state import State
from batchsim.view.explorer.widgets import dropdown

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
    values, kept = read(kind.parts, SimpleNamespace(service=service), "service")
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


class ServiceChooser:
    """One choice among many in at most four short lists; `value` is the label of the choice.

    The label of a published table is `PUBLISHED` and its name, model/device/precision. What a hand chooses
    goes to `take`.
    """

    def __init__(
        self, name: str, tip: str, labels: Sequence[str], value: str, take: Callable[[str], None]
    ) -> None:  # fmt: skip
        self.labels, self.take = labels, take
        self.tables: list[Parts] = [name_parts(table) for table in published_names()]
        self.source = dropdown(name, tip, [*labels, TABLES], None, classes="batchsim-knob-service")
        self.parts = [
            dropdown(part, f"{part} of the published table", [], None)
            for part in ("Model", "Device", "Precision")
        ]
        self.show(labels, value)
        for each in (self.source, *self.parts):
            each.observe(lambda _: self._chosen(), names="value")

    @property
    def widgets(self) -> list[widgets.Widget]:
        return [self.source, *(self.parts if self.value.startswith(PUBLISHED) else [])]

    @property
    def options(self) -> tuple[tuple[str, str], ...]:
        """All choices, as (label, value)."""
        tables = [PUBLISHED + "/".join(table) for table in self.tables]
        return tuple((label, label) for label in (*self.labels, *tables))

    @property
    def value(self) -> str:
        """The label of the state's service time; setting it moves the state."""
        return self.shown

    @value.setter
    def value(self, label: str) -> None:
        if (label, label) not in self.options:
            raise ValueError(f"a service time must be on the list, got {label!r}")
        self.take(label)

    def show(self, labels: Sequence[str], value: str) -> None:
        """Show a choice, and offer these labels in addition to the published tables."""
        self.labels, self.shown = labels, value
        if self.source.options != (*labels, TABLES):
            self.source.options = (*labels, TABLES)
        is_published = value.startswith(PUBLISHED)
        self.source.value = TABLES if is_published else value
        chosen = name_parts(value.removeprefix(PUBLISHED)) if is_published else ()
        for number, word in enumerate(chosen):
            part = self.parts[number]
            fitting = [table[number] for table in self.tables if table[:number] == chosen[:number]]
            options = tuple((text(number, each), each) for each in dict.fromkeys(fitting))
            if part.options != options:
                part.options = options
            part.value = word

    def _chosen(self) -> None:
        """Take a hand's choice: of tables the one that is most like the previous one."""
        if self.source.value != TABLES:
            return self.take(self.source.value)
        wanted = tuple(part.value for part in self.parts)
        table = max(self.tables, key=lambda table: common(table, wanted))
        self.take(PUBLISHED + "/".join(table))


def name_parts(table: str) -> Parts:
    """Return a published name in three parts.

    >>> name_parts("bert-large/t4/fp16/trt")
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
