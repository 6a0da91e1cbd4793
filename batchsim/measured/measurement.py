"""A measurement: the times of a model by batch size. `bs.device.measure` makes one, with JAX."""

import codecs
import json
import math
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from html import escape
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np

from batchsim import _check
from batchsim._compat import kept
from batchsim._files import replacing
from batchsim._format import brief, brief_text, fixed, listed, percent
from batchsim.measured import fits
from batchsim.measured import measurement_files as files
from batchsim.measured.samples import (
    LAGS,
    Summary,
    clipped,
    cv_of,
    lasting_noise,
    pooled,
    quiet,
    summary,
)
from batchsim.scenario.service import Table

if TYPE_CHECKING:
    import pandas

SAMPLES = ("quiet", "clipped", "all")


class Note(NamedTuple):
    """A doubt about a batch size: `key` is its short name, and `text` explains it."""

    batch_size: int
    key: str
    text: str


class Measured:
    """What measurements by batch size, and by batch size and length, have in common: noise and files."""

    model: Any
    device: Any
    served: Any
    autocorrelation: Any
    median_ms: Any
    times: Any  # the times of each batch size, or of each batch size and length
    table: Any  # makes a service time of one time for each of these

    @property
    def service(self) -> Any:
        """The medians of the quiet times as a service time.

        For a padded model, measure the padded sizes, and pad this too.
        """
        return self.table(self.median_ms)

    def service_with_noise(self, samples: str | None = None) -> Any:
        """Return a service time with the noise of the "quiet" times, the "clipped", or "all".

        The points are means, which noise keeps. The noise is lognormal, with one coefficient of variation for
        all sizes, the root mean square of theirs (`noise_cv` has each). The default is the quiet times,
        because a few disturbed ones, many times longer, give a cv that no lognormal fits. For a `served`
        measurement it is the clipped times: a server has disturbed batches too, but the slowest 1 % count as
        no slower than the next. The noise lasts as measured by the `autocorrelation`, unless that is empty.
        """
        times = self.times(samples)
        means = {size: float(row.mean()) for size, row in times.items()}
        lasts = lasting_noise(self.autocorrelation) if self.autocorrelation else ()
        return self.table(means).with_noise(pooled(self.noise_cv(samples)), "lognormal", *lasts)

    def noise_cv(self, samples: str | None = None) -> dict[Any, float]:
        """Return the coefficient of variation of each batch size: see `service_with_noise`."""
        return {size: cv_of(row) for size, row in self.times(samples).items()}

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write everything to `path` as JSON; the file that was there stays if the writing fails."""
        with replacing(path) as file:
            content = files.HEADER | asdict(self)  # type: ignore[call-overload]  # one of two dataclasses
            json.dump(content, codecs.getwriter("utf-8")(file), indent=1, allow_nan=False)
            file.write(b"\n")

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Return what `save` wrote to `path`; any other file raises ValueError."""
        return files.load(path, cls)


