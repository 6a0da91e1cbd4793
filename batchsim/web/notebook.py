"""The page's figure in a notebook: it runs in the browser, and its values go both ways.

One source: the page's scripts, style and descriptions, and its loops for the textbook's rule alone. Python
sends the requests at rate 1, so the figure shows the numbers of `simulate`, to the last bit.
"""

import functools
import math
from collections.abc import Iterable
from typing import Any

import anywidget
import traitlets

from batchsim import _check
from batchsim.engines.draws import draw_cached, plain, standard_points
from batchsim.result import Result
from batchsim.scenario import Affine, Constant, Gamma, OpenLoop, Poisson, Scenario, SizeOrWait
from batchsim.simulate import simulate
from batchsim.study.surface import MAP_REQUESTS
from batchsim.view.cell import with_picture
from batchsim.view.explorer.rows import CONTROLS
from batchsim.view.pictures.plot import plot
from batchsim.view.scripts import JS, bundle, widget
from batchsim.web import wasm
from batchsim.web.descriptions import DRAWN, SHOWN, descriptions

VIEWS = ("film", *DRAWN)
TRAFFIC = Poisson, Constant, Gamma  # another rate only stretches it
ENDLESS = {
    "sync": True,
    "to_json": lambda value, _: None if value == math.inf else value,  # JSON has no infinity
    "from_json": lambda value, _: math.inf if value is None else value,
}
loops = functools.cache(wasm.kept)


def style() -> str:
    """Return the style of the page's figure, for this widget alone."""
    return f".batchsim-figure {{ position: relative; {(JS / 'figure.css').read_text('utf-8')} }}"


