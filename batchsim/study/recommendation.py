"""The result of a search for a setting, its neighbours, and its explanation in sentences."""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from batchsim import _check, _format
from batchsim.result import Result
from batchsim.scenario import ClosedLoop, Scenario, Trace
from batchsim.scenario.rules import Rule, Trigger
from batchsim.study.grid import machines, overload, setting
from batchsim.study.judgement import Candidate, Estimate, Judgement, Tie
from batchsim.study.kinds import kind_of
from batchsim.study.paired import SAME, Statement
from batchsim.study.search import Search
from batchsim.study.slo import LEVEL, SLO, described
from batchsim.study.what_if import InputUncertainty, Remedy
from batchsim.theory import Optimum

if TYPE_CHECKING:
    import pandas


@dataclass(frozen=True, eq=False, repr=False)
class Recommendation(_check.Renewed):
    """The setting that meets an objective, or the nearest to it, with its expected numbers and the reasons.

    `met`: whether a full run with a fresh seed shows that it meets `slo`, at 95 % for each objective (a whole
    trace that drifts, or a few whole days: its numbers). `expected` has the numbers of that run with an
    interval of 95 % each, as {key: (value, low, high)}; percentiles count a request that is not served as
    infinitely late, as objectives do. `result` is the run itself, and `judgement` its verdict; `searched` is
    that of the setting's last run in the search, whose numbers tend to be too good, because the search takes
    the best of many. `statement`: how far it is above the best, if it is met.

    `candidates`: a DataFrame with a row for each setting, in the grid's order: its knobs, its latency with
    its interval and other numbers from its run in the search, the `requests` of that run, and its `outcome`
    with the reason, which a single test at 99.9 % gave (the fresh seed or a tie: 95 %). `better_by_ms`: by
    how much it may be better than the recommended one, in the bounds of `statement`. `frontier`: the settings
    that no other beats in latency, saturation rate and cost by the estimates of these runs; one row for
    settings that do not clearly differ. `ties`: settings that the search does not tell from this one, and why
    this one was preferred; they need not be equal. `out_of_reach`: the objective that no setting can meet and
    the best possible value, known without a run. `provisional`: why the search ended early; else "".

    `neighbours`: a DataFrame with a row for each step of one knob from the setting: to the `next` value of
    the grid and `halfway` to it, and, of the knob on the y axis of the rule's heat map, `twice` and `half`
    the value (instead of no wait, `some`: the time of a request). `difference_ms` is how much slower it is,
    in the traffic of the search, with its interval (95 % for all rows together). A value halfway that is
    clearly better shows that the grid is too coarse there. `meets`: whether its estimates meet the objective.

    `input_uncertainty`: what bootstrap samples of the inputs do to the choice; None if they are no samples.

    `optimum` is the lowest mean latency of any policy, if theory knows it, else `no_optimum` is the reason.
    `remedies`: changes that would meet the objective, if it is not met.

    `requests_simulated` counts the requests of the search, and `requests_explaining` those of the runs for
    frontier, neighbours and remedies.
    """

    scenario: Scenario
    slo: SLO
    prefer: str
    knobs: dict[str, Any]
    met: bool
    judgement: Judgement
    expected: dict[str, Estimate]
    result: Result
    candidates: "pandas.DataFrame"
    frontier: "pandas.DataFrame"
    neighbours: "pandas.DataFrame"
    ties: tuple[Tie, ...]
    optimum: Optimum | None
    no_optimum: str
    remedies: tuple[Remedy, ...]
    requests_simulated: int
    requests_explaining: int
    statement: Statement | None
    searched: Judgement
    explanation: str = ""
    out_of_reach: str = ""
    provisional: str = ""
    input_uncertainty: InputUncertainty | None = None

    @property
    def rule(self) -> Rule:
        return self.scenario.rule

    @property
    def optimum_gap(self) -> float | None:
        """How far its mean latency is above the best possible, in percent; None if that is unknown."""
        return None if self.optimum is None else self.optimum.gap(self.expected["mean_latency_ms"].value)

    @property
    def certainty(self) -> tuple[str, ...]:
        """How certain it is, in sentences: its numbers, how far it is above the best, and of what that is."""
        numbers = f"Expected: {self.judgement.against_limits}."
        if not self.met:
            numbers = f"{numbers} No full run with a fresh seed shows that it meets the objective."
        stated = [_stated(self.statement)] if self.statement is not None else []
        return (numbers, *stated, "These numbers are of a simulation whose service times count as exact.")

    @property
    def costs(self) -> "pandas.DataFrame":
        """What a lower latency costs: the settings of the frontier that are faster than all cheaper ones.

        Their knobs and servers, `cost_per_million` requests, the latency of the objective in the search, and
        `per_percent`: what each percent costs by which it is below that of the row above. ValueError without
        a `price_per_hour`.
        """
        key, cost = self.slo.latency.key, "cost_per_million"
        if cost not in self.frontier:
            raise ValueError("costs need price_per_hour, the price of a server, got none")
        frame = self.frontier.assign(other=self.frontier["outcome"] != "recommended")
        frame = frame.sort_values([cost, "other", key]).drop_duplicates(cost)
        frame = frame[frame[key] < frame[key].cummin().shift(fill_value=math.inf)]
        frame = frame[[*dict.fromkeys([*self.knobs, "servers", cost, key, "outcome"])]].reset_index(drop=True)
        percent = -100 * frame[key].pct_change(fill_method=None)
        return frame.assign(per_percent=frame[cost].diff() / percent)

    def explain(self) -> str:
        """Return a paragraph: the setting, its numbers, the reasons, and the effect of other values."""
        return self.explanation

    def __repr__(self) -> str:
        title = "Recommendation" if self.met else "No setting is shown to meet the objective; nearest"
        title = f"Provisional ({self.provisional}), the best so far" if self.provisional else title
        judged = "met" if self.met else "not met" if self.judgement.excess > 1 else "not clearly met"
        throughput = _format.rate(self.expected["throughput_per_s"].value)
        lines = [
            f"{title}: {setting(self.knobs)}",
            f"  rule        {self.rule!r} on {machines(self.scenario)}",
            f"  objective   {self.slo}: {judged}, {self.judgement.in_words}",
            *([f"  statement   {self.statement}"] if self.statement else []),
            f"  throughput  {throughput}, saturation at {_format.rate(self.scenario.saturation_per_s)}",
            *(f"  {remedy.label:<11} {remedy.text}" for remedy in self.remedies),
            f"  search      {_format.counted(self.requests_simulated, 'request')} simulated",
        ]
        return "\n".join(lines)


