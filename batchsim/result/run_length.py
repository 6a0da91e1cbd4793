"""How long a run must be for its intervals to be right: the scenario determines this before it runs.

A short run under a heavy load has seen at most one busy spell. Its sections then agree with each other,
because all missed the same rare events: the run's own numbers do not reveal that it is too short. But the
scenario does. Under a heavy load the queue moves like a Brownian motion that drifts down to 0 (Whitt,
Planning queueing simulations, 1989). The load and the burstiness determine how many requests pass until it
has forgotten its state: its relaxation time, here counted in requests. A metric needs a multiple of it.
The multiples below have no theory: they are fitted, so that 95 % intervals hold the truth in at least 90 % of
the runs of the scenarios that `make coverage` tries (see VALIDATION.md).

With many servers or seats, the load does not determine how rare waits are: `intervals` counts them in the
run.

Traffic that follows a day is never steady: numbers are right for the day only if a run covers whole periods
(`Periods`). A run that ends before midnight has too much of the night, or of the peak. The sections of a run
over many periods are whole periods too, so that they differ by chance alone.
"""

import math
from dataclasses import dataclass, replace

import numpy as np

from batchsim.result.metrics import ITL, LATENCY, STALL, TPOT, Metric, Metrics
from batchsim.result.sections import FINE
from batchsim.result.size_variety import SizeVariety, size_variety
from batchsim.scenario import ClosedLoop, Continuous, Diurnal, OpenLoop, Scenario, saturation
from batchsim.scenario.lengths import points
from batchsim.scenario.noise import Noise

FLOWS = {
    "requests", "served", "throughput_per_s", "output_tokens_per_s", "utilisation", "device_utilisation",
    "mean_forming_ms",
}  # fmt: skip
EVENTS = {"served", "rejected", "timed_out", "delayed", "oversized"}  # "served": those that are not
# Metrics of tokens that depend on how many requests run at once, which is bounded and soon forgotten.
PER_TOKEN = {TPOT, ITL, STALL}
OF_RUNNING = {"mean_batch_size", "mean_decode_ms", "mean_tpot_ms", "mean_itl_ms"}
WAITS = {"mean_latency_ms", "mean_queueing_ms", "mean_ttft_ms"}
# Relaxation times that an interval needs. Each metric forgets the queue's length at a pace of its own:
# departures and forming hardly depend on it, the batch size and the median do but are bounded, and a mean or
# a tail lives on rare long queues.
FLOW, BULK, MIDDLE, MEAN, PERCENTILE = 4, 20, 30, 80, 100
BEYOND = 5  # relaxation times beyond a percentile: each is worth about one independent request there
CENTRAL = 60  # the largest percentile that the bulk of the requests decides
TAIL = 0.06  # of the requests: rarer ones come in clumps, about one in each relaxation time
ARRIVALS = 200  # requests that the numbers of a flow need, times the dispersion of arrivals and services
BATCHES = 120  # that they need, at least, counted as full ones at a load of 1
CYCLES = 60  # of bursts, or memories of noise that lasts
# Continuous batching has lengths of its own.
STEADY = 25  # relaxation times for a mean wait; its jams are counted as well
MEDIAN = 40  # for a median
RARE = 150  # for tails and other means
TURNOVERS = 130  # relaxation times of the number that runs at once
PASSING = 130  # times that this number of requests passes, until the ends of a run do not matter
ANSWERS = 500  # requests, times the dispersion of arrivals and answers, for a flow
LONG = 250  # requests, times how much rare long answers say about the mean wait
ROUNDS = 50  # requests of each client of a closed loop
MEMORIES = 40  # of noise that lasts, in a closed loop
FEW, REQUESTS = 8, 40  # the fewest sections of a run, and the served requests that each needs
NOISES = 125  # batches, times how much rare long ones say about the mean wait; see `_surprise`
DAY = 0.1  # of the requests of a day: the relaxation time of its peak, at most
FILLS = 3  # times the requests that fill a cache
STALE = 100  # times that a router's loads are out of date, in requests
RISES = 30  # of an autoscaler's number of replicas: see `engines.autoscaling.rises`
FORGOTTEN = 5  # relaxation times after which a start from an empty queue is forgotten


