"""The interface of routings: where a request goes, of several replicas.

A routing is a frozen dataclass with one function, `route`, which Python runs and Numba compiles. To add one,
write such a class in a file of this package and list it in `ROUTINGS`: the engines, TOML and the shell read
everything else from it.
"""

import re
from collections import namedtuple
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

from batchsim.scenario.parameters import Described


class Loads(NamedTuple):
    """The replicas as `route` sees them; the same fields in Python and in Numba."""

    inside: Any  # by replica: requests that wait or are being computed
    waiting: Any  # by replica: those of them that wait
    filling: Any  # by replica: those that fill a batch: the waiting ones, or all under continuous batching
    tokens: Any  # by replica: their prompts, and what they have generated; 0 without tokens
    full: int  # the size of a full batch


class Known(NamedTuple):
    """The parameters of a routing without any: its number in `plain.routed_by`."""

    number: int


class Routing(Described):
    """Which replica each request goes to.

    `route(request, loads, draws, params) -> replica` is a plain function: `request` is the number of the
    request, `draws` are two random numbers from 0 to 1 of its own, and `params` are the parameters. Without
    `sees_loads`, the sizes of `loads` are right, and its numbers are not.
    """

    name: ClassVar[str]  # in scenarios, TOML and the shell
    title: ClassVar[str]  # for people
    sees_loads: ClassVar[bool] = True
    needs_tokens: ClassVar[bool] = False  # whether it reads `loads.tokens`
    Params: ClassVar[type]  # its type tells Numba the routing
    route: ClassVar[Callable[..., int]]
    number: ClassVar[int | None] = None  # in `plain.routed_by`, of a routing there
    by_params: ClassVar[dict[type, Callable[..., int]]] = {}  # the function that takes these parameters

    def __init_subclass__(cls) -> None:
        cls.name = re.sub("(?<!^)([A-Z])", r"_\1", cls.__name__).lower()
        if "route" not in vars(cls):  # that of its base
            return
        cls.number = None
        if "Params" not in vars(cls):
            cls.Params = namedtuple(f"{cls.__name__}Params", [], module=cls.__module__)  # type: ignore[misc]
            cls.Params.__qualname__ = f"{cls.__qualname__}.Params"  # where pickle finds it
        Routing.by_params[cls.Params] = cls.route

    @property
    def params(self) -> Any:
        """The parameters as `route` takes them."""
        return self.Params() if self.number is None else Known(self.number)

    def hottest(self, replicas: int) -> float:
        """Return the largest share of the requests that a replica must carry in the long run."""
        return 1 / replicas
