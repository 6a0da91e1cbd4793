"""Runs that several tests look at: small ones to check by hand, and a busy one with or without losses."""

import multiprocessing
import os
import subprocess
import sys
import textwrap
import warnings

import batchsim as bs

SECOND = 1000.0  # ms


def run(times_s, size, wait_s, service_s, warmup=0.0, per_item_s=0.0, **knobs):
    rule = bs.SizeOrWait(size, wait_s * SECOND)
    service = bs.Affine(service_s * SECOND, per_item_s * SECOND)
    return bs.simulate(bs.Scenario(bs.Trace(times_s), rule, service, **knobs), warmup=warmup)


def busy_run(**knobs):
    scenario = bs.Scenario(bs.Poisson(900), bs.SizeOrWait(8, 5), bs.Affine(5, 0.5), servers=2)
    return bs.simulate(scenario.replace(knobs.pop("replace", {})), knobs.pop("requests", 3000), **knobs)


def lossy_run():
    limits = {"queue_limit": 20, "timeout_ms": 12, "rate_per_s": 2500}
    return busy_run(replace=limits, seed=1)


# Its processes start from one that has loaded everything and has no threads yet: at once, where a Python of
# one's own loads for two seconds.
processes = multiprocessing.get_context("forkserver")
processes.set_forkserver_preload(
    ["batchsim.study.sweep", "batchsim.study.store", "batchsim.engines.compiled.engine", "runs"]
)


def execute(code, stderr, *arguments):
    """Run code in a process of its own, with a file as its stderr; warnings are errors."""
    with open(stderr, "w") as file:
        os.dup2(file.fileno(), 2)
    warnings.simplefilter("error")
    sys.argv[1:] = arguments
    exec(code, {"__name__": "__main__"})
    sys.stderr.flush()


def in_python(code, **environment):
    """Start a process of its own, with more in its environment."""
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code)],
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