@dataclass(frozen=True)
class RunLength:
    """The lengths that a scenario's runs need, in requests; 0 for no requirement.

    `relaxation` is the relaxation time of the queue, inf if it grows without end. A run also needs these
    lengths: `cycle` for bursts, or the rounds of clients; `flow` for the throughput and other
    numbers of a flow; `noise` for the effect of rare long services on the mean and the tail of latencies.
    `clump` is the mean number of requests that are lost together, once the first one is. `jam_s` is how long
    the requests of one jam wait, all together (None: not known); a mean wait needs a run with enough jams.
    Under `Continuous`, `turnover` is the relaxation time of the number that runs at once. `peak` is the
    relaxation time at the peak of a day, which makes most of the tail of its latencies. `fill` is when prefix
    caches are nearly full: a run needs several times as many requests, or leaves these out.
    """

    relaxation: float
    cycle: float
    flow: float
    noise: float
    clump: float = 1.0
    jam_s: float | None = None
    turnover: float | None = None
    peak: float = 0.0
    fill: float = 0.0

    def needed(self, metric: Metric, replications: int = 1, dropped: int = 0) -> float:
        """Return how many requests each run needs for an interval, not counting the `dropped` ones.

        Replications that begin with an empty queue share its bias: more of them do not replace longer ones.
        """
        if self.relaxation == math.inf:
            return self.flow if metric.key in FLOWS else math.inf
        relaxation = max(self.relaxation, self.peak if (metric.q or 0) > 100 * (1 - TAIL) else 0.0)
        if self.turnover is None:
            in_all = max(self.cycle, self._times(metric) * relaxation, self._at_least(metric))
        else:
            in_all = max(self.cycle, self._of_tokens(metric, self.turnover))
        after_fill = FILLS * max(self.fill - dropped, 0.0)
        return max(of_each(in_all, self.relaxation, replications, dropped), after_fill)

    def _times(self, metric: Metric) -> float:
        if metric.q is not None:
            tail = max(PERCENTILE, BEYOND / (1 - metric.q / 100)) if metric.q < 100 else math.inf
            return MIDDLE if metric.q <= CENTRAL else tail
        if metric.key in FLOWS:
            return FLOW
        return MEAN if metric.key.endswith("_ms") and metric.key != "mean_computing_ms" else BULK

    def _at_least(self, metric: Metric) -> float:
        if metric.q is not None:  # rare long services are most of a tail, and nothing of a median
            return self.noise * (0 if metric.q <= CENTRAL else 1 if metric.q <= 97 else 2)
        return self.noise if self._times(metric) == MEAN else self.flow

    def _of_tokens(self, metric: Metric, turnover: float) -> float:
        """Return how many requests a metric of continuous batching needs: this depends on its kind."""
        key, q, passed = metric.key, metric.q, TURNOVERS * turnover
        if key in FLOWS:
            return max(self.flow, self.noise / 12) if key == "output_tokens_per_s" else self.flow
        if key in OF_RUNNING:
            return max(passed, self.noise / 4)
        if q is None:
            steady = max(STEADY * self.relaxation, passed) if key in WAITS else RARE * self.relaxation
            return max(steady, self.noise)
        if not (rarer := 1 - q / 100):
            return math.inf
        if metric.column in PER_TOKEN:
            return max(passed * max(1.0, TAIL / rarer), self.noise / 4)
        times = MEDIAN if q <= 75 else max(RARE, BEYOND / rarer)
        return max(passed, times * self.relaxation, self.noise)

    def independent(self, requests: float, column: str = LATENCY) -> float:
        """Return how many independent requests know as much of a tail, and of any rare event, at most."""
        if column in PER_TOKEN and self.turnover is not None:
            return math.inf  # its tail comes from short answers during a long prompt, not in clumps
        relaxation = max(self.relaxation, self.peak)
        return requests / relaxation if 0 < relaxation < math.inf else math.inf

    @property
    def certain(self) -> bool:
        """Whether nothing is random in a run."""
        return self.relaxation == self.cycle == 0

    @property
    def rare(self) -> float:
        """The requests that a share within a limit needs, because of rare long services, or caches."""
        return max(self.noise * (2 if self.turnover is None else 0.25), FILLS * self.fill)

    @property
    def warmup(self) -> float:
        """The requests after which a run that began with an empty queue may be taken for steady."""
        return FORGOTTEN * self.relaxation


