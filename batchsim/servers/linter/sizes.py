"""Findings about how large batches are."""

import math
from collections.abc import Iterator

import numpy as np

from batchsim._format import counted, listed, number, percent
from batchsim.scenario import ClosedLoop, Service
from batchsim.scenario.rules import FrozenBatches
from batchsim.servers.linter.finding import Finding
from batchsim.servers.linter.trial import Outcome, Trial
from batchsim.servers.linter.waits import MATTERS, p99_finding

LARGEST = 256  # larger batches are not proposed
LINE = 0.95  # of so many single ones: a batch that takes as long saves nothing
LITTLE = 0.1  # a p99 that falls by less of it is no finding, where the setting has no use
OFTEN = 0.05  # the share of full batches from which their size matters


def _word(trial: Trial) -> str:
    name = trial.server.words.size
    return f"{name}={trial.setting(name)!r}"


def too_small(trial: Trial) -> Iterator[Finding]:
    """Find batches that are too small, above all the default of one."""
    now, rule, size = trial.now, trial.now.scenario.rule, trial.now.scenario.rule.max_batch_size
    most = min(LARGEST, trial.base.service.largest_batch)
    sizes = [size * 2**k for k in range(1, 9) if size * 2**k <= most]
    # Where nothing waited for company, nothing shall: a wait that had no effect might be a long one.
    found = [trial.resized(each, 0.0 if size == 1 else None) for each in sizes]
    larger = [
        each for each in found if each is not None and each.scenario.rule.largest_batch > rule.largest_batch
    ]
    least = min((each.p99_ms for each in larger), default=math.inf)
    if least == math.inf:
        return
    smallest = next(each for each in larger if each.p99_ms <= 1.05 * least)
    if not smallest.beats(now, MATTERS):
        return
    left = trial.server.words.size not in trial.settings
    is_default = " is the default, and" if left else ""
    each = "one request" if size == 1 else f"{size:,} requests"
    what = f"{_word(trial)}{is_default} lets a batch hold {each} at most, too few at this load."
    yield p99_finding("size-too-small", what, now, smallest)


def through_zero(trial: Trial) -> Iterator[Finding]:
    """Find a service time without a fixed part: batching cannot help, only delay."""
    now, size = trial.now, trial.now.scenario.rule.largest_batch
    table = now.scenario.service.table(size)[1:]
    if size == 1 or table[-1] < LINE * size * table[0]:
        return
    alone = trial.resized(1)
    if alone is None or not alone.beats(now, LITTLE):
        return
    per = f"a batch of {size:,} computes for {number(table[-1] / table[0])} times as long as a single request"
    yield p99_finding(
        "service-through-zero", f"Batching saves nothing here, it only delays: {per}.", now, alone
    )


def never_reached(trial: Trial) -> Iterator[Finding]:
    """Find a size that is never reached, because fewer requests are let in, or exist."""
    now, rule, size = trial.now, trial.now.scenario.rule, trial.now.scenario.rule.max_batch_size
    ongoing, workload = "max_ongoing_requests", now.scenario.workload
    if isinstance(rule, FrozenBatches) and rule.max_ongoing < size * now.scenario.servers:
        found = trial.outcome(**{ongoing: size * now.scenario.servers})
        if found is not None and found.beats(now, LITTLE):
            default = "" if ongoing in trial.settings else ", the default,"
            needs = "one full batch" if rule.max_ongoing < size else "full batches on all servers"
            what = (
                f"{ongoing}={trial.setting(ongoing)}{default} lets in fewer requests than {needs} of {size:,}"
            )
            why = "none is ever full, and each waits" if rule.max_ongoing < size else "some servers idle"
            yield p99_finding("concurrency-below-size", f"{what}: {why}.", now, found)
    elif isinstance(workload, ClosedLoop) and workload.clients < rule.enough and rule.max_wait_ms > 0:
        found = trial.resized(workload.clients)
        if found is not None and found.beats(now, LITTLE):
            clients = counted(workload.clients, "client")
            what = (
                f"{_word(trial)} is never reached with {clients}: every batch waits for one that cannot come."
            )
            yield p99_finding("clients-below-size", what, now, found)


def preferred(trial: Trial) -> Iterator[Finding]:
    """Find preferred sizes without a reason: Triton's guide advises against them."""
    name, now = "preferred_batch_size", trial.now
    sizes = trial.settings.get(name)
    if not sizes:
        return
    found = trial.outcome(**{name: []})
    if found is not None and found.beats(now, 0.05):
        what = f"{name}={list(sizes)} makes batches leave too early, or too small, for this service time."
        yield p99_finding("preferred-sizes", what, now, found)


def _padding(service: Service, outcome: Outcome) -> float:
    """Return the share of what is computed that is padding."""
    sizes = outcome.result.batches.batch_size
    padded = np.array(service.padding)[np.searchsorted(service.padding or (), sizes)]
    return 1 - float(sizes.sum() / padded.sum())


def padded(trial: Trial) -> Iterator[Finding]:
    """Find sizes that are not the compiled ones: what is padded is computed for nothing."""
    now, words, size = trial.now, trial.server.words, trial.now.scenario.rule.largest_batch
    service = now.scenario.service
    compiled = service.padding
    if compiled is None:
        return
    if size not in compiled:
        above = next(each for each in compiled if each > size)
        full = 1.0 if now.overloaded else now.result.metrics.shares().get("full_share", 0.0)
        for other in (above, max((each for each in compiled if each < size), default=above)):
            found = trial.resized(other)
            if found is None or full < OFTEN or not found.beats(now, 0.05):
                continue
            what = f"{_word(trial)} is no compiled size: a full batch costs what one of {above:,} does."
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
    if found is not None and found.beats(now, LITTLE):
        share = percent(_padding(service, now))
        to = listed([str(each) for each in compiled])
        what = f"Batches are padded to {to}: {share} of what is computed is padding."
        yield p99_finding("padding-waste", what, now, found, remedy)
