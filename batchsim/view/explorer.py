"""The explorer: sliders that move a picture of one scenario, in a notebook."""

import html
import math
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import ipywidgets as widgets
import numpy as np

from batchsim import _check
from batchsim.result import Result
from batchsim.scenario import Affine, Constant, Gamma, OpenLoop, Poisson, Scenario, Service, SizeOrWait
from batchsim.simulate import simulate
from batchsim.view.plots import Picture
from batchsim.view.views import BatchView, LatencyView, LoadCurve, LoadView, TimelineView

AFFINE = "affine: a fixed cost and a cost per item"
MEASURE_HERE = {f"measure here: {name}": name for name in ("mlp", "convnet", "transformer")}
PATTERNS: dict[str, Callable[[float], OpenLoop]] = {
    "Poisson: at random": Poisson,
    "constant: like clockwork": Constant,
    "gamma, CV 0.5: calmer than random": lambda rate: Gamma(rate, cv=0.5),
    "gamma, CV 3: in bursts": lambda rate: Gamma(rate, cv=3),
}
CURVE_LOADS = (0.02, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.97, 1.05, 1.15)
LARGEST_BATCH = 64


class Explorer(widgets.VBox):
    """Controls by name, a picture, a line of text that says its numbers, and a status line.

    It works without a browser: set `controls["max_wait_ms"].value` and read `readout.value`.
    `result` is the last run that worked.
    """

    def __init__(
        self, services: dict[str, Service], patterns: dict[str, OpenLoop], requests: int, seed: int
    ) -> None:
        self.requests, self.seed = requests, seed
        self.services = services
        self.patterns = {name: workload.with_rate for name, workload in patterns.items()} | PATTERNS
        self.result: Result | None = None
        self.curves: dict[tuple[Any, ...], LoadCurve] = {}
        # One move at a time: callbacks may come on several threads, and matplotlib is for one.
        self.lock = threading.Lock()
        self.moves = 0
        self.paused = False

        self.picture = Picture([LatencyView, LoadView, BatchView, TimelineView], figsize=(10, 6.4), dpi=100)
        self.load_view = next(view for view in self.picture.views if isinstance(view, LoadView))
        self.controls = _controls([*services, AFFINE, *MEASURE_HERE], list(self.patterns))
        self.image = widgets.Image(format="png", layout={"max_width": "100%", "min_width": "640px"})
        self.readout, self.status = widgets.HTML(), widgets.HTML()
        self.fitted: str | None = None  # the service time whose ranges the controls have
        for control in self.controls.values():
            control.observe(self._moved, names="value")
        columns = [
            ["service", "fixed_ms", "per_item_ms", "servers"],
            ["workload", "rate_per_s", "max_batch_size", "max_wait_ms"],
        ]
        panel = widgets.HBox(
            [widgets.VBox([self.controls[name] for name in column]) for column in columns],
            layout={"flex_flow": "row wrap"},
        )
        super().__init__([panel, self.readout, self.image, self.status])
        self._move()

    def __repr__(self) -> str:
        return f"Explorer({', '.join(self.controls)})"

    @property
    def scenario(self) -> Scenario:
        """The scenario that the controls say."""
        value = {name: control.value for name, control in self.controls.items()}
        return Scenario(
            workload=self.patterns[value["workload"]](value["rate_per_s"]),
            rule=SizeOrWait(value["max_batch_size"], value["max_wait_ms"]),
            service=self._service(),
            servers=value["servers"],
        )

    def _service(self) -> Service:
        name = self.controls["service"].value
        if name == AFFINE:
            return Affine(self.controls["fixed_ms"].value, self.controls["per_item_ms"].value)
        if name not in self.services:
            from batchsim import device  # JAX loads when a model is first measured

            model = MEASURE_HERE[name]
            self.status.value = _line(f"Compiling and measuring the {model} on this machine: some seconds.")
            self.services[name] = device.measure(device.load_model(model)).service
            self.status.value = ""
        return self.services[name]

    # What happens when a control moves.

    def _moved(self, _: dict[str, Any]) -> None:
        if self.paused:
            return
        self.moves += 1
        move = self.moves
        with self.lock:
            if move == self.moves:  # else a later move is waiting, and draws for both
                self._move()

    def _move(self) -> None:
        """Run and draw what the controls say; on failure keep the last picture and say why."""
        try:
            self._service()  # measured, if it has to be, before the ranges follow it
            self._fit_controls()
            scenario = self.scenario
            result = simulate(scenario, requests=self._requests(scenario), seed=self.seed)
            self.load_view.show_curve(self._curve(scenario))
            self.picture.show_result(result)
            self.image.value = self.picture.png()
        except Exception as error:  # a callback's exception would be seen nowhere
            self.status.value = _line(f"{type(error).__name__}: {error}", alert=True)
            return
        self.result = result
        self.readout.value = _line(describe(result))
        self.status.value = ""

    def _requests(self, scenario: Scenario) -> int:
        most = scenario.workload.max_requests if isinstance(scenario.workload, OpenLoop) else None
        return self.requests if most is None else min(self.requests, most)

    def _curve(self, scenario: Scenario) -> LoadCurve:
        """Return the setting's load curve: it is the same wherever the rate slider stands."""
        key = (self.controls["workload"].value, scenario.rule, scenario.service, scenario.servers)
        if key not in self.curves:
            while len(self.curves) >= 100:
                self.curves.pop(next(iter(self.curves)))
            self.curves[key] = load_curve(scenario, self._requests(scenario), self.seed)
        return self.curves[key]

    # Controls whose range depends on others.

    def _fit_controls(self) -> None:
        """Give the sliders the ranges that make sense for the chosen service time."""
        name = self.controls["service"].value
        if name == self.fitted:
            return
        affine = name == AFFINE
        for slider in ("fixed_ms", "per_item_ms"):
            self.controls[slider].disabled = not affine
        service = Affine(5, 0.25) if affine else self.services[name]
        largest = int(min(LARGEST_BATCH, service.largest_batch))
        per_s = largest / service(largest)
        size, rate = self.controls["max_batch_size"], self.controls["rate_per_s"]
        low, high = 0.02 / service(1), 2 * self.controls["servers"].max * per_s
        # A rate that suited the last service time may be far from this one's capacity.
        kept = rate.value if 0.25 * per_s < rate.value < per_s else float(f"{0.4 * per_s:.2g}")
        with self._pause():
            size.value = min(size.value, largest)
            size.max = largest
            # A value must be within the range at every step: widen, move, narrow.
            rate.min, rate.max = min(rate.min, math.log10(low)), max(rate.max, math.log10(high))
            rate.value = kept
            rate.min, rate.max = math.log10(low), math.log10(high)
        self.fitted = name

    @contextmanager
    def _pause(self) -> Iterator[None]:
        """Let controls change without each change running a simulation."""
        self.paused = True
        try:
            yield
        finally:
            self.paused = False


