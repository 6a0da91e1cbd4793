"""CONTRIBUTING's recipe for a metric with a new sum, followed literally in a copy of the package."""

import re

import pytest
from places import DATA
from project_copies import CONTRIBUTING, NUMBERS, changed, copied, python

pytestmark = pytest.mark.plain  # a copy compiles each loop again

RECIPE = re.compile(r"\| a metric that needs a new sum \| (\w+) files: (.*) \|\n")
SERVICE = "--max-wait-ms", 5, "--fixed-ms", 5, "--per-item-ms", 0.25
# The lines that are added, and the line above each.
LINES = {
    "result/metrics.py": (
        "    _percentile(99, interval=True),\n",
        '    Metric(\n        "rms_latency_ms", "RMS latency", "ms", "lower", interval=True,\n'
        "        value=lambda of: np.sqrt(np.divide(of.totals.squares, of.served)) * 1000,\n    ),\n",
    ),
    "engines/totals.py": ("    off_device_s: Seconds = 0.0", "    squares: Seconds = np.nan\n"),
    "engines/compiled/sums.py": (
        "                taken += own\n",
        "                sums.squares[part] += (own * 1e-9) ** 2\n",
    ),
    "engines/compiled/token_totals.py": (
        "    sums.parts_s[part, 3] += done_s - now_s\n",
        "    sums.squares[part] += (done_s - at_s) ** 2\n",
    ),
}

CHECK = """
import math
import sys

import numpy as np

import batchsim as bs

KEY = "rms_latency_ms"
scenario = bs.Scenario(bs.Poisson(500), bs.SizeOrWait(8, 5), bs.Affine(5, 0.25))
lengths = bs.Tokens(20, bs.Geometric(5))
tokens = bs.Scenario(bs.Poisson(10), bs.Continuous(8), bs.StepTime(5, 1, 0.1), tokens=lengths)
for each in (scenario, tokens):
    kept, summed = (bs.simulate(each, 900, keep=keep) for keep in ("all", "summary"))
    truth_ms = math.sqrt(np.mean(kept.latency_ms**2))
    for result in (kept, summed):
        assert math.isclose(result.summary()[KEY], truth_ms, rel_tol=1e-9), result.summary()
    summed.save("run.npz")
    assert bs.Result.load("run.npz").summary()[KEY] == summed.summary()[KEY]
    low, high = bs.simulate(each, 900, keep="summary", replications=9).interval(KEY)
    assert 0 < low < high
for earlier in sys.argv[1:]:
    assert math.isnan(bs.Result.load(earlier).summary()[KEY])
table = bs.sweep(scenario, {"max_wait_ms": [0, 5]}, requests=900, progress=False)
assert {KEY, f"{KEY}_low", f"{KEY}_high"} <= {*table}, list(table)
assert KEY in bs.compare(kept, kept).rows
panel = bs.explore(requests=300)
assert panel.result.summary()[KEY] > 0
print("works")
"""


@pytest.fixture(scope="module")
def copy(tmp_path_factory):
    folder = copied(tmp_path_factory.mktemp("metric"), "batchsim")
    package = folder / "batchsim"
    for name, (above, line) in LINES.items():
        before, _, after = (package / name).read_text().partition(above)
        rest, _, after = after.partition("\n") if not above.endswith("\n") else ("", "", after)
        end = f"{rest}\n" if not above.endswith("\n") else ""
        (package / name).write_text(before + above + end + line + after)
    return folder


def run(folder, *command):
    """Run Python in the copy, without compiling its loops."""
    return python(folder, *command, NUMBA_DISABLE_JIT="1")


def test_the_recipe_names_the_files_that_change(copy):
    ((count, files),) = RECIPE.findall(CONTRIBUTING)
    names = {name.removeprefix("batchsim/") for name in changed(copy)}
    assert names == {*LINES}
    assert len(names) == NUMBERS[count]
    assert all(f"`{name}`" in files for name in names)


def test_the_metric_is_in_runs_sweeps_files_and_the_explorer(copy):
    earlier = sorted((DATA / "results").glob("*.npz"))
    assert earlier
    done = run(copy, "-c", CHECK, *earlier)
    assert done.stdout.endswith("works\n"), done.stdout + done.stderr


def test_the_shell_prints_it(copy):
    done = run(copy, "-m", "batchsim", "simulate", "--rate-per-s", 500, "--requests", 900, *SERVICE)
    assert "RMS latency" in done.stdout, done.stdout + done.stderr
