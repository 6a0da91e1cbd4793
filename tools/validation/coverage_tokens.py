"""Scenarios of token generation, and pairs of them, on which `make coverage` counts intervals.

One to four engines, light and heavy loads, few seats and many, fixed and heavy lengths, short memory. The
runs are cheap: answers of about 20 tokens. The rates are written out, as measuring a saturation rate takes
time.
"""

from typing import Any

import batchsim as bs
from batchsim.result.value_columns import joint
from validation.coverage import Case, Pair

LENGTHS = 2_000, 10_000, 100_000
KEYS = (
    "mean_ttft_ms", "ttft_p50_ms", "ttft_p99_ms", "mean_queueing_ms", "mean_tpot_ms", "tpot_p50_ms",
    "tpot_p99_ms", "mean_latency_ms", "p50_ms", "output_tokens_per_s", "mean_batch_size",
)  # fmt: skip
COMPARED = (
    "mean_ttft_ms",
    "ttft_p50_ms",
    "mean_queueing_ms",
    "mean_tpot_ms",
    "mean_latency_ms",
    "output_tokens_per_s",
)


WEIGHTS = bs.StepTime(1, 4, 0.05, 0.0005, 0.00001)  # a step takes as long as reading the weights
ARITHMETIC = bs.StepTime(0.2, 0.5, 0.1)  # it takes the longer the more requests run
VARIED = bs.Tokens(bs.Lognormal(30, 1), bs.Lognormal(20, 1))
FIXED = bs.Tokens(30, 20)


def engines(
    servers: int, rate_per_s: float, rule: Any = None, tokens: bs.Tokens = VARIED,
    step: bs.StepTime = WEIGHTS, workload: Any = None, **knobs: Any,
) -> bs.Scenario:  # fmt: skip
    return bs.Scenario(
        workload or bs.Poisson(rate_per_s), rule or bs.Continuous(8, 256), step,
        servers=servers, tokens=tokens, **knobs,
    )  # fmt: skip


def case(scenario: bs.Scenario, ttft_ms: float = 50, tpot_ms: float = 6) -> Case:
    """Return a case that counts the goodput within two limits, too."""
    within = joint({"ttft_ms": ttft_ms, "tpot_ms": tpot_ms})
    return Case.of(scenario, (*KEYS, within), LENGTHS, true_requests=400_000)


_THREE = engines(3, 205)
_SHORT = bs.Continuous(64, 256, kv_blocks=60, block_size=8)
_CUT = bs.Tokens(bs.Lognormal(30, 1, at_most=150), bs.Lognormal(20, 1, at_most=150))
_LIFE = bs.Continuous(64, 2048, kv_blocks=80, block_size=8, reserve="life")
_LIMITED = bs.Tokens(bs.Lognormal(30, 1, at_most=100), bs.Lognormal(20, 1, at_most=100))

CASES = {
    "1 engine, fixed, load 0.5": case(engines(1, 38.8, tokens=FIXED)),
    "1 engine, fixed, load 0.9": case(engines(1, 69.8, tokens=FIXED)),
    "1 engine, load 0.9": case(engines(1, 68.4)),
    "2 engines, load 0.8": case(engines(2, 121.7)),
    "3 engines, fixed, load 0.9": case(engines(3, 209.5, tokens=FIXED)),
    "3 engines, load 0.9": case(_THREE),
    "3 engines, 16 seats, load 0.95": case(engines(3, 405.7, bs.Continuous(16)), tpot_ms=7),
    "3 engines, 32 seats, load 0.9": case(engines(3, 645, bs.Continuous(32)), tpot_ms=9),
    "4 engines, load 0.5": case(engines(4, 152.1)),
    "4 engines, 64 seats, load 0.8": case(engines(4, 978, bs.Continuous(64)), tpot_ms=10),
    "3 engines, answers of cv 2, load 0.9": case(
        engines(3, 201.7, tokens=bs.Tokens(bs.Lognormal(30, 1), bs.Lognormal(20, 2)))
    ),
    "3 engines, answers of cv 3, load 0.8": case(
        engines(3, 175.1, tokens=bs.Tokens(bs.Lognormal(30, 1), bs.Lognormal(20, 3))), tpot_ms=7
    ),
    "2 engines bound by arithmetic, load 0.9": case(
        engines(2, 363, bs.Continuous(64, 256), step=ARITHMETIC), tpot_ms=10
    ),
    "3 engines, memory short, load 0.9": case(engines(3, 221.3, _SHORT, _CUT), tpot_ms=8),
    "2 engines, memory for life, load 0.9": case(engines(2, 159, _LIFE, _LIMITED)),
    "3 engines, Gamma cv 2, load 0.9": case(engines(3, 205.3, workload=bs.Gamma(205.3, 2))),
    "3 engines, 30 may wait, load 1.1": case(engines(3, 251, queue_limit=30), 150),
    "2 engines, whole batches, load 0.8": case(engines(2, 40.2, bs.SizeOrWait(8, 20)), 600, 100),
}

PAIRS = {name: Pair(*each, COMPARED, 400_000) for name, each in {
    "3 engines, then 4": (_THREE, _THREE.replace(servers=4), 100_000),
    "3 engines at 0.9, then 0.88": (_THREE, _THREE.replace(rate_per_s=200.8), 100_000),
    "8 seats, then 9": (_THREE, _THREE.replace(max_num_seqs=9), 50_000),
    "60 blocks, then 66": (
        CASES["3 engines, memory short, load 0.9"].truth,
        CASES["3 engines, memory short, load 0.9"].truth.replace(kv_blocks=66), 100_000,
    ),
    "fixed lengths at 0.9, then 0.85": (
        CASES["3 engines, fixed, load 0.9"].truth,
        CASES["3 engines, fixed, load 0.9"].truth.replace(rate_per_s=198), 30_000,
    ),
    "a budget of 256, then 64": (
        CASES["2 engines, load 0.8"].truth,
        CASES["2 engines, load 0.8"].truth.replace(max_num_batched_tokens=64), 50_000,
    ),
}.items()}  # fmt: skip
