"""A moment of a film in a sentence."""

from batchsim._format import listed, number
from batchsim.view.film.pseudocode import acting, pseudocode
from batchsim.view.film.snapshot import Activity, Snapshot
from batchsim.view.film.token_film import StepMoment, WholeMoment


def describe(snapshot: Snapshot | StepMoment | WholeMoment, within_s: float = 0.0) -> str:
    """Return a moment in one sentence.

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
    """Return the state of the rule, and the reason."""
    activity = snapshot.activity(within_s)
    if activity is not Activity.LEAVING or snapshot.last is None:
        return (str(activity),)
    because = pseudocode(snapshot.scenario)[acting(snapshot, within_s)].because
    leaves = f"a batch of {snapshot.last.requests.size:,} leaves"
    return f"{leaves}: {because}", leaves
