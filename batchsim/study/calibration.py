"""Calibration: a service time and a client's overhead from load tests, and what they predict."""

import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from batchsim import _check
from batchsim._format import fixed, listed
from batchsim.measured.load_tests import TOOLS, LoadTest, Stage, load_test
from batchsim.result.shares import students_t
from batchsim.scenario import StepTime, Tokens
from batchsim.scenario.rules import Rule
from batchsim.scenario.service import Affine, Service
from batchsim.study.stages import Predicted, predicted

if TYPE_CHECKING:
    import pandas

LEVEL = 0.95
KINKS = (60, 120, 240)  # tokens from which on arithmetic takes longer: where the fits begin
CLOSE = 0.02  # relative: the step of a derivative, and a residual beyond which its square counts less
LEAST_ERROR = 0.01  # of a measured mean
PRIOR = 1.0  # standard deviation of a parameter's logarithm around the first guess, before any data
UNKNOWN = 1.0  # a half-interval of the logarithm, beyond which a parameter is not identified
WIDE = 4.0  # the logarithms of parameters stay within this of where the fit begins


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
    parameters: Mapping[str, tuple[float, float, float]]
    fitted: tuple[bool, ...]
    in_flight: float
    tokens: Tokens | None
    servers: int
    seed: int

    @property
    def unidentified(self) -> tuple[str, ...]:
        return tuple(
            name for name, (value, low, high) in self.parameters.items()
            if not (low > 0 and math.log(high / low) < 2 * UNKNOWN)
        )  # fmt: skip

    def predict(self, stage: Stage, rule: Rule | None = None) -> Predicted:
        """Return what a stage would measure, under this rule or another, without the client's overhead."""
        return predicted(
            stage, self.rule if rule is None else rule, self.service, tokens=self.tokens,
            in_flight=self.in_flight, servers=self.servers, seed=self.seed,
        )  # fmt: skip

    @cached_property
    def predictions(self) -> tuple[Predicted, ...]:
        return tuple(self.predict(stage) for stage in self.test.stages)

    def to_frame(self) -> "pandas.DataFrame":
        """Return a DataFrame with a row a stage: measured, simulated, and the relative error of each."""
        import pandas

        rows = []
        for stage, fitted, found in zip(self.test.stages, self.fitted, self.predictions, strict=True):
            row: dict[str, Any] = {"load": stage.name, "fitted": fitted}
            measured = {"tpot_ms": stage.tpot_ms, "ttft_ms": math.nan, "latency_ms": stage.latency_ms["mean"]}
            if stage.ttft_ms:
                measured["ttft_ms"] = stage.ttft_ms["mean"] - self.client_ms
            measured["latency_ms"] -= self.client_ms
            measured |= {"served_per_s": stage.served_per_s, "hidden_ms": stage.hidden_ms}
            for name, value in measured.items():
                simulated = getattr(found, name)
                row |= {name: value, f"{name}_simulated": simulated}
                row[f"{name}_error"] = simulated / value - 1 if value > 0 else math.nan
            rows.append(row)
        return pandas.DataFrame(rows)

    def __repr__(self) -> str:
        lines = [f"Calibration: {self.service!r}, client {fixed(self.client_ms)} ms"]
        if self.unidentified:
            lines.append(f"  these stages do not identify {listed(list(self.unidentified))}")
        for row in self.to_frame().to_dict("records"):
            errors = (
                f"{label} {row[f'{name}_error']:+.1%}"
                for name, label in (("tpot_ms", "TPOT"), ("ttft_ms", "TTFT"), ("latency_ms", "latency"))
                if row[f"{name}_error"] == row[f"{name}_error"]
            )
            lines.append(
                f"  {row['load']:>12} {'fitted' if row['fitted'] else 'held out':>8}: {', '.join(errors)}"
            )
        return "\n".join([*lines, *(f"  {warning}" for warning in self.test.warnings)])


