"""TTFT, TPOT, answers and throughput against load, with the present setting's point on the curves."""

from collections.abc import Sequence

from batchsim._format import counted, number, percent
from batchsim.scenario import ClosedLoop
from batchsim.view.run.by_load import DASHED, DOTTED, SOLID, Curve, LoadPanels, Panel, describe_ends
from batchsim.view.run.data import ViewData
from batchsim.view.run.token_data import of_tokens

ENDS = {
    "mean TTFT": "mean_ttft_ms", "p99 TTFT": "ttft_p99_ms", "mean TPOT": "mean_tpot_ms",
    "p99 TPOT": "tpot_p99_ms", "p99 of answers": "p99_ms",
}  # fmt: skip


class TokenLoadView(LoadPanels):
    """TTFT and answers above, TPOT below, then throughput, against the arrival rate or the clients."""

    NAME, SHORT = "TTFT, TPOT and throughput by load", "TTFT by load (ms)"
    BESIDE = 4.6
    PANELS = (
        Panel("TTFT, answer", 0.4, (
            Curve("p99", "ttft_p99_ms", SOLID, "TTFT p99 about {}"),
            Curve("mean", "mean_ttft_ms", DASHED, "mean {}"),
            Curve("answer p99", "p99_ms", DOTTED, "answer p99 {}"),
        )),
        Panel("TPOT", 0.34, (
            Curve("p99", "tpot_p99_ms", SOLID, "TPOT p99 {}"),
            Curve("mean", "mean_tpot_ms", DASHED, "mean {}"),
        )),
        Panel("answers (per s)", 0.26, (Curve("", "throughput_per_s", SOLID),), durations=False),
    )  # fmt: skip

    def heights(self, data: ViewData) -> dict[str, float]:
        return {curve.column: float(data.summary[curve.column]) for curve in self.drawn}

    def objectives(self, data: ViewData) -> Sequence[float | None]:
        data = of_tokens(data)
        return data.ttft_ms, data.tpot_ms

    def describe(self, data: ViewData) -> list[str]:
        return [*_describe_point(data), *describe_ends(data.curve, ENDS)]


def _describe_point(data: ViewData) -> list[str]:
    s, scenario = data.summary, data.result.scenario
    if not s["served"]:
        return []
    made = f"{number(s['throughput_per_s'])} answers/s, {number(s['output_tokens_per_s'])} tokens/s"
    output = f"{made}, utilisation {percent(s['utilisation'])}"
    if isinstance(scenario.workload, ClosedLoop):
        return [f"{counted(scenario.workload.clients, 'client')}: {output}."]
    saturation = scenario.saturation_per_s
    load = f"{number(100 * s['offered_per_s'] / saturation)}% of the saturation rate, {number(saturation)}/s"
    return [f"Arrival rate {number(s['offered_per_s'])}/s, {load}: {output}."]
