"""Random scenarios with sizes, whose times are all multiples of one unit, so that everything collides."""

import dataclasses
import math

import numpy as np
from hypothesis import strategies as st
from oracles.plans import LEVELS, limits, list_of

import batchsim as bs
from batchsim.engines.draws import draw

COUNTING = (bs.SizeOrWait, bs.PullThenWait, bs.FrozenBatches, bs.CompetingWindows)


@st.composite
def rules(draw_, most, wait_ms):
    """A rule of batches of up to `most` requests, with sizes from 1 to 6."""
    units = {
        "max_batch_units": draw_(st.sampled_from([None, None, None, 3, 5, 6, 8, 12, 20])),
        "units": draw_(st.sampled_from(["padded", "summed"])),
    }
    kind = draw_(st.sampled_from(["limit", "limit", "frozen", "prefetch", "buckets", "window", "counts"]))
    if kind == "limit":
        return bs.SizeOrWait(most, wait_ms, **units)
    if kind == "frozen":
        return bs.FrozenBatches(most, wait_ms, draw_(st.sampled_from([math.inf, most + 1])), **units)
    if kind == "prefetch":
        return bs.PrefetchedBatches(most, **units)
    if kind == "buckets":
        edges = draw_(st.sampled_from([[6], [2, 6], [1, 3, 6], [3, 4, 9]]))
        return bs.Buckets(edges, most, wait_ms, **units)
    if kind == "window":
        return bs.SortedWindow(most, wait_ms, most + draw_(st.integers(0, 6)))
    rule = draw_(st.sampled_from(COUNTING))
    return rule(most, wait_ms if rule is not bs.CompetingWindows else min(wait_ms, 9000.0))


@st.composite
def services(draw_, most, unit_ms):
    """A service time of each kind, of batches of up to `most` requests."""
    kind = draw_(st.sampled_from(["padded", "packed", "table", "count"]))
    parts = [draw_(st.integers(0, 2)) * unit_ms for _ in range(4)]
    parts[0] += unit_ms
    if kind == "count":
        return bs.Affine(*parts[:2])
    if kind == "table":
        counts = sorted({1, max(most // 2, 1), most})
        rows = [[draw_(st.integers(1, 5)) * unit_ms for _ in range(2)] for _ in counts]
        return bs.SizeTable(counts, [2, 6], rows)
    counts = draw_(st.sampled_from([None, sorted({max(most // 2, 1), most})]))
    if kind == "packed":
        return dataclasses.replace(bs.PackedTime(*parts), padding=counts)
    return bs.PaddedTime(*parts).padded_to(counts, draw_(st.sampled_from([None, [2, 6], [1, 4, 8]])))


@st.composite
def size_plans(draw_):
    """Plans of every kind of rule and service time, with ties, limits, timeouts, clients and levels."""
    unit_s = draw_(st.sampled_from([0.125, 0.1, 0.001, 0.0005]))
    requests, servers, most = draw_(st.integers(1, 40)), draw_(st.integers(1, 3)), draw_(st.integers(1, 5))
    wait_ms = draw_(st.sampled_from([0, 0, 1, 2, 3, 5, math.inf])) * unit_s * 1000
    rule, service = draw_(rules(most, wait_ms)), draw_(services(most, unit_s * 1000))
    if service.padding is not None and getattr(service, "edges", ()) and draw_(st.booleans()):
        service = service.compiling(draw_(st.integers(0, 4)) * unit_s * 1000)
    factors = draw_(st.sampled_from([None, (0.5, 1, 2), (1, 1.1, 0.3)]))
    service = service.with_noise(0.5) if factors else service
    sizes = draw_(list_of(range(1, 7), requests))
    open_loop = draw_(st.booleans())
    if open_loop:
        workload = bs.Trace(np.cumsum(draw_(list_of(range(4), requests))) * unit_s, sizes=sizes)
    else:
        clients = rule.fewest_clients + draw_(st.integers(0, 5))
        workload = bs.ClosedLoop(clients, think_s=1.0).with_sizes(sizes)
    levels = None if rule.by_size else draw_(st.sampled_from([None, None, *LEVELS]))
    if levels:
        workload = workload.with_priorities(levels)
    timeouts = [None, None, *(timeout * unit_s * 1000 for timeout in (0, 1, 2, 3, 5))]
    limited = limits(draw_, [None, None, 1, 2, 4], timeouts, levels or ())
    if rule.by_size:
        limited["timeout_action"] = "reject"
    sharing = draw_(
        st.sampled_from(
            [{}, {"slowdown": {1: 1.0, 2: 1.5, 3: 1.7}}, {"devices": 1, "contention": 1.5}, {"devices": 1}]
        )
    )
    action = draw_(st.sampled_from(["reject", "truncate"]))
    plan = draw(
        bs.Scenario(workload, rule, service, servers, **limited, **sharing, oversize_action=action),
        requests, 0,
    )  # fmt: skip
    if levels:
        plan = dataclasses.replace(plan, priority=np.array(draw_(list_of(list(levels), requests)), np.uint8))
    if factors:
        plan = dataclasses.replace(plan, noise=np.array(draw_(list_of(factors, requests)), float))
    if not open_loop:
        think = draw_(list_of(range(draw_(st.sampled_from([1, 4]))), requests))
        plan = dataclasses.replace(plan, think_s=np.array(think) * unit_s)
    return plan
