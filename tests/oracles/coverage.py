"""The share of 95 % intervals that hold the truth: scenarios that make it hard, and tables of what was seen.

The truth is what twenty runs of two million requests each say. `make coverage` writes the tables to
`coverage.md` beside this file, from which `make validate` takes them.
"""

import math
import warnings
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import batchsim as bs
from batchsim.result.metrics import metric
from batchsim.result.run_length import run_length

TABLES = Path(__file__).with_suffix(".md")
LENGTHS = 2_000, 10_000, 100_000
LONGEST = 400_000  # of the shortest runs that have an interval
WARMUPS: tuple[Any, ...] = (0.0, 0.1, "auto")
KEYS = "mean_latency_ms", "p50_ms", "p99_ms", "throughput_per_s", "utilisation"
COMPARED = "mean_latency_ms", "p50_ms", "p99_ms"
TRUE_RUNS, TRUE_REQUESTS = 20, 2_000_000
# A run of two million has an end of its own, where a batch leaves that is not full.
ENDS = 2e-5

ONE = bs.Affine(1, 0)
NOISY = ONE.with_noise(1, "exponential")
BATCH = bs.Affine(5, 0.25)
SATURATION = 32 / 13 * 1000  # of 32 by BATCH


def one_by_one(workload: Any, service: Any = NOISY, **knobs: Any) -> bs.Scenario:
    return bs.Scenario(workload, bs.SizeOrWait(1, 0), service, **knobs)


def batched(workload: Any, rule: Any = None, service: Any = BATCH, **knobs: Any) -> bs.Scenario:
    return bs.Scenario(workload, rule or bs.SizeOrWait(32, 5), service, **knobs)


SCENARIOS = {
    "M/M/1, load 0.5": one_by_one(bs.Poisson(500)),
    "M/M/1, load 0.8": one_by_one(bs.Poisson(800)),
    "M/M/1, load 0.9": one_by_one(bs.Poisson(900)),
    "M/M/1, load 0.95": one_by_one(bs.Poisson(950)),
    "M/D/1, load 0.5": one_by_one(bs.Poisson(500), ONE),
    "M/D/1, load 0.9": one_by_one(bs.Poisson(900), ONE),
    "D/M/1, load 0.9": one_by_one(bs.Constant(900)),
    "M/G/1, cv 3, load 0.5": one_by_one(bs.Poisson(500), ONE.with_noise(3)),
    "M/G/1, cv 3, load 0.8": one_by_one(bs.Poisson(800), ONE.with_noise(3)),
    "M/G/1, cv 2, load 0.8": one_by_one(bs.Poisson(800), ONE.with_noise(2)),
    "Gamma cv 3, /M/1, load 0.9": one_by_one(bs.Gamma(900, 3)),
    "Gamma cv 3, /D/1, load 0.9": one_by_one(bs.Gamma(900, 3), ONE),
    "Gamma cv 0.3, /M/1, load 0.95": one_by_one(bs.Gamma(950, 0.3)),
    "M/M/4, load 0.9": one_by_one(bs.Poisson(3600), servers=4),
    "M/D/2, load 0.8": one_by_one(bs.Poisson(1600), ONE, servers=2),
    "M/M/1/50, load 1.1": one_by_one(bs.Poisson(1100), queue_limit=50),
    "8 clients, /M/1": one_by_one(bs.ClosedLoop(8)),
    "batches, load 0.33": batched(bs.Poisson(800), bs.SizeOrWait(32, 10)),
    "batches, load 0.89": batched(bs.Poisson(2200)),
    "batches, load 0.98": batched(bs.Poisson(2400)),
    "full batches, load 0.3": batched(bs.Poisson(0.3 * SATURATION), bs.SizeOrWait(32, math.inf)),
    "AtLeast(8, 32), load 0.7": batched(bs.Poisson(0.7 * SATURATION), bs.AtLeast(8, 32)),
    "PreferredSizes, load 0.8": batched(
        bs.Poisson(0.8 * SATURATION), bs.PreferredSizes((4, 8, 32), 32, 5)
    ),
    "batches, Gamma cv 3, load 0.5": batched(bs.Gamma(0.5 * SATURATION, 3)),
    "batches, Gamma cv 3, load 0.9": batched(bs.Gamma(0.9 * SATURATION, 3)),
    "batches, on/off of 0.4 s": batched(bs.OnOff(2400, 200, 0.1, 0.3)),
    "batches, on/off of 2 s, on load 1.6": batched(bs.OnOff(4000, 200, 1, 1)),
    "batches, on/off of 20 s": batched(bs.OnOff(2400, 200, 5, 15)),
    "batches, noise cv 1, load 0.9": batched(bs.Poisson(0.9 * SATURATION), service=BATCH.with_noise(1)),
    "batches of 16, exponential, load 0.85": batched(
        bs.Poisson(0.85 * 16_000 / 9), bs.SizeOrWait(16, 5), BATCH.with_noise(1, "exponential")
    ),
    "batches, timeout 30 ms, load 1.2": batched(bs.Poisson(1.2 * SATURATION), timeout_ms=30),
    "batches, 40 clients": batched(bs.ClosedLoop(40, 0.02)),
    "two servers that slow each other": batched(
        bs.Poisson(0.85 * 2 * SATURATION / 1.6), service=BATCH.with_noise(1), servers=2,
        slowdown={1: 1, 2: 1.6},
    ),
}  # fmt: skip

