"""What is claimed about speed, as ratios taken in one run: python benchmarks/bench.py [row ...].

Each row times a task of ours and a yardstick in turn, several times, and prints the ratio of the
medians against its bar. The first, uncounted round compiles.
"""

import argparse
import os
import platform
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from itertools import count
from pathlib import Path
from statistics import median

import floor
import numba
import numpy as np
import simpy

import batchsim as bs
from batchsim.engines.token_log import draw_tokens
from batchsim.study.surface import surface

sys.path.append(str(Path(__file__).parent.parent / "tests"))  # the plain loop, and what others measured
SCENARIO = bs.Scenario(bs.Poisson(1500), bs.SizeOrWait(32, 10), bs.Affine(5, 0.25))
SIZES = [1, 2, 4, 6, 8, 12, 16, 20, 24, 32, 48, 64]
WAITS_MS = [0, 0.5, 1, 2, 3, 5, 7, 10, 15, 20, 30, 50]


@dataclass
class Row:
    name: str
    ratio: float
    bar: float
    aim: float
    detail: str
    smaller_is_better: bool = False

    @property
    def met(self) -> bool:
        return self.ratio <= self.bar if self.smaller_is_better else self.ratio >= self.bar

    def __str__(self) -> str:
        sign = "at most" if self.smaller_is_better else "at least"
        verdict = "met" if self.met else "MISSED"
        cells = [
            self.name,
            self.detail,
            f"{self.ratio:.3g}",
            f"{sign} {self.bar:g}",
            f"{self.aim:g}",
            verdict,
        ]
        return f"| {' | '.join(cells)} |"


def in_turn(rounds: int, *tasks: Callable[[], object]) -> list[float]:
    """Return the median seconds of each task, run in turn, after one round that does not count."""
    seconds: list[list[float]] = [[] for _ in tasks]
    for round_ in range(rounds + 1):
        for taken, task in zip(seconds, tasks, strict=True):
            begin = time.perf_counter()
            task()
            if round_:
                taken.append(time.perf_counter() - begin)
    return [median(taken) for taken in seconds]


# The yardsticks.


@numba.njit
def bare_numba(generator, requests, rate_per_s, largest, wait_s, service_s):
    arrival_s = np.cumsum(generator.standard_exponential(requests)) / rate_per_s
    latency_s = np.empty(requests)
    head, free_s = 0, 0.0
    while head < requests:
        ready_s = arrival_s[head] + wait_s
        if head + largest <= requests:
            ready_s = min(ready_s, arrival_s[head + largest - 1])
        now_s = max(ready_s, free_s)
        end = head
        while end < min(head + largest, requests) and arrival_s[end] <= now_s:
            end += 1
        free_s = now_s + service_s[end - head]
        latency_s[head:end] = free_s - arrival_s[head:end]
        head = end
    return latency_s


def bare_simpy(requests: int, seed: int) -> list[float]:
    """Run the same rule with SimPy as one would write it first."""
    env, rule = simpy.Environment(), SCENARIO.rule
    gaps = np.random.default_rng(seed).standard_exponential(requests) / SCENARIO.workload.rate_per_s
    wait_s, largest = rule.max_wait_ms / 1000, rule.max_batch_size
    waiting, latencies_s = simpy.Store(env), []

    def source():
        for gap in gaps.tolist():
            yield env.timeout(gap)
            waiting.put(env.now)

    def server():
        while len(latencies_s) < requests:
            batch = [(yield waiting.get())]
            timer = env.timeout(max(batch[0] + wait_s - env.now, 0))
            while len(batch) < largest:
                get = waiting.get()
                yield get | timer
                if not get.triggered:
                    get.cancel()
                    break
                batch.append(get.value)
            yield env.timeout(SCENARIO.service(len(batch)))
            latencies_s.extend(env.now - at for at in batch)

    env.process(source())
    env.run(env.process(server()))
    return latencies_s


MM1_RATE, MM1_SERVICE_RATE = 0.8, 1.0


def ciw_mm1(customers: int, seed: int) -> float:
    import ciw

    network = ciw.create_network(
        arrival_distributions=[ciw.dists.Exponential(MM1_RATE)],
        service_distributions=[ciw.dists.Exponential(MM1_SERVICE_RATE)],
        number_of_servers=[1],
    )
    ciw.seed(seed)
    simulation = ciw.Simulation(network)
    simulation.simulate_until_max_customers(customers)
    return float(np.mean([r.waiting_time + r.service_time for r in simulation.get_all_records()]))