def calibrate(
    files: Any, rule: Rule, *, hold_out: Iterable[Any] = (), tokens: Tokens | None = None,
    in_flight: float | None = None, servers: int = 1, seed: int = 1,
) -> Calibration:  # fmt: skip
    """Return the service time and the client's overhead that agree best with load tests of a server.

    `files` are result files of one tool (`load_test` names them), or a `LoadTest`. The stages in `hold_out`
    are not fitted, so their errors are those of a prediction: it has loads (rates, or clients), names as
    "10/s", or files; or a boolean for each file in the given order, or for each stage of a `LoadTest`.
    It fits a `StepTime` to TTFT and TPOT, or without these an `Affine` to the latencies. Each step of the fit
    simulates all stages under `rule`, with `tokens`, by default the lengths that the files report. The client
    has at most `in_flight` requests; by default the files' limit, or that of Little's law where requests were
    sent late. A stage far outside the others' spread counts next to nothing.

    Raises ValueError where there are too few stages to fit.
    """
    from scipy.optimize import least_squares

    paths = None if isinstance(files, LoadTest) else list(files) if _check.listed(files) else [files]
    test = files if paths is None else load_test(*paths)
    _check.instance("rule", rule, Rule, "a rule, as Continuous(128)")
    fitted = _fitted(test, list(hold_out), None if paths is None else [os.fspath(each) for each in paths])
    stages = [stage for stage, fits in zip(test.stages, fitted, strict=True) if fits]
    if in_flight is None:
        late = [stage.in_flight for stage in test.stages if stage.is_late]
        in_flight = max(late, default=math.inf)
    of_tokens = all(stage.tpot_ms > 0 for stage in stages)
    model: Any = _StepModel(stages) if of_tokens else _BatchModel(stages)

    def residuals(logs: np.ndarray, begin: np.ndarray) -> np.ndarray:
        service, client_ms = model.made(np.exp(logs))
        errors = []
        for stage in stages:
            found = predicted(
                stage, rule, service, tokens=tokens, in_flight=in_flight, servers=servers, seed=seed
            )
            errors += model.errors(stage, found, client_ms)
        return np.array([*errors, *((logs - begin) * LEAST_ERROR / PRIOR)])

    def fit(logs: np.ndarray, begin: np.ndarray, loss: str, scale: float) -> Any:
        return least_squares(
            residuals, logs, args=(begin,), diff_step=CLOSE, max_nfev=15, loss=loss, f_scale=scale,
            bounds=(begin - WIDE, begin + WIDE),
        )  # fmt: skip

    begins = [np.log(begin) for begin in model.begins()]
    fits = [(fit(begin, begin, "soft_l1", CLOSE), begin) for begin in begins]
    best, begin = min(fits, key=lambda found: found[0].cost)
    # From there, a stage far outside the others' spread counts next to nothing: its client is another.
    spread = 1.4826 * float(np.median(np.abs(best.fun[: -begin.size])))
    best = fit(best.x, begin, "cauchy", max(spread, CLOSE))
    service, client_ms = model.made(np.exp(best.x))
    parameters = _parameters(model, best)
    return Calibration(test, rule, service, client_ms, parameters, fitted, in_flight, tokens, servers, seed)


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


class _StepModel:
    """Six parameters of token generation; instead of `weights_ms` the tokens that take as long, the kink."""

    names = ("fixed_ms", "weights_ms", "per_token_ms", "per_read_ms", "per_pair_ms", "client_ms")
    # The logarithm of each name is this combination of the parameters'.
    combined = np.eye(6) + np.outer(np.eye(6)[1], np.eye(6)[2])

    def __init__(self, stages: Sequence[Stage]) -> None:
        self.least_ms = min(stage.tpot_ms for stage in stages)
        self.client_ms = min((stage.ttft_ms["mean"] for stage in stages if stage.ttft_ms), default=2) / 2

    def begins(self) -> Iterable[np.ndarray]:
        unit = self.least_ms
        for kink in KINKS:
            yield np.array([0.7 * unit, kink, unit / 350, unit / 1.4e5, unit / 7e5, self.client_ms])

    def made(self, values: np.ndarray) -> tuple[StepTime, float]:
        fixed_ms, kink, per_token, per_read, per_pair, client_ms = values.tolist()
        return StepTime(fixed_ms, kink * per_token, per_token, per_read, per_pair), client_ms

    def errors(self, stage: Stage, found: Predicted, client_ms: float) -> list[float]:
        errors = [math.log(found.tpot_ms / stage.tpot_ms)]
        if stage.ttft_ms:
            errors.append(math.log((found.ttft_ms + client_ms) / stage.ttft_ms["mean"]))
        return errors


class _BatchModel:
    """Three parameters of whole batches."""

    names = ("fixed_ms", "per_item_ms", "client_ms")
    combined = np.eye(3)

    def __init__(self, stages: Sequence[Stage]) -> None:
        self.least_ms = min(stage.latency_ms["mean"] for stage in stages)

    def begins(self) -> Iterable[np.ndarray]:
        yield self.least_ms * np.array([0.6, 0.1, 0.2])

    def made(self, values: np.ndarray) -> tuple[Affine, float]:
        fixed_ms, per_item_ms, client_ms = values.tolist()
        return Affine(fixed_ms, per_item_ms), client_ms

    def errors(self, stage: Stage, found: Predicted, client_ms: float) -> list[float]:
        return [math.log((found.latency_ms + client_ms) / stage.latency_ms["mean"])]


def _parameters(model: Any, found: Any) -> dict[str, tuple[float, float, float]]:
    """Return each parameter with its interval, its logarithm taken as normal (Gauss and Newton).

    The spread of the errors is robust: a stage that no parameters explain must not hide what others tell.
    """
    count = found.x.size
    errors, slopes = found.fun[:-count], found.jac[:-count]
    free = max(errors.size - count, 1)
    spread = max(1.4826 * float(np.median(np.abs(errors))) * math.sqrt(errors.size / free), LEAST_ERROR)
    covariance = np.linalg.inv(slopes.T @ slopes / spread**2 + np.eye(count) / PRIOR**2)
    values = np.exp(model.combined @ found.x)
    rows = dict(zip(model.names, zip(values, model.combined, strict=True), strict=True))
    if "weights_ms" in rows:  # their sum is often known better than either
        (one, by_one), (other, by_other) = rows["fixed_ms"], rows["weights_ms"]
        both = one + other
        rows["fixed_ms + weights_ms"] = both, (one * by_one + other * by_other) / both
    intervals = {}
    for name, (value, row) in rows.items():
        half = students_t(LEVEL, free + 1) * math.sqrt(row @ covariance @ row)
        intervals[name] = float(value), float(value * math.exp(-half)), float(value * math.exp(half))
    return intervals
