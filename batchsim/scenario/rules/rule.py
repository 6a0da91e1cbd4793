"""The interface of rules: how a rule describes itself, and the calls that both engines make.

A rule is a frozen dataclass in one file: its parameters, the functions `decide` and `wake_s`, and its steps
as text. To add one, write such a file and list the class in `batchsim.scenario.rules`; the engines, TOML, the
shell and the explorer read everything else from it.
"""

import dataclasses
import inspect
import math
import re
from collections import namedtuple
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import Any, ClassVar, NamedTuple, Self, TypeVar

import numpy as np

from batchsim._check import LARGEST_WHOLE, Renewed
from batchsim._clock import later
from batchsim._format import typed
from batchsim.scenario.parameters import Described, parameter, require


class Trigger(IntEnum):
    """Why a batch left."""

    FULL = 0  # it holds max_batch_size requests
    WAIT = 1  # its oldest request had waited for the rule's limit, at this very instant
    BACKLOG = 2  # it was due earlier, but every server was computing: a server became free
    DRAIN = 3  # only the end of the run released it
    ENOUGH = 4  # enough requests for the rule were waiting, fewer than max_batch_size


# As plain numbers, which Numba freezes into the code that it compiles.
FULL, WAIT, BACKLOG, DRAIN, ENOUGH = (int(trigger) for trigger in Trigger)
# The actions of a rule; after NOTHING, the engine does not call it again at this look.
NOTHING, START, FREEZE, REFUSE = 0, 1, 2, 3
ENDLESS = 2**63 - 1  # a limit that is None
PLAIN: dict[str, dict[str, Any]] = {  # the bounds of plain fields, by their annotation
    "int": {"type": "whole", "at_least": -LARGEST_WHOLE, "at_most": LARGEST_WHOLE},
    "float": {"type": "real", "may_be_inf": True},
}
ANYONE = "a request waits"  # the condition of a step
Decision = tuple[int, int, int]  # an action, the number of requests, and the trigger


class Waiting(NamedTuple):
    """The waiting requests, as `decide` and `wake_s` see them; the same fields in Python and in Numba."""

    arrival_s: Any  # of every request of the run, seconds, by request number
    queue: Any  # request numbers; queue[head : head + length] wait, oldest first
    head: int
    length: int  # the number waiting in the queue, without frozen batches
    frozen: int  # the number of frozen batches waiting for a server
    ended: bool  # whether the last request of the run has come
    size: Any  # of every request, by request number; 1 each if requests have no sizes


# Functions that rules call in `decide`, `wake_s` and `finished`: Numba learns to compile them, too.
HELPERS: list[Callable[..., Any]] = [later]
F = TypeVar("F", bound=Callable[..., Any])


def helper(function: F) -> F:
    """Mark a function that a rule's own functions call."""
    HELPERS.append(function)
    return function


@helper
def oldest_s(waiting: Waiting, k: int = 0) -> float:
    """Return the arrival time, in seconds, of the k-th oldest waiting request; 0 is the oldest."""
    return waiting.arrival_s[waiting.queue[waiting.head + k]]


@helper
def timer(now_s: float, waiting: Waiting, wait_s: float, k: int = 0) -> int:
    """Return why all leave now that wait, once the k-th oldest has waited; -1 if it has to wait longer."""
    # Deadlines are compared as times: (now - then) * 1000 >= wait can be false exactly at the deadline.
    due_s = later(oldest_s(waiting, k), wait_s)
    if now_s >= due_s:
        return WAIT if now_s == due_s else BACKLOG
    return DRAIN if waiting.ended and wait_s == math.inf else -1  # no timer would ever release the remainder


@helper
def by_timer(now_s: float, waiting: Waiting, size: int, wait_s: float) -> Decision:
    """Send so many requests, fewer than a full batch, once the oldest has waited."""
    trigger = timer(now_s, waiting, wait_s)
    return (NOTHING, 0, FULL) if trigger < 0 else (START, size, trigger)


