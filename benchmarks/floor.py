"""The floor of a run, and how far from it each way of running is: python benchmarks/bench.py floor.

The floor is a Numba loop of thirty lines: it draws from NumPy's stream, forms the batches of one server under
the textbook's rule, and keeps a histogram, block by block in memory that is used again.
"""

import time
from collections.abc import Callable, Iterator
from itertools import count

import numba
import numpy as np

import batchsim as bs
from batchsim.study.surface import surface

BLOCK, BINS = 1 << 13, 1 << 14
LONGEST_MS = 80  # of the histogram
SCENARIO = bs.Scenario(bs.Poisson(800), bs.SizeOrWait(32, 10), bs.Affine(5, 0.25))
TOKENS = bs.Scenario(
    bs.Poisson(3), bs.Continuous(), bs.published("llama-3.1-8b/rtx-4090"), tokens=bs.Tokens(300, 50)
)


@numba.njit(nogil=True)
def _floor(generator, requests, rate_per_s, largest, wait_s, fixed_s, per_item_s, counts, a_bin, block):
    sum_of_gaps = free = total = 0.0
    filled = done = 0
    while done < requests:
        for place in range(filled, min(block.size, requests - done)):
            sum_of_gaps += generator.standard_exponential()
            block[place] = np.round(sum_of_gaps / rate_per_s * 1e9)
        filled, head = min(block.size, requests - done), 0
        last = done + filled == requests
        while head < filled and (last or head + largest <= filled):
            ready = block[head] + wait_s * 1e9
            if head + largest <= filled:
                ready = min(ready, block[head + largest - 1])
            now, end = max(ready, free), head + 1
            while end < min(head + largest, filled) and block[end] <= now:
                end += 1
            free = now + np.round((fixed_s + per_item_s * (end - head)) * 1e9)
            for place in range(head, end):
                total += free - block[place]
                counts[min(int((free - block[place]) * a_bin), counts.size - 1)] += 1
            head = end
        for place in range(filled - head):
            block[place] = block[head + place]
        done, filled = done + head, filled - head
    return total


def floor(requests: int) -> tuple[float, np.ndarray]:
    """Run the floor; return the mean latency in ms, and the histogram."""
    generator = np.random.default_rng(np.random.SeedSequence(0).spawn(1)[0])
    a_bin, counts = BINS / LONGEST_MS / 1e6, np.zeros(BINS, np.int64)
    total = _floor(generator, requests, 800.0, 32, 0.01, 0.005, 0.00025, counts, a_bin, np.empty(BLOCK))
    return total / requests / 1e6, counts


def check(requests: int) -> None:
    """Assert that the floor runs the very scenario: the same mean, and the same p99 to the width of a bin."""
    mean_ms, counts = floor(requests)
    kept = bs.simulate(SCENARIO, requests)
    assert abs(mean_ms / kept.mean_latency_ms - 1) < 1e-12, (mean_ms, kept.mean_latency_ms)
    edge_ms = np.searchsorted(np.cumsum(counts), 0.99 * (requests - 1)) * LONGEST_MS / BINS
    assert abs(edge_ms - kept.percentile(99)) < 2 * LONGEST_MS / BINS, (edge_ms, kept.percentile(99))


Ways = dict[str, tuple[Callable[[], object], int, float]]


def ways() -> tuple[Ways, Ways]:
    """Return runs and studies by name, with their requests (or steps) and the bar: a ratio to the floor."""
    many, few, rates, seeds = 2_000_000, 100_000, count(700), count(1)
    axes = {"max_batch_size": [8, 16, 32, 64], "max_wait_ms": list(range(10))}
    sizes, waits_ms = [1, 2, 4, 6, 8, 12, 16, 20, 24, 32, 48, 64], [0, 0.5, 1, 2, 3, 5, 7, 10, 15, 20, 30, 50]
    slo, grid, steps = bs.SLO(p99_ms=40), 40 * few, len(bs.simulate(TOKENS, 2000).steps)

    def heat_map() -> object:
        return surface(SCENARIO.replace(rate_per_s=next(rates)), sizes, waits_ms, 20_000)

    def sweep() -> object:
        return bs.sweep(SCENARIO, axes, few, progress=False, workers=1)

    def ten_runs() -> object:
        return [str(bs.simulate(SCENARIO, few, seed=next(seeds))) for _ in range(10)]

    runs = {
        "latencies, 2,000,000": (lambda: bs.simulate(SCENARIO, many).latency_ms, many, 2.2),
        "summary, 2,000,000": (lambda: bs.simulate(SCENARIO, many, keep="summary"), many, 1.9),
        "all numbers, 2,000,000": (lambda: str(bs.simulate(SCENARIO, many)), many, 2.6),
        "all numbers, ten times 100,000": (ten_runs, 10 * few, 3.2),
    }
    studies = {
        "map, 144 settings x 20,000 with exact p99": (heat_map, 144 * 20_000, 1),
        "sweep, 40 settings x 100,000 with intervals": (sweep, grid, 5),
        "search, 40 settings x 100,000": (lambda: bs.tune(SCENARIO, slo, axes, requests=few), grid, 8),
        "tokens, a step": (lambda: bs.simulate(TOKENS, 2000).finish_s, steps, 100),
    }
    return runs, studies


def measured(rounds: int) -> Iterator[tuple[str, float, float, float]]:
    """Yield names, the nanoseconds a request (or step), the floor's and the bar.

    They are the least processor seconds of some rounds: other programs only add to them. Runs are in turn
    with the floor, and then studies, which leave memory in other states. The floor's seconds are those of its
    thread, as the threads of a library for matrices still spin after the task before it.
    """
    check(200_000)
    requests = 2_000_000
    for group in ways():
        tasks = {"floor": lambda: floor(requests), **{name: task for name, (task, _, _) in group.items()}}
        least_s = dict.fromkeys(tasks, float("inf"))
        for round_ in range(rounds + 1):  # the first compiles
            for name, task in tasks.items():
                clock = time.thread_time if name == "floor" else time.process_time
                begin = clock()
                task()
                if round_:
                    least_s[name] = min(least_s[name], clock() - begin)
        floor_ns = least_s["floor"] / requests * 1e9
        for name, (_, number, bar) in group.items():
            yield name, least_s[name] / number * 1e9, floor_ns, bar