def salabim_mm1(customers: int, seed: int) -> float:
    import salabim

    env = salabim.Environment(random_seed=seed, yieldless=False, trace=False)
    server = salabim.Resource("server")
    latencies = []

    class Customer(salabim.Component):
        def process(self):
            begin = env.now()
            yield self.request(server)
            yield self.hold(salabim.Exponential(1 / MM1_SERVICE_RATE).sample())
            self.release(server)
            latencies.append(env.now() - begin)

    class Source(salabim.Component):
        def process(self):
            for _ in range(customers):
                yield self.hold(salabim.Exponential(1 / MM1_RATE).sample())
                Customer()

    Source()
    env.run()
    return float(np.mean(latencies))


# The rows.


def one_run(rounds: int) -> Row:
    requests, service_s = 2_000_000, SCENARIO.service.table(32)

    def ours():
        return bs.simulate(SCENARIO, requests).latency_ms

    def bare():
        stream = np.random.SeedSequence(0).spawn(3)[0]
        return bare_numba(np.random.default_rng(stream), requests, 1500.0, 32, 0.01, service_s)

    # The same run: our clock counts whole nanoseconds, theirs is a bare float.
    assert np.allclose(ours(), bare() * 1000, rtol=0, atol=2e-6)
    mine, theirs = in_turn(rounds, ours, bare)
    detail = f"{requests / mine / 1e6:.1f} against {requests / theirs / 1e6:.1f} million requests/s"
    return Row("one run of 2,000,000, against a bare Numba loop", theirs / mine, 0.4, 0.8, detail)


def against_simpy(rounds: int) -> Row:
    few, many = 50_000, 2_000_000
    theirs, mine = in_turn(
        rounds,
        lambda: bs.simulate(SCENARIO, few, engine="simpy").latency_ms,
        lambda: bs.simulate(SCENARIO, many).latency_ms,
    )
    detail = f"{many / mine / 1e6:.1f} million against {few / theirs / 1e3:.0f} thousand requests/s"
    return Row("the same, against the SimPy engine", (many / mine) / (few / theirs), 150, 300, detail)


def simpy_itself(rounds: int) -> Row:
    requests = 50_000
    mine, theirs = in_turn(
        rounds,
        lambda: bs.simulate(SCENARIO, requests, engine="simpy").latency_ms,
        lambda: bare_simpy(requests, 0),
    )
    detail = f"{requests / mine / 1e3:.0f} against {requests / theirs / 1e3:.0f} thousand requests/s"
    return Row("the SimPy engine, against a bare SimPy loop", theirs / mine, 0.25, 1, detail)


def heat_map(rounds: int) -> Row:
    """144 settings in one call, as the explorer recomputes them at every move of a slider."""
    requests, rates = 20_000, count(1000)  # another rate each time, as when its slider moves

    def ours():
        return surface(SCENARIO.replace(rate_per_s=next(rates)), SIZES, WAITS_MS, requests)

    found = ours()
    one = found.scenario.replace(max_batch_size=SIZES[6], max_wait_ms=WAITS_MS[9])
    assert found.p99_ms[9, 6] == bs.simulate(one, requests).percentile(99)
    mine, theirs = in_turn(
        rounds, ours, lambda: bs.simulate(SCENARIO, requests, engine="simpy").percentile(99)
    )
    detail = f"{1000 * mine:.1f} ms against {1000 * theirs:.0f} ms"
    name = "144 settings x 20,000 with exact p99 in one call, as a heat map that moves, against one SimPy run"
    return Row(name, theirs / mine, 3, 8, detail)


def sweep(rounds: int) -> Row:
    over = {"max_batch_size": list(range(2, 42)), "max_wait_ms": list(range(25))}
    points, requests, few = 1000, 100_000, 50_000
    mine, theirs = in_turn(
        min(rounds, 3),
        lambda: bs.sweep(SCENARIO.replace(rate_per_s=800), over, requests, warmup=0.05, progress=False),
        lambda: bs.simulate(SCENARIO.replace(rate_per_s=800), few, engine="simpy").latency_ms,
    )
    ours, simpy_on_all = points * requests / mine, few / theirs * (os.cpu_count() or 1)
    detail = f"{ours / 1e6:.1f} million against {simpy_on_all / 1e3:.0f} thousand requests/s, in {mine:.1f} s"
    name = "1,000 settings x 100,000, all numbers and intervals, against SimPy on as many cores"
    return Row(name, ours / simpy_on_all, 120, 200, detail)


