"""Does the simulator predict this machine? A real run and simulations of the same arrivals."""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from batchsim import _check
from batchsim._compat import kept
from batchsim._format import duration, fixed, listed
from batchsim.engines.draws import draw
from batchsim.measured.measurement import Measured
from batchsim.measured.replay import Replay, replay
from batchsim.measured.samples import services
from batchsim.result import Result, Run
from batchsim.result.metrics import heading, metric
from batchsim.scenario import Scenario
from batchsim.scenario.service import Service, Table
from batchsim.scenario.sized_time import unit_cost
from batchsim.simulate import simulate

if TYPE_CHECKING:
    import pandas


LEVEL = 0.95
SHARES = np.arange(0, 100.5, 0.5)  # the percentiles at which latencies are stored


@dataclass(frozen=True, eq=False)
class Repeats:
    """The results of many runs of the same arrivals: `numbers` has one value per run for each metric.

    `latency_ms`, of shape (runs, shares), has the latency percentiles `SHARES` of each run.
    """

    numbers: Mapping[str, np.ndarray]
    latency_ms: np.ndarray

    @classmethod
    def of(
        cls, scenario: Scenario, services: Iterable[Service], keys: Sequence[str], requests: int, seed: int,
        warmup: float = 0.0,
    ) -> Self:  # fmt: skip
        """Simulate the arrivals of a scenario once with each service, each time with new noise."""
        first = draw(scenario, requests, seed)

        def one(number: int, service: Service) -> tuple[list[float], np.ndarray]:
            plan = draw(scenario.replace(service=service), requests, seed, replication=number)
            plan = replace(plan, arrival_s=first.arrival_s, priority=first.priority, size=first.size)
            if scenario.rule.compiled:
                from batchsim.engines.compiled import engine

                log = engine.run(plan)
            else:
                from batchsim.engines.reference import engine as reference

                log = reference.run(plan)
            metrics = Run(plan.scenario, log, warmup=warmup, clock="wall").metrics
            return [metrics.number(key) for key in keys], metrics.percentiles(SHARES)

        every = list(services)
        with ThreadPoolExecutor(min(os.cpu_count() or 1, len(every))) as threads:
            found = list(threads.map(one, range(1, len(every) + 1), every))
        numbers, latency_ms = (np.array(part) for part in zip(*found, strict=True))
        return cls(dict(zip(keys, numbers.T, strict=True)), latency_ms)

    def median(self, key: str) -> float:
        return float(np.median(self.numbers[key]))

    def interval(self, key: str) -> tuple[float, float]:
        """Return the limits that hold 95 of 100 runs, with equally many outside on either side."""
        low, high = np.quantile(self.numbers[key], [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
        return float(low), float(high)


def as_far_out(repeated: np.ndarray, value: np.ndarray) -> float:
    """Return the share of runs that are as far out in their worst metric as some values, one of them.

    `repeated` has the metrics of the others, shape (metrics, runs). How far out a run is in a metric: its
    distance from the median over that of the limit which holds 95 of 100 runs, on this side.
    """
    low, middle, high = np.quantile(repeated, [(1 - LEVEL) / 2, 0.5, (1 + LEVEL) / 2], axis=1)[..., None]
    away = np.column_stack([value, repeated]) - middle
    reach = np.where(away > 0, high - middle, middle - low) + 1e-12 * np.abs(middle) + 1e-300
    worst = (np.abs(away) / reach).max(axis=0)
    return float((worst >= worst[0]).mean())


OTHERWISE = 0.2  # the relative difference of batch times above which the text asks for a cause
KEYS = ("mean_latency_ms", "p50_ms", "p99_ms", "mean_batch_size", "throughput_per_s", "utilisation")
EACH = 32  # up to this batch size, every size is measured
FOR_BUSY = 2000  # requests, which determine a utilisation to about 0.02
REPEATS = 200  # simulations of the same arrivals
TARGET, LIMIT_S = 0.01, 8.0  # of a measurement: at load 0.8, 1 % of a batch time is up to 5 % of a latency


@dataclass(frozen=True, eq=False, repr=False)
class Fidelity(_check.Renewed):
    """A replay and the simulation of the same arrivals, with the service time measured on the same machine.

    `simulated` is one run with the measured service time. `repeats` are many runs of the same arrivals, each
    with new noise and with another service time that is consistent with the measurement (see
    `batchsim.measured.samples`): their median is the prediction, and 95 of 100 lie in the `interval`.
    `explained` is a simulation with batches `slower` by the factor seen in the replay. Any remaining
    difference comes from the order of slow batches, or from an error of the simulator.
    """

    measurement: Measured
    simulated: Result
    replayed: Replay
    count: int = REPEATS

    @kept
    def repeats(self) -> Repeats:
        """`count` simulations of the same arrivals."""
        padding = self.simulated.scenario.service.padding
        drawn = services(self.measurement, self.count, self.replayed.seed)
        return self._repeated(_padded(each, padding) for each in drawn)

    @kept
    def explained_repeats(self) -> Repeats:
        """The same with batches as slow as in the replay; only the noise differs."""
        return self._repeated([self.explained.scenario.service] * self.count)

    def _repeated(self, drawn: Iterable[Service]) -> Repeats:
        of = self.simulated
        return Repeats.of(
            of.scenario, drawn, self.keys, self.replayed.requested, self.replayed.seed, of.warmup
        )

    @property
    def keys(self) -> tuple[str, ...]:
        """The metrics that are compared: the padding too, if sizes decide how long batches take."""
        return KEYS if self.simulated.run.units is None else (*KEYS, "padding")

    def predicted(self, key: str) -> float:
        """Return the prediction of a metric: the median of the repeats."""
        return self.repeats.median(metric(key).key)

    def interval(self, key: str) -> tuple[float, float]:
        """Return the limits that hold a metric in 95 of 100 repeats of this run."""
        return self.repeats.interval(metric(key).key)

    def inside(self, key: str) -> bool:
        """Return whether the replayed value is in the interval."""
        low, high = self.interval(key)
        return low <= self.replayed.metrics.number(metric(key).key) <= high

    @kept
    def chance(self) -> float:
        """The share of repeats that are as far out in some metric as the replay: below 5 %, it is not chance.

        In one of six metrics a quarter of all runs is outside the interval that holds 95 of 100.
        """
        replayed = [self.replayed.metrics.number(key) for key in self.keys]
        return as_far_out(np.array([self.repeats.numbers[key] for key in self.keys]), np.array(replayed))

    @property
    def disturbed(self) -> str:
        """The reason why the replay proves nothing, or ""."""
        return self.replayed.disturbed

    @kept
    def _measured_s(self) -> np.ndarray:
        """The measured time of each batch's shape in the replay, shape (batches,)."""
        service, units = self.simulated.scenario.service, self.replayed.run.units
        if units is None:
            size = self.replayed.batches.batch_size
            return service.table(int(size.max(initial=1)))[size]
        most = self.replayed.scenario.rule.max_batch_size
        return unit_cost(service, most).table_s.ravel()[units.place]

    @kept
    def slower(self) -> float:
        """The mean time of a batch in the replay, its late start included, over the measured mean.

        If the model was measured without a server, the batcher's own time is included too.
        """
        if not self._measured_s.size:
            return 1.0
        took_ms = self.replayed.model_ms + self.replayed.own_ms + self.replayed.reaction_ms
        return took_ms / 1000 / float(self._measured_s.mean())

    @kept
    def explained(self) -> Result:
        """The simulation with batches as slow as in the replay."""
        scenario = self.simulated.scenario
        service = scenario.service.scaled(self.slower, scenario.rule.max_batch_size)
        count, seed = self.replayed.requested, self.replayed.seed
        return simulate(scenario.replace(service=service), count, seed, warmup=self.simulated.warmup)

    def difference(self, key: str) -> float:
        """Return the relative difference of the prediction from the replayed value."""
        replayed = self.replayed.metrics.number(metric(key).key)
        return (self.predicted(key) - replayed) / replayed

    def to_frame(self) -> "pandas.DataFrame":
        """Return a DataFrame with one row per metric.

        `simulated` and `explained` are medians of the repeats. 95 of 100 repeats are between `low` and
        `high`; `inside` is whether the replay is. `difference_%` is that of the simulated value.
        """
        import pandas

        keys = self.keys
        low, high = zip(*map(self.interval, keys), strict=True)
        columns = {
            "replayed": [self.replayed.metrics.number(key) for key in keys],
            "simulated": list(map(self.predicted, keys)),
            "low": low, "high": high, "inside": list(map(self.inside, keys)),
            "explained": list(map(self.explained_repeats.median, keys)),
            "difference_%": [100 * self.difference(key) for key in keys],
        }  # fmt: skip
        return pandas.DataFrame(columns, index=list(keys))

    def notes(self) -> list[str]:
        """Return sentences on the difference and its causes."""
        replayed = self.replayed
        late_ms = float(np.percentile(replayed.late_ms, 99))
        elsewhere = abs(self.slower - 1) > OTHERWISE
        what = "the server" if self.measurement.served else "the model alone"
        notes = [
            *self._said(),
            f"Batches took {self.slower:.2f} times as long as {what} was measured, in the same sizes"
            + (": does something else compute on this machine?" if elsewhere else "."),
            f"This includes {duration(replayed.own_ms)} a batch in the batcher itself, and "
            f"{duration(replayed.reaction_ms)} before its start.",
            f"99 % of the requests were sent at most {duration(late_ms)} late.",
        ]
        return notes + ([f"DISTURBED, no verdict: {self.disturbed}."] if self.disturbed else [])

    def _said(self) -> list[str]:
        """Return sentences on the prediction, and on whether it holds."""
        (low, high), (p99_low, p99_high) = self.interval("mean_latency_ms"), self.interval("p99_ms")
        rows = self.to_frame()
        outside = [heading(key).partition(" (")[0] for key in rows.index[~rows["inside"].to_numpy(bool)]]
        far = f"{self.chance:.0%} of the repeats are as far out in some row"
        verdict = "chance explains it" if self.chance >= 1 - LEVEL else "chance does not explain it"
        return [
            f"A run like this one has a mean latency between {duration(low)} and {duration(high)}, and a p99 "
            f"between {duration(p99_low)} and {duration(p99_high)}, in {100 * LEVEL:.0f} of 100 repeats.",
            f"This one is outside in {listed(outside)}; {far}: {verdict}."
            if outside
            else "This one is inside in every row.",
        ]

    def __repr__(self) -> str:
        of = f"{self.measurement.model}, {self.replayed.engine}"
        head = f"  {'':<20}{'replayed':>10}{'simulated':>11}{'95 of 100 repeats':>21}{'inside':>8}"
        rows = [
            f"  {heading(key):<20}{fixed(row['replayed']):>10}{fixed(row['simulated']):>11}"
            f"{fixed(row['low']) + ' to ' + fixed(row['high']):>21}{'yes' if row['inside'] else 'NO':>8}"
            f"{row['difference_%']:>+10.1f} %{fixed(row['explained']):>11}"
            for key, row in self.to_frame().iterrows()
        ]
        return "\n".join(
            [
                f"Fidelity: {of}, {self.replayed.arrival_s.size:,} requests",
                head + f"{'difference':>12}{'explained':>11}",
                *rows,
                *(f"  {note}" for note in self.notes()),
            ]
        )


def compare_with_simulation(
    scenario: Scenario, model: Callable[[Any], Any], requests: int | None = None, seed: int = 0, *,
    inputs: Sequence[Any] | None = None, measurement: Measured | None = None, limit_s: float = LIMIT_S,
    warmup: float = 0.0, progress: bool = True,
) -> Fidelity:  # fmt: skip
    """Measure a server, simulate a scenario with that service time, replay it, and compare the two.

    The arguments are those of `replay`; simulation and replay have the same arrivals. `measure(model,
    served=True)` measures the model within a server as busy as in the scenario, for about `limit_s` seconds,
    at every batch size that the rule allows (padded sizes if it pads; powers of two beyond 32), and at each
    of its `lengths` if requests have sizes, then at a utilisation of 70 %. Half of the time comes before the
    replay and half after it, because the speed of a shared machine drifts. A recent `measurement` of this
    machine replaces this. The simulation uses the mean times, their noise and its correlation. It is repeated
    200 times, which separates chance from a difference: see `Fidelity`. The scenario's own service time has
    no effect; its `host_ms`, `contention` and `slowdown` apply to the simulation: for several servers on one
    device, see `measure_sharing`. `bs.plot` draws both.

    >>> from batchsim import Affine, Poisson, Scenario, SizeOrWait
    >>> from batchsim.device import load_model
    >>> scenario = Scenario(Poisson(500), SizeOrWait(2, 1), Affine(1, 0.1))
    >>> model = load_model("mlp", width=8)
    >>> compared = compare_with_simulation(scenario, model, 50, limit_s=0.2, progress=False)
    >>> list(compared.to_frame().columns)
    ['replayed', 'simulated', 'low', 'high', 'inside', 'explained', 'difference_%']
    """
    _check.instance("scenario", scenario, Scenario, "a Scenario")
    if measurement is not None:
        real = replay(scenario, model, requests, seed, inputs=inputs, warmup=warmup)
        return beside_simulation(measurement, real, model)
    example = None if inputs is None else inputs[0]
    sized = inputs is None and scenario.workload.sizes is not None
    lengths = getattr(model, "lengths", None) if sized else None

    def measured() -> Any:
        return measure_for(
            model, scenario.rule.max_batch_size, example, limit_s / 2, progress, busy_in(scenario), lengths
        )

    before = measured()
    real = replay(scenario, model, requests, seed, inputs=inputs, warmup=warmup)
    return beside_simulation(before.joined(measured()), real, model)


def beside_simulation(measurement: Measured, real: Replay, model: Any) -> Fidelity:
    """Simulate the arrivals of a replay with a measured service time, and compare the two."""
    known = real.scenario.replace(service=service_of(measurement, getattr(model, "pad_to", None)))
    real = replace(real, runs=tuple(replace(run, scenario=known) for run in real.runs))
    return Fidelity(measurement, simulate(known, real.requested, real.seed, warmup=real.warmup), real)


def measure_for(
    model: Callable[[Any], Any], largest: int, example: Any = None, limit_s: float = LIMIT_S,
    progress: bool = False, busy: float | Callable[[Table], float] = 0.7,
    lengths: Sequence[int] | None = None,
) -> Any:  # fmt: skip
    """Measure a model within a server, at every batch size up to `largest`, or at its padded sizes.

    Above `EACH` sizes, only powers of two are measured. `busy` as in `measure`. `lengths` are measured in
    turn, each for its part of the time, and at the usual utilisation: that of a scenario needs all of them.
    """
    from batchsim.measured.measuring import BUSY, measure

    by_length: dict[str, Any] = {}
    if lengths is not None:
        busy, limit_s, by_length = BUSY, limit_s / len(lengths), {"lengths": lengths}

    sizes: Iterable[int] = range(1, largest + 1)
    if largest > EACH:
        sizes = [*(2**power for power in range((largest - 1).bit_length())), largest]
    pad_to = getattr(model, "pad_to", None)
    if pad_to is not None:
        end = next((place for place, size in enumerate(pad_to) if size >= largest), len(pad_to))
        sizes = pad_to[: end + 1]
    return measure(
        model, sizes, served=True, busy=busy, target=TARGET, limit_s=limit_s, example=example, roofline=False,
        progress=progress, **by_length,
    )  # fmt: skip


def busy_in(scenario: Scenario, load: float | None = None) -> Callable[[Table], float]:
    """Return a function from a service time to the utilisation of a scenario's servers.

    With `load`, the rate is that part of the saturation rate with this service time.
    """

    def busy(service: Table) -> float:
        known = scenario.replace(service=service)
        if load is not None:
            known = known.replace(rate_per_s=load * known.saturation_per_s)
        count = min(FOR_BUSY, known.workload.max_requests or FOR_BUSY)
        return simulate(known, count).utilisation

    return busy


def service_of(measurement: Measured, pad_to: Sequence[int] | None = None) -> Service:
    """Return the measured service time with its noise, padded if sizes are given and it is not already."""
    return _padded(measurement.service_with_noise(), pad_to)


def _padded(service: Service, pad_to: Sequence[int] | None) -> Service:
    return service if pad_to is None or service.padding is not None else service.padded_to(pad_to)
