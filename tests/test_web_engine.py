"""The page's engine, WebAssembly in Node: its runs are those of `simulate`, bit for bit."""

import math

import numpy as np
import pytest
import web_module

import batchsim as bs
from batchsim.scenario.rules import RULES

SETTINGS = 300


@pytest.fixture(scope="module")
def in_node(tmp_path_factory):
    return lambda *calls: web_module.in_node(calls, tmp_path_factory.mktemp("node"))


def random_value(generator, described, largest):
    if described.kind == "sizes":
        return sorted({int(size) for size in generator.integers(1, largest + 1, 3)})
    if described.kind == "whole":
        return int(generator.integers(1, largest + 1))
    wholes = generator.integers(0, 60, 2).tolist()
    choices = [0.0, *wholes, *wholes, *generator.uniform(0, 30, 4).tolist(), math.inf]
    return choices[generator.integers(len(choices))]


def random_rule(generator, kind):
    """A rule of a class with random parameters, drawn again until they fit together."""
    while True:
        largest = int(generator.integers(1, 41))
        values = {name: random_value(generator, it, largest) for name, it in kind.parameters().items()}
        try:
            return kind(**values | {"max_batch_size": largest})
        except (TypeError, ValueError):
            continue


def settings_of(rule, service, servers, **more):
    values = {name: getattr(rule, name) for name in rule.parameters()}
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


@pytest.fixture(scope="module")
def runs(in_node):
    """What the page makes of random settings of every rule, and the result of its arrivals as a trace."""
    generator = np.random.default_rng(29)
    cases = [random_setting(generator, RULES[number % len(RULES)]) for number in range(SETTINGS)]
    edges_ms = [0.0, 1.0, 2.0, 5.0, 20.0, 100.0]
    told = in_node(*({"does": "run", "settings": case[-1], "edges_ms": edges_ms} for case in cases))
    pairs = []
    for (rule, service, servers, _), run in zip(cases, told, strict=True):
        scenario = bs.Scenario(bs.Trace(run["arrival_s"]), rule, service, servers=servers)
        pairs.append((run, bs.simulate(scenario, run["arrival_s"].size), edges_ms))
    return pairs


def test_every_batch_is_that_of_simulate_to_the_bit(runs):
    assert len(runs) == SETTINGS
    for run, result, _ in runs:
        log = result.log
        assert np.array_equal(log.arrival_s, run["arrival_s"]), result.scenario
        assert np.array_equal(log.batch_index, run["batch_index"]), result.scenario
        for name in ("start_s", "finish_s", "size", "server", "trigger"):
            assert np.array_equal(getattr(log, f"batch_{name}"), run["batches"][name]), result.scenario


def test_every_request_starts_and_finishes_as_in_simulate_to_the_bit(runs):
    for run, result, _ in runs:
        assert np.array_equal(result.start_s, run["start_s"], equal_nan=True)
        assert np.array_equal(result.finish_s, run["finish_s"], equal_nan=True)


def test_percentiles_are_exact(runs):
    for run, result, _ in runs:
        for q in (50, 95, 99):
            found = run["summary"][f"p{q}_ms"]
            assert found == result.percentile(q) or (found is None and math.isnan(result.percentile(q)))


def test_a_summary_has_the_metrics_of_a_result(runs):
    names = {"mean_ms": "mean_latency_ms"}
    names |= {f"{part}_ms": f"mean_{part}_ms" for part in ("forming", "queueing", "computing")}
    names |= {name: name for name in ("throughput_per_s", "utilisation", "mean_batch_size")}
    for run, result, _ in runs:
        expected = result.summary()
        if expected["served"]:
            found = [run["summary"][name] for name in names]
            assert found == pytest.approx([expected[key] for key in names.values()], rel=1e-9, abs=1e-9)


def test_a_histogram_counts_as_numpy_does(runs):
    for run, result, edges_ms in runs:
        counts, _ = np.histogram(result.latency_ms[~np.isnan(result.latency_ms)], edges_ms)
        assert counts.tolist() == run["summary"]["histogram"].tolist()
