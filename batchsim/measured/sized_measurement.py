"""A measurement over batch sizes and lengths: the times of a model that pads sequences."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from batchsim._format import fixed, percent
from batchsim.measured.fits import least
from batchsim.measured.measurement import Measurement
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
class SizedMeasurement:
    """The times of a model for batches of each size and length: a `Measurement` for each of `lengths`.

    `service` is a SizeTable of the medians, for the batch sizes that fit in memory at every length.
    """

    lengths: tuple[int, ...]
    measurements: tuple[Measurement, ...]

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
        """The doubts about the times of each length."""
        pairs = zip(self.lengths, self.measurements, strict=True)
        return tuple(f"length {length:,}: {note.text}" for length, each in pairs for note in each.notes)

    @cached_property
    def service(self) -> SizeTable:
        """The medians as a service time."""
        times, sizes = self.median_ms, self.batch_sizes
        rows = tuple(tuple(times[size, each] for each in self.lengths) for size in sizes)
        return SizeTable(sizes, self.lengths, rows)

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
        first, heads = self.measurements[0], [f"{length:,}" for length in self.lengths]
        lines = [f"{first.model} on {first.device}: median ms by batch size and length"]
        rows = [["", *heads]]
        times = self.median_ms
        rows += [
            [f"{size:,}", *(fixed(times[size, each], 4) for each in self.lengths)]
            for size in self.batch_sizes
        ]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        for row in rows:
            lines.append("  ".join(text.rjust(width) for text, width in zip(row, widths, strict=True)))
        return "\n".join([*lines, *self.notes])
