"""Random attacks on what must lose nothing and report nothing wrong, until time is up. Run by `make attack`.

Each attempt draws from a generator of its own, seeded by the seed, the attack and its number, so that one
that found something can be repeated alone.
"""

import argparse
import math
import os
import random
import sys
import tempfile
import time
import traceback
import warnings
from dataclasses import dataclass, field
from pathlib import Path

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("MPLBACKEND", "agg")

from attack.addresses import attack_addresses
from attack.app import attack_app
from attack.batcher import attack_batcher
from attack.cache import attack_cache
from attack.configs import attack_argument, attack_bomb, attack_config
from attack.executors import attack_executor
from attack.files import attack_measurement, attack_result, attack_scenario, attack_trace
from attack.grading import attack_grading
from attack.limits import attack_limits
from attack.links import attack_link
from attack.models import attack_model
from attack.readers import attack_readers, report
from attack.shell import attack_shell
from attack.sweep import attack_sweep
from attack.terminal import attack_terminal

# What is attacked, and the share of the time.
ATTACKS = {
    "the app's sockets": (attack_app, 0.08),
    "the app's addresses": (attack_addresses, 0.03),
    "servers' files, edited": (attack_config, 0.06),
    "servers' files that grow": (attack_bomb, 0.06),
    "pipes, devices and huge files as arguments": (attack_argument, 0.04),
    "sweeps killed, their folders damaged": (attack_sweep, 0.14),
    "compiled loops on disk, damaged": (attack_cache, 0.10),
    "result files, damaged and edited": (attack_result, 0.08),
    "scenarios, edited": (attack_scenario, 0.08),
    "traces, damaged": (attack_trace, 0.03),
    "measurements, edited": (attack_measurement, 0.03),
    "commands in the shell": (attack_shell, 0.06),
    "hand-ins of a class, edited": (attack_grading, 0.03),
    "executors that fail": (attack_executor, 0.03),
    "models that change while they are measured": (attack_model, 0.02),
    "runs in little memory": (attack_limits, 0.04),
    "texts that terminals obey": (attack_terminal, 0.05),
    "readers of all files": (attack_readers, 0.05),
    "links": (attack_link, 0.04),
    "batchers shared by threads": (attack_batcher, 0.06),
}

MOST = 10  # findings of one attack: then it stops

parser = argparse.ArgumentParser(prog="python -m attack", description=__doc__)
parser.add_argument("--minutes", type=float, default=9, help="how long, all in all")
parser.add_argument("--seed", type=int, help="what all is drawn from (default: another each time)")
parser.add_argument("--only", help="attacks whose name contains this")
parser.add_argument("--attempts", type=int, help="so many of each attack, instead of its share of the time")
parser.add_argument("--number", type=int, help="only this attempt of each")


@dataclass
class Tally:
    """What came of an attack's attempts."""

    tried: int = 0
    outcomes: dict[str, int] = field(default_factory=dict)
    lost: list[str] = field(default_factory=list)


def run(
    name: str, seed: int, seconds: float, number: int | None, folder: Path, attempts: int | None
) -> Tally:  # fmt: skip
    """Make so many attempts, or until time is up; at least one."""
    attempt, tally = ATTACKS[name][0], Tally()
    until = time.monotonic() + (seconds if attempts is None else math.inf)
    numbers = [number] if number is not None else range(attempts or sys.maxsize)
    for place in numbers:
        generator = random.Random(f"{seed} {name} {place}")
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                outcome = attempt(generator, folder)
            tally.outcomes[outcome] = tally.outcomes.get(outcome, 0) + 1
        except Exception as error:  # whatever it is: nothing of the kind may escape
            tally.lost.append(f"--seed {seed} --only '{name}' --number {place}: {error!r:.300}")
            if number is not None:
                traceback.print_exc()
        tally.tried += 1
        if time.monotonic() > until or (attempts is None and len(tally.lost) == MOST):
            break
    return tally


def main() -> int:
    asked = parser.parse_args()
    seed = random.SystemRandom().randrange(2**32) if asked.seed is None else asked.seed
    names = [name for name in ATTACKS if (asked.only or "") in name]
    total = sum(ATTACKS[name][1] for name in names)
    found: list[str] = []
    print(f"Seed {seed}, {asked.minutes:g} minutes\n\n| attacked | attempts | outcomes | lost or wrong |")
    print("|---|---|---|---|")
    for name in names:
        seconds = 60 * asked.minutes * ATTACKS[name][1] / total
        with tempfile.TemporaryDirectory() as folder:
            tally = run(name, seed, seconds, asked.number, Path(folder), asked.attempts)
        outcomes = ", ".join(f"{count:,} {outcome}" for outcome, count in sorted(tally.outcomes.items()))
        print(f"| {name} | {tally.tried:,} | {outcomes} | {len(tally.lost)} |", flush=True)
        found += tally.lost
    print(*report(), "", *found, sep="\n")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
