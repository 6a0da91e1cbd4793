"""The suite with random inputs, many more of them, in random order, until time is up. Run by `make fuzz`."""

import argparse
import random
import shlex
import subprocess
import sys
import time

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--minutes", type=float, default=30, help="begin no round after this many minutes")
parser.add_argument("--examples", type=int, default=20, help="times the number of examples of `make test`")
parser.add_argument("--seed", type=int, help="of the first round (default: another each time)")
parser.add_argument("tests", nargs="*", help="files or tests (default: all but the browser's)")


def chosen(seed: int, examples: int) -> list[str]:
    """Return the options that decide what a round does: the same seed draws and orders the same."""
    order = ["-p", "randomly", f"--randomly-seed={seed}"]
    return [*order, "--hypothesis-profile=fuzz", f"--hypothesis-seed={seed}", f"--examples={examples}"]


def main() -> int:
    asked = parser.parse_args()
    seed = random.SystemRandom().randrange(2**32) if asked.seed is None else asked.seed
    parallel = ["-n", "auto", "--maxprocesses=4", "--dist=worksteal"]
    begin, rounds = time.monotonic(), 0
    while rounds == 0 or time.monotonic() - begin < 60 * asked.minutes:
        options = chosen(seed, asked.examples)
        print(
            f"Round {rounds + 1}, seed {seed}, after {(time.monotonic() - begin) / 60:.0f} minutes",
            flush=True,
        )
        pytest = [sys.executable, "-m", "pytest"]
        command = [*pytest, "-q", *parallel, *options, "--ignore=tests/browser", *asked.tests]
        if done := subprocess.run(command).returncode:
            print("To repeat it, name the test that failed, or leave it out to repeat the order too:")
            print(shlex.join([*pytest, *options]), "TEST")
            return done
        rounds, seed = rounds + 1, (seed + 1) % 2**32
    print(f"Nothing found in {(time.monotonic() - begin) / 60:.0f} minutes, rounds: {rounds}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
