"""The same requests behind every routing."""

import math
from collections.abc import Iterable, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from batchsim import _check
from batchsim._format import INFINITE, aligned, duration, number
from batchsim._workers import Crew
from batchsim.engines.estimates import check_memory, warn_if_large
from batchsim.result import Result
from batchsim.scenario import OpenLoop, Scenario
from batchsim.scenario.routing import ROUTINGS, ByKey, Routing, checked_routing
from batchsim.simulate import available, simulate

if TYPE_CHECKING:
    import pandas

REQUESTS = 50_000
LATENCIES = {"mean_latency_ms": "mean", "p50_ms": "p50", "p99_ms": "p99"}
OF_TOKENS = {"ttft_p99_ms": "TTFT p99"}


@dataclass(frozen=True, eq=False, repr=False)
class RoutingComparison:
    """One traffic behind several routings; `results` maps the name of each to its run.

    `to_frame()` is the table: latencies, the mean batch size, the imbalance (the requests of the replica with
    most of them, over the mean), and the lowest and highest utilisation of a replica. Latencies are infinite
    where the queue grows without end.
    """

    scenario: Scenario
    results: Mapping[str, Result]

    @property
    def latencies(self) -> Mapping[str, str]:
        """The metrics of the table that are times, with their titles."""
        return LATENCIES if self.scenario.tokens is None else LATENCIES | OF_TOKENS

    def to_frame(self) -> "pandas.DataFrame":
        """Return a DataFrame with a row for each routing."""
        import pandas

        rows: dict[str, dict[str, Any]] = {}
        for name, result in self.results.items():
            summary, each = result.summary(), result.by_replica()["utilisation"]
            rows[name] = {key: summary[key] if summary["stable"] else math.inf for key in self.latencies}
            rows[name] |= {key: summary[key] for key in ("mean_batch_size", "stable")}
            rows[name] |= {"imbalance": result.imbalance, "least_busy": each.min(), "most_busy": each.max()}
        return pandas.DataFrame.from_dict(rows, orient="index")

    def __repr__(self) -> str:
        rows = [["", *self.latencies.values(), "batch", "imbalance", "replicas busy"]]
        for name, row in self.to_frame().iterrows():
            times = [INFINITE if math.isinf(row[key]) else duration(row[key]) for key in self.latencies]
            busy = f"{row['least_busy']:.0%} to {row['most_busy']:.0%}"
            rows.append([str(name), *times, *map(number, row[["mean_batch_size", "imbalance"]]), busy])
        title = f"{self.scenario.most_replicas} replicas, {self.scenario.workload!r}, {self.scenario.rule!r}"
        return "\n".join([title, *(f"  {line}" for line in aligned(rows, "<" + ">" * (len(rows[0]) - 1)))])


def compare_routing(
    scenario: Scenario, routings: Iterable[str | Routing] | None = None, requests: int = REQUESTS,
    seed: int = 0, *, executor: Executor | None = None,
) -> RoutingComparison:  # fmt: skip
    """Run the same traffic behind several routings.

    `routings` are names, or routings such as `routing.ByKey(1000)`; by default all that need no parameters,
    and that of the scenario. `executor` makes the runs, as in `sweep`.

    >>> from batchsim import Affine, Poisson, Scenario, SizeOrWait
    >>> scenario = Scenario(Poisson(1200), SizeOrWait(16, 20), Affine(5, 0.25), replicas=4)
    >>> found = compare_routing(scenario, ["round_robin", "fill_first"])
    >>> found.to_frame()[["p99_ms", "mean_batch_size", "imbalance"]].round(1)
                 p99_ms  mean_batch_size  imbalance
    round_robin    27.2              6.6        1.0
    fill_first     26.2             15.4        4.0
    """
    _check.instance("scenario", scenario, Scenario, "a Scenario")
    if not isinstance(scenario.workload, OpenLoop):
        why = "the clients of a ClosedLoop send other traffic behind each routing"
        raise ValueError(f"the workload must be open: {why}, got {scenario.workload!r}")
    if (count := scenario.most_replicas) == 1:
        raise ValueError(f"replicas must be at least 2, got {count}")
    if isinstance(routings, (str, Routing)):
        raise TypeError(f"routings must be a list, got {routings!r}")
    if routings is None:
        fitting = [each for each in ROUTINGS if scenario.tokens is not None or not each.needs_tokens]
        plain = [each.name for each in fitting if each is not ByKey]
        routings = [*plain, *([] if scenario.routing in plain else [scenario.routing])]
    chosen = [checked_routing(each) for each in routings]
    if not chosen:
        raise ValueError("routings must have at least one, got none")
    names = [each if isinstance(each, str) else repr(each) for each in chosen]
    many = available(scenario, _check.whole("requests", requests))
    calls = [(replace(scenario, routing=each), many, seed) for each in chosen]
    check_memory(scenario, many * len(calls))
    warn_if_large(scenario, many, runs=len(calls), held=len(calls))
    results = Crew(executor).map(_run, calls)
    return RoutingComparison(scenario, dict(zip(names, results, strict=True)))


def _run(scenario: Scenario, requests: int, seed: int) -> Result:
    return simulate(scenario, requests, seed=seed)
