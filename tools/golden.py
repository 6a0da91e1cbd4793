"""Compare the results of two revisions: every column of a run to the bit, every other number to 1e-12.

Write the results of one revision to a file, then compare another revision with it:

    git worktree add /tmp/before REVISION
    PYTHONPATH=/tmp/before python tools/golden.py write golden.json
    python tools/golden.py compare golden.json

It uses public names only, so that one copy of this file runs with both revisions.
"""

import contextlib
import dataclasses
import hashlib
import json
import math
import random
import sys
import warnings
from pathlib import Path

import numpy as np

import batchsim as bs

REQUEST_RUNS, TOKEN_RUNS = 500, 300
CLOSE = 1e-12
COLUMNS = (
    "arrival_s", "start_s", "finish_s", "batch_index", "status", "priority", "delayed", "forming_ms",
    "queueing_ms", "computing_ms", "device_wait_ms", "first_token_s", "preemptions", "prompt_tokens",
    "output_tokens", "prefill_ms", "decode_ms", "preempted_ms", "ttft_ms", "tpot_ms",
)  # fmt: skip


def request_scenario(chance):
    choose = chance.choice
    rate = choose([300.0, 900.0, 1500.0])
    workload = choose([
        bs.Poisson(rate), bs.Constant(1000.0), bs.Gamma(rate, cv=3.0), bs.OnOff(2000.0, 100.0, 0.05, 0.05),
        bs.Diurnal(rate, 1.9, 0.002), bs.ClosedLoop(9), bs.ClosedLoop(9, think_s=0.004),
        bs.Trace(np.cumsum([chance.choice([0, 0.001, 0.002]) for _ in range(5000)])),
    ])  # fmt: skip
    wait_ms, size = choose([0, 1, 3.3, math.inf]), choose([4, 6, 8])
    short_ms = min(wait_ms, 9.0)
    rule = choose([
        bs.SizeOrWait(size, wait_ms), bs.SizeOrWait(size, short_ms), bs.AtLeast(2, size),
        bs.PreferredSizes([2, 4], size, short_ms), bs.PreferredUntilLate([2, 4], size, short_ms),
        bs.PullThenWait(size, short_ms), bs.FrozenBatches(size, short_ms), bs.StalledBatches(size, short_ms),
        bs.RunningWindow(size, short_ms), bs.SleepingPoll(size, short_ms),
        bs.LearnedCork(size, 4.0), bs.CompetingWindows(size, short_ms), bs.LearnedSizes(size, 20),
    ])  # fmt: skip
    base = bs.Affine(2.0, 0.7)
    service = choose([
        base, base.with_noise(0.6), base.with_noise(1, "exponential").padded_to([2, 4, 8]),
        base.with_noise(0.3).padded_to([1, 8]).compiling({1: 20, 8: 50}), bs.Table({1: 5.0, 2: 3.0, 8: 9.1}),
    ])  # fmt: skip
    limits = {
        "queue_limit": choose([None, None, 3, 10]), "timeout_ms": choose([None, None, 3.3, 8.0]),
        "timeout_action": choose(["reject", "reject", "delay"]),
    }  # fmt: skip
    servers = choose([1, 1, 2, 3])
    sharing = choose([
        {}, {}, {"slowdown": {k: 1 + 0.4 * (k - 1) for k in range(1, servers + 1)}},
        {"devices": 1, "host_ms": 0.9, "contention": 1.3}, {"host_ms": 0.4},
    ])  # fmt: skip
    levels = choose([None, None, {1: 0.3, 2: 0.7}, {1: 0.2, 3: 0.3, 9: 0.5}])
    if levels:
        workload = workload.with_priorities(levels)
    return bs.Scenario(workload, rule, service, servers=servers, **limits, **sharing)


