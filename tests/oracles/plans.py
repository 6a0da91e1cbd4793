"""Random scenarios to hold two simulators against each other."""

import contextlib
import dataclasses
import math

import numpy as np
from hypothesis import strategies as st
from oracles.naive_sizes import cost_of

import batchsim as bs
from batchsim.engines.draws import draw
from batchsim.scenario.service import Service
from batchsim.scenario.sized_time import SizedTime

WORKLOADS = [
    bs.Poisson(900.0),
    bs.Constant(1000.0),
    bs.Gamma(900.0, cv=3.0),
    bs.OnOff(2000.0, 100.0, 0.05, 0.05),
    bs.Diurnal(900.0, 1.9, 0.002),  # of which any run covers whole periods
    bs.ClosedLoop(7),
    bs.ClosedLoop(7, think_s=0.004),
]


RULES = [
    bs.SizeOrWait(4, 3.3),
    bs.SizeOrWait(8, 0),
    bs.SizeOrWait(6, math.inf),
    bs.AtLeast(2, 5),
    bs.PreferredSizes([2, 4], 8, 3.3),
    bs.PreferredSizes([3, 8], 8, 0),
]
# Levels with the shares of a workload, and what may limit their queues: one number for all, or one a level.
LEVELS = [{1: 1.0}, {1: 0.3, 2: 0.7}, {1: 0.2, 3: 0.3, 9: 0.5}]


SERVERS_RULES = [
    bs.PreferredUntilLate([2, 4], 8, 3.3),
    bs.PreferredUntilLate([3, 8], 8, 0),
    bs.PreferredUntilLate([2, 3], 6, math.inf),
    bs.PullThenWait(4, 3.3),
    bs.PullThenWait(6, math.inf),
    bs.FrozenBatches(4, 3.3),
    bs.FrozenBatches(8, 0),
    bs.FrozenBatches(6, math.inf),
    bs.FrozenBatches(6, 2, max_ongoing=4),
    bs.FrozenBatches(4, 3.3, max_ongoing=7),
    bs.StalledBatches(4, 3.3),
    bs.StalledBatches(4, 0),
    bs.RunningWindow(4, 3.3),
    bs.RunningWindow(6, math.inf),
    bs.SleepingPoll(4, 3.3),
    bs.SleepingPoll(8, 0),
    bs.SleepingPoll(1, 3.3),
    bs.LearnedCork(8),
    bs.LearnedCork(6, 4.0),
    bs.LearnedCork(6, 4.0, max_latency_ms=9),
    bs.CompetingWindows(4, 3.3),
    bs.CompetingWindows(4, 3.3, poll_ms=0.4),
    bs.CompetingWindows(4, 3.3, poll_ms=math.inf),
    bs.LearnedSizes(8, 20),
    bs.LearnedSizes(8, 6),
    bs.PrefetchedBatches(4),
    bs.PrefetchedBatches(1),
]
# Rules by the class alone, of a size and a wait.
TIMERS = [
    bs.PullThenWait,
    bs.FrozenBatches,
    bs.StalledBatches,
    bs.RunningWindow,
    bs.SleepingPoll,
    bs.CompetingWindows,
]


def list_of(choices, size):
    """Lists of `size` of the choices, drawn at once as bytes: several times as fast as one by one."""
    return st.binary(min_size=size, max_size=size).map(
        lambda drawn: [choices[i % len(choices)] for i in drawn]
    )


def limits(draw_, queue_limits, timeouts_ms, levels=()):
    """Limits of all, or of some levels."""

    def one(choices):
        if levels and draw_(st.booleans()):
            by_level = {level: draw_(st.sampled_from(choices)) for level in levels}
            return {level: value for level, value in by_level.items() if value is not None}
        return draw_(st.sampled_from(choices))

    return {
        "queue_limit": one(queue_limits),
        "timeout_ms": one(timeouts_ms),
        "timeout_action": one(["reject", "delay"]),
    }


