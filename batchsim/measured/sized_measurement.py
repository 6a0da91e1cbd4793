"""A measurement over batch sizes and lengths: the times of a model that pads sequences."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from batchsim import _check
from batchsim._format import aligned, fixed, listed, percent
from batchsim.measured import measurement_files as files
from batchsim.measured.fits import least
from batchsim.measured.measurement import Measured, Measurement
from batchsim.scenario.sized_time import PaddedTime, SizeTable


@dataclass(frozen=True, repr=False)
class SizedFit:
    """A PaddedTime fitted to measured times; `residuals` are its relative errors by batch size and length.

    A residual is positive if the fit is slower.
    """

    service: PaddedTime
    residuals: Mapping[tuple[int, int], float]

    @property
    def worst(self) -> tuple[tuple[int, int], float]:
        """The batch size and length with the largest residual, and this residual."""
        return max(self.residuals.items(), key=lambda item: abs(item[1]))

    def __repr__(self) -> str:
        (size, length), error = self.worst
        side = "above" if error > 0 else "below"
        at = f"a batch of {size:,} of length {length:,}"
        return f"SizedFit({self.service!r}: at worst {percent(abs(error))} {side} the measured, for {at})"


@dataclass(frozen=True, repr=False)
class SizedMeasurement(Measured):
    """The times of a model for batches of each size and length: a `Measurement` for each of `lengths`.

    `service` is a SizeTable of the medians, for the batch sizes that fit in memory at every length. The
    measurements must have one model and device. Wrong values raise ValueError or TypeError.
    """

    lengths: tuple[int, ...]
    measurements: tuple[Measurement, ...]

    def __post_init__(self) -> None:
        lengths = _check.sizes("lengths", self.lengths)
        each = tuple(map(_measurement, files.list_of(len(lengths), "measurements", self.measurements)))
        vars(self).update(lengths=lengths, measurements=each)
        for name in ("model", "device", "copy", "served"):
            if len(found := dict.fromkeys(getattr(one, name) for one in each)) > 1:
                raise ValueError(f"measurements must have the same {name}, got {listed([*map(repr, found)])}")
        if not self.batch_sizes:
            raise ValueError(f"measurements must have a batch size in common, got none in {len(each)}")

    @property
    def model(self) -> str:
        return self.measurements[0].model

    @property
    def device(self) -> str:
        return self.measurements[0].device

    @property
    def served(self) -> bool:
        return self.measurements[0].served

    @property
    def autocorrelation(self) -> tuple[float, ...]:
        """The mean of those of each length; empty if one is unknown."""
        each = [one.autocorrelation for one in self.measurements]
        return tuple(np.mean(each, axis=0).tolist()) if all(each) else ()

    @property
    def batch_sizes(self) -> tuple[int, ...]:
        """The sizes that were measured at every length, in rising order."""
        common = set.intersection(*(set(each.batch_sizes) for each in self.measurements))
        return tuple(sorted(common))

    @property
    def median_ms(self) -> dict[tuple[int, int], float]:
        """The median of the quiet times, by batch size and length."""
        rows = dict(zip(self.lengths, (each.median_ms for each in self.measurements), strict=True))
        return {(size, length): rows[length][size] for size in self.batch_sizes for length in self.lengths}

    @property
    def notes(self) -> tuple[str, ...]:
        """The doubts about the times of each length, each once."""
        pairs = zip(self.lengths, self.measurements, strict=True)
        found = (f"length {length:,}: {note.text}" for length, each in pairs for note in each.notes)
        return tuple(dict.fromkeys(found))

    def table(self, times_ms: Mapping[tuple[int, int], float]) -> SizeTable:
        rows = tuple(tuple(times_ms[size, each] for each in self.lengths) for size in self.batch_sizes)
        return SizeTable(self.batch_sizes, self.lengths, rows)

    def times(self, samples: str | None = None) -> dict[tuple[int, int], np.ndarray]:
        """Return the times in ms of each batch size and length that `service_with_noise` uses."""
        rows = dict(zip(self.lengths, (each.times(samples) for each in self.measurements), strict=True))
        return {(size, length): rows[length][size] for size in self.batch_sizes for length in self.lengths}

    def joined(self, later: "SizedMeasurement") -> "SizedMeasurement":
        """Return one measurement with the times of both: see `Measurement.joined`."""
        if self.lengths != later.lengths:
            raise ValueError(
                f"joined measurements must have the same lengths, got {self.lengths!r} and {later.lengths!r}"
            )
        both = zip(self.measurements, later.measurements, strict=True)
        return SizedMeasurement(self.lengths, tuple(one.joined(other) for one, other in both))

    def fit(self) -> SizedFit:
        """Return the PaddedTime with the least squares of relative errors, its factors at least 0."""
        times = self.median_ms
        size, length = np.array(list(times)).T
        columns = np.column_stack([np.ones(size.size), size, size * length, size * length**2])
        ms = np.array(list(times.values()))
        factors = least(columns, ms)
        residuals = columns @ factors / ms - 1
        return SizedFit(PaddedTime(*factors), dict(zip(times, residuals.tolist(), strict=True)))

    def __repr__(self) -> str:
        first, times = self.measurements[0], self.median_ms
        title = f"{first.model} on {first.device}: median ms by batch size and length"
        rows = [["", *(f"{length:,}" for length in self.lengths)]]
        for size in self.batch_sizes:
            rows.append([f"{size:,}", *(fixed(times[size, each], 4) for each in self.lengths)])
        return "\n".join([title, *aligned(rows, ">" * len(rows[0])), *self.notes])


def _measurement(given: Any) -> Measurement:
    """Return a Measurement, or that of a saved one's fields."""
    if isinstance(given, Mapping):
        return files.made(Measurement, given)
    _check.instance("a measurement", given, Measurement, "a Measurement")
    return given


def load(path: str | os.PathLike[str]) -> Measured:
    """Return what either kind of measurement saved to `path`; any other file raises ValueError."""
    return files.load(path, Measurement, SizedMeasurement)
