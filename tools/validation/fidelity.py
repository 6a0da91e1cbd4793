"""Real runs on this machine beside their simulation: what `make fidelity` writes into VALIDATION.md.

The section stays in `fidelity.md` beside this file, from which `make validate` takes it.
"""

import gc
import math
import os
import platform
import re
import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import jax
import numpy as np
import psutil

import batchsim as bs
from batchsim.device import Fidelity, Measurement, Replay, load_model, replay
from batchsim.measured.fidelity import LIMIT_S, beside_simulation, busy_in, measure_for, service_of
from batchsim.result.metrics import heading
from validation import predicted

TABLES = Path(__file__).with_suffix(".md")
TITLE = "A real run on this machine"
RULE = bs.SizeOrWait(max_batch_size=16, max_wait_ms=5)
REPEATS = 3
WITHIN = {"mean_latency_ms": 0.10, "mean_batch_size": 0.10, "p99_ms": 0.25, "padding": 0.02}
COLD_WITHIN = 0.20
# With real-time precedence, other programs have only what this one leaves of the processors.
AHEAD = hasattr(os, "sched_getparam") and os.sched_getparam(0).sched_priority > 0
COLD_S = 10.0
OTHERS = 0.1  # of the processors: beside more, a run proves nothing


@dataclass(frozen=True)
class Case:
    """A model and its scenario, without the rate and the service time; with `sizes`, of different lengths."""

    model: str
    loads: tuple[float, ...] = (0.5, 0.8)
    rule: Any = RULE
    sizes: Any = None
    padded: dict[str, tuple[int, ...]] = field(default_factory=dict)

    def measured(self, model: Any, load: float) -> Any:
        """Measure a model as busy as at this load, each of its lengths as long as one without lengths."""
        busy = busy_in(bs.Scenario(bs.Poisson(1), RULE, bs.Affine(1, 0)), load)
        limit_s = LIMIT_S / 2 * len(self.padded.get("lengths", [0]))
        return measure_for(model, self.rule.max_batch_size, None, limit_s, False, busy, model.lengths)


MODELS = {name: Case(name) for name in ("mlp", "convnet", "transformer")}
LENGTHS = {
    "transformer, lengths": Case(
        "transformer", (0.5,), bs.SizeOrWait(8, 5, max_batch_units=256), bs.Lognormal(40, cv=1, at_most=128),
        {"pad_to": (1, 2, 4, 8), "lengths": (16, 32, 64, 128)},
    )
}  # fmt: skip

TEXT = f"""`make fidelity` measures a model as a server gives it (`bs.device.measure(model, served=True)`:
through the batcher, beside the thread that sends, as busy as in the replay), half before and half after a
replay of arrivals on the wall clock with the real model, and simulates the same arrivals with that service
time, its noise and how long the noise lasts (`bs.device.compare_with_simulation`): Poisson arrivals, batches
of at most {RULE.max_batch_size}, a wait of {RULE.max_wait_ms} ms. Load 1 is what the server carries as it was
measured before. What is simulated is the median of 200 simulations of the same arrivals. The error is that of
the simulated value, relative to the replayed one: the median of {REPEATS} repeats, each with a measurement
and a seed of its own, and in brackets each of them. A row is **within** if it is at most
{WITHIN["mean_latency_ms"]:.0%} (mean latency, batch size), {WITHIN["p99_ms"]:.0%} (p99) or {COLD_WITHIN:.0%}
(compiling). Repeats whose requests were sent too late, or beside which other programs took more than a tenth
of the processors, have no verdict. Nothing is subtracted, and nothing of a replay goes into its simulation.

A run is one draw of chance: the simulations differ in their noise, and in the service times that the
measurement leaves possible (its blocks are drawn with replacement, and the machine is as fast as in one of
its stretches). 95 of 100 of them are in the interval, which is that of the repeat whose error is the median;
"inside" counts the repeats that were in theirs. An error beyond its bar within a wide interval says that such
a run cannot be predicted better on this machine; one outside of the interval is the simulator's.

{predicted.written()}
Where a difference comes from stands below, medians of the replays: how many times as long as measured batches
of the same sizes took, from when they could start until their answers were handed back; of that, the
batcher's own time (stacking, fetching, Python) and the time until it started; and the error of a simulation
whose batches are slower by the first number.
Below that stands each repeat, so that a reader can judge it: what other programs and other guests of the
host took of the processors while it was measured and replayed, and by how much the measurement after the
replay differs from that before it.
"""

