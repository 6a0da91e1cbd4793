"""Findings about how long batches wait for company."""

import dataclasses
import math
from collections.abc import Iterator

from batchsim._format import duration, number, rate, typed_duration
from batchsim.scenario import ClosedLoop, Scenario
from batchsim.scenario.rules import FrozenBatches
from batchsim.servers.linter.finding import Finding
from batchsim.servers.linter.trial import Outcome, Trial

MATTERS = 0.2  # a p99 that falls by less of it is no finding
HALVED = 0.5  # by how much it falls for a wait that was chosen, and gathers batches
ALONE = 2.0  # requests in a batch on average, below which the wait gathered nobody
PAID = 0.05  # of the latency: less time waiting for company is no wait that is paid
LONG_MS, TIMES = 1000.0, 20  # a wait as long, and as many full batches: probably another unit was meant
STEPS = (1, 2, 5)
ABOVE = (1.1, 1.25, 1.5, 2, 3, 5)  # times the least wait of frozen batches


def _word(trial: Trial) -> str:
    name = trial.server.words.wait
    return f"{name}={trial.setting(name)!r}"


def _wait(outcome: Outcome) -> str:
    return typed_duration(outcome.scenario.rule.max_wait_ms)


def shorter(trial: Trial) -> Iterator[Outcome]:
    """Yield what shorter waits do: none, and 1, 2 and 5 times powers of ten."""
    now_ms, least_ms = trial.now.scenario.rule.max_wait_ms, trial.now.scenario.service(1) * 1000 / 20
    top_ms = min(now_ms, 60_000.0)
    powers = range(math.floor(math.log10(least_ms)), math.ceil(math.log10(max(top_ms, least_ms))) + 1)
    ladder = [float(f"{step}e{power}") for power in powers for step in STEPS]
    seen: set[float] = set()
    for wait_ms in [0.0, *(each for each in ladder if least_ms <= each < now_ms)]:
        found = trial.waited(wait_ms)
        if found is not None and found.scenario.rule.max_wait_ms not in {now_ms, *seen}:
            seen.add(found.scenario.rule.max_wait_ms)
            yield found


def best(outcomes: list[Outcome]) -> Outcome | None:
    """Return the one of the lowest mean among those of a p99 near the lowest."""
    if not outcomes or (least := min(each.p99_ms for each in outcomes)) == math.inf:
        return None
    return min((each for each in outcomes if each.p99_ms <= 1.05 * least), key=lambda each: each.mean_ms)


def too_long(trial: Trial) -> Iterator[Finding]:
    """Find a wait that costs more than it gathers: of another unit, by default, at light load, or at any."""
    words, now, rule = trial.server.words, trial.now, trial.now.scenario.rule
    if not words.wait or rule.max_wait_ms == 0 or rule.largest_batch == 1:
        return
    found = best(list(shorter(trial)))
    if found is None or not found.beats(now, MATTERS):
        return
    wait_ms, metrics = rule.max_wait_ms, now.result.metrics.numbers
    size, forming_ms = metrics["mean_batch_size"], metrics["mean_forming_ms"]
    if forming_ms < PAID * metrics["mean_latency_ms"] and not now.overloaded:
        return  # it is another effect of the wait: see too_short, and preferred sizes
    default, given = trial.server.default(words.wait), words.wait in trial.settings
    full_ms = now.scenario.service(rule.largest_batch) * 1000
    pays = f"requests wait {duration(forming_ms)} on average for batches of {number(size)}"
    if now.overloaded:
        pays = f"batches of {number(size)} that wait as long carry less than what comes"
    # In the server's unit, the default is not always read as what it is.
    same = f" ({_wait(now)})" if words.wait_unit_ms != 1 or wait_ms >= LONG_MS else ""
    if given and wait_ms >= LONG_MS and wait_ms >= TIMES * full_ms and trial.setting(words.wait) != default:
        code = "wait-unit"
        meant = typed_duration(wait_ms / 1000)
        what = f"{_word(trial)} is {_wait(now)}, {number(wait_ms / full_ms)} times as long as a full batch"
        sentence = f"{what} computes: {meant} may have been meant."
    elif not given or trial.setting(words.wait) == default:
        code, sentence = "wait-default", f"{_word(trial)}{same} is the default: {pays}."
    elif size < ALONE:
        code = "wait-light-load"
        sentence = f"At this load {_word(trial)}{same} is paid for nothing: {pays}."
    elif found.beats(now, HALVED):
        code, sentence = "wait-too-long", f"{_word(trial)}{same} is longer than it pays: {pays}."
    else:
        return
    yield p99_finding(code, sentence, now, found)


def p99_finding(code: str, sentence: str, now: Outcome, found: Outcome, remedy: str = "") -> Finding:
    """Return a finding whose number is the load where that is too high, else the loss, or the p99."""
    effect = found.effect_over(now)
    if now.overloaded:
        return Finding(code, sentence, "load", now.load, found.load, effect, found.change, remedy)
    if now.p99_ms == math.inf:
        return Finding(code, sentence, "loss", now.loss, found.loss, effect, found.change, remedy)
    lossless = now.loss == found.loss == 0
    key = "p99_ms" if lossless else "p99_all_ms"
    return Finding(code, sentence, key, now.p99_ms, found.p99_ms, effect, found.change, remedy)


def least_wait_ms(scenario: Scenario) -> float | None:
    """Return the wait from which frozen batches keep up, None where no wait does.

    `batchsim.theory.frozen_wait_min_ms` for any service time, and any limit of ongoing requests.
    """

    def keeps_up(wait_ms: float) -> bool:
        rule = dataclasses.replace(scenario.rule, max_wait_ms=wait_ms)  # type: ignore[type-var]
        return dataclasses.replace(scenario, rule=rule, queue_limit=None, timeout_ms=None).stable

    low, high = 0.0, scenario.service(1) * 1000
    while not keeps_up(high):
        low, high = high, 2 * high
        if high > 1e6:
            return None
    while high - low > 1e-6 * high:
        middle = (low + high) / 2
        low, high = (low, middle) if keeps_up(middle) else (middle, high)
    return high


def too_short(trial: Trial) -> Iterator[Finding]:
    """Find a wait so short that frozen batches, which do not grow, overload the server."""
    words, now, workload = trial.server.words, trial.now, trial.now.scenario.workload
    if not isinstance(now.scenario.rule, FrozenBatches) or isinstance(workload, ClosedLoop) or not words.wait:
        return
    least = least_wait_ms(now.scenario)
    if least is None or now.scenario.rule.max_wait_ms > 2 * least:
        return
    longer = [trial.waited(float(f"{times * least:.2g}")) for times in ABOVE]
    now_ms = now.scenario.rule.max_wait_ms
    found = best([each for each in longer if each is not None and each.scenario.rule.max_wait_ms > now_ms])
    if found is None or not found.beats(now, MATTERS):
        return
    code, so = "wait-too-short", "hardly keeps up"
    if now.overloaded:
        code, so = "wait-below-t-min", "does not keep up, and the queue grows without bound"
    at = rate(workload.offered_per_s)
    sentence = (
        f"{_word(trial)} makes batches of {at} so small that the server {so}: "
        f"it keeps up from {number(least, 4)} ms on."
    )
    yield p99_finding(code, sentence, now, found)
