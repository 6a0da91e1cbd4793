"""What the film says: the moment in a sentence, and the stage's short texts, the longest that fits first."""

import math
from collections.abc import Mapping

from batchsim._format import listed, number, typed
from batchsim.scenario.rules import Rule
from batchsim.view.film.pseudocode import acting, pseudocode
from batchsim.view.film.snapshot import Activity, Snapshot
from batchsim.view.film.step_film import StepMoment
from batchsim.view.film.whole_film import WholeMoment

FLAGGED = "\N{BLACK LOWER LEFT TRIANGLE}"


def describe(snapshot: Snapshot | StepMoment | WholeMoment, within_s: float = 0.0) -> str:
    """Return a snapshot in one sentence, for those who do not see the picture.

    >>> from batchsim import Affine, Scenario, SizeOrWait, Trace, simulate
    >>> from batchsim.view.film.snapshot import Film
    >>> film = Film(simulate(Scenario(Trace([0.000, 0.004, 0.012]), SizeOrWait(2, 20), Affine(9, 1))))
    >>> print(describe(film.snapshot(0.002)))
    At 2 ms: waiting for company; 1 waiting, the oldest for 2 ms; server idle; 1 arrived, 0 served, 0 lost.
    """
    if isinstance(snapshot, StepMoment | WholeMoment):
        return snapshot.said(within_s)
    parts = [activities(snapshot, within_s)[0]]
    if snapshot.waited_ms is not None:
        levels = [f"{count:,} of level {level}" for level, count in snapshot.levels.items() if count]
        waiting = f"{snapshot.waiting.size:,} waiting" + (f" ({listed(levels)})" if levels else "")
        parts.append(f"{waiting}, the oldest for {number(snapshot.waited_ms)} ms")
    busy, servers = sum(batch is not None for batch in snapshot.computing), len(snapshot.computing)
    one = "server busy" if busy else "server idle"
    compiling = (
        f", {'' if servers == 1 else f'{snapshot.compiling:,} '}compiling" if snapshot.compiling else ""
    )
    held = f", {snapshot.held:,} waiting for a device" if snapshot.held else ""
    parts.append((one if servers == 1 else f"{busy:,} of {servers:,} servers busy") + compiling + held)
    parts.append(f"{snapshot.arrived:,} arrived, {snapshot.served:,} served, {snapshot.lost:,} lost")
    return f"At {snapshot.time_s * 1000:,.7g} ms: {'; '.join(parts)}."


def activities(snapshot: Snapshot, within_s: float) -> tuple[str, ...]:
    """Return what the rule does, and why."""
    activity = snapshot.activity(within_s)
    if activity is not Activity.LEAVING or snapshot.last is None:
        return (str(activity),)
    because = pseudocode(snapshot.scenario)[acting(snapshot, within_s)].because
    leaves = f"a batch of {snapshot.last.requests.size:,} leaves"
    return f"{leaves}: {because}", leaves


def queue_titles(waiting: int, component: str, levels: Mapping[int, int]) -> tuple[str, ...]:
    """Return how many wait, of which levels, and for what; those of the first level are flagged."""
    if not waiting:
        return "queue: none waiting", "none waiting"
    by_level: tuple[str, ...] = ()
    if levels:
        counts = [f"{count:,} of level {level}" for level, count in levels.items()]
        text = ", ".join([f"{counts[0]} {FLAGGED}", *counts[1:]])
        by_level = f"queue: {text}, {component}", f"{text}, {component}", text
    return (
        *by_level,
        f"queue: {waiting:,} waiting, {component}",
        f"{waiting:,} waiting, {component}",
        f"{waiting:,} {component}",
    )


def server_titles(now: Snapshot, drawn: int) -> tuple[str, ...]:
    """Return how many servers are busy, and how many are not drawn."""
    servers, busy = len(now.computing), sum(batch is not None for batch in now.computing)
    if servers == 1:
        (batch,) = now.computing
        if batch is None:
            return ("server: idle",)
        text = f"server: batch of {batch.requests.size:,}"
        return (f"{text}, compiling", "server: compiling") if now.compiling else (text,)
    if drawn == servers:
        short = f"{busy:,} of {servers:,} busy"
        held = f"{short}, {now.held:,} waiting for a device"
        return (f"servers: {held}", held) * bool(now.held) + (f"servers: {short}", short)
    more = f"+ {servers - drawn:,} more"
    return (
        f"servers: {busy:,} of {servers:,} busy, {more} than drawn",
        f"{busy:,} of {servers:,} busy, {more}",
    )


def size_texts(waiting: int, rule: Rule) -> tuple[str, ...]:
    """Return how many of the largest batch wait, and how many are enough."""
    largest, enough = rule.largest_batch, rule.enough
    text = f"largest batch: {min(waiting, largest):,} of {largest:,}"
    return (f"{text}, {enough:,} are enough",) * (enough != largest) + (text, f"{waiting:,} of {largest:,}")


def wait_texts(waited_ms: float | None, limit_ms: float, decimals: int) -> tuple[str, ...]:
    """Return how long the oldest has waited, and how long it may."""
    limit = "no max wait" if math.isinf(limit_ms) else f"max wait {typed(limit_ms)} ms"
    if waited_ms is None:
        return f"oldest: none, {limit}", limit, ""
    waited = f"{waited_ms:,.{decimals}f}"
    short = f"oldest: {waited} ms" if math.isinf(limit_ms) else f"oldest: {waited} of {typed(limit_ms)} ms"
    return (
        f"oldest: waited {waited} ms, {limit}",
        f"waited {waited} ms, {limit}",
        short,
        f"oldest: {waited} ms",
    )