OF_LENGTHS = """### Requests of different lengths

The same with a transformer whose batches are padded to the next of some sizes and lengths: requests are
lognormal with a mean of 40 tokens, a cv of 1, and at most 128; a batch has at most 8 requests and 256 units,
padding included. Each pair of size and length is measured (`measure(model, lengths=...)`), at a utilisation
of 70 %. A padding is within if its error is at most 2 points. On a busy machine, `chrt -r 1` before the
command gives the threads of the measurement, the replay and the model precedence over other programs, which
then get what is left: their share decides no verdict, but they still take from caches and memory.
"""
# Text, cases, and the file of their tables.
PARTS = (
    (f"## {TITLE}\n\n{TEXT}", MODELS, TABLES),
    (OF_LENGTHS, LENGTHS, TABLES.with_name("fidelity_lengths.md")),
)


@dataclass(frozen=True)
class Row:
    """A metric of several repeats: of the one whose error is the median the values, and all errors.

    `interval` is what was predicted for it, and `inside` has for each repeat whether it is in its own; there
    is none of a cold start.
    """

    what: str
    replayed: float
    simulated: float
    errors: tuple[float, ...]
    within: float
    disturbed: int = 0
    interval: tuple[float, float] | None = None
    inside: tuple[bool, ...] = ()

    @property
    def error(self) -> float:
        return self.errors[middle_of(self.errors)]

    @property
    def verdict(self) -> str:
        if self.disturbed == len(self.errors):
            return "disturbed"
        return "within" if abs(self.error) <= self.within else "**misses**"

    def __str__(self) -> str:
        each = ", ".join(f"{error:+.1%}" for error in self.errors)
        limits = "" if self.interval is None else f"{self.interval[0]:.4g} to {self.interval[1]:.4g}"
        inside = f"{sum(self.inside)} of {len(self.inside)}" if self.inside else ""
        values = f"{self.replayed:.4g}", f"{self.simulated:.4g}", limits, inside
        return f"| {' | '.join((self.what, *values, f'{self.error:+.1%} ({each})'))} | {self.verdict} |"


