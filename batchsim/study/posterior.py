"""The parameters of a service time that agree best with load tests and a prior, and all that agree as well.

Each fitted mean of a stage has a relative error, of Student's t distribution, so that a stage far outside the
others' spread counts next to nothing: its client is another. How large these errors are is drawn with the
parameters, whose logarithms have normal priors.
"""

import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from batchsim import _check
from batchsim.engines.estimates import LONG_S
from batchsim.measured.fits import fit
from batchsim.measured.load_stages import Stage
from batchsim.scenario import StepTime
from batchsim.scenario.service import Affine, Service, Table
from batchsim.scenario.step_time import StepCost

DRAWS = 39  # one more lies in the range of 39 with 95 %
LEVEL = 0.95
KINKS = (120, 60, 240)  # tokens from which on arithmetic takes longer: where the fits begin
CLOSE = 0.02  # relative: the step of a derivative, and the error that is expected before any stage is fitted
SURE = 3.0  # errors that would count as much as that expectation
FAT, TAILS = 1.0, 3.0  # degrees of freedom of the errors' distribution, and of a client's own
BEYOND = 0.1  # relative: how much longer or shorter steps become for each doubling of the highest fitted load
ITERATIONS = 6  # of a fit, mostly
REPEATS = 8  # runs of each stage that tell how much chance there is in one
SPREAD = 0.5  # of a given parameter's logarithm: its standard deviation
PRIOR = 1.0  # standard deviation of a parameter's logarithm around the first guess, before any data
LEAST_ERROR = 0.01  # of a measured mean
NEAR = np.linspace(-1, 1, 101)  # logarithms of a client's overhead that are tried around the fitted one
WIDE = 4.0  # the logarithms of parameters stay within this of the prior's means
CHAINS, STEPS, APART = 2 * DRAWS, 1500, 25  # of Metropolis' rule; samples are so many steps apart


@dataclass(frozen=True)
class Prior:
    """What is known before any stage: each parameter's name, and the mean and spread of its logarithm.

    `given` marks those that a service time gave. The fits begin at `begins`; `base` is the service time whose
    parameters they change.
    """

    base: StepTime | Affine
    names: tuple[str, ...]
    means: np.ndarray
    spreads: np.ndarray
    given: tuple[bool, ...]
    begins: Sequence[np.ndarray]

    @classmethod
    def of(
        cls, stages: Sequence[Stage], service: Service | None, spread: float | Mapping[str, float]
    ) -> "Prior":
        """Return a service time's numbers, or where it has none or a 0, a guess from the fastest stage."""
        base: Any
        names: tuple[str, ...] = StepCost._fields
        kinks: tuple[int, ...] = KINKS
        if all(stage.tpot_ms > 0 for stage in stages):
            unit = min(stage.tpot_ms for stage in stages)
            ttft_ms = [stage.ttft_ms["mean"] for stage in stages if stage.ttft_ms]
            client_ms = min([*ttft_ms, 4 * unit]) / 2  # where all stages queue, TTFT is mostly a wait
            base = StepTime(0.7 * unit, KINKS[0] * unit / 350, unit / 350, unit / 1.4e5, unit / 1e7)
        else:
            unit = min(stage.latency_ms["mean"] for stage in stages)
            base, client_ms = Affine(0.6 * unit, 0.1 * unit), 0.2 * unit
            names, kinks = ("fixed_ms", "per_item_ms"), KINKS[:1]
        values = {name: getattr(base, name) for name in names} | {"client_ms": client_ms}
        known: dict[str, float] = {}
        if service is not None:
            if isinstance(service, Table) and isinstance(base, Affine):
                service = fit(dict(service.points_ms)).service
            kind = "an Affine or a Table" if isinstance(base, Affine) else "a StepTime"
            _check.instance("prior", service, type(base), f"{kind} for these stages")
            base, kinks = service, KINKS[:1]
            known = {name: getattr(base, name) for name in names if getattr(base, name) > 0}
        elif spread != SPREAD:
            raise ValueError(f"prior_spread must come with a prior, got {spread!r} without one")
        spreads = spread if isinstance(spread, Mapping) else dict.fromkeys(names, spread)
        for name, each in spreads.items():
            _check.one_of("a name in prior_spread", name, names)
            _check.real("prior_spread", each, above=0)
        means = np.log([*(values | known).values()])
        widths = np.array([spreads.get(name, PRIOR) if name in known else PRIOR for name in values])
        begins = [means + np.eye(means.size)[1] * math.log(kink / kinks[0]) for kink in kinks]
        return cls(base, tuple(values), means, widths, tuple(name in known for name in values), begins)

    def made(self, logs: np.ndarray) -> tuple[Service, float]:
        """Return the service time and the client's overhead in ms of these logarithms."""
        *values, client_ms = np.exp(logs).tolist()
        return dataclasses.replace(self.base, **dict(zip(self.names, values, strict=False))), client_ms

    def warn_if_long(self, stages: Sequence[Stage], run_s: float) -> None:
        """Warn before fits that take long, where a run of all stages takes so many seconds."""
        seconds = run_s * (REPEATS + ITERATIONS * len(self.begins) * (1 + len(self.names)))
        if seconds > LONG_S:
            most = f"{len(stages)} stages of up to {max(stage.requests for stage in stages):,} requests"
            _check.warn(f"{most} take some {seconds:,.0f} s to fit: hold_out= leaves stages out")


