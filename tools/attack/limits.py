"""Runs in a process that may allocate little: each ends with its numbers, or with a MemoryError."""

import random
import warnings
from pathlib import Path

from runs import processes

import batchsim as bs


def attack_limits(rng: random.Random, _: Path) -> str:
    """A run of random extent is whole, without its steps if need be, or refused; the process lives."""
    seed, limit = rng.random(), rng.choice(["RLIMIT_AS", "RLIMIT_DATA"])
    ours, theirs = processes.Pipe()
    process = processes.Process(target=_limited, args=(seed, limit, rng.choice([150, 300, 600]), theirs))
    process.start()
    theirs.close()
    try:
        assert ours.poll(100), "no answer"
        outcome = ours.recv()
    except EOFError:
        raise AssertionError(f"the process died: {seed}") from None
    finally:
        process.kill()
        process.join()
    assert not outcome.startswith("failed"), f"{outcome} {seed}"
    return outcome


def _limited(seed: float, limit: str, megabytes: int, pipe) -> None:
    import resource

    warnings.simplefilter("ignore")
    rng = random.Random(seed)
    tokens = bs.Scenario(
        bs.Poisson(rng.choice([0.1, 5])), bs.Continuous(), bs.StepTime(1, 8, 0.1), tokens=bs.Tokens(100, 200)
    )
    plain = bs.Scenario(bs.Poisson(800), bs.SizeOrWait(8, 5), bs.Affine(5, 0.25))
    scenario = rng.choice([tokens, plain])
    bs.simulate(scenario, 100)  # loads the loops
    place = {"RLIMIT_AS": 0, "RLIMIT_DATA": 5}[limit]
    used = int(Path("/proc/self/statm").read_text().split()[place]) * resource.getpagesize()
    resource.setrlimit(getattr(resource, limit), (used + megabytes * 10**6,) * 2)
    requests = rng.choice([1_000, 10_000, 30_000] if scenario is tokens else [10**4, 10**6, 3 * 10**6])
    try:
        result = bs.simulate(scenario, requests)
        assert result.summary()["requests"] == requests
        pipe.send("whole")
    except MemoryError as error:
        # One that the estimate did not foresee says nothing.
        pipe.send(
            "refused"
            if "must fit in memory" in str(error)
            else f"failed: {error!r} {requests} {scenario!r:.30}"
        )
    except BaseException as error:
        pipe.send(f"failed: {error!r:.200}")