def middle_of(errors: Sequence[float]) -> int:
    """Return the place of the median by size; of an even number, of the larger one in the middle."""
    return sorted(range(len(errors)), key=lambda place: abs(errors[place]))[len(errors) // 2]


class Others:
    """The share of other programs and guests in the time of this program's processors, since its creation."""

    def __init__(self) -> None:
        self.begin_s, self.taken_s = time.perf_counter(), self._taken_s()

    def share(self) -> float:
        passed_s = (time.perf_counter() - self.begin_s) * len(self._processors())
        return min(max((self._taken_s() - self.taken_s) / passed_s, 0.0), 1.0)

    def _processors(self) -> set[int]:
        each = range(os.cpu_count() or 1)
        return os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set(each)

    def _taken_s(self) -> float:
        each = psutil.cpu_times(percpu=True)
        kinds = "user", "nice", "system", "irq", "softirq", "steal"  # a system may lack some
        busy_s = sum(getattr(each[cpu], kind, 0.0) for cpu in self._processors() for kind in kinds)
        return busy_s - time.process_time()


@dataclass(frozen=True)
class Surroundings:
    """What the machine did besides, from before a measurement until after the one behind the replay."""

    others: float
    drift: float  # how much longer batches took in the measurement after than in that before
    at: str

    @classmethod
    def of(cls, others: Others, before: Measurement, after: Measurement) -> "Surroundings":
        drift = math.exp(
            np.mean([np.log(after.median_ms[size] / ms) for size, ms in before.median_ms.items()])
        )
        return cls(others.share(), drift - 1, f"{datetime.now(UTC):%H:%M}")

    @property
    def busy(self) -> str:
        """Why nothing is proven beside such programs; they prove nothing wrong if they had to wait."""
        return "" if AHEAD or self.others <= OTHERS else f"other programs took {self.others:.0%}"


@dataclass(frozen=True)
class Repeat:
    """A replay beside its simulation, and what the machine did besides."""

    compared: Fidelity
    around: Surroundings

    @property
    def disturbed(self) -> str:
        """Why it proves nothing, or ""."""
        return self.around.busy or self.compared.disturbed

    def row(self, name: str, load: float, number: int) -> str:
        compared, around = self.compared, self.around
        keys = [key for key in WITHIN if key in compared.keys]
        errors = [f"{error_of(compared, key):+.1%}" for key in keys]
        inside = ["yes" if compared.inside(key) else "no" for key in keys]
        cells = (
            f"{name}, load {load}, {number}", around.at, f"{around.others:.0%}", f"{around.drift:+.1%}",
            f"{compared.slower:.3f}", ", ".join(errors), ", ".join(inside), self.disturbed,
        )  # fmt: skip
        return f"| {' | '.join(cells)} |"


def error_of(each: Fidelity, key: str) -> float:
    """Return the relative error of a metric; of the padding, a share, the error itself."""
    return each.difference(key) * (each.replayed.metrics.number(key) if key == "padding" else 1)


def of_repeats(name: str, load: float, repeats: list[Repeat]) -> Iterator[Row]:
    """Yield the rows of one model at one load; disturbed repeats count only if there are no others."""
    undisturbed = [each for each in repeats if not each.disturbed]
    quiet = [each.compared for each in undisturbed or repeats]
    for key, within in WITHIN.items():
        if key not in quiet[0].keys:
            continue
        errors = tuple(error_of(each, key) for each in quiet)
        shown = quiet[middle_of(errors)]
        yield Row(
            f"{name}, load {load}: {heading(key)}", shown.replayed.metrics.number(key), shown.predicted(key),
            errors, within, 0 if undisturbed else len(quiet), shown.interval(key),
            tuple(each.inside(key) for each in quiet),
        )  # fmt: skip


def explanation(name: str, load: float, repeats: list[Fidelity]) -> str:
    """Return a row of what the replays found besides the measurement."""

    def middle(read) -> float:
        return statistics.median(map(read, repeats))

    def unexplained(each: Fidelity) -> float:
        return each.explained_repeats.median("mean_latency_ms") / each.replayed.mean_latency_ms - 1

    cells = (
        f"{name}, load {load}",
        f"{middle(lambda each: each.replayed.scenario.workload.offered_per_s):,.0f}",
        f"{middle(lambda each: each.slower):.3f} ({', '.join(f'{each.slower:.3f}' for each in repeats)})",
        f"{1000 * middle(lambda each: each.replayed.own_ms):.0f}",
        f"{1000 * middle(lambda each: each.replayed.reaction_ms):.0f}",
        f"{1000 * middle(lambda each: np.percentile(each.replayed.late_ms, 99)):.0f}",
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
        others = Others()
        real = whole(replay(scenario, model, requests, seed, warm=False))
        return cls(compiled(real), compiled(simulated), others.share())

    @property
    def each(self) -> float:
        """How much longer one size compiles in the simulation, as a fraction."""
        (sizes, seconds), (expected, expected_s) = self.replayed, self.simulated
        return expected_s / expected / (seconds / sizes) - 1


def of_cold_starts(name: str, starts: list[Cold]) -> tuple[Row, str]:
    """Return the row of a model's cold starts, and what explains it."""
    quiet = [start for start in starts if AHEAD or start.others <= OTHERS] or starts
    replayed_s, simulated_s = (
        statistics.median(getattr(start, part)[1] for start in quiet) for part in ("replayed", "simulated")
    )
    errors = tuple(start.simulated[1] / start.replayed[1] - 1 for start in quiet)
    disturbed = 0 if AHEAD else len(quiet) * (quiet[0].others > OTHERS)
    row = Row(
        f"{name}, cold start: compiling in all (s)", replayed_s, simulated_s, errors, COLD_WITHIN, disturbed
    )
    sizes = (", ".join(str(getattr(start, part)[0]) for start in quiet) for part in ("replayed", "simulated"))
    each = ", ".join(f"{start.each:+.1%}" for start in quiet)
    return row, f"| {' | '.join([name, *sizes, each])} |"


class Runs:
    """The runs so far, of all models at all loads: what is known of them is written after each."""

    def __init__(self, seconds, say=print, keep=lambda text: None, part=PARTS[0], repeats=REPEATS) -> None:
        self.seconds, self.say, self.keep, self.repeats = seconds, say, keep, repeats
        self.title, self.cases, _ = part
        self.models = {name: load_model(case.model, **case.padded) for name, case in self.cases.items()}
        places = [(name, load) for name, case in self.cases.items() for load in case.loads]
        self.repeated: dict[tuple[str, float], list[Repeat]] = {place: [] for place in places}
        self.around: list[tuple[Surroundings, str]] = []
        # Without sizes: a table of two dimensions has no such starts.
        self.starts: dict[str, list[Cold]] = {n: [] for n, case in self.cases.items() if case.sizes is None}
        self.begin_s, self.took_s = time.perf_counter(), 0.0

    def run(self) -> None:
        """Make all runs, a repeat of each before the next: an interrupt leaves some of every row."""
        for seed in range(self.repeats):
            for name, case in self.cases.items():
                for load in case.loads:
                    known = self.compare(name, load, seed)
                if name in self.starts:
                    self.start_cold(name, known, seed)

    def compare(self, name: str, load: float, seed: int) -> tuple[bs.Scenario, Measurement]:
        """Measure, replay, measure, and simulate; return the scenario as it was measured before."""
        # Anew for each run: a processor is faster in one minute than in another.
        case, model, others = self.cases[name], self.models[name], Others()
        gc.collect()  # now, and not in the run
        before = case.measured(model, load)
        workload = bs.Poisson(1) if case.sizes is None else bs.Poisson(1).with_sizes(case.sizes)
        known = bs.Scenario(workload, case.rule, service_of(before))
        scenario = known.replace(rate_per_s=load * known.saturation_per_s)
        count = max(100, round(self.seconds * scenario.workload.offered_per_s))
        real = whole(replay(scenario, model, count, seed))
        after = case.measured(model, load)
        around = Surroundings.of(others, before, after)
        repeat = Repeat(beside_simulation(before.joined(after), real, model), around)
        self.repeated[name, load].append(repeat)
        self.around.append((around, repeat.row(name, load, seed + 1)))
        self.told(repeat.compared)
        return known, before

    def start_cold(self, name: str, known: tuple[bs.Scenario, Measurement], seed: int) -> None:
        # So long that most sizes occur: how many did in both is less a matter of chance.
        scenario, measurement = known
        load = self.cases[name].loads[0]
        scenario = scenario.replace(rate_per_s=load * scenario.saturation_per_s)
        count = max(100, round(COLD_S * scenario.workload.offered_per_s))
        self.starts[name].append(Cold.run(self.models[name], scenario, measurement, count, seed))
        self.told(self.starts[name][-1])

    def told(self, what: object) -> None:
        self.took_s = time.perf_counter() - self.begin_s
        done = len(self.around) + sum(map(len, self.starts.values()))
        of = self.repeats * (len(self.repeated) + len(self.starts))
        self.say(what, f"[{done} of {of} runs, {self.took_s / 60:.0f} min]", sep="\n", end="\n\n", flush=True)
        self.keep(self.text())

    @property
    def rows(self) -> list[Row]:
        rows = []
        for name, case in self.cases.items():
            for load in case.loads:
                rows += of_repeats(name, load, self.repeated[name, load]) if self.repeated[name, load] else []
            rows += [of_cold_starts(name, self.starts[name])[0]] if self.starts.get(name) else []
        return rows

    def machine(self) -> str:
        """Return in words how disturbed the machine was, and how much of the whole was run."""
        arounds = [around for around, _ in self.around]
        others, drifts = (sorted(getattr(each, name) for each in arounds) for name in ("others", "drift"))
        middle = len(arounds) // 2
        of = self.repeats * len(self.repeated)
        whole = "" if len(arounds) == of else f" **Interrupted: {len(arounds)} of {of} comparisons.**"
        ahead = " They had precedence over other programs (`chrt`)." * AHEAD
        return (
            f"The machine: other programs took {others[middle]:.0%} of the processors in the median run and "
            f"{others[-1]:.0%} at most; "
            f"from before a replay to after it batches changed by {drifts[0]:+.1%} to {drifts[-1]:+.1%}. "
            f"All runs took {self.took_s / 60:.0f} minutes.{ahead}{whole}"
        )

    def text(self) -> str:
        """Return the section, of what there is so far."""
        model = next(iter(self.models.values()))
        where = (
            f"{model.device}, {processor()}, jax {jax.__version__}, {datetime.now(UTC):%Y-%m-%d %H:%M} UTC"
        )
        compared = {
            place: [each.compared for each in repeats] for place, repeats in self.repeated.items() if repeats
        }
        inside = [one for row in self.rows if row.verdict != "disturbed" for one in row.inside]
        parts = [
            f"\n{self.title}\nOn {where}, {self.seconds:g} s a run, {COLD_S:g} s a cold start.\n"
            f"{self.machine() if self.around else ''}\n\nIn their intervals are {sum(inside)} of "
            f"{len(inside)} values of undisturbed runs.\n",
            "| what | replayed | simulated | 95 of 100 | inside | error | |\n" + "|---" * 7 + "|",
            *map(str, self.rows),
            "\n| run | requests/s | slower by | own (µs) | until it started (µs) | "
            "p99 of sends (µs late) | error of the mean with this |\n" + "|---" * 7 + "|",
            *(explanation(*place, repeats) for place, repeats in compared.items()),
            "\n| run | until (UTC) | other programs | after / before | slower by | "
            "errors (in the order above) | inside | disturbed |\n" + "|---" * 8 + "|",
            *(row for _, row in self.around),
            *["\n| cold start | sizes compiled | simulated | error of the time of one |\n|---|---|---|---|"]
            * bool(self.starts),
            *(of_cold_starts(name, starts)[1] for name, starts in self.starts.items() if starts),
        ]
        return "\n".join(parts) + "\n"


def whole(real: Replay) -> Replay:
    """Return a replay that was not interrupted: one that was is the end of all."""
    if real.unsent:
        raise KeyboardInterrupt
    return real


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