def tune(_: int) -> Row:
    """Tune four scenarios; each must find the grid's choice, or one as good to a tenth."""
    sizes, waits_ms = [1, 2, 4, 8, 12, 16, 24, 32, 48, 64], [0, 1, 2, 4, 6, 8, 10, 15, 20, 30]
    over = {"max_batch_size": sizes, "max_wait_ms": waits_ms}
    v100 = bs.Affine(1.8874, 0.1438)
    asked = [
        (bs.Poisson(1400), bs.Affine(5, 0.25), 40),
        (bs.Poisson(3000), v100, 15),
        (bs.Gamma(1350, 2), bs.published("gpunet-175ms/v100-32gb/fp16"), 67),
        (bs.OnOff(2500, 500, 0.5, 1), v100.with_noise(0.2), 60),
    ]
    few, simulated, tuned_s, simpy_s = 50_000, 0, 0.0, 0.0
    for workload, service, p99_ms in asked:
        largest = [size for size in sizes if size <= service.largest_batch]
        scenario = bs.Scenario(workload, bs.SizeOrWait(1, 0), service)
        axes = {**over, "max_batch_size": largest}
        found = bs.tune(scenario, bs.SLO(p99_ms=p99_ms), axes, progress=False)
        table = bs.sweep(scenario, axes, 100_000, progress=False)
        best = table[table.stable].p99_ms.min()
        # The same run as the grid's: of bursts, 100,000 requests are too few for an interval.
        chosen = bs.simulate(found.scenario, 100_000).percentile(99)
        assert found.met
        assert chosen <= 1.1 * best, (found, best)
        begin = time.perf_counter()
        found = bs.tune(scenario, bs.SLO(p99_ms=p99_ms), axes, progress=False)
        tuned_s += time.perf_counter() - begin
        simulated += found.requests_simulated + found.requests_explaining
        begin = time.perf_counter()
        bs.simulate(found.scenario, few, engine="simpy")
        simpy_s += time.perf_counter() - begin
    ours, theirs = simulated / tuned_s, len(asked) * few / simpy_s * (os.cpu_count() or 1)
    detail = f"{ours / 1e6:.1f} million against {theirs / 1e3:.0f} thousand requests/s, in {tuned_s:.1f} s"
    name = "tune of up to 100 settings x 100,000, 4 scenarios, against SimPy on as many cores"
    return Row(name, ours / theirs, 50, 100, detail)


def memory(_: int) -> Row:
    def peak_mib(requests: int) -> float:
        code = (
            "import resource, sys, batchsim as bs\n"
            "scenario = bs.Scenario(bs.Poisson(1500), bs.SizeOrWait(32, 10), bs.Affine(5, 0.25))\n"
            "bs.simulate(scenario, int(sys.argv[1]), keep='summary').summary()\n"
            "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)\n"
        )
        run = [sys.executable, "-c", code, str(requests)]
        return float(subprocess.run(run, check=True, capture_output=True, text=True).stdout)

    begin = time.perf_counter()
    billion, million = peak_mib(10**9), peak_mib(10**6)
    detail = f"{billion:.0f} MiB against {million:.0f} MiB, in {time.perf_counter() - begin:.0f} s"
    name = "peak memory of a billion requests with keep=summary, against a million"
    return Row(name, billion / million, 1.1, 1, detail, smaller_is_better=True)


def servers_rules(rounds: int) -> Row:
    """Every rule of a real server that is not the textbook's: the slowest, in million requests/s."""
    requests = 1_000_000
    rules = [
        bs.servers.triton(32, 2000, [8, 32]),
        bs.servers.torchserve(32, 2),
        bs.servers.ray_serve(32, 0.005),
        bs.servers.ray_serve(32, 0.002, handler="blocking"),
        bs.servers.litserve(32, 0.002),
        bs.servers.batched(32, 2),
        bs.servers.bentoml(32),
        bs.servers.clipper(slo_micros=20_000),
    ]

    scenarios = {
        type(rule).__name__: bs.Scenario(bs.Poisson(1500), rule, bs.Affine(1.8874, 0.1438)) for rule in rules
    }
    workers = bs.servers.config("litserve", max_batch_size=32, batch_timeout=0.002, workers_per_device=2)
    scenarios["CompetingWindows"] = workers.scenario(bs.Poisson(1500), bs.Affine(1.8874, 0.1438))
    levels = bs.Poisson(1500).with_priorities({1: 0.2, 2: 0.8})
    scenarios["priorities"] = bs.Scenario(levels, bs.servers.triton(32, 2000), bs.Affine(1.8874, 0.1438))
    three = bs.Poisson(8000).with_priorities({1: 0.2, 2: 0.6, 3: 0.2})  # 4,900/s are carried
    scenarios["priorities in overload"] = scenarios["priorities"].replace(workload=three)

    def task(scenario: bs.Scenario) -> Callable[[], object]:
        return lambda: bs.simulate(scenario, requests).latency_ms

    seconds = in_turn(rounds, *map(task, scenarios.values()))
    each = {name: requests / taken / 1e6 for name, taken in zip(scenarios, seconds, strict=True)}
    detail = ", ".join(f"{name} {speed:.1f}" for name, speed in each.items())
    return Row("rules of real servers, million requests/s of the slowest", min(each.values()), 5, 10, detail)


