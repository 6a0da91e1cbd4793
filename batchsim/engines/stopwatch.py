"""A real model in a simulated server: what it needs, and its time, from a batch in the host's memory on."""

import time
from collections.abc import Callable, Mapping
from typing import Any

from batchsim import _check
from batchsim.engines.kinds import KINDS
from batchsim.scenario import Scenario

TIMINGS = ("service", "measured", "measured cold")


class Stopwatch:
    """A model that records the time of its last batch, as `bs.device.measure` does.

    The time is from the stacked batch in the host's memory until the output is ready on the device. With
    `warm`, the first batch of a size runs twice, and only the second run counts, as on a server that has
    compiled all its shapes. Without, the first batch of a size includes its compilation.
    """

    def __init__(self, model_fn: Callable[[Any], Any], warm: bool = True) -> None:
        self.model_fn, self.warm = model_fn, warm
        self.seconds = 0.0  # of the last batch
        self.device = getattr(model_fn, "device", None)  # its name
        self._seen: set[int] = set()

    def __call__(self, batch: Any) -> Any:
        if self.warm and len(batch) not in self._seen:
            self._seen.add(len(batch))
            wait_for(self.model_fn(batch))
        begin_s = time.perf_counter()
        outputs = wait_for(self.model_fn(batch))
        self.seconds = time.perf_counter() - begin_s
        if self.device is None:
            self.device = _device_of(outputs)
        return outputs


def wait_for(outputs: Any) -> Any:
    """Return the outputs once they are computed: JAX returns before the device is done."""
    for each in outputs if isinstance(outputs, (list, tuple)) else (outputs,):
        if hasattr(each, "block_until_ready"):
            each.block_until_ready()
    return outputs


def _device_of(outputs: Any) -> str:
    first: Any = next(iter(outputs), None) if isinstance(outputs, (list, tuple)) else outputs
    return str(next(iter(first.devices())).device_kind) if hasattr(first, "devices") else "host"


def listed_inputs(inputs: Any) -> list[Any]:
    """Return the inputs of a model as a list, or raise TypeError."""
    if isinstance(inputs, Mapping) or not _check.listed(inputs):
        raise TypeError(f"inputs must be a sequence of items, got {inputs!r}")
    return list(inputs.to_numpy() if hasattr(inputs, "to_numpy") else inputs)


def check_model(scenario: Scenario, model_fn: Any, inputs: Any, count: int, timing: str) -> None:
    """Refuse a model that cannot compute the batches of this scenario, or without its inputs."""
    if (model_fn is None) != (inputs is None):
        missing = "inputs" if inputs is None else "model_fn"
        raise ValueError(f"model_fn and inputs must be given together, got no {missing}")
    _check.one_of("timing", timing, TIMINGS)
    if model_fn is None:
        if timing != "service":
            raise ValueError(f"timing={timing!r} needs a model_fn to measure, and its inputs, got none")
        return
    _check.instance("model_fn", model_fn, Callable, "callable")
    if len(inputs) != count:
        raise ValueError(f"inputs must be one item a request, {count:,}, got {len(inputs):,}")
    if not KINDS[scenario.kind].takes_model:
        raise ValueError(f"model_fn cannot be used with {scenario.kind}")
    if scenario.most_replicas > 1:
        raise ValueError(f"model_fn cannot be used with replicas, got {scenario.most_replicas}")
