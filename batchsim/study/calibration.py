"""Calibration: a service time and a client's overhead from load tests, and what they predict."""

import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import repeat
from typing import TYPE_CHECKING, Any

import numpy as np

from batchsim import _check
from batchsim._clock import on_grid
from batchsim._compat import kept
from batchsim._format import aligned, duration, fixed, listed, percent, rate
from batchsim.engines.estimates import run_s
from batchsim.measured.load_stages import Stage
from batchsim.measured.load_tests import TOOLS, LoadTest, load_test
from batchsim.result.metrics import metric
from batchsim.result.run_length import run_length
from batchsim.scenario import ClosedLoop, Constant, Gamma, Limited, Poisson, Scenario, StepTime, Tokens, Trace
from batchsim.scenario.lengths import Listed
from batchsim.scenario.rules import Rule
from batchsim.scenario.rules.continuous import Continuous
from batchsim.scenario.service import Service
from batchsim.simulate import simulate
from batchsim.study.posterior import DRAWS, SPREAD, Posterior, Prior, posterior

if TYPE_CHECKING:
    import pandas

SOME, AS_LONG = 1000, 16  # requests of a steady state, at least; and times those that an interval needs
MOST, OF_TOKENS = 1_000_000, 20_000  # requests of a simulated stage, at most; of tokens, without a count
ROUNDS, FIRST = 6, 2  # requests of each client of a steady closed loop, and how many of them do not count


@dataclass(frozen=True)
class Predicted:
    """A simulated stage, as its client measures it but for `client_ms`; NaN TTFT and TPOT without tokens."""

    latency_ms: float
    ttft_ms: float
    tpot_ms: float
    served_per_s: float
    hidden_ms: float
    ttft_p99_ms: float
    latency_p99_ms: float


def _due_s(stage: Stage, requests: int, seed: int) -> np.ndarray:
    """Return when requests are due, as tools plan it: gaps that add up to the duration of the stage."""
    gaps = np.ones(requests + 1)
    if stage.gaps_cv:
        gaps = np.random.default_rng(seed).standard_gamma(1 / stage.gaps_cv**2, requests + 1)
    times_s = np.cumsum(gaps)
    return on_grid((times_s[:-1] - times_s[0]) * (requests / stage.asked_per_s / times_s[-1]))


def _server(like: Scenario | None, servers: int, workload: Any, **parts: Any) -> Scenario:
    """Return a scenario of these parts, in all else like another one, if there is one."""
    parts["workload"] = workload
    return Scenario(servers=servers, **parts) if like is None else replace(like, **parts)


def _steady(scenario: Scenario) -> tuple[float, float]:
    """Return how many requests a steady mean of an open loop needs, and how many come before these."""
    length = run_length(scenario)
    if length.relaxation == math.inf:  # there is none
        return math.inf, 0
    return max(AS_LONG * length.needed(metric("mean_latency_ms")), SOME), max(length.warmup, SOME)


def _begun(tokens: Tokens, clients: int, requests: int, seed: int) -> Tokens:
    """Return lengths whose first one of each client is only the rest of an answer."""
    seeds = np.random.SeedSequence(seed).spawn(3)
    prompts, outputs, _ = tokens.draws(*seeds[:2])(requests)
    outputs[:clients] = np.ceil(outputs[:clients] * np.random.default_rng(seeds[2]).random(clients))
    return Tokens(Listed(prompts), Listed(outputs))


def tokens_of(stage: Stage, service: Service, tokens: Tokens | None) -> Tokens | None:
    """Return the lengths of a stage's requests: the given ones, or its means for a service of tokens."""
    if tokens is not None or not isinstance(service, StepTime):
        return tokens
    if not (stage.prompt_tokens > 0 and stage.output_tokens > 0):
        which = "output" if stage.prompt_tokens > 0 else "prompt"
        rule = f"a stage must have the mean length of its {which}s, or tokens=Tokens(prompt, output) be given"
        raise ValueError(f"{rule}, got neither at {stage.name} ({stage.source or 'no file'})")
    return Tokens(max(round(stage.prompt_tokens), 1), max(round(stage.output_tokens), 1))