def _controls(services: list[str], patterns: list[str]) -> dict[str, widgets.Widget]:
    """Return the controls by the name of the knob that each turns."""
    look: dict[str, Any] = {"style": {"description_width": "12em"}, "layout": {"width": "30em"}}
    lively = {**look, "continuous_update": True}

    def slider(kind: type[widgets.Widget], label: str, tip: str, **range_: Any) -> widgets.Widget:
        return kind(description=label, description_allow_html=False, tooltip=tip, **range_, **lively)

    return {
        "service": widgets.Dropdown(
            description="Service time",
            options=services,
            tooltip="How long a batch computes: measured on this machine, or a formula",
            **look,
        ),
        "fixed_ms": slider(
            widgets.FloatSlider,
            "Fixed cost (ms)",
            "What every batch costs, however small",
            min=0.5,
            max=50,
            step=0.5,
            value=5,
        ),
        "per_item_ms": slider(
            widgets.FloatSlider,
            "Cost per item (ms)",
            "What each request adds to its batch",
            min=0.01,
            max=5,
            step=0.01,
            value=0.25,
        ),
        "max_batch_size": slider(
            widgets.IntSlider,
            "Largest batch size",
            "A batch leaves at once when it holds so many",
            min=1,
            max=LARGEST_BATCH,
            value=32,
        ),
        "max_wait_ms": slider(
            widgets.FloatSlider,
            "Longest wait (ms)",
            "How long the oldest request waits for company",
            min=0,
            max=100,
            step=0.5,
            value=10,
        ),
        "servers": slider(
            widgets.IntSlider,
            "Servers",
            "Model instances, each computing one batch at a time",
            min=1,
            max=8,
            value=1,
        ),
        "workload": widgets.Dropdown(
            description="Arrivals",
            options=patterns,
            tooltip="The pattern in which requests arrive",
            **look,
        ),
        "rate_per_s": slider(
            widgets.FloatLogSlider,
            "Arrival rate (per s)",
            "Requests that arrive in a second, on average",
            min=1,
            max=4,
            step=0.01,
            value=1000,
            readout_format=".0f",
        ),
    }


