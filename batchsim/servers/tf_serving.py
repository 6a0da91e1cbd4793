"""TensorFlow Serving: the file of --batching_parameters_file."""

from collections.abc import Sequence

from batchsim import _check
from batchsim.scenario.rules import LARGEST_BATCH, SizeOrWait
from batchsim.servers.server import Server, ServerConfig, Words


def tf_serving(max_batch_size: int = 1000, batch_timeout_micros: int = 0) -> SizeOrWait:
    """Return the rule of TensorFlow Serving's shared batch scheduler (2026-06).

    A batch thread that is free takes a batch that is full, or the open one, once its first task came
    batch_timeout_micros ago. While all threads compute, full batches queue and the open one keeps
    growing, which is the textbook's rule.

    >>> tf_serving(max_batch_size=32, batch_timeout_micros=2000)
    SizeOrWait(max_batch_size=32, max_wait_ms=2)
    """
    size = _check.whole("TensorFlow Serving's max_batch_size", max_batch_size, at_most=LARGEST_BATCH)
    name = "TensorFlow Serving's batch_timeout_micros"
    micros = _check.whole(name, batch_timeout_micros, at_least=0)
    return SizeOrWait(size, micros // 1000 if micros % 1000 == 0 else micros / 1000)


def config(
    max_batch_size: int = 1000, batch_timeout_micros: int = 0, *, num_batch_threads: int = 1,
    max_enqueued_batches: int = 10, allowed_batch_sizes: Sequence[int] = (),
) -> ServerConfig:  # fmt: skip
    """Return what the file means; batches are padded up to the next of `allowed_batch_sizes`.

    TensorFlow Serving has a batch thread for each core by default; here it is one, as a scenario does not
    know the machine. A request is refused when max_enqueued_batches full batches wait, the open one among
    them: as many requests, since only full batches close before a thread takes them.
    """
    rule = tf_serving(max_batch_size, batch_timeout_micros)
    threads = _check.whole("TensorFlow Serving's num_batch_threads", num_batch_threads)
    batches = _check.whole("TensorFlow Serving's max_enqueued_batches", max_enqueued_batches)
    allowed: tuple[int, ...] = ()
    if len(allowed_batch_sizes):
        allowed = _check.sizes("TensorFlow Serving's allowed_batch_sizes", allowed_batch_sizes)
        if allowed[-1] != rule.max_batch_size:
            must = "TensorFlow Serving's allowed_batch_sizes must end with max_batch_size"
            raise ValueError(f"{must}, {rule.max_batch_size}, got {list(allowed)}")
    return ServerConfig("tf_serving", rule, threads, batches * rule.max_batch_size, pad_to=allowed)


SERVER = Server(
    "tf_serving", "2026-06", tf_serving, config, ("pad_variable_length_inputs",),
    words=Words(
        "max_batch_size", "batch_timeout_micros", 0.001, whole=True, servers="num_batch_threads",
        sizes="allowed_batch_sizes",
    ),
)  # fmt: skip
