"""Slow processes that are not the queue, on which `make coverage` counts intervals.

Autoscalers whose number of replicas changes often, and some that settle; routers by key, and with loads that
are out of date; noise that lasts; a cold start; prefix caches that fill.
"""

from dataclasses import replace
from typing import Any

import batchsim as bs
from batchsim.scenario import routing
from validation.coverage import BATCH, KEYS, Case, Pair, batched, one_by_one
from validation.coverage_tokens import WEIGHTS

OF_FLEETS = (
    "mean_latency_ms", "p50_ms", "p99_ms", "throughput_per_s", "utilisation", "mean_replicas",
    "cost_per_million",
)  # fmt: skip
OF_CACHES = (
    "mean_ttft_ms", "ttft_p50_ms", "ttft_p99_ms", "mean_tpot_ms", "mean_latency_ms", "utilisation",
    "output_tokens_per_s",
)  # fmt: skip


def scaled(auto: bs.Autoscale, workload: Any, service: Any = BATCH) -> bs.Scenario:
    fleet = {"autoscale": auto, "routing": "least_loaded", "price_per_hour": 1.0}
    return batched(workload, bs.SizeOrWait(8, 5), service, **fleet)


_EXPONENTIAL = bs.Affine(5, 0).with_noise(1, "exponential")
FLEETS = {
    "queue": scaled(bs.Autoscale("queue", 4, 1, 6, startup_s=0.05, every_s=0.1), bs.Poisson(3000)),
    "queue, held": scaled(
        bs.Autoscale("queue", 6, 1, 6, startup_s=0.1, every_s=0.1, hold_s=0.3), bs.Gamma(3000, 2)
    ),
    "utilisation": scaled(
        bs.Autoscale("utilisation", 0.5, 1, 6, startup_s=0.05, every_s=0.05), bs.Poisson(1500), _EXPONENTIAL
    ),
    "utilisation, which settles": scaled(
        bs.Autoscale("utilisation", least=1, most=8, startup_s=1, every_s=1), bs.Gamma(2000, 3)
    ),
    "p99": scaled(bs.Autoscale("p99", 20, 1, 8, startup_s=0.1, every_s=0.1), bs.Gamma(3000, 2)),
    "p99, which settles": scaled(
        bs.Autoscale("p99", 20, 1, 8, startup_s=1, every_s=1), bs.Poisson(3000)
    ),
}  # fmt: skip
_LASTING = one_by_one(bs.Poisson(300), bs.Affine(1, 0).with_noise(0.2, "lognormal", 0.9, 2000))
SLOW = {
    "by key, 5 keys": batched(bs.Poisson(1000), replicas=4, routing=routing.ByKey(5)),
    "by key, 100 keys, Gamma cv 3": batched(bs.Gamma(2200, 3), replicas=4, routing=routing.ByKey(100)),
    "loads of 0.5 s ago": batched(
        bs.Poisson(1500), bs.SizeOrWait(8, 2), replicas=4, routing="least_loaded", stale_ms=500
    ),
    "noise cv 0.2 that lasts for 2,000, load 0.3": _LASTING,
    "noise cv 0.3 that lasts for 500, load 0.5": one_by_one(
        bs.Poisson(500), bs.Affine(1, 0).with_noise(0.3, "lognormal", 0.9, 500)
    ),
    "cold start": batched(bs.Poisson(1000), service=BATCH.compiling(300), replicas=2),
    "LearnedCork": batched(bs.Poisson(800), bs.LearnedCork(32, 20)),
}  # fmt: skip


def cached(groups: int, popularity: float, kv_blocks: int, rate_per_s: float = 40) -> bs.Scenario:
    """Return a scenario of prompts of 400 tokens, of which 320 are those of their group: 20 blocks."""
    rule = bs.Continuous(8, 512, kv_blocks=kv_blocks, prefix_reuse=True)
    tokens = bs.Tokens(400, bs.Lognormal(10, 0.7), prefixes=bs.PrefixGroups(groups, 320, popularity))
    return bs.Scenario(bs.Poisson(rate_per_s), rule, WEIGHTS, tokens=tokens)


CACHES = {
    "500 groups, room for 600": cached(500, 1, 12_000),
    "5,000 groups, room for 500": cached(5000, 0.8, 10_000, 30),
    "20,000 groups, room for 10,000": cached(20_000, 1, 200_000),
}
_OPTIONS: dict[str, Any] = {"true_runs": 5, "true_requests": 1_000_000}
FAMILIES = {
    "Autoscalers": {
        name: Case.of(each, OF_FLEETS, (20_000, 60_000, 200_000), (0.0, 0.1), **_OPTIONS)
        for name, each in FLEETS.items()
    },
    "Slow processes": {
        name: Case.of(each, KEYS, (10_000, 100_000), **_OPTIONS) for name, each in SLOW.items()
    },
    "Prefix caches": {
        name: Case.of(each, OF_CACHES, (2000, 10_000, 30_000), true_runs=3, true_requests=150_000)
        for name, each in CACHES.items()
    },
}  # fmt: skip


def _pair(a: bs.Scenario, requests: int, keys: Any, warmup: float = 0.02, **change: Any) -> Pair:
    return Pair(a, a.replace(change), requests, keys, 300_000, warmup)


_COMPARED = "mean_latency_ms", "p50_ms", "mean_replicas", "cost_per_million"
PAIRS = {
    "an autoscaler of a queue, slower by 5 %": _pair(
        FLEETS["queue"], 200_000, _COMPARED, 0.1, service=bs.Affine(5.25, 0.2625)
    ),
    "of the utilisation, slower by 5 %": _pair(
        FLEETS["utilisation"], 200_000, _COMPARED, 0.1, service=replace(_EXPONENTIAL, fixed_ms=5.25)
    ),
    "which settles, then at 1,900/s": _pair(
        FLEETS["utilisation, which settles"], 100_000, _COMPARED, 0.1, rate_per_s=1900
    ),
    "by key, then least loaded": _pair(
        SLOW["by key, 100 keys, Gamma cv 3"], 100_000, ("mean_latency_ms", "p50_ms"), routing="least_loaded"
    ),
    "noise that lasts, at 300/s, then 250/s": _pair(
        _LASTING, 200_000, ("mean_latency_ms", "p50_ms"), rate_per_s=250
    ),
    "a cache of 10,000 blocks, then 12,000": _pair(
        CACHES["5,000 groups, room for 500"], 20_000, ("mean_ttft_ms", "mean_tpot_ms"), kv_blocks=12_000
    ),
}  # fmt: skip
