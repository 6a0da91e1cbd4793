"""Findings about batches of whole requests: how large they are, how long they wait, what limits them."""

import contextlib
import dataclasses
import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from batchsim._format import counted, duration, listed, number, percent, rate, rates, typed_duration
from batchsim.scenario import ClosedLoop, Scenario, Service
from batchsim.scenario.full_batches import mean_seconds
from batchsim.scenario.rules import Buckets, FrozenBatches
from batchsim.scenario.sized_time import SizedTime
from batchsim.servers.linter.finding import Finding, Outcome, Trial

MATTERS = 0.2  # the smallest relative fall of a p99 that counts
HALVED = 0.5  # the same for a wait that somebody chose and that gathers batches
ALONE = 2.0  # below this mean batch size, a wait gathers no batches
PAID = 0.05  # below this part of the latency, forming time does not matter
LONG_MS, TIMES = 1000.0, 20  # a longer wait, of more full batches, is probably in a wrong unit
STEPS = (1, 2, 5)
ABOVE = (1.1, 1.25, 1.5, 2, 3, 5)  # proposed multiples of the shortest sufficient wait
LARGEST = 256  # the largest proposed batch
LINE = 0.95  # of the time of its requests one by one: a batch that takes longer saves nothing
WASTED = 0.2  # the smallest share of padding, in requests of different lengths, that counts
LITTLE = 0.1  # like MATTERS, for a setting that is useless here
OFTEN = 0.05  # the share of full batches above which their size matters
LOSES = 1e-3  # the smallest loss that counts
CURED = 0.1  # the part of a loss that may remain
MOST = 64  # the largest proposed number of servers


def _ms(scenario: Scenario, size: int) -> float:
    """Return the mean time of a batch of this many requests."""
    return 1000 * float(mean_seconds(scenario.service, scenario.workload.sizes, size)[-1])


def _wait(outcome: Outcome) -> str:
    return typed_duration(outcome.scenario.rule.max_wait_ms)


def shorter(trial: Trial) -> Iterator[Outcome]:
    """Yield the outcomes of shorter waits: 0, and 1, 2 and 5 times powers of ten."""
    now_ms, least_ms = trial.now.scenario.rule.max_wait_ms, _ms(trial.now.scenario, 1) / 20
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
    """Return the outcome with the lowest mean among those within 5 % of the lowest p99."""
    if not outcomes or (least := min(each.p99_ms for each in outcomes)) == math.inf:
        return None
    return min((each for each in outcomes if each.p99_ms <= 1.05 * least), key=lambda each: each.mean_ms)


def too_long(trial: Trial) -> Iterator[Finding]:
    """Find a wait that costs more than it gains: by its unit, by default, at light load, or in general."""
    words, now, rule = trial.server.words, trial.now, trial.now.scenario.rule
    if not words.wait or rule.max_wait_ms == 0 or rule.largest_batch == 1:
        return
    found = best(list(shorter(trial)))
    if found is None or not found.beats(now, MATTERS):
        return
    wait_ms, metrics = rule.max_wait_ms, now.result.metrics.numbers
    size, forming_ms = metrics["mean_batch_size"], metrics["mean_forming_ms"]
    if forming_ms < PAID * metrics["mean_latency_ms"] and not now.overloaded:
        return  # the wait has another effect: see too_short and preferred
    default, given = trial.server.default(words.wait), words.wait in trial.settings
    full_ms = _ms(now.scenario, rule.largest_batch)
    pays = f"requests wait {duration(forming_ms)} on average for batches of {number(size)}"
    if now.overloaded:
        pays = f"batches of {number(size)} with this wait carry less than the arrivals"
    # A value in the server's unit is easily misread.
    same = f" ({_wait(now)})" if words.wait_unit_ms != 1 or wait_ms >= LONG_MS else ""
    if given and wait_ms >= LONG_MS and wait_ms >= TIMES * full_ms and trial.setting(words.wait) != default:
        code = "wait-unit"
        meant = typed_duration(wait_ms / 1000)
        times = number(wait_ms / full_ms)
        what = f"{trial.said(words.wait)} is {_wait(now)}, {times} times as long as a full batch"
        sentence = f"{what} computes: {meant} may have been meant."
    elif not given or trial.setting(words.wait) == default:
        code, sentence = ("wait-default", f"{trial.said(words.wait)}{same} is the default: {pays}.")
    elif size < ALONE:
        code = "wait-light-load"
        sentence = f"At this load {trial.said(words.wait)}{same} gains nothing: {pays}."
    elif found.beats(now, HALVED):
        code, sentence = ("wait-too-long", f"{trial.said(words.wait)}{same} is too long: {pays}.")
    else:
        return
    yield p99_finding(code, sentence, now, found)


