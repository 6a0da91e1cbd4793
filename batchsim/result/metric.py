"""A metric: what it is called, and how it and its interval come about."""

from dataclasses import dataclass
from enum import StrEnum


class Kind(StrEnum):
    """How a metric comes about, and so how its interval does."""

    GIVEN = "given"  # by the scenario: nothing random is in it
    FLAG = "flag"  # likewise, True or False
    COUNT = "count"  # twice as large in a run twice as long
    MEAN = "mean"
    SHARE = "share"  # from 0 to 1
    PERCENTILE = "percentile"
    OF_ALL = "of all"  # counts requests that are not served: in sweeps, not in a summary


@dataclass(frozen=True)
class Metric:
    """What a metric is called, its unit ("ms", "per s" or ""), and which values of it are better.

    `better` is "lower", "higher" or None. `interval`: a sweep gives its 95 % interval too. Percentiles
    have their `q`, and the `column` of the requests that they are taken from.
    """

    key: str
    label: str
    unit: str = ""
    better: str | None = None
    kind: Kind = Kind.MEAN
    interval: bool = False
    q: float | None = None
    column: str = "latency_ms"

    @property
    def random(self) -> bool:
        """Whether it is measured, rather than given by the scenario."""
        return self.kind not in (Kind.GIVEN, Kind.FLAG)

    def plain(self, value: float) -> float | int | bool:
        """Return a value as the summary has it."""
        return {Kind.COUNT: int, Kind.FLAG: bool}.get(self.kind, float)(value)