def deadline_s(now_s: float, waiting: Waiting, idle: int, state: Any, params: Any) -> float:
    """Return when the oldest request has waited `max_wait_s`: the `wake_s` of rules with a timer."""
    return later(oldest_s(waiting), params.max_wait_s)


def never_s(now_s: float, waiting: Waiting, idle: int, state: Any, params: Any) -> float:
    """Return infinity: the `wake_s` of rules for which time alone changes nothing."""
    return math.inf


def max_batch_size(default: Any = dataclasses.MISSING) -> Any:
    """Return the field that every rule has: the most requests in a batch."""
    about = "A batch never holds more requests than this"
    return parameter("Max batch size", about, slider=(1, 64, 1), usual=32, default=default)


def max_wait_ms(
    about: str = "How long the oldest request waits for others to join its batch",
    default: Any = dataclasses.MISSING, may_be_inf: bool = True,
) -> Any:  # fmt: skip
    """Return the field of rules with a timer: how long a batch waits for more requests."""
    return parameter(
        "Max wait (ms)", about,
        type="real", at_least=0, may_be_inf=may_be_inf, slider=(0, 100, 0.5), usual=10.0, default=default,
    )  # fmt: skip


class Threshold(NamedTuple):
    """A rule that is the textbook's under another name, and so uses its fast loop.

    An idle server takes the oldest `largest` requests, or all if there are fewer, once `enough` wait or the
    oldest has waited `wait_s` seconds (inf: for ever).
    """

    wait_s: float
    enough: int
    largest: int


@dataclass(frozen=True)
class Step:
    """A line of a rule: "elif {condition}: {action}" ("else" without one), and why a batch leaves by it.

    With the condition `ANYONE`, or no condition, a batch always leaves. `because` ends the sentence "The
    batch leaves because ..."; `label` is the same in one to three words. In continuous batching no batch
    leaves: the trigger is an `Ending`, without a label.
    """

    condition: str
    action: str
    trigger: Enum
    because: str
    label: str = ""


NEEDED = {"decide": "(now_s, waiting, idle, state, params)"}
OPTIONAL = {
    "wake_s": "(now_s, waiting, idle, state, params)", "finished": "(now_s, size, seconds, state, params)",
    "computed_as": "(size, state, params)", "picked": "(k, state, params)",
}  # fmt: skip


