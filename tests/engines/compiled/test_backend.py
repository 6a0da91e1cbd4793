"""Without Numba, as in a browser: the same loops in plain Python give the same bits."""

import hashlib
import subprocess
import sys

import numpy as np

import batchsim as bs
from batchsim import _compat, _workers

TOKENS = bs.Tokens(bs.Lognormal(60, 1, at_most=300), bs.Geometric(15, at_most=60))
SCENARIOS = [
    bs.Scenario(bs.Poisson(900), bs.SizeOrWait(8, 5), bs.Affine(5, 0.5), servers=2),
    bs.Scenario(bs.Poisson(900), bs.SizeOrWait(8, 5), bs.Affine(5, 0.5), queue_limit=20),
    bs.Scenario(bs.Gamma(300, 2), bs.LearnedSizes(8, 20), bs.Affine(5, 0.5).with_noise(0.3)),
    bs.Scenario(bs.Poisson(3), bs.Continuous(8, kv_blocks=60), bs.StepTime(7, 10, 0.1), tokens=TOKENS),
]
ALONE = """
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("numba", "llvmlite", "psutil"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name.partition(".")[0])
sys.meta_path.insert(0, Absent())
from batchsim import _compat
_compat.IN_BROWSER = True
from engines.compiled.test_backend import bits
print(bits(), "numba" in sys.modules)
"""


def bits():
    """Return a checksum of the columns and the numbers of some runs."""
    found = hashlib.sha256()
    for scenario in SCENARIOS:
        result = bs.simulate(scenario, 200, seed=1, engine="compiled", replications=2)
        for name in ("arrival_s", "start_s", "finish_s", "batch_index", "status"):
            found.update(np.ascontiguousarray(getattr(result, name)).tobytes())
        kept = bs.simulate(scenario, 200, seed=1, keep="summary")
        found.update(repr([result.summary(), kept.summary()]).encode())
    return found.hexdigest()


def test_runs_are_the_same_to_the_bit():
    command = [sys.executable, "-c", ALONE]
    done = subprocess.run(command, capture_output=True, text=True, cwd="tests", check=False)
    assert done.stdout.split() == [bits(), "False"], done.stderr


def test_a_call_is_made_where_there_are_no_threads(monkeypatch):
    monkeypatch.setattr(_compat, "IN_BROWSER", True)
    with _workers.threads(4, "test") as crew:
        assert list(crew.map(divmod, [7, 8], [2, 3])) == [(3, 1), (2, 2)]
        failed = crew.submit(divmod, 1, 0)
    assert isinstance(failed.exception(), ZeroDivisionError)