def predicted(
    stage: Stage, rule: Rule, service: Service, *, tokens: Tokens | None = None, in_flight: float = math.inf,
    servers: int = 1, seed: int = 1, like: Scenario | None = None,
) -> Predicted:  # fmt: skip
    """Simulate a stage of a load test.

    All its requests count, from the first on, as the tools count them. A stage without their number is in its
    steady state; beyond saturation it has none, so a million requests (20,000 of tokens) tell only that
    latencies grow. A client with a limit of requests in flight, `in_flight` or the stage's, sends the next
    that is due once one has returned; latencies begin when a request is sent. All clients of a closed loop
    send at time 0, as those of the tools do; those of a stage that is `mixed` begin in the middle of their
    first answers, which do not count. All else is as in the scenario `like`, with one: its servers, too.
    """
    tokens = tokens_of(stage, service, tokens)
    made: Any = partial(_server, like, servers, rule=rule, service=service, tokens=tokens)
    most = OF_TOKENS if tokens is not None and not stage.requests else MOST
    most = min(most, (tokens and tokens.max_requests) or most)
    limit = min(float(np.fmin(in_flight, stage.concurrency)), stage.requests or most)  # NaN: none
    clients, rate, hidden_ms = max(round(limit), 1), stage.asked_per_s, 0.0
    closed, count, before = math.isnan(rate), float(stage.requests), 0.0
    if closed and not count and limit == most:
        raise ValueError("a stage must have a rate, clients or a number of requests, got none of them")
    if not count and not closed:
        count, before = _steady(made(Gamma(rate, stage.gaps_cv) if stage.gaps_cv else Constant(rate)))
        if count == math.inf and limit < most:  # another request is always due, ever later
            closed, hidden_ms = True, math.inf
    steady = not stage.requests or (closed and stage.mixed)
    if closed and steady:
        count, before = count or ROUNDS * clients + SOME, FIRST * clients
    requests = math.ceil(min(count + before, most))
    before, after = (int(min(each, requests / 3)) for each in (before, clients if closed else 0))
    if closed and stage.mixed and tokens is not None:
        made.keywords["tokens"] = _begun(tokens, clients, requests, seed)
    if closed:
        result = simulate(made(ClosedLoop(clients)), requests, seed=seed, keep="requests")
    else:
        due_s = _due_s(stage, requests, seed)
        workload = Limited(clients, times_s=tuple(due_s)) if clients < requests else Trace(due_s)
        result = simulate(made(workload), requests, seed=seed, keep="requests")
        hidden_ms = 1000 * float(np.mean((result.arrival_s - due_s)[before:]))
    counted, begin_s, end_s = slice(None), 0.0, float(np.nanmax(result.finish_s))  # NaN: lost
    if steady:  # from the warm-up on, and in a closed loop until the first client stops
        counted = slice(before, requests - after)
        begin_s, end_s = result.arrival_s[counted][0], result.arrival_s[-1]
    latencies_ms = result.latency_ms[counted]
    latency_ms, ttft_ms, tpot_ms, ttft_p99_ms = float(np.nanmean(latencies_ms)), math.nan, math.nan, math.nan
    if tokens is not None:
        ttft_ms = float(np.nanmean(result.ttft_ms[counted]))
        ttft_p99_ms = float(np.nanpercentile(result.ttft_ms[counted], 99))
        answers = float(result.output_tokens[counted].mean())
        tpot_ms = (latency_ms - ttft_ms) / max(answers - 1, 1)
    served = np.count_nonzero((result.finish_s > begin_s) & (result.finish_s <= end_s))
    served_per_s, p99_ms = float(served / (end_s - begin_s)), float(np.nanpercentile(latencies_ms, 99))
    return Predicted(latency_ms, ttft_ms, tpot_ms, served_per_s, hidden_ms, ttft_p99_ms, p99_ms)


UNTOLD = "perf_analyzer"  # whose files do not tell the gaps
UNKNOWN = 1.0  # a half-interval of the logarithm, beyond which a parameter is not identified
AT_CLIENT = ("ttft_ms", "latency_ms", "ttft_p99_ms", "latency_p99_ms")
TIMES = {"tpot_ms": "TPOT", "ttft_ms": "TTFT", "latency_ms": "latency"}
SHOWN = TIMES | {"served_per_s": "served"}
COMPARED = {
    "tpot_ms": "TPOT (ms)", "ttft_ms": "TTFT (ms)", "ttft_p99_ms": "TTFT p99 (ms)",
    "latency_ms": "latency (ms)", "latency_p99_ms": "latency p99 (ms)", "served_per_s": "served (per s)",
}  # fmt: skip


