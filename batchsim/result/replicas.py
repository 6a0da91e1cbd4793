"""Results of several replicas: each request's waits at its own, and the metrics of each."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from batchsim._compat import bincount
from batchsim.engines.autoscaling import replica_s
from batchsim.engines.folded_log import FoldedLog
from batchsim.engines.log import Log
from batchsim.engines.replicas import rows_of
from batchsim.result.breakdown import Busy, ServerTime, Stretches
from batchsim.result.metrics import LATENCY, TTFT, percentile_key
from batchsim.scenario import Continuous, Scenario

if TYPE_CHECKING:
    import pandas


def own_times(scenario: Scenario, log: Log) -> Iterator[tuple[np.ndarray, ServerTime]]:
    """Yield the requests of each replica that has some, and what its own servers did until any time."""
    assert log.replica is not None
    count = scenario.most_replicas
    batches = rows_of(log.batch_server // scenario.servers, count)
    for (_, requests), (_, rows) in zip(rows_of(log.replica, count), batches, strict=True):
        if requests.size:
            columns = log.batch_start_s[rows], log.batch_finish_s[rows], log.arrival_s[requests]
            yield requests, ServerTime(Busy(*columns), scenario.servers)


def forming_s(scenario: Scenario, log: Log, start_s: np.ndarray) -> np.ndarray:
    """Return how long each request waited while its replica had an idle server; NaN for one not served."""
    found = np.empty(log.requests)
    for requests, own in own_times(scenario, log):
        found[requests] = own.forming_between_s(log.arrival_s[requests], start_s[requests])
    return found


def waits(scenario: Scenario, log: Log, served: np.ndarray, start_s: np.ndarray) -> dict[str, Stretches]:
    """Return when each of some served requests was forming and when it was queueing."""
    parts: list[dict[str, Stretches]] = []
    for requests, own in own_times(scenario, log):
        rows = np.flatnonzero(np.isin(served, requests))
        if rows.size or not parts:
            found = own.waits(log.arrival_s[served[rows]], start_s[rows])
            parts.append({name: each._replace(row=rows[each.row]) for name, each in found.items()})
    joined = {name: zip(*(part[name] for part in parts), strict=True) for name in parts[0]}
    return {name: Stretches(*map(np.concatenate, columns)) for name, columns in joined.items()}


PERCENTILES = (50, 95, 99)


def by_replica(runs: Sequence[Any]) -> "pandas.DataFrame":
    """Return a row for each replica, of the requests and batches after the warm-up of all runs.

    Batches are the steps of `Continuous`, and unknown where these are not kept.
    """
    import pandas

    scenario, count = runs[0].scenario, runs[0].scenario.most_replicas
    totals = np.zeros((4, count))  # requests, batches, requests in these, busy seconds
    ran_s, measured = np.zeros(count), (LATENCY, TTFT) if scenario.tokens is not None else (LATENCY,)
    for run in runs:
        log, skip = run.log, run.warmup_requests
        from_s = float(log.arrival_s[skip]) if skip else 0.0
        of_batch, starts = log.batch_server // scenario.servers, log.batch_start_s >= from_s
        busy_s = np.maximum(log.batch_finish_s - np.maximum(log.batch_start_s, from_s), 0.0)
        for row, (of, weights) in zip(totals, (
            (run.replica[skip:], None), (of_batch[starts], None), (of_batch[starts], log.batch_size[starts]),
            (of_batch, busy_s),
        ), strict=True):  # fmt: skip
            row += bincount(of, weights, count)
        ran_s += _ran_s(scenario, log, from_s)
        if isinstance(log, FoldedLog) and isinstance(scenario.rule, Continuous):
            totals[1:3] = np.nan
    replica = np.concatenate([run.replica[run.warmup_requests :] for run in runs])
    served = {}
    for name in measured:
        column = np.concatenate([run.measured[name][run.warmup_requests :] for run in runs])
        served[name] = [column[(replica == k) & ~np.isnan(column)] for k in range(count)]
    requests, batches, items, busy_s = totals
    with np.errstate(invalid="ignore", divide="ignore"):  # NaN of a replica without a batch
        columns = {
            "requests": requests.astype(np.int64), "share": requests / requests.sum(),
            "served": [each.size for each in served[LATENCY]],
            "batches": batches if np.isnan(batches).any() else batches.astype(np.int64),
            "mean_batch_size": items / batches, "utilisation": busy_s / ran_s / scenario.servers,
            "mean_latency_ms": [each.mean() if each.size else np.nan for each in served[LATENCY]],
            **{percentile_key(q, name): [np.percentile(each, q) if each.size else np.nan for each in values]
               for name, values in served.items() for q in PERCENTILES},
        }  # fmt: skip
    return pandas.DataFrame(columns, index=pandas.RangeIndex(count, name="replica"))


def _ran_s(scenario: Scenario, log: Log, from_s: float) -> np.ndarray:
    """Return for how long each replica ran, from some time to the last finish."""
    edges_s = np.array([from_s, max(log.last_s, from_s)])
    if log.scaling is None:
        return np.full(scenario.most_replicas, edges_s[1] - edges_s[0])
    return np.array([replica_s(scenario, log, edges_s, k)[0] for k in range(scenario.most_replicas)])