_LIGHT = SCENARIOS["batches, load 0.33"]
PAIRS = {
    "a wait of 10 ms, then none": (_LIGHT, _LIGHT.replace(max_wait_ms=0), 20_000),
    "a wait of 10 ms, then 9": (_LIGHT, _LIGHT.replace(max_wait_ms=9), 100_000),
    "800/s, then 1,600/s": (_LIGHT, _LIGHT.replace(rate_per_s=1600), 20_000),
    "M/M/1 at 0.9, then 0.88": (
        SCENARIOS["M/M/1, load 0.9"], SCENARIOS["M/M/1, load 0.9"].replace(rate_per_s=880), 200_000,
    ),
    "M/M/1 at 0.9, then 0.88, short": (
        SCENARIOS["M/M/1, load 0.9"], SCENARIOS["M/M/1, load 0.9"].replace(rate_per_s=880), 10_000,
    ),
    "batches of 32, then 24, 1,800/s": (
        batched(bs.Poisson(1800)), batched(bs.Poisson(1800), bs.SizeOrWait(24, 5)), 100_000,
    ),
    "Gamma cv 3 at 0.5, a wait of 5 ms, then 10": (
        SCENARIOS["batches, Gamma cv 3, load 0.5"],
        SCENARIOS["batches, Gamma cv 3, load 0.5"].replace(max_wait_ms=10), 40_000,
    ),
    "Gamma cv 3 at 0.9, batches of 32, then 64": (
        SCENARIOS["batches, Gamma cv 3, load 0.9"],
        SCENARIOS["batches, Gamma cv 3, load 0.9"].replace(max_batch_size=64), 300_000,
    ),
    "M/D/2, then M/D/3": (
        SCENARIOS["M/D/2, load 0.8"], SCENARIOS["M/D/2, load 0.8"].replace(servers=3), 50_000,
    ),
}  # fmt: skip


def tables(seeds: int, processes: int) -> str:
    """Return the tables in Markdown; a percentage stands for the least of three warm-ups."""
    with ProcessPoolExecutor(processes) as pool:
        truths = dict(zip(SCENARIOS, pool.map(truth, SCENARIOS.values()), strict=True))
        names = list(SCENARIOS)
        jobs = [(name, length) for length in (*LENGTHS, None) for name in names]
        work = partial(_shares, truths=truths, seeds=seeds)
        shares = dict(zip(jobs, pool.map(work, jobs), strict=True))
        pairs = list(pool.map(partial(_pair_shares, seeds=seeds), PAIRS))
    heads = [f"{length:,}" for length in LENGTHS]
    labels = [metric(key).label for key in KEYS]
    lines = [
        f"Of {seeds} runs, in per cent: the least of three warm-ups (none, a tenth, automatic), for"
        f" {', '.join(labels)}; a dash where no run has an interval. The last column is of the shortest runs"
        f" that have one, up to {LONGEST:,} requests.",
        "",
        f"| scenario | {' | '.join(heads)} | shortest |",
        f"|---|{'---|' * 4}",
    ]
    for name in names:
        cells = (" ".join(_percent(each) for each in shares[name, length]) for length in (*LENGTHS, None))
        lines.append(f"| {name} | {' | '.join(cells)} |")
    given = [each for row in shares.values() for each in row if each is not None]
    mean = f"the mean {100 * np.mean(given):.1f} %"
    lines += ["", f"{len(given)} entries; the least is {_percent(min(given))} %, {mean}."]
    compared = ", ".join(metric(key).label for key in COMPARED)
    lines += [
        "", f"Of paired differences, for {compared}:", "",
        "| pair | requests | held |", "|---|---|---|",
    ]  # fmt: skip
    for name, row in zip(PAIRS, pairs, strict=True):
        lines.append(f"| {name} | {PAIRS[name][2]:,} | {' '.join(_percent(each) for each in row)} |")
    return "\n".join(lines) + "\n"


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.0f}"


