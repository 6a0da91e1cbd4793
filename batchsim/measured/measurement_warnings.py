"""What is doubtful about a measurement: a sentence for each doubt, with the batch size it is about."""

import math
from collections.abc import Mapping
from typing import NamedTuple

from batchsim._format import fixed, listed, percent
from batchsim.measured.outliers import Summary

TARGET = 0.05  # half the width of an interval, over the median, where a measurement says none
JUMP = 1.1  # how much longer a batch takes than the same items in smaller ones, where that is mentioned
MANY = 0.2  # the share of disturbed samples from which they are mentioned


class Note(NamedTuple):
    """A doubt about a batch size: `key` is its short name, as in a table, and `text` explains it."""

    batch_size: int
    key: str
    text: str


def doubts(points: Mapping[int, Summary], target: float | None) -> list[Note]:
    """Return what is doubtful about the summaries of batch sizes, in their order.

    `target` is how well the medians were meant to be known: half the interval, over the median. A doubt about
    several sizes is one text.
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
    notes += _of_all("few", few, "samples are fewer than 6: how well the median is known is not told")
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
    """Return where the curve falls with size by more than the intervals of the two points allow."""
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
    """Return where a batch takes clearly longer than its items would in smaller batches."""
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
    """Return whether a point is above another by more than their intervals, or the limit without any."""
    low = point.median_ms * (1 - limit) if math.isnan(point.low_ms) else point.low_ms
    high = other.median_ms if math.isnan(other.high_ms) else other.high_ms
    return low > high
