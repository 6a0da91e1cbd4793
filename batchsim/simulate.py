"""The entry point: checks the arguments, draws the randomness, picks the engine, wraps the result."""

import math
import os
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from batchsim import _check
from batchsim._workers import threads
from batchsim.engines.draws import Streams
from batchsim.engines.estimates import bytes_of, check_size, room_for_steps
from batchsim.engines.folded_log import FoldedLog
from batchsim.engines.kinds import KINDS
from batchsim.engines.log import CANCELLED, warmup_requests
from batchsim.engines.replicas import without_steps
from batchsim.engines.stopwatch import Stopwatch, check_model, listed_inputs
from batchsim.engines.token_log import TokenLog
from batchsim.result import Result, Run
from batchsim.result.token_run import RUNS
from batchsim.result.warmup import doubts, drop_warmup
from batchsim.scenario import Scenario, Trace

DEFAULT_REQUESTS = 100_000
ENGINES = ("auto", "compiled", "simpy")
KEEP = ("all", "requests", "summary")


def simulate(
    scenario: Scenario, requests: int | None = None, seed: int = 0, engine: str = "auto",
    warmup: float | str = 0.0, replications: int = 1, keep: str = "all", *,
    model_fn: Callable[[Any], Any] | None = None, inputs: Sequence[Any] | None = None,
    timing: str = "service",
) -> Result:  # fmt: skip
    """Run a scenario and return the result, with the times of every request.

    `requests`: the number of requests; by default a whole trace, one for each of `inputs`, or 100,000.
    `seed`, a whole number or NumPy's SeedSequence, fixes all randomness. `engine`: "simpy" is the
    reference; "compiled" uses Numba, about 300 times faster with bit-identical results; "auto" takes the
    compiled one if it covers the run. `warmup` is the fraction of the requests, in arrival order, that
    the metrics omit; "auto" finds it by MSER-5, best from several replications. `replications`: the
    number of independent runs, on all cores; number 0 is the plain run. `keep="summary"` keeps no
    columns, in constant memory unless a router or an autoscaler looks at replicas: means and counts are
    exact, percentiles are accurate to 0.1 %, and shares within a limit are exact if the limit has at most
    four digits. `keep="requests"` keeps one row a request, but no rows for the steps of tokens.
    `keep="all"` keeps these too, up to 1 GiB, or half of the free memory if `requests` is given; a longer
    run has no rows for steps, and warns. With `model_fn` and `inputs` (one item a request) the model
    computes every batch, and `result.outputs[i]` is request i's output (None if unserved).

    `timing="measured"` measures that model: the real time of each batch, until its output is ready, replaces
    the scenario's service time, its noise and its cold start. The first batch of each size runs twice, and
    the second run counts; with "measured cold" the first run counts, with its compilation (a `Model` compiles
    again after `forget_compiled()`). Such times are not reproducible; the seed fixes the rest.

    A run that does not cover whole periods of a `Diurnal` warns: its numbers are not those of a day. A
    scenario with `tokens` generates them step by step: see `Continuous`, and `result.ttft_ms`.

    >>> from batchsim import Affine, Poisson, Scenario, SizeOrWait
    >>> scenario = Scenario(Poisson(rate_per_s=800), SizeOrWait(32, 10), Affine(5, 0.25))
    >>> result = simulate(scenario, requests=2000)
    >>> round(result.mean_batch_size, 1), round(result.percentile(99), 1)
    (9.0, 18.5)
    """
    result, warnings = simulated(
        scenario, requests, seed, engine, warmup, replications, keep, model_fn, inputs, timing,
        "; keep='summary' runs any number",
    )  # fmt: skip
    for warning in warnings:
        _check.warn(warning)
    return result


