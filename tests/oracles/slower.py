"""The paired difference of two runs of the same traffic, section by section, as `bs.compare` makes it."""

from dataclasses import replace

from batchsim.result.intervals import metric_intervals
from batchsim.result.metrics import metric


def slower_by(result, than, key):
    """Return the interval of how much higher a latency is than in another run, of runs of any length."""
    samples = [replace(run.sample, length=None, drift="") for run in (than, result)]
    (interval,) = metric_intervals(samples, [metric(key)], 0.95).values()
    return interval
