"""An autoscaler: how many replicas run, by what it measures of them."""

import math
from dataclasses import dataclass

from batchsim import _check
from batchsim.scenario.parameters import Described, parameter
from batchsim.scenario.routing import MOST_REPLICAS

SIGNALS = ("utilisation", "queue", "p99")
TOLERANCE = 0.1  # a signal within 10 % of its target changes nothing, as in Kubernetes
USUAL = 0.7  # the target of the utilisation
ROUNDING = 1e-9  # three evaluations 0.1 s apart last 0.3 s, and 29 requests at 7 replicas are 29 / 7 each


@dataclass(frozen=True)
class Autoscale(Described):
    """An autoscaler in front of replicas, as Kubernetes' horizontal one: a ratio of a signal to its target.

    Every `every_s` it asks for up * signal / target replicas, rounded up, from `least` to `most`, where `up`
    is how many the router can use. A signal within 10 % of its target changes nothing. A new replica is up
    `startup_s` later. One that is not needed any more gets no further request, and serves those that it has.
    `hold_s`: the number is the highest that the evaluations of the last `hold_s` have asked for, so that it
    rises at once and falls late (Kubernetes' stabilisation window).

    `signal`: "utilisation" is the fraction of the time since the last evaluation that the servers of the
    replicas that are up had a batch, or a step of tokens. "queue" is the requests that wait at this instant,
    for each replica that is up. "p99" is the latency in ms that 99 % of the requests do not exceed that
    finished since the last evaluation; without one, nothing changes. `target`: by default 0.7 of the
    utilisation, and one full batch of the queue; a p99 needs one.

    >>> Autoscale(signal="queue", target=16, least=1, most=8, startup_s=20, every_s=5)
    Autoscale(signal='queue', target=16, least=1, most=8, startup_s=20, every_s=5, hold_s=0.0)
    """

    signal: str = parameter("Signal", "What it measures", type="word", words=SIGNALS, default="utilisation")
    target: float | None = parameter(
        "Target", "The signal it holds: a fraction, requests per replica, or ms", type="real", above=0,
        when_none="the signal's own", default=None,
    )  # fmt: skip
    least: int = parameter("Least", "Fewest replicas", at_most=MOST_REPLICAS, default=1)
    most: int = parameter("Most", "Most replicas", at_least=2, at_most=MOST_REPLICAS, default=8)
    startup_s: float = parameter(
        "Startup", "Seconds until a new replica is up", type="real", at_least=0, default=30.0
    )
    every_s: float = parameter(
        "Every", "Seconds from one evaluation to the next", type="real", at_least=1e-3, default=15.0
    )
    hold_s: float = parameter(
        "Hold", "Seconds for which a higher number is held", type="real", at_least=0, default=0.0
    )

    def check(self) -> None:
        if self.least > self.most:
            raise ValueError(f"least must be at most `most`, {self.most}, got {self.least}")
        if self.signal == "p99" and self.target is None:
            raise ValueError("target must be given in ms with signal='p99', got None")
        if self.signal == "utilisation" and self.target is not None and self.target >= 1:
            rule = "target must be below 1 with signal='utilisation', which never exceeds 1"
            raise ValueError(f"{rule}, got {self.target!r}")
        if self.hold_s > (longest := 1000 * self.every_s):
            raise ValueError(f"hold_s must be at most 1,000 evaluations, {longest:g} s, got {self.hold_s!r}")

    def target_of(self, full: int) -> float:
        """Return the target of a rule whose full batches have so many requests."""
        if self.target is not None:
            return self.target
        return USUAL if self.signal == "utilisation" else float(full)

    def wanted(self, up: int, asked: int, value: float, full: int) -> int:
        """Return for how many replicas an evaluation asks; `asked` is for how many the last one did."""
        ratio = value / self.target_of(full)
        if math.isnan(ratio) or abs(ratio - 1) <= TOLERANCE + ROUNDING:
            return asked
        return min(max(math.ceil(up * ratio - ROUNDING), self.least), self.most)

    def needed(self, load: float) -> int:
        """Return about how many replicas it lets run for a load of its most replicas."""
        target = self.target_of(1) if self.signal == "utilisation" else 1.0
        return min(max(math.ceil(load * self.most / target), self.least), self.most)

    @property
    def reacts_s(self) -> float:
        """After how many seconds, at most, the number of replicas has followed the signal."""
        return self.every_s + self.startup_s + self.hold_s

    @property
    def held(self) -> int:
        """The number of evaluations whose highest number counts."""
        return math.floor(self.hold_s / self.every_s + ROUNDING) + 1


def check_autoscale(autoscale: "Autoscale | None", replicas: int) -> None:
    """Raise for what is no autoscaler, or one of fewer replicas than a run starts with."""
    if autoscale is None:
        return
    _check.instance("autoscale", autoscale, Autoscale, "a bs.Autoscale")
    if replicas > autoscale.most:
        rule = f"replicas, with which a run starts, must be at most the autoscaler's most, {autoscale.most}"
        raise ValueError(f"{rule}, got {replicas}")