def of_each(in_all: float, memory: float, replications: int, dropped: int) -> float:
    """Return how many requests each run needs, if one needs `in_all` and forgets its state after `memory`.

    Of runs of m relaxation times, the bias of the start falls as 1 / m, the error of R runs together as
    1 / sqrt(R m): the bias is a third of the error if m = 0.7 R, and less the more is dropped (Abate and
    Whitt, Transient behavior of regulated Brownian motion, 1987).
    """
    if replications == 1:
        return in_all
    forgotten = dropped / memory if memory else math.inf
    start = max(FORGOTTEN, 0.7 * replications * math.exp(-2 * forgotten))
    return max(in_all / replications, start * memory)


def run_length(scenario: Scenario, share: float = 1.0) -> RunLength:
    """Return the lengths that a scenario's runs need. A day also requires whole periods.

    `share` is the fraction of the requests in the priority levels in question, which are the first ones. No
    other level delays these for longer than a batch. The lengths count their requests alone.

    >>> from batchsim import Affine, Poisson, SizeOrWait
    >>> from batchsim.result.metrics import metric
    >>> md1 = Scenario(Poisson(900), SizeOrWait(1, 0), Affine(1, 0))
    >>> round(run_length(md1).needed(metric("mean_latency_ms")))
    16000
    """
    workload, noise = scenario.workload, scenario.service.noise
    if scenario.most_replicas > 1 and isinstance(
        workload, OpenLoop
    ):  # the replica with most requests needs as many
        part = scenario.router.hottest(scenario.most_replicas)
        traffic, rate_per_s = workload, workload.offered_per_s
        if 0 < rate_per_s * part < math.inf:  # all of a trace may come at once
            traffic = workload.with_rate(rate_per_s * part)
        length = run_length(replace(scenario.one, workload=traffic), share)
        scaled = ("relaxation", "cycle", "flow", "noise", "peak", "fill")
        length = replace(length, **{name: getattr(length, name) / part for name in scaled})
        if not (scenario.stale_ms and scenario.router.sees_loads):
            return length
        return replace(length, cycle=max(length.cycle, STALE * scenario.stale_ms / 1000 * rate_per_s))
    largest, squared_cv, surprise = scenario.rule.largest_batch, _squared_cv(noise), _surprise(noise)
    sized = SizeVariety() if scenario.tokens is not None else size_variety(scenario)
    continuous = isinstance(scenario.rule, Continuous)
    if scenario.tokens is not None:
        # A request takes many steps, so their noise averages out; the variance of lengths remains.
        squared_cv, surprise = saturation.variety(scenario.rule, scenario.tokens)
        largest = 1 if continuous else largest  # requests come and go one by one
    if isinstance(workload, ClosedLoop):
        rounds, batch = ROUNDS * workload.clients, float(min(largest, workload.clients))
        # The queue is bounded by the clients, so that only noise that lasts outlives a round.
        lasting = batch * noise.memory_batches if noise is not None and noise.lasts else 0.0
        varied = batch * (0.0 if noise is None else noise.cv**2 * (1 + sized.squared_cv)) + sized.dispersion
        rounds = max(rounds, math.ceil(CYCLES * sized.run))
        flow = max(rounds, ARRIVALS * varied, MEMORIES * lasting)
        return RunLength(lasting, rounds, flow, flow)
    load, dispersion = scenario.load * share, 1 + (workload.dispersion - 1) * share
    batch = max(1.0, largest * min(load, 1.0))  # under a light load batches are smaller
    # A batch takes a time of its sizes, times the noise: moments of independent factors multiply.
    of_batches = batch * (squared_cv + sized.squared_cv * (0.0 if noise is None else noise.cv**2))
    of_batches += sized.dispersion
    noises = max(NOISES * largest * min(load, 1.0), NOISES * sized.requests)
    noises *= surprise * (1 + sized.surprise) + sized.surprise
    relaxation = _relaxation(scenario, load, dispersion + of_batches)
    if continuous:  # the state persists until the running requests have been replaced
        relaxation = max(relaxation, saturation.running(scenario))
    bursts = share * max(workload.burst_requests, sized.run)
    cycle = CYCLES * bursts
    if noise is not None and noise.lasts:
        together = saturation.running(scenario) / scenario.servers if continuous else batch
        steps = 1.0 if scenario.tokens is None else float(points(scenario.tokens.output).mean())
        cycle = max(cycle, CYCLES * noise.memory_batches * together / steps)
    if workload.burst_per_s is None:
        flow = max(ARRIVALS * (dispersion + of_batches), BATCHES * largest * min(load, 1.0))
        clump, jam_s, peak = _clump(relaxation, dispersion + of_batches), None, 0.0
        if (day := workload.day) is not None:
            busiest = load * day.peak_to_mean
            peak = _relaxation(scenario, busiest, 1.0 + of_batches) if busiest < 1 else math.inf
            peak = min(peak, share * DAY * day.requests_a_period)
        else:
            jam_s = _jam_s(scenario, workload, load, relaxation, dispersion + of_batches)
        length = RunLength(relaxation, cycle, flow, noises, clump, jam_s, peak=peak)
        return _of_seats(scenario, workload, length, squared_cv, surprise) if continuous else length
    busiest = load * workload.burst_per_s / workload.offered_per_s
    if busiest < 1:  # each state has a queue of its own, which it soon forgets in the other
        relaxation = min(relaxation, max(_relaxation(scenario, busiest, 1.0 + of_batches), bursts / 4))
    clump = max(_clump(relaxation, dispersion + of_batches), bursts)
    return RunLength(relaxation, cycle, ARRIVALS * (1.0 + of_batches), noises, clump)


