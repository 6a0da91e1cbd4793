"""A real run over its simulation: the latencies of both, and the sizes of their batches."""

import textwrap
from typing import Any

import numpy as np

from batchsim.device.fidelity import Fidelity
from batchsim.result.metrics import heading
from batchsim.view.canvas.theme import BLACK, BLUE, VERMILION
from batchsim.view.charts import chart as charts
from batchsim.view.charts.chart import Chart

STEP = 0.1  # percent: how finely a distribution is drawn
WIDTH = 0.4  # of a bar, the distance of two sizes being 1


def overlay(compared: Fidelity) -> Chart:
    """Return a picture of a replay and its simulation: what share of the requests took how long, and batches.

    >>> from batchsim import Affine, Poisson, Scenario, SizeOrWait
    >>> from batchsim.device import compare_with_simulation, load_model
    >>> scenario = Scenario(Poisson(500), SizeOrWait(2, 1), Affine(1, 0.1))
    >>> model = load_model("mlp", width=8)
    >>> overlay(compare_with_simulation(scenario, model, 50, limit_s=0.2, progress=False))
    <Chart size 760x520 with 2 Axes>
    """
    chart = Chart()
    latency, batches = chart.subplots(2, height_ratios=(3, 2))
    both = {"replayed": compared.replayed, "simulated": compared.simulated}
    shares = np.arange(0, 100 + STEP / 2, STEP)
    handles: list[Any] = []
    for (name, result), colour, style, side in zip(
        both.items(), (VERMILION, BLUE), ("-", "--"), (-WIDTH / 2, WIDTH / 2), strict=True
    ):
        at_ms = result.metrics.percentiles(shares)
        handles += latency.plot(at_ms, shares, style, color=colour, label=f"{name} (dot: p99)")
        p99_ms = result.percentile(99)
        latency.plot(p99_ms, 99, "o", color=colour, markeredgecolor=BLACK, zorder=5)
        sizes, counts = np.unique(result.batches.batch_size, return_counts=True)
        percent = 100 * counts / counts.sum()
        batches.bar(sizes + side, percent, WIDTH, color=colour, hatch="//" if side > 0 else "", alpha=0.8)
    latency.set(xlabel="latency (ms)", ylabel="% of requests within", ylim=(0, 102), xlim=(0, None))
    batches.set(xlabel="batch size (requests)", ylabel="% of batches")
    batches.xaxis.get_major_locator().set_params(integer=True)
    difference = ", ".join(
        f"{heading(key).partition(' (')[0]} {100 * compared.difference(key):+.1f} %"
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
