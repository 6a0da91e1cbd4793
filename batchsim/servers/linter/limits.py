"""Findings about servers on one device, limits that lose requests, and load that nothing carries."""

import math
from collections.abc import Iterator, Mapping
from typing import Any

from batchsim._format import counted, number, rate, typed_duration
from batchsim.scenario import ClosedLoop
from batchsim.servers.linter.finding import Finding
from batchsim.servers.linter.sizes import LITTLE
from batchsim.servers.linter.trial import Outcome, Trial
from batchsim.servers.linter.waits import MATTERS, best, p99_finding, shorter

LOSES = 1e-3  # a loss below it is no finding
CURED = 0.1  # of it may remain
MOST = 64  # more servers are not proposed


def share_a_device(trial: Trial) -> Iterator[Finding]:
    """Find more servers than devices: their batches stay small, and wait for each other."""
    now, name = trial.now, trial.server.words.servers
    servers, devices = now.scenario.servers, now.scenario.device_count
    if not name or (devices >= servers and now.scenario.slowdown is None) or servers == 1:
        return
    if trial.config.untold(trial.base):  # a note says so
        return
    fewest = devices if now.scenario.slowdown is None else 1
    found = best([each for n in range(fewest, servers) if (each := trial.outcome(**{name: n})) is not None])
    if found is None or not found.beats(now, LITTLE):
        return
    where = "one device" if devices == 1 or now.scenario.slowdown else counted(devices, "device")
    size = number(now.result.mean_batch_size)
    what = f"{name}={servers} on {where}: batches stay small, {size} on average, and wait for the device."
    yield p99_finding("servers-share-a-device", what, now, found)


def handler_blocks(trial: Trial) -> Iterator[Finding]:
    """Find a handler that blocks the event loop, and with it the forming of the next batch."""
    if trial.settings.get("handler") != "blocking":
        return
    found = trial.outcome(handler="async")
    if found is not None and found.beats(trial.now, MATTERS):
        what = "The handler blocks the event loop, so that no batch forms while one is computed."
        yield p99_finding("handler-blocks", what, trial.now, found)


def _cures(found: Outcome | None, now: Outcome) -> bool:
    return found is not None and not found.overloaded and found.loss <= CURED * now.loss


def _loss(code: str, sentence: str, now: Outcome, found: Outcome) -> Finding:
    return Finding(
        code, sentence, "loss", now.loss, found.loss, max(found.effect_over(now), 1.0), found.change
    )


def _least(limit: Any) -> Any:
    """Return the least of limits by priority level, or the one that all requests have."""
    return min(limit.values(), default=None) if isinstance(limit, Mapping) else limit


def loses(trial: Trial) -> Iterator[Finding]:
    """Find a timeout or a queue limit that loses what the server could carry."""
    now, rule, words = trial.now, trial.now.scenario.rule, trial.server.words
    timeout_ms, limit = (_least(each) for each in (now.scenario.timeout_ms, now.scenario.queue_limit))
    if now.overloaded or not now.scenario.can_lose or now.loss < LOSES:
        return
    if "max_latency_ms" in trial.settings:
        found = trial.outcome(max_latency_ms=trial.server.default("max_latency_ms"))
        if found is not None and _cures(found, now):
            what = f"max_latency_ms={trial.setting('max_latency_ms')} is no wait for company"
            why = "requests that would take longer are refused"
            yield _loss("latency-limit-as-wait", f"{what}: {why}.", now, found)
    elif timeout_ms is not None and words.wait and rule.max_wait_ms >= timeout_ms and rule.enough > 1:
        found = best([each for each in shorter(trial) if _cures(each, now)])
        if found is not None:
            waits = f"{words.wait} lets a batch wait for {typed_duration(rule.max_wait_ms)}"
            gone = f"requests are given up after {typed_duration(timeout_ms)}"
            yield _loss("timeout-below-wait", f"{waits}, but {gone}.", now, found)
    if limit is not None and words.queue and limit < rule.enough:
        found = trial.outcome(**{words.queue: 4 * rule.enough})
        if found is not None and _cures(found, now):
            refused = f"{words.queue}={limit} refuses requests before a batch of {rule.enough:,} is full"
            yield _loss("queue-limit-below-size", f"{refused}.", now, found)


def overload(trial: Trial) -> Iterator[Finding]:
    """Tell of more traffic than full batches carry: servers, where more of them do, or a remedy outside."""
    now, name, workload = trial.now, trial.server.words.servers, trial.now.scenario.workload
    if not now.overloaded or isinstance(workload, ClosedLoop):
        return
    if trial.config.untold(trial.base) and not trial.alone.overloaded:
        return
    carried, offered = rate(now.scenario.full_batches_per_s), rate(workload.offered_per_s)
    what = f"{offered} come, and {carried} are carried: the queue grows without bound."
    if now.scenario.can_lose:
        what = f"{offered} come, and {carried} are carried: the rest is lost."
    own = now.scenario.slowdown is None and now.scenario.devices is None
    if name and own:
        for servers in range(now.scenario.servers + 1, MOST + 1):
            spread = {trial.server.words.devices: servers} if trial.server.words.devices else {}
            found = trial.outcome(**{name: servers}, **spread)
            if found is not None and not found.overloaded:
                said = ", ".join(f"{key}={value}" for key, value in found.change.items())
                more = f"{said}, on a device each,"
                yield Finding(
                    "overload", what, "load", now.load, found.load, math.inf, found.change, more
                )  # fmt: skip
                return
    remedy = "less traffic, more replicas, or a faster model"
    yield Finding("overload", what, "load", now.load, math.nan, math.inf, {}, remedy)
