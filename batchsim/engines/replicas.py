"""Replicas: the plan of each, one log of all, and that log's parts.

In the log, batches of all replicas are numbered by start, ties by replica and then as in its own log. Server
s of replica k has number k * servers + s. A log without rows of steps numbers steps replica after replica.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, replace
from functools import partial
from typing import Any

import numpy as np

from batchsim._compat import bincount, repeat
from batchsim.engines.draws import Plan
from batchsim.engines.folded_log import BEFORE, FoldedLog, folded
from batchsim.engines.log import Log
from batchsim.engines.token_log import TokenLog, TokenPlan
from batchsim.scenario import Continuous, Scenario
from batchsim.scenario.routing import Loads


def are_apart(scenario: Scenario) -> bool:
    """Return whether a summary can run replicas window by window, each for itself.

    Neither the router nor an autoscaler looks at them, and no memory knows requests by their numbers.
    """
    looks = scenario.autoscale is not None or scenario.router.sees_loads
    return not looks and not getattr(scenario.rule, "reuses", False)


def loads_of(scenario: Scenario, counts: np.ndarray | None = None) -> Loads:
    """Return the loads of replicas, from their requests, those that wait, and their tokens; 0 without."""
    inside, waiting, tokens = np.zeros((3, scenario.most_replicas), np.int64) if counts is None else counts
    filling = inside if isinstance(scenario.rule, Continuous) else waiting
    return Loads(inside, waiting, filling, tokens, scenario.rule.max_batch_size)


def rows_of(replica: np.ndarray, replicas: int) -> list[tuple[int, np.ndarray]]:
    """Return the requests of each replica, in order of arrival, with its number."""
    order = np.argsort(replica, kind="stable")
    ends = np.cumsum(bincount(replica, minlength=replicas))
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


def token_plan_of(plan: TokenPlan, k: int, rows: np.ndarray) -> TokenPlan:
    """Return the same of a plan of token generation."""
    return replace(
        plan, base=plan_of(plan.base, k, rows), prompts=plan.prompts[rows], outputs=plan.outputs[rows],
        limits=plan.limits[rows], paths=plan.paths[rows], noise=partial(plan.noise, k),
    )  # fmt: skip


def _taken(
    log: Log, rows: Mapping[str, np.ndarray], number: Mapping[str, np.ndarray], **columns: Any
) -> Any:  # fmt: skip
    """Return some rows of a log in a new order; `number` has the new number of each old row."""
    for each in fields(log):
        column, kind = getattr(log, each.name), log.ROWS.get(each.name, "requests")
        if column is None or not kind:
            continue
        column = column[rows[kind]]
        if (counted := log.NUMBERS.get(each.name, "")) in number:
            column = np.append(number[counted], -1)[column]
        columns[each.name] = column
    return type(log)(**columns)


def merged_log(scenario: Scenario, replica: np.ndarray, logs: Sequence[Log]) -> Any:
    """Return the log of all replicas, whose requests came in the order of `replica`."""
    joined, rows, number = _joined(scenario, replica, logs)
    number["steps"] = _inverse(rows["steps"])
    for name, kind in (("late_step", "late"), ("preempted_step", "preemptions")):
        if (step := getattr(joined, name, None)) is not None:
            rows[kind] = np.argsort(number["steps"][step], kind="stable")
    return replace(_taken(joined, rows, number), replica=replica)


def merged_folded(
    scenario: Scenario, replica: np.ndarray, arrival_s: np.ndarray, logs: Iterable[TokenLog]
) -> FoldedLog:  # fmt: skip
    """Return the same without rows of steps; requests came at `arrival_s`."""
    before, most, short = dict[str, Any](), 0, list[FoldedLog]()
    for log in logs:
        one = folded(log, arrival_s, scenario.watts_at)
        columns = {name: each for name in BEFORE if (each := getattr(one, name)) is not None}
        most = max(most, one.most_running)
        before = {name: each + before.get(name, 0) for name, each in columns.items()}
        # Many replicas would need much memory for all of these columns; of each, the total is enough.
        short.append(replace(one, **{name: each[-1:].copy() for name, each in columns.items()}))
    joined, rows_of_kind, number = _joined(scenario, replica, short)
    rows_of_kind |= {"gaps": np.argsort(joined.gaps_at_s, kind="stable"), "folded": np.empty(0, np.int64)}
    taken: FoldedLog = _taken(joined, rows_of_kind, number, **before, most_at_once=np.array([most]))
    server = np.where(taken.server < 0, -1, taken.server + replica.astype(np.int64) * scenario.servers)
    return replace(taken, server=server, replica=replica)


def without_steps(scenario: Scenario, log: TokenLog) -> FoldedLog:
    """Return the log of a run without its rows of steps."""
    if isinstance(log, FoldedLog) or log.replica is None:
        return folded(log, watts=scenario.watts_at)
    logs = (part for _, _, part in logs_by_replica(scenario, log))
    return replace(merged_folded(scenario, log.replica, log.arrival_s, logs), scaling=log.scaling)


def _joined(
    scenario: Scenario, replica: np.ndarray, logs: Sequence[Log]
) -> tuple[Any, dict[str, np.ndarray], dict[str, np.ndarray]]:  # fmt: skip
    """Return the replicas' logs one after the other, the order of the rows of all, and their new numbers."""
    joined, order = type(logs[0]).join(logs), np.argsort(replica, kind="stable")
    first = repeat(np.arange(len(logs)) * scenario.servers, [log.batch_start_s.size for log in logs])
    joined = replace(joined, batch_server=joined.batch_server + first)
    rows = {"requests": _inverse(order), "steps": np.argsort(joined.batch_start_s, kind="stable")}
    return joined, rows, {"requests": order}


def _inverse(order: np.ndarray) -> np.ndarray:
    found = np.empty_like(order)
    found[order] = np.arange(order.size)
    return found


def logs_by_replica(scenario: Scenario, log: Log) -> list[tuple[np.ndarray, np.ndarray, Any]]:
    """Return of each replica the rows of its requests, those of its batches, and its own log."""
    assert log.replica is not None
    parts, count = [], scenario.most_replicas
    of_batch, rows = log.batch_server // scenario.servers, dict[str, np.ndarray]()
    batches = rows_of(of_batch, count)
    for (k, rows["requests"]), (_, rows["steps"]) in zip(rows_of(log.replica, count), batches, strict=True):
        for name, kind, of in (
            ("late_step", "late", of_batch),
            ("preempted_request", "preemptions", log.replica),
        ):
            if (column := getattr(log, name, None)) is not None:
                rows[kind] = np.flatnonzero(of[column] == k)
        number = {kind: np.full(getattr(log, kind), -1) for kind in ("requests", "steps")}
        for kind, found in number.items():
            found[rows[kind]] = np.arange(rows[kind].size)
        part = _taken(log, rows, number)
        own = part.batch_server - k * scenario.servers
        parts.append((rows["requests"], rows["steps"], replace(part, batch_server=own, replica=None)))
    return parts