@dataclass(frozen=True, repr=False)
class Prediction(Predicted):
    """A stage as a calibration expects it, with 95 % intervals of what its client would measure.

    An interval is the range of 39 simulations, with the parameters, the misfit of the model, the client's
    overhead at this stage, and the run's seed, each drawn from all that agree with the fitted stages and the
    prior. Latency and TTFT contain the client's overhead, as in a measured stage.
    """

    calibration: "Calibration"
    stage: Stage
    rule: Rule

    @kept
    def drawn(self) -> list[tuple[Predicted, float]]:
        """The simulations, each with its server's saturation rate."""
        of, stage, found = self.calibration, self.stage, []
        draws = of.posterior.draws(of.seed, of.doublings(stage))
        for seed, (service, client_ms, misfit) in enumerate(draws, of.seed + 1):
            each = of.simulated(stage, self.rule, service, seed)
            begun_ms = each.latency_ms if math.isnan(each.ttft_ms) else each.ttft_ms
            more_ms = 0.0 if begun_ms == math.inf else (misfit - 1) * begun_ms
            each = _at_client(each, more_ms + misfit * client_ms)
            found.append((each, of.saturation_per_s(stage, self.rule, service)))
        return found

    @property
    def unstable(self) -> float:
        """The share of the simulations whose server cannot carry the rate: their queues grow."""
        return sum(self.stage.asked_per_s > per_s for _, per_s in self.drawn) / len(self.drawn)

    def interval(self, name: str) -> tuple[float, float]:
        """Return the interval of a number, as "ttft_ms"."""
        values = [getattr(each, name) for each in (self, *(each for each, _ in self.drawn))]
        return max(min(values), 0.0), max(values)

    @property
    def warning(self) -> str:
        """What the interval says about the load, or ""."""
        return f"{percent(self.unstable)} of the draws are unstable at this rate" if self.unstable else ""

    def text(self, name: str) -> str:
        """Return a number with its interval, for people."""
        show = duration if name in TIMES else rate
        low, high = map(show, self.interval(name))
        return f"{show(getattr(self, name))} ({low} to {high})"

    def __repr__(self) -> str:
        shown = {name: label for name, label in SHOWN.items() if getattr(self, name) == getattr(self, name)}
        lines = [f"  {label:<7} {self.text(name)}" for name, label in shown.items()]
        return "\n".join(
            [f"Prediction at {self.stage.name}:", *lines, *[f"  {self.warning}"] * bool(self.warning)]
        )