@dataclass(frozen=True, repr=False)
class Measurement(Measured):
    """The times of a model for batches of each size, and the device.

    `samples_ms` has a row for each of `batch_sizes`, in the order of measuring; `repeats` is the length of
    the shortest. `first_call_s` is the first call at each size, which compiles and computes once; empty if
    unknown. `platform` is JAX's word ("cpu", "gpu"); `measured_at` is an ISO time. `copy`: whether the times
    include copying the inputs to the device, None if unknown. `served`: whether they are those of a server
    with its batcher, not of the model alone. `target`: the intended precision of the medians. `program`: the
    FLOPs and the bytes of each size's compiled program, and `roofline`: the FLOP/s and the bytes/s that the
    device reached; both empty if unknown. `not_fitting`: the sizes for which the device had too little
    memory, with its messages. `autocorrelation`: how a batch's time correlates with those of the 1st, 2nd,
    4th, 8th, 16th and 32nd after it, relative to their sizes; empty if unknown. Wrong values raise ValueError
    or TypeError.

    Only the *quiet* samples of each size count: see `batchsim.measured.samples`. `notes` has all doubts.
    """

    model: str
    device: str
    platform: str
    jax_version: str
    batch_sizes: tuple[int, ...]
    repeats: int
    samples_ms: tuple[tuple[float, ...], ...]
    first_call_s: tuple[float, ...]
    measured_at: str
    copy: bool | None = True
    served: bool = False
    target: float | None = None
    program: tuple[tuple[float, ...], ...] = ()
    roofline: tuple[float, ...] = ()
    not_fitting: tuple[tuple[int, str], ...] = ()
    autocorrelation: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        for name in ("model", "device", "platform", "jax_version", "measured_at"):
            _check.instance(name, getattr(self, name), str, "text")
        try:
            datetime.fromisoformat(self.measured_at)
        except ValueError:
            raise ValueError(f"measured_at must be an ISO time, got {brief(self.measured_at)}") from None
        _check.instance("copy", self.copy, (bool, type(None)), "true, false or null")
        _check.instance("served", self.served, bool, "true or false")
        if self.target is not None:
            _check.fix_real(self, "target", above=0)
        sizes = _check.sizes("batch_sizes", self.batch_sizes, rising=False)
        repeats = _check.whole("repeats", self.repeats)
        rows = zip(sizes, files.list_of(len(sizes), "samples_ms", self.samples_ms), strict=True)
        samples_ms = tuple(files.times(None, f"samples_ms of batch size {size}", row) for size, row in rows)
        fewest = min(map(len, samples_ms))
        if repeats != fewest:
            raise ValueError(f"repeats must be the fewest samples of a size, {fewest}, got {repeats}")
        first_s = files.times(len(sizes) if self.first_call_s else 0, "first_call_s", self.first_call_s)
        # As tuples, so that a measurement from a file equals the saved one.
        vars(self).update(
            batch_sizes=sizes, repeats=repeats, samples_ms=samples_ms, first_call_s=first_s,
            program=files.pairs(len(sizes) if self.program else 0, "program", self.program),
            roofline=files.rates(2 if self.roofline else 0, "roofline", self.roofline),
            not_fitting=files.reasons("not_fitting", self.not_fitting),
            autocorrelation=files.correlations(self.autocorrelation, len(LAGS)),
        )  # fmt: skip

    @kept
    def _points(self) -> dict[int, Summary]:
        return {size: summary(row) for size, row in self._rows.items()}

    @property
    def _rows(self) -> dict[int, tuple[float, ...]]:
        return dict(zip(self.batch_sizes, self.samples_ms, strict=True))

    @property
    def median_ms(self) -> dict[int, float]:
        """The median of the quiet times of each batch size."""
        return {size: point.median_ms for size, point in self._points.items()}

    @property
    def interval_ms(self) -> dict[int, tuple[float, float]]:
        """The 95 % interval of each of these medians, NaN for fewer than 6 samples."""
        return {size: (point.low_ms, point.high_ms) for size, point in self._points.items()}

    @property
    def spread_ms(self) -> dict[int, float]:
        """The interquartile range of all times of each batch size."""
        return {size: point.spread_ms for size, point in self._points.items()}

    @property
    def quiet(self) -> dict[int, np.ndarray]:
        """Whether each time of a batch size is quiet or was disturbed, shape (samples,)."""
        return {size: quiet(row) for size, row in self._rows.items()}

    @property
    def compile_s(self) -> dict[int, float]:
        """The first call of each batch size, which compiles and computes once; empty if unknown."""
        return dict(zip(self.batch_sizes, self.first_call_s, strict=False))

    @property
    def bound_ms(self) -> dict[int, float]:
        """The least time of each batch size at this device's measured rates; empty if these are unknown.

        The roofline: the longer of computing the program's FLOPs and of moving its bytes. The bytes count all
        operands and results, even those in a cache, so a small model may be faster than its bound.
        """
        if not self.roofline or not self.program:
            return {}
        rates = np.array(self.roofline)
        bounds_ms = (np.array(self.program) / rates).max(axis=1) * 1000
        return dict(zip(self.batch_sizes, bounds_ms.tolist(), strict=True))

    @property
    def knee(self) -> int:
        """The batch size with the most throughput per latency (Kleinrock's power).

        For a straight line it is the fixed cost over the cost per item, where the throughput is half its
        limit.
        """
        return max(self.batch_sizes, key=lambda size: size / self.median_ms[size] ** 2)

    @kept
    def notes(self) -> tuple[Note, ...]:
        """All doubts about the curve, each a `Note(batch_size, key, text)`.

        The keys: "two levels" and "drift" (repeats disagree), "disturbed", "wide" (the interval is beyond the
        target), "falls" (with the batch size), "jumps" (more than its items would take in smaller batches),
        "few" (samples), "memory" (does not fit).
        """
        unfitting = [Note(size, "memory", why) for size, why in self.not_fitting]
        return (*doubts(self._points, self.target), *unfitting)

    @property
    def remarks(self) -> list[str]:
        """The lines below the table: each doubt once, and how the noise differs by size."""
        doubts = dict.fromkeys(f"{note.key}: {note.text}" for note in self.notes)
        cvs = self.noise_cv()
        if not any(cvs.values()):
            return list(doubts)
        low, high = min(cvs, key=cvs.__getitem__), max(cvs, key=cvs.__getitem__)
        by_size = f"by size from {fixed(cvs[low])} ({low:,}) to {fixed(cvs[high])} ({high:,})"
        of = "" if self.served else " of the quiet samples"
        noise = [f"noise{of}: cv {fixed(pooled(cvs))}; {by_size}"]
        if self.autocorrelation and (lasts := lasting_noise(self.autocorrelation))[0]:
            neighbours = f"a batch's time correlates with the next one's by {lasts[0]:.2f}"
            noise.append(f"lasting: {neighbours}, and with later ones' for about {lasts[1]:.0f} batches")
        return [*doubts, *noise]

    def table(self, times_ms: Mapping[int, float]) -> Table:
        return Table(times_ms)

    def times(self, samples: str | None = None) -> dict[int, np.ndarray]:
        """Return the times in ms of each batch size that `service_with_noise` uses."""
        if samples is None:
            samples = "clipped" if self.served else "quiet"
        _check.one_of("samples", samples, SAMPLES)
        rows = {size: np.array(row) for size, row in self._rows.items()}
        if samples == "quiet":
            return {size: row[self.quiet[size]] for size, row in rows.items()}
        return clipped(rows) if samples == "clipped" else rows

    def joined(self, later: "Measurement") -> "Measurement":
        """Return one measurement with the times of both, which must have the same model and sizes.

        The speed of a shared machine changes from minute to minute: measure before and after the run to
        predict.
        """
        for name in ("model", "device", "batch_sizes", "copy", "served"):
            own, other = getattr(self, name), getattr(later, name)
            if own != other:
                raise ValueError(f"joined measurements must have the same {name}, got {own!r} and {other!r}")
        samples_ms = tuple(a + b for a, b in zip(self.samples_ms, later.samples_ms, strict=True))
        both = self.autocorrelation, later.autocorrelation
        lasts = tuple((a + b) / 2 for a, b in zip(*both, strict=True)) if all(both) else ()
        repeats = min(map(len, samples_ms))
        return replace(self, samples_ms=samples_ms, repeats=repeats, autocorrelation=lasts)

    def fit(self, kind: str = "affine", pieces: int = 3) -> fits.Fit:
        """Return the "affine" or "piecewise" service time nearest to `service`, and its worst relative error.

        Nearest by relative squares; neither falls with the batch size: see `batchsim.measured.fits.fit`.
        """
        return fits.fit(self.median_ms, kind, pieces)

    def compiling(self) -> dict[int, float]:
        """Return the milliseconds of compiling at each size: the first call minus a usual one."""
        if not self.first_call_s:
            raise ValueError("first_call_s must not be empty, got none: this measurement has no first calls")
        return {size: max(1000 * self.compile_s[size] - ms, 0.0) for size, ms in self.median_ms.items()}

    def to_frame(self) -> "pandas.DataFrame":
        """Return a DataFrame with one row a batch size; `low_ms` to `high_ms` is the median's interval."""
        import pandas

        sizes, points = np.array(self.batch_sizes), list(self._points.values())
        median_ms = np.array([point.median_ms for point in points])
        columns: dict[str, Any] = {"batch_size": sizes, "median_ms": median_ms}
        for name in ("low_ms", "high_ms", "all_ms", "spread_ms"):
            columns[name] = [getattr(point, name) for point in points]
        columns |= {"per_item_ms": median_ms / sizes, "items_per_s": sizes / median_ms * 1000}
        columns |= {"cv": [point.cv for point in points], "samples": [point.samples for point in points]}
        columns["disturbed"] = [point.disturbed for point in points]
        columns["compile_s"] = self.first_call_s or math.nan
        keys = [[note.key for note in self.notes if note.batch_size == size] for size in self.batch_sizes]
        return pandas.DataFrame(columns | {"notes": [", ".join(each) for each in keys]})

    @classmethod
    def from_csv(
        cls, path: str | os.PathLike[str], column: str | None = None, unit: str | None = None, *,
        model: str | None = None, device: str = "an unknown device",
    ) -> Self:  # fmt: skip
        """Return the measurement in a CSV file with a column `batch_size` and one of times.

        Each row is a sample, or a median. The unit of the times is in the header, such as `ms` or
        `latency_us`, or in `unit`: "s", "ms", "us" or "ns". `column` names the times if several columns have
        a unit. Another file raises ValueError with the missing part. `model` defaults to the file's name, and
        the date is the file's.
        """
        return files.from_csv(cls, path, column, unit, model=model, device=device)

    @classmethod
    def from_perf_analyzer(
        cls, paths: str | os.PathLike[str] | Mapping[int, str | os.PathLike[str]], batch_size: int = 1, *,
        concurrency: int = 1, copy: bool = True, model: str | None = None, device: str = "an unknown device",
    ) -> Self:  # fmt: skip
        """Return the measurement in files of NVIDIA's perf_analyzer (`-f`): {batch size: path}, or one path.

        A file does not contain its batch size (`-b`), unless in a column `Batch`: `batch_size` is that of one
        path. From each file the row with this `concurrency` counts: with several clients the server may have
        batched requests itself, into larger batches than the client's. A time is the server's mean for
        computing a batch: with `copy` including input and output, otherwise the inference alone; never
        queueing or the network.
        """
        return files.from_perf_analyzer(
            cls, paths, batch_size, concurrency=concurrency, copy=copy, model=model, device=device
        )

    def __repr__(self) -> str:
        table = _table(self).to_string(index=False, formatters=FORMATS)
        return "\n".join([_title(self), table, *self.remarks])

    def _repr_html_(self) -> str:
        table = _table(self).to_html(index=False, border=0, formatters=FORMATS)
        items = "".join(f"<li>{escape(each)}</li>" for each in self.remarks)
        return f"<p>{escape(_title(self))}</p>{table}" + (f"<ul>{items}</ul>" if items else "")


