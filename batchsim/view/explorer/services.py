"""The service times that the explorer offers, and the lists that choose among them."""

from collections.abc import Callable, Mapping, Sequence
from operator import eq
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
Path = tuple[str, ...]  # a label alone; or `TABLES`, model, device, precision and what follows it


def path_of(label: str) -> Path:
    """Return how a choice is reached by the lists.

    >>> path_of("Published: bert-large/t4/fp16/trt"), path_of("Curve")
    (('Published table', 'bert-large', 't4', 'fp16/trt'), ('Curve',))
    """
    is_published = label.startswith(PUBLISHED)
    return (TABLES, *label.removeprefix(PUBLISHED).split("/", 2)) if is_published else (label,)


class ServiceChooser:
    """One choice among many in at most four short lists; `value` is the label of the choice.

    The label of a published table is `PUBLISHED` and its name, model/device/precision. What a hand chooses
    goes to `take`.
    """

    def __init__(
        self, name: str, tip: str, labels: Sequence[str], value: str, take: Callable[[str], None]
    ) -> None:  # fmt: skip
        self.take = take
        tips = {name: tip} | {part: f"{part} of the table" for part in ("Model", "Device", "Precision")}
        self.lists = [dropdown(*each, [], None, classes="batchsim-knob-service") for each in tips.items()]
        self.show(labels, value)
        for each in self.lists:
            each.observe(lambda _: self._chosen(), names="value")

    @property
    def widgets(self) -> list[widgets.Widget]:
        return self.lists[: len(path_of(self.shown))]

    @property
    def options(self) -> tuple[tuple[str, str], ...]:
        """All choices, as (label, value)."""
        return tuple((label, label) for label in self.labels.values())

    @property
    def value(self) -> str:
        """The label of the state's service time; setting it moves the state."""
        return self.shown

    @value.setter
    def value(self, label: str) -> None:
        if label not in self.labels.values():
            raise ValueError(f"a service time must be on the list, got {label!r}")
        self.take(label)

    def show(self, labels: Sequence[str], value: str) -> None:
        """Show a choice, and offer these labels in addition to the published tables."""
        every = *labels, *(PUBLISHED + name for name in published_names())
        self.labels, self.shown, chosen = {path_of(label): label for label in every}, value, path_of(value)
        for place, (each, word) in enumerate(zip(self.lists, chosen, strict=False)):
            fitting = dict.fromkeys(path[place] for path in self.labels if path[:place] == chosen[:place])
            options = tuple((text(place, each), each) for each in fitting)
            if each.options != options:
                each.options = options
            each.value = word

    def _chosen(self) -> None:
        """Take a hand's choice: of tables the one that is most like the previous one, the model first."""
        wanted = [each.value for each in self.lists]
        likest = max(self.labels, key=lambda path: [*map(eq, path, wanted)])
        self.take(self.labels[likest])


def text(place: int, word: str) -> str:
    """Return a part of a path as its list shows it.

    >>> text(2, "a100-80gb"), text(3, "fp16/trt")
    ('A100 80GB', 'fp16, trt')
    """
    return {2: word.upper().replace("-", " "), 3: word.replace("/", ", ")}.get(place, word)