def p99_finding(code: str, sentence: str, now: Outcome, found: Outcome, remedy: str = "") -> Finding:
    """Return a finding whose number is the load if too high, else the loss if over 1 %, else the p99."""
    key = name = "load" if now.overloaded else "loss" if now.p99_ms == math.inf else "p99_ms"
    if key == "p99_ms" and not now.loss == found.loss == 0:
        key = "p99_all_ms"
    values = getattr(now, name), getattr(found, name)
    return Finding(code, sentence, key, *values, found.effect_over(now), found.change, remedy)


def proposal(
    code: str, sentence: str, now: Outcome, found: Outcome | None, part: float, remedy: str = ""
) -> Iterator[Finding]:
    """Yield a finding if its change lowers the p99 by this part."""
    if found is not None and found.beats(now, part):
        yield p99_finding(code, sentence, now, found, remedy)


def least_wait_ms(scenario: Scenario) -> float | None:
    """Return the shortest wait with which frozen batches keep up; None if they never do.

    It is `batchsim.theory.frozen_wait_min_ms` for any service time and any limit of ongoing requests.
    """

    def keeps_up(wait_ms: float) -> bool:
        rule = dataclasses.replace(scenario.rule, max_wait_ms=wait_ms)  # type: ignore[type-var]
        return dataclasses.replace(scenario, rule=rule, queue_limit=None, timeout_ms=None).stable

    low, high = 0.0, _ms(scenario, 1)
    while not keeps_up(high):
        low, high = high, 2 * high
        if high > 1e6:
            return None
    while high - low > 1e-6 * high:
        middle = (low + high) / 2
        low, high = (low, middle) if keeps_up(middle) else (middle, high)
    return high


def too_short(trial: Trial) -> Iterator[Finding]:
    """Find a wait so short that frozen batches, which never grow, overload the server."""
    words, now, workload = trial.server.words, trial.now, trial.now.scenario.workload
    if not isinstance(now.scenario.rule, FrozenBatches) or isinstance(workload, ClosedLoop) or not words.wait:
        return
    least = least_wait_ms(now.scenario)
    if least is None or now.scenario.rule.max_wait_ms > 2 * least:
        return
    longer = [trial.waited(float(f"{times * least:.2g}")) for times in ABOVE]
    now_ms = now.scenario.rule.max_wait_ms
    found = best([each for each in longer if each is not None and each.scenario.rule.max_wait_ms > now_ms])
    code, so = "wait-too-short", "hardly keeps up"
    if now.overloaded:
        code, so = "wait-below-t-min", "falls behind, and the queue grows without bound"
    at = rate(workload.offered_per_s)
    sentence = (
        f"{trial.said(words.wait)} makes batches of {at} so small that the server {so}: "
        f"it keeps up from {number(least, 4)} ms on."
    )
    yield from proposal(code, sentence, now, found, MATTERS)


def too_small(trial: Trial) -> Iterator[Finding]:
    """Find a maximum batch size that is too small, especially the default of 1."""
    now, rule, size = trial.now, trial.now.scenario.rule, trial.now.scenario.rule.max_batch_size
    most = min(LARGEST, trial.base.service.largest_batch)
    sizes = [size * 2**k for k in range(1, 9) if size * 2**k <= most]
    # With a size of 1 the wait had no effect, and may be long; a larger size is tried without it.
    found = filter(None, (trial.resized(each, 0.0 if size == 1 else None) for each in sizes))
    larger = [each for each in found if each.scenario.rule.largest_batch > rule.largest_batch]
    least = min((each.p99_ms for each in larger), default=math.inf)
    if least == math.inf:
        return
    smallest = next(each for each in larger if each.p99_ms <= 1.05 * least)
    left = trial.server.words.size not in trial.settings
    is_default = " is the default, and" if left else ""
    each = "one request" if size == 1 else f"{size:,} requests"
    what = f"{trial.said(trial.server.words.size)}{is_default} lets a batch hold {each} at most"
    yield from proposal("size-too-small", f"{what}, too few at this load.", now, smallest, MATTERS)


def through_zero(trial: Trial) -> Iterator[Finding]:
    """Find a service time without a fixed part: batching only delays."""
    now, size = trial.now, trial.now.scenario.rule.largest_batch
    table = mean_seconds(now.scenario.service, now.scenario.workload.sizes, size)
    if size == 1 or table[-1] < LINE * size * table[0]:
        return
    per = f"a batch of {size:,} computes for {number(table[-1] / table[0])} times as long as a single request"
    what = f"Batching saves nothing here and only delays: {per}."
    yield from proposal("service-through-zero", what, now, trial.resized(1), LITTLE)


