"""The page's engine, WebAssembly in Node: its runs are those of `simulate`, bit for bit."""

import functools
import gzip
import itertools
import math

import numpy as np
import pytest
import web_module
from scipy import stats
from web_settings import COSTS, SETTINGS, assert_batches_equal, print_times, random_cases, slow_calls, traced

import batchsim as bs
from batchsim.web.calls import usual


@pytest.fixture(scope="module")
def in_node(tmp_path_factory):
    return lambda *calls: web_module.in_node(calls, tmp_path_factory.mktemp("node"))


RARE = pytest.mark.rare("compiles a loop for each rule, in WebAssembly and natively")


@pytest.fixture(
    scope="module", params=[pytest.param(web_module.FEW, id="few"), pytest.param((), id="every", marks=RARE)]
)
def runs(request, tmp_path_factory):
    """What the page makes of random settings of rules, and the result of its arrivals as a trace."""
    cases, calls = random_cases(request.param)
    found = web_module.in_node(calls, tmp_path_factory.mktemp("runs"), request.param)
    return [(run, traced(case, run)) for case, run in zip(cases, found, strict=True)]


@pytest.mark.dear("the page's module is built")
def test_every_batch_is_that_of_simulate_to_the_bit(runs):
    assert len(runs) == SETTINGS
    for run, result in runs:
        assert_batches_equal(run, result)


def test_every_request_starts_and_finishes_as_in_simulate_to_the_bit(runs):
    for run, result in runs:
        assert np.array_equal(result.start_s, run["start_s"], equal_nan=True)
        assert np.array_equal(result.finish_s, run["finish_s"], equal_nan=True)


def test_percentiles_are_exact(runs):
    for run, result in runs:
        for q in (50, 95, 99):
            found = run["summary"][f"p{q}_ms"]
            assert found == result.percentile(q) or (found is None and math.isnan(result.percentile(q)))


def test_a_summary_has_the_metrics_of_a_result(runs):
    names = {"mean_ms": "mean_latency_ms"}
    names |= {f"{part}_ms": f"mean_{part}_ms" for part in ("forming", "queueing", "computing")}
    names |= {name: name for name in ("throughput_per_s", "utilisation", "mean_batch_size")}
    for run, result in runs:
        expected = result.summary()
        if expected["served"]:
            found = [run["summary"][name] for name in names]
            assert found == pytest.approx([expected[key] for key in names.values()], rel=1e-9, abs=1e-9)


# Many runs, of which percentiles remain.

LOADS = {"stable": 0.7, "busy": 0.97, "unstable": 1.5}  # of what full batches of 32 carry
GRIDS = [
    ("SizeOrWait", {}, [1, 8, 32, 64], [0, 0.5, 10, math.inf]),
    ("AtLeast", {}, [4, 8, 32], [1, 8, 9]),
    ("PreferredSizes", {"preferred": [4, 8]}, [3, 6, 32], [0, 5]),
    ("FrozenBatches", {}, [8, 32], [0, 5]),
]


def rate_per_s(load, servers=1):
    return load * servers * 32 / bs.Affine(**COSTS)(32)


@pytest.mark.parametrize("load", LOADS.values(), ids=LOADS)
@pytest.mark.parametrize("servers", [1, 3])
def test_a_map_has_the_exact_p99_of_each_setting(in_node, load, servers):
    settings = COSTS | {"servers": servers, "rate_per_s": rate_per_s(load, servers), "requests": 20_000}
    calls = [
        {"does": "grid", "settings": settings | {"rule": rule, **more}, "sizes": sizes, "waits": waits}
        for rule, more, sizes, waits in GRIDS
    ]
    run, *maps = in_node({"does": "run", "settings": settings}, *calls)
    for (rule, more, sizes, waits), found in zip(GRIDS, maps, strict=True):
        kind = getattr(bs, rule)
        base = usual(kind, **more)
        for (wait, size), p99_ms in zip(itertools.product(waits, sizes), found, strict=True):
            try:
                scenario = bs.Scenario(
                    bs.Trace(run["arrival_s"]), base.at(size, wait), bs.Affine(**COSTS), servers=servers
                )
            except ValueError:
                assert math.isnan(p99_ms)
            else:
                assert p99_ms == bs.simulate(scenario, 20_000).percentile(99), scenario.rule


def test_percentiles_by_load_are_exact_and_stretch_the_same_requests(in_node):
    settings = COSTS | {"max_batch_size": 16, "max_wait_ms": 3, "requests": 9000, "seed": 4}
    rates = [100.0, 3000.0, 9000.0]
    told, *runs = in_node(
        {"does": "loads", "settings": settings, "rates": rates},
        *({"does": "run", "settings": settings | {"rate_per_s": rate}} for rate in rates),
    )
    for number, run in enumerate(runs):
        scenario = bs.Scenario(bs.Trace(run["arrival_s"]), bs.SizeOrWait(16, 3), bs.Affine(**COSTS))
        result = bs.simulate(scenario, 9000)
        assert (told["p50_ms"][number], told["p99_ms"][number]) == (
            result.percentile(50),
            result.percentile(99),
        )
        assert np.allclose(run["arrival_s"] * rates[number], runs[0]["arrival_s"] * rates[0], atol=1e-5)


