"""Many settings under one traffic: their percentiles, means and throughput, and no columns.

The numbers are those of `simulate`, to the last bit; a setting costs little more than the forming
of its batches.
"""

import functools
import math
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from batchsim.engines import kernels_many as kernels_survey
from batchsim.engines.compiled import Batches, Instants, limit, or_none, serves_all
from batchsim.engines.plan import Plan
from batchsim.scenario import Scenario

Job = TypeVar("Job")
Done = TypeVar("Done")


@dataclass(frozen=True, eq=False)
class Settings:
    """What differs from setting to setting: arrays of shape (settings,).

    The rule's wait, how many waiting requests are enough, and the largest batch.
    """

    wait_s: np.ndarray
    enough: np.ndarray
    largest: np.ndarray

    def share(self, first: int, step: int) -> "Settings":
        """Return every `step`-th, from `first` on."""
        columns = (self.wait_s, self.enough, self.largest)
        return Settings(*(column[first::step].copy() for column in columns))


@dataclass(frozen=True, eq=False)
class Metrics:
    """What is kept of each setting: arrays of shape (settings,), `percentiles_ms` (settings, q)."""

    served: np.ndarray
    percentiles_ms: np.ndarray
    mean_ms: np.ndarray
    throughput_per_s: np.ndarray


def survey(
    plan: Plan,
    settings: Settings,
    per_cent: Sequence[float] = (99,),
    unserved: str = "ignore",
    sections: int = 0,
) -> Metrics:
    """Run the plan's traffic once under each setting, in place of its scenario's rule.

    `plan.service_s` must reach to the largest batch of all. Percentiles are over the served
    requests, or over all with unserved="inf", those not served infinitely late. `sections`: how
    many parts the sums of a whole run are added up in, as the last bit depends on it; with 0 the
    means and the throughput are NaN.
    """
    scenario, requests = plan.scenario, plan.requests
    cuts = np.linspace(0, requests, sections + 1).astype(int) if sections else np.empty(0, int)
    rows = settings.wait_s.size
    served, last_s = np.empty(rows, int), np.empty(rows)
    ranked_s = np.empty((rows, len(per_cent), 2))
    sums_s, edges_s = np.zeros((rows, max(sections, 1))), np.empty((rows, cuts.size))
    rules = settings.enough, settings.largest, plan.service_s, or_none(plan.noise), or_none(plan.slowdown)
    latency_s = np.empty(requests)
    wanted = np.array(per_cent, float), unserved == "inf", cuts
    written = (
        latency_s, latency_s.view(int), np.empty(requests, int), np.empty(kernels_survey.BINS, np.int32),
        served, last_s, ranked_s.view(int), sums_s, edges_s,
    )  # fmt: skip
    if serves_all(scenario):
        free_s = np.empty(scenario.servers)
        kernels_survey.survey_served(plan.arrival_s, settings.wait_s, *rules, free_s, *wanted, *written)
    else:
        at = Instants(scenario, requests)
        kernels_survey.survey_instants(
            np.empty(requests) if plan.arrival_s is None else plan.arrival_s,
            or_none(plan.think_s), at.closed, settings.wait_s, scenario.timeout_s, limit(scenario), *rules,
            at.queue, at.client_of, at.due_s, at.due_client, at.sending, at.busy_until_s, at.state,
            np.empty(requests, int), np.empty(requests, np.uint8), *Batches(requests).columns,
            *wanted, *written,
        )  # fmt: skip
    count = served if unserved == "ignore" else np.full(rows, requests)
    mean_ms = throughput_per_s = np.full(rows, math.nan)
    if sections:
        mean_ms, throughput_per_s = _means(served, sums_s, edges_s, last_s)
    return Metrics(served, _between(ranked_s, wanted[0], count), mean_ms, throughput_per_s)


def _between(ranked_s: np.ndarray, per_cent: np.ndarray, count: np.ndarray) -> np.ndarray:
    """Return the percentiles in ms from their neighbours, as `figures.Metrics.percentile` does."""
    rank = per_cent / 100 * (count[:, None] - 1)
    part = rank - np.floor(rank)
    below_ms, above_ms = np.moveaxis(ranked_s * 1000, -1, 0)
    with np.errstate(invalid="ignore"):  # infinity less infinity
        rise_ms = above_ms - below_ms
        between_ms = np.where(part < 0.5, below_ms + rise_ms * part, above_ms - rise_ms * (1 - part))
    return np.where(np.isinf(above_ms), math.inf, between_ms)


def _means(
    served: np.ndarray, sums_s: np.ndarray, edges_s: np.ndarray, last_s: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the mean latency in ms and the finished requests per second, added up as `figures` does."""
    edges_s[:, 0], edges_s[:, -1] = 0.0, last_s
    window_s = np.diff(np.minimum(edges_s, last_s[:, None]), axis=1).sum(axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):  # NaN where nobody was served
        mean_ms = np.cumsum(sums_s, axis=1)[:, -1] / served * 1000
        return mean_ms, np.where(window_s == 0, 0.0, served / window_s)


@functools.cache
def _threads(_: int) -> ThreadPoolExecutor:
    """Return a process's threads: a fork would inherit a pool without any."""
    return ThreadPoolExecutor(os.cpu_count() or 1, thread_name_prefix="batchsim-survey")


def in_threads(scenario: Scenario, task: Callable[[Job], Done], jobs: Sequence[Job]) -> list[Done]:
    """Do surveys of one kind of scenario on all cores; return what they return, in the order of the jobs."""
    loop: Any = kernels_survey.survey_served if serves_all(scenario) else kernels_survey.survey_instants
    here = 0 if loop.signatures else 1  # what compiles is this thread, whose caller may be listening
    return [*map(task, jobs[:here]), *_threads(os.getpid()).map(task, jobs[here:])]
