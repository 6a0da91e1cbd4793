"""A real run over its simulation: the latencies of both, and the sizes of their batches."""

import textwrap

import numpy as np

from batchsim.device.fidelity import LEVEL, SHARES, Fidelity
from batchsim.result.metrics import heading
from batchsim.view.canvas.theme import BLACK, BLUE, VERMILION
from batchsim.view.charts import chart as charts
from batchsim.view.charts.chart import Chart

FARTHEST = 1.6  # of the longest latency that is drawn, how much of the band is seen
WIDTH = 0.4  # of a bar, the distance of two sizes being 1


def overlay(compared: Fidelity) -> Chart:
    """Return a picture of a replay and its simulation: what share of the requests took how long, and batches.

    The simulated line is the median of the repeats, and the band holds 95 of 100 of them at each share; what
    is outside of it is more than chance. The batches are those of one simulation.

    >>> from batchsim import Affine, Poisson, Scenario, SizeOrWait
    >>> from batchsim.device import compare_with_simulation, load_model
    >>> scenario = Scenario(Poisson(500), SizeOrWait(2, 1), Affine(1, 0.1))
    >>> model = load_model("mlp", width=8)
    >>> overlay(compare_with_simulation(scenario, model, 50, limit_s=0.2, progress=False))
    <Chart size 760x520 with 2 Axes>
    """
    chart = Chart()
    latency, batches = chart.subplots(2, height_ratios=(3, 2))
    repeats, handles = compared.repeats, []
    low_ms, high_ms = np.quantile(repeats.latency_ms, [(1 - LEVEL) / 2, (1 + LEVEL) / 2], axis=0)
    handles += [
        latency.fill_betweenx(
            SHARES, low_ms, high_ms, color=BLUE, alpha=0.2, linewidth=0,
            label=f"{100 * LEVEL:.0f} of 100 simulated repeats",
        )
    ]  # fmt: skip
    both = {
        "replayed": (compared.replayed.metrics.percentiles(SHARES), compared.replayed.percentile(99)),
        "simulated": (np.median(repeats.latency_ms, axis=0), compared.predicted("p99_ms")),
    }
    results = compared.replayed, compared.simulated
    for (name, (at_ms, p99_ms)), result, colour, style, side in zip(
        both.items(), results, (VERMILION, BLUE), ("-", "--"), (-WIDTH / 2, WIDTH / 2), strict=True
    ):
        handles += latency.plot(at_ms, SHARES, style, color=colour, label=f"{name} (dot: p99)")
        latency.plot(p99_ms, 99, "o", color=colour, markeredgecolor=BLACK, zorder=5)
        sizes, counts = np.unique(result.batches.batch_size, return_counts=True)
        percent = 100 * counts / counts.sum()
        batches.bar(sizes + side, percent, WIDTH, color=colour, hatch="//" if side > 0 else "", alpha=0.8)
    # A band that reaches far to the right would press both lines to the left.
    right_ms = min(high_ms[-1], FARTHEST * max(at_ms[-1] for at_ms, _ in both.values()))
    right_ms = max(right_ms, *(at_ms[-1] for at_ms, _ in both.values()))
    latency.set(xlabel="latency (ms)", ylabel="% of requests within", ylim=(0, 102))
    latency.set_xlim(0, 1.03 * right_ms)
    batches.set(xlabel="batch size (requests)", ylabel="% of batches")
    batches.xaxis.get_major_locator().set_params(integer=True)
    difference = ", ".join(
        f"{heading(key).partition(' (')[0]} {100 * compared.difference(key):+.1f} %"
        + ("" if compared.inside(key) else " (outside)")
        for key in ("mean_latency_ms", "p99_ms", "mean_batch_size")
    )
    title = f"A real run and its simulation, {compared.measurement.model}\nsimulated: {difference}"
    if compared.disturbed:
        title += "\n" + textwrap.shorten(
            f"DISTURBED, no verdict: {compared.disturbed}", 100, placeholder=" …"
        )
    latency.set_title(title, fontsize="medium")
    for ax in (latency, batches):
        ax.grid(alpha=0.3)
    charts.show_legend(chart, handles)
    return chart