@st.composite
def plans_with_ties(draw_, kinds=(bs.SizeOrWait, bs.AtLeast, bs.PreferredSizes), priorities=False):
    """Scenarios whose times are all multiples of one unit, so that everything collides."""
    unit_s = draw_(st.sampled_from([0.125, 0.1, 0.001, 0.0005]))  # exact as a float; the others nearly

    def times_ms(low, high):
        return draw_(st.integers(low, high)) * unit_s * 1000

    size = draw_(st.integers(1, 5))
    servers = draw_(st.integers(1, 3))
    requests = draw_(st.integers(1, 40))
    kind = draw_(st.sampled_from(kinds))
    wait_ms = draw_(st.sampled_from([0, 0, 1, 2, 3, 5, math.inf])) * unit_s * 1000
    if kind is bs.AtLeast:
        the_rule = bs.AtLeast(draw_(st.integers(1, size)), size)
    elif issubclass(kind, bs.PreferredSizes):
        preferred = draw_(st.lists(st.integers(1, size), min_size=1, max_size=3, unique=True).map(sorted))
        the_rule = kind(preferred, size, wait_ms)
    elif kind is bs.LearnedCork:
        limit_ms = draw_(st.sampled_from([math.inf, math.inf, 0, 3, 9])) * unit_s * 1000
        the_rule = bs.LearnedCork(size, draw_(st.sampled_from([0, 0.95, 4])), limit_ms)
    elif kind is bs.CompetingWindows:
        poll_ms = draw_(st.sampled_from([math.inf, 1.0, 1000 * unit_s, 2000 * unit_s]))
        the_rule = kind(size, min(wait_ms, 9000.0), poll_ms)
    elif kind is bs.LearnedSizes:
        the_rule = bs.LearnedSizes(size, draw_(st.sampled_from([0, 2, 7, 20])) * unit_s * 1000)
    else:
        the_rule = kind(
            size, wait_ms if kind.parameters()["max_wait_ms"].may_be_inf else min(wait_ms, 9000.0)
        )
    if draw_(st.booleans()):
        service = bs.Affine(times_ms(1, 4), times_ms(0, 2))
    else:
        service = bs.Table({k: times_ms(1, 6) for k in range(1, size + 1)})
    factors = draw_(st.sampled_from([None, (0.5, 1, 2), (1, 1.1, 0.3)]))
    if factors:
        service = service.with_noise(0.5)
    if draw_(st.booleans()):
        service = service.padded_to(sorted({max(size // 2, 1), size}))
    if draw_(st.sampled_from([False, False, True])):
        service = service.compiling({1: times_ms(0, 4), size + 1: times_ms(0, 9)})
    sharing = {}
    shared = draw_(st.sampled_from(["no", "slowdown", "devices"]))
    if shared == "slowdown":
        factors_ = st.sampled_from([1, 1.5, 2, 1.7])
        sharing["slowdown"] = {busy: draw_(factors_) for busy in range(1, servers + 1)}
    elif shared == "devices":
        shortest_ms = min(service(k) for k in range(1, size + 1)) * 1000
        host_ms = min(times_ms(0, 2), shortest_ms)  # often all of it: then nothing is left for the device
        sharing = {
            "devices": draw_(st.sampled_from([None, *range(1, servers + 1)])),
            "host_ms": host_ms if host_ms / 1000 <= shortest_ms / 1000 else 0,
            "contention": draw_(st.sampled_from([1, 1, 1.5, 2, 1.7])),
        }
    open_loop = draw_(st.booleans())
    if open_loop:
        gaps = draw_(list_of(range(4), requests))
        workload = bs.Trace(np.cumsum(gaps) * unit_s)
        if draw_(st.booleans()):
            workload = bs.Constant(1 / (draw_(st.integers(1, 3)) * unit_s))
    else:
        fewest = the_rule.fewest_clients
        workload = bs.ClosedLoop(draw_(st.integers(fewest, fewest + 5)), think_s=1.0)
    levels = draw_(st.sampled_from([None, *LEVELS])) if priorities else None
    if levels:
        workload = workload.with_priorities(levels)
    timeouts = [None, None, *(timeout * unit_s * 1000 for timeout in (0, 1, 2, 3, 5))]
    if math.isfinite(wait_ms):
        timeouts.append(wait_ms)  # due at one instant
    limited = limits(draw_, [None, None, 1, 2, 4], timeouts, levels or ())
    if not priorities:
        limited["timeout_action"] = "reject"
    scenario = bs.Scenario(workload, the_rule, service, servers=servers, **limited, **sharing)
    plan = draw(scenario, requests, 0)
    if levels:
        levels_drawn = np.array(draw_(list_of(list(levels), requests)), np.uint8)
        plan = dataclasses.replace(plan, priority=levels_drawn)
    if factors:
        noise = draw_(list_of(factors, requests))
        plan = dataclasses.replace(plan, noise=np.array(noise, float))
    if not open_loop:
        longest = draw_(st.sampled_from([0, 3]))
        think = draw_(list_of(range(longest + 1), requests))
        plan = dataclasses.replace(plan, think_s=np.array(think) * unit_s)
    return plan


ROUTINGS = [
    "random", "round_robin", "least_loaded", "two_choices", "fill_first", "shortest_queue",
    bs.routing.ByKey(5, 1.0),
]  # fmt: skip


@st.composite
def autoscalers(draw_, plan):
    """Autoscalers whose evaluations meet arrivals, or batches that end."""
    span_s, gaps_s = 100.0, [float(plan.service_s[1])]
    if plan.arrival_s is not None:
        span_s, gaps_s = plan.arrival_s[-1], np.diff(plan.arrival_s)
    units_s = [gap for gap in gaps_s if gap > 0] or [1.0]
    unit_s = max(draw_(st.sampled_from(units_s)), 1e-3, span_s / 100)
    signal, several = draw_(st.sampled_from(["utilisation", "queue", "p99"])), st.integers(0, 3)
    targets = {"utilisation": [None, 0.1, 0.5, 0.9], "queue": [None, 0.5, 1, 2]}
    target = draw_(st.sampled_from(targets.get(signal, [unit_s * 1000, plan.service_s[1] * 1500])))
    least, every_s = draw_(st.integers(1, 2)), unit_s * draw_(st.sampled_from([1, 2, 2.5]))
    startup_s, hold_s = draw_(several) * unit_s, draw_(several) * every_s
    return bs.Autoscale(signal, target, least, least + draw_(st.integers(1, 2)), startup_s, every_s, hold_s)


@st.composite
def plans_with_replicas(draw_, plans):
    """Plans of one queue, as those of several replicas."""
    plan = draw_(plans)
    scenario, requests = plan.scenario, plan.requests
    routing = draw_(st.sampled_from([*ROUTINGS, "given"]))
    if routing == "given":
        routing = bs.routing.ByKey(draw_(list_of(range(9), requests)))
    changes = {"replicas": draw_(st.integers(2, 4)), "routing": routing}
    changes["stale_ms"] = draw_(st.sampled_from([0, 0, 0.5, 1, 2, 100, 125, 3.3]))
    if isinstance(scenario.workload, bs.ClosedLoop):
        changes["clients"] = changes["replicas"] * scenario.workload.clients
    noise = plan.noise
    chances = np.array(draw_(list_of(range(12), 2 * requests))).reshape(requests, 2) / 12
    changed = scenario.replace(changes)
    if draw_(st.sampled_from([False, False, True])):
        with contextlib.suppress(ValueError):  # it could not carry the traffic
            changed = changed.replace(replicas=1, autoscale=draw_(autoscalers(plan)))
    return dataclasses.replace(
        plan, scenario=changed, noise=None, chances=chances,
        noise_of=None if noise is None else lambda k, count: np.resize(np.roll(noise, k), count),
    )  # fmt: skip


@st.composite
def scenarios_at_random(draw_, rules=tuple(RULES), priorities=False):
    """Scenarios of every workload, rule and service time, with traffic that does not collide."""
    workload = draw_(st.sampled_from(WORKLOADS))
    the_rule = draw_(st.sampled_from(rules))
    service = draw_(
        st.sampled_from(
            [
                bs.Affine(2.0, 0.7),
                bs.Affine(2.0, 0.7).with_noise(0.6),
                bs.Affine(2.0, 0.7).with_noise(1, "exponential").padded_to([2, 4, 8]),
                bs.Affine(2.0, 0.7).with_noise(0.3).padded_to([1, 8]).compiling({1: 20, 8: 50}),
                bs.Table({1: 5.0, 2: 3.0, 8: 9.1}),
            ]
        )
    )
    levels = draw_(st.sampled_from(LEVELS)) if priorities else ()
    limited = limits(draw_, [None, 3, 10], [None, 3.3, 8.0], levels)
    if not priorities:
        limited["timeout_action"] = "reject"
    if workload == bs.ClosedLoop(7):
        limited["queue_limit"] = None
    if levels:
        workload = workload.with_priorities(levels)
    servers = draw_(st.integers(1, 3))
    sharing = draw_(
        st.sampled_from(
            [
                {},
                {"slowdown": {1: 1.0, 2: 1.4, 3: 1.9}},
                {"devices": 1, "host_ms": 0.9, "contention": 1.3},
                {"devices": min(servers, 2), "host_ms": 2.3},
                {"host_ms": 0.4},
            ]
        )
    )
    return bs.Scenario(workload, the_rule, service, servers=servers, **limited, **sharing)


def in_naive_words(plan):
    """Return what `oracles.naive.Naive` is told of a plan, all but its rule."""
    scenario = plan.scenario
    workload = scenario.workload
    closed = isinstance(workload, bs.ClosedLoop)
    sized, cold = isinstance(scenario.service, SizedTime), plan.cold_start
    if sized and cold is not None:
        cold = Service.cold_start(scenario.service, scenario.rule.max_batch_size)
    return {
        "sizes": None if plan.size is None else plan.size.tolist(),
        "largest_size": scenario.rule.largest_size,
        "truncates": scenario.oversize_action == "truncate",
        "cost": cost_of(scenario.service) if sized else None,
        "arrivals_s": None if closed else plan.arrival_s.tolist(),
        "clients": workload.clients if closed else 0,
        "think_s": plan.think_s.tolist() if closed else None,
        "due_s": None if plan.due_s is None else plan.due_s.tolist(),
        "servers": scenario.servers,
        "priority": None if plan.priority is None else plan.priority.tolist(),
        "by_level": scenario.by_level,
        "queue_limit": scenario.queue_limit,
        "timeout_ms": scenario.timeout_ms,
        "timeout_action": scenario.timeout_action,
        "slowdown": scenario.slowdown,
        "devices": scenario.devices,
        "host_ms": scenario.host_ms,
        "contention": scenario.contention,
        "noise": None if plan.noise is None else plan.noise.tolist(),
        "compile_s": None if cold is None else dict(zip(*map(list, cold[::-1]), strict=True)),
        "padding": scenario.service.padding,
    }