COARSE = 0.01  # of the latency: less does not make a grid too coarse
SEEN = 0.005  # the least share of batches for a reason to be named
MATTERS = 0.02  # the least relative change of the latency that matters


# What more of a knob of continuous batching changes.
STEPS = {"max_num_batched_tokens": "with more, a prompt needs fewer steps, and each step takes longer; "}


def explain(found: Recommendation) -> str:
    """Return a paragraph about a recommendation."""
    of_batches = (_load, _batches) if found.result.metrics.totals.batches else ()
    topics = (_setting, _confirmed, _coarse, _cheaper, _costs, *of_batches, _optimum, _remedies, _caveats)
    settings = _format.counted(len(found.candidates), "setting")
    search = f"The search among {settings} simulated {found.requests_simulated:,} requests."
    return " ".join([*(sentence for topic in topics for sentence in topic(found)), search])


def _setting(found: Recommendation) -> Iterator[str]:
    taken = setting(found.knobs)
    told = found.knobs.keys() & {"servers", "replicas"}
    where = "" if told else f" on {machines(found.scenario)}"
    numbers = found.judgement.against_limits
    if found.provisional:
        yield f"The search was {found.provisional}. The best so far is {taken}{where}: {numbers}."
        return
    if found.met:
        yield f"Take {taken}{where}: {numbers}."
        for knobs, advantage in found.ties[:1]:
            if advantage == SAME:
                continue
            other = f"its {described(found.slo.latency.key)[0]} from that with {setting(knobs)}"
            yield f"No run tells {other}, but it has {advantage}."
        return
    if found.out_of_reach:
        yield f"No setting can meet the objective: {found.out_of_reach}."
        yield f"The nearest is {taken}{where}: {numbers}."
        return
    yield f"No setting is shown to meet the objective. The nearest is {taken}{where}: {numbers}."
    if found.judgement.too_short:
        requests = _format.counted(found.result.arrival_s.size, "request")
        yield f"A run of {requests} is too short to be sure."


def _confirmed(found: Recommendation) -> Iterator[str]:
    """Report both estimates, and how far the setting is above the best."""
    if found.statement is not None:
        yield _stated(found.statement)
    worst, judgement = found.judgement.worst, found.searched
    if found.input_uncertainty is not None:
        yield _sentence(str(found.input_uncertainty))
    if found.met and worst in judgement.estimates:
        was = judgement.estimates[worst]._replace(low=math.nan).in_words(worst.key)
        fresh = f"seed {found.result.seed}, which the search did not use; in the search {was}"
        trace = isinstance(found.scenario.workload, Trace)
        yield f"These numbers are of {'the whole trace' if trace else fresh}."


