"""Energy and cost of a request, or of a token, in batches of each size."""

from typing import NamedTuple

import numpy as np

from batchsim._format import number
from batchsim.result.metrics import MILLION
from batchsim.result.result import Result
from batchsim.scenario import Scenario, StepTime
from batchsim.scenario.lengths import points
from batchsim.scenario.step_time import step_ms

POINTS, LARGEST = 80, 4096  # batch sizes of a curve, and the largest one


class Costs(NamedTuple):
    """What one request, or token, takes in batches of each size that follow each other without a pause."""

    sizes: np.ndarray
    ms: np.ndarray  # of a batch, or of a step without prompts
    each: dict[str, np.ndarray]  # by kind
    run: dict[str, float]  # the run's own, with its idle time
    unit: str

    def words(self, kind: str, value: float) -> str:
        """Return an energy or a cost with its unit."""
        of = f"J a {self.unit}" if kind == "energy" else f"per million {self.unit}s"
        return f"{number(value)} {of}"


def costs_of(result: Result) -> Costs:
    """Return energy and cost by batch size; those that the scenario has."""
    scenario = result.scenario
    unit, of = ("request", "") if scenario.tokens is None else ("token", "_tokens")
    sizes = np.unique(
        np.geomspace(1, min(scenario.rule.largest_batch, LARGEST), POINTS).round().astype(np.int64)
    )
    ms = _batches_ms(scenario, sizes)
    price = np.full(sizes.size, (scenario.price_per_hour or 0.0) / 3600 * MILLION)
    watts = 0 * price if scenario.watts_at is None else scenario.watts_at(sizes)
    per_s = {"energy": (watts, f"joules_per_{unit}"), "cost": (price, f"cost_per_million{of}")}
    per_s = {kind: (rate, key) for kind, (rate, key) in per_s.items() if rate[0] > 0}
    each = {kind: rate * ms / 1000 / sizes for kind, (rate, _) in per_s.items()}
    return Costs(
        sizes, ms, each, {kind: result.metrics.numbers[key] for kind, (_, key) in per_s.items()}, unit
    )


def _batches_ms(scenario: Scenario, sizes: np.ndarray) -> np.ndarray:
    """Return how long batches compute; of tokens, a step of sequences that are halfway on average."""
    if scenario.tokens is None:
        return 1000 * scenario.mean_s(int(sizes[-1]))[sizes - 1]
    service, tokens = scenario.service, scenario.tokens
    context = points(tokens.prompt).mean() + points(tokens.output).mean() / 2
    assert isinstance(service, StepTime)
    cost = service.whole_cost(scenario.rule.largest_batch)
    steps_ms = [step_ms(cost, size, round(size * context), 0, size) for size in sizes.tolist()]
    return np.array(steps_ms) / service.tokens_a_step
