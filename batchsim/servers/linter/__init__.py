"""The cost of a server's settings under a scenario: findings, each with a proof and a change."""

import re
from collections.abc import Callable, Iterator

from batchsim import _check
from batchsim._format import listed
from batchsim.scenario import Scenario
from batchsim.servers.linter import batches, tokens
from batchsim.servers.linter.finding import P99, Finding, Findings, Note, Trial, measured
from batchsim.servers.registry import ALL, TOKEN_SERVERS, with_more
from batchsim.servers.server import ServerConfig

__all__ = ["Finding", "Findings", "Note", "lint"]

REQUESTS = 50_000
CHECKS: tuple[Callable[[Trial], Iterator[Finding]], ...] = (
    batches.never_reached, batches.too_small, batches.through_zero, batches.too_short, batches.too_long,
    batches.preferred, batches.padded, batches.padded_lengths, batches.share_a_device,
    batches.handler_blocks, batches.loses,
)  # fmt: skip
WAITS = ("wait-unit", "wait-default", "wait-light-load", "wait-too-long")
# The findings that another one makes irrelevant.
MOOT = dict.fromkeys(("service-through-zero", "timeout-below-wait", "clients-below-size"), WAITS)


def lint(
    config: ServerConfig,
    scenario: Scenario,
    requests: int | None = None,
    seed: int = 0,
    cores: int | None = None,
) -> Findings:
    """Return findings on the cost of a server's settings under a scenario's workload and service time.

    A number proves each finding: it is compared between the settings as they are and the proposed change, in
    the same traffic. The greatest effect comes first. The config replaces the rule, the servers and the
    limits of the scenario. `cores`: the machine's cores, for a setting that defaults to them, such as
    TensorFlow Serving's threads. `requests` of each run: by default a whole trace, or 50,000; at most 3,000
    for a language model's server, 400 in SimPy. A note says if the runs have only a part of a trace.

    >>> from batchsim import Affine, Poisson, Scenario, SizeOrWait, servers
    >>> scenario = Scenario(Poisson(2000), SizeOrWait(), Affine(1.8874, 0.1438))
    >>> inside = {"max_batch_size": 32, "max_ongoing_requests": 64}
    >>> found = lint(servers.config("ray_serve", batch_wait_timeout_s=0.002, **inside), scenario)
    >>> found.codes, found[0].change
    (('wait-below-t-min',), {'batch_wait_timeout_s': 0.0027})
    """
    _check.instance("config", config, ServerConfig, "a ServerConfig, as from servers.config")
    _check.instance("scenario", scenario, Scenario, "a Scenario")
    server = ALL[config.server]
    if cores is not None and server.per_core and server.per_core not in config.settings:
        config = with_more(config, {server.per_core: _check.whole("cores", cores)})
    whole, of_tokens = scenario.workload.max_requests, config.server in TOKEN_SERVERS
    requests = _check.whole("requests", (whole or REQUESTS) if requests is None else requests)
    if of_tokens:
        requests = min(requests, tokens.REQUESTS if config.rule.compiled else tokens.OF_SIMPY)
    trial = Trial(server, config, scenario, requests, seed)
    checks = tokens.CHECKS if of_tokens else CHECKS
    found = {finding.code: finding for check in checks for finding in check(trial)}
    # Any finding explains an overload of batches; of tokens, only one whose change carries the load.
    causes = [
        each for each in found.values()
        if not of_tokens or not (trial.outcome(**each.change) or trial.now).overloaded
    ]  # fmt: skip
    if trial.now.overloaded and not causes:
        found |= {finding.code: finding for finding in batches.overload(trial)}
    moot = {code for other in found for code in MOOT.get(other, ())}
    ranked = sorted((each for each in found.values() if each.code not in moot), key=lambda each: -each.effect)
    noted = [*_notes(trial), *(tokens.notes(trial) if of_tokens else ())]
    if requests < (whole or 0):
        what = f"Judged by the first {requests:,} of the trace's {whole:,} requests."
        noted.append(Note("part-of-trace", what))
    changed = {finding.code: trial.outcome(**finding.change) for finding in ranked if finding.change}
    runs = tuple(
        (", ".join(f"{name}={value!r}" for name, value in each.change.items()) or "as they are",
            each.p99_ms, each.scenario.full_batches_per_s, code)
        for code, each in {"now": trial.now, **changed}.items() if each is not None
    )  # fmt: skip
    return Findings(config, trial.now.scenario, tuple(ranked), tuple(noted), runs)


def _notes(trial: Trial) -> Iterator[Note]:
    name, settings = trial.config.server, trial.config.settings
    for code, sentence in trial.server.notes(settings):
        yield Note(code, sentence, tuple(each for each in settings if re.search(rf"\b{each}\b", sentence)))
    if trial.config.untold(trial.base):
        ends = trial.now, trial.alone
        low, high = ("overload" if each.overloaded else measured(P99, each.p99_ms) for each in ends)
        name_of = trial.server.words.servers
        yield Note("sharing-not-measured", f"{trial.config.sharing_unknown(low, high)}.", (name_of,))
    for key, near in trial.config.unknown.items():
        hint = f", did you mean {near}?" if near else ""
        yield Note("unknown", f"{name} does not have {key}{hint}.".replace("?.", "?"), (key,))
    # Other keys of a file, such as a model's name, are irrelevant here.
    given = {each: value for each, value in trial.config.unused.items() if each in settings}
    if given:
        unused = listed([f"{each}={value!r}" for each, value in given.items()])
        yield Note("unused", f"Not simulated, so not judged: {unused}.", tuple(given))
