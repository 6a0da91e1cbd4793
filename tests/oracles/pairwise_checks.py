"""What must hold of every scenario of `pairwise`: all ways to a number give the same, and NaN has its reason.

`python -m oracles.pairwise_checks requests 0 4` checks every fourth row, and prints what fails.
"""

import math
import sys
import tempfile
import traceback
import warnings
from contextlib import ExitStack, redirect_stdout
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from unittest.mock import patch

from oracles import pairwise
from oracles.agreement import assert_columns_equal

import batchsim as bs
from batchsim.engines import saturation
from batchsim.result import size_variety
from batchsim.result.metrics import COMPONENTS, COMPUTING, METRICS, SHARES, TOKENS
from batchsim.result.standard_error import NoInterval

SEED = 3
PICTURES, PANELS = 6, 12  # one row in so many is drawn, and explored
# A saturation rate and the variety of sizes are measured by as few requests as the runs have: others test
# how exact they are.
SHORT = (
    patch.object(saturation, "QUEUED", 1 << 10),
    patch.object(size_variety, "PILOT", 1 << 10),
    patch.multiple(saturation, REQUESTS=300, LEAST=100, EACH=10, SLOW_ROWS=3000),
)
OF_SERVED = (
    "joules_per_request", "joules_per_token", "cost_per_million", "cost_per_million_tokens",
    "preempted_share",
    *(f"mean_{part}_ms" for part in ("latency", *COMPONENTS, *COMPUTING, "device_wait", "ttft")),
    *(key for key, each in {**METRICS, **TOKENS}.items() if each.q is not None),
)  # fmt: skip
OF_GAPS = [key for key in TOKENS if key.startswith(("mean_tpot", "tpot", "mean_itl", "itl", "stall"))]
OF_BATCHES = ("mean_batch_size", "mean_units", "padding", *SHARES.values())


@dataclass(frozen=True)
class Case:
    """A scenario, and how it is run."""

    scenario: bs.Scenario
    requests: int
    warmup: float
    replications: int
    folder: Path

    def run(self, scenario=None, **options):
        return bs.simulate(
            scenario or self.scenario, self.requests, SEED, warmup=self.warmup,
            replications=self.replications, **options,
        )  # fmt: skip


def case_of(kind, row, folder):
    of, scenario = pairwise.values_of(kind, row), pairwise.scenario_of(kind, row)
    replications = 1 if isinstance(scenario.workload, bs.Trace) else of["replications"]
    return Case(scenario, of["requests"], of["warmup"], replications, folder)


def refused(call):
    """Return the reason for which a call is refused; "" if it is not."""
    try:
        call()
    except (ValueError, TypeError) as error:
        if not str(error):
            raise
        return str(error)
    return ""


def same(a, b, rtol=0.0):
    return (math.isnan(a) and math.isnan(b)) or a == b or math.isclose(a, b, rel_tol=rtol, abs_tol=rtol / 1e3)


def assert_same_numbers(found, expected, rtol=0.0, percentiles=0.0):
    assert found.keys() == expected.keys(), found.keys() ^ expected.keys()
    for key, value in expected.items():
        wide = percentiles if (METRICS.get(key) or TOKENS[key]).q is not None else rtol
        assert same(found[key], value, wide), (key, found[key], value)


def assert_same_columns(found, expected):
    for run, other in zip(found.runs, expected.runs, strict=True):
        assert_columns_equal(run.log, other.log)


def engines(case, result):
    """SimPy has the columns and the numbers of the compiled loops."""
    assert case.scenario.uncovered in refused(lambda: case.run(engine="compiled"))
    if not case.scenario.uncovered:
        slow = case.run(engine="simpy")
        assert_same_columns(slow, result)
        assert_same_numbers(slow.summary(), result.summary())


def reasons(case, result):
    """Every number of a summary is one, or there is a reason why there is none."""
    summary, allowed = result.summary(), set()
    if isinstance(case.scenario.workload, bs.ClosedLoop):  # clients have no rate
        allowed |= {"offered_per_s", "load"}
    if not summary["served"]:
        allowed |= {*OF_SERVED}
    if case.scenario.tokens and not result.metrics.values_in("tpot_ms"):  # answers of one token
        allowed |= {*OF_GAPS}
    if not result.metrics.totals.window_s:  # no time passes
        allowed |= {"mean_replicas"}
    if not summary["batches"]:
        allowed |= {*OF_BATCHES}
    at_once = (
        set() if getattr(case.scenario.workload, "offered_per_s", 0) < math.inf else {"offered_per_s", "load"}
    )
    for key, value in summary.items():
        assert not math.isnan(value) or key in allowed, (key, value)
        assert not math.isinf(value) or key in at_once, (key, value)
    for key, interval in result.intervals([*summary]).items():
        if isinstance(interval, NoInterval):
            assert interval.reason, key
        else:
            assert interval.low <= interval.high, (key, interval)


def keep(case, result):
    """Less is kept, with the same numbers: exact, but percentiles of a summary to 0.1 %."""
    assert_same_numbers(case.run(keep="requests").summary(), result.summary())
    kept = []
    assert case.scenario.uncovered in refused(lambda: kept.append(case.run(keep="summary")))
    for each in kept:
        assert_same_numbers(each.summary(), result.summary(), 1e-9, 1e-3)
        if result.summary()["served"]:
            limit_ms = result.percentile(50)
            low, high = (result.attainment(factor * limit_ms) for factor in (0.999, 1.001))
            assert low <= each.attainment(limit_ms) <= high, (low, each.attainment(limit_ms), high)
        files(case, each)


