"""The front desk: draws the randomness, picks the engine, wraps the result."""

from collections.abc import Callable, Sequence
from typing import Any

from batchsim import _check
from batchsim.engines.plan import Plan, draw
from batchsim.result import Result
from batchsim.scenario import OpenLoop, Scenario

DEFAULT_REQUESTS = 100_000
ENGINES = ("auto", "simpy")


def simulate(
    scenario: Scenario,
    requests: int | None = None,
    seed: int = 0,
    engine: str = "auto",
    warmup: float = 0.0,
    *,
    model_fn: Callable[[Any], Any] | None = None,
    inputs: Sequence[Any] | None = None,
) -> Result:
    """Run a scenario once and return what happened to every request.

    `requests`: how many arrive; None for a whole trace, one for each of `inputs`, else 100,000.
    `seed` fixes all randomness. `warmup` is the fraction of the requests, in arrival order,
    that the summary numbers leave out. With `model_fn` and `inputs` (one item a request) the
    model computes every batch, and `result.outputs[i]` is request i's (None if unserved).

    >>> from batchsim import Affine, Poisson, Scenario, SizeOrWait
    >>> scenario = Scenario(Poisson(rate_per_s=800), SizeOrWait(32, 10), Affine(5, 0.25))
    >>> result = simulate(scenario, requests=2000)
    >>> round(result.mean_batch_size, 1), round(result.percentile(99), 1)
    (9.0, 18.5)
    """
    if not isinstance(scenario, Scenario):
        raise TypeError(f"scenario must be a Scenario, got {scenario!r}")
    if engine not in ENGINES:
        raise ValueError(f"engine must be one of {', '.join(ENGINES)}, got {engine!r}")
    _check.whole("seed", seed, at_least=0)
    if _check.real("warmup", warmup, at_least=0) >= 1:
        raise ValueError(f"warmup must be less than 1, got {warmup!r}")
    if (model_fn is None) != (inputs is None):
        missing = "inputs" if inputs is None else "model_fn"
        raise ValueError(f"model_fn and inputs must be given together, got no {missing}")
    if model_fn is not None and not callable(model_fn):
        raise TypeError(f"model_fn must be callable, got {model_fn!r}")
    count = _how_many(scenario, requests, inputs)
    plan: Plan = draw(scenario, count, seed)

    from batchsim.engines import reference  # SimPy loads on first use

    log = reference.run(plan, model_fn, inputs)
    return Result(scenario=scenario, seed=seed, engine="simpy", warmup=warmup, log=log)


def _how_many(scenario: Scenario, requests: int | None, inputs: Sequence[Any] | None) -> int:
    most = scenario.workload.max_requests if isinstance(scenario.workload, OpenLoop) else None
    if requests is None:
        requests = len(inputs) if inputs is not None else DEFAULT_REQUESTS if most is None else most
    count = _check.whole("requests", requests)
    if most is not None and count > most:
        raise ValueError(f"requests must be at most the trace's {most:,}, got {count:,}")
    if inputs is not None and len(inputs) != count:
        raise ValueError(f"inputs must be one item a request, {count:,}, got {len(inputs):,}")
    return count