def _cheaper(found: Recommendation) -> Iterator[str]:
    """Mention fewer servers if their full run did not decide."""
    frame = found.candidates
    if not found.met or found.prefer != "cheapest" or "servers" not in frame:
        return
    own = frame.loc[frame["outcome"] == "recommended", "servers"].max()
    maybe = frame[(frame["outcome"] == "unclear") & (frame["servers"] < own)]
    if len(maybe):
        best = maybe.sort_values(["servers", found.slo.latency.key]).iloc[0]
        servers = _format.counted(int(best["servers"]), "server")
        yield f"{servers} might do: {best['why']}; a longer run might tell."


def _costs(found: Recommendation) -> Iterator[str]:
    """Report what it costs, and what a percent of the latency costs from and to the next setting in cost."""
    key, price = found.slo.latency.key, found.scenario.price_per_hour
    if found.scenario.watts is not None and found.scenario.stable:
        joules = found.result.metrics.number("joules_per_request")
        yield f"A request takes {_format.number(joules)} J, idle time included."
    if price is None or not found.scenario.stable:
        return
    taken = found.candidates["outcome"].isin(["recommended", "nearest"])
    million = _format.number(found.candidates.loc[taken, "cost_per_million"].max())
    yield f"It costs {million} per million requests, at {_format.number(price)} an hour for a server."
    (label, unit, _), frame = described(key), found.costs
    for own in frame.index[frame["outcome"] == "recommended"]:
        for other, which in ((own - 1, "cheaper"), (own + 1, "dearer")):
            if other in frame.index:
                at = f"The next {which}, at {_format.number(frame.at[other, 'cost_per_million'])} per million"
                paid = _format.number(frame.at[max(own, other), "per_percent"])
                yield (
                    f"{at}, has {label} {_format.number(frame.at[other, key])}{unit}: "
                    f"each percent less costs {paid} per million."
                )


def _load(found: Recommendation) -> Iterator[str]:
    scenario, expected, in_steps = found.scenario, found.expected, _in_steps(found)
    size = _format.number(expected["mean_batch_size"].value)
    size = f"steps of {size} rows" if in_steps else f"batches of {size}"
    saturation = _format.rate(scenario.saturation_per_s)
    if isinstance(scenario.workload, ClosedLoop):
        clients = _format.counted(scenario.workload.clients, "client")
        answers = _format.rate(expected["throughput_per_s"].value)
        yield f"With {clients} it answers {answers} of at most {saturation}, in {size} on average."
    elif not scenario.stable:
        yield f"It is overloaded ({overload(scenario)}): its queue grows without end."
    else:
        who = "The server is" if scenario.all_servers == 1 else "The servers are"
        busy, load = (_format.percent(share) for share in (expected["utilisation"].value, scenario.load))
        waiting = devices = ""
        if scenario.device_count < scenario.servers:
            what = "device is" if scenario.device_count == 1 else "devices are"
            waiting = ", waiting for a device included,"
            devices = f"; the {what} busy {_format.percent(found.result.device_utilisation)}"
        yield f"{who} busy {busy} of the time{waiting} with {size} on average{devices}."
        which = "The batches that form" if scenario.rule.forms_while_busy else "Full batches"
        which = "All seats taken" if in_steps else which
        yield f"{which} would carry {saturation}; compared with that, the load is {load}."
    if getattr(scenario.rule, "kv_blocks", 0) is None:
        yield "Memory is unlimited here; with the blocks of a card (kv_blocks), fewer seats may be taken."


def _in_steps(found: Recommendation) -> bool:
    return kind_of(found.scenario).in_steps(found.rule)