def files(case, result):
    """A saved result, and a scenario as TOML, are read as they were."""
    result.save(path := case.folder / "result.npz")
    again = bs.Result.load(path)
    assert (again.scenario, again.seed, again.engine, again.warmup) == (
        case.scenario, SEED, result.engine, case.warmup,
    )  # fmt: skip
    assert_same_numbers(again.summary(), result.summary())
    if result.has_columns:
        assert_same_columns(again, result)
    text = case.scenario.to_toml()
    assert bs.Scenario.from_toml(text) == case.scenario
    assert bs.Scenario.from_toml(text).to_toml() == text


def sweep(case, result):
    """The sweep of one point has the numbers and the intervals of the run."""
    table = bs.sweep(
        case.scenario, {"servers": [case.scenario.servers]}, case.requests, SEED, case.replications,
        case.warmup, progress=False, workers=1,
    )  # fmt: skip
    (row,) = table.to_dict("records")
    summary = result.summary()
    expected = {key: float(value) for key, value in summary.items()}
    expected["loss"] = 1 - summary["served"] / summary["requests"]
    expected["p99_all_ms"] = result.percentile(99, unserved="inf")
    keys = [key.removesuffix("_low") for key in row if key.endswith("_low")]
    for key, (low, high) in result.intervals(keys).items():
        expected |= {f"{key}_low": low, f"{key}_high": high}
    for key, value in expected.items():
        assert same(float(row[key]), value), (key, row[key], value)
    assert bool(row["infeasible"]) is not summary["stable"], row["infeasible"]


def compare(case, result):
    """A run does not differ from itself."""
    compared = bs.compare(result, result, silent=True)
    for key, row in compared.rows.items():
        assert same(row.a, row.b), (key, row)
        assert row.difference == 0 or math.isnan(row.a), (key, row)
        assert row.low == row.high == 0 or math.isnan(row.low), (key, row)
    assert repr(compared)


def tables(case, result):
    """The tables of requests, of levels and of replicas count what the summary counts."""
    summary = result.summary()
    frame, by_replica = result.to_frame(), result.by_replica()
    assert len(frame) == case.requests * case.replications
    assert by_replica["requests"].sum() == summary["requests"]
    assert by_replica["served"].sum() == summary["served"]
    if case.scenario.levels:
        by_priority = result.by_priority()
        for key in ("requests", "served", "rejected", "timed_out"):
            assert by_priority[key].sum() == summary[key], key
            assert by_priority[key].dtype == int, key


def settings(case, result):
    """The explorer's settings make the scenario again, also from a link and from their Python."""
    from batchsim.view.explorer.state import State

    state = State.of(case.scenario, seed=SEED)
    assert state.scenario() == case.scenario
    link = state.to_link()
    assert State.from_link(link, state) == state
    if refused(lambda: State.from_link(link).scenario()):
        assert state.needs
    else:
        assert_same_columns(case.run(State.from_link(link).scenario()), result)
    names = {"traffic": case.scenario.workload, "tokens": case.scenario.tokens}
    with redirect_stdout(StringIO()):
        exec(state.python(1), names)
    assert names["scenario"] == case.scenario


def film(case, result):
    if case.scenario.tokens is None:
        assert bs.film(case.scenario, case.requests, SEED).words
    several = case.replications > 1
    assert bool(refused(lambda: bs.film(result))) is several


def pictures(case, result):
    """The plot, and the lanes of a comparison, are drawn."""
    from matplotlib import pyplot

    for theory in (True, False):
        if case.scenario.tokens is None or not theory:
            figure = bs.plot(result, theory=theory)
            assert figure.words
    figure.canvas.draw()
    pyplot.close("all")
    if not refused(
        lambda: bs.lanes(
            bs.compare_servers(case.scenario, {"own": case.scenario.rule}, requests=case.requests)
        )
    ):
        return
    assert isinstance(case.scenario.workload, bs.ClosedLoop)


def panel(case, result):
    """The explorer shows the numbers of the run."""
    opened = bs.explore(case.scenario, requests=case.requests, seed=SEED)
    assert opened.result is not None, opened.session.status
    opened.screen.appear()
    assert opened.screen.frame, opened.session.status
    expected = bs.simulate(case.scenario, case.requests, SEED)
    assert_same_numbers(opened.data.summary, expected.summary())
    opened.close()


CHECKS = {
    engines: 1,
    reasons: 1,
    keep: 1,
    files: 1,
    sweep: 1,
    compare: 1,
    tables: 1,
    settings: 1,
    film: 1,
    pictures: PICTURES,
    panel: PANELS,
}


def failures(kind, numbers, checks=CHECKS):
    """Yield what fails: the row, the check, and the error."""
    rows = pairwise.stored()[kind]["rows"]
    with tempfile.TemporaryDirectory() as folder:
        for number in numbers:
            case = case_of(kind, rows[number], Path(folder))
            result = case.run()
            for check, every in checks.items():
                if number % every:
                    continue
                try:
                    check(case, result)
                except Exception:
                    yield f"{kind} {number}, {check.__name__}: {traceback.format_exc(limit=-4)}"


def main(kind, part=0, parts=1):
    import matplotlib as mpl

    mpl.use("agg")
    warnings.simplefilter("error")
    warnings.simplefilter("ignore", UserWarning)
    with ExitStack() as stack:
        for each in SHORT:
            stack.enter_context(each)
        found = [*failures(kind, range(int(part), len(pairwise.stored()[kind]["rows"]), int(parts)))]
    print(*found, sep="\n")
    return min(len(found), 99)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
