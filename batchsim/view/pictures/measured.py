"""A measurement with the device's roofline, a load test, and a real run, each over its simulation."""

import math
import textwrap
from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import LogLocator

from batchsim._format import number
from batchsim.measured.fidelity import LEVEL, SHARES, Fidelity
from batchsim.measured.measurement import Measurement
from batchsim.result.metrics import heading
from batchsim.study.calibration import Calibration
from batchsim.view.pictures import figures
from batchsim.view.pictures.picture import Picture
from batchsim.view.theme import BLACK, BLUE, GREEN, VERMILION

WIDTH = 0.12  # width of a size's samples, in powers of 2
WIDE = 5  # largest over smallest number: beyond, a scale is logarithmic
LABELLED = 12  # the most sizes that all have a number on the axis
QUIET: dict[str, Any] = {"color": BLUE, "linestyle": "none", "marker": ".", "markersize": 4}
DISTURBED = QUIET | {"color": VERMILION, "marker": "x"}
CURVE: dict[str, Any] = {"color": BLUE, "marker": "o", "markersize": 5}
HOLLOW: dict[str, Any] = {"linestyle": "none", "marker": "o", "markerfacecolor": "white"}
DOUBTFUL = HOLLOW | {"markersize": 8, "markeredgecolor": VERMILION, "markeredgewidth": 1.5}
ROOF: dict[str, Any] = {"color": GREEN, "linestyle": "--"}
KNEE: dict[str, Any] = {"color": BLACK, "linestyle": ":", "linewidth": 1}
FULL: dict[str, Any] = {"color": VERMILION, "linestyle": "-.", "linewidth": 1}


def measured(measurement: Measurement) -> Picture:
    """Return a picture of a measurement: above the time of a batch, below the throughput, by batch size.

    Samples are dots, disturbed samples crosses; the line joins the medians of the quiet ones, with their 95 %
    intervals. Hollow points are doubtful, for the reasons in `measurement.notes`. The dashed line is the
    roofline, if known, and the dotted line the knee.

    >>> measured(Measurement(
    ...     "mlp", "a GPU", "gpu", "0.10", (1, 8), 2, ((1.0, 1.1), (2.0, 2.1)), (), "2026-01-01"
    ... ))
    <Picture size 760x520 with 2 Axes>
    """
    picture = figures.panels(2, sharex=True, height_ratios=[3, 2])
    top, low = picture.axes
    _show_samples(top, measurement)
    _show_curve(top, measurement, throughput=False)
    _show_curve(low, measurement, throughput=True)
    knee, sizes = measurement.knee, [*measurement.batch_sizes]
    unfitting = [size for size, _ in measurement.not_fitting]
    for ax in (top, low):
        ax.axvline(knee, zorder=0, label=f"knee: {knee:,}" + " or beyond" * (knee == max(sizes)), **KNEE)
        for size in unfitting:
            ax.axvline(size, zorder=0, label="does not fit in memory", **FULL)
        low_end, high_end = ax.get_ylim()
        if high_end > WIDE * max(low_end, 0):
            ax.set_yscale("log")
            ax.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if high_end < 1000 * low_end else (1,)))
            ax.yaxis.set_major_formatter(lambda value, _: number(value))
            ax.minorticks_off()
        else:
            ax.set_ylim(bottom=0)
    low.set_xscale("log", base=2)
    marked = sizes + unfitting
    if len(marked) > LABELLED:
        marked = [2**power for power in range(math.ceil(math.log2(max(marked))) + 1)]
    low.set_xticks(marked, figures.texts(marked))
    low.set_xticks([], minor=True)
    low.set(xlabel="batch size", ylabel="throughput (per s)")
    top.set_ylabel("time of a batch (ms)")
    top.set_title(f"Measured: {measurement.model} on {measurement.device}", fontsize="medium")
    named = dict(zip(*top.get_legend_handles_labels()[::-1], strict=True))  # each name once
    figures.show_legend(low, [*named.values()])
    return picture


