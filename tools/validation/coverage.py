"""The share of 95 % intervals that hold the truth: cases that make it hard, and tables of the outcome.

The truth comes from long runs. `make coverage` writes the tables to `coverage.md` beside this file, from
which `make validate` takes them.
"""

import math
import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import batchsim as bs
from batchsim.result.metrics import Quantity, metric
from batchsim.result.shares import share_of_all
from batchsim.result.value_columns import limits_of

TABLES = Path(__file__).with_suffix(".md")
LENGTHS = 2_000, 10_000, 100_000
WARMUPS: tuple[Any, ...] = (0.0, 0.1, "auto")
KEYS = (
    "mean_latency_ms", "p50_ms", "p95_ms", "p99_ms", "throughput_per_s", "utilisation", "mean_batch_size",
)  # fmt: skip
COMPARED = "mean_latency_ms", "p50_ms", "p99_ms"
# A run of two million has an end of its own, where a batch leaves that is not full.
ENDS = 2e-5
FEW = 0.05  # of the runs: fewer with an interval do not tell how often it holds


class Case(NamedTuple):
    """Runs whose intervals are judged: a scenario for each seed, and one whose long runs are the truth."""

    of_seed: Callable[[int], bs.Scenario]
    truth: bs.Scenario
    keys: Sequence[str] = KEYS
    lengths: Sequence[int] = LENGTHS
    warmups: Sequence[Any] = (0.0,)
    true_runs: int = 20
    true_requests: int = 2_000_000

    @classmethod
    def of(cls, scenario: bs.Scenario, *args: Any, **kwargs: Any) -> "Case":
        """Return the case of one scenario for all seeds."""
        return cls(partial(_same, scenario), scenario, *args, **kwargs)


class Pair(NamedTuple):
    """Two scenarios whose differences are judged, in runs of one seed."""

    a: bs.Scenario
    b: bs.Scenario
    requests: int
    keys: Sequence[str] = COMPARED
    true_requests: int = 2_000_000
    warmup: float = 0.02


def _same(scenario: bs.Scenario, seed: int) -> bs.Scenario:
    return scenario


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
PAIRS = {name: Pair(*each) for name, each in {
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
}.items()}  # fmt: skip

DEVICES = {
    "two servers, one device": batched(bs.Poisson(2000), servers=2, devices=1, host_ms=1),
    "four servers, two devices, load 0.9": batched(
        bs.Poisson(0.9 * 2 * SATURATION), service=BATCH.with_noise(0.5), servers=4, devices=2
    ),
    "four servers, one device, contention 1.2": batched(
        bs.Gamma(0.6 * SATURATION, 2), servers=4, devices=1, host_ms=0.5, contention=1.2
    ),
}

CLOSED = {
    f"{clients} clients, noise cv {cv:g}, correlation {kept:g}, memory {memory}": Case.of(
        bs.Scenario(
            bs.ClosedLoop(clients, think_s), bs.SizeOrWait(size, 0),
            BATCH.with_noise(cv, "lognormal", kept, memory),
        ),
        lengths=(3_000, 30_000, 300_000),
    )
    for clients, think_s, size, cv, kept, memory in (
        (8, 0, 1, 0.5, 0.9, 100), (32, 0, 32, 0.5, 0.9, 100), (32, 0, 32, 0.3, 0.5, 20),
        (64, 0.05, 32, 1, 0.8, 30),
    )
}  # fmt: skip


def _rare(key: str, scenario: bs.Scenario) -> Case:
    return Case.of(scenario, (key, "mean_queueing_ms"), (10_000, 30_000, 100_000))


RARE = {
    **{
        f"M/M/1/{places}, load {load}": _rare(
            "rejected", one_by_one(bs.Poisson(1000 * load), queue_limit=places - 1)
        )
        for load, places in ((0.5, 13), (0.7, 21), (0.8, 41), (0.9, 61))
    },
    "M/M/1, load 0.9, timeout 70 ms": _rare("timed_out", one_by_one(bs.Poisson(900), timeout_ms=70)),
    "M/M/1, load 0.8, delayed after 40 ms": _rare(
        "delayed", one_by_one(bs.Poisson(800), timeout_ms=40, timeout_action="delay")
    ),
    "Gamma cv 3, batches, load 0.5, limit 60": _rare(
        "rejected", batched(bs.Gamma(0.5 * SATURATION, 3), queue_limit=60)
    ),
    "4 servers, load 0.5, limit 12": _rare(
        "rejected", one_by_one(bs.Poisson(2000), servers=4, queue_limit=12)
    ),
    "8 servers, load 0.2": _rare("rejected", one_by_one(bs.Poisson(1600), servers=8, queue_limit=1)),
}

