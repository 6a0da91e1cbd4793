"""Two results side by side: how far one is above the other, and how sure that is."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from batchsim import _check
from batchsim._format import NONE
from batchsim.result.intervals import metric_intervals
from batchsim.result.metrics import (
    METRICS,
    OF_DEVICES,
    OF_FLEETS,
    OF_UNITS,
    SUMMARY,
    TOKENS,
    Quantity,
    metric,
)
from batchsim.result.result import Result
from batchsim.result.standard_error import ROUNDING, NoInterval

if TYPE_CHECKING:
    import pandas

COMPARED = tuple(key for key, each in METRICS.items() if each.interval or each.quantity is Quantity.MEAN)
OF_TOKENS = tuple(key for key, each in TOKENS.items() if each.interval or each.quantity is Quantity.MEAN)


class Difference(NamedTuple):
    """A metric of two results, how far the second is above the first, and the interval of that."""

    a: float
    b: float
    difference: float
    low: float
    high: float


@dataclass(frozen=True, eq=False, repr=False)
class Comparison:
    """Two results, metric by metric, with the interval of each difference.

    `comparison["p99"]` is a `Difference`; its fields are in the unit of the key's suffix.
    """

    rows: dict[str, Difference]
    level: float = 0.95

    def __getitem__(self, key: str) -> Difference:
        key = metric(key, (*SUMMARY, *TOKENS)).key
        if key not in self.rows:
            hint = _check.nearest(key, self.rows)
            raise ValueError(f"a metric must be one of those compared, got {key!r}{hint}")
        return self.rows[key]

    def to_frame(self) -> "pandas.DataFrame":
        """Return a DataFrame with a row a metric."""
        import pandas

        return pandas.DataFrame.from_dict(self.rows, orient="index", columns=list(Difference._fields))

    def __repr__(self) -> str:
        lines = [f"{'Comparison':<22}{'a':>11}{'b':>11}{'b - a':>11}   {100 * self.level:g} % interval"]
        for key, row in self.rows.items():
            surely = "" if row.low <= 0 <= row.high else "  differs"
            interval = "none" if math.isnan(row.low) else f"({row.low:+.4g}, {row.high:+.4g}){surely}"
            numbers = (
                NONE if math.isnan(each) else f"{each:{sign}.4g}"
                for each, sign in zip(row[:3], ("", "", "+"), strict=True)
            )
            lines.append(f"  {key:<20}{''.join(f'{number:>11}' for number in numbers)}   {interval}")
        return "\n".join(lines)


def compare(
    result_a: Result, result_b: Result, keys: Sequence[str] | str = COMPARED, level: float = 0.95, *,
    silent: bool = False,
) -> Comparison:  # fmt: skip
    """Return how far `result_b` is above `result_a`, with an interval, in runs of one seed.

    One seed is the same traffic: what both have in common cancels out, request by request, so
    that small differences show in short runs. Replications are paired by number, the sections of
    single runs by their requests; both leave out the longer of the two warm-ups. Warns where there is no
    interval, unless `silent`. Two runs of tokens are also compared by TTFT and TPOT.

    >>> from batchsim import Affine, Poisson, Scenario, SizeOrWait, simulate
    >>> scenario = Scenario(Poisson(800), SizeOrWait(32, 10), Affine(5, 0.25))
    >>> with_wait, without = (simulate(scenario.replace(max_wait_ms=ms), 20_000) for ms in (10, 0))
    >>> row = compare(with_wait, without)["p99"]
    >>> row.low < row.high < 0  # without the wait it is surely lower
    True
    """
    for result in (result_a, result_b):
        _check.instance("what is compared", result, Result, "a Result")
    level = _check.real("level", level, above=0, below=1)
    keys = [keys] if isinstance(keys, str) else keys
    if not _check.listed(keys):
        raise TypeError(f"keys must be a list of metrics, got {keys!r}")
    known = [key for key in result_a.metrics.keys if key in result_b.metrics.keys]
    if keys is COMPARED:
        untold = set() if any(each.metrics.tells_devices for each in (result_a, result_b)) else {*OF_DEVICES}
        # Without sizes of requests no run has numbers of them.
        sized = "padding" in known and not math.isnan(result_b.metrics.number("padding"))
        untold |= set() if sized else {*OF_UNITS}
        untold |= {*OF_FLEETS} & result_a.metrics.absent & result_b.metrics.absent
        keys = [key for key in (*COMPARED, *OF_TOKENS) if key in known and key not in untold]
    metrics = [metric(key, known) for key in keys]
    warmup = max(result_a.warmup, result_b.warmup)
    a, b = result_a.with_warmup(warmup), result_b.with_warmup(warmup)
    shared = [(each.seed, len(each.runs), int(each.metrics.totals.requests)) for each in (a, b)]
    for name, left, right in zip(("seed", "replications", "requests"), *shared, strict=True):
        if left != right:
            raise ValueError(f"compared runs must share their {name}, got {left:,} and {right:,}")
    for each in metrics:
        if not each.random:
            raise ValueError(f"a compared metric must be measured, got {each.key!r}, which is given")
    rows = {}
    for key, interval in metric_intervals([a.sample, b.sample], metrics, level).items():
        value_a, value_b = a.metrics.number(key), b.metrics.number(key)
        rounding = ROUNDING * max(abs(value_a), abs(value_b))
        ends = (0.0 if abs(each) <= rounding else each for each in (value_b - value_a, *interval))
        rows[key] = Difference(value_a, value_b, *ends)
        if isinstance(interval, NoInterval) and not silent:
            _check.warn(f"an interval for {key} {interval.reason}")
    return Comparison(rows, level)
