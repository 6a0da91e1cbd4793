"""Files that were damaged, or edited by somebody: what is read is whole, or refused with ValueError."""

import io
import json
import random
import zipfile
from copy import deepcopy
from pathlib import Path

import numpy as np

import batchsim as bs
from batchsim.measured.measurement import Measurement

A = bs.Affine(5, 0.25)
SCENARIOS = [
    bs.Scenario(bs.Poisson(800), bs.SizeOrWait(32, 10), A),
    bs.Scenario(bs.Gamma(700, 3), bs.AtLeast(2, 16), A.with_noise(0.2), 2, queue_limit=40, timeout_ms=30),
    bs.Scenario(bs.ClosedLoop(20, 0.02), bs.PreferredSizes([4, 8], 16, 5), bs.Table({1: 4, 8: 6, 16: 9})),
    bs.Scenario(bs.OnOff(2000, 100, 0.5, 1), bs.SizeOrWait(8, 2), A, 3, slowdown={1: 1, 2: 1.5, 3: 2}),
    bs.Scenario(bs.Trace([0.0, 0.1, 0.1, 0.5]), bs.SizeOrWait(4, 0), bs.published("nnunet/t4/fp16")),
]


def damaged(rng: random.Random, content: bytes) -> bytes:
    """Return bytes with some flipped, cut off, removed, repeated, or put in."""
    data = bytearray(content)
    for _ in range(rng.choice([1, 1, 1, 3, 20])):
        at = rng.randrange(len(data)) if data else 0
        kind = rng.randrange(5)
        if kind == 0 and data:
            data[at] ^= 1 << rng.randrange(8)
        elif kind == 1:
            del data[at:]
        elif kind == 2:
            del data[at : at + rng.randint(1, 40)]
        elif kind == 3:
            data[at:at] = data[at : at + rng.randint(1, 40)]
        else:
            data[at:at] = rng.randbytes(rng.randint(1, 8))
    return bytes(data)


# Results.


def attack_result(rng: random.Random, folder: Path) -> str:
    """What loads gives its numbers; bytes that changed make no other result of it."""
    path = folder / "result.npz"
    number, keep = rng.randrange(len(SCENARIOS)), rng.choice(["all", "summary"])
    path.write_bytes(_saved(number, keep, folder))
    content = path.read_bytes()
    edited = rng.random() < 0.5
    path.write_bytes(_edited(rng, content) if edited else damaged(rng, content))
    try:
        result = bs.Result.load(path)
    except ValueError:
        return "refused"
    summary = result.summary()
    str(result), result.percentile(99)
    if keep == "all":
        result.over_time(0.1), result.to_frame()
    if edited:
        return "edited, and consistent"
    path.write_bytes(content)
    assert repr(summary) == repr(bs.Result.load(path).summary()), "other numbers"
    return "unchanged"


def _saved(number, keep, folder, cache={}):  # noqa: B006 - each is simulated once
    if (number, keep) not in cache:
        path = folder / "whole.npz"
        bs.simulate(SCENARIOS[number], requests=4 if number == 4 else 400, keep=keep).save(path)
        cache[number, keep] = path.read_bytes()
    return cache[number, keep]


def _edited(rng, content):
    """Return the archive with one array changed by hand."""
    with np.load(io.BytesIO(content)) as archive:
        arrays = dict(archive)
    name = rng.choice(sorted(arrays))
    if name == "about" or rng.random() < 0.2:
        text = json.loads(arrays["about"].tobytes())
        edit(rng, text)
        arrays["about"] = np.frombuffer(json.dumps(text).encode(), np.uint8)
    else:
        old = arrays[name]
        arrays[name] = rng.choice([
            lambda: old[:-1] if old.ndim else np.array([1.0, 2.0]), lambda: old.astype("U8"),
            lambda: np.append(old, old), lambda: old.astype(complex), lambda: np.full_like(old, 10**9 % 251),
            lambda: -old if old.dtype.kind in "if" else old[::-1] if old.ndim else old,
            lambda: np.full(old.shape, np.nan), lambda: np.zeros((3, 3)), lambda: np.zeros(0, old.dtype),
            lambda: old.astype(np.int8), lambda: old.astype(bool),
            lambda: np.full_like(old, -1, dtype=np.int64),
        ])()  # fmt: skip
        if rng.random() < 0.1:
            del arrays[name]
        if rng.random() < 0.1:
            arrays[rng.choice(["9/Log/start_s", "0/Log/x", "0/Other/start_s", "a/b", "x/Log/y"])] = old
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    if rng.random() < 0.1:  # another file in the archive
        with zipfile.ZipFile(buffer, "a") as archive:
            archive.writestr("notes.txt", b"text")
    return buffer.getvalue()


# Scenarios.

NUMBERS = [
    0, -1, 1, 2, 3, 0.5, 1e-9, 1e-308, 1e9, 1e15, 1e308, 10**20, float("nan"), float("inf"), -float("inf"),
]  # fmt: skip
OTHERS = ["", "x", "nan", True, None, [], [1], [1, 2], [[1, 2.0]], {}, {"kind": "Poisson"}, {"1": 2}]