def load_curve(scenario: Scenario, requests: int, seed: int) -> LoadCurve:
    """Return the setting's latency and throughput from almost no load to beyond its capacity."""
    rates = np.array(CURVE_LOADS) * scenario.capacity_per_s
    runs = [simulate(scenario.replace(rate_per_s=float(rate)), requests, seed) for rate in rates]
    return LoadCurve(
        rate_per_s=rates,
        p50_ms=np.array([run.percentile(50) for run in runs]),
        p99_ms=np.array([run.percentile(99) for run in runs]),
        throughput_per_s=np.array([run.throughput_per_s for run in runs]),
        capacity_per_s=scenario.capacity_per_s,
    )


def describe(result: Result) -> str:
    """Return the picture's numbers as a line of text."""
    s = result.summary()
    text = (
        f"p50 {s['p50_ms']:.1f} ms, p95 {s['p95_ms']:.1f} ms, p99 {s['p99_ms']:.1f} ms; "
        f"of the mean {s['mean_latency_ms']:.1f} ms: forming {s['mean_forming_ms']:.1f}, "
        f"queueing {s['mean_queueing_ms']:.1f}, computing {s['mean_computing_ms']:.1f}; "
        f"mean batch {s['mean_batch_size']:.1f}, utilisation {s['utilisation']:.2f}; "
        f"{s['throughput_per_s']:.0f} finished per s of {s['offered_per_s']:.0f} arriving, "
        f"capacity {s['capacity_per_s']:.0f}"
    )
    return text if s["stable"] else f"{text}. Overloaded: the longer it runs, the longer the queue"


def _line(text: str, alert: bool = False) -> str:
    role = "alert" if alert else "status"
    return f'<div role="{role}" style="line-height: 1.4">{html.escape(text)}</div>'


def explore(
    service: Any = None,
    workload: OpenLoop | None = None,
    *,
    requests: int = 100_000,
    seed: int = 0,
) -> Explorer:
    """Return sliders that move a picture of a scenario: show it as the last line of a cell.

    `service`: a Measurement, or any service time, to offer first; models can also be measured
    from the panel. `workload`: an open-loop one, say a Trace, to offer first, at any rate.
    `requests`: how many each run simulates.

    >>> panel = explore(requests=500)
    >>> panel.controls["max_wait_ms"].value = 20
    >>> panel.result.scenario.rule
    SizeOrWait(max_batch_size=32, max_wait_ms=20.0)
    """
    _check.whole("requests", requests)
    _check.whole("seed", seed, at_least=0)
    services: dict[str, Service] = {}
    if isinstance(service, Service):
        services[f"given: {service!r}"] = service
    elif isinstance(getattr(service, "service", None), Service):  # a Measurement, without loading JAX
        services[f"measured: {service.model} on {service.device}"] = service.service
    elif service is not None:
        raise TypeError(f"service must be a Measurement or a service time, got {service!r}")
    if workload is not None and not isinstance(workload, OpenLoop):
        raise TypeError(f"workload must be an open-loop workload, got {workload!r}")
    patterns = {} if workload is None else {f"given: {workload!r}": workload}
    return Explorer(services, patterns, requests, seed)
