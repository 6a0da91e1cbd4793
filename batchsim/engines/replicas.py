"""Replicas: the plan of each, one log of all, and that log's parts.

In the log, batches of all replicas are numbered by start, ties by server, and server s of replica k has
number k * servers + s.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from batchsim.engines.draws import Plan
from batchsim.engines.log import Log
from batchsim.scenario import Scenario


def rows_of(replica: np.ndarray, replicas: int) -> list[tuple[int, np.ndarray]]:
    """Return the requests of each replica, in order of arrival, with its number."""
    order = np.argsort(replica, kind="stable")
    ends = np.cumsum(np.bincount(replica, minlength=replicas))
    return list(enumerate(np.split(order, ends[:-1])))


def plan_of(plan: Plan, k: int, rows: np.ndarray) -> Plan:
    """Return the plan of a replica, with the requests that it gets."""
    assert plan.arrival_s is not None
    return replace(
        plan, scenario=plan.scenario.one, requests=rows.size, arrival_s=plan.arrival_s[rows],
        noise=plan.noise_of(k, rows.size) if plan.noise_of else None, noise_of=None, chances=None,
        priority=None if plan.priority is None else plan.priority[rows], end_s=float(plan.arrival_s[-1]),
        size=None if plan.size is None else plan.size[rows],
    )  # fmt: skip


def merged(scenario: Scenario, replica: np.ndarray, logs: Sequence[Log]) -> Log:
    """Return the log of all replicas, whose requests came in the order of `replica`."""
    joined, order = Log.join(logs), np.argsort(replica, kind="stable")
    place = np.empty_like(order)
    place[order] = np.arange(order.size)  # of each request in the joined columns
    by_start = np.argsort(joined.batch_start_s, kind="stable")
    number = np.empty_like(by_start)
    number[by_start] = np.arange(by_start.size)
    first = np.repeat(np.arange(len(logs)) * scenario.servers, [log.steps for log in logs])
    return Log(
        joined.arrival_s[place], np.append(number, -1)[joined.batch_index[place]], joined.status[place],
        joined.batch_start_s[by_start], joined.batch_finish_s[by_start], joined.batch_size[by_start],
        (joined.batch_server + first)[by_start], joined.batch_trigger[by_start],
        None if joined.priority is None else joined.priority[place],
        size=None if joined.size is None else joined.size[place], replica=replica,
    )  # fmt: skip


def parts_of(scenario: Scenario, log: Log) -> list[tuple[np.ndarray, np.ndarray, Log]]:
    """Return of each replica the rows of its requests, those of its batches, and its own log."""
    assert log.replica is not None
    parts = []
    of_batch = log.batch_server // scenario.servers
    batches = rows_of(of_batch, scenario.most_replicas)
    for (k, requests), (_, rows) in zip(rows_of(log.replica, scenario.most_replicas), batches, strict=True):
        number = np.full(log.steps + 1, -1)  # the last one is that of a request without a batch
        number[rows] = np.arange(rows.size)
        parts.append((requests, rows, Log(
            log.arrival_s[requests], number[log.batch_index[requests]], log.status[requests],
            log.batch_start_s[rows], log.batch_finish_s[rows], log.batch_size[rows],
            log.batch_server[rows] - k * scenario.servers, log.batch_trigger[rows],
            None if log.priority is None else log.priority[requests],
            size=None if log.size is None else log.size[requests],
        )))  # fmt: skip
    return parts
