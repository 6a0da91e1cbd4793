"""Settings of the page's engine, at random and large ones, and what `simulate` makes of them."""

import math
import timeit
from functools import partial

import numpy as np
from web_module import FEW

import batchsim as bs
from batchsim.scenario.rules import RULES
from batchsim.web.calls import own

SETTINGS = 300
COSTS = {"fixed_ms": 2.0, "per_item_ms": 0.2}


def random_value(generator, described, largest):
    if described.type == "sizes":
        return sorted({int(size) for size in generator.integers(1, largest + 1, 3)})
    if described.type == "whole":
        return int(generator.integers(1, largest + 1))
    wholes = generator.integers(0, 60, 2).tolist()
    choices = [0.0, *wholes, *wholes, *generator.uniform(0, 30, 4).tolist(), math.inf]
    return choices[generator.integers(len(choices))]


def random_rule(generator, kind):
    """A rule of a class with random parameters, drawn again until they fit together."""
    while True:
        largest = int(generator.integers(1, 41))
        values = {name: random_value(generator, it, largest) for name, it in own(kind).items()}
        try:
            return kind(**values | {"max_batch_size": largest})
        except (TypeError, ValueError):
            continue


def settings_of(rule, service, servers, **more):
    values = {name: getattr(rule, name) for name in own(type(rule))}
    costs = {"fixed_ms": service.fixed_ms, "per_item_ms": service.per_item_ms}
    return {"rule": type(rule).__name__, **values, **costs, "servers": servers, **more}


def random_setting(generator, kind):
    """A rule, a service time, servers, and the page's settings: traffic drawn there, or full of ties."""
    rule, servers = random_rule(generator, kind), int(generator.integers(1, 9))
    requests = int(generator.integers(1, 1500))
    if generator.random() < 0.3:  # everything is due at once
        service = bs.Affine(float(generator.integers(1, 5)), float(generator.integers(0, 2)))
        places = generator.integers(0, 3, requests).cumsum()
        more = {"arrival_s": ((places - places[0]) * 0.001).tolist()}
    else:
        service = bs.Affine(*generator.uniform(0.05, [5, 1]).round(3).tolist())
        full_per_s = servers * rule.max_batch_size / service(rule.max_batch_size)
        rate_per_s = full_per_s * generator.choice([0.02, 0.3, 0.7, 0.95, 1.3])
        more = {"rate_per_s": rate_per_s, "seed": int(generator.integers(0, 2**31)), "requests": requests}
    return rule, service, servers, settings_of(rule, service, servers, **more)


def random_cases(names=FEW):
    """Random settings of these rules, or of every one, and the calls of the page's engine for them."""
    generator = np.random.default_rng(29)
    rules = [rule for rule in RULES if not names or rule.__name__ in names]
    cases = [random_setting(generator, rules[number % len(rules)]) for number in range(SETTINGS)]
    return cases, [{"does": "run", "settings": case[-1]} for case in cases]


def traced(case, run):
    """The result of the page's arrivals as a trace."""
    rule, service, servers, _ = case
    scenario = bs.Scenario(bs.Trace(run["arrival_s"]), rule, service, servers=servers)
    return bs.simulate(scenario, run["arrival_s"].size)


def assert_batches_equal(run, result):
    log = result.log
    assert np.array_equal(log.arrival_s, run["arrival_s"]), result.scenario
    assert np.array_equal(log.batch_index, run["batch_index"]), result.scenario
    for name in ("start_s", "finish_s", "size", "server", "trigger"):
        assert np.array_equal(getattr(log, f"batch_{name}"), run["batches"][name]), result.scenario


LONG = {"rate_per_s": 2000, "max_batch_size": 32, "max_wait_ms": 5, **COSTS, "requests": 100_000}


def slow_calls(turns=40):
    """Calls that measure how long runs take, by what they do."""
    page = LONG | {"requests": 20_000}
    sizes, waits = [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64], [0, 0.5, 1, 2, 3, 5, 7, 10, 15, 20, 35, 50]
    jobs = {
        "100,000 requests": ("run", [LONG]),
        "100,000 requests, every start and finish read": ("run", [LONG]),
        "144 settings x 20,000 requests": ("grid", [page, sizes, waits]),
        "144 settings of another rule": ("grid", [page | {"rule": "PullThenWait"}, sizes, waits]),
        "20 rates x 20,000 requests": ("loads", [page, [200.0 * k for k in range(1, 21)]]),
    }
    return {
        what: {"does": "timed", "method": method, "values": values, "turns": turns, "reads": "read" in what}
        for what, (method, values) in jobs.items()
    }


def native_ms():
    """How long `simulate` takes for the long run, and with every start and finish read."""
    scenario = bs.Scenario(bs.Poisson(2000), bs.SizeOrWait(32, 5), bs.Affine(**COSTS))
    run = partial(bs.simulate, scenario, 100_000)
    actions = (run, lambda: (result := run()).start_s is result.finish_s)
    return [1000 * min(timeit.repeat(action, number=1, repeat=20)) for action in actions]


def print_times(took_ms, where):
    """Print how long the slow calls took somewhere, beside the native run."""
    plain_ms, read_ms = native_ms()
    print(f"\n100,000 requests, native: {plain_ms:.2f} ms; every start and finish read: {read_ms:.2f} ms")
    for what, ms in zip(slow_calls(), took_ms, strict=True):
        print(f"{what}, {where}: {ms:.2f} ms")
