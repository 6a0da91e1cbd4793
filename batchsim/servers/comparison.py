"""One traffic through the rules of several servers, or behind several routings of replicas."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from batchsim import _check
from batchsim._format import INFINITE, aligned, duration, html_table, listed, number, rate, signed
from batchsim._workers import Crew
from batchsim.engines.estimates import check_memory, warn_if_large
from batchsim.result import Result
from batchsim.scenario import OpenLoop, Rule, Scenario
from batchsim.scenario.routing import ROUTINGS, ByKey, Routing, checked_routing
from batchsim.servers.registry import SERVERS
from batchsim.servers.server import Server
from batchsim.simulate import available, simulate

if TYPE_CHECKING:
    import pandas

REQUESTS = 50_000
LATENCIES = {"mean_latency_ms": "mean", "p50_ms": "p50", "p99_ms": "p99"}
OF_TOKENS = {"ttft_p99_ms": "TTFT p99"}
COLUMNS = ("rule", *LATENCIES, "throughput_per_s", "mean_batch_size", "stable", "why")


class Compared:
    """A comparison as a table, in text and in a notebook."""

    title: Any
    heads: Any
    last: ClassVar[str] = "<"  # the side of the last column

    def _rows(self) -> list[list[str]]:
        """Return the rows of the printed table."""
        raise NotImplementedError

    @property
    def _sides(self) -> str:
        return "<" + ">" * (len(self.heads) - 1) + self.last

    def __repr__(self) -> str:
        lines = aligned([["", *self.heads], *self._rows()], self._sides)
        return "\n".join([self.title, *(f"  {line}" for line in lines)])

    def _repr_html_(self) -> str:
        return html_table(self.title, ["", *self.heads], self._rows(), self._sides)


def _ran(
    several: Sequence[Scenario], count: int, seed: int, executor: Executor | None, keep: str = "all"
) -> Iterator[Result]:
    """Yield the run of each scenario, all under the traffic of one seed."""
    check_memory(several[0], count * len(several))
    warn_if_large(several[0], count, runs=len(several), held=len(several))
    return Crew(executor).map(partial(simulate, keep=keep), ((each, count, seed) for each in several))


def _check_open(scenario: Scenario, each: str) -> None:
    _check.instance("scenario", scenario, Scenario, "a Scenario")
    if not isinstance(scenario.workload, OpenLoop):
        why = f"the clients of a ClosedLoop send {each} other traffic"
        raise ValueError(f"the workload must be open: {why}, got {scenario.workload!r}")


def rule_of(server: Server, max_batch_size: int, max_wait_ms: float) -> Rule:
    """Return a server's rule for a size and, if the server has one, a wait."""
    words = server.words
    wait = {words.wait: words.wait_of(max_wait_ms)} if words.wait else {}
    return server.rule(**{words.size: max_batch_size}, **wait)


def in_words(rule: Rule) -> str:
    """Return a rule as conditions and actions.

    >>> from batchsim import SizeOrWait
    >>> in_words(SizeOrWait(8, 5))
    'send the oldest 8 when 8 or more wait; send all when the oldest has waited 5 ms or it has waited longer'
    """
    conditions: dict[str, list[str]] = {}
    for step in rule.steps:
        conditions.setdefault(step.action, []).append(step.condition)
    lines = (
        f"{action} when {' or '.join(when)}" if all(when) else action for action, when in conditions.items()
    )
    return "; ".join(lines)


@dataclass(frozen=True)
class Group:
    """Servers with the same rule, and so the same run."""

    names: tuple[str, ...]
    rule: Rule
    result: Result

    @property
    def stable(self) -> bool:
        return self.result.scenario.stable


@dataclass(frozen=True, eq=False, repr=False)
class ServerComparison(Compared):
    """One trace through several servers' rules; `results` maps each name to its run.

    `to_frame()` is the table. If the queue grows without bound, `stable` is False and latencies are infinite,
    because those of the run would depend on its length. The first server is the reference for the others.
    """

    scenario: Scenario
    rules: Mapping[str, Rule]
    groups: tuple[Group, ...]

    heads = (*LATENCIES.values(), "batch", "why")

    @property
    def results(self) -> dict[str, Result]:
        by_rule = {name: group.result for group in self.groups for name in group.names}
        return {name: by_rule[name] for name in self.rules}

    def why(self, group: Group) -> str:
        """Return the reason why a group's latency differs from the first one's."""
        first, rule = self.groups[0], group.rule
        clock = rule.clock or rule.title
        if rule.max_wait_ms == 0 or rule.max_batch_size == 1:
            clock = "requests do not wait for a batch"
        if not group.stable:
            carried = rate(group.result.scenario.full_batches_per_s)
            size = number(group.result.mean_batch_size)
            return f"{clock}: batches of {size} on average carry {carried}"
        if group is first or not first.stable:
            return clock
        mine, others = (each.result.metrics.numbers for each in (group, first))
        least = 0.005 * first.result.mean_latency_ms
        parts = [
            f"{part.replace('_', ' ')} {signed(ms, 2)} ms"
            for part in first.result.metrics.components
            if abs(ms := mine[f"mean_{part}_ms"] - others[f"mean_{part}_ms"]) >= least
        ]
        return f"{clock}: {listed(parts)}" if parts else clock

    def to_frame(self) -> "pandas.DataFrame":
        """Return a DataFrame with one row per server: its rule as text, its numbers, and why they differ."""
        import pandas

        rows: dict[str, dict[str, Any]] = {}
        for group in self.groups:
            summary = group.result.summary()
            numbers = {key: summary[key] for key in COLUMNS if key in summary}
            if not group.stable:
                numbers |= dict.fromkeys(LATENCIES, math.inf)
            words = {"rule": in_words(group.rule), "why": self.why(group)}
            rows |= dict.fromkeys(group.names, numbers | words)
        frame = pandas.DataFrame.from_dict({name: rows[name] for name in self.rules}, orient="index")
        return frame[list(COLUMNS)]

    def _rows(self) -> list[list[str]]:
        lines = []
        for group in self.groups:
            summary = group.result.summary()
            latencies = [duration(summary[key]) if group.stable else INFINITE for key in LATENCIES]
            size = number(summary["mean_batch_size"])
            lines.append([", ".join(group.names), *latencies, size, self.why(group)])
        return lines

    @property
    def title(self) -> str:
        """The compared scenario, on one line."""
        return f"{len(self.rules)} servers, {self.scenario.workload!r}, {self.scenario.service!r}"