def truth(scenario: bs.Scenario) -> dict[str, float]:
    runs = _long_runs(scenario)
    return {key: float(np.mean([run[key] for run in runs])) for key in KEYS}


def _long_runs(scenario: bs.Scenario, runs: int = TRUE_RUNS) -> list[dict[str, float]]:
    """Return the numbers of long runs, whose seeds are none of those that are judged."""
    found = []
    for seed in range(10_000, 10_000 + runs):
        run = bs.simulate(scenario, TRUE_REQUESTS, seed=seed, warmup=0.02)
        found.append({key: run.metrics.number(key) for key in KEYS})
    return found


def _shares(
    job: tuple[str, int | None], truths: dict[str, dict[str, float]], seeds: int
) -> list[float | None]:
    """Return for each metric the least share over the warm-ups; None where no run has an interval."""
    name, length = job
    scenario, true = SCENARIOS[name], truths[name]
    if length is None:
        return [_shortest(scenario, key, true[key], seeds) for key in KEYS]
    found: list[float | None] = []
    columns = [list(_held(scenario, KEYS, true, length, warmup, seeds)) for warmup in WARMUPS]
    for place, _ in enumerate(KEYS):
        shares = [held / given for rows in columns for given, held in [rows[place]] if given >= seeds / 20]
        found.append(min(shares) if shares else None)
    return found


def _shortest(scenario: bs.Scenario, key: str, true: float, seeds: int) -> float | None:
    """Return the share of the shortest runs that have an interval."""
    known = run_length(scenario)
    assert known is not None
    length = math.ceil(known.needed(metric(key))) + 10
    if not 1_000 <= length <= LONGEST:
        return None
    shares = []
    for warmup in WARMUPS[:2]:
        requests = math.ceil(length / (1 - warmup)) + 1
        ((given, held),) = _held(scenario, [key], {key: true}, requests, warmup, seeds)
        if given >= seeds / 20:
            shares.append(held / given)
    return min(shares, default=None)


def _held(
    scenario: bs.Scenario, keys: Any, true: dict[str, float], requests: int, warmup: Any, seeds: int
) -> Iterator[tuple[int, int]]:
    """Yield for each metric how many runs have an interval, and how many of these hold the truth."""
    given, held = np.zeros((2, len(keys)), int)
    for seed in range(seeds):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of an automatic warm-up
            run = bs.simulate(scenario, requests, seed=seed, warmup=warmup)
        for place, (low, high) in enumerate(run.intervals(keys).values()):
            value = true[keys[place]]
            given[place] += not math.isnan(low)
            held[place] += low <= value * (1 + ENDS) and value * (1 - ENDS) <= high
    yield from zip(given.tolist(), held.tolist(), strict=True)


def _pair_shares(name: str, seeds: int) -> list[float | None]:
    a, b, requests = PAIRS[name]
    pairs = zip(_long_runs(a), _long_runs(b), strict=True)
    apart = [{key: second[key] - first[key] for key in COMPARED} for first, second in pairs]
    true = {key: float(np.mean([each[key] for each in apart])) for key in COMPARED}
    given, held = np.zeros((2, len(COMPARED)), int)
    for seed in range(seeds):
        runs = (bs.simulate(scenario, requests, seed=seed, warmup=0.02) for scenario in (a, b))
        rows = bs.compare(*runs, keys=COMPARED, silent=True)
        for place, key in enumerate(COMPARED):
            given[place] += not math.isnan(rows[key].low)
            held[place] += rows[key].low <= true[key] <= rows[key].high
    return [int(h) / int(g) if g >= seeds / 20 else None for g, h in zip(given, held, strict=True)]
