"""How long a run must be before an interval of it can be right: what the scenario says before it runs.

A short run under a heavy load has seen one busy spell, or none, and its sections agree with each other
because none of them saw the others' luck: nothing in the run tells that it is too short. But the scenario
does. Under a heavy load the queue moves like a Brownian motion that drifts down to 0 (Whitt, Planning
queueing simulations, 1989), from whose load and burstiness follows how many requests pass until it has
forgotten where it was: its relaxation time, here counted in requests. The lengths that a metric needs are
multiples of that. They were chosen so that 95 % intervals hold the truth in at least 90 % of the runs of
the scenarios that `make coverage` tries (see VALIDATION.md).
"""

import math
from dataclasses import dataclass

from batchsim.result.metrics import Metric
from batchsim.scenario import ClosedLoop, Continuous, Diurnal, OnOff, Scenario, generation
from batchsim.scenario.noise import Noise

FLOWS = {"requests", "served", "throughput_per_s", "utilisation"}
# Relaxation times that an interval needs: of the numbers of a flow, of another mean, of a percentile; and
# how many of these are to lie beyond a percentile, as each is worth about one independent request there.
FLOW, MEAN, PERCENTILE, BEYOND = 25, 150, 150, 5
ARRIVALS = 500  # requests that the numbers of a flow need, times the dispersion of arrivals and services
BATCHES = 300  # that they need, at least, counted as full ones at a load of 1
CYCLES = 60  # of bursts
ROUNDS = 50  # requests of each client of a closed loop
TAIL = 0.06  # of the requests: rarer ones come in clumps, of which a run sees one in a relaxation time
FEW, REQUESTS = 8, 40  # the fewest sections of a run, and the served requests that each needs
NOISES = 250  # batches, times how much rare long ones say about the mean wait; see `_surprise`
DAY = 0.08  # of the requests of a day: the relaxation time of its peak, at most
FORGOTTEN = 5  # relaxation times after which a start from an empty queue is forgotten


@dataclass(frozen=True)
class RunLength:
    """The lengths that a scenario's runs need, in requests; 0 where nothing is known to be needed.

    `relaxation` is the relaxation time of the queue, inf if it grows without end. The others are lengths that
    a run needs besides: `cycle` for bursts, or the rounds of clients; `flow` for the throughput and other
    numbers of a flow; `noise` for what rare long services do to the mean and the tail of latencies. `peak` is
    the relaxation time at the peak of a day, whose luck makes the tail of all its latencies.
    """

    relaxation: float
    cycle: float
    flow: float
    noise: float
    peak: float = 0.0

    def needed(self, metric: Metric, replications: int = 1, dropped: int = 0) -> float:
        """Return how many requests each run needs for an interval, not counting the `dropped` ones.

        Replications that begin with an empty queue share its bias: more of them do not replace longer ones.
        """
        if self.relaxation == math.inf:
            return self.flow if metric.key in FLOWS else math.inf
        relaxation = max(self.relaxation, self.peak if (metric.q or 0) > 100 * (1 - TAIL) else 0.0)
        in_all = max(self.cycle, self._times(metric) * relaxation, self._at_least(metric))
        if replications == 1:
            return in_all
        forgotten = dropped / self.relaxation if self.relaxation else math.inf
        # Of runs of m relaxation times, the bias of the start falls as 1 / m, the error of R runs together as
        # 1 / sqrt(R m): the bias is a third of the error if m = 0.7 R, and less the more is dropped (Abate
        # and Whitt, Transient behavior of regulated Brownian motion, 1987).
        start = max(FORGOTTEN, 0.7 * replications * math.exp(-2 * forgotten))
        return max(in_all / replications, start * self.relaxation)

    def _times(self, metric: Metric) -> float:
        if metric.q is not None:
            return max(PERCENTILE, BEYOND / (1 - metric.q / 100)) if metric.q < 100 else math.inf
        return FLOW if metric.key in FLOWS else MEAN

    def _at_least(self, metric: Metric) -> float:
        if metric.key in FLOWS:
            return self.flow
        return self.noise if metric.q is None or metric.q > 75 else self.noise / 10

    def independent(self, requests: float) -> float:
        """Return how many independent requests know as much of a tail, and of any rare event, at most."""
        relaxation = max(self.relaxation, self.peak)
        return requests / relaxation if 0 < relaxation < math.inf else math.inf

    @property
    def warmup(self) -> float:
        """The requests after which a run that began with an empty queue may be taken for steady."""
        return FORGOTTEN * self.relaxation


