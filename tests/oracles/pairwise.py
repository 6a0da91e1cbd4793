"""One table of what scenarios are made of, and a cover of it: every pair of levels is in one scenario.

Some levels exclude each other, as slowdown and devices: the constructor says so, and the file lists them.
After a change of the table, `python -m oracles.pairwise` in `tests/` writes the file again.
"""

import contextlib
import dataclasses
import itertools
import json
import math
import random
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

import batchsim as bs
from batchsim.scenario.rules import RULES, RULES_OF_SIZES
from batchsim.scenario.rules.continuous import BatchWait, NewTokenRatio, WaitingServedRatio

MOST = 150  # requests
LENGTHS = [1 + 7 * k % 160 for k in range(MOST)]
AGAIN = bs.Tokens.sample([(7, 1), (160, 12), (30, 3)], again=True)
TIED_S, AT_ONCE_S = np.cumsum([(0, 0, 0.001, 0.0023, 0.004)[3 * k % 5] for k in range(MOST)]), np.zeros(MOST)

# The first level of each factor goes with most levels of all others.
COMMON = {
    "requests": [100, 40, 1],
    "warmup": [0.0, 0.2],
    "replications": [1, 3],
    "workload": [
        bs.Poisson(100), bs.Constant(100), bs.Gamma(100, 3.0), bs.OnOff(300, 20, 0.05, 0.05),
        bs.Diurnal(100, 1.9, 0.1), bs.Trace(TIED_S), bs.Trace(AT_ONCE_S), bs.ClosedLoop(60, 0.1),
        bs.ClosedLoop(60),
    ],
    "speed": [1, 8, 40],  # factors on the rate
    "more": [0, 1, 2],  # of the parameters in MORE
    "noise": [None, (0.5,), (1, "exponential"), (0.5, "lognormal", 0.4, 5), (0,)],
    "servers": [1, 2, 3],
    "queue_limit": [None, 5],
    "timeout_ms": [None, 8.0, 0],
    "replicas": [1, 2, 5],
    "routing": [
        "round_robin", "random", "least_loaded", "two_choices", "fill_first", "shortest_queue",
        bs.routing.ByKey(5, 1.0), bs.routing.ByKey([k % 7 for k in range(MOST)]),
    ],
    "stale_ms": [0, 2.5],
    "autoscale": [
        None, bs.Autoscale(most=4, startup_s=0.1, every_s=0.2), bs.Autoscale("queue", 2, 2, 5, 0, 0.1, 0.2),
        bs.Autoscale("p99", 20.0, 1, 3, 0.1, 0.15),
    ],
    "price_per_hour": [None, 2.5, 0],
    "watts": [None, {0: 60, 1: 150, 8: 300}, {4: 250.5}],
}  # fmt: skip
OF_REQUESTS = {
    "rule": [*RULES, *RULES_OF_SIZES],
    "max_batch_size": [8, 4, 1],
    "max_wait_ms": [3.3, 0, math.inf],
    "max_batch_units": [None, 600, 150],
    "units": ["padded", "summed"],
    "service": [
        bs.Affine(2, 0.7), bs.Table({1: 5.0, 2: 3.0, 8: 9.1}), bs.PaddedTime(2, 0.3, 0.005),
        bs.PaddedTime(2, 0.3, 0.005, 1e-6).padded_to(None, lengths=[50, 100, 1000]),
        bs.PackedTime(1, 0.1, 0.01, 1e-6),
        bs.SizeTable([1, 4, 8], [64, 1000], [[2, 5.5], [4, 12], [7.5, 20]]),
    ],
    "padding": [None, (1, 4, 8), (8,)],
    "compile_ms": [None, 20, {1: 5, 8: 50}],
    "priorities": [None, {1: 1.0}, {1: 0.3, 2: 0.7}, {1: 0.2, 3: 0.3, 9: 0.5}],
    "sizes": [
        bs.Lognormal(60, 1, at_most=500), bs.Geometric(60, at_most=700), bs.Uniform(20, 100),
        bs.Uniform(160, 160), LENGTHS, AGAIN.prompt, None,
    ],
    "size_unit": ["tokens", "pixels"],
    "by_level": [None, "queue_limit", "timeout_ms", "timeout_action"],  # which limit differs by level
    "timeout_action": ["reject", "delay"],
    "slowdown": [None, {1: 1, 2: 1.4, 3: 1.9}],
    "devices": [None, 1, 2],
    "host_ms": [0, 0.9],
    "contention": [1, 1.3],
    "oversize_action": ["reject", "truncate"],
}  # fmt: skip
OF_TOKENS = {
    "requests": [60, 20, 1],
    "routing": [*COMMON["routing"], "least_tokens"],
    "speed": [0.1, 0.5, 4],
    "timeout_ms": [None, 80.0, 0],
    "rule": [bs.Continuous, bs.SizeOrWait, bs.AtLeast, NewTokenRatio, WaitingServedRatio, BatchWait],
    "max_batch_size": [8, 256, 1],
    "max_wait_ms": [30.0, 0, math.inf],
    "max_num_batched_tokens": [2048, 400],
    "first": ["prefill", "decode"],
    "chunked": [True, False],
    "reserve": ["step", "life"],
    "kv_tokens": [None, 800],
    "block_size": [16, 1],
    "watermark_blocks": [0, 2],
    "long_prefill_token_threshold": [0, 20],
    "prefix_reuse": [False, True],
    "max_model_len": [None, 400],
    "mixed": [False, True],
    "service": [
        bs.StepTime(2, 8, 0.1, 0.001, 0.00001), bs.StepTime(20, 0, 0),
        bs.StepTime(2, 8, 0.1, 0.02, 0.001, ragged=True),
        bs.StepTime(2, 8, 0.1, 0.001).speculative(3, 0.7, 4.3),
        bs.StepTime(2, 2, 0.7, 0.001, captured=(1, 2, 6, 16), beyond_ms=31),
    ],
    "prompt": [
        bs.Lognormal(60, 1, at_most=300), bs.Geometric(40, at_most=200), bs.Uniform(5, 80), 50, LENGTHS,
        AGAIN.prompt,
    ],
    "output": [
        bs.Geometric(15, at_most=80), bs.Lognormal(20, 1, at_most=90), bs.Uniform(1, 30), 1, 12,
        [1 + k % 9 for k in range(MOST)], AGAIN.output,
    ],
    "limit": [None, 96],
    "prefixes": [
        None, bs.PrefixGroups(3, 32, 1.0), bs.HashIds([[k % 4, k % 3, k] for k in range(MOST)], 16),
    ],
}  # fmt: skip
TABLES = {"requests": COMMON | OF_REQUESTS, "tokens": COMMON | OF_TOKENS}
# The parameters that one rule alone has.
MORE = {
    bs.AtLeast: [{"min_batch_size": 1}, {"min_batch_size": 3}, {"min_batch_size": 8}],
    bs.PreferredSizes: [{"preferred": [1]}, {"preferred": [2, 4]}, {"preferred": [3, 8]}],
    bs.PreferredUntilLate: [{"preferred": [1]}, {"preferred": [2, 4]}, {"preferred": [3, 8]}],
    bs.FrozenBatches: [{}, {"max_ongoing": 9}, {"max_ongoing": 30}],
    bs.LearnedCork: [{}, {"patience": 4.0}, {"patience": 1.0, "max_latency_ms": 9}],
    bs.LearnedSizes: [{"deadline_ms": 20}, {"deadline_ms": 6}, {"deadline_ms": 100}],
    bs.CompetingWindows: [{}, {"poll_ms": 0.4}, {"poll_ms": math.inf}],
    bs.Buckets: [{"edges": [1000]}, {"edges": [50, 1000]}, {"edges": [10, 100, 700]}],
    bs.SortedWindow: [{}, {"window": 8}, {"window": 20}],
    BatchWait: [
        {},
        {"batch_wait_timeout_iters": 3, "batch_wait_max_tokens_ratio": 0.2},
        {"batch_wait_timeout_ms": 9, "overlap": False},
    ],
    NewTokenRatio: [
        {},
        {"max_prefill_tokens": 350, "prefill_delayer": True, "queue_min_ratio": 0.5, "max_delay_ms": 80},
        {"init_new_token_ratio": 0.5, "decay_steps": 9},
    ],
    WaitingServedRatio: [{}, {"waiting_served_ratio": 1.2}, {"max_waiting_tokens": 2}],
}
OF_SCENARIO = {field.name for field in dataclasses.fields(bs.Scenario)} - {"workload", "rule", "service"}
Row = dict[str, int]  # the place of the level of each factor


