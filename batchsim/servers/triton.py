"""NVIDIA Triton Inference Server: `dynamic_batching` of config.pbtxt."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from batchsim import _check
from batchsim.scenario.priorities import MOST
from batchsim.scenario.rules import LARGEST_BATCH, PreferredUntilLate, Rule, SizeOrWait
from batchsim.servers.server import Server, ServerConfig, Words


def triton(
    max_batch_size: int, max_queue_delay_microseconds: int = 0, preferred_batch_size: Sequence[int] = ()
) -> Rule:
    """Return the rule of Triton's dynamic batcher (core, 2026-06).

    An instance that is free takes the largest preferred size that waits, by default max_batch_size; or all
    that wait, max_batch_size at most, once the oldest was enqueued max_queue_delay_microseconds ago: then
    size no longer counts. With a delay of 0 nobody is late, and what waits goes at once where it is less
    than any preferred size. While all instances compute, the queue grows, and with it the next batch.

    Left out, where sizes below max_batch_size are preferred: without a queue policy Triton forms the next
    batches while all instances compute. They grow until an instance is free, as here, but may close at a
    preferred size before. And with several priority levels and more waiting than max_batch_size, Triton
    asks for the oldest among those that go first, here it is the oldest of all.

    >>> triton(max_batch_size=32, max_queue_delay_microseconds=2000)
    SizeOrWait(max_batch_size=32, max_wait_ms=2)
    >>> triton(32, 5000, preferred_batch_size=[8, 32])
    PreferredUntilLate(preferred=(8, 32), max_batch_size=32, max_wait_ms=5)
    """
    size = _check.whole("Triton's max_batch_size", max_batch_size, at_most=LARGEST_BATCH)
    delay = _check.whole("Triton's max_queue_delay_microseconds", max_queue_delay_microseconds, at_least=0)
    wait_ms = _ms(delay)
    if not len(preferred_batch_size):
        return SizeOrWait(size, wait_ms)
    given = _check.sizes("Triton's preferred_batch_size", preferred_batch_size, LARGEST_BATCH, rising=False)
    preferred = tuple(sorted(given))
    _check.at_most("Triton's preferred_batch_size", preferred[-1], size, "max_batch_size")
    return SizeOrWait(size, wait_ms) if preferred == (size,) else PreferredUntilLate(preferred, size, wait_ms)


def _ms(microseconds: int) -> float:
    return microseconds // 1000 if microseconds % 1000 == 0 else microseconds / 1000


class Policy(NamedTuple):
    """A ModelQueuePolicy: of the queue, or of a level's; 0 is none."""

    max_queue_size: int = 0
    default_timeout_microseconds: int = 0
    timeout_action: str = "REJECT"
    allow_timeout_override: bool = False  # here no request brings a timeout of its own

    @property
    def queue_limit(self) -> int | None:
        return self.max_queue_size or None

    @property
    def timeout_ms(self) -> float | None:
        return _ms(self.default_timeout_microseconds) if self.default_timeout_microseconds else None

    @property
    def action(self) -> str:
        return self.timeout_action.lower()

    @classmethod
    def checked(cls, where: str, given: Mapping[str, Any]) -> "Policy":
        """Return the policy of its fields by name, or raise."""
        for name in given:
            if name not in cls._fields:
                hint = _check.nearest(name, cls._fields)
                raise ValueError(f"a field of {where} must be one of a queue policy, got {name!r}{hint}")
        policy = cls(**given)
        for name in ("max_queue_size", "default_timeout_microseconds"):
            _check.whole(f"{where} {name}", getattr(policy, name), at_least=0)
        _check.one_of(f"{where} timeout_action", policy.timeout_action, ("REJECT", "DELAY"))
        return policy