def _of_seats(
    scenario: Scenario, workload: OpenLoop, length: RunLength, squared_cv: float, surprise: float
) -> RunLength:
    """Return the lengths of continuous batching."""
    load, relaxation, running = scenario.load, length.relaxation, saturation.running(scenario)
    variance = workload.dispersion + squared_cv
    # A request that runs has a longer answer than others, in proportion to its length.
    longer = max((1 + squared_cv) / 2, 1.0)
    turnover = min(saturation.turnover(scenario), max(relaxation, running)) * longer
    # Where every seat is taken for long, so is the number that runs at once.
    turnover = max(turnover, math.sqrt(running * relaxation) / 2)
    flow = max(ANSWERS * variance, PASSING * running * longer)
    noise = LONG * min(load, 1.0) * surprise
    return replace(
        length, flow=flow, noise=noise, turnover=turnover, fill=saturation.requests_to_fill(scenario)
    )


def _jam_s(
    scenario: Scenario, workload: OpenLoop, load: float, relaxation: float, variance: float
) -> float | None:
    """Return how long the requests of one jam wait, all together; None where the queue grows without end.

    Those who find every server taken wait for a queue that is exponential above 0 (Kingman 1961), and a jam
    lasts about a relaxation time.
    """
    if relaxation in (0, math.inf):
        return None
    queue = variance / 2 * load / (1 - load) if load < 1 else math.inf
    queue = min(queue, max(scenario.longest_queue, 1.0))
    return queue * relaxation / workload.offered_per_s


def _relaxation(scenario: Scenario, load: float, variance: float) -> float:
    """Return the relaxation time of the queue, in requests.

    A Brownian motion of this drift and variance a request, kept between 0 and the longest queue, if there
    is one: Linetsky, On the transition densities for reflected diffusions, 2005.
    """
    if not scenario.stable and load >= scenario.load:  # the first levels may be stable where all are not
        return math.inf
    if variance == 0:
        return 0.0
    longest = max(scenario.longest_queue, 1.0)
    rate = (1 - load) ** 2 / (2 * variance) + variance * (math.pi / longest) ** 2 / 2
    return 1 / rate if rate else math.inf


