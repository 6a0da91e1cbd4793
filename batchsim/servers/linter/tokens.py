"""Findings about language models' servers: memory, budgets, and defaults that depend on the card."""

import math
from collections.abc import Callable, Iterable, Iterator
from typing import cast

from batchsim._format import listed, number
from batchsim.scenario import StepTime
from batchsim.scenario.rules.continuous import MOST, Continuous
from batchsim.servers.linter.batches import p99_finding
from batchsim.servers.linter.finding import Finding, Note, Outcome, Trial

REQUESTS, OF_SIMPY = 3000, 400  # in each run; the second if only the SimPy engine has the rule
MATTERS = 0.05  # the smallest relative fall of a mean that counts
OFTEN = 0.1  # the share of preempted requests above which memory is short
LARGEST = 65_536  # the largest proposed budget


def _mean(outcome: Outcome, key: str) -> float:
    return outcome.result.metrics.number(key)


def _finding(code: str, sentence: str, key: str, now: Outcome, found: Outcome) -> Finding:
    p99s_ms = [each.result.percentile(99, unserved="inf") for each in (now, found)]
    effect = max(p99s_ms[0] / p99s_ms[1], 1.0)
    return Finding(code, sentence, key, _mean(now, key), _mean(found, key), effect, found.change)


def _better(found: Outcome | None, now: Outcome, key: str = "mean_latency_ms") -> bool:
    """Return whether a mean is lower by more than `MATTERS`, and the mean latency is not worse."""
    if found is None or _mean(found, key) > (1 - MATTERS) * _mean(now, key):
        return False
    return _mean(found, "mean_latency_ms") <= 1.02 * _mean(now, "mean_latency_ms")


def _lowest(tried: Iterable[Outcome | None], now: Outcome) -> Outcome | None:
    """Return the outcome with the lowest mean latency among those that are better."""
    fits = [each for each in tried if each is not None and _better(each, now)]
    return min(fits, key=lambda each: _mean(each, "mean_latency_ms"), default=None)


def _of_memory(trial: Trial) -> tuple[float, float]:
    """Return the mean tokens that a request holds, and how many such requests fit in memory."""
    rule, result = trial.now.scenario.rule, trial.now.result
    assert isinstance(rule, Continuous)
    outputs = result.output_tokens.astype(float)
    # Weighted by steps: a longer answer holds its memory for more of them.
    held = float(((result.prompt_tokens + outputs / 2) * outputs).sum() / outputs.sum())
    return held, (rule.kv_blocks or math.inf) * rule.block_size / held


def thrashes(trial: Trial) -> Iterator[Finding]:
    """Find a setting that admits more than memory holds, so that requests are preempted and recomputed."""
    share = _mean(trial.now, "preempted_share")
    if share < OFTEN:
        return
    for name, calm in trial.server.calm.items():
        if trial.setting(name) == calm:
            continue
        found = trial.outcome(**{name: calm})
        if found is not None and _better(found, trial.now):
            back = int(trial.now.result.preemptions.sum())
            each = number(back / trial.now.result.preemptions.size)
            many = f"{each} preemptions per request, each recomputed"
            what = f"{trial.said(name)} thrashes: {many}."
            yield _finding("limit-thrashes", what, "preempted_share", trial.now, found)


def beyond_memory(trial: Trial) -> Iterator[Finding]:
    """Find more seats than memory holds, if they cost latency."""
    now, name = trial.now, trial.server.words.size
    if _mean(now, "preempted_share") < OFTEN:
        return
    held, fit = _of_memory(trial)
    seats = now.scenario.rule.max_batch_size
    if seats <= fit:
        return
    # The best number may exceed the mean, because requests do not peak together.
    parts = [max(int(fit * part), 1) for part in (1.5, 1.25, 1.0, 0.85, 0.7)]
    found = _lowest((trial.outcome(**{name: part}) for part in parts if part < seats), now)
    if found is not None:
        room = f"memory has room for {int(fit):,} requests, at {int(held):,} tokens each on average"
        what = f"{trial.said(name)} is more than memory holds: {room}."
        yield _finding("seats-beyond-memory", what, "mean_latency_ms", now, found)


def below_prompt(trial: Trial) -> Iterator[Finding]:
    """Find a budget below the mean prompt, which then needs several steps."""
    name, now = trial.server.words.budget, trial.now
    rule, prompt = now.scenario.rule, float(now.result.prompt_tokens.mean())
    if not name or not isinstance(rule, Continuous) or rule.max_num_batched_tokens >= prompt:
        return
    budget = rule.max_num_batched_tokens
    larger = [budget * 2**power for power in range(1, 17)]
    tried = (trial.outcome(**{name: each}) for each in larger if prompt <= each <= LARGEST)
    found = next((each for each in tried if each is not None and _better(each, now, "mean_ttft_ms")), None)
    if found is not None:
        steps = math.ceil(prompt / budget)
        below = f"is below the mean prompt, {int(prompt):,} tokens, which takes {steps} steps"
        what = f"{trial.said(name)} {below}."
        yield _finding("budget-below-prompt", what, "mean_ttft_ms", now, found)


