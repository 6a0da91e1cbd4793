"""The calls from compiled loops to the function of a routing, as `rule_calls` has those of a rule."""

# mypy: disable-error-code="no-untyped-def"

from typing import Any

from batchsim.engines.compiled.backend import overload
from batchsim.engines.compiled.jit import PART, compiled, compiled_uncached
from batchsim.engines.compiled.rule_calls import learn_helpers
from batchsim.scenario.routing.routing import Routing


def route(request: Any, loads: Any, chances: Any, params: Any) -> Any:
    """Return the replica of a request by the routing of `params`."""
    return Routing.by_params[type(params)](request, loads, chances, params)


@overload(route, jit_options=PART, strict=False)
def _route(request, loads, chances, params):
    learn_helpers()
    return Routing.by_params[params.instance_class]


def _route_blindly(begin, chances, loads, params, replica):
    """Route requests, the first of number `begin`, without a look at the replicas."""
    for row in range(replica.size):
        replica[row] = route(begin + row, loads, chances[row], params)


route_blindly, route_blindly_uncached = compiled(_route_blindly), compiled_uncached(_route_blindly)