# Each family is a table; its cases have as many keys, and differ in the name of an event or a limit at most.
FAMILIES: dict[str, Mapping[str, Case]] = {
    "Queues and batches": {name: Case.of(each, warmups=WARMUPS) for name, each in SCENARIOS.items()},
    "Servers that share devices": {name: Case.of(each) for name, each in DEVICES.items()},
    "Closed loops with noise that lasts": CLOSED,
    "Rare events": RARE,
}


def tables(
    families: Mapping[str, Mapping[str, Case]], pairs: Mapping[str, Pair], seeds: int, processes: int,
    only: Sequence[str] | None = None,
) -> str:  # fmt: skip
    """Return the tables in Markdown; a percentage stands for the least of a case's warm-ups.

    `only`: those with these headings ("pair": of differences); of the others, those that the file has.
    """
    blocks = [] if only is None else [each for each in TABLES.read_text().split("\n\n") if each[0] == "|"]
    kept = {block[2:].partition(",")[0]: block for block in blocks}
    if unknown := set(only or ()) - {*families, "pair"}:
        raise ValueError(f"a table must be one of {[*families, 'pair']}, got {min(unknown)!r}")
    for name in [*families, "pair"] if only is None else only:
        kept[name] = ""
    with ProcessPoolExecutor(processes) as pool:
        for family, cases in families.items():
            if kept.get(family) == "":
                kept[family] = _table(pool, family, cases, seeds)
        if not kept["pair"]:
            kept["pair"] = _of_pairs(pool, pairs, seeds)
    found = [kept[family] for family in families if family in kept]
    cells = [each for block in found for each in re.findall(r"\| (-|\d+ \(\d+\))(?= \|)", block)]
    held = [int(each.split()[0]) for each in cells if each != "-"]
    given = [0 if each == "-" else int(each.split("(")[1][:-1]) for each in cells]
    return "\n\n".join([
        "A cell gives the percentage of the intervals that hold the truth and, in"
        " brackets, the percentage of the runs that have an interval; a dash where hardly any has one. The"
        " first table shows the worst of three warm-ups (none, a tenth, automatic), that of autoscalers the"
        " worse of two (none, a tenth).",
        *found,
        f"{len(held)} cells with intervals: the least holds {min(held)} %,"
        f" the mean is {np.mean(held):.1f} %.\n{np.mean(given):.0f} % of all runs have one.",
        "Paired differences:",
        kept["pair"],
    ]).rstrip("\n") + "\n"  # fmt: skip


def _table(pool: ProcessPoolExecutor, family: str, cases: Mapping[str, Case], seeds: int) -> str:
    truths = dict(zip(cases, pool.map(truth, cases.values()), strict=True))
    jobs = [(name, length) for name, case in cases.items() for length in case.lengths]
    work = [pool.submit(_cells, cases[name], length, truths[name], seeds) for name, length in jobs]
    keys = [*map(_label, next(iter(cases.values())).keys)]
    lines = [
        f"| {family}, {seeds} runs a row | requests | {' | '.join(keys)} |",
        f"|---|---|{'---|' * len(keys)}",
    ]
    for (name, length), each in zip(jobs, work, strict=True):
        lines.append(f"| {name} | {length:,} | {' | '.join(map(_cell, each.result()))} |")
    return "\n".join(lines)


def _of_pairs(pool: ProcessPoolExecutor, pairs: Mapping[str, Pair], seeds: int) -> str:
    differences = list(pool.map(partial(_pair_shares, seeds=seeds), pairs.values()))
    lines = [f"| pair, {seeds} runs a row | requests | held (given) |", "|---|---|---|"]
    for (name, pair), row in zip(pairs.items(), differences, strict=True):
        told = (f"{_label(key)} {_cell(cell)}" for key, cell in zip(pair.keys, row, strict=True))
        lines.append(f"| {name} | {pair.requests:,} | {', '.join(told)} |")
    return "\n".join(lines)