def token_scenario(chance):
    choose = chance.choice
    service = choose([
        bs.StepTime(125, 0, 0), bs.StepTime(2, 8, 0.1, 0.001, 0.00001),
        bs.StepTime(6.88, 9.997, 0.09631, 1.922e-4, 1.225e-6).with_noise(0.5),
        bs.StepTime(20, 8, 0.1, 0.02, 0.001, ragged=True),
    ])  # fmt: skip
    lengths = choose([
        bs.Tokens(bs.Lognormal(60, 1, at_most=700), bs.Lognormal(20, 1, at_most=300)),
        bs.Tokens(bs.Geometric(40, at_most=400), bs.Geometric(15, at_most=200)),
        bs.Tokens(bs.Uniform(5, 80), bs.Uniform(1, 30)), bs.Tokens(50, 12),
    ])  # fmt: skip
    rule = choose([
        bs.SizeOrWait(choose([1, 4, 8]), choose([0, 30, 300])), bs.AtLeast(2, 6),
        *(
            bs.Continuous(
                choose([3, 16, 256]), choose([2048, 8192]), first=choose(["decode", "prefill"]),
                reserve=choose(["step", "step", "life"]), kv_blocks=choose([None, 200, 400]),
                block_size=16, chunked=choose([True, True, False]), max_model_len=2048,
            )
            for _ in range(4)
        ),
    ])  # fmt: skip
    workload = choose([
        bs.Poisson(choose([0.5, 3.0, 20.0])), bs.Gamma(3.0, cv=2.0), bs.ClosedLoop(12),
        bs.ClosedLoop(12, think_s=0.5), bs.Constant(4.0),
    ])  # fmt: skip
    return bs.Scenario(
        workload, rule, service, servers=choose([1, 1, 2, 3]), queue_limit=choose([None, None, 5]),
        timeout_ms=choose([None, None, None, 400]), tokens=lengths,
    )  # fmt: skip


def scenarios():
    """Yield a name, a scenario, and a number of requests; scenarios that are refused are left out."""
    for kind, count, make, most in (
        ("requests", REQUEST_RUNS, request_scenario, 600), ("tokens", TOKEN_RUNS, token_scenario, 120),
    ):  # fmt: skip
        for number in range(count):
            chance = random.Random(f"{kind} {number}")
            with contextlib.suppress(ValueError, TypeError):
                yield f"{kind} {number}", make(chance), chance.randint(40, most)


def digest(column):
    column = np.ascontiguousarray(column)
    if column.dtype == object:  # its bytes are addresses
        return repr(column.tolist())
    return f"{column.dtype.str} {column.shape} {hashlib.sha256(column.tobytes()).hexdigest()[:20]}"


def columns_of(result):
    found = {}
    for name in COLUMNS:
        with contextlib.suppress(ValueError, AttributeError):
            found[name] = getattr(result, name)
    rows = result.batches if result.scenario.tokens is None else result.steps
    found |= {f"row {name}": column for name, column in vars(rows).items() if isinstance(column, np.ndarray)}
    if dataclasses.is_dataclass(rows):
        names = [f.name for f in dataclasses.fields(rows)]
        found |= {f"row {name}": np.asarray(getattr(rows, name)) for name in names}
    return {name: digest(column) for name, column in found.items() if column is not None}


