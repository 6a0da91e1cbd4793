"""A moment of a film in a sentence, and the life of a request of token generation."""

from collections.abc import Sequence

from batchsim._format import duration, listed, number
from batchsim.result import Result
from batchsim.view.film.pseudocode import acting, pseudocode
from batchsim.view.film.snapshot import Activity, Snapshot
from batchsim.view.film.token_film import StepMoment, WholeMoment

MOST_LISTED = 8  # replicas


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
        waiting += by_replica(snapshot.at_replicas.tolist())
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


def by_replica(waiting: Sequence[int]) -> str:
    """Return how many requests wait at each of several replicas, or at the fullest of many.

    >>> by_replica([2, 0, 1]), by_replica([1] * 40), by_replica([3])
    (' (2, 0 and 1 by replica)', ' (at most 1 at a replica)', '')
    """
    if len(waiting) > MOST_LISTED:
        return f" (at most {max(waiting):,} at a replica)"
    return f" ({listed([f'{count:,}' for count in waiting])} by replica)" if len(waiting) > 1 else ""


def activities(snapshot: Snapshot, within_s: float) -> tuple[str, ...]:
    """Return the state of the rule, and the reason."""
    activity = snapshot.activity(within_s)
    if activity is not Activity.LEAVING or snapshot.last is None:
        return (str(activity),)
    because = pseudocode(snapshot.scenario)[acting(snapshot, within_s)].because
    leaves = f"a batch of {snapshot.last.requests.size:,} leaves"
    return f"{leaves}: {because}", leaves


def life(result: Result, request: int) -> str:
    """Return what a request of token generation went through; `film.js` writes those of whole batches.

    >>> from batchsim import Constant, Scenario, SizeOrWait, StepTime, Tokens, simulate
    >>> scenario = Scenario(Constant(100), SizeOrWait(2, 50), StepTime(10, 0, 0), tokens=Tokens(9, [3, 1]))
    >>> print(life(simulate(scenario, 2), 0))
    Request 0 waited 10.0 ms for a seat, and received its first token 10.0 ms later (prefill of 9 tokens) ...
    """
    waited_ms = (result.start_s[request] - result.arrival_s[request]) * 1000
    prefill, decode, preempted, latency = (
        duration(float(getattr(result, f"{part}_ms")[request]))
        for part in ("prefill", "decode", "preempted", "latency")
    )
    prompt, others = int(result.prompt_tokens[request]), int(result.output_tokens[request]) - 1
    times = int(result.preemptions[request])
    tokens = f" and the other {others:,} in {decode} (decode)" if others else ""
    again = (
        f"; it was preempted {'once' if times == 1 else f'{times:,} times'}, for {preempted}" if times else ""
    )
    return (
        f"Request {request:,} waited {duration(waited_ms)} for a seat, and received its first token "
        f"{prefill} later (prefill of {prompt:,} tokens){tokens}{again}: {latency} in all."
    )
