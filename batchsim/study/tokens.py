"""Token generation under many settings: which keep up, their metrics, and what a request takes alone."""

import functools
import math
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise, product
from typing import TYPE_CHECKING, Any

import numpy as np

from batchsim._clock import between_ms
from batchsim._compat import kept
from batchsim.engines.draws import Streams, length_seeds
from batchsim.engines.log import Status, warmup_requests
from batchsim.engines.token_log import TokenPlan, TokenTotals
from batchsim.engines.totals import percentiles
from batchsim.result.metrics import LATENCY, TPOT, TTFT, values
from batchsim.result.sections import section_edges, sums
from batchsim.result.token_run import tpot_ms
from batchsim.result.value_columns import AtRanks
from batchsim.scenario import Continuous, Rule, Scenario, StepTime, Tokens
from batchsim.scenario.prefixes import PrefixGroups
from batchsim.scenario.rules.continuous import NeverServed, check_lengths, servable
from batchsim.scenario.saturation import load_to_tell, shares

if TYPE_CHECKING:
    from batchsim.engines.compiled.grid_runs import Times

APART = 0.15  # the load of no setting within a block is farther than this from those of all its corners
LENGTHS = 100_000  # requests whose lengths are drawn for their least times
CHUNK = 1 << 17  # requests whose lengths are drawn at a time

Cell = tuple[int, int]  # row, column


