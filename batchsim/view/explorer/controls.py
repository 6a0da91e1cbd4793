"""The explorer's controls: one for every value of its state that a hand can move."""

import functools
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, TypeAlias

import ipywidgets as widgets

from batchsim.servers.registry import ALL
from batchsim.servers.server import Server
from batchsim.view.explorer import presets
from batchsim.view.explorer import services as offer
from batchsim.view.explorer.control import (
    ARRIVALS,
    COMPUTING,
    DEVICE,
    GIVEN,
    MAIN,
    RULE,
    SHARE,
    Control,
    Slider,
)
from batchsim.view.explorer.kind import Ranges
from batchsim.view.explorer.kinds import on_page, relevant
from batchsim.view.explorer.knob import Knob
from batchsim.view.explorer.parts import Values
from batchsim.view.explorer.rows import CONTROLS
from batchsim.view.explorer.services import ServiceChooser
from batchsim.view.explorer.session import Session
from batchsim.view.explorer.state import State
from batchsim.view.explorer.widgets import dropdown, plain, toggle

SETTINGS = ARRIVALS, RULE, COMPUTING, DEVICE  # the pages of controls
Made: TypeAlias = Knob | ServiceChooser | widgets.Dropdown | widgets.ToggleButtons


class Controls:
    """The controls by name, as `controls["max_wait_ms"]`: they show the session's state, and hands move it.

    Each is made when its page is first shown, or when it is asked for. The box of a page has those that make
    a difference now, below them what is `below`.
    """

    def __init__(
        self, session: Session, services: Mapping[str, Values],
        below: Mapping[str, Sequence[widgets.Widget]],
    ) -> None:  # fmt: skip
        self.session, self.below = session, below
        self.services = {**services, **offer.FORMULAS}
        self.made: dict[str, Made] = {}
        self.showing = False  # while controls change because the state has: no hand moves them
        self.service, self.ranges = next(iter(self.services)), Ranges()
        self.aliases: Mapping[str, str] = {}
        self.opened: str | None = None  # the page
        self.boxes = {page: plain(widgets.Box, classes="batchsim-page") for page in (*SETTINGS, SHARE)}
        self.boxes[MAIN] = plain(widgets.VBox, classes="batchsim-knobs")
        self._follow()
        session.subscribe("state", self._follow)

    def __getitem__(self, name: str) -> Any:
        return self._shown(name)

    def open(self, page: str | None) -> None:
        """Show the controls of a page, or of none."""
        self.opened = page
        self._place()

    def _make(self, name: str, spec: Control) -> Made:
        take, state = functools.partial(self._take, name), self.session.state
        if spec.page is None:
            raise KeyError(f"{name} has no control of its own")
        tip = f"{spec.label}: {spec.tip}"
        if name == "service":
            return ServiceChooser(spec.label, tip, self._offered_services(), self.service, take)
        if spec.type != "choice":
            value, alias = getattr(state, name), self.aliases.get(name, "")
            return Knob(name, spec, value, self._range(name), alias, take)
        if name == "mode":
            made = toggle(list(spec.bounds["options"]), spec.about, state.mode, classes="batchsim-knob-mode")
        else:
            classes = f"batchsim-knob-{name}"
            made = dropdown(spec.label, tip, self._offered(name), self._listed(name), classes=classes)
        made.observe(lambda change: take(change["new"]), names="value")
        return made

    def _offered(self, name: str) -> tuple[tuple[str, str], ...]:
        """Return the options of a list, as (label, value)."""
        state, labels = self.session.state, CONTROLS[name].bounds["options"]
        if name == state.kind.rule:
            return presets.menu(state)
        words = [*state.kind.options.get(name, labels), *[GIVEN] * state.may_be_given(name)]
        return tuple((labels[word], word) for word in words)

    # How hands move the state.

    def _take(self, name: str, value: Any, slides: bool = False) -> None:
        """Move the state to a value of a control; ValueError, without a move, if others contradict it."""
        if self.showing:
            return
        before = self.session.state
        if name == "service":
            return self._choose(lambda state: state.kind.rescaled(state, self._values(value)))
        if name == before.kind.rule and value in ALL:
            return self._choose(self._served_by(ALL[value]))
        if name == "mode":
            with self.session.reporting():
                self.session.turn_to(value)
            return None
        state = before.replace(**before.kind.changes(before, name, value))
        if name in (before.kind.rule, "max_batch_size"):
            state = state.fitted()  # the rule's batch sizes follow a smaller `max_batch_size`
        is_list = CONTROLS[name].type == "choice"
        if not is_list:
            self._guard(before, state)
        self.session.state = state
        self._follow(anew=is_list, fits=is_list or name == "max_batch_size")
        self._shown(name, anew=True)
        if state != before:
            self.session.move(continuous=slides)

    def _guard(self, before: State, state: State) -> None:
        """Refuse a state that contradicts itself, unless the one before it does so, too."""
        scenario = self.session.scenario
        try:
            scenario(before)
        except (TypeError, ValueError):
            return
        scenario(state)

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
            scenario = self.session.scenario(state)
            size = scenario.rule.max_batch_size
            config = presets.defaults(server, size, **state.kind.on_device(state))
            largest = scenario.service.largest_batch
            if config.rule.max_batch_size > largest:
                rule = replace(config.rule, max_batch_size=int(largest))  # type: ignore[type-var]
                config = replace(config, rule=rule)
            state = state.kind.fitting(state, config)
            return state.served(config, self.session.scenario(state))

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

    # How they show it.

    def _follow(self, anew: bool = True, fits: bool = True) -> None:
        """Show the state; `anew`: in place of refused texts, too; `fits`: on sliders of suitable ranges."""
        state = self.session.state
        if fits:
            self.ranges = state.kind.ranges(state)
        self.aliases = {}
        with suppress(TypeError, ValueError):  # of a state that is refused
            self.aliases = presets.aliases(state.server, self.session.scenario(state))
        if "service" in state.kind.controls:
            self.service = self._service()
        self._place(anew)

    def _place(self, anew: bool = False) -> None:
        """Put the controls that make a difference on their pages, and make those of an open page."""
        values = vars(self.session.state)
        for page, box in self.boxes.items():
            is_open = page in (MAIN, SHARE, self.opened)
            names = [name for name in on_page(page) if is_open or name in self.made]
            shown = [self._shown(name, anew) for name in names if relevant(name, values)]
            there = [part for control in shown for part in widgets_of(control)]
            there += self.below.get(page, [])
            if list(box.children) != there:
                box.children = there

    def _shown(self, name: str, anew: bool = False) -> Made:
        """Return a control, which shows the state."""
        if name not in self.made:
            self.made[name] = self._make(name, CONTROLS[name])
            return self.made[name]
        control, self.showing = self.made[name], True
        try:
            if isinstance(control, Knob):
                value, alias = getattr(self.session.state, name), self.aliases.get(name, "")
                control.show(value, self._range(name), alias, anew)
            elif isinstance(control, ServiceChooser):
                control.show(self._offered_services(), self.service)
            else:
                if name != "mode" and control.options != (options := self._offered(name)):
                    control.options = options
                control.value = self._listed(name)
        finally:
            self.showing = False
        return control

    def _listed(self, name: str) -> Any:
        """Return the value of the state that a list shows: the chosen server, if there is one."""
        state = self.session.state
        return (name == state.kind.rule and state.server) or getattr(state, name)

    def _range(self, name: str) -> Slider | None:
        slider = CONTROLS[name].slider
        if slider is None or name not in self.ranges:
            return slider
        low, high, *step = self.ranges[name]
        return Slider(slider.scale, low, high, *(step or [slider.step]))

    def _offered_services(self) -> list[str]:
        return [*self.services, *offer.MEASURE_HERE]

    def _service(self) -> str:
        """Return the label of the state's service time, after adding it to the list if it is missing."""
        state = self.session.state
        label = offer.label_of(state, self.services)
        if label is None:
            label = f"{state.option('service').label}: {state.curve_of or 'given'}"
            names = "service", "curve_of", *state.option("service").controls
            self.services[label] = {name: getattr(state, name) for name in names}
        return label


def widgets_of(control: Made) -> Sequence[widgets.Widget]:
    """Return the widgets of a control, in their order on the page."""
    return control.widgets if isinstance(control, (Knob, ServiceChooser)) else [control]
