"""Recorded traffic: arrival times from an array or a file, and how bursty they are."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Self

import numpy as np

from batchsim import _check
from batchsim._compat import bincount, kept
from batchsim._files import File, naming
from batchsim._format import brief, counted
from batchsim.scenario.lengths import Listed
from batchsim.scenario.trace_files import Name, read_times_s
from batchsim.scenario.workload import OpenLoop

SMALLEST, FEWEST = 16, 32  # requests in the shortest counting windows, and the fewest windows
MANY_WINDOWS = 512  # windows are short if the trace has more of them
GROWN = 0.8  # the share of the largest index of dispersion from which further growth is chance


@dataclass(frozen=True, eq=False, repr=False)
class Trace(OpenLoop):
    """Real traffic: the arrival times in seconds, shifted to start at 0, and the sizes of requests if known.

    >>> Trace([10.0, 10.5, 12.0]).times_s
    array([0. , 0.5, 2. ])
    """

    times_s: np.ndarray
    note: ClassVar[str] = ""  # how the unit was guessed; an instance from a file has its own

    def __post_init__(self) -> None:
        try:
            given = np.asarray(self.times_s)
            if given.size and given.dtype.kind not in "iufO":  # a datetime64 is no number of seconds
                raise TypeError
            times = np.array(given, dtype=float)
        except (TypeError, ValueError, OverflowError):
            raise TypeError(f"times_s must be numbers of seconds, got {brief(self.times_s)}") from None
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
        if (listed := super().max_requests) not in (None, times.size):
            raise ValueError(f"sizes must be one for each of {times.size:,} arrivals, got {listed:,}")

    @classmethod
    def from_csv(
        cls, path: File, column: Name = None, speedup: float = 1.0, unit: Name = None,
        size_column: Name = None,
    ) -> Self:  # fmt: skip
        """Read arrival times from a CSV file with a header line.

        `column` has numbers, or ISO 8601 timestamps, read to the nanosecond; by default it is the one whose
        name says so, as arrival or timestamp, else the first unless that goes back or counts. `unit` of
        the numbers is "s", "ms", "us" or "ns". By default it comes from the column's name, such as
        timestamp_ms, or from numbers that are times since 1970, and the repr shows it; without such evidence
        seconds are assumed, with a warning. `speedup` divides the times. Rows that go back are sorted, with a
        warning. ValueError names the line of a row that is truncated, is not a number, or differs from the
        others in having a time zone; a missing column raises it with the existing ones. `size_column` has the
        requests' sizes.
        """
        return cls._read(path, "csv", column, speedup, unit, size_column)

    @classmethod
    def from_jsonl(
        cls, path: File, column: Name = None, speedup: float = 1.0, unit: Name = None,
        size_column: Name = None,
    ) -> Self:  # fmt: skip
        """Read arrival times from JSON lines, one object a line; otherwise like `from_csv`.

        `column` is a key of each object. Mooncake's traces are in milliseconds, Qwen-Bailian's in seconds.
        """
        return cls._read(path, "jsonl", column, speedup, unit, size_column)

    @classmethod
    def from_parquet(
        cls, path: File, column: Name = None, speedup: float = 1.0, unit: Name = None,
        size_column: Name = None,
    ) -> Self:  # fmt: skip
        """Read arrival times from a Parquet file, numbers or timestamps; otherwise like `from_csv`."""
        return cls._read(path, "parquet", column, speedup, unit, size_column)

    @classmethod
    def from_file(
        cls, path: File, column: Name = None, speedup: float = 1.0, unit: Name = None,
        size_column: Name = None,
    ) -> Self:  # fmt: skip
        """Read arrival times from a file by its ending: .jsonl or .ndjson, .parquet or .pq, else CSV."""
        return cls._read(path, None, column, speedup, unit, size_column)

    @classmethod
    def _read(
        cls, path: File, kind: Name, column: Name, speedup: float, unit: Name, size_column: Name
    ) -> Self:
        speedup = _check.real("speedup", speedup, above=0)
        sizes: Any
        times_s, sizes, note = read_times_s(path, kind, column, speedup, unit, size_column)
        with naming(path):
            trace = cls(times_s / speedup, sizes=sizes)  # made lengths
        object.__setattr__(trace, "note", note)
        return trace

    @property
    def max_requests(self) -> int:
        return self.times_s.size

    @property
    def offered_per_s(self) -> float:
        if self.times_s.size == 1:
            return 0.0
        span = float(self.times_s[-1])
        return (self.times_s.size - 1) / span if span > 0 else math.inf

    @property
    def first(self) -> Self:
        """The trace of the first request alone, for a document that does not list the others."""
        of_requests = self.of_requests
        if self.sizes_listed is not None:
            of_requests["sizes"] = self.sizes_listed[:1]
        return type(self)(np.zeros(1), **of_requests)

    @property
    def sizes_listed(self) -> np.ndarray | None:
        """The sizes that were recorded, one for each request; None without them."""
        listed = isinstance(self.sizes, Listed) and not self.sizes.again
        return self.sizes.values if listed else None  # type: ignore[union-attr]

    @property
    def dispersion(self) -> float:
        """The dispersion with bursts, as far as a trace of this length shows them."""
        return self._bursts[0]

    @property
    def burst_requests(self) -> float:
        """The number of requests in a window that holds whole bursts; 0 if gaps alone explain it."""
        return self._bursts[1]

    @kept
    def _bursts(self) -> tuple[float, float]:
        """The index of dispersion for counts, and the window from which on it no longer grows.

        The variance of counts over their mean grows with the window until that holds whole bursts. Few
        windows are that long, so each index counts with a standard error subtracted. The gaps alone give the
        index at once if they are independent: their value is used unless long windows exclude it. (Cox and
        Lewis, The statistical analysis of series of events, 1966; Gusella, 1991.)
        """
        if not 0 < self.offered_per_s < math.inf:
            return 0.0, 0.0
        gaps_s, requests = np.diff(self.times_s), self.times_s.size
        of_gaps = float(gaps_s.var() / gaps_s.mean() ** 2)
        windows = 1 << max(requests // SMALLEST, 1).bit_length() - 1
        if windows < FEWEST:
            return of_gaps, 0.0
        place = (self.times_s * (windows / self.times_s[-1])).astype(np.int64)
        counts = bincount(np.minimum(place, windows - 1), minlength=windows)
        of_windows = []
        while counts.size >= FEWEST:
            error = math.sqrt(2 / (counts.size - 1))  # relative, of the variance of normal counts
            of_windows.append((requests / counts.size, counts.var(ddof=1) / counts.mean(), error))
            counts = counts.reshape(-1, 2).sum(axis=1)
        sizes, indices, errors = np.transpose(of_windows)
        # Short windows can vary more than long ones, for instance if timestamps are whole seconds.
        long = sizes * MANY_WINDOWS >= requests
        surely = float((indices / (1 + errors))[long].max())
        reached = int(np.argmax(indices >= GROWN * surely))
        most = float(indices[-1] * (1 + 2 * errors[-1]))
        return max(surely, min(of_gaps, most)), float(sizes[reached]) if reached else 0.0

    def with_rate(self, rate_per_s: float) -> Self:
        _check.real("rate_per_s", rate_per_s, above=0)
        if not 0 < self.offered_per_s < math.inf:
            raise ValueError(f"a Trace must span some time to be scaled to a rate, got {brief(self)}")
        times_s = self.times_s * (self.offered_per_s / rate_per_s)
        return type(self)(times_s, **self.of_requests)

    def chunks_s(self, seed: np.random.SeedSequence, requests: int, size: int) -> Iterator[np.ndarray]:
        for begin in range(0, requests, size):
            yield self.times_s[begin : min(begin + size, requests)]

    def __eq__(self, other: Any) -> bool:
        alike = isinstance(other, Trace) and self.of_requests == other.of_requests
        return alike and np.array_equal(self.times_s, other.times_s)

    def __hash__(self) -> int:
        return hash((self.times_s.tobytes(), self.priorities, self.sizes))

    def __reduce__(self) -> tuple[Any, ...]:
        # Copied and unpickled times are read-only too.
        return partial(type(self), **self.of_requests), (self.times_s,)

    def __repr__(self) -> str:
        note = f", {self.note}" if self.note else ""
        what = (
            f"{counted(self.times_s.size, 'arrival')} in {self.times_s[-1]:g} s, {self.offered_per_s:.6g}/s"
        )
        return f"Trace({what}{note})" + self._suffix()