def stable_cells(cells: Sequence[Scenario | None], columns: int, roughly: bool = False) -> np.ndarray:
    """Return which cells' queues stay finite, as `Scenario.stable` says, row by row; False for None.

    The saturation rate of a cell takes a run, so few cells are measured. A block of cells is decided by its
    corners if they agree by far, else it is split into quarters. `roughly`: cells within some 3 % of
    saturation may be wrong.
    """
    from batchsim.engines.compiled.grid_runs import in_threads  # Numba loads on first use

    rows = len(cells) // columns
    found = np.zeros((rows, columns), bool)
    loads: dict[Cell, float] = {}

    def measure(part: Sequence[tuple[Cell, Scenario]]) -> list[tuple[Cell, float]]:
        return [(corner, load_to_tell(cell, roughly)) for corner, cell in part]

    def halves(first: int, last: int) -> list[tuple[int, int]]:
        return [*pairwise(sorted({first, (first + last) // 2, last}))] or [(first, first)]

    blocks = [(0, rows - 1, 0, columns - 1)]
    while blocks:
        corners = {(row, column) for *ends, left, right in blocks for row in ends for column in (left, right)}
        new = [(corner, cells[corner[0] * columns + corner[1]]) for corner in sorted(corners - loads.keys())]
        loads |= {corner: math.nan for corner, cell in new if cell is None}
        unknown = [(corner, cell) for corner, cell in new if cell is not None]
        jobs = min(os.cpu_count() or 1, len(unknown))
        if unknown:
            parts = in_threads(unknown[0][1], measure, [unknown[first::jobs] for first in range(jobs)])
            loads |= {corner: load for part in parts for corner, load in part}
        todo, blocks = blocks, []
        for top, bottom, left, right in todo:
            around = np.array([loads[corner] for corner in product((top, bottom), (left, right))])
            if bottom - top <= 1 and right - left <= 1:
                for corner in product((top, bottom), (left, right)):
                    found[corner] = loads[corner] < 1
            elif (around < 1 - APART).all() or (around > 1 + APART).all():
                found[top : bottom + 1, left : right + 1] = around[0] < 1
            else:
                quarters = product(halves(top, bottom), halves(left, right))
                blocks += [(*down, *across) for down, across in quarters]
    given = np.array([cell is not None for cell in cells])
    return found.ravel() & given


class TokenTimes:
    """The metrics of a run from its requests' times, to the last bit; NaN if there is nothing to average."""

    def __init__(self, times: "Times") -> None:
        self.times = times
        self.requests = times.arrival_s.size
        self.is_served = ~np.isnan(times.finish_s)
        self.served = int(np.count_nonzero(self.is_served))
        self.ttft_ms = between_ms(times.arrival_s, times.token_s)
        self.latency_ms = between_ms(times.arrival_s, times.finish_s)

    @kept
    def tpot_ms(self) -> np.ndarray:
        return tpot_ms(self.times.token_s, self.times.finish_s, self.times.outputs)

    @kept
    def totals(self) -> TokenTotals:
        """The sums that follow from these times, as a result adds them up; the others are 0."""
        from batchsim.engines.compiled.token_totals import Answers, TokenTotal  # Numba loads on first use

        times, served = self.times, self.is_served
        status = np.where(served, Status.SERVED, Status.REJECTED).astype(np.uint8)
        none_s, none = np.zeros(self.requests), np.zeros(self.requests, np.int64)
        came_s, token_s, finish_s = times.arrival_s, times.token_s, times.finish_s
        cuts, edges_s = section_edges(times, 0, None)
        total = TokenTotal(edges_s)
        total.add_windows(cuts)
        known = came_s, token_s, finish_s, none_s, none_s, none_s, times.outputs, status, none, none_s
        total.add_answers(Answers(came_s, *known), cuts)
        return total.totals.whole()

    @kept
    def numbers(self) -> dict[str, Any]:
        """The metrics of these sums."""
        return values(self.totals)

    def per_s(self, count: int) -> float:
        return count / self.totals.window_s if self.totals.window_s > 0 else 0.0

    def percentiles_ms(self, column_ms: np.ndarray, *qs: float, of_all: bool = False) -> np.ndarray:
        """Return percentiles of the requests that have a value; `of_all`: the others are infinitely late."""
        values = column_ms[~np.isnan(column_ms)]
        count = values.size + self.requests - self.served if of_all else values.size
        if not values.size:
            return np.full(len(qs), np.inf if count else np.nan)
        return percentiles(AtRanks(values), np.array(qs, float), values.size, count)


def of_curve(plan: TokenPlan) -> dict[str, float]:
    """Run a plan; return the metrics of a load curve."""
    from batchsim.engines.compiled.grid_runs import run_times  # Numba loads on first use

    times = TokenTimes(run_times(plan))
    found = {}
    for name, column_ms in (("ttft", times.ttft_ms), ("tpot", times.tpot_ms), ("", times.latency_ms)):
        prefix = f"{name}_" if name else ""
        found[f"mean_{name or 'latency'}_ms"] = float(times.numbers[f"mean_{name or 'latency'}_ms"])
        found[f"{prefix}p50_ms"], found[f"{prefix}p99_ms"] = times.percentiles_ms(column_ms, 50, 99)
    found["throughput_per_s"] = float(times.numbers["throughput_per_s"])
    found["output_tokens_per_s"] = times.per_s(int(plan.outputs[times.is_served].sum()))
    return found


class CellRun:
    """What a map keeps of a run: its three metrics, and what compares it with another run, by request."""

    def __init__(self, times: TokenTimes, objectives: tuple[float, float] | None) -> None:
        ttft_p99_ms = float(times.percentiles_ms(times.ttft_ms, 99, of_all=True)[0])
        self.mean_ms = float(times.numbers["mean_latency_ms"])
        self.metrics, self._missed, self._ttft_ms = (ttft_p99_ms, math.nan, math.nan), None, times.ttft_ms
        if objectives is not None:
            ttft_ms, tpot_ms = objectives
            # Without a second token there is no TPOT, which then meets any limit.
            met = (times.ttft_ms <= ttft_ms) & ~(times.tpot_ms > tpot_ms)
            count = int(np.count_nonzero(met))
            self.metrics = ttft_p99_ms, times.per_s(count), count / met.size
            self._missed, self._ttft_ms = ~met, np.empty(0)

    def worse(self, limit_ms: float, cuts: np.ndarray) -> np.ndarray:
        """Return how many requests of each section missed the objectives, or had a TTFT above a limit."""
        return sums(~(self._ttft_ms <= limit_ms) if self._missed is None else self._missed, cuts)


def run_cells(
    plan: TokenPlan, cells: Sequence[Scenario], objectives: tuple[float, float] | None
) -> list[CellRun]:
    """Run each setting on all cores; one that makes the same steps as another is not run again."""
    from batchsim.engines.compiled import grid_runs  # Numba loads on first use

    ran: list[tuple[Rule, grid_runs.PeakUse, CellRun]] = []

    def known(cell: Scenario) -> CellRun | None:
        for rule, peak, run in ran:
            if grid_runs.same_steps(rule, peak, cell.rule):
                # The seats limit the captured sizes, too.
                step: Any = cell.service
                costs = (step.whole_cost(each.largest_batch) for each in (rule, cell.rule))
                if len({min(cost.most_captured, peak.running) for cost in costs}) == 1:
                    return run
        return None

    def run(cell: Scenario) -> CellRun:
        if (found := known(cell)) is None:
            times = grid_runs.run_times(replace(plan, base=replace(plan.base, scenario=cell)))
            found = CellRun(TokenTimes(times), objectives)
            ran.append((cell.rule, times.most, found))
        return found

    # The last has the most seats and the largest budget: what it does not use, others do not need.
    run(cells[-1])
    left = [cell for cell in reversed(cells) if known(cell) is None]
    # Few jobs: each wakes a thread, which takes longer than many a run where other programs compute too.
    jobs = min(os.cpu_count() or 1, len(left))
    grid_runs.in_threads(plan.scenario, lambda first: [run(cell) for cell in left[first::jobs]], range(jobs))
    return [run(cell) for cell in cells]


# Which requests can be served.


def fits_of(plan: TokenPlan) -> Callable[[Rule], bool]:
    """Return the test whether a rule can serve every request of a plan, sooner or later."""

    @functools.cache
    def fits(rule: Rule) -> bool:
        lengths = plan.prompts, plan.outputs, plan.limits
        try:
            check_lengths(replace(plan.scenario, rule=rule), lambda: [lengths])
        except NeverServed:
            return False
        return True

    return lambda rule: fits(_for_lengths(rule))


def _for_lengths(rule: Rule) -> Rule:
    """Return one rule for all that serve the same lengths: if prompts are cut, the memory alone decides."""
    if isinstance(rule, Continuous) and rule.chunked:
        return replace(rule, max_num_seqs=1, max_num_batched_tokens=1)
    return rule


def first_unserved(points: Sequence[Scenario], streams: Streams, requests: int) -> float:
    """Return how many requests precede the first that some setting can never serve; inf without one."""
    rules = {
        _for_lengths(each.rule)
        for each in points
        if isinstance(each.rule, Continuous) and not (each.rule.chunked and each.rule.kv_blocks is None)
    }
    draw = streams.lengths()
    for first in range(0, requests if rules else 0, CHUNK):
        lengths = draw(min(CHUNK, requests - first))
        served = np.logical_and.reduce([servable(rule, *lengths) for rule in rules])
        if not served.all():
            return first + int(np.argmin(served))
    return math.inf


# What a request takes alone on an engine.


def alone_ms(scenario: Scenario, prompts: np.ndarray, outputs: np.ndarray) -> dict[str, np.ndarray]:
    """Return the least latency, TTFT and TPOT of requests of these lengths, in ms; TPOT NaN for one token.

    A prompt is cut into as few pieces as the budget allows. Other requests in a step only make it longer. All
    of its tokens but one that others may have computed are in memory already.
    """
    rule, service = scenario.rule, scenario.service
    held = np.zeros(prompts.size)
    if shares(rule, scenario.tokens):
        of = scenario.tokens.prefixes  # type: ignore[union-attr]
        most = of.prefix_tokens if isinstance(of, PrefixGroups) else math.inf
        held = np.minimum(prompts - 1, most)
    new = prompts - held
    assert isinstance(service, StepTime)
    fixed_ms, weights_ms, per_token_ms, per_read_ms, per_pair_ms = service.cost
    pieces = np.ones(prompts.size)
    if type(rule) is Continuous and rule.chunked:
        longest = min(rule.max_num_batched_tokens, rule.long_prefill_token_threshold or math.inf)
        pieces = np.ceil(new / longest)
    keys_ms = min(per_read_ms, per_pair_ms) * new * (held + (new + 1) / 2)
    ttft_ms = fixed_ms * pieces + np.maximum(weights_ms * pieces, per_token_ms * new) + keys_ms
    tpot_ms = fixed_ms + max(weights_ms, per_token_ms) + per_read_ms * (prompts + outputs / 2)
    if service.draft:  # a prompt beside decodes adds to a step that costs them only its share
        products_ms = max(weights_ms, per_token_ms * (1 + service.draft))
        tpot_ms += service.draft_ms + products_ms - max(weights_ms, per_token_ms)
        ttft_ms, tpot_ms = ttft_ms / service.tokens_a_step, tpot_ms / service.tokens_a_step
    latency_ms = ttft_ms + (outputs - 1) * tpot_ms
    return {LATENCY: latency_ms, TTFT: ttft_ms, TPOT: np.where(outputs > 1, tpot_ms, math.nan)}


@functools.lru_cache(maxsize=4)  # every setting of a search asks for the same
def lengths_of(tokens: Tokens, seed: int, warmup: float) -> tuple[np.ndarray, np.ndarray]:
    """Return the prompts and outputs of many requests of a run, without those of its warm-up."""
    count = min(LENGTHS, tokens.max_requests or LENGTHS)
    prompts, outputs, _ = tokens.draws(*length_seeds(seed))(count)
    skip = warmup_requests(warmup, count)
    return prompts[skip:], outputs[skip:]