# Doubts: a sentence each, with its batch size.


TARGET = 0.05  # half the width of an interval, over the median, if the measurement has no target
JUMP = 1.1  # a jump: the time of a batch over that of its items in smaller batches
MANY = 0.2  # the share of disturbed samples from which on they are a doubt


def doubts(points: Mapping[int, Summary], target: float | None) -> list[Note]:
    """Return the doubts about the summaries of batch sizes, in their order.

    `target` is the intended half-width of the medians' intervals over the median. A doubt about several sizes
    is one text.
    """
    limit = TARGET if target is None else target
    notes = [note for size, point in points.items() for note in _levels(size, point)]
    notes += _falls(points, limit) + _jumps(points)
    many = {
        size: percent(point.disturbed / point.samples)
        for size, point in points.items() if point.levels is None and point.disturbed > MANY * point.samples
    }  # fmt: skip
    notes += _of_all(
        "disturbed", many, "samples are disturbed, by other work on this machine or by its clock"
    )
    drift = {size: f"{point.drift:+.0%}" for size, point in points.items() if abs(point.drift) > limit}
    notes += _of_all("drift", drift, "the second half of the repeats differs from the first: measure again")
    wide = {size: f"±{percent(p.half_width)}" for size, p in points.items() if p.half_width > limit}
    text = f"the median is not known to ±{percent(limit)}: more time, or a quieter machine, narrows it"
    notes += _of_all("wide", wide, text)
    few = {size: f"{p.samples:,}" for size, p in points.items() if math.isnan(p.half_width)}
    notes += _of_all("few", few, "samples are fewer than 6: the median has no interval")
    return sorted(notes, key=lambda note: list(points).index(note.batch_size))


