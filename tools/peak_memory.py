"""The peak memory of default calls, over random scenarios of tokens: `make peak-memory` (COUNT=200 SEED=0).

Each call runs in a process of its own, which may neither have more than 12 GiB nor compute for long. One that
is stopped counts with what it had by then: the memory of a long run does not grow with its length.
"""

import multiprocessing
import random
import resource
import signal
import sys
import time
import warnings

import batchsim as bs

LIMIT_MIB = 2000
MOST_BYTES, SECONDS = 12 << 30, 60
CALLS = ["simulate"] * 14 + ["replications"] * 2 + ["sweep"] * 2 + ["tune", "capacity"]
COSTS = [
    bs.StepTime(2, 8, 0.1, 0.001, 0.00001), bs.published("llama-3.1-8b/rtx-4090"),
    bs.StepTime(0, 0, 1, 0.3, 0.07).with_noise(0.5), bs.StepTime(6.88, 9.997, 0.09631).with_noise(0.1),
]  # fmt: skip


def scenario_of(chance: random.Random) -> bs.Scenario:
    """Return a scenario: any load, from one token to thousands, any memory, engines and clients."""
    choose = chance.choice
    output, prompt = 10 ** chance.uniform(0, 3), 10 ** chance.uniform(0, 3.3)
    outputs = choose(
        [bs.Geometric(max(output, 1.01)), bs.Lognormal(output, chance.uniform(0, 2)), max(int(output), 1)]
    )
    prompts = choose(
        [bs.Lognormal(prompt, chance.uniform(0, 2)), max(int(prompt), 1), bs.Uniform(1, 2 * int(prompt) + 1)]
    )
    budget = choose([64, 512, 2048, 8192])
    rule = choose([
        bs.Continuous(choose([1, 16, 256, 1024]), budget), bs.Continuous(64, budget, first="prefill"),
        bs.Continuous(256, kv_blocks=choose([20_000, 10**6])),
        bs.SizeOrWait(choose([1, 8, 64]), choose([0, 50])), bs.AtLeast(1, choose([4, 32])),
    ])  # fmt: skip
    one = bs.Scenario(
        bs.Poisson(1), rule, choose(COSTS), servers=choose([1, 1, 2, 8, 32]),
        tokens=bs.Tokens(prompts, outputs), timeout_ms=choose([None, None, 5000]),
    )  # fmt: skip
    if chance.random() < 0.1 and isinstance(rule, bs.Continuous):
        return one.replace(workload=bs.ClosedLoop(choose([1, 10, 1000]), 0.1))
    return one.replace(rate_per_s=one.saturation_per_s * choose([0.001, 0.01, 0.1, 0.5, 0.9, 1.5]))


def call(name: str, scenario: bs.Scenario) -> str:
    """Make a default call, and read its numbers; return what it refused, or ""."""
    small = {"max_num_seqs": [4, 64], "max_num_batched_tokens": [512, 2048]}
    if not isinstance(scenario.rule, bs.Continuous):
        small = {"servers": [1, 2]}
    slo = bs.SLO(ttft_p99_ms=200, tpot_p99_ms=30)
    try:
        if name in ("simulate", "replications"):
            result = bs.simulate(scenario, replications=4 if name == "replications" else 1)
            result.summary(), result.intervals(["p99_ms", "ttft_p99_ms", "utilisation"])
        elif name == "sweep":
            bs.sweep(scenario, small, progress=False)
        elif name == "tune":
            bs.tune(scenario, slo, small)
        else:
            bs.capacity(scenario, slo)
    except ValueError as refusal:
        return str(refusal)
    return ""


def child(number: int, seed: int, seconds: float, pipe) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MOST_BYTES, MOST_BYTES))
    chance = random.Random(f"{seed} {number}")
    told = {"refused": "", "call": chance.choice(CALLS)}

    def tell(*_) -> None:
        pipe.send((told, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024))
        pipe.close()

    def stop(*_) -> None:
        told["refused"] = "stopped"
        tell()
        raise SystemExit

    signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    warnings.simplefilter("ignore")
    scenario = scenario_of(chance)
    told["scenario"] = repr(scenario)
    told["refused"] = call(told["call"], scenario)
    signal.setitimer(signal.ITIMER_REAL, 0)
    tell()


def main(count: int, seed: int = 0, seconds: float = SECONDS) -> int:
    example = bs.Scenario(bs.Poisson(1), bs.Continuous(), COSTS[0], tokens=bs.Tokens(9, 9))
    bs.simulate(example, 100).intervals(["p99_ms"])  # compiles before the processes fork
    fork, worst, began_s = multiprocessing.get_context("fork"), 0.0, time.monotonic()
    for number in range(count):
        mine, theirs = fork.Pipe(duplex=False)
        process = fork.Process(target=child, args=(number, seed, seconds, theirs))
        process.start()
        theirs.close()
        try:
            told, peak_mib = mine.recv()
        except EOFError:
            told, peak_mib = {"call": "?", "refused": f"killed, {process.exitcode}"}, float("inf")
        process.join()
        worst = max(worst, peak_mib)
        print(f"{number:4} {told['call']:12} {peak_mib:7.0f} MiB {told['refused'][:60]}", flush=True)
        if peak_mib > LIMIT_MIB:
            print(told.get("scenario"))
    print(f"{count} calls in {time.monotonic() - began_s:.0f} s: at most {worst:.0f} MiB")
    return int(worst > LIMIT_MIB)


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
