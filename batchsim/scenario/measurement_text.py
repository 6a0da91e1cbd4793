"""A measurement as text and as HTML: a table, and below it what is doubtful."""

import math
from collections.abc import Mapping
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np

from batchsim._format import fixed, percent
from batchsim.scenario import lasting

if TYPE_CHECKING:
    import pandas

HIDDEN = ["low_ms", "high_ms", "all_ms", "cv", "samples"]  # of the frame: the table is narrower
COPY = {True: "with the copy to the device, ", False: "without the copy to the device, ", None: ""}
FORMATS: dict[Any, Any] = dict.fromkeys(
    ("median_ms", "spread_ms", "per_item_ms", "compile_s"), "{:.3f}".format
) | {"items_per_s": "{:,.0f}".format}


def plain(measurement: Any) -> str:
    """Return a measurement as text."""
    table = _table(measurement).to_string(index=False, formatters=FORMATS)
    return "\n".join([_title(measurement), table, *remarks(measurement)])


def html(measurement: Any) -> str:
    """Return a measurement as HTML."""
    table = _table(measurement).to_html(index=False, border=0, formatters=FORMATS)
    items = "".join(f"<li>{escape(each)}</li>" for each in remarks(measurement))
    return f"<p>{escape(_title(measurement))}</p>{table}" + (f"<ul>{items}</ul>" if items else "")


def remarks(measurement: Any) -> list[str]:
    """Return what is said below the table: the doubts, each once, and how far the noise differs by size."""
    doubts = dict.fromkeys(f"{note.key}: {note.text}" for note in measurement.notes)
    cvs = measurement.noise_cv()
    if not any(cvs.values()):
        return list(doubts)
    low, high = min(cvs, key=cvs.__getitem__), max(cvs, key=cvs.__getitem__)
    by_size = f"by size from {fixed(cvs[low])} ({low:,}) to {fixed(cvs[high])} ({high:,})"
    of = "" if measurement.served else " of the quiet samples"
    said = [f"noise{of}: cv {fixed(pooled(cvs))}; {by_size}"]
    if measurement.autocorrelation and (lasts := lasting.fitted(measurement.autocorrelation))[0]:
        neighbours = f"a batch's time correlates with the next one's by {lasts[0]:.2f}"
        said.append(f"lasting: {neighbours}, and with later ones' for about {lasts[1]:.0f} batches")
    return [*doubts, *said]


def pooled(cvs: Mapping[int, float]) -> float:
    """Return one coefficient of variation for all sizes: the root mean square.

    >>> pooled({1: 0.3, 8: 0.4})
    0.3535533905932738
    """
    return math.sqrt(float(np.mean(np.square(list(cvs.values())))))


def _title(measurement: Any) -> str:
    jax, most = "", max(map(len, measurement.samples_ms))
    if measurement.jax_version:
        jax = f" (jax {measurement.jax_version}, {measurement.platform})"
    repeats = f"{measurement.repeats} to {most}" if most > measurement.repeats else f"{most}"
    what = f"{measurement.model} on {measurement.device}{jax}"
    how = "as a server gives it, " if measurement.served else COPY[measurement.copy]
    return f"Measurement: {what}, {repeats} repeats, {how}{measurement.measured_at}"


def _table(measurement: Any) -> "pandas.DataFrame":
    frame = measurement.to_frame()
    widths = (frame["high_ms"] - frame["low_ms"]) / 2 / frame["median_ms"]
    frame.insert(2, "within", ["" if math.isnan(each) else f"±{percent(each)}" for each in widths])
    return frame.drop(columns=HIDDEN + ["compile_s"] * (not measurement.first_call_s))