@dataclass(frozen=True, repr=False)
class Calibration:
    """What `calibrate` found: `service`, the client's `client_ms`, and each stage measured and simulated.

    `parameters` has the value and the 95 % interval of each; those of `unidentified` cannot be told from
    these stages. `fitted` tells which stages were fitted. `in_flight` is the most requests that the client
    had, inf for no limit.
    """

    test: LoadTest
    rule: Rule
    service: Service
    client_ms: float
    fitted: tuple[bool, ...]
    in_flight: float
    tokens: Tokens | None
    servers: int
    seed: int
    posterior: "Posterior | Known"
    like: Scenario | None = None

    @kept
    def parameters(self) -> Mapping[str, tuple[float, float, float]]:
        return self.posterior.parameters

    @property
    def from_prior(self) -> tuple[str, ...]:
        return self.posterior.from_prior

    @property
    def unidentified(self) -> tuple[str, ...]:
        return tuple(
            name for name, (value, low, high) in self.parameters.items()
            if not (low > 0 and math.log(high / low) < 2 * UNKNOWN)
        )  # fmt: skip

    def predict(self, stage: Stage, rule: Rule | None = None) -> Prediction:
        """Return what a stage would measure, under this rule or another.

        The intervals are simulated once they are asked for.
        """
        rule = self.rule if rule is None else rule
        found = _at_client(self.simulated(stage, rule, self.service, self.seed), self.client_ms)
        return Prediction(**vars(found), calibration=self, stage=stage, rule=rule)

    @kept
    def predictions(self) -> tuple[Prediction, ...]:
        return tuple(self.predict(stage) for stage in self.test.stages)

    def simulated(self, stage: Stage, rule: Rule, service: Service, seed: int) -> Predicted:
        """Simulate a stage with another service time; where nothing limits its queue, latencies are inf."""
        client: Any = {"tokens": self.tokens, "in_flight": self.in_flight, "servers": self.servers}
        found = predicted(stage, rule, service, **client, seed=seed, like=self.like)
        limited = stage.requests or self.in_flight < math.inf or stage.concurrency > 0
        if limited or not stage.asked_per_s > self.saturation_per_s(stage, rule, service):
            return found
        return _at_client(found, math.inf)

    def saturation_per_s(self, stage: Stage, rule: Rule, service: Service) -> float:
        """Return the highest rate that a stage's server carries with another service time."""
        tokens = tokens_of(stage, service, self.tokens)
        parts = {"rule": rule, "service": service, "tokens": tokens}
        return _server(self.like, self.servers, Poisson(1), **parts).saturation_per_s

    def doublings(self, stage: Stage) -> float:
        """Return how often the highest fitted load, of the same kind, must double to reach the stage's."""
        kind = "asked_per_s" if stage.asked_per_s == stage.asked_per_s else "concurrency"
        stages = zip(self.test.stages, self.fitted, strict=True)
        loads = [getattr(each, kind) for each, fits in stages if fits and getattr(each, kind) > 0]
        return max(math.log2(getattr(stage, kind) / max(loads)), 0.0) if loads else 0.0

    def to_frame(self) -> "pandas.DataFrame":
        """Return a DataFrame with a row a stage: measured, simulated (_low to _high), and the error."""
        import pandas

        rows = []
        for stage, fitted, found in zip(self.test.stages, self.fitted, self.predictions, strict=True):
            row: dict[str, Any] = {"load": stage.name, "fitted": fitted}
            measured = {
                "tpot_ms": stage.tpot_ms, "ttft_ms": stage.ttft_ms.get("mean", math.nan),
                "latency_ms": stage.latency_ms["mean"], "served_per_s": stage.served_per_s,
                "hidden_ms": stage.hidden_ms, "ttft_p99_ms": stage.ttft_ms.get("p99", math.nan),
                "latency_p99_ms": stage.latency_ms.get("p99", math.nan),
            }  # fmt: skip
            for name, value in measured.items():
                simulated = getattr(found, name)
                low, high = found.interval(name)
                row |= {name: value, f"{name}_simulated": simulated, f"{name}_low": low, f"{name}_high": high}
                row[f"{name}_error"] = simulated / value - 1 if value > 0 else math.nan
            rows.append(row)
        return pandas.DataFrame(rows)

    def compared(self) -> "pandas.DataFrame":
        """Return a DataFrame with a row a load and number: measured, simulated with its interval, error."""
        import pandas

        ends = {"measured": "", "simulated": "_simulated", "95%_low": "_low", "95%_high": "_high"}
        rows = [
            {"load": row["load"], "number": label}
            | {name: row[f"{key}{end}"] for name, end in ends.items()}
            | {"error": f"{row[f'{key}_error']:+.1%}", "": _role(row["fitted"]) * any(self.fitted)}
            for row in self.to_frame().to_dict("records") for key, label in COMPARED.items() if row[key] > 0
        ]  # fmt: skip
        return pandas.DataFrame(rows)

    def scenario(self, base: Scenario) -> Scenario:
        """Return a scenario with this service time and the traffic of the highest load."""
        last = self.test.stages[-1]
        rate, cv = last.asked_per_s, last.gaps_cv
        workload: Any
        if math.isnan(rate):
            workload = ClosedLoop(max(round(last.concurrency), 1))
        else:
            workload = Gamma(rate, cv) if cv not in (0, 1) else (Constant, Poisson)[int(cv)](rate)
        lengths = tokens_of(last, self.service, self.tokens)
        return replace(base, workload=workload, service=self.service, tokens=lengths)

    def __repr__(self) -> str:
        title = "Calibration" if any(self.fitted) else "Prediction"
        lines = [f"{title}: {self.service!r}, client {fixed(self.client_ms)} ms"]
        if self.unidentified:
            lines.append(f"  these stages do not identify {listed(list(self.unidentified))}")
        if self.from_prior:
            lines.append(f"  mostly from the prior: {listed(list(self.from_prior))}")
        frame = self.to_frame()
        shown = {name: label for name, label in TIMES.items() if frame[name].notna().any()}
        table = [["", "", *(f"{label}, 95 % interval, error" for label in shown.values()), ""]]
        for row, found in zip(frame.to_dict("records"), self.predictions, strict=True):
            cells = [f"{found.text(name)}, {row[f'{name}_error']:+.1%}" for name in shown]
            which = _role(row["fitted"]) * any(self.fitted)
            table.append([row["load"], which, *cells, found.warning])
        lines += [f"  {line}" for line in aligned(table, ">>" + "<" * (len(shown) + 1))]
        return "\n".join([*lines, *(f"  {warning}" for warning in self.test.warnings)])