def _batches(found: Recommendation) -> Iterator[str]:
    shares = sorted(found.result.metrics.shares().items(), key=lambda item: -item[1])
    reasons = [(share, _because(found.rule, name)) for name, share in shares if share >= SEEN]
    why = "; ".join(f"{_format.percent(share)} because {reason}" for share, reason in reasons)
    why = why.replace(" because ", " of the batches leave because ", 1)
    if _in_steps(found):
        share = found.expected["preempted_share"].value
        preempted = "no" if not share else f"{_format.percent(share)} of the"
        preempted = f"{preempted} requests are preempted"
        why = f"{STEPS.get(found.rule.map_knobs[1], '')}{preempted}"
    steps = found.neighbours[found.neighbours["step"].isin(SCALED)].dropna(subset="difference_ms_low")
    if not len(steps):
        yield _sentence(preempted if _in_steps(found) else why)
        return
    key, changes, matters = found.slo.latency.key, [], "hardly matters"
    (label, unit, _), (latency, *_) = described(steps["knob"].iloc[0]), described(key)
    little_ms = MATTERS * found.expected[key].value
    for step in steps.itertuples():
        change = Estimate(step.difference_ms, step.difference_ms_low, step.difference_ms_high)
        if abs(change.value) > little_ms and not change.low <= 0 <= change.high:
            matters = "matters"
        value, low, high = map(_format.signed, change)
        changes.append(f"a {label} of {_format.number(step.value)}{unit} by {value} ms ({low} to {high})")
    workload = found.scenario.workload
    at = "" if isinstance(workload, ClosedLoop) else f" at {_format.rate(workload.offered_per_s)}"
    yield f"The {label} {matters}{at}: {why}."
    yield _sentence("; ".join(changes).replace(" by ", f" would change {latency} by ", 1))


def _because(rule: Rule, share: str) -> str:
    """Return why batches of a trigger leave, in the rule's words."""
    trigger = Trigger[share.removesuffix("_share").upper()]
    reasons = dict.fromkeys(step.because for step in rule.steps if step.trigger is trigger)
    return _format.listed(list(reasons), "or") if reasons else f"of {trigger.name.lower()}"


def _optimum(found: Recommendation) -> Iterator[str]:
    gap = found.optimum_gap
    _, low, high = found.expected["mean_latency_ms"]
    if gap is None or found.optimum is None or math.isnan(low):
        return  # without an interval the gap is unknown
    best, most = found.optimum.mean_latency_ms, found.optimum.max_batch_size
    above = f"is {_format.number(gap, 2)} % above it" if gap > 0 else "is no higher"
    if low <= best <= high:
        above = "has an interval that contains it"
    lowest = f"The lowest mean latency that any policy with batches of at most {most} can have"
    yield f"{lowest} is {_format.number(best)} ms; this one's {above}."


def _remedies(found: Recommendation) -> Iterator[str]:
    if found.judgement.too_short:
        yield from (f"A run of {remedy.value:,} requests might settle it." for remedy in found.remedies)
        return
    would = [remedy.text for remedy in found.remedies if remedy.value is not None and not remedy.knobs]
    if would:
        ways = "; ".join([*would[:-1], f"or with {would[-1]}" if would[1:] else would[-1]])
        yield f"This setting would meet the objective with {ways}."
    for remedy in found.remedies:
        if remedy.knobs:
            also = "would also meet it" if would else "would meet the objective"
            yield f"Another setting {also}: {remedy.text}."
        if remedy.value is None:
            yield _sentence(remedy.text)


def _coarse(found: Recommendation) -> Iterator[str]:
    """Say that the grid is too coarse around the setting."""
    frame = found.neighbours[(found.neighbours["step"] == HALFWAY) & found.neighbours["meets"].astype(bool)]
    if not found.met or not len(frame):
        return
    best = frame.sort_values("difference_ms_high").iloc[0]
    if -best["difference_ms_high"] > COARSE * found.expected[found.slo.latency.key].value:
        label, least = described(found.slo.latency.key)[0], _format.number(-best["difference_ms_high"], 2)
        lower = f"with {best['knob']}={best['value']} its {label} is at least {least} ms lower"
        yield f"The grid is too coarse around it: {lower} (95% confidence)."


def _stated(statement: Statement) -> str:
    text = str(statement)
    return _sentence(text if text.startswith("the") else f"its {text}")


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."


def _caveats(found: Recommendation) -> Iterator[str]:
    servers, slowdown = found.scenario.servers, found.scenario.slowdown
    devices = found.scenario.device_count
    if devices < servers:
        one = "which computes" if devices == 1 else "each of which computes"
        yield f"The {servers} servers share {_format.counted(devices, 'device')}, {one} one batch at a time."
    elif servers > 1 and slowdown is None:
        slower = "on one device they would wait for each other, which `devices` describes"
        yield f"The {servers} servers were taken to have a device each: {slower}."
    elif servers > 1 and slowdown is not None:
        times = f"{_format.number(slowdown[servers] / slowdown[1])} times as long as alone"
        yield f"The {servers} servers share a device: when all compute, each takes {times}."
    if (drift := found.result.rate_range_per_s) is not None:
        low, high = map(_format.rate, drift)
        yield f"The traffic drifts between {low} and {high}: the numbers are of all of it together."
    if found.scenario.can_lose and "loss" in found.expected:
        loss = found.expected["loss"].value
        lost = f"{_format.number(loss * 100)} % of the requests are not served."
        yield lost if loss else "All requests are served."


