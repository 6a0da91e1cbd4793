"""The lanes of each kind of run: the rules to compare, what a lane shows and says, and its clip."""

import math
from collections.abc import Mapping, Sequence

import numpy as np

from batchsim import _check
from batchsim._format import INFINITE, counted, duration, number, percent, rate, typed_duration
from batchsim.result import Result
from batchsim.scenario import Continuous, Rule, Scenario
from batchsim.scenario.rules import SizeOrWait
from batchsim.scenario.rules.continuous import MOST
from batchsim.servers.comparison import REQUESTS, Group, ServerComparison, compare_servers
from batchsim.view.film.clip import Clip, Lane, request_lane, token_lane
from batchsim.view.film.film import Film, PlayRange, QueueFilm
from batchsim.view.film.token_film import SeatFilm
from batchsim.view.scales import nice
from batchsim.view.theme import COMPONENTS, SEATS, TELLING, in_words

HIGH, TALL, LEAST, TEXTS = 1.3, 14.0, 0.35, 9.2  # ems: rows of seats, at most all, at least one; the names


class RequestLanes:
    """Lanes with the length of the queue (forming while a server is idle) above the batches."""

    shown, simulated = 60, REQUESTS  # requests in a clip, and in a run
    noun = "server"  # whose lanes they are
    answers_last = False  # whether an answer takes longer than the gap between requests
    is_staged = True  # whether a film of one run has a stage instead of a lane
    least_scale = 1  # the shortest queue that fills the height
    sides = 10.0, 7.5  # ems: the column of names, and that of a narrow picture

    @staticmethod
    def usual_rules(scenario: Scenario) -> dict[str, Rule]:
        """Return the rules to compare if none are given, by name; ValueError if there are no usual ones."""
        raise ValueError("rules must be given with a scenario, as {name: rule}, got none")

    @staticmethod
    def film(result: Result) -> Film:
        return QueueFilm.of(result)

    @staticmethod
    def lane(group: Group, stretch: PlayRange) -> Lane:
        return request_lane(QueueFilm.of(group.result), stretch)

    @staticmethod
    def numbers(group: Group) -> dict[str, str]:
        """Return the numbers of the whole run."""
        return {"p99": duration(group.result.percentile(99)) if group.stable else INFINITE}

    @classmethod
    def notes(cls, group: Group, lane: Lane) -> list[tuple[str, ...]]:
        """Return the texts below a lane's names, each with shorter ones."""
        return [(f"{name} {text}",) for name, text in cls.numbers(group).items()]

    @staticmethod
    def legend(groups: Sequence[Group], lanes: Sequence[Lane]) -> list[tuple[str, str, float]]:
        """Return the fills, their names, and the share of the height that each takes."""
        there = {part for group in groups for part in group.result.metrics.components}
        names = {"forming": "waiting, forming"}
        return [(name, names.get(name, in_words(name)), 1.0) for name in COMPONENTS if name in there]

    @staticmethod
    def height_em(lane: Lane) -> float:
        return 6.5

    @staticmethod
    def waiting(lane: Lane) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return instants, and from each on the length of the queue and the name of its fill."""
        batches, replicas = lane["batches"], lane.get("replicas", 1)
        columns = lane["arrival_s"], lane["left_s"], batches["start_s"], batches["finish_s"]
        times_s = np.unique(np.concatenate(columns))
        count, forming = np.zeros(times_s.size, np.int64), np.zeros(times_s.size, bool)
        servers = lane["servers"] // replicas
        for k in range(replicas):
            mine = lane["replica"] == k if replicas > 1 else np.full(lane["arrival_s"].size, True)
            own = batches["server"] // servers == k
            arrived, left, started, ended = (
                np.sort(column[some]).searchsorted(times_s, side="right")
                for column, some in zip(columns, (mine, mine, own, own), strict=True)
            )
            waiting, idle = arrived - left, started - ended < servers
            count += waiting
            forming |= idle & ((waiting > 0) | (replicas == 1))
        return times_s, count, np.where(forming, "forming", "queueing")


class TokenLanes(RequestLanes):
    """Lanes with a row for each seat, below the length of the queue."""

    shown, simulated = 30, 2000  # fewer, as answers take longer, and only the SimPy engine has some rules
    noun, answers_last, is_staged, least_scale = "rule", True, False, 8
    sides = 11.5, 10.1
    wait_ms = 1000.0  # of the usual rules

    @classmethod
    def usual_rules(cls, scenario: Scenario) -> dict[str, Rule]:
        """Return whole batches, size or wait, and continuous batching, by name.

        They have the seats of the scenario's own rule, at most 8; its own `Continuous` rule is not changed.
        """
        rule = scenario.rule
        size, given = min(rule.largest_batch, cls.least_scale), isinstance(rule, SizeOrWait)
        wait_ms = rule.max_wait_ms if given and 0 < rule.max_wait_ms < math.inf else cls.wait_ms
        return {
            "whole batches": SizeOrWait(size, math.inf),
            "size or wait": SizeOrWait(size, wait_ms),
            "continuous": rule if isinstance(rule, Continuous) else Continuous(size),
        }

    @staticmethod
    def film(result: Result) -> Film:
        return SeatFilm.of(result)

    @classmethod
    def lane(cls, group: Group, stretch: PlayRange) -> Lane:
        """Return the seats up to the highest occupied one, if there is room; else the lowest."""
        film = SeatFilm.of(group.result)
        servers = min(film.servers, int(TALL / LEAST))
        taken = int(film.seats.within(*stretch).seat.max(initial=0)) + 1
        seats = group.result.scenario.rule.largest_batch
        drawn = servers, min(seats, max(taken, cls.least_scale), max(int(TALL / LEAST) // servers, 1))
        return token_lane(film.seats, film.queue, film.busy, drawn, group.result, stretch)

    @staticmethod
    def numbers(group: Group) -> dict[str, str]:
        result = group.result
        # While a queue grows, TTFT only reflects the length of the run, except for a trace played to its end.
        own = result.scenario.stable or result.arrival_s.size == result.scenario.workload.max_requests
        return {
            "TTFT p99": duration(result.percentile(99, column="ttft_ms")) if own else INFINITE,
            "TPOT p99": duration(result.percentile(99, column="tpot_ms")),
            "tokens/s": rate(result.summary()["output_tokens_per_s"]).removesuffix("/s"),
            "useful": f"{percent(SeatFilm.of(result).seats.useful_share)} of taken seats' time",
        }

    @classmethod
    def notes(cls, group: Group, lane: Lane) -> list[tuple[str, ...]]:
        numbers, seats, servers = cls.numbers(group), lane["seats"], group.result.scenario.all_servers
        found: list[tuple[str, ...]] = [(f"{name} {numbers[name]}",) for name in ("TTFT p99", "TPOT p99")]
        share = f"{numbers['useful'].partition(' ')[0]} useful"
        found += [(f"{numbers['tokens/s']} tokens/s",), (f"{share} if taken", share)]
        of = group.result.scenario.rule.largest_batch
        if of >= MOST:  # no limit
            found.append((f"{counted(seats, 'seat')} drawn", counted(seats, "seat")))
        elif seats < of:
            found.append((f"{seats:,} of {of:,} seats drawn", f"{seats:,} of {of:,} seats"))
        else:
            found.append((counted(of, "seat") if servers == 1 else f"{servers:,} x {counted(of, 'seat')}",))
        if (drawn := lane["servers"]) < servers:
            found.append((f"{drawn:,} of {servers:,} servers", f"{drawn:,}/{servers:,} servers"))
        return found

    @staticmethod
    def legend(groups: Sequence[Group], lanes: Sequence[Lane]) -> list[tuple[str, str, float]]:
        stays = [lane["stays"] for lane in lanes]
        kept = any((each["last_token_s"] < each["end_s"]).any() for each in stays)
        again, preempted = (any(each[name].any() for each in stays) for name in ("again", "preempted"))
        padded = any(lane["padding"]["seat"].size for lane in lanes)
        there = {"padded": kept, "padding": padded, "again": again, "preempted": preempted}
        shares = {"decode": TELLING, "padded": TELLING}
        names = (name for name in SEATS if there.get(name, True))
        return [(name, SEATS[name], shares.get(name, 1.0)) for name in names]

    @staticmethod
    def height_em(lane: Lane) -> float:
        rows = lane["servers"] * lane["seats"]
        return max(2.4 + min(HIGH * rows, max(HIGH * 8, min(0.7 * rows, TALL))), TEXTS)

    @staticmethod
    def waiting(lane: Lane) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        count = lane["queue"]["waiting"]
        return lane["queue"]["at_s"], count, np.full(count.size, "waiting")


KINDS = {"requests": RequestLanes, "tokens": TokenLanes}  # by the scenario's kind


def title_of(stretch: PlayRange) -> str:
    """Return the title of the lanes of a stretch."""
    span_ms = 1000 * (stretch.until_s - stretch.begin_s)
    return f"The same {typed_duration(float(f'{span_ms:.6g}'))} of traffic under each rule"


def since(stretch: PlayRange, unit: str, unit_ms: float) -> str:
    """Return where a stretch's axis begins, in its unit, to a thousandth of its length; "" at 0."""
    begin, end = (1000 * at_s / unit_ms for at_s in (stretch.begin_s, stretch.until_s))
    decimals = max(0, math.ceil(-math.log10((end - begin) / 1000))) if end > begin else 6
    begin = round(begin, decimals)
    return f" from {number(begin, decimals + 12)} {unit} on" if begin else ""