def never_reached(trial: Trial) -> Iterator[Finding]:
    """Find a size that is never reached, because of a limit or too few clients."""
    now, rule, size = trial.now, trial.now.scenario.rule, trial.now.scenario.rule.max_batch_size
    ongoing, workload = "max_ongoing_requests", now.scenario.workload
    if isinstance(rule, FrozenBatches) and rule.max_ongoing < size * now.scenario.servers:
        found = trial.outcome(**{ongoing: size * now.scenario.servers})
        default = "" if ongoing in trial.settings else ", the default,"
        needs, why = f"one full batch of {size:,}", "batches wait and leave partly filled"
        if rule.max_ongoing >= size:
            needs, why = f"full batches of {size:,} on all servers", "some servers idle"
        what = f"{trial.said(ongoing)}{default} admits fewer requests than {needs}: {why}."
        yield from proposal("concurrency-below-size", what, now, found, LITTLE)
    elif isinstance(workload, ClosedLoop) and workload.clients < rule.enough and rule.max_wait_ms > 0:
        what = f"{trial.said(trial.server.words.size)} is never reached with"
        what += f" {counted(workload.clients, 'client')}: every batch waits for one that cannot come."
        yield from proposal("clients-below-size", what, now, trial.resized(workload.clients), LITTLE)


def preferred(trial: Trial) -> Iterator[Finding]:
    """Find preferred sizes that cost latency; Triton's guide advises against them."""
    name = "preferred_batch_size"
    if sizes := trial.settings.get(name):
        what = f"{name}={list(sizes)} makes batches leave too early, or too small, for this service time."
        yield from proposal("preferred-sizes", what, trial.now, trial.outcome(**{name: []}), 0.05)


def _padding(service: Service, outcome: Outcome) -> float:
    """Return the share of padding in all computed items."""
    sizes = outcome.result.batches.batch_size
    padded = np.array(service.padding)[np.searchsorted(service.padding or (), sizes)]
    return 1 - float(sizes.sum() / padded.sum())


def padded(trial: Trial) -> Iterator[Finding]:
    """Find sizes other than the compiled ones, whose padding costs time."""
    now, words, size = trial.now, trial.server.words, trial.now.scenario.rule.largest_batch
    service = now.scenario.service
    compiled = service.padding
    if compiled is None or isinstance(service, SizedTime):
        return
    if size not in compiled:
        above = next(each for each in compiled if each > size)
        full = 1.0 if now.overloaded else now.result.metrics.shares().get("full_share", 0.0)
        for other in (above, max((each for each in compiled if each < size), default=above)):
            found = trial.resized(other)
            if found is None or full < OFTEN or not found.beats(now, 0.05):
                continue
            what = f"{trial.said(words.size)} is not a compiled size: a full batch costs as much as {above}."
            yield p99_finding("size-not-compiled", what, now, found)
            return
    if now.overloaded:
        return
    powers = sorted({2**k for k in range(size.bit_length()) if 2**k < size} | {compiled[-1], *compiled})
    if set(powers) == set(compiled):
        return
    if words.sizes and words.sizes in trial.settings:
        found, remedy = trial.outcome(**{words.sizes: powers}), ""
    else:
        scenario = now.scenario.replace(service=service.padded_to(powers))
        found = trial.other(scenario)
        remedy = f"the model compiled for batches of {listed([str(each) for each in powers])}"
    share, to = percent(_padding(service, now)), listed([str(each) for each in compiled])
    what = f"Batches are padded to {to}: {share} of the computed items are padding."
    yield from proposal("padding-waste", what, now, found, LITTLE, remedy)


