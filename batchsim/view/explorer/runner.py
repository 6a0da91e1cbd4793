"""The runs of an explorer: a state's scenario, its run with map and curve, and its comparison with A."""

import functools
from dataclasses import replace

from batchsim.result import Result
from batchsim.result.comparison import compare
from batchsim.scenario import Scenario
from batchsim.view.explorer.runs import Stored
from batchsim.view.explorer.state import State
from batchsim.view.pictures.data import ViewData


class Runner:
    """Makes and runs the scenarios of an explorer, and stores what a move does not change."""

    def __init__(self, requests: int) -> None:
        self.requests, self.stored = requests, Stored()
        self._scenario = functools.lru_cache(16)(State.scenario)

    def scenario(self, state: State) -> Scenario:
        """Return a state's scenario, built once; ValueError if it makes no sense."""
        return self._scenario(state)

    def run(self, state: State, pinned: ViewData | None = None, moving: bool = False) -> ViewData:
        """Run a state for a picture, roughly while it is `moving`. ValueError if it makes no sense."""
        scenario = self.scenario(state)
        requests = state.kind.requests(scenario, self.requests)
        data = state.kind.run(state, scenario, requests, self.stored, moving)
        if pinned is None or not same_kind(pinned, data):
            return data
        comparison = None
        if not incomparable(pinned.result, data.result):
            # Silent, as the table shows which runs are too short.
            comparison = compare(pinned.result, data.result, state.kind.compared, silent=True)
        return replace(data, pinned=pinned, comparison=comparison)


def same_kind(a: ViewData, b: ViewData) -> bool:
    """Return whether both are of the same kind of run."""
    return a.result.scenario.kind == b.result.scenario.kind


def incomparable(a: Result, b: Result) -> str:
    """Return why two runs cannot be compared, "" if they can."""
    if a.scenario.kind != b.scenario.kind:
        return "Whole requests and tokens cannot be compared: turn back, or pin again."
    if not (a.metrics.served and b.metrics.served):
        return "A setting that serves no requests has no latency to compare."
    if not (a.scenario.stable and b.scenario.stable):
        return "An overloaded setting has no steady state to compare."
    if a.seed != b.seed:
        return f"Compared settings must share their traffic, got seeds {a.seed} and {b.seed}."
    sizes = f"{a.arrival_s.size:,} and {b.arrival_s.size:,}"
    same = a.arrival_s.size == b.arrival_s.size
    return "" if same else f"Compared settings must share their traffic, got {sizes} requests."
