"""The four numbers that matter of token generation: TTFT, TPOT, tokens per second, goodput or load."""

from batchsim._format import duration, percent
from batchsim.result.metrics import TPOT, TTFT
from batchsim.view.run.data import ViewData
from batchsim.view.run.headline import (
    Figure,
    Headline,
    change_of,
    digits,
    latency_figure,
    load_figure,
    rate_figure,
)
from batchsim.view.run.token_data import NAMED, TokenViewData, of_tokens


class TokenHeadline(Headline):
    """The four figures of token generation."""

    def figures_of(self, data: ViewData) -> list[Figure]:
        return token_figures_of(data)


def token_figures_of(data: ViewData) -> list[Figure]:
    """Return the p99 of TTFT and of TPOT, the tokens per second, and the goodput.

    Without objectives, the load; of an overloaded run, too: its goodput only says how long the run was.
    """
    data = of_tokens(data)
    figures = [_p99(data, column) for column in (TTFT, TPOT)]
    figures.append(rate_figure(data, "output tokens", "output_tokens_per_s"))
    preempted = float(data.summary["preempted_share"])
    beside = f"{percent(preempted)} preempted" if preempted > 0 else ""
    if data.overloaded or not data.limits_ms:
        return [*figures, load_figure(data)._replace(beside=beside)]
    before, value = data.before, data.goodput_per_s
    old = before.goodput_per_s if isinstance(before, TokenViewData) and not before.overloaded else None
    within = f"{percent(data.attainment)} of requests"
    return [
        *figures,
        Figure("goodput", digits(value), "per s", within, change_of(value, old, digits), beside=beside),
    ]


def _p99(data: TokenViewData, column: str) -> Figure:
    """Return the p99 of a column against its objective, with the p50 beside it."""
    name = NAMED[column]
    interval = None if data.loss else data.intervals.get(f"{name.lower()}_p99_ms")
    figure = latency_figure(data, 99, interval, column, data.limits_ms.get(column))
    p50_ms = data.percentile_of_all(50, column)
    return figure._replace(name=f"{name} {figure.name}", beside=f"p50 {duration(p50_ms)}" * bool(figure.unit))