class Rule(Described, Renewed):
    """When a batch leaves, and which requests are in it: parameters, and functions that both engines call.

    - `decide(now_s, waiting, idle, state, params) -> (action, size, trigger)` is called at every look while
      requests wait and at least one of `idle` servers is free (also without one, if `asked_while_busy`),
      until it returns NOTHING. START sends the `size` oldest requests, or the oldest frozen batch if there is
      one, to the idle server with the lowest number. FREEZE makes a batch of the `size` oldest, which waits
      unchanged for a server. REFUSE rejects the `size` oldest. The trigger says why: FULL, WAIT, BACKLOG,
      DRAIN or ENOUGH. All these are names of `batchsim`, as `bs.START`.
    - `wake_s(now_s, waiting, idle, state, params) -> seconds` is the next instant at which time alone changes
      the decision, inf for none, as by default; too early does no harm. `later(time_s, seconds)` of
      `batchsim` adds so that ties stay ties.

    TypeError says what is missing, or takes other arguments, as the class is made. `steps` has the rule in
    words, by default the names of the triggers.

    Both functions are plain ones of numbers: Python runs them unchanged, and Numba compiles them. `params`
    has the fields that are parameters or plain numbers, `max_wait_ms` as `max_wait_s` in seconds. `state` is
    an array of `state_size` floats, 0 at first, as the rule's memory; `decide` may write to it. Three
    functions are
    optional. `finished(now_s, size, seconds, state, params)` is called as each batch ends.
    `computed_as(size, state, params)` is the size to which a starting batch is padded: it takes as long as
    one of this size, and `finished` receives it. `picked(k, state, params)` is the place in the queue of the
    batch's k-th request, rising with k; engines do not call it where priority levels or delays determine the
    order.
    """

    Params: ClassVar[type]  # a named tuple, by default of the parameters; its type tells Numba the rule
    decide: ClassVar[Callable[..., Decision]]
    wake_s: ClassVar[Callable[..., float]] = staticmethod(never_s)
    finished: ClassVar[Callable[..., None] | None] = None
    computed_as: ClassVar[Callable[..., int] | None] = None
    picked: ClassVar[Callable[..., int] | None] = None
    state_size: ClassVar[int] = 0
    freezes: ClassVar[bool] = False
    longest_wait_s: ClassVar[float] = math.inf  # after which a request is refused, if not before; inf: never
    forms_while_busy: ClassVar[bool] = False  # whether it freezes batches while every server computes
    decides: ClassVar[bool] = True  # whether it is its `decide`, and no rule of steps
    forgets: ClassVar[bool] = True  # whether what it has learnt is lost in time
    by_size: ClassVar[bool] = False  # whether it reads the sizes of requests
    compiled: ClassVar[bool] = True  # whether Numba can compile the functions
    title: ClassVar[str] = ""  # its name for people
    used_by: ClassVar[str] = ""  # the servers that have it, for people
    clock: ClassVar[str] = ""  # when its batches start to wait, as a clause
    map_knobs: ClassVar[tuple[str, str]] = ("max_batch_size", "max_wait_ms")  # x and y of its heat map
    by_params: ClassVar[dict[type, type["Rule"]]] = {}
    max_batch_size: int
    max_wait_ms: ClassVar[float] = math.inf  # how long the oldest request waits for more; inf: for ever

    def __init_subclass__(cls) -> None:
        own = vars(cls)
        for name in (*NEEDED, *OPTIONAL):
            if inspect.isfunction(own.get(name)):  # plain, without self
                setattr(cls, name, staticmethod(own[name]))
        if cls.decides:
            require(cls, Rule, NEEDED | {name: of for name, of in OPTIONAL.items() if name in own})
            own_classes = cls.__mro__[: cls.__mro__.index(Rule)]
            if not any(
                "max_batch_size" in vars(each) | inspect.get_annotations(each) for each in own_classes
            ):
                raise TypeError(f"{cls.__name__} must have a field max_batch_size: int, got none")
        if ("decide" in own or "wake_s" in own) and "Params" not in own:
            cls._describe_plain_fields()
            cls.Params = cls._own_params()
        if "Params" in vars(cls):
            Rule.by_params[cls.Params] = cls
        for fast_loop in ("threshold", "count_threshold") if "decide" in own else ():
            if fast_loop not in own:  # not its parent's
                setattr(cls, fast_loop, getattr(Rule, fast_loop))

    def __new__(cls, *args: Any, **fields: Any) -> Self:
        if not dataclasses.is_dataclass(cls):
            raise TypeError(f"{cls.__name__} must be a frozen dataclass: @dataclass(frozen=True), got none")
        return super().__new__(cls)

    @classmethod
    def label(cls) -> str:
        """Return the rule's name in a list, with its servers."""
        users = vars(cls).get("used_by", "")  # not those of its parent
        return f"{cls.title} ({users})" if users else cls.title

    @classmethod
    def _describe_plain_fields(cls) -> None:
        """Make parameters of fields that are declared as plain numbers, as `enough: int = 4`."""
        for name, kind in vars(cls).get("__annotations__", {}).items():
            value = vars(cls).get(name, dataclasses.MISSING)
            bounds = PLAIN.get(getattr(kind, "__name__", kind))
            if bounds and not isinstance(value, dataclasses.Field):
                plain = parameter(name, "", default=value, **bounds)
                setattr(cls, name, max_batch_size(value) if name == "max_batch_size" else plain)

    @classmethod
    def _own_params(cls) -> type:
        """Return a named tuple of the parameters, with a unique name, which Numba uses for compiled code."""
        own = {name: it for name, it in vars(cls).items() if isinstance(it, dataclasses.Field)}
        fields: dict[str, Any] = getattr(cls, "__dataclass_fields__", {}) | own  # its parent's, and its own
        names = [re.sub("_ms$", "_s", name) for name, it in fields.items() if "parameter" in it.metadata]
        params: Any = namedtuple(f"{cls.__name__}Params", names, module=cls.__module__)  # type: ignore[misc]
        params.__qualname__ = f"{cls.__qualname__}.Params"  # where pickle finds it
        return params

    def at(self, x: Any, y: Any) -> Self:
        """Return the rule in a cell of its heat map, at other `map_knobs`, or raise ValueError."""
        return dataclasses.replace(self, **dict(zip(self.map_knobs, (x, y), strict=True)))  # type: ignore[type-var]

    @property
    def params(self) -> Any:
        """The parameters as `decide` takes them, those in ms in seconds."""

        def plain(name: str, type_: str) -> Any:
            value = getattr(self, name)
            if value is None:
                return ENDLESS
            if type_ == "word":
                return [*self.parameters()[name].words].index(value)
            if type_ == "real":  # an int would be another type, for which Numba compiles again
                return value / 1000 if name.endswith("_ms") else float(value)
            return np.array(value, np.int64) if type_ == "sizes" else value

        return self.Params(*(plain(name, it.type) for name, it in self.parameters().items()))

    @property
    def steps(self) -> tuple[Step, ...]:
        """The rule as text, one step a trigger: the first whose condition holds acts."""
        return tuple(
            Step(
                f"`decide` returns {each.name}",
                "send them",
                each,
                f"the rule returned {each.name}",
                each.name.lower(),
            )
            for each in Trigger
        )

    @property
    def threshold(self) -> Threshold | None:
        """The rule as the textbook's fast loop takes it, None if it is a different rule."""
        return None

    @property
    def count_threshold(self) -> Threshold | None:
        """The same without a limit in units, which the fast loop for sizes adds."""
        return self.threshold

    @property
    def unit_limit(self) -> tuple[int, int]:
        """The limit in units, and whether it is on their sum (1) or counts padding (0)."""
        return ENDLESS, 0

    def carried_per_s(self, rate_per_s: float, seconds: np.ndarray, servers: int) -> float:
        """Return the rate at which servers compute the batches that form at an arrival rate.

        `seconds`: the service times of sizes from 1 on. A growing queue fills batches, unless they freeze.
        """
        return float(servers * seconds.size / seconds[-1])

    def memory(self, limited: bool) -> np.ndarray:
        """Return its `state` as a run begins; the scenario's queue may be `limited` (`Scenario.limited`)."""
        return np.zeros(self.state_size)

    alone: Any = property(lambda self: self)  # the simplest rule with the same batches if there is one server
    refuses = property(lambda self: self.longest_wait_s < math.inf)  # such a rule freezes no batches
    # Whether it is asked while every server computes. A rule that then does nothing sets it to False.
    asked_while_busy: Any = property(lambda self: self.freezes or self.refuses)

    @property
    def largest_size(self) -> int:
        """The largest size of a request that it lets into a batch."""
        return ENDLESS

    @property
    def covers(self) -> float:
        """The largest size that it has a place for; a scenario with a larger one is refused."""
        return math.inf

    @property
    def largest_batch(self) -> int:
        """The most requests that a batch ever holds: its size when the queue is long."""
        return self.max_batch_size

    @property
    def enough(self) -> int:
        """The number of waiting requests that makes a batch leave at once, at any age of the oldest."""
        return self.max_batch_size

    @property
    def fewest_clients(self) -> int:
        """The number of clients that a closed loop needs for a batch ever to leave."""
        return self.enough if math.isinf(self.max_wait_ms) else 1