def simulated(
    scenario: Scenario, requests: int | None = None, seed: int = 0, engine: str = "auto",
    warmup: float | str = 0.0, replications: int = 1, keep: str = "all",
    model_fn: Callable[[Any], Any] | None = None, inputs: Sequence[Any] | None = None,
    timing: str = "service", advice: str = "", shared: bool = False,
) -> tuple[Result, list[str]]:  # fmt: skip
    """Return the result of `simulate`, and its warnings: a search makes thousands of runs.

    `advice` is for who runs out of memory: other callers have no `keep`. `shared`: nobody will write to the
    arrivals, so that they need not be copied.
    """
    _check.instance("scenario", scenario, Scenario, "a Scenario")
    _check.one_of("engine", engine, ENGINES)
    _check.one_of("keep", keep, KEEP)
    seed = _check.seed(seed)
    replications = _check.whole("replications", replications)
    find_warmup = isinstance(warmup, str) and warmup == "auto"
    fraction = 0.0 if find_warmup else _check.real("warmup", warmup, at_least=0, below=1)
    if inputs is not None:
        inputs = listed_inputs(inputs)
        requests = len(inputs) if requests is None else requests
    count = check_requests(scenario, requests)
    check_model(scenario, model_fn, inputs, count, timing)
    if keep == "summary" and find_warmup:
        raise ValueError("warmup='auto' needs columns, got keep='summary': give a fraction")
    check_replications(scenario, replications)
    if model_fn is not None and replications > 1:
        raise ValueError(f"a model_fn must run in one replication, got replications={replications}")
    engine = _engine_of(scenario, engine, keep, model_fn is not None)
    kind = KINDS[scenario.kind]  # how requests, or tokens, are drawn, run and added up: `engines.kinds`
    room = math.inf  # for the steps of tokens, in bytes
    if kind.folds:
        room = room_for_steps(keep, requests, bytes_of(scenario, count * replications)) / replications
    check_size(scenario, count, engine, keep, replications, advice)

    cancelled = CANCELLED.get() or threading.Event()
    stopwatch = None
    if model_fn is not None and timing != "service":
        stopwatch = Stopwatch(model_fn, warm=timing == "measured")
    options: dict[str, Any] = {"room": room} if kind.folds else {}
    options |= {"cancelled": cancelled} if engine == "compiled" else {}
    options |= {"model_fn": stopwatch or model_fn, "inputs": inputs} if model_fn is not None else {}
    clock = "measured" if stopwatch else "simulated"

    def one(replication: int) -> Run:
        if keep == "summary":
            streams, skip = Streams(scenario, seed, replication), warmup_requests(fraction, count)
            sums = kind.summarise(scenario, count, streams, skip, cancelled=cancelled)
            return RUNS[scenario.kind](scenario, sums=sums, warmup=fraction)
        plan = kind.draw(scenario, count, seed, replication, cancelled, shared)
        log = kind.run(engine, plan, **options)
        return RUNS[scenario.kind](scenario, log, warmup=fraction, clock=clock)

    runs = _all_folded_or_none(_all(one, replications, engine, cancelled))
    if keep == "all":
        _warn_of_steps(runs[0], room)
    result = Result(runs, seed, engine if stopwatch is None else f"{engine}, {timing} on {stopwatch.device}")
    warning = ""
    if find_warmup:
        result, warning = drop_warmup(result)
    warnings = (warning, *doubts(result, count, keep == "all", find_warmup))
    return result, [each for each in warnings if each]


def _all(
    one: Callable[[int], Run], replications: int, engine: str, cancelled: threading.Event
) -> tuple[Run, ...]:  # fmt: skip
    """Return the runs of all replications."""
    if replications == 1 or engine == "simpy":  # in this thread, which receives Ctrl-C
        return tuple(map(one, range(replications)))
    with threads(min(os.cpu_count() or 1, replications), "batchsim") as crew:
        try:
            return tuple(crew.map(one, range(replications)))
        except BaseException:
            cancelled.set()  # the threads stop at their next slice
            crew.shutdown(wait=False, cancel_futures=True)
            raise


def _warn_of_steps(run: Run, room: float) -> None:
    if isinstance(log := run.columns, FoldedLog):
        # As many requests as have their steps in nine tenths of the room, and a twentieth fewer, in round
        # numbers: another seed has others.
        fewer = np.searchsorted(log.steps_before[:-1], 0.9 * room)
        _check.warn(
            f"result.steps has no rows, as {log.steps:,} of them need too much memory: "
            f"requests={int(float(f'{0.95 * fewer:.1e}'))} keeps them, keep='requests' does without"
        )


def _engine_of(scenario: Scenario, engine: str, keep: str, with_model: bool) -> str:
    """Return the engine that runs a scenario, "simpy" or "compiled"; ValueError if the asked one cannot."""
    lacking = "a model_fn" if with_model else scenario.uncovered
    if lacking and engine == "compiled":
        raise ValueError(f"engine 'compiled' does not cover {lacking}: use engine='simpy'")
    if keep == "summary" and lacking:
        raise ValueError(f"keep='summary' needs the compiled engine, which does not cover {lacking}")
    if keep == "summary" and engine == "simpy":
        raise ValueError("keep='summary' needs the compiled engine, got engine='simpy'")
    return "simpy" if engine == "simpy" or lacking else "compiled"


def _all_folded_or_none(runs: tuple[Run, ...]) -> tuple[Run, ...]:
    """Return replications that all have rows of steps, or none."""
    if not any(isinstance(run.columns, FoldedLog) for run in runs):
        return runs
    return tuple(
        replace(run, columns=without_steps(run.scenario, run.log)) if isinstance(run.log, TokenLog) else run
        for run in runs
    )


def check_requests(scenario: Scenario, requests: int | None) -> int:
    """Return the checked number of requests; by default a whole trace, or 100,000."""
    if requests is None:
        lengths = scenario.tokens and scenario.tokens.max_requests
        return scenario.workload.max_requests or lengths or DEFAULT_REQUESTS
    count = _check.whole("requests", requests)
    if count > (most := scenario.workload.max_requests or count):
        raise ValueError(f"requests must be at most the trace's {most:,}, got {count:,}")
    return count


def check_replications(scenario: Scenario, replications: int) -> None:
    """Refuse replications of a trace: they would all have the same arrivals."""
    if isinstance(scenario.workload, Trace) and replications > 1:
        rule = "replications must be 1 with a Trace, whose arrivals are one sample"
        instead = "one run of a long trace has intervals, and Gamma and OnOff draw new traffic"
        raise ValueError(f"{rule}, got {replications}: {instead}")


def available(scenario: Scenario, requests: int) -> int:
    """Return the number of requests, limited by the end of a trace or of listed lengths."""
    lengths = scenario.tokens and scenario.tokens.max_requests
    return min(requests, scenario.workload.max_requests or requests, lengths or requests)
