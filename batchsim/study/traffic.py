"""One stretch of traffic for many settings, and shorter ones that stand for all of it."""

import math
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from batchsim.engines.draws import Streams
from batchsim.result import Result
from batchsim.result.run_length import Periods
from batchsim.scenario import OpenLoop, Scenario, Tokens, Trace
from batchsim.scenario.tokens import Listed
from batchsim.simulate import available, check_memory, simulated
from batchsim.study.judgement import recorded

WINDOWS = 16  # in a short run: as many as the sections of an interval
LONGEST = 10  # times as long as was asked, where only a longer run can tell
WARMUP = 0.1  # of each run; none of a trace or a day, whose start is part of the question


@dataclass
class Traffic:
    """The first `requests` of a scenario's workload under one seed; it counts what is simulated of it.

    Of a day they are the nearest number that covers whole periods, if that is not too many: see `whole`.

    A short run that was the beginning of the long one could be all burst, or all night. So it consists of 16
    windows, spread evenly over the whole, one after the other, at the whole's mean rate. Of
    independent gaps these are as good as any; of bursts and days they are a fair sample. A closed
    loop has no arrivals to sample: its short run is the beginning.

    >>> from batchsim import Affine, OnOff, SizeOrWait
    >>> bursts = Scenario(OnOff(2000, 200, 10, 30), SizeOrWait(32, 0), Affine(5, 0.25))
    >>> traffic = Traffic(bursts, 100_000)
    >>> short = traffic.run(bursts, 1600)
    >>> round(float(short.scenario.workload.offered_per_s * traffic.gaps_s.mean()), 2)
    1.0
    """

    scenario: Scenario
    requests: int
    seed: int = 0
    most: float = math.inf  # requests: the next one can never be served
    _counts: list[int] = field(default_factory=list, repr=False)  # shared with what is longer
    _samples: dict[int, Trace] = field(default_factory=dict, repr=False)

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
        """Whether its numbers can be those of whole periods; a part of one proves nothing."""
        periods = Periods.of(self.scenario.workload, self.requests)
        return periods is None or periods.whole > 0

    @cached_property
    def gaps_s(self) -> np.ndarray:
        """The seconds before each arrival of the whole, shape (requests,)."""
        chunks = list(Streams(self.scenario, self.seed).arrivals_s(self.requests))
        return np.diff(np.concatenate(chunks), prepend=0.0)

    @property
    def simulated(self) -> int:
        """The requests simulated so far."""
        return sum(self._counts)

    def count(self, requests: int) -> None:
        """Note that so many requests were simulated."""
        self._counts.append(requests)

    def run(self, scenario: Scenario, requests: int | None = None) -> Result:
        """Run a scenario with this traffic: all of it, or fewer requests that stand for it."""
        requests = self.requests if requests is None else requests
        if requests < self.requests and isinstance(scenario.workload, OpenLoop):
            sample = replace(self._sample(requests), priorities=scenario.workload.priorities)
            scenario = scenario.replace(workload=sample, tokens=self._lengths(scenario.tokens, requests))
        self.count(requests)
        warmup = 0.0 if recorded(self.scenario) else WARMUP
        return simulated(scenario, requests, self.seed, warmup=warmup, keep="requests")[0]

    def resized(self, requests: int) -> "Traffic | None":
        """Return so many requests of the same traffic; None if it or the memory ends before.

        Fewer where one that can never be served comes before: a run would end there.
        """
        requests = int(min(requests, self.most))
        fit = available(self.scenario, requests) == requests and fits(self.scenario, requests)
        if not fit or not self.whole:
            return None
        return Traffic(self.scenario, requests, self.seed, self.most, self._counts)

    def _windows(self, requests: int) -> np.ndarray:
        """Return which requests of the whole a short run consists of."""
        cuts = np.linspace(0, requests, WINDOWS + 1).astype(int)
        starts = np.linspace(0, self.requests, WINDOWS, endpoint=False).astype(int)
        windows = zip(starts, np.diff(cuts), strict=True)
        return np.concatenate([np.arange(start, start + size) for start, size in windows])

    def _lengths(self, tokens: Tokens | None, requests: int) -> Tokens | None:
        """Return the lengths of a short run: measured ones are of the same windows, others any."""
        if tokens is None or not any(isinstance(each, Listed) for each in (tokens.prompt, tokens.output)):
            return tokens
        prompts, outputs, _ = Streams(self.scenario.replace(tokens=tokens), self.seed).lengths()(
            self.requests
        )
        windows = self._windows(requests)
        return replace(tokens, prompt=Listed(prompts[windows]), output=Listed(outputs[windows]))

    def _sample(self, requests: int) -> Trace:
        if requests not in self._samples:
            gaps_s = self.gaps_s[self._windows(requests)]
            # At the mean rate of the whole, or the sample would be of another load. The first gap precedes
            # the first arrival, where a trace begins, and so takes no time in it.
            if 0 < gaps_s[1:].mean() < math.inf:
                gaps_s = gaps_s * (self.gaps_s.mean() / gaps_s[1:].mean())
            self._samples[requests] = Trace(np.cumsum(gaps_s))
        return self._samples[requests]


def fits(scenario: Scenario, requests: int) -> bool:
    """Return whether the columns of so many requests fit in memory."""
    try:
        check_memory(scenario, requests)
    except MemoryError:
        return False
    return True