def test_a_shorter_run_is_the_beginning_of_a_longer_one_and_a_seed_always_draws_the_same(in_node):
    def arrivals(**settings):
        more = COSTS | {"rate_per_s": 500.0} | settings
        return {"does": "run", "settings": more}

    slow = {"rate_per_s": 250.0}
    short, long, shorter, _, slower, other, again = in_node(
        *(arrivals(requests=count) for count in (300, 5000, 200)),
        *(arrivals(requests=count, **slow) for count in (200, 5000)),  # as many are drawn already
        arrivals(seed=1), arrivals(requests=5000),
    )  # fmt: skip
    assert np.array_equal(long["arrival_s"][:200], shorter["arrival_s"])
    assert np.array_equal(long["arrival_s"][:300], short["arrival_s"])
    assert np.allclose(slower["arrival_s"], 2 * long["arrival_s"], rtol=0, atol=1e-5)
    assert np.array_equal(long["arrival_s"], again["arrival_s"])
    assert not np.array_equal(other["arrival_s"][:300], short["arrival_s"])


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"max_batch_size": 0}, "max_batch_size must be at least 1, got 0"),
        ({"max_batch_size": 2.5}, "max_batch_size must be a whole number, got 2.5"),
        ({"max_batch_size": 65_537}, "max_batch_size must be at most 65536, got 65537"),
        ({"max_wait_ms": -1}, "max_wait_ms must be at least 0, got -1"),
        ({"max_wait_ms": None}, "max_wait_ms must be a finite number, got null"),
        ({"rule": "StalledBatches", "max_wait_ms": math.inf}, "max_wait_ms must be a finite number, got Inf"),
        ({"servers": 0}, "servers must be at least 1, got 0"),
        ({"seed": -1}, "seed must be at least 0, got -1"),
        ({"rate_per_s": 0}, "rate_per_s must be greater than 0, got 0"),
        ({"rate_per_s": math.inf}, "rate_per_s must be a finite number, got Infinity"),
        ({"rate_per_s": 1e-9}, "arrivals must be before 4194304 s, got "),
        ({"fixed_ms": "2"}, "fixed_ms must be a finite number, got 2"),
        ({"fixed_ms": 0, "per_item_ms": 0}, "fixed_ms + per_item_ms must be greater than 0, got 0"),
        ({"rule": "PreferredSizes", "preferred": []}, "preferred must not be empty"),
        ({"rule": "PreferredSizes", "preferred": [8, 40]}, "preferred must be at most 32, max_batch_size, "),
        ({"rule": "AtLeast", "min_batch_size": 40}, "min_batch_size must be at most 32, max_"),
        ({"rule": "Never"}, "rule must be one of SizeOrWait, AtLeast, "),
    ],
)  # fmt: skip
def test_a_setting_out_of_range_is_refused_in_a_sentence(in_node, changed, told):
    (said,) = in_node({"does": "refused", "settings": COSTS | {"rate_per_s": 1000} | changed})
    assert said.startswith(f"RangeError: {told}")


# The generator.


@functools.cache
def native_fill():
    from batchsim.engines.compiled.jit import compiled_uncached
    from batchsim.web import entries

    return compiled_uncached(lambda seed, points: entries.fill(seed, points))


def native_points(seed, count):
    points = np.empty(count)
    native_fill()(seed, points)
    return points


@pytest.mark.parametrize("seed", [0, 7, 2**53 - 1])
def test_the_page_draws_the_bits_that_native_code_draws(in_node, seed):
    settings = COSTS | {"rate_per_s": 1.0, "seed": seed, "requests": 20_000}
    (points,) = in_node({"does": "points", "settings": settings})
    assert np.array_equal(points.view(np.int64), native_points(seed, 20_000).view(np.int64))


@pytest.mark.parametrize("seed", range(5))
def test_gaps_are_exponential_with_mean_1(seed):
    gaps = np.diff(native_points(seed, 300_001))
    error = 4 / math.sqrt(gaps.size)
    assert gaps.mean() == pytest.approx(1, abs=error)
    assert gaps.var() == pytest.approx(1, abs=error * math.sqrt(8))  # the variance of (gap - 1)^2
    assert stats.kstest(gaps, "expon").pvalue > 1e-3
    for lag in (1, 2, 3, 10, 64):
        assert abs(np.corrcoef(gaps[lag:], gaps[:-lag])[0, 1]) < error, lag


def test_gaps_of_different_seeds_do_not_correlate():
    gaps = np.array([np.diff(native_points(seed, 100_001)) for seed in (0, 1, 2, 3, 2**32)])
    correlations = np.corrcoef(gaps)[np.triu_indices(len(gaps), 1)]
    assert np.abs(correlations).max() < 4.5 / math.sqrt(gaps.shape[1])


def test_the_logarithm_is_as_exact_as_a_float_is():
    from batchsim.web import entries

    shares = np.concatenate(
        [np.random.default_rng(0).random(20_000), [2.0**-53, 1 - 2.0**-53, math.sqrt(0.5)]]
    )
    found = np.array([entries.minus_log(share) for share in shares])
    assert found == pytest.approx(-np.log(shares), rel=5e-16, abs=0)


# How it is built, and how long it takes.


@pytest.mark.parametrize(
    ("rules", "bytes_"), [(web_module.FEW, 20_000), pytest.param((), 40_000, marks=RARE)]
)
def test_the_module_is_small_and_needs_nothing_from_outside(rules, bytes_):
    content = web_module.module(rules).read_bytes()
    assert len(gzip.compress(content)) < bytes_  # of the page's 500 kB
    assert b"\x02" not in section_numbers(content)  # section 2: imports


def section_numbers(content):
    """The numbers of a module's sections: a byte each, then the length in groups of seven bits."""
    place, found = 8, bytearray()
    while place < len(content):
        found.append(content[place])
        place, length, shift = place + 1, 0, 0
        while True:
            byte = content[place]
            length |= (byte & 127) << shift
            place, shift = place + 1, shift + 7
            if byte < 128:
                break
        place += length
    return bytes(found)


@pytest.mark.alone
def test_how_long_runs_take(in_node, capsys):
    took_ms = in_node(*slow_calls().values())
    with capsys.disabled():
        print_times(took_ms, "Node")
