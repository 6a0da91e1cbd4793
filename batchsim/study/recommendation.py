"""What a search for a setting comes back with."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from batchsim import _format
from batchsim.result import Result
from batchsim.scenario import Scenario
from batchsim.scenario.rules import Rule
from batchsim.study import phrases
from batchsim.study.explain import Effect, explain
from batchsim.study.judgement import Estimate, Judgement
from batchsim.study.remedies import Remedy
from batchsim.study.slo import SLO
from batchsim.theory import Optimum

if TYPE_CHECKING:
    import pandas


@dataclass(frozen=True, eq=False, repr=False)
class Recommendation:
    """The setting that meets an objective, or the nearest to it; what to expect of it, and why.

    `met`: whether a run shows that it meets `slo`. `expected` has the numbers of that run with their
    95 % intervals, as {key: (value, low, high)}; percentiles count a request that is not served as
    infinitely late, as objectives do. `result` is the run itself.

    `candidates`: a DataFrame with a row a setting, in the grid's order: its knobs, its latency with its
    interval and other numbers from its longest run, of so many `requests`, and its `fate` with the reason.
    `frontier`: those of which none other is better in latency, capacity and servers alike, all in full runs
    (the best of at most 24 that ran in full for it); settings that cannot be told apart are there once.

    `optimum` is the best that any policy could do for the mean latency, where theory knows it; else
    `no_optimum` says why not. `effects` are what another wait would change; `remedies`, where the
    objective is not met, what would meet it.

    `requests_simulated` counts the search, `grid_requests` what full runs of all stable settings would
    have taken, and `requests_explaining` the runs behind frontier, effects and remedies.
    """

    scenario: Scenario
    slo: SLO
    prefer: str
    knobs: dict[str, Any]
    met: bool
    judgement: Judgement
    expected: dict[str, Estimate]
    result: Result
    candidates: "pandas.DataFrame"
    frontier: "pandas.DataFrame"
    optimum: Optimum | None
    no_optimum: str
    effects: tuple[Effect, ...]
    remedies: tuple[Remedy, ...]
    requests_simulated: int
    grid_requests: int
    requests_explaining: int

    @property
    def rule(self) -> Rule:
        return self.scenario.rule

    @property
    def optimum_gap(self) -> float | None:
        """How far its mean latency is above the best possible, in percent; None where that is unknown."""
        return None if self.optimum is None else self.optimum.gap(self.expected["mean_latency_ms"].value)

    def explain(self) -> str:
        """Return a paragraph to act on: what to set, what it gives and why, and what would change it."""
        return explain(self)

    def __repr__(self) -> str:
        what = "Recommendation" if self.met else "No setting is shown to meet the objective; nearest"
        judged = "met" if self.met else "not met" if self.judgement.excess > 1 else "not surely met"
        found = [phrases.estimated(o.key, estimate) for o, estimate in self.judgement.estimates.items()]
        part = self.grid_requests / max(self.requests_simulated, 1)
        less = f", 1/{part:.0f} of the grid's" if part >= 2 else ""
        lines = [
            f"{what}: {phrases.setting(self.knobs)}",
            f"  rule        {self.rule!r} on {_format.counted(self.scenario.servers, 'server')}",
            f"  objective   {self.slo}: {judged}, {_format.listed(found)}",
            f"  throughput  {_format.rate(self.expected['throughput_per_s'].value)} of a capacity of "
            f"{_format.rate(self.scenario.saturation_per_s)}",
            *(f"  {_kind(remedy):<11} {remedy.text}" for remedy in self.remedies),
            f"  search      {_format.counted(self.requests_simulated, 'request')} simulated{less}",
        ]
        return "\n".join(lines)


def _kind(remedy: Remedy) -> str:
    if remedy.knob == "requests":
        return "to tell"
    if remedy.value is not None:
        return "would do"
    return "unknown" if "cannot be told" in remedy.text else "would not"