def run_length(scenario: Scenario) -> RunLength:
    """Return the lengths that a scenario's runs need; a day's whole periods come besides.

    >>> from batchsim import Affine, Poisson, SizeOrWait
    >>> from batchsim.result.metrics import metric
    >>> md1 = Scenario(Poisson(900), SizeOrWait(1, 0), Affine(1, 0))
    >>> round(run_length(md1).needed(metric("mean_latency_ms")))
    30000
    """
    workload, noise = scenario.workload, scenario.service.noise
    largest, squared_cv, surprise = scenario.rule.largest_batch, _squared_cv(noise), _surprise(noise)
    continuous = isinstance(scenario.rule, Continuous)
    if scenario.tokens is not None:
        # The noise of steps, of which a request takes many, averages out beside the lengths.
        squared_cv, surprise = generation.variety(scenario.rule, scenario.tokens)
        largest = 1 if continuous else largest  # requests come and go one by one
    if isinstance(workload, ClosedLoop):
        rounds = ROUNDS * workload.clients
        return RunLength(0.0, rounds, rounds, NOISES * largest * surprise)
    load = scenario.load
    batch = max(1.0, largest * min(load, 1.0))  # under a light load batches are smaller
    of_batches = batch * squared_cv
    noises = NOISES * largest * min(load, 1.0) * surprise
    relaxation = _relaxation(scenario, load, workload.dispersion + of_batches)
    if continuous:  # nothing is forgotten before those that run are others
        relaxation = max(relaxation, generation.running(scenario))
    if not isinstance(workload, OnOff) or workload.on_rate_per_s == workload.off_rate_per_s:
        flow = max(ARRIVALS * (workload.dispersion + of_batches), BATCHES * largest * min(load, 1.0))
        if continuous:  # rare long answers keep an engine busy that has nothing else to do
            flow = max(flow, noises)
        peak = 0.0
        if isinstance(workload, Diurnal) and workload.peak_to_mean > 1:
            busiest = load * workload.peak_to_mean
            peak = _relaxation(scenario, busiest, 1.0 + of_batches) if busiest < 1 else math.inf
            peak = min(peak, DAY * workload.requests_a_period)
        return RunLength(relaxation, 0.0, flow, noises, peak)
    cycle = workload.offered_per_s * (workload.mean_on_s + workload.mean_off_s)
    busiest = max(workload.on_rate_per_s, workload.off_rate_per_s) / scenario.saturation_per_s
    if busiest < 1:  # each state has a queue of its own, which it soon forgets in the other
        relaxation = min(relaxation, max(_relaxation(scenario, busiest, 1.0 + of_batches), cycle / 4))
    return RunLength(relaxation, CYCLES * cycle, ARRIVALS * (1.0 + of_batches), noises)


def _relaxation(scenario: Scenario, load: float, variance: float) -> float:
    """Return the relaxation time of the queue, in requests.

    A Brownian motion of this drift and variance a request, kept between 0 and the longest queue, if there
    is one: Linetsky, On the transition densities for reflected diffusions, 2005.
    """
    if not scenario.stable:
        return math.inf
    if variance == 0:
        return 0.0
    longest = max(scenario.longest_queue, 1.0)
    rate = (1 - load) ** 2 / (2 * variance) + variance * (math.pi / longest) ** 2 / 2
    return 1 / rate if rate else math.inf


def _squared_cv(noise: Noise | None) -> float:
    return 0.0 if noise is None else noise.dispersion


def _surprise(noise: Noise | None) -> float:
    """Return the squared coefficient of variation of the squared service time.

    The mean wait grows with the mean square of the service times, which a run knows only as well as this.
    """
    if noise is None:
        return 0.0
    # The fourth moment over the square of the second: 24 / 2^2 if exponential, e^(4 sigma^2) if lognormal.
    return 5.0 if noise.shape == "exponential" else (1 + noise.cv**2) ** 4 - 1


def rounded_up(count: float) -> int:
    """Return a count rounded up to two digits.

    >>> rounded_up(19_200.1), rounded_up(7)
    (20000, 7)
    """
    scale = 10 ** max(len(str(math.ceil(count))) - 2, 0)
    return math.ceil(count / scale) * scale