def _show_samples(ax: Axes, measurement: Measurement) -> None:
    """Draw the samples of each size from left to right in the order of measuring: a drift is visible."""
    rows = dict(zip(measurement.batch_sizes, measurement.samples_ms, strict=True))
    at = [size * 2 ** (WIDTH * (np.linspace(0, 1, len(row)) - 0.5)) for size, row in rows.items()]
    quiet = np.concatenate([measurement.quiet[size] for size in rows])
    samples = np.concatenate(at), np.concatenate([*rows.values()])
    alpha = min(max(20 * len(rows) / quiet.size, 0.1), 0.6)
    ax.plot(*(each[quiet] for each in samples), **QUIET, alpha=alpha, label="samples")
    if not quiet.all():
        ax.plot(*(each[~quiet] for each in samples), **DISTURBED, alpha=0.6, label="disturbed samples")


def _show_curve(ax: Axes, measurement: Measurement, throughput: bool) -> None:
    """Draw the medians, their intervals and the roofline as times or as throughputs."""
    sizes = np.array(sorted(measurement.batch_sizes))
    doubtful = np.isin(sizes, [note.batch_size for note in measurement.notes])

    def shown(times_ms: Mapping[int, float]) -> np.ndarray:
        times = np.array([times_ms[size] for size in sizes.tolist()])
        return 1000 * sizes / times if throughput else times

    medians = shown(measurement.median_ms)
    ends = [shown({size: ends[at] for size, ends in measurement.interval_ms.items()}) for at in (0, 1)]
    ax.plot(sizes, medians, zorder=2, label="median of the quiet samples", **CURVE)
    known = np.isfinite(ends[0])
    ax.vlines(sizes[known], *(end[known] for end in ends), color=BLACK, linewidth=1.5, zorder=3)
    if doubtful.any():
        ax.plot(sizes[doubtful], medians[doubtful], zorder=4, label="doubtful: see the notes", **DOUBTFUL)
    if measurement.bound_ms:
        flop_per_s, bytes_per_s = measurement.roofline
        rates = f"{number(flop_per_s / 1e9)} GFLOP/s, {number(bytes_per_s / 1e9)} GB/s"
        ax.plot(sizes, shown(measurement.bound_ms), zorder=2, label=f"roofline: {rates}", **ROOF)
    else:
        ax.plot([], [], "none", label="no roofline: operations unknown")


HELD_OUT = HOLLOW | {"color": VERMILION}
FITTED = HELD_OUT | {"markerfacecolor": VERMILION}
PANELS = (
    ("tpot_ms", "TPOT (ms)"), ("ttft_ms", "TTFT (ms)"), ("latency_ms", "latency (ms)"),
    ("served_per_s", "served per s"),
)  # fmt: skip


def calibrated(calibration: Calibration) -> Picture:
    """Return a picture of a calibration: each stage measured (dots; hollow: held out) and simulated."""
    frame = calibration.to_frame()
    shown = [panel for panel in PANELS if frame[panel[0]].notna().any()]
    shown = [panel for panel in shown if len(shown) < len(PANELS) or panel[0] != "latency_ms"]
    places, fits = np.arange(len(frame)), frame["fitted"].to_numpy(bool)
    picture = figures.panels(len(shown), sharex=True)
    for ax, (name, label) in zip(picture.axes, shown, strict=True):
        measured_values, simulated = (frame[each].to_numpy(float) for each in (name, f"{name}_simulated"))
        ax.plot(places, simulated, **CURVE | {"marker": "x"}, label="simulated")
        ax.plot(places[fits], measured_values[fits], **FITTED, label="measured, fitted")
        ax.plot(places[~fits], measured_values[~fits], **HELD_OUT, label="measured, held out")
        ax.set_ylabel(label)
        figures.scale(ax, measured_values)
    ax.set_xticks(places, frame["load"])
    ax.set_xlabel("load of the stage")
    figures.show_legend(ax, ax.get_legend_handles_labels()[0])
    return picture


