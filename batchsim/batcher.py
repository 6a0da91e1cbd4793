"""The textbook batcher: collect requests for a short while, then compute them together."""

import math
import threading
import time
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any

import numpy as np

from batchsim import _check
from batchsim._clock import LATEST_S, later


class InferenceBatcher:
    """Collect requests until a batch is full or the oldest has waited long enough.

    `model_fn` takes a stacked batch, an array of shape (batch, *item_shape), and returns
    one output per input. `max_wait_ms` may be `math.inf`: then only a full batch is ready.
    `clock` returns the time in seconds; a simulation passes its own. Requests may be added
    from one thread while another processes batches.

    >>> batcher = InferenceBatcher(lambda batch: batch * 10, max_batch_size=2)
    >>> batcher.add_request([1.0, 2.0], "ann")
    >>> batcher.should_process()
    False
    >>> batcher.add_request([3.0, 4.0], "bob")
    >>> batcher.should_process()
    True
    >>> for answer in batcher.process_batch():
    ...     print(answer["id"], answer["output"])
    ann [10. 20.]
    bob [30. 40.]
    """

    def __init__(
        self, model_fn: Callable[[Any], Any], max_batch_size: int = 32, max_wait_ms: float = 50.0, *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:  # fmt: skip
        _check.instance("model_fn", model_fn, Callable, "callable")
        _check.instance("clock", clock, Callable, "callable")
        self.model_fn = model_fn
        self.max_batch_size = _check.whole("max_batch_size", max_batch_size)
        self.max_wait_ms = _check.real("max_wait_ms", max_wait_ms, at_least=0, finite=False)
        self.clock = clock
        self.queue: deque[dict[str, Any]] = deque()
        self._item_shape: tuple[int, ...] | None = None
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        limits = f"max_batch_size={self.max_batch_size}, max_wait_ms={self.max_wait_ms!r}"
        return f"InferenceBatcher({limits}; {len(self.queue)} waiting)"

    def add_request(self, input_data: Any, request_id: Any) -> None:
        """Put one item at the end of the queue, stamped with the clock's time.

        `input_data` is an array of one item, of any shape; a shape other than the first item's
        raises ValueError. Ids may repeat.
        """
        item = np.array(input_data)  # a copy: the caller may use the array again
        with self._lock:  # time stamp and append together, so that the queue is in time order
            if self._item_shape not in (None, item.shape):
                raise ValueError(
                    f"input_data must have the shape of the first item, {self._item_shape}, got {item.shape}"
                )
            self.queue.append({"id": request_id, "input": item, "timestamp": self.clock()})
            self._item_shape = item.shape

    def next_deadline(self) -> float | None:
        """Return the clock time, in s, at which waiting alone makes a batch ready; None for never."""
        due = self._due()
        return None if due is None else due[0]

    def should_process(self) -> bool:
        """Return whether a batch is full, or the oldest request has waited `max_wait_ms`."""
        if len(self.queue) >= self.max_batch_size:
            return True
        due = self._due()
        # Deadlines are compared as times: (now - then) * 1000 >= wait can be false exactly at the deadline.
        # Either will do: your own loop may sleep until the plain sum, a simulation until the rounded one.
        return due is not None and self.clock() >= min(due)

    def _due(self) -> tuple[float, float] | None:
        """Return the deadline of the oldest request, as simulations round it, and as the plain sum."""
        try:
            came_s: float = self.queue[0]["timestamp"]
        except IndexError:
            return None
        if math.isinf(self.max_wait_ms):
            return None
        wait_s = self.max_wait_ms / 1000
        plain_s = came_s + wait_s
        if came_s < 0 or plain_s >= LATEST_S:  # a clock since 1970, whose floats have no room for nanoseconds
            return plain_s, plain_s
        return later(came_s, wait_s), plain_s

    def take_batch(self) -> list[dict[str, Any]]:
        """Remove and return the oldest requests, at most `max_batch_size`, oldest first."""
        with self._lock:
            size = min(len(self.queue), self.max_batch_size)
            return [self.queue.popleft() for _ in range(size)]

    def process_batch(self) -> list[dict[str, Any]]:
        """Run the model once on the oldest requests, ready or not; return `{"id":, "output":}` for each.

        At most `max_batch_size`, oldest first; [] if none wait. When `model_fn` raises, or
        returns another number of outputs (ValueError), the batch goes back to its place at the head
        of the queue and the error is raised: call again to retry, or `take_batch()` to
        drop the requests that cannot be computed.
        """
        batch = self.take_batch()
        if not batch:
            return []
        try:
            return self.run_batch(batch)
        except BaseException:
            with self._lock:
                for request in reversed(batch):  # another consumer may have put back older or later ones
                    place = bisect_left(self.queue, request["timestamp"], key=itemgetter("timestamp"))
                    self.queue.insert(place, request)
            raise

    def run_batch(self, batch: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        """Run the model once on requests taken from the queue, which do not go back to it."""
        outputs = _one_output_each(self.model_fn(_stacked([r["input"] for r in batch])), len(batch))
        return [{"id": r["id"], "output": output} for r, output in zip(batch, outputs, strict=True)]


def _stacked(inputs: Sequence[np.ndarray]) -> np.ndarray:
    """Return inputs as a batch; ValueError for integers that are too large to be exact beside floats."""
    batch = np.stack(inputs)
    if batch.dtype.kind in "fc" and any(item.dtype.kind in "iu" for item in inputs):
        with np.errstate(invalid="ignore"):  # beyond the largest whole number
            if not all(
                (row.astype(item.dtype) == item).all() for row, item in zip(batch, inputs, strict=True)
            ):
                raise ValueError(f"inputs must be exact as {batch.dtype}, got larger whole numbers")
    return batch


def _one_output_each(outputs: Any, size: int) -> Sequence[Any]:
    """Return the outputs as a sequence of `size`, or raise; a device array is fetched once."""
    rows = outputs if isinstance(outputs, (list, tuple)) else np.asarray(outputs)
    got = len(rows) if isinstance(rows, (list, tuple)) or rows.ndim else repr(outputs)
    if got != size:
        raise ValueError(f"model_fn must return one output per input, {size}, got {got}")
    return rows  # type: ignore[return-value]


def batch_inference(model_fn: Callable[[Any], Any], inputs: Sequence[Any], batch_size: int = 32) -> list[Any]:
    """Run `model_fn` over `inputs` in batches and return one output per input, in order.

    >>> batch_inference(lambda batch: batch.sum(axis=1), [[1, 2], [3, 4], [5, 6]], batch_size=2)
    [np.int64(3), np.int64(7), np.int64(11)]
    """
    batch_size = _check.whole("batch_size", batch_size)
    if not _check.listed(inputs):
        raise TypeError(f"inputs must be a list of items, got {inputs!r}")
    batcher = InferenceBatcher(model_fn, batch_size, math.inf)
    for index, item in enumerate(inputs):
        batcher.add_request(item, index)
    outputs: list[Any] = []
    while batcher.queue:
        outputs += [answer["output"] for answer in batcher.process_batch()]
    return outputs
