"""Real runs on this machine beside their simulation: what `make fidelity` writes into VALIDATION.md.

The section stays in `fidelity.md` beside this file, from which `make validate` takes it.
"""

import os
import platform
import re
import statistics
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import jax
import numpy as np

import batchsim as bs
from batchsim.device import Fidelity, load_model, replay
from batchsim.device.fidelity import LIMIT_S, beside_simulation, measure_for, service_of
from batchsim.device.replay import OTHERS
from batchsim.result.metrics import heading

TABLES = Path(__file__).with_suffix(".md")
TITLE = "A real run on this machine"
MODELS = ("mlp", "convnet", "transformer")
LOADS = (0.5, 0.8)
RULE = bs.SizeOrWait(max_batch_size=16, max_wait_ms=5)
REPEATS = 3
WITHIN = {"mean_latency_ms": 0.10, "mean_batch_size": 0.10, "p99_ms": 0.25}
COLD_WITHIN = 0.20
COLD_S = 10.0

TEXT = f"""`make fidelity` measures a model as a server gives it (`bs.device.measure(model, served=True)`:
through the batcher, beside the thread that sends), half before and half after a replay of arrivals on the
wall clock with the real model, and simulates the same arrivals with that service time, its noise and how
long the noise lasts (`bs.device.compare_with_simulation`): Poisson arrivals, batches of at most
{RULE.max_batch_size}, a wait of {RULE.max_wait_ms} ms. Load 1 is what the server carries as it was measured
before. The error is that of the simulated value,
relative to the replayed one: the median of {REPEATS} repeats, each with a measurement and a seed of its own,
and in brackets each of them. A row is **within** if it is at most {WITHIN["mean_latency_ms"]:.0%} (mean
latency, batch size), {WITHIN["p99_ms"]:.0%} (p99) or {COLD_WITHIN:.0%} (compiling). Repeats whose requests
were sent too late, or beside which other programs took more than a tenth of the processors, have no verdict.
Nothing is subtracted, and nothing of a replay goes into its simulation.

Where a difference comes from stands below, medians of the replays: how many times as long as measured batches
of the same sizes took, from when they could start until their answers were handed back; of that, the
batcher's own time (stacking, fetching, Python) and the time until it started; how a batch's time correlates
with the next one's, in the replay and as it was measured; and the error of a simulation whose batches are
slower by the first number.
"""


