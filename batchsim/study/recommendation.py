"""What a search for a setting comes back with."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from batchsim import _format
from batchsim.result import Result
from batchsim.scenario import Scenario
from batchsim.scenario.rules import Rule
from batchsim.study import phrases
from batchsim.study.candidate import Tie
from batchsim.study.judgement import Estimate, Judgement
from batchsim.study.remedies import Remedy
from batchsim.study.slo import SLO
from batchsim.theory import Optimum

if TYPE_CHECKING:
    import pandas


@dataclass(frozen=True)
class Effect:
    """What another value of the rule's second knob does to the latency, in ms, in the same traffic.

    `text` is the value in words, as "a max wait of 4 ms".
    """

    knob: str
    value: float
    text: str
    key: str
    difference: Estimate


@dataclass(frozen=True, eq=False, repr=False)
class Recommendation:
    """The setting that meets an objective, or the nearest to it; what to expect of it, and why.

    `met`: whether a run shows that it meets `slo`. `expected` has the numbers of that run with their
    95 % intervals, as {key: (value, low, high)}; percentiles count a request that is not served as
    infinitely late, as objectives do. `result` is the run itself.

    `candidates`: a DataFrame with a row a setting, in the grid's order: its knobs, its latency with its
    interval and other numbers from its longest run, that run's `requests`, and its `outcome` with the reason.
    `frontier`: those that no other beats in latency, saturation rate and servers alike, all in full runs
    (the best of at most 24 that ran in full for it); settings that cannot be told apart are there once.
    `out_of_reach`: the objective that no setting can meet and the best value possible, known before any run.
    `ties`: the settings whose latency no full run tells from this one's, and why it was preferred.

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
    ties: tuple[Tie, ...]
    optimum: Optimum | None
    no_optimum: str
    effects: tuple[Effect, ...]
    remedies: tuple[Remedy, ...]
    requests_simulated: int
    grid_requests: int
    requests_explaining: int
    explanation: str = ""
    out_of_reach: str = ""

    @property
    def rule(self) -> Rule:
        return self.scenario.rule

    @property
    def optimum_gap(self) -> float | None:
        """How far its mean latency is above the best possible, in percent; None where that is unknown."""
        return None if self.optimum is None else self.optimum.gap(self.expected["mean_latency_ms"].value)

    @property
    def saved(self) -> str:
        """The cost of the search as a fraction of the whole grid's, as "1/12"; "" above a half."""
        part = self.grid_requests / max(self.requests_simulated, 1)
        return f"1/{part:.0f}" if part >= 2 else ""

    def explain(self) -> str:
        """Return a paragraph to act on: what to set, what it gives and why, and what would change it."""
        return self.explanation

    def __repr__(self) -> str:
        title = "Recommendation" if self.met else "No setting is shown to meet the objective; nearest"
        judged = "met" if self.met else "not met" if self.judgement.excess > 1 else "not clearly met"
        throughput = _format.rate(self.expected["throughput_per_s"].value)
        lines = [
            f"{title}: {phrases.setting(self.knobs)}",
            f"  rule        {self.rule!r} on {_format.counted(self.scenario.servers, 'server')}",
            f"  objective   {self.slo}: {judged}, {phrases.estimates(self.judgement)}",
            f"  throughput  {throughput}, saturation at {_format.rate(self.scenario.saturation_per_s)}",
            *(f"  {remedy.kind:<11} {remedy.text}" for remedy in self.remedies),
            f"  search      {_format.counted(self.requests_simulated, 'request')} simulated"
            + (f", {self.saved} of the grid's" if self.saved else ""),
        ]
        return "\n".join(lines)
