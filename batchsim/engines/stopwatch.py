"""A real model that is timed: from a batch in the host's memory until its output is ready."""

import time
from collections.abc import Callable
from typing import Any


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