class LiveFigure(anywidget.AnyWidget):
    """A figure whose controls are traits: set one, or `scenario`, and the picture follows; a hand sets them.

    `result` is the run that it shows, of `simulate(figure.scenario, 20_000, figure.seed)`.
    """

    _esm = widget(JS / "notebook.js")
    _css = style()
    worker = traitlets.Unicode(bundle(JS / "worker.js", "modules.worker.serve(globalThis);")).tag(sync=True)
    described = traitlets.Dict().tag(sync=True)
    module = traitlets.Bytes().tag(sync=True)
    points_s = traitlets.Bytes().tag(sync=True)  # the requests at rate 1, as float64
    views: traitlets.List[str] = traitlets.List().tag(sync=True)
    controls: traitlets.List[str] = traitlets.List().tag(sync=True)
    rate_per_s = traitlets.Any().tag(sync=True)
    max_batch_size = traitlets.Any().tag(sync=True)
    max_wait_ms = traitlets.Any().tag(**ENDLESS)
    fixed_ms = traitlets.Any().tag(sync=True)
    per_item_ms = traitlets.Any().tag(sync=True)
    servers = traitlets.Any().tag(sync=True)
    objective_ms = traitlets.Any().tag(sync=True)

    def __init__(self, scenario: Scenario, seed: int, **shown: Any) -> None:
        self.seed = seed
        self._take(scenario)
        super().__init__(described=descriptions(), module=loops(wasm.FIGURE), **shown, **self._given)

    def _take(self, scenario: Scenario) -> None:
        """Check a scenario, and keep its traffic and the values of its controls."""
        parts = parts_of(scenario)
        self._workload = parts[0]
        found = {name: getattr(part, name) for part in parts for name in SHOWN if hasattr(part, name)}
        points_s = standard_points(self._workload, MAP_REQUESTS, self.seed)
        self._given = {**found, "servers": scenario.servers, "points_s": points_s.tobytes()}

    @traitlets.validate(*SHOWN)
    def _checked(self, proposal: Any) -> Any:
        name = proposal["trait"].name
        value = CONTROLS[name].check(name, proposal["value"])
        changed = self._made(**{name: value})
        draw_cached(changed, MAP_REQUESTS, self.seed, changed.rule.max_batch_size)  # as simulate checks it
        return value

    def _made(self, **changed: Any) -> Scenario:
        at = {name: getattr(self, name) for name in SHOWN} | changed
        rule = SizeOrWait(at["max_batch_size"], at["max_wait_ms"])
        service = Affine(at["fixed_ms"], at["per_item_ms"])
        return Scenario(self._workload.with_rate(at["rate_per_s"]), rule, service, at["servers"])

    @property
    def scenario(self) -> Scenario:
        """The scenario that the figure shows."""
        return self._made()

    @scenario.setter
    def scenario(self, scenario: Scenario) -> None:
        self._take(scenario)
        with self.hold_sync(), self.hold_trait_notifications():
            for name, value in self._given.items():
                setattr(self, name, value)

    @property
    def result(self) -> Result:
        """The run that the figure shows."""
        return simulate(self.scenario, MAP_REQUESTS, self.seed)

    def __repr__(self) -> str:
        return f"Figure of {self.scenario!r}"

    def _repr_mimebundle_(self, **options: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the widget, and a picture with a description for front ends without widgets."""
        picture = plot(self.result)
        return with_picture(super()._repr_mimebundle_(**options), picture.png(), picture.words)


def figure(
    scenario: Scenario, views: Iterable[str] = ("film", "latency"),
    controls: Iterable[str] = ("rate_per_s", "max_batch_size", "max_wait_ms"),
    objective_ms: float | None = None, seed: int = 0,
) -> LiveFigure:  # fmt: skip
    """Return a live figure of a scenario, for the last line of a cell: its sliders move without the kernel.

    `views` are of "film", "latency", "map", "load" and "breakdown". `controls` are of "rate_per_s",
    "max_batch_size", "max_wait_ms", "fixed_ms", "per_item_ms", "servers" and "objective_ms"; the figure has
    each as an attribute too. The p99 objective is 25 ms where the map or its control is shown, else none.

    It shows Poisson, Constant or Gamma requests, SizeOrWait and Affine: ValueError for anything else, as for
    an unknown name.

    >>> from batchsim import Affine, Poisson, Scenario, SizeOrWait
    >>> shown = figure(Scenario(Poisson(800), SizeOrWait(32, 10), Affine(5, 0.25)))
    >>> shown.max_wait_ms = 0
    >>> shown.scenario.rule, round(shown.result.percentile(99), 1)
    (SizeOrWait(max_batch_size=32, max_wait_ms=0), 13.8)
    """
    shown = {"views": views, "controls": controls}
    for (name, given), known in zip(shown.items(), (VIEWS, SHOWN), strict=True):
        listed = [given] if isinstance(given, str) else list(given)
        shown[name] = [_check.one_of(name, each, known) for each in listed]
    if objective_ms is None and ("map" in shown["views"] or "objective_ms" in shown["controls"]):
        objective_ms = CONTROLS["objective_ms"].default
    return LiveFigure(scenario, _check.whole("seed", seed, 0), objective_ms=objective_ms, **shown)


def parts_of(scenario: Scenario) -> tuple[OpenLoop, SizeOrWait, Affine]:
    """Return the parts of a scenario; TypeError or ValueError if the figure cannot show it."""
    _check.instance("scenario", scenario, Scenario, "a Scenario")
    workload, rule, service = scenario.workload, scenario.rule, scenario.service
    if (
        isinstance(workload, OpenLoop)
        and type(workload) in TRAFFIC  # another class may draw otherwise
        and isinstance(rule, SizeOrWait)
        and isinstance(service, Affine)
    ):
        plain_rule = SizeOrWait(rule.max_batch_size, rule.max_wait_ms)
        plain_service = Affine(service.fixed_ms, service.per_item_ms)
        if scenario == Scenario(plain(workload), plain_rule, plain_service, scenario.servers):
            return workload, rule, service
    shows = "a figure shows Poisson, Constant or Gamma requests, SizeOrWait, Affine and servers alone"
    raise ValueError(f"{shows}; bs.explore(scenario) shows others, got {scenario!r}")
