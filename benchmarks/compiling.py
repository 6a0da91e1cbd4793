"""Compile seconds of every loop in an empty cache: python benchmarks/compiling.py.

The tasks run in turn in one new process, so that each compiles the loops that no task before it has needed.
"""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator

REQUESTS = 2000


def tasks() -> Iterator[tuple[str, Callable[[], object]]]:
    """Yield what a user may do first, and last what only some do."""
    import batchsim as bs
    from batchsim.scenario.rules import RULES
    from batchsim.study.surface import surface
    from batchsim.web.calls import usual

    base = bs.Scenario(bs.Poisson(800), bs.SizeOrWait(32, 10), bs.Affine(5, 0.25))
    limited, two = base.replace(queue_limit=100), base.replace(replicas=2)
    lengths = bs.Tokens(300, 50)
    service = bs.published("llama-3.1-8b/rtx-4090")
    tokens = bs.Scenario(bs.Poisson(5), bs.Continuous(), service, tokens=lengths)

    def run(scenario: bs.Scenario, **options: object) -> Callable[[], object]:
        return lambda: str(bs.simulate(scenario, REQUESTS if scenario.tokens is None else 300, **options))

    yield "README's first call", run(base)
    yield "its summary", run(base, keep="summary")
    yield "its map", lambda: surface(base, [4, 8], [1, 5], REQUESTS)
    yield "a queue limit", run(limited)
    yield "the map with a queue limit", lambda: surface(limited, [4, 8], [1, 5], REQUESTS)
    sized = bs.Poisson(800).with_sizes(bs.Geometric(50))
    yield "sizes", run(base.replace(workload=sized, service=bs.PaddedTime(5, 0.2, 0.001)))
    yield "priorities", run(base.replace(workload=bs.Poisson(800).with_priorities({1: 0.5, 2: 0.5})))
    for rule in RULES:
        yield rule.__name__, run(limited.replace(rule=usual(rule)))
    for routing in ("round_robin", "shortest_queue", "least_loaded"):
        yield f"replicas, {routing}", run(two.replace(routing=routing))
        yield f"replicas with a queue limit, {routing}", run(two.replace(routing=routing, queue_limit=100))
    yield "tokens", run(tokens)
    yield "tokens, summary", run(tokens, keep="summary")
    yield "replicas of tokens", run(tokens.replace(replicas=2, routing="least_loaded"))


def measure() -> None:
    """Print the seconds in the compiler of each task, and their sum."""
    from numba.core.event import install_recorder

    total = 0.0
    print("| task | seconds | loops |\n|---|---|---|")
    for name, task in tasks():
        with install_recorder("numba:compile") as recorder:
            begin = time.thread_time()
            task()
            taken = time.thread_time() - begin
        loops = {event.data["dispatcher"].py_func.__name__ for _, event in recorder.buffer if event.is_end}
        seconds = taken if loops else 0.0
        total += seconds
        print(f"| {name} | {seconds:.1f} | {len(loops)} |", flush=True)
    print(f"| sum | {total:.1f} | |")


if __name__ == "__main__":
    if sys.argv[1:] == ["here"]:
        measure()
    else:
        with tempfile.TemporaryDirectory() as folder:
            environment = {**os.environ, "NUMBA_CACHE_DIR": folder, "JAX_PLATFORMS": "cpu"}
            subprocess.run([sys.executable, __file__, "here"], env=environment, check=True)
