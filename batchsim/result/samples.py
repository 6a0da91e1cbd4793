"""What is known of the runs of a result: the sample that intervals are made from."""

from collections.abc import Sequence

from batchsim.result.metrics import Metrics
from batchsim.result.periods import Periods
from batchsim.result.run import Run
from batchsim.result.run_length import run_length
from batchsim.result.sections import Sections
from batchsim.result.standard_error import Sample


def sample_of(
    runs: Sequence[Run], whole: Metrics, periods: Periods | None, rate_range_per_s: tuple[float, float] | None
) -> Sample:
    """Return the sample of some runs, whose metrics together are `whole`.

    `periods` are those of each run, and `rate_range_per_s` is how far the rate drifts along it, if it does.
    """
    partial, drift, sections = "", "", None
    if periods is not None:
        partial, drift = periods.partial, periods.few
    elif rate_range_per_s is not None:
        got = "a rate that drifts from {:.4g}/s to {:.4g}/s".format(*rate_range_per_s)
        drift = f"needs traffic that stays the same, got {got}: see over_time"
    replicated = len(runs) > 1
    if replicated:
        sections, drift = Sections.of_runs([run.metrics for run in runs]), ""
    elif runs[0].columns is not None:
        sections = runs[0].alike
    return Sample(
        whole, sections, replicated, drift, partial, run_length(whole.scenario), dropped_of(whole, runs)
    )


def dropped_of(whole: Metrics, runs: Sequence[Run]) -> int:
    """Return how many requests each run leaves out."""
    kept, warmup = int(whole.totals.requests) / len(runs), runs[0].warmup
    return round(kept * warmup / (1 - warmup))
