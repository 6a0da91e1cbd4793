"""One load of a load test, as its tool measured it, and the known errors of such measurements."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from batchsim._format import counted, fixed

LATE = 0.05  # of the latency: a mean delay before sending above this is reported
DRAWN = 3.0  # standard deviations by which the duration of exponential gaps may exceed its mean
OTHER = 0.1  # of the rate asked for: a difference to the rate sent beyond this, and chance, is reported
CHUNKS = 0.2  # the relative difference of two times per token that shows chunks counted as tokens
FEWEST = 20  # requests: fewer tell of no rate, delay or percentile
FIRST = 3.0  # the slowest request over p99, where p99 is below twice the median: a first request
Stats = Mapping[str, float]


@dataclass(frozen=True)
class Stage:
    """One load of a load test: rates per second, times in ms by statistic (as "mean", "p99"), and lengths.

    NaN, 0 requests, or an empty mapping, where the file does not say. `sent_per_s` is the rate at which
    requests were really sent, `served_per_s` that of the answers. `concurrency` is the most requests in
    flight: the clients of a closed loop, which has no rate. `delay_ms` is how late requests were sent, which
    is in no latency. `gaps_cv` is the coefficient of variation of the planned gaps between requests: 1 of a
    Poisson process, 0 of a constant rate. The clients of a closed loop all begin at once; where they did so
    one by one, or long before, the stage is `mixed`. A request has `samples` that a server's batches count.
    """

    requests: int
    latency_ms: Stats
    ttft_ms: Stats = field(default_factory=dict)
    itl_ms: Stats = field(default_factory=dict)
    reported_tpot_ms: Stats = field(default_factory=dict)
    delay_ms: Stats = field(default_factory=dict)
    asked_per_s: float = math.nan
    sent_per_s: float = math.nan
    served_per_s: float = math.nan
    concurrency: float = math.nan
    prompt_tokens: float = math.nan
    output_tokens: float = math.nan
    failed: int = 0
    source: str = ""
    gaps_cv: float = 1.0
    mixed: bool = False
    samples: int = 1

    def __post_init__(self) -> None:
        """Take times of 0 for unknown, as TTFT without streaming; those of tokens then are, too."""
        unstreamed = self.ttft_ms and not any(self.ttft_ms.values())
        for name in ("ttft_ms", "itl_ms", "reported_tpot_ms"):
            if unstreamed or not any(getattr(self, name).values()):
                object.__setattr__(self, name, {})

    @property
    def tpot_ms(self) -> float:
        """The mean time for each token after the first, from latency and TTFT if known, else as reported."""
        if not self.ttft_ms or not self.output_tokens > 1:
            return self.reported_tpot_ms.get("mean", math.nan)
        return (self.latency_ms["mean"] - self.ttft_ms["mean"]) / (self.output_tokens - 1)

    @property
    def in_flight(self) -> float:
        """The mean number of requests in flight, by Little's law."""
        return self.served_per_s * self.latency_ms["mean"] / 1000

    @property
    def hidden_ms(self) -> float:
        """How long requests waited on average before they were sent, at least.

        As the tool says (`delay_ms`); else by Little's law. Requests that were sent as asked need as long to
        drain, after the last is sent, as the last of them takes: twice the mean of a queue that grew evenly.
        """
        if "mean" in self.delay_ms:
            return self.delay_ms["mean"]
        drain_ms = 1000 * (self.requests / self.served_per_s - self.requests / self.asked_per_s)
        return max(drain_ms / 2 - self.latency_ms["mean"], 0.0) if drain_ms == drain_ms else 0.0

    @property
    def is_late(self) -> bool:
        """Whether requests were sent so late that the latency hides it: coordinated omission."""
        least_ms = LATE * self.latency_ms["mean"]
        if "mean" not in self.delay_ms and self.asked_per_s > 0:  # the drain is known but for the drawn gaps
            least_ms += 1000 * DRAWN * math.sqrt(self.requests) / self.asked_per_s / 2
        return self.hidden_ms > least_ms

    @property
    def name(self) -> str:
        """The load, for people."""
        if self.asked_per_s == self.asked_per_s:
            return f"{self.asked_per_s:.6g}/s"
        return (
            f"{self.concurrency:g} clients" if self.concurrency == self.concurrency else "as fast as it can"
        )

    @property
    def faults(self) -> dict[str, str]:
        """Known errors of such files: what each is called, and how it shows."""
        if 0 < self.requests < FEWEST:
            return {"too few requests": f"{self.requests} of them tell of no rate, delay or percentile"}
        found = {}
        if self.samples > 1:
            how = f"each has {self.samples}, by its rates and latencies; rates here count requests"
            found["several samples a request"] = f"{how}, a server's batches samples"
        if self.is_late:
            how = f"requests left {fixed(self.hidden_ms / 1000)} s late on average, in no latency"
            clients = counted(max(round(self.in_flight), 1), "client")
            found["hidden send delay"] = f"{how}: a closed loop of {clients}"
        else:  # where no tool says what was sent, more answers than were asked for tell
            known = self.sent_per_s == self.sent_per_s
            sent = self.sent_per_s if known else max(self.served_per_s, self.asked_per_s)
            chance = DRAWN / math.sqrt(max(self.requests, 1))
            if abs(sent - self.asked_per_s) > (OTHER + chance) * self.asked_per_s:
                found["rate other than asked"] = f"the tool sent {fixed(sent)}/s, none late by its own plan"
        for name, stats in (("TPOT", self.reported_tpot_ms), ("ITL", self.itl_ms)):
            ratio = stats.get("mean", math.nan) / (self.tpot_ms or math.nan)
            if abs(ratio - 1) > CHUNKS:
                wanted = "(latency - TTFT) / (output tokens - 1)"
                found[f"chunks counted as tokens in {name}"] = f"the mean is {ratio:.2f} of {wanted}"
        stats = self.ttft_ms or self.latency_ms
        slowest, p99, p50 = (stats.get(name, math.nan) for name in ("max", "p99", "p50"))
        if slowest > FIRST * p99 and p99 < 2 * p50:
            found["warm-up included"] = f"the slowest took {slowest / p99:.1f} times the p99"
        return found