def _of_all(key: str, sizes: Mapping[int, str], text: str) -> list[Note]:
    each = listed([f"{size:,} ({value})" for size, value in sizes.items()]) if sizes else ""
    return [Note(size, key, f"at {each}, {text}") for size in sizes]


def _levels(size: int, point: Summary) -> list[Note]:
    if point.levels is None:
        return []
    low, high, share = point.levels
    text = f"repeats of {size:,} disagree, {percent(share)} near {fixed(low)} ms and the rest near"
    text += f" {fixed(high)} ms: the lower is taken, as other work or a slower clock only adds time"
    return [Note(size, "two levels", text)]


def _falls(points: Mapping[int, Summary], limit: float) -> list[Note]:
    """Return where the curve falls with size by more than the intervals of both points."""
    notes = []
    for size, point in points.items():
        below = [other for other in points if other < size and _above(points[other], point, limit)]
        if below:
            other = max(below, key=lambda each: points[each].median_ms)
            text = f"a batch of {size:,} takes {fixed(point.median_ms)} ms, less than one of {other:,},"
            text += f" {fixed(points[other].median_ms)} ms: measure again; if it stays, the device has a"
            text += f" faster program for {size:,}, and padding to that size pays"
            notes.append(Note(size, "falls", text))
    return notes


