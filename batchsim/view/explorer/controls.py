"""The explorer's controls: one for every value of its state that a hand can move."""

import functools
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from typing import Any

import ipywidgets as widgets

from batchsim.servers.registry import ALL
from batchsim.servers.server import Server
from batchsim.view.explorer import presets
from batchsim.view.explorer import services as offer
from batchsim.view.explorer.control import GIVEN
from batchsim.view.explorer.kinds import CONTROLS, on_page, relevant
from batchsim.view.explorer.knob import Knob
from batchsim.view.explorer.parts import Values
from batchsim.view.explorer.services import ServiceChooser
from batchsim.view.explorer.session import Session
from batchsim.view.explorer.state import State
from batchsim.view.explorer.widgets import dropdown, hide, toggle


class Controls:
    """The controls by name, as `controls["max_wait_ms"]`: they move the session's state, or follow it."""

    def __init__(self, session: Session, services: Mapping[str, Values]) -> None:
        self.session = session
        self.services = {**services, **offer.FORMULAS}
        self.paused = False
        self.by_name: dict[str, Any] = {}
        self.knobs: dict[str, Knob] = {}
        self._follow()
        session.subscribe("state", self._follow)

    def __getitem__(self, name: str) -> Any:
        return self.by_name[name]

    def on_page(self, page: str) -> list[Any]:
        """Return the controls on a page that exist already, in order."""
        return [self.by_name[name] for name in on_page(page) if name in self.by_name]

    def _make_missing(self) -> None:
        """Make the controls of the state's kind when it is first chosen, as each one costs the page time."""
        own = self.session.state.kind.controls
        for name, spec in CONTROLS.items():
            if name not in self.by_name and spec.page is not None and (name in own or name == "mode"):
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
        if name == "mode":
            return toggle(list(spec.bounds["options"]), spec.about, value)
        return dropdown(spec.label, tip, self._offered(name), self._shown(name))

    def _offered(self, name: str) -> tuple[tuple[str, str], ...]:
        """Return the options of a list, as (label, value)."""
        state, labels = self.session.state, CONTROLS[name].bounds["options"]
        if name == state.kind.rule:
            return presets.menu(state)
        words = [*state.kind.options.get(name, labels), *[GIVEN] * state.may_be_given(name)]
        return tuple((labels[word], word) for word in words)

    # How they move the state.

    def _guard(self, name: str, value: Any) -> None:
        """Refuse a value that contradicts the others, unless they already contradict each other."""
        if self.paused:
            return
        runner, state = self.session.runner, self.session.state
        try:
            runner.scenario(state)
        except (TypeError, ValueError):
            return
        runner.scenario(self._changed(name, value))

    def _changed(self, name: str, value: Any) -> State:
        """Return the state with another value; the rule's batch sizes follow a smaller `max_batch_size`."""
        before = self.session.state
        state = before.replace(**before.kind.changes(before, name, value))
        return state.fitted() if name in (state.kind.rule, "max_batch_size") else state

    def _moved(self, name: str, _: Any = None) -> None:
        if self.paused:
            return
        value = self.by_name[name].value
        if name == "service":
            return self._choose(lambda state: state.kind.rescaled(state, self._values(value)))
        if value in ALL and name == self.session.state.kind.rule:
            return self._choose(self._served_by(ALL[value]))
        if name == "mode":
            with self.session.reporting():
                self.session.turn_to(value)
            return None
        state = self.session.state = self._changed(name, value)
        if name in state.kind.options:  # another option may change others
            self._follow()
        else:
            with self._pause():
                for other in state.rule_option.controls:
                    self.by_name[other].value = getattr(state, other)
                if name in state.option(state.kind.service).controls:
                    self._follow_service()  # which may no longer be the given one
                if name == "max_batch_size":
                    self._fit()
                self._show_relevant()
        self.session.move(continuous=name in self.knobs and self.knobs[name].sliding)

    def _choose(self, chosen: Callable[[State], State]) -> None:
        with self.session.reporting():
            try:
                self.session.move_to(chosen(self.session.state))
            except Exception:
                self._follow()  # the previous choice
                raise

    def _served_by(self, server: Server) -> Callable[[State], State]:
        """Return what gives a state a server's defaults, with batches that the service time covers."""

        def served(state: State) -> State:
            scenario = self.session.runner.scenario(state)
            size = scenario.rule.max_batch_size
            config = presets.defaults(server, size, **state.kind.on_device(state))
            largest = scenario.service.largest_batch
            if config.rule.max_batch_size > largest:
                rule = replace(config.rule, max_batch_size=int(largest))  # type: ignore[type-var]
                config = replace(config, rule=rule)
            state = state.kind.fitting(state, config)
            return state.kind.served(state, config, self.session.runner.scenario(state))

        return served

    def _values(self, label: str) -> Values:
        """Return the values for a service time, after measuring it if necessary."""
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

    # How they follow a state from elsewhere.

    def _shown(self, name: str) -> Any:
        """Return the value of the state that a control shows: the chosen server, if there is one."""
        state = self.session.state
        return (name == state.kind.rule and state.server) or getattr(state, name)

    def _follow(self) -> None:
        self._make_missing()
        state = self.session.state
        with self._pause():
            self._follow_service()
            for name, control in self.by_name.items():
                is_list = isinstance(control, widgets.Dropdown) and name in state.kind.controls
                if is_list and control.options != (options := self._offered(name)):
                    control.options = options
                if name != "service":
                    control.value = self._shown(name)
            for knob in self.knobs.values():
                knob.settle()  # removes a refused text, though the value is the same
            self._fit()
            self._show_relevant()

    def _follow_service(self) -> None:
        """Choose the state's service time, after adding it to the list if it is missing."""
        state = self.session.state
        if "service" not in state.kind.controls:
            return
        label, chooser = offer.label_of(state, self.services), self.by_name["service"]
        if label is None:
            label = f"{state.option('service').label}: {state.curve_of or 'given'}"
            names = "service", "curve_of", *state.option("service").controls
            self.services[label] = {name: getattr(state, name) for name in names}
        chooser.offer([*self.services, *offer.MEASURE_HERE])
        chooser.value = label

    def _show_relevant(self) -> None:
        state = self.session.state
        for name, control in self.by_name.items():
            hide(control, not relevant(name, vars(state)))
        aliases: Mapping[str, str] = {}
        with suppress(TypeError, ValueError):  # of a state that is refused
            aliases = presets.aliases(state.server, self.session.runner.scenario(state))
        for name, knob in self.knobs.items():
            knob.say_also(aliases.get(name, ""))

    def _fit(self) -> None:
        state = self.session.state
        ranges = state.kind.ranges(state)
        for name, knob in self.knobs.items():
            if (slider := knob.spec.slider) is not None:
                knob.fit(*ranges.get(name, (slider.low, slider.high)))