def config(
    max_batch_size: int, max_queue_delay_microseconds: int = 0, preferred_batch_size: Sequence[int] = (),
    *, count: int = 1, gpus: int = 1, max_queue_size: int = 0, default_timeout_microseconds: int = 0,
    timeout_action: str = "REJECT", priority_levels: int = 0, default_priority_level: int = 0,
    priority_queue_policy: Mapping[int, Mapping[str, Any]] | None = None, preserve_ordering: bool = False,
) -> ServerConfig:  # fmt: skip
    """Return what config.pbtxt means: `count` instances on `gpus` GPUs, priority levels and queue policies.

    Instances beyond the number of GPUs share them, spread evenly: see `ServerConfig.apply`.

    What default_queue_policy says is given by itself, and is about each level's own queue, unless
    `priority_queue_policy` has its level, as {1: {"max_queue_size": 10}}. Triton looks for late requests
    when it forms a batch, and now and then while all instances compute. Here they leave at their timeout, so
    that a full queue may have room a little earlier; one that is delayed goes in its turn either way.

    >>> config(8, priority_levels=2, default_priority_level=2, default_timeout_microseconds=5000,
    ...        priority_queue_policy={2: {"timeout_action": "DELAY"}}).timeout_ms
    {1: 5}
    """
    rule = triton(max_batch_size, max_queue_delay_microseconds, preferred_batch_size)
    one = Policy.checked("Triton's", {
        "max_queue_size": max_queue_size, "default_timeout_microseconds": default_timeout_microseconds,
        "timeout_action": timeout_action,
    })  # fmt: skip
    levels = _check.whole("Triton's priority_levels", priority_levels, at_least=0, at_most=MOST)
    default = _check.whole("Triton's default_priority_level", default_priority_level, at_least=0)
    given = {
        int(level) if isinstance(level, str) and level.isdecimal() else level: policy
        for level, policy in (priority_queue_policy or {}).items()
    }
    unused: dict[str, Any] = {}
    if levels:
        within = f"must be from 1 to priority_levels, {levels}"
        for what, level in (
            ("default_priority_level", default),
            *(("priority_queue_policy", k) for k in given),
        ):
            if _check.whole(f"Triton's {what}", level, at_least=0) not in range(1, levels + 1):
                raise ValueError(f"Triton's {what} {within}, got {level}")
    else:  # then Triton has one queue for all
        others = {"default_priority_level": default, "priority_queue_policy": given}
        unused = {name: value for name, value in others.items() if value}
        given = {}
    policies = dict.fromkeys(range(1, levels + 1), one)
    policies |= {
        level: Policy.checked("Triton's priority_queue_policy", each) for level, each in given.items()
    }
    all_policies = [one, *policies.values()]
    if preserve_ordering:
        if levels > 1:
            raise ValueError(
                f"Triton's priority_levels must be at most 1 with preserve_ordering, got {levels}"
            )
        if any(policy.timeout_action == "DELAY" for policy in all_policies):
            raise ValueError("Triton's timeout_action must be REJECT with preserve_ordering, got DELAY")
        unused["preserve_ordering"] = True
    if timeout_action == "DELAY" and not any(policy.timeout_ms for policy in all_policies):
        unused["timeout_action"] = timeout_action

    def of(name: str) -> Any:
        """Return what is the same for all levels, or {level: what it says}."""
        found = {level: getattr(policy, name) for level, policy in policies.items()}
        if len({*found.values()}) > 1:
            return {level: value for level, value in found.items() if value is not None}
        return next(iter(found.values()), getattr(one, name))

    count = _check.whole("Triton's instance_group count", count)
    devices = _check.whole("Triton's gpus", gpus)
    _check.at_most("Triton's gpus", devices, count, "count")
    return ServerConfig(
        "triton", rule, count, of("queue_limit"),
        of("timeout_ms"), timeout_action=of("action"), priority_levels=levels, default_priority_level=default,
        devices=devices if devices < count else None, unused=unused,
    )  # fmt: skip


SERVER = Server(
    "triton", "core, 2026-06", triton, config, ("allow_timeout_override",),
    words=Words(
        "max_batch_size", "max_queue_delay_microseconds", 0.001, whole=True, servers="count", devices="gpus",
        queue="max_queue_size", timeout="default_timeout_microseconds", timeout_unit_ms=0.001,
    ),
)  # fmt: skip
