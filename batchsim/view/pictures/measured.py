"""A measurement with the device's roofline, a load test, and a real run, each over its simulation."""

import math
import textwrap
from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from batchsim._format import number
from batchsim.measured.fidelity import LEVEL, SHARES, Fidelity
from batchsim.measured.measurement import Measurement
from batchsim.result.metrics import heading
from batchsim.study.calibration import Calibration
from batchsim.view.pictures import figures
from batchsim.view.pictures.picture import Picture
from batchsim.view.pictures.view import Ticks
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
    sizes, unfitting = measurement.batch_sizes, [size for size, _ in measurement.not_fitting]
    knee = f"knee: {measurement.knee:,}" + " or beyond" * (measurement.knee == max(sizes))
    with figures.panels(2, sharex=True, height_ratios=[3, 2]) as picture:
        top, low = picture.axes
        _show_samples(top, measurement)
        for ax, is_rate in ((top, False), (low, True)):
            _show_curve(ax, measurement, is_rate)
            figures.scale(ax, WIDE)
            ax.axvline(measurement.knee, zorder=0, label=knee, **KNEE)
            for size in unfitting:
                ax.axvline(size, zorder=0, label="does not fit in memory", **FULL)
        low.set_xscale("log", base=2)
        marked = [*sizes, *unfitting]
        if len(marked) > LABELLED:
            marked = [2**power for power in range(math.ceil(math.log2(max(marked))) + 1)]
        low.set_xticks(marked, figures.texts(marked))
        low.minorticks_off()
        low.set(xlabel="batch size", ylabel="throughput (per s)")
        top.set_ylabel("time of a batch (ms)")
        top.set_title(f"Measured: {measurement.model} on {measurement.device}")
        figures.show_legend(low, top.get_legend_handles_labels()[0])
    return picture


def _show_samples(ax: Axes, measurement: Measurement) -> None:
    """Draw the samples of each size from left to right in the order of measuring: a drift is visible."""
    rows = dict(zip(measurement.batch_sizes, measurement.samples_ms, strict=True))
    at = [size * 2 ** (WIDTH * (np.linspace(0, 1, len(row)) - 0.5)) for size, row in rows.items()]
    quiet = np.concatenate([measurement.quiet[size] for size in rows])
    samples = np.array([np.concatenate(at), np.concatenate([*rows.values()])])
    alpha = min(max(20 * len(rows) / quiet.size, 0.1), 0.6)
    ax.plot(*samples[:, quiet], **QUIET, alpha=alpha, label="samples")
    if not quiet.all():
        ax.plot(*samples[:, ~quiet], **DISTURBED, alpha=0.6, label="disturbed samples")


def _show_curve(ax: Axes, measurement: Measurement, is_rate: bool) -> None:
    """Draw the medians, their intervals and the roofline as times or as throughputs."""
    sizes = np.array(sorted(measurement.batch_sizes))
    doubtful = np.isin(sizes, [note.batch_size for note in measurement.notes])

    def shown(times_ms: Mapping[int, Any]) -> np.ndarray:
        times = np.array([times_ms[size] for size in sizes.tolist()]).T
        return 1000 * sizes / times if is_rate else times

    medians, (low, high) = shown(measurement.median_ms), shown(measurement.interval_ms)
    ax.plot(sizes, medians, zorder=2, label="median of the quiet samples", **CURVE)
    ax.vlines(sizes, low, high, color=BLACK, linewidth=1.5, zorder=3)
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
    with figures.panels(len(shown), sharex=True) as picture:
        for ax, (name, label) in zip(picture.axes, shown, strict=True):
            ax.plot(places, frame[f"{name}_simulated"], **CURVE | {"marker": "x"}, label="simulated")
            for these, style, kind in ((fits, FITTED, "fitted"), (~fits, HELD_OUT, "held out")):
                ax.plot(places[these], frame[name][these], **style, label=f"measured, {kind}")
            ax.set_ylabel(label)
            figures.scale(ax)
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
    low_ms, high_ms = np.quantile(compared.repeats.latency_ms, [(1 - LEVEL) / 2, (1 + LEVEL) / 2], axis=0)
    runs = (  # from the left: names, latencies, p99, results, colours and dashes
        ("replayed", compared.replayed.metrics.percentiles(SHARES), compared.replayed.percentile(99),
         compared.replayed, VERMILION, "-"),
        ("simulated", np.median(compared.repeats.latency_ms, axis=0), compared.predicted("p99_ms"),
         compared.simulated, BLUE, "--"),
    )  # fmt: skip
    with figures.panels(2, height_ratios=(3, 2)) as picture:
        latency, batches = picture.axes
        band = f"{100 * LEVEL:.0f} of 100 simulated repeats"
        latency.fill_betweenx(SHARES, low_ms, high_ms, color=BLUE, alpha=0.2, linewidth=0, label=band)
        for side, (name, at_ms, p99_ms, result, colour, style) in zip((-0.5, 0.5), runs, strict=True):
            latency.plot(at_ms, SHARES, style, color=colour, label=f"{name} (dot: p99)")
            latency.plot(p99_ms, 99, "o", color=colour, markeredgecolor=BLACK, zorder=5)
            sizes, counts = np.unique(result.batches.batch_size, return_counts=True)
            bars = sizes + side * BAR_WIDTH, 100 * counts / counts.sum(), BAR_WIDTH
            batches.bar(*bars, color=colour, hatch="//" if side > 0 else "", alpha=0.8)
        # A band that ends far to the right would squeeze both lines to the left.
        last_ms = max(float(at_ms[-1]) for _, at_ms, *_ in runs)
        right_ms = max(min(high_ms[-1], FARTHEST * last_ms), last_ms)
        latency.set(xlabel="latency (ms)", ylabel="% of requests within", ylim=(0, 102))
        latency.set_xlim(0, 1.03 * right_ms)
        batches.set(xlabel="batch size (requests)", ylabel="% of batches")
        batches.xaxis.set_major_locator(Ticks(9, integer=True))
        difference = ", ".join(
            f"{heading(key).partition(' (')[0]} {100 * compared.difference(key):+.1f} %"
            + " (outside)" * (not compared.inside(key))
            for key in ("mean_latency_ms", "p99_ms", "mean_batch_size")
        )
        lines = [f"A real run and its simulation, {compared.measurement.model}", f"simulated: {difference}"]
        if compared.disturbed:
            verdict = f"DISTURBED, no verdict: {compared.disturbed}"
            lines.append(textwrap.shorten(verdict, 100, placeholder=" …"))
        latency.set_title("\n".join(textwrap.fill(line, TITLE) for line in lines), weight="normal")
        figures.show_legend(batches, latency.get_legend_handles_labels()[0])
    return picture