@dataclass(frozen=True)
class Posterior:
    """The parameters' most probable logarithms, and samples of them and of the logarithm of the spread."""

    prior: Prior
    logs: np.ndarray
    samples: np.ndarray

    @property
    def parameters(self) -> dict[str, tuple[float, float, float]]:
        """Each parameter with its 95 % interval."""
        values = np.exp(np.vstack([self.logs, self.samples[:, :-1]]))
        columns = dict(zip(self.prior.names, values.T, strict=True))
        if "weights_ms" in columns:  # their sum is often known better than either
            columns["fixed_ms + weights_ms"] = columns["fixed_ms"] + columns["weights_ms"]
        low, high = (1 - LEVEL) / 2, (1 + LEVEL) / 2
        return {
            name: (float(each[0]), float(np.quantile(each[1:], low)), float(np.quantile(each[1:], high)))
            for name, each in columns.items()
        }

    @property
    def from_prior(self) -> tuple[str, ...]:
        """The given parameters of whose variance the stages leave more than half."""
        left = self.samples[:, :-1].var(axis=0) > self.prior.spreads**2 / 2
        rows = zip(self.prior.names, self.prior.given, left, strict=True)
        return tuple(name for name, given, most in rows if given and most)

    def draws(self, seed: int, doublings: float) -> Iterator[tuple[Service, float, float]]:
        """Yield service times and client's overheads as a stage may have them whose load is `doublings` more.

        The third number is the factor by which its client measures something else. All are equally probable.
        """
        generator = np.random.default_rng([seed, DRAWS])
        for *logs, spread in self.samples[-DRAWS:].tolist():
            of_load, beyond, misfit = *generator.standard_normal(2), generator.standard_t(TAILS)
            slower = math.exp(spread) * of_load + BEYOND * doublings * beyond
            service, client_ms = self.prior.made(np.array(logs) + [*[slower] * (len(logs) - 1), 0])  # noqa: RUF005
            yield service, client_ms, math.exp(math.exp(spread) * misfit)


