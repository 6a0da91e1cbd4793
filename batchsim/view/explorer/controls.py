"""The explorer's controls: one for every value of its state that a hand can move."""

import functools
import math
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

import ipywidgets as widgets

from batchsim.scenario.saturation import estimate_per_s
from batchsim.view.canvas.scales import nice
from batchsim.view.explorer import services as offer
from batchsim.view.explorer.controls_table import CONTROLS, on_page, relevant
from batchsim.view.explorer.controls_tokens import LARGEST_WHOLE, LONGEST_MS
from batchsim.view.explorer.kinds_tokens import OWN
from batchsim.view.explorer.knob import Knob, dropdown, hide, toggle
from batchsim.view.explorer.services import ServiceChooser
from batchsim.view.explorer.session import Session
from batchsim.view.explorer.state import State


class Controls:
    """The controls by name, as `controls["max_wait_ms"]`: they move the session's state, or follow it."""

    def __init__(self, session: Session, services: Mapping[str, offer.Values]) -> None:
        self.session = session
        self.services = {**services, offer.AFFINE: {"service": "affine"}}
        self.paused = False
        self.by_name: dict[str, Any] = {}
        self.knobs: dict[str, Knob] = {}
        self._follow()
        session.subscribe("state", self._follow)

    def __getitem__(self, name: str) -> Any:
        return self.by_name[name]

    def on_page(self, page: str) -> list[Any]:
        """Return the controls on a page, so far as they are made, in order."""
        return [self.by_name[name] for name in on_page(page) if name in self.by_name]

    def _make_those_of(self, mode: str) -> None:
        """Make the controls of a mode when it is first turned to: a page pays for each."""
        for name, spec in CONTROLS.items():
            if name not in self.by_name and spec.page is not None and spec.mode in (None, mode):
                control = self.by_name[name] = self._make(name)
                control.add_class(f"batchsim-knob-{name}")
                control.observe(functools.partial(self._moved, name), names="value")
                if isinstance(control, Knob):
                    self.knobs[name] = control
                    control.guard = functools.partial(self._guard, name)

    def _make(self, name: str) -> Knob | ServiceChooser | widgets.Dropdown | widgets.ToggleButtons:
        spec, value = CONTROLS[name], getattr(self.session.state, name)
        if spec.kind != "choice":
            return Knob(spec, value)
        tip = f"{spec.label}: {spec.about}"
        if name == "service":
            return ServiceChooser(spec.label, tip, [*self.services, *offer.MEASURE_HERE])
        options = [(label, word) for word, label in spec.bounds["options"].items()]
        if name == "mode":
            return toggle([word for _, word in options], spec.about, value)
        if self.session.given[0 if name == "workload" else 1] is None:
            options = [option for option in options if option[1] != "given"]
        return dropdown(spec.label, tip, options, value)

    # What happens when a hand moves one.

    def _guard(self, name: str, value: Any) -> None:
        """Refuse a value that contradicts the others, unless they contradict each other already."""
        if self.paused:
            return
        try:
            self.session.state.scenario(*self.session.given)
        except (TypeError, ValueError):
            return
        self._changed(name, value).scenario(*self.session.given)

    def _changed(self, name: str, value: Any) -> State:
        """Return the state with another value; the rule's batch sizes follow a smaller `max_batch_size`."""
        before = self.session.state
        state = before.replace(**{name: value})
        if name == "step" and value == OWN:  # which begins as what was chosen before
            return state.replace(**before.made("step").cost._asdict())
        return state.fitted() if name in ("rule", "batching", "max_batch_size") else state

    def _moved(self, name: str, _: Any = None) -> None:
        if self.paused:
            return
        value = self.by_name[name].value
        if name == "service":
            return self._choose(value)
        if name == "mode":
            with self.session.reporting():
                self.session.turn_to(value)
            return None
        state = self.session.state = self._changed(name, value)
        with self._pause():
            for other in (
                *state.rule_kind.controls,
                *(state.kind("step").controls if name == "step" else ()),
            ):
                self.by_name[other].value = getattr(state, other)
            if name in ("fixed_ms", "per_item_ms") and not state.in_tokens:
                self._follow_service()  # it may no longer be the one that was given
            if name in ("rule", "batching", "max_batch_size", "step"):
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
        self._make_those_of(self.session.state.mode)
        with self._pause():
            if not self.session.state.in_tokens:
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
        ranges = self._ranges_of_tokens(state) if state.in_tokens else self._ranges(state)
        for name, knob in self.knobs.items():
            if (slider := knob.spec.slider) is not None:
                knob.fit(*ranges.get(name, (slider.low, slider.high)))

    def _ranges_of_tokens(self, state: State) -> dict[str, tuple[float, ...]]:
        # For a slider's range the estimate will do, which needs no engine.
        carried_per_s = estimate_per_s(state.replace(workload="poisson").scenario(*self.session.given))
        return {
            "rate_per_s": (_tenth(carried_per_s / 100), _tenth(3 * carried_per_s)),
            "max_batch_size": (1, LARGEST_WHOLE),
            "min_batch_size": (1, state.max_batch_size),
            "max_wait_ms": (0, LONGEST_MS, LONGEST_MS / 200),
        }

    def _ranges(self, state: State) -> dict[str, tuple[float, ...]]:
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
        return ranges


def _tenth(value: float) -> float:
    """Return the nearest tenth of a power of ten, for the end of a log slider."""
    return 10 ** (round(math.log10(value) * 10) / 10)