def _clump(relaxation: float, variance: float) -> float:
    """Return how many requests are lost together, on average, once one is.

    A queue at its limit returns there a geometric number of times, as a Brownian motion does: half its
    variance over its drift, here from both in the relaxation time.
    """
    return max(1.0, math.sqrt(relaxation * variance / 8))


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


COLUMNS = 20_000_000  # requests whose columns fit in a machine's memory


@dataclass(frozen=True)
class Periods:
    """The periods of a day that a run covers with `requests`, after `dropped` ones that it leaves out."""

    day: Diurnal
    requests: int
    dropped: int = 0

    @classmethod
    def of(cls, workload: OpenLoop | ClosedLoop, requests: int, dropped: int = 0) -> "Periods | None":
        """Return them; None for traffic without periods, or with the same rate all day."""
        return cls(workload.day, requests, dropped) if workload.day is not None and requests > 0 else None

    @property
    def whole(self) -> int:
        """How many they are, 0 if their number is not whole."""
        return self.day.whole_periods(self.requests, self.dropped)

    @property
    def covered(self) -> str:
        """How many they are, in words."""
        covered_s = self.day.reached_s(self.dropped + self.requests) - self.day.reached_s(self.dropped)
        return f"{covered_s / self.day.period_s:.3g}"

    def enough(self, periods: int | None = None) -> int:
        """Return how many requests of a run cover so many periods; by default the nearest whole number."""
        kept = self.day.nearest_whole(
            self.requests if periods is None else periods * self.day.requests_a_period
        )
        return round(kept * (self.dropped + self.requests) / self.requests)

    @property
    def partial(self) -> str:
        """Why an interval or a verdict cannot be had of a run whose periods are not whole; else ""."""
        if self.whole:
            return ""
        of = f"periods of {self.day.period_s:,g} s"
        return f"needs whole {of}, got {self.covered}: requests={self.enough()} would do"

    def warning(self, columns: bool) -> str:
        """Return what is wrong with the numbers of a run whose periods are not whole; else "".

        `columns`: whether the run keeps its columns. A longer run may have too many.
        """
        if self.whole:
            return ""
        enough = self.enough()
        keep = ", keep='summary'" if columns and enough > COLUMNS else ""
        rule = f"requests must cover whole periods of {self.day.period_s:,g} s, got {self.covered} of them"
        return f"{rule}: take requests={enough}{keep}, or another period_s"

    @property
    def few(self) -> str:
        """Why there is no interval of one run: its periods are not whole, or too few; else ""."""
        if self.whole >= FEW or self.partial:
            return self.partial
        of = f"{FEW} periods of {self.day.period_s:,g} s"
        return f"needs {of}, or replications, got {self.whole}: requests={self.enough(FEW)} would do"

    @property
    def ends(self) -> np.ndarray | None:
        """Where sections of whole periods end, as fractions of the requests; None for too few periods."""
        if self.few:
            return None
        sections = min(FINE, 1 << (self.whole.bit_length() - 1))
        return np.round(np.linspace(0, self.whole, sections + 1)) / self.whole


def unscaled(whole: Metrics, replications: int, dropped: int, periods: Periods | None) -> str:
    """Return why runs have too few changes of the autoscaler's number of replicas, and what would do.

    The number changes seldom, and decides what each request waits. The scenario does not tell how seldom, so
    the changes are counted in the runs. Of a day, each period needs one.
    """
    auto = whole.scenario.autoscale
    if auto is None or auto.least == auto.most or not whole.scenario.stable:
        return ""
    requests, seen = int(whole.totals.requests) // replications, int(whole.totals.cycles)
    if periods is not None and seen >= replications * periods.whole:
        return ""
    cycle = requests * replications / max(seen, 1)
    needed = of_each(RISES * cycle, cycle, replications, dropped)
    if requests >= needed * (1 - 1e-9):
        early = f"needs a warm-up of about {rounded_up(cycle):,} requests, in which a replica is started"
        return "" if dropped >= cycle else f"{early}, got {dropped:,}"
    each = " in each replication" if replications > 1 else ""
    times = f"the number of replicas rise and fall {math.ceil(needed * replications / cycle)} times"
    return f"needs about {rounded_up(needed):,} requests{each} to see {times}, got {requests:,} with {seen}"