def _label(key: str) -> str:
    if limits_of(key):
        return "goodput"
    return "events" if metric(key).quantity is Quantity.COUNT else metric(key).label


def _cell(cell: tuple[float | None, float]) -> str:
    held, given = cell
    return "-" if held is None else f"{100 * held:.0f} ({100 * given:.0f})"


def truth(case: Case) -> dict[str, float]:
    """Return the mean of long runs, whose seeds no judged run has; of a count, its share of the requests."""
    runs = _long_runs(case.truth, case.keys, case.true_runs, case.true_requests)
    return {key: float(np.mean([run[key] for run in runs])) for key in case.keys}


def _long_runs(
    scenario: bs.Scenario, keys: Sequence[str], runs: int, requests: int
) -> list[dict[str, float]]:
    found = []
    for seed in range(10_000, 10_000 + runs):
        warmup = 0.0 if isinstance(scenario.workload, bs.Diurnal) else 0.02  # a day must stay whole
        run = bs.simulate(scenario, requests, seed=seed, warmup=warmup, keep="requests")
        found.append({key: _number(run, key) for key in keys})
    return found


def _number(run: bs.Result, key: str) -> float:
    if limits := limits_of(key):
        return run.attainment(**limits)
    return run.metrics.number(key) / _per(run, key)


def _per(run: bs.Result, key: str) -> float:
    count = not limits_of(key) and metric(key).quantity is Quantity.COUNT
    return float(run.metrics.totals.requests) if count else 1.0


def _intervals(run: bs.Result, keys: Sequence[str]) -> dict[str, tuple[float, float]]:
    shares = {key: share_of_all(run.sample, 1.0, 0.95, key) for key in keys if limits_of(key)}
    found = run.intervals([key for key in keys if key not in shares])
    return {key: shares.get(key) or found[key] for key in keys}


def _cells(case: Case, length: int, true: dict[str, float], seeds: int) -> list[tuple[float | None, float]]:
    """Return for each metric the least share over the warm-ups, and how many runs have an interval."""
    columns = [list(_held(case, true, length, warmup, seeds)) for warmup in case.warmups]
    found: list[tuple[float | None, float]] = []
    for place, _ in enumerate(case.keys):
        rows = [column[place] for column in columns]
        shares = [held / given for given, held in rows if given >= FEW * seeds]
        found.append((min(shares, default=None), float(np.mean([given for given, _ in rows])) / seeds))
    return found


def _held(
    case: Case, true: dict[str, float], requests: int, warmup: Any, seeds: int
) -> Iterator[tuple[int, int]]:
    """Yield for each metric how many runs have an interval, and how many of these hold the truth."""
    given, held = np.zeros((2, len(case.keys)), int)
    for seed in range(seeds):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of an automatic warm-up
            run = bs.simulate(case.of_seed(seed), requests, seed=seed, warmup=warmup, keep="requests")
        for place, (key, (low, high)) in enumerate(_intervals(run, case.keys).items()):
            value = true[key] * _per(run, key)
            given[place] += not math.isnan(low)
            held[place] += low <= value * (1 + ENDS) and value * (1 - ENDS) <= high
    yield from zip(given.tolist(), held.tolist(), strict=True)


def _pair_shares(pair: Pair, seeds: int) -> list[tuple[float | None, float]]:
    scenarios, keys = (pair.a, pair.b), pair.keys
    long = zip(*(_long_runs(each, keys, 20, pair.true_requests) for each in scenarios), strict=True)
    apart = [{key: second[key] - first[key] for key in keys} for first, second in long]
    true = {key: float(np.mean([each[key] for each in apart])) for key in keys}
    given, held = np.zeros((2, len(keys)), int)
    for seed in range(seeds):
        runs = (
            bs.simulate(each, pair.requests, seed=seed, warmup=pair.warmup, keep="requests")
            for each in scenarios
        )
        rows = bs.compare(*runs, keys=keys, silent=True)
        for place, key in enumerate(keys):
            given[place] += not math.isnan(rows[key].low)
            held[place] += rows[key].low <= true[key] <= rows[key].high
    return [
        (int(h) / int(g) if g >= FEW * seeds else None, int(g) / seeds)
        for g, h in zip(given, held, strict=True)
    ]