def numbers(value):
    """Return plain, comparable data."""
    if isinstance(value, dict):
        return {str(key): numbers(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [numbers(each) for each in value]
    if isinstance(value, (bool, str, type(None))):
        return value
    if isinstance(value, (int, float, np.number)):
        return float(value)
    return repr(value)


def attempt(act):
    try:
        return act()
    except (ValueError, ArithmeticError) as error:
        return f"refused: {type(error).__name__}"


def run_case(scenario, requests):
    found = {}
    for engine in ("simpy", "compiled"):
        try:
            result = bs.simulate(scenario, requests, seed=3, engine=engine, warmup=0.1)
        except ValueError as error:
            found[engine] = f"refused: {error}"
            continue
        found[engine] = columns_of(result)
        if engine == "simpy":
            found["summary"] = numbers(result.summary())
            found["p90 interval"] = attempt(lambda: numbers(result.interval("p90")))  # noqa: B023
            found["mean interval"] = attempt(lambda: numbers(result.interval("mean_latency_ms")))  # noqa: B023
    for keep in ("summary", "requests"):
        found[f"keep {keep}"] = attempt(
            lambda: numbers(bs.simulate(scenario, requests, seed=3, warmup=0.1, keep=keep).summary())  # noqa: B023
        )
    found["over"] = numbers([scenario.load, scenario.saturation_per_s, scenario.stable, scenario.to_toml()]) \
        if not isinstance(scenario.workload, bs.Trace) else None  # fmt: skip
    return found


def study_cases():
    """Yield a name and what a study returns, for requests and tokens."""
    plain = bs.Scenario(bs.Poisson(900), bs.SizeOrWait(32, 10), bs.Affine(5, 0.25))
    noisy = bs.Scenario(
        bs.Gamma(700, 2.0), bs.SizeOrWait(16, 5), bs.Affine(5, 0.5).with_noise(0.4), servers=2
    )
    tokens = bs.Scenario(
        bs.Poisson(4), bs.Continuous(64, kv_blocks=800, max_model_len=2048),
        bs.StepTime(6.88, 9.997, 0.09631, 1.922e-4, 1.225e-6),
        tokens=bs.Tokens(bs.Lognormal(200, 0.8, at_most=1500), bs.Lognormal(60, 0.8, at_most=500)),
    )  # fmt: skip
    for name, scenario in (("plain", plain), ("noisy", noisy)):
        over = {"max_batch_size": [4, 16, 64], "max_wait_ms": [0, 5, 20]}
        yield (
            f"sweep {name}",
            lambda s=scenario, o=over: bs.sweep(s, o, requests=4000, progress=False).to_dict("list"),
        )
        yield f"tune {name}", lambda s=scenario, o=over: vars_of(bs.tune(s, bs.SLO(p99_ms=60), over=o))
        yield f"capacity {name}", lambda s=scenario: vars_of(bs.capacity(s, bs.SLO(p99_ms=80)))
    yield (
        "sweep tokens",
        lambda: bs.sweep(
            tokens, {"max_num_seqs": [8, 64], "rate_per_s": [2, 5]}, requests=800, progress=False
        ).to_dict("list"),
    )
    yield (
        "tune tokens",
        lambda: vars_of(bs.tune(tokens, bs.SLO(ttft_p99_ms=3000), over={"max_num_seqs": [8, 64]})),
    )
    yield "capacity tokens", lambda: vars_of(bs.capacity(tokens, bs.SLO(ttft_p99_ms=3000), requests=20_000))
    for name in ("plain", "noisy"):
        scenario = plain if name == "plain" else noisy
        yield f"theory {name}", lambda s=scenario: vars_of(bs.theory.expected(s))
    yield "theory tokens", lambda: vars_of(bs.theory.expected(tokens))
    day = plain.replace(workload=bs.Diurnal(900, 1.5, 1.0))
    yield "pooled", lambda: bs.simulate(plain, 5000, replications=4).summary()
    yield "day", lambda: bs.simulate(day, 20_000, warmup="auto", replications=3).summary()


def vars_of(value):
    if value is None or isinstance(value, (str, bool, int, float, dict, list, tuple)):
        return value
    named = {}
    for name in sorted(each for each in dir(value) if not each.startswith("_")):
        with contextlib.suppress(Exception):
            each = getattr(value, name)
            if isinstance(each, (bool, int, float, dict, bs.Rule)):
                named[name] = each
    return named


def collect():
    found = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, scenario, requests in scenarios():
            found[name] = run_case(scenario, requests)
        for name, act in study_cases():
            try:
                found[name] = numbers(act())
            except Exception as error:
                found[name] = f"raised {type(error).__name__}: {error}"
    return found


def differences(old, new, path=""):
    """Yield what differs between two collections, to 1e-12 for numbers."""
    if isinstance(old, dict) and isinstance(new, dict):
        for key in old:
            if key not in new:
                yield f"{path}/{key}: missing"
            else:
                yield from differences(old[key], new[key], f"{path}/{key}")
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for place, (one, other) in enumerate(zip(old, new, strict=True)):
            yield from differences(one, other, f"{path}/{place}")
    elif isinstance(old, float) and isinstance(new, float):
        same = old == new or (math.isnan(old) and math.isnan(new))
        if not same and not math.isclose(old, new, rel_tol=CLOSE, abs_tol=CLOSE):
            yield f"{path}: {old!r} is now {new!r}"
    elif old != new:
        yield f"{path}: {str(old)[:160]} is now {str(new)[:160]}"


def main(verb, path):
    found = collect()
    if verb == "write":
        Path(path).write_text(json.dumps(found))
        print(f"{len(found)} cases written")
        return 0
    old = json.loads(Path(path).read_text())
    changed = list(differences(old, json.loads(json.dumps(found))))
    print(*changed[:60], sep="\n")
    print(f"{len(old)} cases of {Path(bs.__file__).parent}: {len(changed)} differences")
    return bool(changed)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