FARTHEST = 1.6  # the band is cut off at this multiple of the lines' longest latency
TITLE = 70  # letters of a line: more are cut off at the right
BAR_WIDTH = 0.4  # the distance of two sizes is 1


def overlay(compared: Fidelity) -> Picture:
    """Return a picture of a replay and its simulation: the latencies by share of requests, and batches.

    The simulated line is the median of the repeats, and the band contains 95 of 100 of them at each share:
    outside it, the difference is more than chance. The batches are those of one simulation.

    >>> from batchsim import Affine, Poisson, Scenario, SizeOrWait
    >>> from batchsim.device import compare_with_simulation, load_model
    >>> scenario = Scenario(Poisson(500), SizeOrWait(2, 1), Affine(1, 0.1))
    >>> model = load_model("mlp", width=8)
    >>> overlay(compare_with_simulation(scenario, model, 50, limit_s=0.2, progress=False))
    <Picture size 760x520 with 2 Axes>
    """
    picture, repeats = figures.panels(2, height_ratios=(3, 2)), compared.repeats
    latency, batches = picture.axes
    low_ms, high_ms = np.quantile(repeats.latency_ms, [(1 - LEVEL) / 2, (1 + LEVEL) / 2], axis=0)
    band: dict[str, Any] = {"color": BLUE, "alpha": 0.2, "linewidth": 0}
    band["label"] = f"{100 * LEVEL:.0f} of 100 simulated repeats"
    latency.fill_betweenx(SHARES, low_ms, high_ms, **band)
    both = {
        "replayed": (compared.replayed.metrics.percentiles(SHARES), compared.replayed.percentile(99)),
        "simulated": (np.median(repeats.latency_ms, axis=0), compared.predicted("p99_ms")),
    }
    results = compared.replayed, compared.simulated
    for (name, (at_ms, p99_ms)), result, colour, style, side in zip(
        both.items(), results, (VERMILION, BLUE), ("-", "--"), (-BAR_WIDTH / 2, BAR_WIDTH / 2), strict=True
    ):
        latency.plot(at_ms, SHARES, style, color=colour, label=f"{name} (dot: p99)")
        latency.plot(p99_ms, 99, "o", color=colour, markeredgecolor=BLACK, zorder=5)
        sizes, counts = np.unique(result.batches.batch_size, return_counts=True)
        percent = 100 * counts / counts.sum()
        batches.bar(sizes + side, percent, BAR_WIDTH, color=colour, hatch="//" if side > 0 else "", alpha=0.8)
    # A band that ends far to the right would squeeze both lines to the left.
    right_ms = min(high_ms[-1], FARTHEST * max(at_ms[-1] for at_ms, _ in both.values()))
    right_ms = max(right_ms, *(at_ms[-1] for at_ms, _ in both.values()))
    latency.set(xlabel="latency (ms)", ylabel="% of requests within", ylim=(0, 102))
    latency.set_xlim(0, 1.03 * right_ms)
    batches.set(xlabel="batch size (requests)", ylabel="% of batches")
    batches.xaxis.get_major_locator().set_params(integer=True)  # type: ignore[call-arg]
    difference = ", ".join(
        f"{heading(key).partition(' (')[0]} {100 * compared.difference(key):+.1f} %"
        + ("" if compared.inside(key) else " (outside)")
        for key in ("mean_latency_ms", "p99_ms", "mean_batch_size")
    )
    lines = [f"A real run and its simulation, {compared.measurement.model}", f"simulated: {difference}"]
    if compared.disturbed:
        verdict = f"DISTURBED, no verdict: {compared.disturbed}"
        lines.append(textwrap.shorten(verdict, 100, placeholder=" …"))
    latency.set_title("\n".join(textwrap.fill(line, TITLE) for line in lines), fontsize="medium")
    figures.show_legend(batches, latency.get_legend_handles_labels()[0])
    return picture