def values_of(kind: str, row: Row) -> dict[str, Any]:
    return {factor: TABLES[kind][factor][place] for factor, place in row.items()}


def scenario_of(kind: str, row: Row) -> bs.Scenario:
    """Return the scenario of a row, or raise what the constructor raises."""
    of = values_of(kind, row)
    workload, service, speed = of["workload"], of["service"], of["speed"]
    if isinstance(workload, bs.ClosedLoop):
        workload = dataclasses.replace(workload, think_s=workload.think_s / speed)
    elif speed != 1 and workload.offered_per_s < math.inf:
        workload = workload.with_rate(workload.offered_per_s * speed)
    if of["noise"] is not None:
        service = service.with_noise(*of["noise"])
    given = {name: value for name, value in of.items() if name in OF_SCENARIO}
    if kind == "tokens":
        lengths = {name: of[name] for name in ("prompt", "output", "limit", "prefixes")}
        return bs.Scenario(workload, _token_rule(of), service, tokens=bs.Tokens(**lengths), **given)
    if of["padding"] is not None:
        service = service.padded_to(of["padding"])
    if of["compile_ms"] is not None:
        service = service.compiling(of["compile_ms"])
    if of["sizes"] is not None:
        workload = workload.with_sizes(of["sizes"], of["size_unit"])
    if of["priorities"] is not None:
        workload = workload.with_priorities(of["priorities"])
    if (limit := of["by_level"]) is not None and given[limit] is not None:
        given[limit] = {max(of["priorities"] or {1: 1}): given[limit]}
    rule = {name: of[name] for name in of["rule"].parameters() if name in of} | _more(of)
    return bs.Scenario(workload, of["rule"](**rule), service, **given)