def _role(fitted: bool) -> str:
    return "fitted" if fitted else "held out"


def _at_client(found: Predicted, client_ms: float) -> Predicted:
    """Return what a client measures that adds so much to each latency."""
    return replace(found, **{name: getattr(found, name) + client_ms for name in AT_CLIENT})


@dataclass(frozen=True)
class Known:
    """A service time and a client's overhead that are given, in place of a `Posterior`: only seeds differ."""

    service: Service
    client_ms: float
    parameters: Mapping[str, tuple[float, float, float]] = field(default_factory=dict)
    from_prior: tuple[str, ...] = ()

    def draws(self, seed: int, doublings: float) -> Iterator[tuple[Service, float, float]]:
        """Yield the same again and again: see `Posterior.draws`."""
        return repeat((self.service, self.client_ms, 1.0), DRAWS)


def predict(
    files: Any, scenario: Scenario, client_ms: float = 0.0, *, tokens: Tokens | None = None, seed: int = 1
) -> Calibration:
    """Return what load tests should measure of a server, beside what they did; nothing is fitted.

    `files` are as in `calibrate`. Each stage is simulated on the scenario's server, and with `tokens`, by
    default the lengths that the files report. The intervals are those of chance alone. The gaps of a rate are
    the scenario's where the tool does not report them. Raises ValueError for files of no load test.

    >>> from batchsim import Affine, SizeOrWait
    >>> stage = Stage(2000, {"mean": 5.0}, asked_per_s=100, served_per_s=100)
    >>> scenario = Scenario(Poisson(1), SizeOrWait(16, 0), Affine(4, 0.5))
    >>> predict(LoadTest("mine", "1", (stage,)), scenario).to_frame().latency_ms_simulated.round(1).tolist()
    [5.5]
    """
    _check.instance("scenario", scenario, Scenario, "a Scenario")
    test = files if isinstance(files, LoadTest) else load_test(*(files if _check.listed(files) else [files]))
    test = _told(test, scenario)
    client_ms = _check.real("client_ms", client_ms, at_least=0)
    return Calibration(
        test, scenario.rule, scenario.service, client_ms, (False,) * len(test.stages), _in_flight(test),
        tokens, scenario.servers, seed, Known(scenario.service, client_ms), scenario,
    )  # fmt: skip


def _told(test: LoadTest, like: Scenario) -> LoadTest:
    """Return a test with the gaps of a scenario's traffic, if its tool does not tell them."""
    cv = None if isinstance(like.workload, ClosedLoop) else like.workload.gamma_cv
    if test.tool != UNTOLD or cv is None:
        return test
    return replace(test, stages=tuple(replace(stage, gaps_cv=cv) for stage in test.stages))


def _in_flight(test: LoadTest) -> float:
    """Return the most requests that a late client has in flight, by Little's law."""
    return max((stage.in_flight for stage in test.stages if stage.is_late), default=math.inf)