# The step of a rule without a timer.
REMAINDER = Step("no more will come", "send all", Trigger.DRAIN, "no more requests will come", "run ended")


def send_full(size: int) -> Step:
    """Return the step of a full batch."""
    if size == 1:
        return Step(ANYONE, "send it", Trigger.FULL, "one request is a full batch", "full")
    because = f"{size:,} requests have gathered, a full batch"
    return Step(f"{size:,} or more wait", f"send the oldest {size:,}", Trigger.FULL, because, "full")


def send_full_or(size: int, wait_ms: float, *over: Step) -> tuple[Step, ...]:
    """Return the steps of a rule that sends full batches, and by a timer of its own, `over`, all that wait.

    Batches of one never wait. Without a wait, or with an endless one, all timers have the same steps.
    """
    over = send_after(wait_ms) if wait_ms in (0, math.inf) else over
    return (send_full(size), *over) if size > 1 else (send_full(size),)


def send_at_once(trigger: Trigger, all_: str = "send all") -> tuple[Step, Step]:
    """Return the steps of a rule whose batches never wait for more requests, `all_` as a server is free."""
    came, free = "a request came and a server is idle", "a server became free and requests were waiting"
    return (
        Step("the oldest comes now", "send all", trigger, came, "server was idle"),
        Step("", all_, Trigger.BACKLOG, free, "server became free"),
    )