def padded_lengths(trial: Trial) -> Iterator[Finding]:
    """Find requests that are padded to much longer ones; a limit in tokens or two ranges of lengths help."""
    now, sizes = trial.now, trial.now.scenario.workload.sizes
    if sizes is None or not isinstance(now.scenario.service, SizedTime) or now.scenario.service.packed:
        return
    share, longest, rule = now.result.metrics.number("padding"), sizes.longest, now.scenario.rule
    if share < WASTED:
        return
    limit = "max_batch_tokens"
    powers = [2**k for k in range(4, longest.bit_length()) if 2**k < longest]
    found: list[tuple[Outcome, str]] = []
    if limit in trial.server.settings:
        lower = [trial.setting(limit) // 2**k for k in range(1, 8)]
        tried = [trial.outcome(**{limit: each}) for each in lower if each >= longest]
        found = [(each, "") for each in tried if each is not None]
    elif not rule.by_size and math.isfinite(rule.max_wait_ms):
        for edge in powers:
            with contextlib.suppress(ValueError):  # such as priorities
                ranges = Buckets((edge, longest), rule.max_batch_size, rule.max_wait_ms)
                one = trial.other(dataclasses.replace(now.scenario, rule=ranges))
                found.append((one, f"a bucket edge at {edge}"))
    chosen = best([each for each, _ in found])
    remedy = next((words for each, words in found if each is chosen), "")
    what = (
        f"Padding wastes {percent(share)} of what the server computes: batches mix short and long requests."
    )
    yield from proposal("length-padding", what, now, chosen, MATTERS, remedy)


def share_a_device(trial: Trial) -> Iterator[Finding]:
    """Find more servers than devices: their batches stay small and wait for each other."""
    now, name = trial.now, trial.server.words.servers
    servers, devices = now.scenario.servers, now.scenario.device_count
    if not name or (devices >= servers and now.scenario.slowdown is None) or servers == 1:
        return
    if trial.config.untold(trial.base):  # there is a note about it
        return
    fewest = devices if now.scenario.slowdown is None else 1
    found = best([each for n in range(fewest, servers) if (each := trial.outcome(**{name: n})) is not None])
    where = "one device" if devices == 1 or now.scenario.slowdown else counted(devices, "device")
    size = number(now.result.mean_batch_size)
    what = f"{name}={servers} on {where}: batches stay small, {size} on average, and wait for the device."
    yield from proposal("servers-share-a-device", what, now, found, LITTLE)


def handler_blocks(trial: Trial) -> Iterator[Finding]:
    """Find a handler that blocks the event loop, and so the forming of the next batch."""
    if trial.settings.get("handler") == "blocking":
        what = "The handler blocks the event loop, so no batch forms while one is computed."
        yield from proposal("handler-blocks", what, trial.now, trial.outcome(handler="async"), MATTERS)


def _least(limit: Any) -> Any:
    """Return the smallest of limits by priority level, or the only limit."""
    return min(limit.values(), default=None) if isinstance(limit, Mapping) else limit


def loses(trial: Trial) -> Iterator[Finding]:
    """Find a timeout or a queue limit that loses requests which the server could carry."""
    now, rule, words = trial.now, trial.now.scenario.rule, trial.server.words
    timeout_ms, limit = (_least(each) for each in (now.scenario.timeout_ms, now.scenario.queue_limit))
    if now.overloaded or not now.scenario.can_lose or now.loss < LOSES:
        return

    def cures(found: Outcome | None) -> bool:
        return found is not None and not found.overloaded and found.loss <= CURED * now.loss

    tried: list[tuple[str, str, Outcome | None]] = []
    if "max_latency_ms" in trial.settings:
        what = f"{trial.said('max_latency_ms')} is not a wait: slower requests are refused"
        usual = trial.outcome(max_latency_ms=trial.server.default("max_latency_ms"))
        tried.append(("latency-limit-as-wait", what, usual))
    elif timeout_ms is not None and words.wait and rule.max_wait_ms >= timeout_ms and rule.enough > 1:
        what = f"{words.wait} lets a batch wait for {typed_duration(rule.max_wait_ms)}"
        what += f", but requests time out after {typed_duration(timeout_ms)}"
        tried.append(("timeout-below-wait", what, best([*filter(cures, shorter(trial))])))
    if limit is not None and words.queue and limit < rule.enough:
        what = f"{words.queue}={limit} refuses requests before a batch of {rule.enough:,} is full"
        tried.append(("queue-limit-below-size", what, trial.outcome(**{words.queue: 4 * rule.enough})))
    for code, what, found in tried:
        if found is not None and cures(found):
            effect = max(found.effect_over(now), 1.0)
            yield Finding(code, f"{what}.", "loss", now.loss, found.loss, effect, found.change)


def overload(trial: Trial) -> Iterator[Finding]:
    """Find more traffic than full batches carry, and the number of servers that would carry it."""
    now, name, workload = trial.now, trial.server.words.servers, trial.now.scenario.workload
    if not now.overloaded or isinstance(workload, ClosedLoop):
        return
    if trial.config.untold(trial.base) and not trial.alone.overloaded:
        return
    carried, offered = rates(now.scenario.full_batches_per_s, workload.offered_per_s)
    what = f"{offered} arrive and {carried} are carried: the queue grows without bound."
    if now.scenario.can_lose:
        what = f"{offered} arrive and {carried} are carried: the rest is lost."
    own = now.scenario.slowdown is None and now.scenario.devices is None
    if name and own:
        for servers in range(now.scenario.servers + 1, MOST + 1):
            spread = {trial.server.words.devices: servers} if trial.server.words.devices else {}
            found = trial.outcome(**{name: servers}, **spread)
            if found is not None and not found.overloaded:
                more = ", ".join(f"{key}={value}" for key, value in found.change.items())
                more += ", on a device each,"
                yield Finding("overload", what, "load", now.load, found.load, math.inf, found.change, more)
                return
    remedy = "less traffic, more replicas, or a faster model"
    yield Finding("overload", what, "load", now.load, math.nan, math.inf, {}, remedy)