def lanes_clip(comparison: ServerComparison, requests: int | None = None) -> Clip:
    """Return a stretch of a comparison, to be played."""
    kind, stretch = KINDS[comparison.scenario.kind], stretch_of(comparison, None, None, requests)
    lanes = []
    for group in comparison.groups:
        lane = kind.lane(group, stretch)
        lanes.append(lane | {"title": list(group.names), "notes": kind.notes(group, lane)})
    films = [(", ".join(group.names), kind.film(group.result)) for group in comparison.groups]

    def words(time_s: float, within_s: float) -> str:
        said = "; ".join(f"{name}: {film.words(time_s)}" for name, film in films)
        return f"{films[0][1].at(time_s)}: {said}."

    more = {"title": title_of(stretch), "legend": kind.legend(comparison.groups, lanes)}
    return Clip(
        stretch, np.unique(np.concatenate([film.instants for _, film in films])), lanes, words, more=more
    ).from_first()


def stretch_of(
    comparison: ServerComparison, begin_s: float | None, length_s: float | None, requests: int | None = None
) -> PlayRange:
    """Return the stretch to show: by default some requests from the middle of the trace.

    For token generation, it begins at 0 if a queue grows without bound, as rules then serve different
    requests later; and it ends at the last answer if all requests are shown.
    """
    arrival_s, kind = comparison.groups[0].result.arrival_s, KINDS[comparison.scenario.kind]
    requests = requests or kind.shown
    first = min(arrival_s.size // 2, max(arrival_s.size - requests, 0))
    grows = not all(group.stable for group in comparison.groups)
    begin, end = float(arrival_s[first]), max(_last_s(group.result) for group in comparison.groups)
    if kind.answers_last:  # answers take seconds: round to tenths
        begin = 0.0 if grows else math.floor(10 * begin) / 10
    if begin_s is not None:
        begin = float(_check.real("begin_s", begin_s, at_least=0))
        if begin >= end:
            raise ValueError(f"begin_s must be before the last answer, at {end:.4g} s, got {begin:.6g}")
    if length_s is None:
        last = min(int(arrival_s.searchsorted(begin)) + requests, arrival_s.size - 1)
        whole = kind.answers_last and arrival_s.size <= requests
        length_s = nice(max((end if whole else float(arrival_s[last])) - begin, 1e-3))
    length = float(_check.real("length_s", length_s, above=0))
    return PlayRange(begin, begin + length)


def _last_s(result: Result) -> float:
    """Return when the last answer comes, or the last request if there is no answer."""
    return max(float(result.arrival_s[-1]), float(np.nanmax(result.finish_s, initial=0.0)))


def comparison_of(
    what: ServerComparison | Scenario, rules: Mapping[str, Rule] | None, requests: int | None = None,
    seed: int = 0,
) -> ServerComparison:  # fmt: skip
    """Return a comparison for lanes: the given one, or that of a scenario under rules by name."""
    if isinstance(what, Scenario):
        kind = KINDS[what.kind]
        rules = kind.usual_rules(what) if rules is None else rules
        _check.instance("rules", rules, Mapping, "{name: rule}")
        if not rules:
            raise ValueError(f"rules must have at least one, got {rules!r}")
        return compare_servers(what, rules, requests=requests or kind.simulated, seed=seed)
    if rules is not None:
        raise ValueError("rules must come with a scenario, got a comparison, which has its own")
    return what