@dataclass(frozen=True)
class Row:
    """A metric of several repeats: replayed and simulated values, and the errors."""

    what: str
    replayed: float
    simulated: float
    errors: tuple[float, ...]
    within: float
    disturbed: int = 0

    @property
    def error(self) -> float:
        return sorted(self.errors, key=abs)[len(self.errors) // 2]

    @property
    def verdict(self) -> str:
        if self.disturbed == len(self.errors):
            return "disturbed"
        return "within" if abs(self.error) <= self.within else "**misses**"

    def __str__(self) -> str:
        each = ", ".join(f"{error:+.1%}" for error in self.errors)
        cells = (self.what, f"{self.replayed:.4g}", f"{self.simulated:.4g}", f"{self.error:+.1%} ({each})")
        return f"| {' | '.join(cells)} | {self.verdict} |"


def of_repeats(name: str, load: float, repeats: list[Fidelity]) -> Iterator[Row]:
    """Yield the rows of one model at one load; disturbed repeats count only if there are no others."""
    quiet = [each for each in repeats if not each.disturbed] or repeats
    for key, within in WITHIN.items():
        replayed, simulated = (
            statistics.median(getattr(each, part).metrics.number(key) for each in quiet)
            for part in ("replayed", "simulated")
        )
        errors = tuple(each.difference(key) for each in quiet)
        disturbed = len(quiet) if quiet[0].disturbed else 0
        yield Row(f"{name}, load {load}: {heading(key)}", replayed, simulated, errors, within, disturbed)


def explanation(name: str, load: float, repeats: list[Fidelity]) -> str:
    """Return a row of what the replays found besides the measurement."""

    def middle(read) -> float:
        return statistics.median(map(read, repeats))

    def unexplained(each: Fidelity) -> float:
        return each.explained.mean_latency_ms / each.replayed.mean_latency_ms - 1

    cells = (
        f"{name}, load {load}",
        f"{middle(lambda each: each.replayed.scenario.workload.offered_per_s):,.0f}",
        f"{middle(lambda each: each.slower):.3f} ({', '.join(f'{each.slower:.3f}' for each in repeats)})",
        f"{1000 * middle(lambda each: each.replayed.own_ms):.0f}",
        f"{1000 * middle(lambda each: each.replayed.reaction_ms):.0f}",
        f"{middle(lambda each: each.together):.2f}, "
        f"{middle(lambda each: each.simulated.scenario.service.noise.correlation):.2f}",
        f"{1000 * middle(lambda each: np.percentile(each.replayed.late_ms, 99)):.0f}",
        f"{middle(lambda each: each.replayed.others):.0%}",
        f"{middle(unexplained):+.1%}",
    )
    return f"| {' | '.join(cells)} |"


def compiled(result: bs.Result) -> tuple[int, float]:
    """Return how many sizes occurred, and how long their first batches computed beyond usual ones, in all."""
    sizes, took_s = result.batches.batch_size, result.batches.finish_s - result.batches.start_s
    total_s, different = 0.0, np.unique(sizes)
    for size in different:
        first, *others = took_s[sizes == size]
        total_s += first - (np.median(others) if others else 0.0)
    return different.size, float(total_s)


@dataclass(frozen=True)
class Cold:
    """A cold start, replayed and simulated: how many sizes compiled, and for how many seconds in all."""

    replayed: tuple[int, float]
    simulated: tuple[int, float]
    others: float

    @classmethod
    def run(cls, model, scenario: bs.Scenario, measurement, requests: int, seed: int) -> "Cold":
        service = scenario.service.compiling(measurement.compiling())
        simulated = bs.simulate(scenario.replace(service=service), requests, seed)
        real = replay(scenario, model, requests, seed, warm=False)
        return cls(compiled(real), compiled(simulated), real.others)

    @property
    def each(self) -> float:
        """How much longer one size compiles in the simulation, as a fraction."""
        (sizes, seconds), (expected, expected_s) = self.replayed, self.simulated
        return expected_s / expected / (seconds / sizes) - 1


def of_cold_starts(name: str, starts: list[Cold]) -> tuple[Row, str]:
    """Return the row of a model's cold starts, and what explains it."""
    quiet = [start for start in starts if start.others <= OTHERS] or starts
    replayed_s, simulated_s = (
        statistics.median(getattr(start, part)[1] for start in quiet) for part in ("replayed", "simulated")
    )
    errors = tuple(start.simulated[1] / start.replayed[1] - 1 for start in quiet)
    disturbed = len(quiet) * (quiet[0].others > OTHERS)
    row = Row(
        f"{name}, cold start: compiling in all (s)", replayed_s, simulated_s, errors, COLD_WITHIN, disturbed
    )
    sizes = (", ".join(str(getattr(start, part)[0]) for start in quiet) for part in ("replayed", "simulated"))
    each = ", ".join(f"{start.each:+.1%}" for start in quiet)
    return row, f"| {' | '.join([name, *sizes, each])} |"


def section(seconds: float, say=print) -> tuple[str, list[Row]]:
    """Return the section's text and its rows, from runs of so many seconds each."""
    rows: list[Row] = []
    explanations: list[str] = []
    sizes: list[str] = []
    for name in MODELS:
        model = load_model(name)
        by_load: dict[float, list[Fidelity]] = {load: [] for load in LOADS}
        starts: list[Cold] = []
        for seed in range(REPEATS):
            for load, repeats in by_load.items():
                # Anew for each run: a processor is faster in one minute than in another.
                measurement = measure_for(model, RULE.max_batch_size, limit_s=LIMIT_S / 2)
                known = bs.Scenario(bs.Poisson(1), RULE, service_of(measurement))
                scenario = known.replace(rate_per_s=load * known.saturation_per_s)
                count = max(100, round(seconds * scenario.workload.offered_per_s))
                real = replay(scenario, model, count, seed)
                after = measure_for(model, RULE.max_batch_size, limit_s=LIMIT_S / 2)
                repeats.append(beside_simulation(measurement.joined(after), real, model))
                say(repeats[-1], end="\n\n")
            # So long that most sizes occur: how many did in both is less a matter of chance.
            scenario = known.replace(rate_per_s=LOADS[0] * known.saturation_per_s)
            count = max(100, round(COLD_S * scenario.workload.offered_per_s))
            starts.append(Cold.run(model, scenario, measurement, count, seed))
            say(starts[-1], end="\n\n")
        for load, repeats in by_load.items():
            rows += of_repeats(name, load, repeats)
            explanations.append(explanation(name, load, repeats))
        row, of_sizes = of_cold_starts(name, starts)
        rows.append(row)
        sizes.append(of_sizes)
        for each in rows[-len(WITHIN) * len(LOADS) - 1 :]:
            say(each)
    where = f"{model.device}, {processor()}, jax {jax.__version__}, {datetime.now(UTC):%Y-%m-%d}"
    parts = [
        f"\n## {TITLE}\n\n{TEXT}\nOn {where}, {seconds:g} s a run, {COLD_S:g} s a cold start.\n",
        "| what | replayed | simulated | error | |\n|---|---|---|---|---|",
        *map(str, rows),
        "\n| run | requests/s | slower by | own (µs) | until it started (µs) | correlation | "
        "p99 of sends (µs late) | other programs | error of the mean with this |\n" + "|---" * 9 + "|",
        *explanations,
        "\n| cold start | sizes compiled | simulated | error of the time of one |\n|---|---|---|---|",
        *sizes,
    ]
    return "\n".join(parts) + "\n", rows


def processor() -> str:
    """Return the name of this machine's processor."""
    info = Path("/proc/cpuinfo")
    found = re.search(r"^model name\s*: (.+)$", info.read_text(), re.MULTILINE) if info.exists() else None
    return f"{found[1] if found else platform.machine()} ({os.cpu_count()} cores)"


def put_into(page: str, text: str, before: str) -> str:
    """Return VALIDATION.md with this section, in place of the old one or before another."""
    page = re.sub(rf"\n## {re.escape(TITLE)}\n.*?(?=\n## |\Z)", "", page, flags=re.DOTALL)
    head, title, rest = page.partition(f"\n## {before}\n")
    return head + text + title + rest