def by_card(trial: Trial) -> Iterator[Finding]:
    """Find missing settings whose default depends on an unknown card, if that makes a difference."""
    names, cards = trial.server.by_card
    left = [name for name in names if name not in trial.settings]
    if trial.settings.get("gpu") is not None or not left:
        return
    others, budget = [], trial.server.words.budget
    # Only the limits: memory is a different question.
    limits = {name: value for name, value in trial.settings.items() if name not in ("model", "model_path")}
    for gib in cards:
        rule = trial.server.configure({**limits, "gpu": gib}).rule
        assert isinstance(rule, Continuous)
        meant = {trial.server.words.size: rule.max_num_seqs, budget: rule.max_num_batched_tokens}
        change = {name: meant[name] for name in left}
        found = trial.outcome(**change)
        if found is not None and found.scenario.rule != trial.now.scenario.rule:
            others.append((gib, found))
    apart = [
        (abs(math.log(_mean(found, key) / _mean(trial.now, key))), gib, key, found)
        for gib, found in others
        for key in ("mean_ttft_ms", "tpot_p99_ms")
    ]
    most, gib, key, found = max(apart, key=lambda each: each[0], default=(0.0, 0.0, "", None))
    if found is not None and most > MATTERS:
        values = listed([f"{name}={value:,}" for name, value in found.change.items()])
        decides = f"the card's memory decides: {values} with {number(gib)} GiB"
        what = f"{listed(left)} {'are' if len(left) > 1 else 'is'} left out, and {decides}."
        yield _finding("default-by-card", what, key, trial.now, found)


def _captured(outcome: Outcome) -> tuple[int, ...]:
    return cast(StepTime, outcome.scenario.service).captured or ()


def _most_captured(outcome: Outcome) -> int:
    step = cast(StepTime, outcome.scenario.service)
    return int(step.whole_cost(outcome.scenario.rule.max_batch_size).most_captured)


def off_ladder(trial: Trial) -> Iterator[Finding]:
    """Find a limit that is no captured size: kernels of full steps are launched one by one."""
    now, name = trial.now, trial.server.words.size
    seats, most = now.scenario.rule.max_batch_size, _most_captured(now)
    if most == 0 or most >= seats:
        return
    limits = (trial.outcome(**{name: limit}) for limit in (seats, 2 * seats))  # each with its own sizes
    sizes = {size for each in limits if each is not None for size in _captured(each)}
    larger = (trial.outcome(**{name: size}) for size in sorted(sizes) if seats < size <= 2 * seats)
    fits = (each for each in larger if each and _most_captured(each) >= each.scenario.rule.max_batch_size)
    above = next(fits, None)
    tried = trial.outcome(**{name: most}), above
    what = f"{trial.said(name)} is not a captured size: {_launched(most, seats)}."
    if now.overloaded:  # a run says little: the requests that have come so far may all fit into smaller steps
        found = min(filter(None, tried), key=lambda each: each.load, default=now)
        if found.load <= (1 - MATTERS) * now.load:
            yield p99_finding("limit-off-ladder", what, now, found)
    elif lower := _lowest(tried, now):
        yield _finding("limit-off-ladder", what, "mean_latency_ms", now, lower)


def _launched(most: int, seats: int) -> str:
    steps = f"{most + 1:,} to {seats:,}" if most + 1 < seats else f"{seats:,}"
    return f"CUDA graphs are recorded up to {most:,} sequences, so steps of {steps} launch each kernel"


CHECKS: tuple[Callable[[Trial], Iterator[Finding]], ...] = (
    thrashes, beyond_memory, below_prompt, by_card, off_ladder,
)  # fmt: skip


def notes(trial: Trial) -> Iterator[Note]:
    """Note memory that limits the running requests at no cost here, and launches of unknown time."""
    rule, name, step = trial.now.scenario.rule, trial.server.words.size, trial.base.service
    ladder = trial.config.captured.get("captured") or ()
    most = max((each for each in ladder if each <= rule.max_batch_size), default=0)
    unknown = isinstance(step, StepTime) and step.captured is None and not step.beyond_ms
    if unknown and name in trial.settings and 0 < most < rule.max_batch_size:
        what = f"{trial.said(name)} is not a captured size: {_launched(most, rule.max_batch_size)}"
        yield Note(
            "launches-unknown", f"{what}; give the step time beyond_ms to see what that costs.", (name,)
        )
    if not isinstance(rule, Continuous) or rule.kv_blocks is None:
        return
    held, fit = _of_memory(trial)
    seats, most = rule.max_num_seqs, trial.now.result.token_log.most_running
    if fit < seats < MOST:
        room = f"memory holds {int(fit):,} requests of {int(held):,} tokens on average"
        what = f"{trial.server.words.size} is {seats:,}, but {room}, and {most:,} ran at most."
        yield Note("memory-below-seats", what, (trial.server.words.size,))
