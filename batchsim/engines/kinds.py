"""The kinds of run: what each draws, which loops run it, its memory, and how its saturation rate is measured.

A scenario's `kind` is a key of `KINDS`. The modules of the loops load SimPy or Numba, so they are imported on
first use.
"""

from collections.abc import Callable
from importlib import import_module
from typing import Any, NamedTuple

from batchsim.engines.draws import draw
from batchsim.engines.log import Log
from batchsim.engines.saturation import measured_batches, saturated
from batchsim.engines.token_log import draw_tokens
from batchsim.scenario.saturation import MEASURES


class Kind(NamedTuple):
    """What differs between kinds of run."""

    draw: Callable[..., Any]  # takes a scenario, requests, seed, replication, `cancelled`, and `shared`
    loops: dict[str, tuple[str, str]]  # by engine: the module, and its function from a plan to a log
    sums: str  # the module whose `summarise` runs in little memory
    # Peak memory by engine, measured with the summary taken; "routed": of the compiled one, with replicas.
    bytes_a_request: dict[str, int]
    takes_model: bool  # whether a `model_fn` may compute the batches
    folds: bool  # whether `run` folds a log with more than `room` rows of steps

    def run(self, engine: str, plan: Any, **options: Any) -> Log:
        """Run a plan by "simpy" or "compiled"."""
        module, run = self.loops[engine]
        log: Log = getattr(_module(module), run)(plan, **options)
        return log.checked()

    def summarise(self, *run: Any, **options: Any) -> tuple[Any, ...]:
        """Run a scenario; return the sums and the histograms of its requests."""
        found: tuple[Any, ...] = _module(self.sums).summarise(*run, **options)
        return found


def _module(name: str) -> Any:
    return import_module(f"batchsim.engines.{name}")


KINDS = {
    "requests": Kind(
        draw, {"simpy": ("reference.router", "run"), "compiled": ("compiled.routed", "run")},
        "compiled.summaries",
        {"simpy": 510, "compiled": 230, "routed": 240},  # in batches of one, which need most
        takes_model=True, folds=False,
    ),
    "tokens": Kind(
        draw_tokens,
        {"simpy": ("reference.router", "run_tokens"), "compiled": ("compiled.token_routed", "run")},
        "compiled.token_summaries", {"simpy": 400, "compiled": 400, "routed": 700},  # without steps
        takes_model=False, folds=True,
    ),
}  # fmt: skip
MEASURES["tokens"], MEASURES["requests"] = saturated, measured_batches
