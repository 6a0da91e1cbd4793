"""From what the controls say to all that the picture shows: a run, its surface, its load curve."""

from collections.abc import Callable, Hashable
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np

from batchsim.result import Result
from batchsim.result.comparison import compare
from batchsim.scenario import AtLeast, ClosedLoop, Constant, Gamma, OpenLoop, Poisson, Scenario
from batchsim.simulate import simulate
from batchsim.study.surface import LoadCurve, Surface, load_curve, surface
from batchsim.theory.curve import TheoryCurve, theory_curve
from batchsim.view.canvas.scales import nice
from batchsim.view.explorer.state import State
from batchsim.view.run.data import ViewData as Scene

# Requests of each of the heat map's settings. Traffic that drifts needs all: its beginning is not the rest.
MAP_REQUESTS = {Poisson: 20_000, Constant: 20_000, Gamma: 20_000, ClosedLoop: 5_000}
KEPT = 32  # landscapes and curves of the last settings: a slider goes back and forth
SIZES = 12  # columns
WAITS = (0, 0.005, 0.01, 0.02, 0.03, 0.05, 0.07, 0.1, 0.2, 0.3, 0.5)  # rows, as parts of the longest
COMPARED = ("mean_latency_ms", "p50_ms", "p99_ms", "throughput_per_s", "utilisation", "mean_batch_size")
Kept = TypeVar("Kept")


class Observer:
    """What runs the scenarios of an explorer, and keeps what a move does not change."""

    def __init__(self, requests: int, traffic: OpenLoop | None) -> None:
        self.requests, self.traffic = requests, traffic
        self.kept: dict[Hashable, Any] = {}

    def observe(self, state: State, pinned: Scene | None = None) -> Scene:
        """Run a state and return what there is to see of it. ValueError where it makes no sense."""
        scenario = state.scenario(self.traffic)
        requests = self._requests(scenario)
        curve = self._curve(state, scenario, requests)
        scene = Scene(
            result=simulate(scenario, requests, state.seed),
            surface=self._landscape(state, scenario, requests),
            curve=curve,
            theory=theory(scenario, curve),
            objective_ms=state.objective_ms,
        )
        return scene if pinned is None else beside(scene, pinned)

    def _requests(self, scenario: Scenario) -> int:
        most = scenario.workload.max_requests if isinstance(scenario.workload, OpenLoop) else None
        return self.requests if most is None else min(self.requests, most)

    def _keep(self, key: Hashable, make: Callable[[], Kept]) -> Kept:
        if key not in self.kept:
            while len(self.kept) >= KEPT:
                self.kept.pop(next(iter(self.kept)))
            self.kept[key] = make()
        return self.kept[key]

    def _landscape(self, state: State, scenario: Scenario, requests: int) -> Surface:
        """Return the p99 of every setting: it is the same wherever in it today's setting stands."""
        kind = "at_least" if isinstance(scenario.rule, AtLeast) else "size_or_wait"
        largest = int(min(scenario.service.largest_batch, max(64, state.max_batch_size)))
        waits_ms = waits(nice(4000 * scenario.service(min(largest, 64))))
        key = state.replace(
            rule=kind, max_batch_size=largest, min_batch_size=1, max_wait_ms=0, objective_ms=None
        )
        return self._keep(
            ("map", key),
            lambda: surface(
                scenario,
                sizes(largest),
                sizes(largest) if kind == "at_least" else waits_ms,
                min(requests, MAP_REQUESTS.get(type(scenario.workload), requests)),
                state.seed,
            ),
        )

    def _curve(self, state: State, scenario: Scenario, requests: int) -> LoadCurve:
        """Return the setting's load curve: it is the same wherever the rate stands."""
        key = state.replace(rate_per_s=1, clients=1, objective_ms=None)
        return self._keep(("curve", key), lambda: load_curve(scenario, requests, state.seed))


def theory(scenario: Scenario, curve: LoadCurve) -> TheoryCurve | None:
    """Return what theory expects at the rates of a load curve, and at the scenario's own."""
    if isinstance(scenario.workload, ClosedLoop):
        return None
    return theory_curve(scenario, np.union1d(curve.x_values, scenario.workload.offered_per_s))


def beside(scene: Scene, pinned: Scene) -> Scene:
    """Return a scene as B beside A, with their differences where both are of the same traffic."""
    a, b = pinned.result, scene.result
    comparison = None
    if a.seed == b.seed and a.arrival_s.size == b.arrival_s.size and comparable(a) and comparable(b):
        comparison = compare(
            a, b, COMPARED, silent=True
        )  # a run too short for an interval: the table says so
    return replace(scene, pinned=pinned, comparison=comparison)


def comparable(result: Result) -> bool:
    """Return whether a run has lasting numbers."""
    return bool(result.scenario.stable and result.metrics.served)


def sizes(largest: int) -> tuple[int, ...]:
    """Return the heat map's batch sizes: powers of two, and what lies between them where there is room.

    >>> sizes(64)
    (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
    >>> sizes(100)
    (1, 2, 4, 6, 8, 12, 16, 24, 32, 48, 64, 100)
    """
    powers = [1 << n for n in range(largest.bit_length())]
    between = [3 << n for n in range(largest.bit_length()) if 1.25 * (3 << n) <= largest]
    room = max(SIZES - len({*powers, largest}), 0)
    return tuple(sorted({*powers, *between[-room:], largest} if room else {*powers, largest}))


def waits(longest_ms: float) -> tuple[float, ...]:
    """Return the heat map's waits in ms, the last for full batches only.

    >>> waits(100)
    (0.0, 0.5, 1.0, 2.0, 3.0, 5.0, 7.0, 10.0, 20.0, 30.0, 50.0, inf)
    """
    return (*(float(f"{part * longest_ms:.6g}") for part in WAITS), float("inf"))
