"""Results of several replicas: each request's waits at its own, and the metrics of each."""

import numpy as np

from batchsim.engines.log import Log
from batchsim.engines.replicas import parts_of
from batchsim.result.breakdown import ServerTime, Stretches
from batchsim.scenario import Scenario


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