def _jumps(points: Mapping[int, Summary]) -> list[Note]:
    """Return where a batch takes clearly longer than its items in smaller batches."""
    notes = []
    for size, point in points.items():
        low = point.median_ms if math.isnan(point.low_ms) else point.low_ms
        split_ms = {
            other: size / other * (small.median_ms if math.isnan(small.high_ms) else small.high_ms)
            for other, small in points.items() if other < size
        }  # fmt: skip
        if split_ms and low > JUMP * min(split_ms.values()):
            other = min(split_ms, key=split_ms.__getitem__)
            text = f"a batch of {size:,} takes {fixed(point.median_ms)} ms, longer than {size / other:.3g} of"
            text += f" {other:,}, {fixed(points[other].median_ms)} ms each: measure again; if it stays, a"
            text += f" max batch size below {size:,} is better"
            notes.append(Note(size, "jumps", text))
    return notes


def _above(point: Summary, other: Summary, limit: float) -> bool:
    """Return whether a point is above another by more than their intervals, or without these the limit."""
    low = point.median_ms * (1 - limit) if math.isnan(point.low_ms) else point.low_ms
    high = other.median_ms if math.isnan(other.high_ms) else other.high_ms
    return low > high


# A measurement as text and as HTML: a table, and the doubts below it.


HIDDEN = ["low_ms", "high_ms", "all_ms", "cv", "samples"]  # columns of the frame that the table omits
COPY = {True: "with the copy to the device, ", False: "without the copy to the device, ", None: ""}
FORMATS: dict[Any, Any] = dict.fromkeys(
    ("median_ms", "spread_ms", "per_item_ms", "compile_s"), "{:.3f}".format
) | {"items_per_s": "{:,.0f}".format}


def _title(measurement: Measurement) -> str:
    jax, most = "", max(map(len, measurement.samples_ms))
    if measurement.jax_version:
        jax = f" (jax {measurement.jax_version}, {measurement.platform})"
    repeats = f"{measurement.repeats} to {most}" if most > measurement.repeats else f"{most}"
    what = " on ".join(map(brief_text, (measurement.model, f"{measurement.device}{jax}")))
    how = "as a server gives it, " if measurement.served else COPY[measurement.copy]
    return f"Measurement: {what}, {repeats} repeats, {how}{measurement.measured_at}"


def _table(measurement: Measurement) -> "pandas.DataFrame":
    frame = measurement.to_frame()
    widths = (frame["high_ms"] - frame["low_ms"]) / 2 / frame["median_ms"]
    frame.insert(2, "within", ["" if math.isnan(each) else f"±{percent(each)}" for each in widths])
    return frame.drop(columns=HIDDEN + ["compile_s"] * (not measurement.first_call_s))