def send_after(wait_ms: float) -> tuple[Step, ...]:
    """Return the steps of a timer that starts with the oldest request."""
    if wait_ms == 0:
        return send_at_once(Trigger.WAIT)
    if math.isinf(wait_ms):
        return (REMAINDER,)
    over = f"the oldest has waited {typed(wait_ms)} ms"
    late = f"a server became free after the oldest had waited {typed(wait_ms)} ms"
    return (
        Step(over, "send all", Trigger.WAIT, over, "wait was over"),
        Step("it has waited longer", "send all", Trigger.BACKLOG, late, "server became free"),
    )


LARGEST_LIMIT = 10**12  # units


@helper
def joins(count: int, longest: int, total: int, size: int, limit: int, summed: int) -> bool:
    """Return whether a request of a size may join a batch of others without breaking a limit in units."""
    units = total + size if summed else (count + 1) * max(longest, size)
    return count == 0 or units <= limit


@helper
def fitting(waiting: Waiting, most: int, limit: int, summed: int) -> tuple[int, bool]:
    """Return how many of the oldest requests fit into a batch, and whether no other may join these."""
    count = longest = total = 0
    while count < min(waiting.length, most):
        size = waiting.size[waiting.queue[waiting.head + count]]
        if not joins(count, longest, total, size, limit, summed):
            return count, True
        count, longest, total = count + 1, max(longest, size), total + size
    return count, count == most or not joins(count, longest, total, 1, limit, summed)


def max_batch_units() -> Any:
    """Return the field of rules that limit a batch by the sizes of its requests."""
    return parameter(
        "Max batch units", "A batch never holds more units than this, in the sizes of its requests",
        at_most=LARGEST_LIMIT, when_none="no limit", of_sizes=True, default=None, kw_only=True,
        slider=(1, 1e6, 0.01), log=True,
    )  # fmt: skip


def units() -> Any:
    """Return the field that says how such a limit counts."""
    return parameter(
        "Units", "How the limit counts: with padding, the number of requests times the longest; or the sum",
        type="word", words=("padded", "summed"), of_sizes=True, default="padded",
        kw_only=True,
    )  # fmt: skip


class LimitedBatches(Rule):
    """A rule that limits the units of a batch if `max_batch_units` is set, and reads sizes only then."""

    decides = False
    max_batch_units: int | None
    units: str

    @property
    def by_size(self) -> bool:  # type: ignore[override]
        return self.max_batch_units is not None

    @property
    def largest_size(self) -> int:
        return ENDLESS if self.max_batch_units is None else self.max_batch_units

    def __repr__(self) -> str:
        given = {name: getattr(self, name) for name in self.parameters()}
        if not self.by_size:
            given = {name: value for name, value in given.items() if name not in ("max_batch_units", "units")}
        own = ", ".join(f"{name}={value!r}" for name, value in given.items())
        return f"{type(self).__name__}({own})"
