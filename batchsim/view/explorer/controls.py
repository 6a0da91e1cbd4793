"""The explorer's controls: one for every value of its state that a hand can move."""

import functools
import math
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

import ipywidgets as widgets

from batchsim.view.canvas.scales import nice
from batchsim.view.explorer import services as offer
from batchsim.view.explorer.controls_table import CONTROLS
from batchsim.view.explorer.kinds import relevant
from batchsim.view.explorer.knob import Knob, dropdown, hide
from batchsim.view.explorer.service_chooser import ServiceChooser
from batchsim.view.explorer.session import Session
from batchsim.view.explorer.state import State


class Controls:
    """The controls by name, as `controls["max_wait_ms"]`: they move the session's state, or follow it."""

    def __init__(self, session: Session, services: Mapping[str, offer.Values]) -> None:
        self.session = session
        self.services = {**services, offer.AFFINE: {"service": "affine"}}
        self.paused = False
        names = [name for name, spec in CONTROLS.items() if spec.page is not None]
        self.by_name: dict[str, Any] = {name: self._make(name) for name in names}
        self.knobs = {name: each for name, each in self.by_name.items() if isinstance(each, Knob)}
        for name, control in self.by_name.items():
            control.add_class(f"batchsim-knob-{name}")
            control.observe(functools.partial(self._moved, name), names="value")
        for name, knob in self.knobs.items():
            knob.guard = functools.partial(self._guard, name)
        self._follow()
        session.subscribe("state", self._follow)

    def __getitem__(self, name: str) -> Any:
        return self.by_name[name]

    def _make(self, name: str) -> Knob | ServiceChooser | widgets.Dropdown:
        spec, value = CONTROLS[name], getattr(self.session.state, name)
        if spec.kind != "choice":
            return Knob(spec, value)
        tip = f"{spec.label}: {spec.about}"
        if name == "service":
            return ServiceChooser(spec.label, tip, [*self.services, *offer.MEASURE_HERE])
        options = [(label, word) for word, label in spec.bounds["options"].items()]
        if name == "workload" and self.session.traffic is None:
            options = [option for option in options if option[1] != "given"]
        return dropdown(spec.label, tip, options, value)

    # What happens when a hand moves one.

    def _guard(self, name: str, value: Any) -> None:
        """Refuse a value that contradicts the others, unless they contradict each other already."""
        if self.paused:
            return
        try:
            self.session.state.scenario(self.session.traffic)
        except (TypeError, ValueError):
            return
        self._changed(name, value).scenario(self.session.traffic)

    def _changed(self, name: str, value: Any) -> State:
        """Return the state with another value; the rule's batch sizes follow a smaller `max_batch_size`."""
        state = self.session.state.replace(**{name: value})
        return state.fitted() if name in ("rule", "max_batch_size") else state

    def _moved(self, name: str, _: Any = None) -> None:
        if self.paused:
            return
        value = self.by_name[name].value
        if name == "service":
            return self._choose(value)
        state = self.session.state = self._changed(name, value)
        with self._pause():
            for other in state.kind("rule").controls:
                self.by_name[other].value = getattr(state, other)
            if name in ("fixed_ms", "per_item_ms"):
                self._follow_service()  # it may no longer be the one that was given
            if name in ("rule", "max_batch_size"):
                self._fit()
            self._show_relevant()
        self.session.move(continuous=name in self.knobs and self.knobs[name].sliding)

    def _choose(self, label: str) -> None:
        with self.session.reporting():
            try:
                self.session.move_to(offer.rescaled(self.session.state, self._values(label)))
            except Exception:
                with self._pause():
                    self._follow_service()  # what was chosen before
                raise

    def _values(self, label: str) -> offer.Values:
        """Return what the state says of a service time, measuring it first if it is to be."""
        if label.startswith(offer.PUBLISHED):
            return {"service": "published", "published": label.removeprefix(offer.PUBLISHED)}
        if label not in self.services:
            model = offer.MEASURE_HERE[label]
            self.session.say(f"Compiling and measuring the {model} on this machine: about 5 s.")
            self.services[label] = offer.measure(model)
        return self.services[label]

    @contextmanager
    def _pause(self) -> Iterator[None]:
        """Let controls change without each change being a move."""
        with ExitStack() as stack:
            stack.callback(setattr, self, "paused", self.paused)
            self.paused = True
            for knob in self.knobs.values():
                stack.enter_context(knob.still())
            yield

    # How they follow a state that came from elsewhere.

    def _follow(self) -> None:
        with self._pause():
            self._follow_service()
            for name, control in self.by_name.items():
                if name != "service":
                    control.value = getattr(self.session.state, name)
            for knob in self.knobs.values():
                knob.settle()  # what was refused goes, though the value is the same
            self._fit()
            self._show_relevant()

    def _follow_service(self) -> None:
        """Choose the state's service time, after adding it to the list where it is missing."""
        state, choice = self.session.state, self.by_name["service"]
        label = offer.label_of(state, self.services)
        if label is None:
            label = f"Curve: {state.curve_of or 'given'}"
            self.services[label] = {name: getattr(state, name) for name in ("service", "curve", "curve_of")}
        choice.offer([*self.services, *offer.MEASURE_HERE])
        choice.value = label

    def _show_relevant(self) -> None:
        values = vars(self.session.state)
        for name, control in self.by_name.items():
            hide(control, not relevant(name, values))

    def _fit(self) -> None:
        state = self.session.state
        service = state.service_time()
        largest = offer.largest_slid(service)
        least_ms, slowest_ms = 1000 * service(1), 1000 * service(largest)
        longest_ms = nice(4 * slowest_ms)
        ranges: dict[str, tuple[float, ...]] = {
            "rate_per_s": (_tenth(20 / least_ms), _tenth(16 * largest / slowest_ms * 1000)),
            "max_batch_size": (1, largest),
            "host_ms": (0, least_ms, least_ms / 100),
            "objective_ms": (_tenth(0.5 * least_ms), _tenth(50 * slowest_ms)),
        }
        for name in state.kind("rule").controls:
            if name.endswith("_ms"):
                ranges[name] = (0, longest_ms, longest_ms / 200)
            elif name.endswith("batch_size"):
                ranges.setdefault(name, (1, state.max_batch_size))
        for name, knob in self.knobs.items():
            if (slider := knob.spec.slider) is not None:
                knob.fit(*ranges.get(name, (slider.low, slider.high)))


def _tenth(value: float) -> float:
    """Return the nearest tenth of a power of ten, for the end of a log slider."""
    return 10 ** (round(math.log10(value) * 10) / 10)
