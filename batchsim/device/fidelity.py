"""Does the simulator predict this machine? A real run beside the simulation of the same arrivals."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from batchsim import _check
from batchsim._format import duration, fixed
from batchsim.device.replay import Replay, replay
from batchsim.result import Result
from batchsim.result.metrics import heading, metric
from batchsim.scenario import Scenario
from batchsim.scenario.measurement import Measurement
from batchsim.scenario.service import Service
from batchsim.simulate import simulate

if TYPE_CHECKING:
    import pandas

KEYS = ("mean_latency_ms", "p50_ms", "p99_ms", "mean_batch_size", "throughput_per_s", "utilisation")
EACH = 32  # up to this batch size every one is measured
OTHERWISE = 0.2  # how far batches may be from their measurement before a reader is asked about it
TOGETHER = 0.3  # the correlation of one batch with the next from which a reader is told of it
TARGET, LIMIT_S = 0.01, 8.0  # of a measurement: at load 0.8, 1 % of a batch's time is up to 5 % of a latency


@dataclass(frozen=True, eq=False, repr=False)
class Fidelity:
    """A replay and the simulation of the same arrivals, with the service time measured on the same machine.

    `simulated` knows the measurement alone, which was made before. `explained` is a second simulation, which
    knows from the replay by what factor batches were `slower` than measured. What that does not explain is
    in their order (`together`), or the fault of the simulator.
    """

    measurement: Measurement
    simulated: Result
    replayed: Replay

    @property
    def disturbed(self) -> str:
        """Why the replay is no evidence, or ""."""
        return self.replayed.disturbed

    @cached_property
    def _measured_s(self) -> np.ndarray:
        """How long each batch of the replay should have taken, shape (batches,)."""
        sizes = self.replayed.batches.batch_size
        return self.simulated.scenario.service.table(int(sizes.max(initial=1)))[sizes]

    @cached_property
    def _ratios(self) -> np.ndarray:
        """How many times as long as measured each batch took, shape (batches,)."""
        batches = self.replayed.batches
        return (batches.finish_s - batches.start_s) / self._measured_s

    @cached_property
    def slower(self) -> float:
        """How many times as long as measured batches took in the replay, in all, their late starts included.

        If the model alone was measured, and no server, the batcher's own time is in it.
        """
        if not self._measured_s.size:
            return 1.0
        took_ms = self.replayed.model_ms + self.replayed.own_ms + self.replayed.reaction_ms
        return took_ms / 1000 / float(self._measured_s.mean())

    @cached_property
    def together(self) -> float:
        """How slow batches come together: the correlation of one batch's ratio with the next one's.

        Where a slow batch follows a slow one, as when another program runs for a second, queues are longer.
        The noise of the simulation lasts as long as that of the measurement.
        """
        ratios = self._ratios - self._ratios.mean() if self._ratios.size > 2 else np.zeros(3)
        squares = float(ratios @ ratios)
        # Batches that all took as long as measured differ by the rounding of their times alone.
        return float(ratios[1:] @ ratios[:-1]) / squares if squares > 1e-12 * ratios.size else 0.0

    @cached_property
    def explained(self) -> Result:
        """The simulation with batches as slow as they were in the replay."""
        scenario = self.simulated.scenario
        service = scenario.service.scaled(self.slower, scenario.rule.max_batch_size)
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
        noise = self.simulated.scenario.service.noise
        measured = noise.correlation if noise is not None else 0.0
        apart = self.together > measured + TOGETHER
        what = "the server" if self.measurement.served else "the model alone"
        notes = [
            f"Batches took {self.slower:.2f} times as long as {what} was measured, in the same sizes"
            + (": does something else compute on this machine?" if elsewhere else "."),
            f"Of that, {duration(replayed.own_ms)} a batch were the batcher's own, and "
            f"{duration(replayed.reaction_ms)} until it started.",
            f"A batch's time correlates with the next one's by {self.together:.2f}, in the "
            f"measurement by {measured:.2f}"
            + (": slow ones come together more than the simulation knows." if apart else "."),
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
    inputs: Sequence[Any] | None = None, measurement: Measurement | None = None, limit_s: float = LIMIT_S,
    warmup: float = 0.0, progress: bool = True,
) -> Fidelity:  # fmt: skip
    """Measure a server, simulate a scenario with that service time, replay it, and put both side by side.

    The arguments are those of `replay`; simulation and replay have the same arrivals. The model is measured
    as a server gives it, `measure(model, served=True)`, for about `limit_s` seconds at every batch size that
    the rule allows (at its padded sizes, if it pads; at powers of two beyond 32): half of them before the
    replay and half after it, since a machine that others share is faster in one minute than in the next.
    A `measurement` that is given takes its place: one of this machine and of now. The simulation takes the
    mean times, their noise and how long that lasts. The scenario's own service time plays no part; its
    `host_ms`, `contention` and `slowdown` are the simulation's: for several servers on one device, see
    `measure_sharing`. `bs.plot` draws both.

    >>> from batchsim import Affine, Poisson, Scenario, SizeOrWait
    >>> from batchsim.device import load_model
    >>> scenario = Scenario(Poisson(500), SizeOrWait(2, 1), Affine(1, 0.1))
    >>> model = load_model("mlp", width=8)
    >>> compared = compare_with_simulation(scenario, model, 50, limit_s=0.2, progress=False)
    >>> list(compared.to_frame().columns)
    ['replayed', 'simulated', 'explained', 'difference_%']
    """
    _check.instance("scenario", scenario, Scenario, "a Scenario")
    if measurement is not None:
        real = replay(scenario, model, requests, seed, inputs=inputs, warmup=warmup)
        return beside_simulation(measurement, real, model)
    example = None if inputs is None else inputs[0]

    def measured() -> Measurement:
        return measure_for(model, scenario.rule.max_batch_size, example, limit_s / 2, progress)

    before = measured()
    real = replay(scenario, model, requests, seed, inputs=inputs, warmup=warmup)
    return beside_simulation(before.joined(measured()), real, model)


def beside_simulation(measurement: Measurement, real: Replay, model: Any) -> Fidelity:
    """Simulate the arrivals of a replay with a measured service time, and put both side by side."""
    known = real.scenario.replace(service=service_of(measurement, getattr(model, "pad_to", None)))
    real = replace(real, runs=tuple(replace(run, scenario=known) for run in real.runs))
    return Fidelity(measurement, simulate(known, real.requested, real.seed, warmup=real.warmup), real)


def measure_for(
    model: Callable[[Any], Any], largest: int, example: Any = None, limit_s: float = LIMIT_S,
    progress: bool = False,
) -> Measurement:  # fmt: skip
    """Measure a model as a server gives it, at every batch size up to `largest`; at its padded sizes, if any.

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
    return measure(
        model, sizes, served=True, target=TARGET, limit_s=limit_s, example=example, roofline=False,
        progress=progress,
    )  # fmt: skip


def service_of(measurement: Measurement, pad_to: Sequence[int] | None = None) -> Service:
    """Return what a measurement says of batches, with their noise."""
    service = measurement.service_with_noise()
    return service if pad_to is None else service.padded_to(pad_to)
