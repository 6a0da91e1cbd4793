"""Two results side by side: how far one is above the other, and how sure that is."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

from batchsim import _check
from batchsim.result import intervals as confidence
from batchsim.result import metrics
from batchsim.result.metrics import GIVEN

if TYPE_CHECKING:
    import pandas

    from batchsim.result import Result


class Difference(NamedTuple):
    """A number of two results, how far the second is above the first, and the interval of that."""

    a: float
    b: float
    difference: float
    low: float
    high: float


@dataclass(frozen=True, eq=False, repr=False)
class Comparison:
    """Two results, number by number, with the interval of each difference.

    `comparison["p99"]` is a `Difference`; its fields are in the unit of the key's suffix.
    """

    rows: dict[str, Difference]
    level: float = 0.95

    def __getitem__(self, key: str) -> Difference:
        key = metrics.check_key(key)
        if key not in self.rows:
            raise ValueError(
                f"a number must be one of those compared, got {key!r}{_check.nearest(key, self.rows)}"
            )
        return self.rows[key]

    def to_frame(self) -> "pandas.DataFrame":
        """Return a DataFrame with a row a number."""
        import pandas

        return pandas.DataFrame.from_dict(self.rows, orient="index", columns=list(Difference._fields))

    def __repr__(self) -> str:
        lines = [f"{'Comparison':<22}{'a':>11}{'b':>11}{'b - a':>11}   {100 * self.level:g} % interval"]
        for key, row in self.rows.items():
            surely = "" if row.low <= 0 <= row.high else "  differs"
            known = "none" if math.isnan(row.low) else f"({row.low:+.4g}, {row.high:+.4g}){surely}"
            lines.append(f"  {key:<20}{row.a:>11.4g}{row.b:>11.4g}{row.difference:>+11.4g}   {known}")
        return "\n".join(lines)


COMPARED = (
    "mean_latency_ms", "p50_ms", "p95_ms", "p99_ms", "mean_forming_ms", "mean_queueing_ms",
    "mean_computing_ms", "throughput_per_s", "utilisation", "mean_batch_size",
)  # fmt: skip


def compare(
    result_a: "Result", result_b: "Result", keys: Sequence[str] | str = COMPARED, level: float = 0.95
) -> Comparison:
    """Return how far `result_b` is above `result_a`, with an interval, in runs of one seed.

    One seed is the same traffic: what both have in common cancels out, request by request, so
    that small differences show in short runs. Replications are paired by number, the sections of
    single runs by their requests; both leave out the longer of the two warm-ups.

    >>> from batchsim import Affine, Poisson, Scenario, SizeOrWait, simulate
    >>> scenario = Scenario(Poisson(800), SizeOrWait(32, 10), Affine(5, 0.25))
    >>> with_wait, without = (simulate(scenario.replace(max_wait_ms=ms), 20_000) for ms in (10, 0))
    >>> row = compare(with_wait, without)["p99"]
    >>> row.low < row.high < 0  # without the wait it is surely lower
    True
    """
    from batchsim.result import Result

    for result in (result_a, result_b):
        if not isinstance(result, Result):
            raise TypeError(f"what is compared must be a Result, got {result!r}")
    a, b = result_a, result_b
    _check_shared("seed", a.seed, b.seed)
    _check_shared("replications", len(a.replications), len(b.replications))
    level = confidence.check_level(level)
    keys = [metrics.check_key(key) for key in ([keys] if isinstance(keys, str) else keys)]
    longer = max(a.warmup, b.warmup)
    a, b = (result if result.warmup == longer else _with_warmup(result, longer) for result in (a, b))
    _check_shared("requests", int(a.metrics.totals.requests), int(b.metrics.totals.requests))
    given = [key for key in keys if key in GIVEN]
    if given:
        raise ValueError(f"a compared number must be one that is measured, got {given[0]!r}, which is given")
    rows = {}
    for key, (low, high) in confidence.differences([a, b], keys, level).items():
        value_a, value_b = a.metrics.number(key), b.metrics.number(key)
        rows[key] = Difference(value_a, value_b, value_b - value_a, low, high)
    return Comparison(rows, level)


def _check_shared(what: str, left: int, right: int) -> None:
    if left != right:
        raise ValueError(f"compared runs must share their {what}, got {left:,} and {right:,}")


def _with_warmup(result: "Result", fraction: float) -> "Result":
    if result.sums is not None:
        raise ValueError(
            f"compared runs must share their warmup if keep='summary', got {result.warmup!r} and {fraction!r}"
        )
    runs = tuple(replace(run, warmup=fraction) for run in result.runs)
    return replace(result, warmup=fraction, runs=runs)
