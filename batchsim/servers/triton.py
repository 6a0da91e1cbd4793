"""NVIDIA Triton Inference Server: `dynamic_batching` of config.pbtxt."""

from collections.abc import Sequence
from typing import Any

from batchsim import _check
from batchsim.scenario.rules import LARGEST_BATCH, PreferredSizes, Rule, SizeOrWait
from batchsim.servers.server import Server, ServerConfig, Words


def triton(
    max_batch_size: int, max_queue_delay_microseconds: int = 0, preferred_batch_size: Sequence[int] = ()
) -> Rule:
    """Return the rule of Triton's dynamic batcher (core, 2026-06).

    An instance that is free takes the largest preferred size that waits, by default max_batch_size; else what
    waits, once the oldest request was enqueued max_queue_delay_microseconds ago, or at once with a delay of
    0. While all instances compute, the queue grows, and with it the next batch.

    >>> triton(max_batch_size=32, max_queue_delay_microseconds=2000)
    SizeOrWait(max_batch_size=32, max_wait_ms=2)
    """
    size = _check.whole("Triton's max_batch_size", max_batch_size, at_most=LARGEST_BATCH)
    delay = _check.whole("Triton's max_queue_delay_microseconds", max_queue_delay_microseconds, at_least=0)
    wait_ms = delay // 1000 if delay % 1000 == 0 else delay / 1000
    if not len(preferred_batch_size):
        return SizeOrWait(size, wait_ms)
    given = _check.sizes("Triton's preferred_batch_size", preferred_batch_size, LARGEST_BATCH, rising=False)
    preferred = tuple(sorted(given))
    _check.at_most("Triton's preferred_batch_size", preferred[-1], size, "max_batch_size")
    return SizeOrWait(size, wait_ms) if preferred == (size,) else PreferredSizes(preferred, size, wait_ms)


def config(
    max_batch_size: int, max_queue_delay_microseconds: int = 0, preferred_batch_size: Sequence[int] = (),
    *, count: int = 1, max_queue_size: int = 0, default_timeout_microseconds: int = 0,
    timeout_action: str = "REJECT",
) -> ServerConfig:  # fmt: skip
    """Return what config.pbtxt means: `count` instances, and a queue policy, of which 0 is none.

    `timeout_action` DELAY, which serves a late request after the others, is not simulated: it is unused.
    """
    rule = triton(max_batch_size, max_queue_delay_microseconds, preferred_batch_size)
    limit = _check.whole("Triton's max_queue_size", max_queue_size, at_least=0)
    timeout = _check.whole("Triton's default_timeout_microseconds", default_timeout_microseconds, at_least=0)
    _check.one_of("Triton's timeout_action", timeout_action, ("REJECT", "DELAY"))
    unused: dict[str, Any] = {}
    if timeout and timeout_action == "DELAY":
        unused = {"default_timeout_microseconds": timeout, "timeout_action": timeout_action}
    return ServerConfig(
        "triton", rule, _check.whole("Triton's instance_group count", count), limit or None,
        timeout / 1000 if timeout and not unused else None, unused=unused,
    )  # fmt: skip


SERVER = Server(
    "triton", "core, 2026-06", triton, config,
    ("preserve_ordering", "priority_levels", "default_priority_level", "allow_timeout_override"),
    words=Words(
        "max_batch_size", "max_queue_delay_microseconds", 0.001, whole=True, servers="count",
        queue="max_queue_size", timeout="default_timeout_microseconds", timeout_unit_ms=0.001,
    ),
)  # fmt: skip