def tokens(rounds: int) -> Row:
    """Continuous batching of conversations, every column of requests and steps, against the plain loop."""
    from oracles.measured_tokens import table
    from oracles.token_plans import columns_of, naive

    lengths = table("lengths_azure2023_conv")
    pairs = np.column_stack([lengths["prompt_tokens"], lengths["output_tokens"]]).tolist()
    service, few, many = bs.published("llama-3.1-8b/rtx-4090"), 300, 20_000
    scenario = bs.Scenario(
        bs.Poisson(3.7), bs.Continuous(), service, tokens=bs.Tokens.sample(pairs, again=True)
    )
    plan = draw_tokens(scenario, few, 0)
    short, by_hand = bs.simulate(scenario, few).log, columns_of(naive(plan))
    # Both add a step's cost in their own order, and one sum may round to the next nanosecond.
    assert all(
        np.allclose(getattr(short, name), column, rtol=0, atol=1e-8) for name, column in by_hand.items()
    )
    steps = bs.simulate(scenario, many).steps
    mine, theirs = in_turn(
        rounds, lambda: bs.simulate(scenario, many).finish_s, lambda: columns_of(naive(plan))
    )
    ours, plain = len(steps) / mine, short.batch_start_s.size / theirs
    rows = f"{steps.rows.mean():.0f} rows a step"
    detail = f"{ours / 1e6:.1f} million against {plain / 1e3:.1f} thousand steps/s, {rows}"
    return Row("token generation, all columns, against a plain loop", ours / plain, 100, 500, detail)


def measured_run(rounds: int) -> Row:
    from oracles.measured_tokens import vllm_run

    scenario, _ = vllm_run()
    steps = len(bs.simulate(scenario).steps)
    (seconds,) = in_turn(max(rounds, 11), lambda: bs.simulate(scenario).finish_s)
    name = "300 requests of a measured vLLM run (184 s in reality), ms"
    return Row(name, 1000 * seconds, 10, 2, f"{steps:,} steps", smaller_is_better=True)


def against_others(name: str, theirs: Callable[[int, int], float]) -> Callable[[int], Row]:
    customers = 100_000
    mm1 = bs.Scenario(
        bs.Poisson(MM1_RATE * 1000), bs.SizeOrWait(1, 0), bs.Affine(1, 0).with_noise(1, "exponential")
    )

    def row(rounds: int) -> Row:
        # The same queue: the same mean time in system, 1 / (1 - 0.8) = 5 service times.
        means = theirs(customers, 0), bs.simulate(mm1, customers).mean_latency_ms
        assert all(abs(mean - 5) < 0.5 for mean in means), means
        seeds = count()  # another run each time: the arrivals of the last ones are kept
        mine, other = in_turn(
            rounds,
            lambda: bs.simulate(mm1, customers, seed=next(seeds)).mean_latency_ms,
            lambda: theirs(customers, 0),
        )
        detail = (
            f"{customers / mine / 1e6:.1f} million against {customers / other / 1e3:.0f} thousand customers/s"
        )
        return Row(
            f"M/M/1 of 100,000 customers, against {name} {version(name)}", other / mine, 100, 1000, detail
        )

    return row


def floors(rounds: int) -> list[Row]:
    """How far each way of running is from the least that a run can take."""
    return [
        Row(f"{name}, against the floor", ns / floor_ns, bar, 1, f"{ns:.1f} against {floor_ns:.1f} ns", True)
        for name, ns, floor_ns, bar in floor.measured(rounds)
    ]


ROWS: dict[str, Callable[[int], Row | list[Row]]] = {
    "floor": floors,
    "one-run": one_run,
    "against-simpy": against_simpy,
    "simpy-itself": simpy_itself,
    "surface": heat_map,
    "sweep": sweep,
    "tune": tune,
    "memory": memory,
    "servers-rules": servers_rules,
    "tokens": tokens,
    "measured-run": measured_run,
    "ciw": against_others("ciw", ciw_mm1),
    "salabim": against_others("salabim", salabim_mm1),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("rows", nargs="*", choices=[*ROWS, []], help="which rows; all of them if none")
    parser.add_argument("--rounds", type=int, default=5, help="how many rounds count (default 5)")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")  # of the other simulators
    packages = ", ".join(f"{name} {version(name)}" for name in ("numpy", "numba", "simpy"))
    print(f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}, {packages}\n")
    print("| what | figures | ratio | bar | aim | |\n|---|---|---|---|---|---|")
    missed = 0
    for name in arguments.rows or ROWS:
        found = ROWS[name](arguments.rounds)
        for row in found if isinstance(found, list) else [found]:
            missed += not row.met
            print(row, flush=True)
    sys.exit(missed > 0)


if __name__ == "__main__":
    main()
