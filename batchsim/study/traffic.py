"""One stretch of traffic for many settings."""

import math
from dataclasses import dataclass, field, replace

from batchsim.engines.estimates import check_memory
from batchsim.result import Result
from batchsim.result.run_length import Periods
from batchsim.scenario import Scenario
from batchsim.simulate import available, simulated
from batchsim.study.judgement import WARMUP, recorded

LONGEST = 10  # times the requested length, if only a longer run can decide
FRESH = 1_000_000  # from the seed of a search to that of the run which confirms its choice
Job = tuple[Scenario, int, int, float]  # a run: its scenario, requests, seed and warm-up


@dataclass
class Traffic:
    """The first `requests` of a scenario's workload under one seed; it counts what is simulated of it.

    For a day, the nearest number that covers whole periods, if that is not too many: see `whole`.
    """

    scenario: Scenario
    requests: int
    seed: int = 0
    most: float = math.inf  # requests: the next one can never be served
    _counts: list[int] = field(default_factory=list, repr=False)  # shared with a longer Traffic

    def __post_init__(self) -> None:
        periods = Periods.of(self.scenario.workload, self.requests)
        if (
            periods is not None
            and (enough := periods.enough()) <= LONGEST * self.requests
            and fits(self.scenario, enough)
        ):
            self.requests = enough

    @property
    def whole(self) -> bool:
        """Whether it covers whole periods; a part of one proves nothing."""
        periods = Periods.of(self.scenario.workload, self.requests)
        return periods is None or periods.whole > 0

    @property
    def simulated(self) -> int:
        """The requests simulated so far."""
        return sum(self._counts)

    def count(self, requests: int) -> None:
        """Add to the requests simulated so far."""
        self._counts.append(requests)

    def fresh(self, most: float = math.inf) -> "Traffic":
        """Return as many requests of the same workload under another seed."""
        return replace(self, seed=self.seed + FRESH, most=most)

    def run(self, scenario: Scenario) -> Result:
        """Run a scenario with this traffic, and count it."""
        self.count(self.requests)
        return run_job(self.job(scenario))

    def job(self, scenario: Scenario, requests: int | None = None) -> Job:
        """Return such a run before it runs, or the beginning of it."""
        requests = self.requests if requests is None else requests
        return scenario, requests, self.seed, 0.0 if recorded(self.scenario) else WARMUP

    def resized(self, requests: int) -> "Traffic | None":
        """Return so many requests of the same traffic; None if the workload or the memory ends before.

        Fewer if one of them can never be served, as a run would end there.
        """
        requests = int(min(requests, self.most))
        fit = available(self.scenario, requests) == requests and fits(self.scenario, requests)
        if not fit or not self.whole:
            return None
        return Traffic(self.scenario, requests, self.seed, self.most, self._counts)


def run_job(job: Job) -> Result:
    """Return the result of a run."""
    scenario, requests, seed, warmup = job
    return simulated(scenario, requests, seed, warmup=warmup, keep="requests")[0]


def fits(scenario: Scenario, requests: int) -> bool:
    """Return whether the columns of so many requests fit in memory."""
    try:
        check_memory(scenario, requests)
    except MemoryError:
        return False
    return True