def calibrate(
    files: Any, rule: Rule, *, hold_out: Iterable[Any] = (), tokens: Tokens | None = None,
    in_flight: float | None = None, servers: int = 1, seed: int = 1, prior: Service | None = None,
    prior_spread: float | Mapping[str, float] = SPREAD, like: Scenario | None = None,
) -> Calibration:  # fmt: skip
    """Return the service time and the client's overhead that agree best with load tests of a server.

    `files` are result files of one tool (`load_test` names them), or a `LoadTest`. The stages in `hold_out`
    are not fitted, so their errors are those of a prediction: it has loads (rates, or clients), names as
    "10/s", or files; or a boolean for each file in the given order, or for each stage of a `LoadTest`.
    It fits a `StepTime` to TTFT and TPOT, or without these an `Affine` to the latencies. Each step of the fit
    simulates all stages under `rule`, with `tokens`, by default the lengths that the files report. The client
    has at most `in_flight` requests; by default the files' limit, or that of Little's law where requests were
    sent late. A stage far outside the others' spread counts next to nothing.

    `prior` is what is known of the service time without these stages, as `StepTime.roofline(...)` or
    `published(...)`: it tells what they cannot. `prior_spread` is the relative standard deviation of its
    parameters, or {name: spread} for some; the others, and those that are 0, stay as unknown as without a
    prior. The stages correct it where they know better. All else of the server, as how many there are and
    which devices they share, is that of the scenario `like`, if it is given, and so are the gaps between
    requests where the tool does not report them.

    Raises ValueError where there are too few stages to fit.

    >>> from batchsim import Affine, SizeOrWait
    >>> means_ms = {600: 3.1, 1500: 4.2, 2400: 5.7}
    >>> stages = [Stage(2000, {"mean": ms}, asked_per_s=rate) for rate, ms in means_ms.items()]
    >>> found = calibrate(LoadTest("mine", "1", tuple(stages)), SizeOrWait(16, 0), prior=Affine(2, 0.3))
    >>> near_saturation = found.predict(replace(stages[-1], asked_per_s=2900))
    >>> low, high = near_saturation.interval("latency_ms")
    >>> 0 < low < near_saturation.latency_ms < high / 2, near_saturation.unstable > 0, found.from_prior
    (True, True, ())
    """
    paths = None if isinstance(files, LoadTest) else list(files) if _check.listed(files) else [files]
    test = files if paths is None else load_test(*paths)
    test = test if like is None else _told(test, like)
    _check.instance("rule", rule, Rule, "a rule, as Continuous(128)")
    fitted = _fitted(test, list(hold_out), None if paths is None else [os.fspath(each) for each in paths])
    stages = [stage for stage, fits in zip(test.stages, fitted, strict=True) if fits]
    for stage in stages if isinstance(rule, Continuous) else ():
        if not stage.tpot_ms > 0:
            needs = "stages under Continuous must have a time per output token, measured with streaming"
            raise ValueError(f"{needs}, got none at {stage.name} ({stage.source or 'no file'})")
    in_flight = _in_flight(test) if in_flight is None else in_flight
    client: Any = {"tokens": tokens, "in_flight": in_flight, "servers": servers, "like": like}
    known = Prior.of(stages, prior, prior_spread)
    first, _ = known.made(known.begins[0])
    server: Any = partial(_server, like, servers, Poisson(1), rule=rule, service=first)
    made = [server(tokens=tokens_of(stage, first, tokens)) for stage in stages]
    counts = [min(stage.requests, MOST) or SOME for stage in stages]
    known.warn_if_long(stages, sum(map(run_s, made, counts)))
    found = posterior(
        stages, known,
        lambda stage, service, seed: predicted(stage, rule, service, **client, seed=seed), seed,
    )  # fmt: skip
    service, client_ms = found.prior.made(found.logs)
    return Calibration(test, rule, service, client_ms, fitted, **client, seed=seed, posterior=found)


def _fitted(test: LoadTest, hold_out: Sequence[Any], files: Sequence[str] | None) -> tuple[bool, ...]:
    """Return which stages are fitted; booleans in `hold_out` are for the files as given, or the stages."""
    loads = [
        stage.asked_per_s if stage.asked_per_s == stage.asked_per_s else stage.concurrency
        for stage in test.stages
    ]
    if hold_out and all(isinstance(each, (bool, np.bool_)) for each in hold_out):
        given = range(len(loads)) if files is None else files
        if len(hold_out) != len(given):
            what = f"{len(given)} {'stages' if files is None else 'files'}, or loads or names of stages"
            raise ValueError(f"hold_out must have a boolean for each of {what}, got {len(hold_out)}")
        meant = {each for each, is_held in zip(given, hold_out, strict=True) if is_held}
        held = [at in meant or stage.source in meant for at, stage in enumerate(test.stages)]
    else:
        held = [False] * len(loads)
        for each in hold_out:
            if isinstance(each, (str, os.PathLike)):
                found = [os.fspath(each) in (stage.name, stage.source) for stage in test.stages]
            else:
                each = _check.real("hold_out", each, at_least=None)
                found = [math.isclose(load, each, rel_tol=1e-3) for load in loads]
            if not any(found):
                known = listed([f"{load:.6g}" for load in loads])
                raise ValueError(f"hold_out must have loads of the test, {known}, got {each!r}")
            held = [one or other for one, other in zip(held, found, strict=True)]
    fitted = tuple(not each for each in held)
    if sum(fitted) < 2:
        rule = f"at least 2 stages with different loads must be fitted ({TOOLS} are supported)"
        raise ValueError(f"{rule}, got {sum(fitted)} of {len(fitted)}")
    return fitted
