"""NVIDIA Triton Inference Server: `dynamic_batching` of config.pbtxt."""

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from batchsim import _check
from batchsim._format import as_typed, listed
from batchsim.scenario.priorities import MOST
from batchsim.scenario.rules import LARGEST_BATCH, PreferredUntilLate, Rule, SizeOrWait
from batchsim.servers.formats.document import Document, Keys, Node, Section, refused, replaced, table
from batchsim.servers.formats.text_proto import PROTO, Schema, parse
from batchsim.servers.language import OPTIONS
from batchsim.servers.server import Format, Server, ServerConfig, Words


def triton(
    max_batch_size: int, max_queue_delay_microseconds: int = 0, preferred_batch_size: Sequence[int] = ()
) -> Rule:
    """Return the rule of Triton's dynamic batcher (core, 2026-06).

    A free instance takes the largest preferred size that waits (by default max_batch_size). Once the oldest
    request was enqueued max_queue_delay_microseconds ago, it takes all that wait, at most max_batch_size.
    With a delay of 0, requests are never late, and leave at once if fewer than any preferred size wait. While
    all instances compute, the queue grows, and the next batch with it. If sizes below max_batch_size are
    preferred, it closes before: with 16, at 17 requests, as in issue 8141 (see `PreferredUntilLate`).

    Two details differ. If no input has a shape that varies, only the next preferred size, or a batch that
    starts, wakes Triton's batcher: a batch that its timer formed while all instances compute does not grow.
    Where the delay is shorter than a batch, the steps of the source gave mean latencies up to 1.6 times as
    long. With several priority levels and more than max_batch_size waiting, Triton checks the age of the
    oldest request in the top level; here it is the oldest of all.

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
    """A ModelQueuePolicy, of the whole queue or of one level; a limit of 0 is no limit."""

    max_queue_size: int = 0
    default_timeout_microseconds: int = 0
    timeout_action: str = "REJECT"
    allow_timeout_override: bool = False  # no effect: simulated requests have no timeouts of their own

    @classmethod
    def checked(cls, where: str, given: Mapping[str, Any]) -> "Policy":
        """Return the policy with these fields, or raise."""
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
    allow_ragged_batch: bool = False,
) -> ServerConfig:  # fmt: skip
    """Return the meaning of config.pbtxt: `count` instances on `gpus` GPUs, priority levels, queue policies.

    Instances beyond the number of GPUs share them, spread evenly: see `ServerConfig.apply`.

    The fields of default_queue_policy are settings of their own. They apply to each level's own queue, unless
    `priority_queue_policy` has that level, as {1: {"max_queue_size": 10}}. Triton looks for late requests
    when it forms a batch, and now and then while all instances compute. Here they leave at their timeout, so
    a full queue may have room slightly earlier; a delayed request keeps its turn either way.

    `allow_ragged_batch` is that of an `input`: requests of different shapes share a batch, one behind the
    other, as in `PackedTime`. Without it, Triton batches only requests of one shape.

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
        named = [("default_priority_level", default), *(("priority_queue_policy", key) for key in given)]
        for what, level in named:
            if _check.whole(f"Triton's {what}", level, at_least=0) not in range(1, levels + 1):
                raise ValueError(f"Triton's {what} {within}, got {level}")
    else:  # then Triton has a single queue
        others = {"default_priority_level": default, "priority_queue_policy": given}
        unused = {name: value for name, value in others.items() if value}
        given = {}
    policies = dict.fromkeys(range(1, levels + 1), one)
    what = "Triton's priority_queue_policy"
    policies |= {level: Policy.checked(what, each) for level, each in given.items()}
    all_policies = [one, *policies.values()]
    if preserve_ordering:
        if levels > 1:
            must = "Triton's priority_levels must be at most 1 with preserve_ordering"
            raise ValueError(f"{must}, got {levels}")
        if any(policy.timeout_action == "DELAY" for policy in all_policies):
            raise ValueError("Triton's timeout_action must be REJECT with preserve_ordering, got DELAY")
        unused["preserve_ordering"] = True
    if timeout_action == "DELAY" and not any(each.default_timeout_microseconds for each in all_policies):
        unused["timeout_action"] = timeout_action

    def of(value: Callable[[Policy], Any]) -> Any:
        """Return a limit: one value if all levels share it, else {level: value}."""
        found = {level: value(policy) for level, policy in policies.items()}
        if len({*found.values()}) > 1:
            return {level: value for level, value in found.items() if value is not None}
        return next(iter(found.values()), value(one))

    _check.instance("Triton's allow_ragged_batch", allow_ragged_batch, bool, "True or False")
    count = _check.whole("Triton's instance_group count", count)
    devices = _check.whole("Triton's gpus", gpus)
    _check.at_most("Triton's gpus", devices, count, "count")
    return ServerConfig(
        "triton", rule, count, of(lambda each: each.max_queue_size or None),
        of(lambda each: _ms(each.default_timeout_microseconds) or None),
        timeout_action=of(lambda each: each.timeout_action.lower()), priority_levels=levels,
        default_priority_level=default, devices=devices if devices < count else None, unused=unused,
        one_shape="" if allow_ragged_batch else ONE_SHAPE,
    )  # fmt: skip


