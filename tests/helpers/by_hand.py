"""The batches of a few arrivals, to be compared with what a reader finds by hand."""

import dataclasses
import math

import numpy as np

import batchsim as bs
from batchsim.engines.draws import draw
from batchsim.engines.reference import engine as reference
from batchsim.result import Result, Run


def run(times_ms, rule, **knobs):
    scenario = bs.Scenario(bs.Trace(np.array(times_ms) / 1000), rule, bs.Affine(10, 0), **knobs)
    result = bs.simulate(scenario)
    batches = result.batches
    triggers = [bs.Trigger(each).name for each in batches.trigger]
    return list(zip((batches.start_s * 1000).round(6), batches.batch_size, triggers, strict=True))


SECOND = 1000.0  # ms: whole seconds keep the hand-computed times exact
SERVED, REJECTED, TIMED_OUT = bs.Status.SERVED, bs.Status.REJECTED, bs.Status.TIMED_OUT
FULL, WAIT, BACKLOG = bs.Trigger.FULL, bs.Trigger.WAIT, bs.Trigger.BACKLOG
DRAIN, ENOUGH = bs.Trigger.DRAIN, bs.Trigger.ENOUGH


def seconds(fixed=1.0, per_item=0.0):
    return bs.Affine(fixed * SECOND, per_item * SECOND)


def rule(size, wait_s=0.0):
    return bs.SizeOrWait(size, wait_s * SECOND)


def requests_of(result):
    """The log, a row a request: (arrival, start, finish, batch, status)."""
    columns = (result.arrival_s, result.start_s, result.finish_s, result.batch_index, result.status)
    return [
        tuple(None if isinstance(x, float) and math.isnan(x) else x for x in row)
        for row in zip(*(column.tolist() for column in columns), strict=True)
    ]


def batches_of(result):
    """The log, a row a batch: (start, finish, size, server, trigger)."""
    b = result.batches
    columns = (b.start_s, b.finish_s, b.batch_size, b.server, b.trigger)
    return list(zip(*(column.tolist() for column in columns), strict=True))


def run_planned(scenario, requests, **drawn):
    """A run whose drawn columns (think_s, noise) are given by hand."""
    plan = dataclasses.replace(
        draw(scenario, requests, 0), **{name: np.array(column, float) for name, column in drawn.items()}
    )
    return Result((Run(scenario, reference.run(plan)),), 0, "simpy")