def compare_servers(
    scenario: Scenario, servers: Iterable[str] | Mapping[str, Rule] | None = None, max_batch_size: int = 32,
    max_wait_ms: float = 2, requests: int = REQUESTS, seed: int = 0, *, executor: Executor | None = None,
) -> ServerComparison:  # fmt: skip
    """Run one trace through several servers with the same maximum batch size and the same wait.

    `servers` are names from `servers.SERVERS` (default: all), or a dict of rules by any name. Only the rule
    of the scenario is replaced; every server gets the same arrivals. Servers without a wait ignore it.
    `executor` makes the runs, as in `sweep`. `bs.plot`, `bs.lanes` and `bs.film` show the answer.

    >>> from batchsim import Affine, Poisson, SizeOrWait
    >>> scenario = Scenario(Poisson(2000), SizeOrWait(), Affine(1.8874, 0.1438))
    >>> found = compare_servers(scenario, ["triton", "torchserve", "ray_serve"])
    >>> found.to_frame()[["p99_ms", "stable"]].round(1)
                p99_ms  stable
    triton         6.3    True
    torchserve    10.0    True
    ray_serve      inf   False
    """
    _check_open(scenario, "each server")
    if isinstance(servers, Mapping):
        rules = dict(servers)
        for name, rule in rules.items():
            _check.instance(f"the rule of {name!r}", rule, Rule, "a rule")
    else:
        if isinstance(servers, str):
            raise TypeError(f"servers must be a list of names, got {servers!r}")
        names = list(SERVERS) if servers is None else list(servers)
        for name in names:
            _check.one_of("a server", name, SERVERS)
        size = _check.whole("max_batch_size", max_batch_size)
        wait_ms = _check.real("max_wait_ms", max_wait_ms, at_least=0)
        rules = {name: rule_of(SERVERS[name], size, wait_ms) for name in names}
    if not rules:
        raise ValueError("servers must have at least one, got none")
    count = available(scenario, _check.whole("requests", requests))
    if scenario.servers == 1:
        rules = {name: rule.alone for name, rule in rules.items()}
    by_rule: dict[Rule, list[str]] = {}
    for name, rule in rules.items():
        by_rule.setdefault(rule, []).append(name)
    keep = "all" if count < REQUESTS else "requests"  # lanes draw each step of a short run
    results = _ran([replace(scenario, rule=rule) for rule in by_rule], count, seed, executor, keep)
    groups = tuple(
        Group(tuple(names), rule, result)
        for (rule, names), result in zip(by_rule.items(), results, strict=True)
    )
    return ServerComparison(scenario, rules, groups)


# Routings.


@dataclass(frozen=True, eq=False, repr=False)
class RoutingComparison(Compared):
    """One traffic behind several routings; `results` maps the name of each to its run.

    `to_frame()` is the table: latencies, the mean batch size, the imbalance (the requests of the replica with
    most of them, over the mean), and the lowest and highest utilisation of a replica. Latencies are infinite
    where the queue grows without end.
    """

    scenario: Scenario
    results: Mapping[str, Result]

    last = ">"

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

    @property
    def title(self) -> str:
        """The compared scenario, on one line."""
        return f"{self.scenario.most_replicas} replicas, {self.scenario.workload!r}, {self.scenario.rule!r}"

    @property
    def heads(self) -> Sequence[str]:
        return *self.latencies.values(), "batch", "imbalance", "replicas busy"

    def _rows(self) -> list[list[str]]:
        rows = []
        for name, row in self.to_frame().iterrows():
            times = [INFINITE if math.isinf(row[key]) else duration(row[key]) for key in self.latencies]
            busy = f"{row['least_busy']:.0%} to {row['most_busy']:.0%}"
            rows.append([str(name), *times, *map(number, row[["mean_batch_size", "imbalance"]]), busy])
        return rows


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
    _check_open(scenario, "each routing")
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
    results = _ran([replace(scenario, routing=each) for each in chosen], many, seed, executor)
    return RoutingComparison(scenario, dict(zip(names, results, strict=True)))
