"""The service times that the explorer offers: where each comes from, and what moves with it."""

import html
import math
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import ipywidgets as widgets
import traitlets

from batchsim.measured.published import published_names, published_source
from batchsim.scenario import Service
from batchsim.view.canvas.scales import nice
from batchsim.view.explorer.kinds import SERVICES
from batchsim.view.explorer.kinds_tokens import OWN
from batchsim.view.explorer.knob import dropdown, hide
from batchsim.view.explorer.state import State, service_values

AFFINE = SERVICES["affine"].label
MEASURE_HERE = {f"Measure here: {name}": name for name in ("mlp", "convnet", "transformer")}
PUBLISHED = "Published: "
LARGEST_SLID = 64  # larger batch sizes can be typed

Values = dict[str, Any]  # what a state says of a service time


def given(service: Any) -> tuple[str, Values]:
    """Return the label and the values of a service time or a Measurement that `explore` was given."""
    if isinstance(service, Service):
        return f"Given: {service!r}", service_values(service)
    if isinstance(getattr(service, "service", None), Service):  # a Measurement, without loading JAX
        of = f"{service.model} on {service.device}"
        return f"Measured: {of}", service_values(service.service, curve_of=of)
    raise TypeError(f"service must be a Measurement, a service time or a Scenario, got {service!r}")


def measure(model: str) -> Values:
    """Return a model's service time, measured on this machine: JAX loads with the first one."""
    from batchsim import device

    measured = device.measure(device.load_model(model), roofline=False, progress=False)
    return service_values(measured.service, curve_of=f"{model} on {measured.device}")


def label_of(state: State, services: Mapping[str, Values]) -> str | None:
    """Return the label of a state's service time, None where none of them is it."""
    if state.service == "published":
        return PUBLISHED + state.published
    names = ("service", "curve", "curve_of") if state.service == "curve" else ("service",)
    for label, values in services.items():
        # A formula that was given is another one as soon as its costs are moved.
        compared = names if "fixed_ms" not in values else ("service", "fixed_ms", "per_item_ms")
        if all(values.get(name) == getattr(state, name) for name in compared):
            return label
    return None


def largest_slid(service: Service) -> int:
    """Return the largest batch size that a slider reaches."""
    return int(min(service.largest_batch, LARGEST_SLID))


def rescaled(state: State, values: Values, keep_rate: bool = False) -> State:
    """Return the state with another service time, its rate, sizes and times brought to that scale."""
    # The last one's padding may reach beyond this one's sizes.
    state = state.replace(**{"padding": (), **values})
    service = state.service_time()
    size = min(state.max_batch_size, largest_slid(service))
    state = state.replace(max_batch_size=size).fitted()
    full_ms = 1000 * service(size)
    saturation_per_s = size / full_ms * 1000 * state.servers
    if not keep_rate and not 0.25 * saturation_per_s < state.rate_per_s < saturation_per_s:
        state = state.replace(rate_per_s=float(f"{0.4 * saturation_per_s:.2g}"))
    suits = full_ms / 50 <= state.max_wait_ms <= 5 * full_ms
    if not suits and state.max_wait_ms not in (0, math.inf):
        state = state.replace(max_wait_ms=nice(0.5 * full_ms))
    if state.objective_ms is not None and not full_ms < state.objective_ms < 20 * full_ms:
        state = state.replace(objective_ms=nice(2 * full_ms))
    return state


def origin(state: State) -> str:
    """Return where a state's service time comes from, as HTML: of a curve, whether from this machine."""
    if state.in_tokens and state.step == OWN:
        return "Fixed + the larger of weights and tokens + key reads + pairs within prompts."
    if state.in_tokens or state.service == "published":
        source = published_source(state.step if state.in_tokens else state.published)
        stat = source.stat if state.in_tokens else f"{source.stat} latency"
        text = f"Published: {stat} with {source.backend}. Not measured on this machine."
        link = html.escape(source.source_url, quote=True)
        return f'{html.escape(text)} <a href="{link}" target="_blank" rel="noopener">Source</a>'
    if state.service != "curve":
        return "A formula: fixed cost + cost per item x batch size."
    of = state.curve_of
    if not of:
        return "A curve without the name of its model and device."
    from batchsim.device.models import devices  # JAX, for a measured curve: so mostly it is loaded

    here = devices()
    text = f"Measured: {of}, a device like this machine's."
    if of.partition(" on ")[2] not in here:
        other = f"That is another machine's curve: this one has {' and '.join(here)}"
        text = f"Measured: {of}. {other}. Choose “Measure here” for its own."
    return html.escape(text)


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