def _extras(target: ServerConfig) -> dict[str, Any]:
    preferred = getattr(target.rule, "preferred", ())
    return {"preferred_batch_size": list(preferred)} if preferred else {}


def _level_limits(target: ServerConfig) -> dict[str, Any]:
    """Return priority levels, each with its own queue policy."""

    def of(limit: Any, level: int, other: Any) -> Any:
        return limit.get(level, other) if isinstance(limit, Mapping) else other if limit is None else limit

    last = target.priority_levels
    policies = {
        level: {
            "max_queue_size": of(target.queue_limit, level, 0),
            "default_timeout_microseconds": math.ceil(as_typed(of(target.timeout_ms, level, 0) * 1000)),
            "timeout_action": of(target.timeout_action, level, "reject").upper(),
        }
        for level in range(1, last + 1)
    }
    return {"priority_levels": last, "default_priority_level": last, "priority_queue_policy": policies}


POLICY = ("max_queue_size", "default_timeout_microseconds", "priority_levels", "priority_queue_policy")


def _notes(settings: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    if policy := [each for each in POLICY if settings.get(each)]:
        off = f"disable{'s' * (len(policy) == 1)} forming the next batch while one is computed"
        yield "pre-forming-off", f"{listed(policy)} {off}: the cost of that is not simulated."


RAGGED = "allow_ragged_batch"
ONE_SHAPE = "Triton batches only requests of one shape unless an input has allow_ragged_batch"
GROUP, BATCHING, SIZE = "instance_group", "dynamic_batching", "max_batch_size"
OTHER_SCHEDULERS = ("sequence_batching", "ensemble_scheduling")
# What backends do with a file when they load it (model_configuration.md, model_config_utils.cc, 2026-07).
# They switch dynamic batching on: TensorRT always, others if the file lists no inputs and outputs.
TENSORRT, COMPLETING = "tensorrt", ("onnxruntime", "tensorflow")
COMPLETED_SIZE = 4  # of a file without one, by the latter
INSIDE = re.compile("vllm|tensorrtllm")  # these batch in a way of their own
COUNT, GPUS = "count", "gpus"
MESSAGE = "ModelConfig"
SCHEMA = Schema({  # one of its messages has no fields
    name: " ".join(map(":".join, fields.items())).strip(":")
    for name, fields in table("keys.csv", "triton messages").items()
}, {name: " ".join(values) for name, values in table("keys.csv", "triton enumerations").items()})  # fmt: skip
KEYS = Keys(PROTO, {
    "": SCHEMA.names(MESSAGE),
    BATCHING: SCHEMA.names("ModelDynamicBatching"),
    f"{BATCHING}.default_queue_policy": SCHEMA.names("ModelQueuePolicy"),
    "response_cache": SCHEMA.names("ModelResponseCache"),
    "model_transaction_policy": SCHEMA.names("ModelTransactionPolicy"),
})  # fmt: skip


def _instances(document: Document, root: Node, node: Node | None) -> Section:
    """Return the instance groups of a text, which stand for `count` instances on `gpus` devices."""
    groups = root.value.get(GROUP)

    def literal(name: str, value: Any) -> str:
        now = {COUNT: 1, GPUS: 1} | document.settings | {name: value}
        count, gpus = now[COUNT], min(now[COUNT], now[GPUS])
        kind = groups[0].get("kind") if groups else "KIND_GPU"
        same = {} if kind is None else {"kind": kind}
        each, more = divmod(count, gpus)
        parts = (each + 1, [*range(more)]), (each, [*range(more, gpus)])
        return PROTO.literal(
            [{COUNT: some, **same, **({GPUS: on} if gpus > 1 else {})} for some, on in parts if on]
        )

    def added(text: str, name: str, new: str) -> str:
        pair = PROTO.pair(GROUP, new)
        return PROTO.added(text, root, pair) if node is None else replaced(text, node, new)

    return Section((COUNT, GPUS).__contains__, literal, added)


def _unbatched(root: Node) -> Section:
    """Return a text without dynamic batching, which a batch size needs."""

    def added(text: str, name: str, new: str) -> str:
        return replaced(PROTO.added(text, root, f"{BATCHING} {{ }}"), root.items[SIZE], new)

    return Section(SIZE.__eq__, lambda name, value: str(value), added)


def _read(document: Document, text: str, which: str | None) -> None:
    root = parse(text, SCHEMA.message(MESSAGE), document)
    for name in OTHER_SCHEDULERS:
        if name in root.items:
            place = document.place(root.items[name])
            raise refused(f"a config.pbtxt must use dynamic_batching, got {name}", place)
    platform = re.match("[a-z]+", root.value.get("platform", ""))
    backend = root.value.get("backend") or (platform[0] if platform else "")
    if INSIDE.fullmatch(backend):
        must = f"a config.pbtxt must be of a backend that takes whole batches, got {backend}"
        place = document.place(root.items.get("backend", root))
        raise refused(f"{must}, which batches inside: read the settings of that server", place)
    _read_groups(document, root, 2 if backend in COMPLETING else 1)
    if any(each.get(RAGGED) for each in root.value.get("input", ())):
        document.settings[RAGGED] = True
    KEYS.read(document, root)
    listed_ = {"input", "output"} & {*root.items}
    completed = backend == TENSORRT or (backend in COMPLETING and not listed_)
    if completed and backend != TENSORRT and SIZE not in root.items:
        document.settings[SIZE] = COMPLETED_SIZE
        document.note(f"{SIZE} is left out: {COMPLETED_SIZE} with this backend")
    size = document.settings.setdefault(SIZE, 0)
    if size and BATCHING not in root.items and not completed:
        document.settings[SIZE] = 1
        if size > 1:
            document.unused[SIZE] = size
            document.note("without dynamic_batching, each request is computed alone")
        document.sections.insert(0, _unbatched(root))
        del document.nodes[SIZE]
    elif SIZE in root.items and BATCHING not in root.items and completed:
        document.note(f"the backend {backend} switches {BATCHING} on when it loads the model")
    if size == 0:
        node = root.items.get(SIZE)
        alone = "0; each request is then alone, as with SizeOrWait(1, 0), unless the model batches inside"
        must = f"for Triton to batch, max_batch_size must be at least 1, got {alone if node else 'none'}"
        raise refused(must, None if node is None else document.place(node))


def _read_groups(document: Document, root: Node, on_cpu: int) -> None:
    groups, node = root.value.get(GROUP, []), root.items.pop(GROUP, None)
    section = _instances(document, root, node)
    document.sections.append(section)
    own = {group.get("kind", "KIND_AUTO") for group in groups if not group.get(GPUS)}
    if node is None or own & {"KIND_AUTO", "KIND_GPU"}:
        document.note("instances are on each GPU of the machine: here on one")
    if node is None:
        return
    spread, count = _spread(groups, on_cpu), node.items.get(COUNT)
    total = Node(sum(spread), node.at if count is None else count.at, node.span, more=node.more)
    document.put(COUNT, total, section)
    if len(spread) > 1:
        document.put(GPUS, Node(len(spread), node.at, node.span, more=node.more), section)
    elif count is not None and len(groups) == 1 and groups[0][COUNT] == total.value:
        total.span = count.span
        document.nodes[COUNT] = total, KEYS.section(root)
    if max(spread, default=0) > min(spread, default=0) + 1:
        document.note(f"instances are assumed to be spread evenly over {len(spread)} devices")
    kinds = {group.get("kind", "KIND_AUTO") for group in groups}
    if len(kinds) > 1:
        document.note(f"instances of {len(kinds)} kinds are assumed to be equally fast")
    for name, value in [each for group in groups for each in group.items()]:
        if name not in (COUNT, GPUS):
            document.unused.setdefault(f"{GROUP}.{name}", value)


def _spread(groups: list[dict[str, Any]], on_cpu: int) -> list[int]:
    """Return how many instances take requests on each device.

    A group has `count` instances on each of its GPUs; without a list, on each GPU of the machine, assumed to
    have one. Instances that are not on GPUs have a device each: `on_cpu` without a count.
    """
    spread: dict[Any, int] = {}
    for number, group in enumerate(groups):
        if group.get("passive"):
            continue
        kind = group.get("kind", "KIND_AUTO")
        count = group.get(COUNT) or (on_cpu if kind == "KIND_CPU" else 1)
        on_gpus = kind in ("KIND_AUTO", "KIND_GPU")
        for gpu in group.get(GPUS) or [0] if on_gpus else [(number, each) for each in range(count)]:
            spread[gpu] = spread.get(gpu, 0) + (count if on_gpus else 1)
    return list(spread.values())


SERVER = Server(
    "triton", "core, 2026-06", triton, config, ("allow_timeout_override",),
    title="Triton", started=r"\btritonserver\b|\bconfig\.pbtxt\b|\btriton_max_batch_size\b",
    caveats={
        "response_cache.enable": "each request is computed",
        "model_transaction_policy.decoupled": "each request has one answer, when its batch ends",
    },
    words=Words(
        "max_batch_size", "max_queue_delay_microseconds", 0.001, whole=True, servers="count", devices="gpus",
        queue="max_queue_size", timeout="default_timeout_microseconds", timeout_unit_ms=0.001,
        timeout_action="timeout_action", others={"preferred": "preferred_batch_size"},
    ),
    extras=_extras, level_limits=_level_limits, notes=_notes,
    formats=(
        Format(
            "a Triton config.pbtxt", "config.pbtxt", (".pbtxt",),
            r"\b(dynamic_batching|max_queue_delay_microseconds|preferred_batch_size|instance_group"
            r"|sequence_batching|ensemble_scheduling|default_queue_policy)\b"
            rf"|\A(?![\s\S]*^({OPTIONS})\s*:)[\s\S]*^[ \t]*(max_batch_size|platform|backend)\s*:",
            _read, "max_batch_size: 1\ndynamic_batching {\n}\n",
        ),
    ),
)  # fmt: skip