def posterior(
    stages: Sequence[Stage], prior: Prior, simulate: Callable[[Stage, Service, int], Any], seed: int
) -> Posterior:
    """Fit the parameters to stages; `simulate` runs one with a service time and a seed."""
    from scipy.optimize import least_squares

    def runs(logs: np.ndarray, seed: int = seed) -> list[Any]:
        return [simulate(stage, prior.made(logs)[0], seed) for stage in stages]

    def errors(logs: np.ndarray, found: list[Any] | None = None) -> np.ndarray:
        each = zip(stages, runs(logs) if found is None else found, strict=True)
        return np.concatenate([_errors(stage, run, math.exp(logs[-1])) for stage, run in each])

    turn = np.eye(prior.means.size)
    if isinstance(prior.base, StepTime):
        turn[1, 2] = 1  # the fit moves the kink instead of the weights

    def residuals(turned: np.ndarray, begin: np.ndarray, chance: Any) -> np.ndarray:
        logs = turn @ turned
        relative = errors(logs) / np.hypot(1, chance / CLOSE)
        return np.concatenate([relative, (logs - begin) * LEAST_ERROR / prior.spreads])

    def fitted(logs: np.ndarray, begin: np.ndarray, chance: Any, loss: str, scale: float) -> Any:
        at, middle = np.linalg.solve(turn, np.column_stack([logs, begin])).T
        return least_squares(
            residuals, at, args=(begin, chance), diff_step=CLOSE, max_nfev=15, loss=loss, f_scale=scale,
            bounds=(middle - WIDE, middle + WIDE),
        )  # fmt: skip

    fits = [(fitted(begin, begin, 0.0, "soft_l1", CLOSE), begin) for begin in prior.begins]
    best, begin = min(fits, key=lambda found: found[0].cost)
    logs = turn @ best.x
    repeats = [errors(logs, runs(logs, seed + 1 + n)) for n in range(REPEATS)]
    chance = math.sqrt(2) * np.std(repeats, axis=0, ddof=1)  # in the stage, and in the run
    # From there, a stage far outside the others' spread counts next to nothing: its client is another.
    spread = max(1.4826 * float(np.median(np.abs(best.fun[: -begin.size]))), CLOSE)
    found = runs(logs)  # another overhead needs no other run
    near = [np.append(logs[:-1], client) for client in logs[-1] + NEAR]
    z = np.array([errors(each, found) for each in near]) / np.hypot(spread, chance)
    logs = near[np.argmin(np.log1p(z**2).sum(axis=1))]
    logs = turn @ fitted(logs, begin, chance, "cauchy", spread).x
    steps = CLOSE * np.eye(logs.size)
    slopes = np.column_stack([(errors(logs + step) - errors(logs - step)) / (2 * CLOSE) for step in steps])
    return Posterior(prior, logs, _sampled(prior, logs, errors(logs), slopes, chance, seed))


def _errors(stage: Stage, found: Any, client_ms: float) -> list[float]:
    if not stage.tpot_ms > 0:
        return [math.log((found.latency_ms + client_ms) / stage.latency_ms["mean"])]
    errors = [math.log(found.tpot_ms / stage.tpot_ms)]
    if stage.ttft_ms:
        errors.append(math.log((found.ttft_ms + client_ms) / stage.ttft_ms["mean"]))
    return errors


def _sampled(
    prior: Prior, best: np.ndarray, errors: np.ndarray, slopes: np.ndarray, chance: np.ndarray, seed: int
) -> np.ndarray:
    """Return samples of the parameters' logarithms and of that of the errors' spread, by Metropolis' rule.

    A stage's means are nearly linear in the times of a step, so the errors of other parameters follow from
    those and the slopes at the best ones, without a simulation. Each chain moves by differences of two others
    (ter Braak 2006).
    """
    generator, size = np.random.default_rng([seed, STEPS]), best.size + 1
    of_speed = np.maximum(np.abs(slopes[:, :-1].sum(axis=1)), 1.0)

    def density(x: np.ndarray) -> np.ndarray:
        logs, spread = x[:, :-1], x[:, -1]
        change = 1 + np.expm1(logs - best) @ slopes.T
        scale = np.hypot(np.exp(spread)[:, None] * of_speed, chance)
        z = (errors + np.log(np.maximum(change, 1e-9))) / scale
        found = -np.sum(np.log(scale) + (FAT + 1) / 2 * np.log1p(z**2 / FAT), axis=1)
        found -= np.sum(((logs - prior.means) / prior.spreads) ** 2, axis=1) / 2
        return found - SURE * (spread + (CLOSE / np.exp(spread)) ** 2 / 2)

    x = np.append(best, math.log(CLOSE)) + CLOSE * generator.standard_normal((CHAINS, size))
    of, kept = density(x), []
    for step in range(STEPS):
        others = np.arange(CHAINS)[:, None] + generator.permutation(np.arange(1, CHAINS))[:2]
        one, other = x[others.T % CHAINS]
        jump = 1.0 if step % 10 == 0 else 2.38 / math.sqrt(2 * size)  # 1 reaches another mode
        tried = x + jump * (one - other) + 1e-4 * generator.standard_normal(x.shape)
        ratio = density(tried) - of
        moves = np.log(generator.random(CHAINS)) < ratio
        x, of = np.where(moves[:, None], tried, x), np.where(moves, of + ratio, of)
        if step >= STEPS // 3 and step % APART == APART - 1:
            kept.append(x)
    return np.concatenate(kept)