def edit(rng, tables, others=OTHERS):
    """Change one value somewhere in nested tables, remove it, or add another."""
    places = []

    def walk(table):
        for key in table if isinstance(table, dict) else range(len(table)):
            places.append((table, key))
            if isinstance(table[key], (dict, list)):
                walk(table[key])

    walk(tables)
    table, key = rng.choice(places)
    kind = rng.random()
    if kind < 0.1 and isinstance(table, dict):
        del table[key]
    elif kind < 0.2 and isinstance(table, dict):
        table[rng.choice(["kind", "extra", "servers", "max_wait_ms"])] = deepcopy(
            rng.choice(NUMBERS + OTHERS)
        )
    elif isinstance(table[key], float) and rng.random() < 0.7:
        table[key] *= rng.choice([0.01, 0.3, 0.9, 1.0000001, 2, 30])
    else:
        table[key] = deepcopy(rng.choice(NUMBERS + others if rng.random() < 0.4 else NUMBERS))


def attack_scenario(rng: random.Random, folder: Path) -> str:
    """A scenario that is accepted runs alike in both engines, or both refuse it alike."""
    import tomlkit

    tables = tomlkit.parse(rng.choice(SCENARIOS).to_toml()).unwrap()
    for _ in range(rng.choice([1, 1, 1, 2])):
        edit(rng, tables)
    try:
        text = tomlkit.dumps(tables)
    except (ValueError, TypeError):
        return "no TOML"
    if rng.random() < 0.1:
        text = damaged(rng, text.encode()).decode(errors="replace")
    try:
        scenario = bs.Scenario.from_toml(text if "\n" in text else text + "\n")
    except (ValueError, TypeError, OSError):
        return "refused"
    if scenario.servers > 1000 or getattr(scenario.workload, "clients", 0) > 10_000:
        return "too large to compare"
    requests = None if getattr(scenario.workload, "max_requests", None) else 200
    runs = []
    for engine in ("simpy", "compiled"):
        try:
            runs.append(bs.simulate(scenario, requests, engine=engine))
        except (ValueError, TypeError) as error:
            runs.append(str(error))
    one, other = runs
    if isinstance(one, str) or isinstance(other, str):
        assert one == other, runs
        return "refused by both engines"
    for name in ("arrival_s", "start_s", "finish_s", "batch_index", "status"):
        a, b = getattr(one, name), getattr(other, name)
        assert np.array_equal(a, b, equal_nan=a.dtype.kind == "f"), f"the engines differ in {name}: {text}"
    one.summary()
    return "identical in both engines"


# Traces and measurements.


def attack_trace(rng: random.Random, folder: Path) -> str:
    """A trace is read in time order, or refused."""
    path = folder / "trace.csv"
    start = rng.choice([0, 0.5, 1.7e9])
    times = sorted(
        start + rng.choice([rng.random() * 10, rng.randint(0, 9)]) for _ in range(rng.randint(1, 30))
    )
    kind = rng.choice(["seconds", "iso", "whole", "ms"])
    if kind == "iso":
        lines = [f"2024-05-01T12:00:{time % 60:09.6f}{rng.choice(['', 'Z'])}" for time in times]
    else:
        factor = 1000 if kind == "ms" else 1
        lines = [str(int(time * factor)) if kind != "seconds" else repr(time) for time in times]
    content = "\n".join(["t,other", *(f"{line},x" for line in lines)]).encode()
    path.write_bytes(content if rng.random() < 0.2 else damaged(rng, content))
    try:
        trace = bs.Trace.from_csv(path, unit=None if kind == "iso" else "s")
    except ValueError:
        return "refused"
    assert np.all(np.diff(trace.times_s) >= 0)
    assert np.isfinite(trace.times_s).all()
    scenario = bs.Scenario(trace, bs.SizeOrWait(4, 5), A)
    try:
        bs.simulate(scenario).summary()
    except ValueError as error:  # a run may take the beginning of a trace that lasts longer than the clock
        if "arrivals must be before" not in str(error):
            raise
        return "read, and too long to run whole"
    if rng.random() < 0.2:
        try:
            bs.tune(scenario, bs.SLO(p99_ms=rng.choice([1, 30])), {"max_batch_size": [1, 2]})
        except ValueError:
            return "refused"
    return "read"


def attack_measurement(rng: random.Random, folder: Path) -> str:
    """A measurement that loads gives a service time, or says why not."""
    path = folder / "measurement.json"
    rows = [[2.0, 2.1], [3.0, 3.0], [5.0, 4.5]]
    Measurement("m", "CPU", "cpu", "1.0", [1, 4, 8], 2, rows, [1, 1, 2], "2026-01-01T00:00:00").save(path)
    tables = json.loads(path.read_text())
    if rng.random() < 0.3:
        path.write_bytes(damaged(rng, path.read_bytes()))
    else:
        edit(rng, tables)
        path.write_text(json.dumps(tables))
    try:
        measurement = Measurement.load(path)
    except ValueError:
        return "refused"
    assert all(measurement.service(size) > 0 for size in measurement.batch_sizes)
    return "read"
