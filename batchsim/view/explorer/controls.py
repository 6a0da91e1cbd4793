"""The explorer's controls: one for every value of its state, in the field's words, with units."""

import functools
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from typing import Any

from batchsim.scenario import OpenLoop, Scenario, Service, published_names
from batchsim.view.canvas.scales import nice
from batchsim.view.explorer.fields import RULES, WORKLOADS
from batchsim.view.explorer.knob import Choice, Knob
from batchsim.view.explorer.knobs import KNOBS, LARGEST_SLID
from batchsim.view.explorer.state import State, service_values

AFFINE = "affine: a fixed cost and a cost per item"
MEASURE_HERE = {f"measure here: {name}": name for name in ("mlp", "convnet", "transformer")}
PUBLISHED = "published: "


class Controls:
    """Every control by its name, what they say together, and which of them matter.

    `moved` is called after a change that makes sense to its control. `state` may be set: everything
    then moves at once. `traffic` is what the workload "given" stands for.
    """

    def __init__(
        self, state: State, services: Mapping[str, dict[str, Any]], traffic: OpenLoop | None
    ) -> None:
        self.traffic = traffic
        # What the state says of each service time that is offered.
        self.services: dict[str, dict[str, Any]] = {**services, AFFINE: {"service": "affine"}}
        self.state_kept = state
        self.moved: Callable[[str], None] = lambda name: None
        self.measure: Callable[[str], dict[str, Any]] = _not_here
        # Within it, what fails is said to the reader.
        self.telling: Callable[[], AbstractContextManager[None]] = nullcontext
        self.paused = False
        kinds = [(words, key) for key, words in WORKLOADS.items() if key != "given" or traffic is not None]
        self.by_name: dict[str, Any] = {
            name: Knob(name, spec.label, spec.tip, getattr(state, name), spec.slider())
            for name, spec in KNOBS.items()
        }
        self.by_name |= {
            "workload": Choice(
                "workload", "Arrivals", "The pattern in which requests arrive", kinds, "poisson"
            ),
            "rule": Choice(
                "rule", "Rule", "When a batch leaves", [(v, k) for k, v in RULES.items()], state.rule
            ),
            "service": Choice(
                "service", "Service time", "How long a batch computes", self._offered(), AFFINE
            ),
        }
        for name, control in self.by_name.items():
            control.observe(functools.partial(self._moved, name), names="value")
            if isinstance(control, Knob):
                control.guard = functools.partial(self._guard, name)
        self.set(state)

    def __getitem__(self, name: str) -> Any:
        return self.by_name[name]

    def _offered(self) -> list[tuple[str, str]]:
        names = [*self.services, *MEASURE_HERE, *(PUBLISHED + name for name in published_names())]
        return [(name, name) for name in dict.fromkeys(names)]

    # What they say.

    @property
    def state(self) -> State:
        """What the controls say."""
        return self.state_kept

    @property
    def scenario(self) -> Scenario:
        """The scenario that they say; ValueError where there is none."""
        return self.state_kept.scenario(self.traffic)

    def set(self, state: State) -> None:
        """Let the controls say something else; ValueError, and nothing moves, where it makes no sense."""
        scenario = state.scenario(self.traffic)
        with self._pause():
            self.state_kept = state
            self._offer(state)
            for name, control in self.by_name.items():
                if name != "service":
                    control.value = getattr(state, name)
                if isinstance(control, Knob):
                    control.settle()  # what was refused goes, though the value is the same
            self._fit(scenario)

    def _offer(self, state: State) -> None:
        """Choose the service time of a state, and offer it if it is not among those."""
        choice = self.by_name["service"]
        if state.service == "published":
            choice.value = PUBLISHED + state.published
            return
        wanted: dict[str, Any] = {"service": state.service}
        if state.service == "curve":
            wanted |= {"curve": state.curve, "curve_of": state.curve_of}
        for label, values in self.services.items():
            given = (
                {"fixed_ms": state.fixed_ms, "per_item_ms": state.per_item_ms} if "fixed_ms" in values else {}
            )
            if all(values.get(key) == value for key, value in (wanted | given).items()):
                choice.value = label
                return
        label = f"curve: {state.curve_of or 'given'}"
        while label in self.services:
            label += "'"
        self.services = {label: wanted, **self.services}
        choice.options = self._offered()
        choice.value = label

    def _chosen(self, label: str) -> dict[str, Any]:
        """Return what the state says of a service time, measuring it first if it is to be."""
        if label.startswith(PUBLISHED):
            return {"service": "published", "published": label.removeprefix(PUBLISHED)}
        if label not in self.services:
            self.services[label] = self.measure(MEASURE_HERE[label])
        return self.services[label]

    # What happens when one moves.

    def _guard(self, name: str, value: Any) -> None:
        """Refuse a value with which the others make no sense, unless they make none already."""
        if self.paused:
            return
        try:
            self.state_kept.scenario(self.traffic)
        except (TypeError, ValueError):
            return
        self._changed(name, value).scenario(self.traffic)

    def _changed(self, name: str, value: Any) -> State:
        """Return the state with another value: a largest batch size takes the smallest along."""
        state = self.state_kept.replace(**{name: value})
        if name != "min_batch_size" and state.rule == "at_least":
            state = state.replace(min_batch_size=min(state.min_batch_size, state.max_batch_size))
        return state

    def _moved(self, name: str, _: Any = None) -> None:
        if self.paused:
            return
        value = self.by_name[name].value
        if name == "service":
            with self.telling():
                try:
                    self.choose(value)
                except Exception:
                    with self._pause():
                        self._offer(self.state_kept)  # what was chosen last
                    raise
                self.moved(name)
            return
        self.state_kept = self._changed(name, value)
        with self._pause():
            if name in ("rule", "max_batch_size", "min_batch_size"):
                self._fit_sizes()
            if name in ("fixed_ms", "per_item_ms"):
                self._offer(self.state_kept)  # it may no longer be the one that was given
            self._show_used()
        self.moved(name)

    def choose(self, label: str, keep_rate: bool = False) -> None:
        """Take another service time, and bring the rest to its scale: it may be a thousand times shorter."""
        # The last one's padding may reach beyond this one's sizes.
        state = self.state_kept.replace(**{"padding": (), **self._chosen(label)})
        service = state.service_time()
        largest = _largest(service)
        size = min(state.max_batch_size, largest)
        state = state.replace(max_batch_size=size, min_batch_size=min(state.min_batch_size, size))
        full_ms = 1000 * service(size)
        per_s = size / full_ms * 1000 * state.servers
        if not keep_rate and not 0.25 * per_s < state.rate_per_s < per_s:
            state = state.replace(rate_per_s=float(f"{0.4 * per_s:.2g}"))
        if not full_ms / 50 <= state.max_wait_ms <= 5 * full_ms and state.max_wait_ms:
            state = state.replace(max_wait_ms=nice(0.5 * full_ms))
        if state.objective_ms is not None and not full_ms < state.objective_ms < 20 * full_ms:
            state = state.replace(objective_ms=nice(2 * full_ms))
        self.set(state)

    @contextmanager
    def _pause(self) -> Iterator[None]:
        """Let controls change without each change being a move."""
        before, self.paused = self.paused, True
        try:
            with ExitStack() as stack:
                for control in self.by_name.values():
                    if isinstance(control, Knob):
                        stack.enter_context(control.still())
                yield
        finally:
            self.paused = before

    # Which matter, and how far they reach.

    def _show_used(self) -> None:
        for name, spec in KNOBS.items():
            self.by_name[name].show(spec.matters(self.state_kept))

    def _fit(self, scenario: Scenario) -> None:
        """Give the sliders the ranges that suit the service time."""
        self._show_used()
        service, state = scenario.service, self.state_kept
        largest = _largest(service)
        slowest_ms = 1000 * service(largest)
        fastest_per_s = 8 * largest / slowest_ms * 1000
        self.by_name["rate_per_s"].fit(_power(0.02 / service(1)), _power(2 * fastest_per_s))
        longest_ms = nice(4 * slowest_ms)
        self.by_name["max_wait_ms"].fit(0, longest_ms, longest_ms / 200)
        self.by_name["objective_ms"].fit(_power(500 * service(1)), _power(50 * slowest_ms))
        self._fit_sizes()
        if state.service == "affine":
            self.by_name["fixed_ms"].fit(0, 50)
            self.by_name["per_item_ms"].fit(0, 5)

    def _fit_sizes(self) -> None:
        state = self.state_kept
        self.by_name["max_batch_size"].fit(1, _largest(state.service_time()))
        self.by_name["min_batch_size"].value = state.min_batch_size
        self.by_name["min_batch_size"].fit(1, state.max_batch_size)


def _largest(service: Service) -> int:
    """Return the largest batch that a slider reaches."""
    return int(min(service.largest_batch, LARGEST_SLID))


def _power(value: float) -> float:
    """Return the nearest tenth of a power of ten, for the end of a log slider."""
    return 10 ** (round(math.log10(value) * 10) / 10)


def _not_here(model: str) -> dict[str, Any]:
    raise RuntimeError(f"nobody measures {model}")


def offered(service: Any) -> tuple[dict[str, Any], str]:
    """Return what a state says of a service time or a Measurement, and its name in the list."""
    if isinstance(service, Service):
        return service_values(service), f"given: {service!r}"
    if isinstance(getattr(service, "service", None), Service):  # a Measurement, without loading JAX
        of = f"{service.model} on {service.device}"
        return service_values(service.service, curve_of=of), f"measured: {of}"
    raise TypeError(f"service must be a Measurement, a service time or a Scenario, got {service!r}")
