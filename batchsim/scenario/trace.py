"""Recorded traffic: arrival times, from an array or a file."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from os import PathLike
from typing import Any, ClassVar, Self

import numpy as np

from batchsim import _check
from batchsim.scenario.trace_files import read_times_s
from batchsim.scenario.workload import OpenLoop

SMALLEST, FEWEST = 16, 32  # requests in the shortest windows that arrivals are counted in, and windows
LONG = 512  # windows: those of a trace cut into more are short
GROWN = 0.8  # of the largest index of dispersion: then it grows no more but by chance


@dataclass(frozen=True, eq=False, repr=False)
class Trace(OpenLoop):
    """Real traffic: the arrival times in seconds, shifted to start at 0.

    >>> Trace([10.0, 10.5, 12.0]).times_s
    array([0. , 0.5, 2. ])
    """

    times_s: np.ndarray
    note: ClassVar[str] = ""  # how the unit was guessed; of one read from a file, its own

    def __post_init__(self) -> None:
        try:
            given = np.asarray(self.times_s)
            if given.size and given.dtype.kind not in "iufO":  # a datetime64 is no number of seconds
                raise TypeError
            times = np.array(given, dtype=float)
        except (TypeError, ValueError, OverflowError):
            raise TypeError(f"times_s must be numbers of seconds, got {self.times_s!r}") from None
        if times.ndim != 1:
            raise ValueError(f"times_s must be one-dimensional, got shape {times.shape}")
        if times.size == 0:
            raise ValueError("times_s must not be empty, got []")
        for bad in np.flatnonzero(~np.isfinite(times)):
            raise ValueError(f"times_s must be finite, got {times[bad]} at index {bad}")
        for bad in np.flatnonzero(times[1:] < times[:-1]) + 1:
            wrong = f"{times[bad]} after {times[bad - 1]} at index {bad}"
            raise ValueError(f"times_s must be sorted, got {wrong}")
        for end in (times[0], times[-1]):
            if abs(end) > _check.LARGEST:
                raise ValueError(f"times_s must be at most {_check.LARGEST:g} s from 0, got {end:g}")
        times -= times[0]
        times.flags.writeable = False
        object.__setattr__(self, "times_s", times)
        super().__post_init__()

    @classmethod
    def from_csv(
        cls, path: str | PathLike[str], column: str | None = None, speedup: float = 1.0,
        unit: str | None = None,
    ) -> Self:  # fmt: skip
        """Read arrival times from a CSV file with a header line.

        `column` (default: the first) holds numbers, or ISO 8601 timestamps, read to the nanosecond. `unit` of
        the numbers is "s", "ms", "us" or "ns"; None takes it from the column's name, such as timestamp_ms, or
        from numbers that are times since 1970; the repr says so. Where nothing tells, seconds are assumed,
        with a warning. `speedup` divides the times. A row that is truncated, is not a number, goes back in
        time, or has a time zone where others have none raises ValueError with its line; a missing column,
        with the columns there are.
        """
        return cls._read(path, "csv", column, speedup, unit)

    @classmethod
    def from_jsonl(
        cls, path: str | PathLike[str], column: str | None = None, speedup: float = 1.0,
        unit: str | None = None,
    ) -> Self:  # fmt: skip
        """Read arrival times from JSON lines, an object a line; else as `from_csv`.

        `column` is a key of each, by default the first of the first. Mooncake's traces are in milliseconds.
        """
        return cls._read(path, "jsonl", column, speedup, unit)

    @classmethod
    def from_parquet(
        cls, path: str | PathLike[str], column: str | None = None, speedup: float = 1.0,
        unit: str | None = None,
    ) -> Self:  # fmt: skip
        """Read arrival times from a Parquet file, as numbers or timestamps; else as `from_csv`."""
        return cls._read(path, "parquet", column, speedup, unit)

    @classmethod
    def from_file(
        cls, path: str | PathLike[str], column: str | None = None, speedup: float = 1.0,
        unit: str | None = None,
    ) -> Self:  # fmt: skip
        """Read arrival times from a file by its ending: .jsonl or .ndjson, .parquet or .pq, else CSV."""
        return cls._read(path, None, column, speedup, unit)

    @classmethod
    def _read(
        cls, path: str | PathLike[str], kind: str | None, column: str | None, speedup: float, unit: str | None
    ) -> Self:
        speedup = _check.real("speedup", speedup, above=0)
        times_s, note = read_times_s(path, kind, column, speedup, unit)
        trace = cls(times_s / speedup)
        object.__setattr__(trace, "note", note)
        return trace

    @property
    def max_requests(self) -> int:  # type: ignore[override]
        return self.times_s.size

    @property
    def offered_per_s(self) -> float:
        if self.times_s.size == 1:
            return 0.0
        span = float(self.times_s[-1])
        return (self.times_s.size - 1) / span if span > 0 else math.inf

    @property
    def dispersion(self) -> float:
        """Of its bursts as well, as far as they show in so long a trace."""
        return self._bursts[0]

    @property
    def burst_requests(self) -> float:
        """How many requests a window must have to hold whole bursts; 0 where the gaps tell all there is."""
        return self._bursts[1]

    @cached_property
    def _bursts(self) -> tuple[float, float]:
        """The index of dispersion for counts, which grows with the window until that holds whole bursts.

        The indices of the longest windows come from few of them, so that each counts less a standard error.
        Independent gaps say at once what long windows do: theirs is taken if long windows do not exclude it.
        (Cox and Lewis, The statistical analysis of series of events, 1966; Gusella, 1991.)
        """
        if not 0 < self.offered_per_s < math.inf:
            return 0.0, 0.0
        gaps_s, requests = np.diff(self.times_s), self.times_s.size
        of_gaps = float(gaps_s.var() / gaps_s.mean() ** 2)
        windows = 1 << max(requests // SMALLEST, 1).bit_length() - 1
        if windows < FEWEST:
            return of_gaps, 0.0
        place = (self.times_s * (windows / self.times_s[-1])).astype(np.intp)
        counts = np.bincount(np.minimum(place, windows - 1), minlength=windows)
        of_windows = []
        while counts.size >= FEWEST:
            error = math.sqrt(2 / (counts.size - 1))  # in proportion, of a normal count's variance
            of_windows.append((requests / counts.size, counts.var(ddof=1) / counts.mean(), error))
            counts = counts.reshape(-1, 2).sum(axis=1)
        sizes, indices, errors = np.transpose(of_windows)
        # Short windows can vary by more than long ones, as where timestamps are whole seconds.
        long = sizes * LONG >= requests
        surely = float((indices / (1 + errors))[long].max())
        reached = int(np.argmax(indices >= GROWN * surely))
        most = float(indices[-1] * (1 + 2 * errors[-1]))
        return max(surely, min(of_gaps, most)), float(sizes[reached]) if reached else 0.0

    def with_rate(self, rate_per_s: float) -> Self:
        _check.real("rate_per_s", rate_per_s, above=0)
        if not 0 < self.offered_per_s < math.inf:
            raise ValueError(f"a Trace must span some time to be scaled to a rate, got {self!r}")
        times_s = self.times_s * (self.offered_per_s / rate_per_s)
        return type(self)(times_s, priorities=self.priorities)

    def chunks_s(self, seed: np.random.SeedSequence, requests: int, size: int) -> Iterator[np.ndarray]:
        for begin in range(0, requests, size):
            yield self.times_s[begin : min(begin + size, requests)]

    def __eq__(self, other: Any) -> bool:
        alike = isinstance(other, Trace) and self.priorities == other.priorities
        return alike and np.array_equal(self.times_s, other.times_s)

    def __hash__(self) -> int:
        return hash((self.times_s.tobytes(), self.priorities))

    def __reduce__(self) -> tuple[Any, ...]:
        # Copied and unpickled times are read-only, too.
        return partial(type(self), priorities=self.priorities), (self.times_s,)

    def __repr__(self) -> str:
        note = f", {self.note}" if self.note else ""
        what = f"{self.times_s.size:,} arrivals in {self.times_s[-1]:g} s, {self.offered_per_s:.6g}/s"
        return f"Trace({what}{note})" + self._suffix()
