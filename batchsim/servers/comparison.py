"""The same size and wait on all servers: one trace through the rule of each."""

import math
from collections.abc import Iterable, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from batchsim import _check
from batchsim._format import INFINITE, aligned, duration, html_table, listed, number, rate, signed
from batchsim._workers import Crew
from batchsim.engines.estimates import check_memory, warn_if_large
from batchsim.result import Result
from batchsim.scenario import OpenLoop, Rule, Scenario
from batchsim.servers.registry import SERVERS
from batchsim.servers.server import Server
from batchsim.simulate import available, simulate

if TYPE_CHECKING:
    import pandas

REQUESTS = 50_000
LATENCIES = ("mean_latency_ms", "p50_ms", "p99_ms")
SIDES = "<>>>><"  # of the columns of the printed table
COLUMNS = ("rule", *LATENCIES, "throughput_per_s", "mean_batch_size", "stable", "why")


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
class ServerComparison:
    """One trace through several servers' rules; `results` maps each name to its run.

    `to_frame()` is the table. If the queue grows without bound, `stable` is False and latencies are infinite,
    because those of the run would depend on its length. The first server is the reference for the others.
    """

    scenario: Scenario
    rules: Mapping[str, Rule]
    groups: tuple[Group, ...]

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
        """Return the rows of the printed table."""
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

    def __repr__(self) -> str:
        rows = [["", "mean", "p50", "p99", "batch", "why"], *self._rows()]
        return "\n".join([self.title, *(f"  {line}" for line in aligned(rows, SIDES))])

    def _repr_html_(self) -> str:
        heads = ("servers", "mean", "p50", "p99", "mean batch size", "why")
        return html_table(self.title, heads, self._rows(), SIDES)


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
    _check.instance("scenario", scenario, Scenario, "a Scenario")
    if not isinstance(scenario.workload, OpenLoop):
        why = "the clients of a ClosedLoop send each server other traffic"
        raise ValueError(f"the workload must be open: {why}, got {scenario.workload!r}")
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
    calls = [(replace(scenario, rule=rule), count, seed) for rule in by_rule]
    check_memory(scenario, count * len(calls))
    warn_if_large(scenario, count, runs=len(calls), held=len(calls))
    results = Crew(executor).map(partial(simulate, keep=keep), calls)
    groups = tuple(
        Group(tuple(names), rule, result)
        for (rule, names), result in zip(by_rule.items(), results, strict=True)
    )
    return ServerComparison(scenario, rules, groups)
