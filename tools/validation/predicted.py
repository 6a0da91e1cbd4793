"""Does the interval of a prediction hold what it says? Experiments whose truth is known.

A server with a known service time and known noise is measured, for a known number of rounds, before and
after it serves; the measurement alone predicts what it served. All this is simulated: the noise of a batch
hangs on the one before it, and the speed of the machine may change between the measurements.
"""

from pathlib import Path

import numpy as np

import batchsim as bs
from batchsim._format import number
from batchsim.measured.fidelity import KEYS, Repeats
from batchsim.measured.measurement import Measurement
from batchsim.measured.samples import autocorrelation, services
from batchsim.result.metrics import heading
from batchsim.scenario.noise import Noise

TABLES = Path(__file__).with_suffix(".md")
LOADS = (0.5, 0.8, 0.9)
DRIFT = 0.05  # one in twenty: what a shared machine does from one minute to the next
SIZES = tuple(range(1, 17))
RULE = bs.SizeOrWait(max_batch_size=16, max_wait_ms=5)
TRUTH = bs.Affine(2, 0.25)
NOISE = Noise(0.2, correlation=0.5, memory_batches=10)
TIMES_MS = np.array([1000 * TRUTH(size) for size in SIZES])


def measured(generator, rounds=40, noise=NOISE, speeds=(1.0, 1.0)) -> Measurement:
    """Return a measurement of two halves: each so many rounds of every size, in an order of their own."""
    halves = []
    for speed in speeds:
        order = np.concatenate([generator.permutation(len(SIZES)) for _ in range(rounds)])
        took_ms = speed * TIMES_MS[order] * noise.draw(generator, order.size)
        samples = tuple(tuple(took_ms[order == place].tolist()) for place in range(len(SIZES)))
        halves.append(
            Measurement(
                "known", "a simulated server", "cpu", "", SIZES, rounds, samples, (), "2026-01-01",
                served=True, autocorrelation=autocorrelation([(order, took_ms)]),
            )
        )  # fmt: skip
    before, after = halves
    return before.joined(after)


def experiment(load, seed, requests=5000, repeats=200, rounds=40, noise=NOISE, drift=0.0, speed=1.0):
    """Return, of each metric, the interval that was predicted and what happened.

    `drift` is the standard deviation of the logarithm of the machine's speed before, in and after the run;
    `speed` is how many times as long batches take in the run, besides: 1 is what was measured.
    """
    generator = np.random.default_rng([seed, 15])
    known = bs.Scenario(bs.Poisson(1), RULE, TRUTH)
    rate_per_s = load * known.saturation_per_s
    before, after, then = np.exp(drift * generator.standard_normal(3))
    measurement = measured(generator, rounds, noise, (before, after))
    scenario = known.replace(rate_per_s=rate_per_s)
    table = {size: speed * then * ms for size, ms in zip(SIZES, TIMES_MS.tolist(), strict=True)}
    service = bs.Table(table).with_noise(noise.cv, noise.shape, noise.correlation, noise.memory_batches)
    real = bs.simulate(scenario.replace(service=service), requests, seed, engine="auto")
    found = Repeats.of(scenario, services(measurement, repeats, seed), KEYS, requests, seed)
    return {key: (*found.interval(key), real.metrics.number(key), found.median(key)) for key in KEYS}


def coverage(load, experiments, **given) -> dict[str, tuple[float, float]]:
    """Return, of each metric, in how many of the experiments it was inside, and the interval's median width.

    The width is relative to what was predicted.
    """
    every = [experiment(load, seed, **given) for seed in range(experiments)]
    shares = {}
    for key in KEYS:
        low, high, real, middle = np.array([each[key] for each in every]).T
        inside = (low <= real) & (real <= high)
        shares[key] = float(inside.mean()), float(np.median((high - low) / middle))
    return shares


def table(experiments: int) -> str:
    """Return how many of so many experiments each interval held, and how wide it was, as Markdown."""
    rows = [
        f"Whether the intervals hold was tried on {experiments} simulated servers whose noise is known (cv "
        f"{NOISE.cv:g}, correlation {NOISE.correlation:g}, {NOISE.memory_batches:g} batches), each measured "
        f"for 40 rounds before and after 4,000 requests; in the rows that drift its speed differs by "
        f"{DRIFT:.0%} (one standard deviation) before, in and after the run. A cell has how many of 100 runs "
        "were inside, and the median width of the interval in per cent of the predicted value:\n",
        f"| load | {' | '.join(map(heading, KEYS))} |\n{'|---' * (1 + len(KEYS))}|",
    ]
    for name, drift in (("", 0.0), (", drifting", DRIFT)):
        for load in LOADS:
            shares = coverage(load, experiments, requests=4000, repeats=100, drift=drift).values()
            cells = [f"{100 * share:.0f} ({number(100 * width, 2)} wide)" for share, width in shares]
            rows.append(f"| {load}{name} | {' | '.join(cells)} |")
    return "\n".join(rows) + "\n"


def written() -> str:
    """Return the table that was written by `make coverage`."""
    return TABLES.read_text() if TABLES.exists() else ""