NEXT, HALFWAY, TWICE, HALF, SOME = "next", "halfway", "twice", "half", "some"
SCALED = (TWICE, HALF, SOME)


def neighbours(
    search: Search, chosen: Candidate, over: Mapping[str, Any],
    make: Callable[[Any, dict[str, Any]], Candidate | ValueError],
) -> "pandas.DataFrame":  # fmt: skip
    """Return the table of a setting's neighbours; see `Recommendation.neighbours`.

    `make` returns the candidate of a scenario with other knobs, or an error if that is refused.
    """
    known = [(each.knobs, each) for each in search.candidates]
    steps = []
    for step, name, value in [*_in_grid(chosen, over), *_scaled(chosen)]:
        knobs = chosen.knobs | {name: value}
        each: Any = next((each for others, each in known if others == knobs), None)
        each = each or make(chosen.scenario, {name: value})
        if isinstance(each, Candidate) and each.scenario.stable:
            known.append((knobs, each))
            steps.append((step, name, value, each))
    search.run([*dict.fromkeys(each for *_, each in steps)])
    level, key = 1 - (1 - LEVEL) / (2 * max(len(steps), 1)), search.slo.latency.key
    return table(
        key,
        *(
            [name, step, value, *each.full.latency, *_difference(search, chosen, each, level),
             each.full.judgement.excess <= 1]
            for step, name, value, each in steps
        ),
    )  # fmt: skip


def table(key: str, *rows: list[Any]) -> "pandas.DataFrame":
    """Return the table of some rows, with a latency."""
    import pandas

    ends = [f"{name}{end}" for name in (key, "difference_ms") for end in ("", "_low", "_high")]
    frame = pandas.DataFrame(rows, columns=["knob", "step", "value", *ends, "meets"])
    # Whole numbers stay so among others.
    return frame.assign(value=pandas.Series([value for _, _, value, *_ in rows], dtype=object))


def _difference(search: Search, chosen: Candidate, other: Candidate, level: float) -> Estimate:
    """Return by how much another setting is slower, with its interval; NaN ends if that is unknown."""
    value = other.full.latency.value - chosen.full.latency.value
    low, high = -search.bound(chosen, other, level).most, search.bound(other, chosen, level).most
    if not search.steady(chosen, other) or not math.isfinite(low + high):
        low = high = math.nan
    return Estimate(value, low, high)


def _in_grid(chosen: Candidate, over: Mapping[str, Any]) -> Iterator[tuple[str, str, Any]]:
    """Yield the next values of each knob in its grid, and those halfway; not halfway to other servers."""
    for name, values in over.items():
        value = chosen.knobs[name]
        numbers = sorted(each for each in values if type(each) in (int, float) and math.isfinite(each))
        if value not in numbers or isinstance(values, Mapping):
            continue
        at, parameter = numbers.index(value), chosen.scenario.rule.parameters().get(name)
        whole = parameter.type == "whole" if parameter else all(type(each) is int for each in numbers)
        for other in (*numbers[max(at - 1, 0) : at], *numbers[at + 1 : at + 2]):
            yield NEXT, name, other
            middle = (value + other) / 2 if 0 in (value, other) else math.sqrt(value * other)
            middle = round(middle) if whole else float(f"{middle:.2g}")
            if middle not in (value, other) and name != "servers":
                yield HALFWAY, name, middle


def _scaled(chosen: Candidate) -> Iterator[tuple[str, str, Any]]:
    """Yield twice and half the value of the knob on the y axis of the rule's heat map."""
    scenario, rule, kind = chosen.scenario, chosen.scenario.rule, kind_of(chosen.scenario)
    _, name = rule.map_knobs
    if name not in rule.parameters():  # a rule of one's own, without a wait
        return
    value, it = getattr(rule, name), rule.parameters()[name]
    if value is None:  # no limit
        return
    if kind.in_steps(rule):
        yield TWICE, name, value * 2
        yield HALF, name, max(value // 2, 1)
    elif it.type == "whole":
        twice = value * 2 if it.of_sizes else min(value * 2, rule.max_batch_size)
        for step, other in ((TWICE, twice), (HALF, value // 2)):
            if 1 <= other != value:
                yield step, name, other
    elif rule.max_batch_size > 1 and value != math.inf:
        if value:
            yield TWICE, name, value * 2
            yield HALF, name, value / 2
        else:  # instead of no wait, the time of one request
            yield SOME, name, float(f"{kind.one_ms(scenario):.2g}")