def _more(of: dict[str, Any]) -> dict[str, Any]:
    return MORE.get(of["rule"], [{}] * 3)[of["more"]]


def _token_rule(of: dict[str, Any]) -> bs.Rule:
    kind = of["rule"]
    if kind is bs.SizeOrWait:
        return kind(of["max_batch_size"], of["max_wait_ms"])
    if kind is bs.AtLeast:
        return kind(min(3, of["max_batch_size"]), of["max_batch_size"])
    given = {field.name: of[field.name] for field in dataclasses.fields(kind) if field.name in of}
    memory = None if of["kv_tokens"] is None else of["kv_tokens"] // of["block_size"]
    return kind(of["max_batch_size"], kv_blocks=memory, **given | _more(of))


Level = tuple[str, int]  # a factor, and the place of one of its levels
Pair = tuple[Level, Level]


def levels_of(kind: str) -> list[Level]:
    return [(factor, place) for factor, each in TABLES[kind].items() for place in range(len(each))]


def pairs_of(levels: Iterable[Level]) -> set[Pair]:
    """Return the pairs of levels of different factors, which come in the table's order."""
    return {pair for pair in itertools.combinations(levels, 2) if pair[0][0] != pair[1][0]}


def cover(kind: str) -> tuple[list[Row], list[Pair]]:
    """Return rows with every pair of levels that some scenario admits, and the pairs that none admits.

    A row begins with a missing pair; then each factor takes the level with most of the missing pairs.
    """
    table, chance, levels = TABLES[kind], random.Random(0), levels_of(kind)
    place = {factor: number for number, factor in enumerate(table)}

    def in_order(level: Level) -> int:
        return place[level[0]]

    rows: list[Row] = []
    refused: list[Pair] = []

    def admitted(row: Row) -> bool:
        with contextlib.suppress(ValueError, TypeError):
            return bool(scenario_of(kind, row))
        return False

    missing = pairs_of(levels)
    for pair in chance.sample(sorted(missing), len(missing)):
        if pair not in missing:
            continue
        row = dict.fromkeys(table, 0) | dict(pair)
        others = [{}, *({factor: level} for factor, level in levels if factor not in dict(pair))]
        row = next((row | other for other in others if admitted(row | other)), {})
        if not row:
            refused.append(pair)
            missing.discard(pair)
            continue
        chosen = dict(pair)
        for factor in chance.sample(list(table), len(table)):
            gains = {}
            for level in range(len(table[factor]) if factor not in chosen else 0):
                pairs = (sorted([(factor, level), each], key=in_order) for each in chosen.items())
                gains[level] = sum(tuple(each) in missing for each in pairs)
            best = sorted(filter(gains.get, gains), key=gains.__getitem__, reverse=True)
            row[factor] = next((level for level in best if admitted(row | {factor: level})), row[factor])
            chosen[factor] = row[factor]
        missing -= pairs_of(row.items())
        rows.append(row)
    return rows, refused


FILE = Path(__file__).parents[1] / "data" / "pairwise.json"
DIGITS = "0123456789abcdef"


def stored() -> dict[str, Any]:
    """Return the covers in the file, by kind: rows and refused pairs."""
    found = json.loads(FILE.read_text())
    for kind, each in found.items():
        each["rows"] = [dict(zip(TABLES[kind], map(DIGITS.index, row), strict=True)) for row in each["rows"]]
        pairs = ([level.split() for level in pair.split(", ")] for pair in each["refused"])
        each["refused"] = [tuple((factor, int(at)) for factor, at in pair) for pair in pairs]
    return found


def write() -> None:
    """Write the covers: after a change of the table."""
    found = {}
    for kind in TABLES:
        rows, refused = cover(kind)
        found[kind] = {
            "rows": ["".join(DIGITS[row[f]] for f in TABLES[kind]) for row in rows],
            "refused": [", ".join(f"{factor} {at}" for factor, at in pair) for pair in sorted(refused)],
        }
    FILE.write_text(json.dumps(found, indent=0) + "\n")


if __name__ == "__main__":
    write()
