"""Results of several replicas: each request's waits at its own, and the metrics of each."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from batchsim.engines.autoscaling import replica_s
from batchsim.engines.log import Log
from batchsim.engines.replicas import parts_of
from batchsim.result.breakdown import ServerTime, Stretches
from batchsim.scenario import Scenario

if TYPE_CHECKING:
    import pandas


def forming_s(scenario: Scenario, log: Log, of_all: ServerTime) -> np.ndarray:
    """Return how long each request waited while a server was idle, of those that its replica has."""
    if log.replica is None:
        return of_all.forming_s(log)
    found = np.empty(log.requests)
    for requests, _, part in parts_of(scenario, log):
        if requests.size:
            found[requests] = ServerTime(part, scenario.servers).forming_s(part)
    return found


def waits(scenario: Scenario, log: Log, of_all: ServerTime, served: np.ndarray) -> dict[str, Stretches]:
    """Return when each of some served requests was forming and when it was queueing."""
    start_s = log.batch_start_s[log.batch_index[served]]
    if log.replica is None:
        return of_all.waits(log.arrival_s[served], start_s)
    parts: list[dict[str, Stretches]] = []
    for requests, _, part in parts_of(scenario, log):
        rows = np.flatnonzero(np.isin(served, requests))
        if rows.size or not parts:
            own = ServerTime(part, scenario.servers) if requests.size else of_all
            found = own.waits(log.arrival_s[served[rows]], start_s[rows])
            parts.append({name: each._replace(row=rows[each.row]) for name, each in found.items()})
    joined = {name: zip(*(part[name] for part in parts), strict=True) for name in parts[0]}
    return {name: Stretches(*map(np.concatenate, columns)) for name, columns in joined.items()}


PERCENTILES = (50, 95, 99)


def by_replica(runs: Sequence[Any]) -> "pandas.DataFrame":
    """Return a row for each replica, of the requests and batches after the warm-up of all runs."""
    import pandas

    scenario, count = runs[0].scenario, runs[0].scenario.most_replicas
    totals = np.zeros((4, count))  # requests, batches, requests in these, busy seconds
    ran_s, latencies = np.zeros(count), [list[np.ndarray]() for _ in range(count)]
    for run in runs:
        log, skip = run.log, run.warmup_requests
        from_s = float(log.arrival_s[skip]) if skip else 0.0
        of_batch, starts = log.batch_server // scenario.servers, log.batch_start_s >= from_s
        busy_s = np.maximum(log.batch_finish_s - np.maximum(log.batch_start_s, from_s), 0.0)
        for row, (of, weights) in zip(totals, (
            (run.replica[skip:], None), (of_batch[starts], None), (of_batch[starts], log.batch_size[starts]),
            (of_batch, busy_s),
        ), strict=True):  # fmt: skip
            row += np.bincount(of, weights, count)
        ran_s += _ran_s(scenario, log, from_s)
        for k in range(count):
            latencies[k].append(run.latency_ms[skip:][run.replica[skip:] == k])
    of_each = [np.concatenate(each) for each in latencies]
    served = [each[~np.isnan(each)] for each in of_each]
    requests, batches, items, busy_s = totals
    with np.errstate(invalid="ignore", divide="ignore"):  # NaN of a replica without a batch
        columns = {
            "requests": requests.astype(int), "share": requests / requests.sum(),
            "served": [each.size for each in served], "batches": batches.astype(int),
            "mean_batch_size": items / batches, "utilisation": busy_s / ran_s / scenario.servers,
            "mean_latency_ms": [each.mean() if each.size else np.nan for each in served],
            **{f"p{q}_ms": [np.percentile(each, q) if each.size else np.nan for each in served]
               for q in PERCENTILES},
        }  # fmt: skip
    return pandas.DataFrame(columns, index=pandas.RangeIndex(count, name="replica"))


def _ran_s(scenario: Scenario, log: Log, from_s: float) -> np.ndarray:
    """Return for how long each replica ran, from some time to the last finish."""
    edges_s = np.array([from_s, max(log.last_s, from_s)])
    if log.scaling is None:
        return np.full(scenario.most_replicas, edges_s[1] - edges_s[0])
    return np.array([replica_s(scenario, log, edges_s, k)[0] for k in range(scenario.most_replicas)])
