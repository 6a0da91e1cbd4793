"""Does the simulator predict this machine? A real run beside the simulation of the same arrivals."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from batchsim import _check
from batchsim._format import duration, fixed
from batchsim.device.replay import Replay, replay
from batchsim.result import Result
from batchsim.result.metrics import heading, metric
from batchsim.scenario import Scenario, Table
from batchsim.scenario.measurement import Measurement
from batchsim.scenario.service import Service
from batchsim.simulate import simulate

if TYPE_CHECKING:
    import pandas

KEYS = ("mean_latency_ms", "p50_ms", "p99_ms", "mean_batch_size", "throughput_per_s", "utilisation")
EACH = 32  # up to this batch size every one is measured
OTHERWISE = 0.2  # how far the model's time may be from its measurement before a reader is asked about it


@dataclass(frozen=True, eq=False, repr=False)
class Fidelity:
    """A replay and the simulation of the same arrivals, with the service time measured on the same machine.

    `simulated` knows the measurement alone. `explained` is a second simulation, which knows from the replay
    what a measurement cannot: by what factor the model was `slower` than measured, and how much of the
    batcher's own time a batch took, its late start included. What that does not explain either is the fault
    of the simulator.
    """

    measurement: Measurement
    simulated: Result
    replayed: Replay

    @property
    def disturbed(self) -> str:
        """Why the replay is no evidence, or ""."""
        return self.replayed.disturbed

    @cached_property
    def slower(self) -> float:
        """How many times as long as measured the model took in the replay, in batches of the same sizes."""
        seconds = self.simulated.scenario.service.table(int(self.replayed.batches.batch_size.max(initial=1)))
        return self.replayed.model_ms / 1000 / float(seconds[self.replayed.batches.batch_size].mean())

    @cached_property
    def explained(self) -> Result:
        """The simulation with what the replay found besides the measurement."""
        scenario, more_ms = self.simulated.scenario, self.replayed.own_ms + self.replayed.reaction_ms
        sizes = range(1, scenario.rule.max_batch_size + 1)
        points = {size: scenario.service(size) * 1000 * self.slower + more_ms for size in sizes}
        service = Table(points, noise=scenario.service.noise)
        count, seed = self.replayed.requested, self.replayed.seed
        return simulate(scenario.replace(service=service), count, seed, warmup=self.simulated.warmup)

    def difference(self, key: str) -> float:
        """Return how far the simulated value is above the replayed one, relative to that."""
        replayed = self.replayed.metrics.number(metric(key).key)
        return (self.simulated.metrics.number(metric(key).key) - replayed) / replayed

    def to_frame(self) -> "pandas.DataFrame":
        """Return a DataFrame with a row a metric; `difference_%` is that of the simulated value."""
        import pandas

        results = {"replayed": self.replayed, "simulated": self.simulated, "explained": self.explained}
        columns = {name: [result.metrics.number(key) for key in KEYS] for name, result in results.items()}
        differences = [100 * self.difference(key) for key in KEYS]
        return pandas.DataFrame({**columns, "difference_%": differences}, index=list(KEYS))

    def notes(self) -> list[str]:
        """Return what is known of the difference, a sentence each."""
        replayed = self.replayed
        late_ms = float(np.percentile(replayed.late_ms, 99))
        elsewhere = abs(self.slower - 1) > OTHERWISE
        notes = [
            f"The model took {self.slower:.2f} times as long as measured, in batches of the same sizes"
            + (": does something else compute on this machine?" if elsewhere else "."),
            f"Each batch took {duration(replayed.own_ms)} of the batcher's own time, and started "
            f"{duration(replayed.reaction_ms)} late.",
            f"99 % of the requests were sent at most {duration(late_ms)} late, and other programs took "
            f"{replayed.others:.0%} of the processors.",
        ]
        return notes + ([f"DISTURBED, no verdict: {self.disturbed}."] if self.disturbed else [])

    def _title(self) -> str:
        where = f"{self.measurement.model}, {self.replayed.engine}"
        return f"Fidelity: {where}, {self.replayed.arrival_s.size:,} requests"

    def __repr__(self) -> str:
        head = f"  {'':<20}{'replayed':>10}{'simulated':>11}{'difference':>12}{'explained':>11}"
        rows = [
            f"  {heading(key):<20}{fixed(row['replayed']):>10}{fixed(row['simulated']):>11}"
            f"{row['difference_%']:>+10.1f} %{fixed(row['explained']):>11}"
            for key, row in self.to_frame().iterrows()
        ]
        return "\n".join([self._title(), head, *rows, *(f"  {note}" for note in self.notes())])


def compare_with_simulation(
    scenario: Scenario, model: Callable[[Any], Any], requests: int | None = None, seed: int = 0, *,
    inputs: Sequence[Any] | None = None, measurement: Measurement | None = None, warmup: float = 0.0,
    progress: bool = True,
) -> Fidelity:  # fmt: skip
    """Measure a model, simulate a scenario with that service time, replay it, and put both side by side.

    The arguments are those of `replay`; simulation and replay have the same arrivals. The model is measured
    at every batch size that the rule allows (at its padded sizes, if it pads; at powers of two beyond 32),
    unless a `measurement` of it on this machine is given; the simulation takes the quiet samples, with their
    noise. The scenario's own service time plays no part; its `host_ms`, `contention` and `slowdown` are the
    simulation's: for several servers on one device, see `measure_sharing`. `bs.plot` draws both.

    >>> from batchsim import Affine, Poisson, Scenario, SizeOrWait
    >>> from batchsim.device import load_model
    >>> scenario = Scenario(Poisson(500), SizeOrWait(2, 1), Affine(1, 0.1))
    >>> compared = compare_with_simulation(scenario, load_model("mlp", width=8), 50, progress=False)
    >>> list(compared.to_frame().columns)
    ['replayed', 'simulated', 'explained', 'difference_%']
    """
    _check.instance("scenario", scenario, Scenario, "a Scenario")
    if measurement is None:
        example = None if inputs is None else inputs[0]
        measurement = measure_for(model, scenario.rule.max_batch_size, example, progress)
    known = scenario.replace(service=service_of(measurement, getattr(model, "pad_to", None)))
    real = replay(known, model, requests, seed, inputs=inputs, warmup=warmup)
    return Fidelity(measurement, simulate(known, real.requested, seed, warmup=warmup), real)


def measure_for(
    model: Callable[[Any], Any], largest: int, example: Any = None, progress: bool = False
) -> Measurement:
    """Measure a model at every size of batches up to `largest`; at the padded sizes, if it pads.

    Of more than `EACH` sizes, at the powers of two.
    """
    from batchsim.device import measure

    sizes: Iterable[int] = range(1, largest + 1)
    if largest > EACH:
        sizes = [*(2**power for power in range((largest - 1).bit_length())), largest]
    pad_to = getattr(model, "pad_to", None)
    if pad_to is not None:
        end = next((place for place, size in enumerate(pad_to) if size >= largest), len(pad_to))
        sizes = pad_to[: end + 1]
    return measure(model, sizes, example=example, roofline=False, progress=progress)


def service_of(measurement: Measurement, pad_to: Sequence[int] | None = None) -> Service:
    """Return what the quiet samples of a measurement say of batches, with their noise."""
    service = measurement.service_with_noise()
    return service if pad_to is None else service.padded_to(pad_to)
