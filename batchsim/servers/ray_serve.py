"""Ray Serve: the decorator @serve.batch."""

import math
import re
from typing import Any

from batchsim import _check
from batchsim._format import as_typed
from batchsim.scenario.rules import LARGEST_BATCH, FrozenBatches, Rule, StalledBatches
from batchsim.servers.formats.python_calls import Callee, PythonForm
from batchsim.servers.server import Server, ServerConfig, Words

# Of a list of tokenised requests.
FUNCTIONS = {
    "summed": "lambda batch: sum(map(len, batch))",
    "padded": "lambda batch: len(batch) * max(map(len, batch))",
}
UNLIMITED = 1_000_000  # written for an infinite max_ongoing_requests, which Ray Serve does not accept


@_check.refuses_removed
def ray_serve(
    max_batch_size: int = 10, batch_wait_timeout_s: float = 0.01, *, max_ongoing_requests: float = math.inf,
    handler: str = "async", batch_size_fn: str | None = None,
) -> Rule:  # fmt: skip
    """Return the rule of Ray Serve 2.60's batch queue.

    It accepts requests even while the handler computes. It closes a batch at max_batch_size requests or
    batch_wait_timeout_s after its first; a closed batch waits unchanged for the handler. A handler that
    blocks the event loop stalls this: with `handler="blocking"`, requests enter only after a batch is
    computed, and the wait begins then, or earlier, with the batch before, if that batch left some of them
    behind. This describes Python 3.12 or newer. On 3.11 a batch that opened with the one before leaves
    without later requests: if batches are often full, the mean is up to a third longer.

    At a high rate, a short wait makes batches so small that the handler falls behind;
    `batchsim.theory.frozen_wait_min_ms` is the shortest wait at which it keeps up. `max_ongoing_requests`
    belongs to another decorator, @serve.deployment, where its default is 5: it limits the requests inside at
    once, so batches never grow larger. It affects only the rule of an async handler.

    `batch_size_fn` is the text of a function: max_batch_size then limits what it returns for a batch, the sum
    of the requests' sizes, or, if it has a call of max, their number times the longest. Ray puts a request
    that does not fit behind all that wait; here it keeps its place.

    >>> ray_serve(max_batch_size=32, batch_wait_timeout_s=0.002)
    FrozenBatches(max_batch_size=32, max_wait_ms=2.0, max_ongoing=inf)
    """
    size = _check.whole("Ray Serve's max_batch_size", max_batch_size, at_most=LARGEST_BATCH)
    wait_s = _check.real("Ray Serve's batch_wait_timeout_s", batch_wait_timeout_s, at_least=0)
    wait_ms = as_typed(1000 * wait_s)
    _check.one_of("handler", handler, ("async", "blocking"))
    limit: dict[str, Any] = {}
    if batch_size_fn is not None:
        _check.instance("Ray Serve's batch_size_fn", batch_size_fn, str, "the text of a function")
        if handler == "blocking":
            raise ValueError("Ray Serve's batch_size_fn must be of an async handler, got a blocking one")
        units = "padded" if re.search(r"\bmax\(", batch_size_fn) else "summed"
        limit = {"max_batch_units": size, "units": units}
    if handler == "blocking":
        return StalledBatches(size, wait_ms)
    if max_ongoing_requests != math.inf:
        _check.whole("Ray Serve's max_ongoing_requests", max_ongoing_requests)
    return FrozenBatches(size, wait_ms, max_ongoing_requests, **limit)


def config(
    *, max_concurrent_batches: int = 1, max_ongoing_requests: int = 5, **settings: Any
) -> ServerConfig:
    """Return the meaning of one replica's decorators: `max_concurrent_batches` batches compute at once."""
    rule = ray_serve(max_ongoing_requests=max_ongoing_requests, **settings)
    at_once = _check.whole("Ray Serve's max_concurrent_batches", max_concurrent_batches)
    unused = {} if isinstance(rule, FrozenBatches) else {"max_ongoing_requests": max_ongoing_requests}
    return ServerConfig("ray_serve", rule, at_once, unused=unused)


def _extras(target: ServerConfig) -> dict[str, Any]:
    if isinstance(target.rule, FrozenBatches):
        most, limit = target.rule.max_ongoing, target.rule.max_batch_units
        by_units = {"max_batch_size": limit, "batch_size_fn": FUNCTIONS[target.rule.units]}
        return (by_units if limit is not None else {}) | {
            "max_ongoing_requests": int(most) if math.isfinite(most) else UNLIMITED
        }
    # Enough that one batch can form while another is computed; with fewer, batches are never full.
    return {"max_ongoing_requests": 2 * target.rule.max_batch_size * target.servers}


FORM = PythonForm(
    (
        Callee(
            "@serve.batch", r"(ray\.)?(serve\.)?batch",
            ("_func", "max_batch_size", "batch_wait_timeout_s", "max_concurrent_batches", "batch_size_fn"),
            code=frozenset({"batch_size_fn"}),
        ),
    ),
    Callee(
        "@serve.deployment", r"(ray\.)?(serve\.)?deployment",
        (
            "_func_or_class", "name", "version", "num_replicas", "ray_actor_options",
            "placement_group_bundles", "placement_group_strategy", "placement_group_bundle_label_selector",
            "max_replicas_per_node", "user_config", "max_ongoing_requests", "max_queued_requests",
            "backpressure_config", "autoscaling_config", "graceful_shutdown_wait_loop_s",
            "graceful_shutdown_timeout_s", "health_check_period_s", "health_check_timeout_s",
            "logging_config", "request_router_config", "max_constructor_retry_count",
            "gang_scheduling_config", "deployment_actors", "rolling_update_percentage", "max_surge_percent",
        ),
    ),
    by_class=True, overrides="options", setters=("set_max_batch_size", "set_batch_wait_timeout_s"),
    renamed={"max_concurrent_queries": "max_ongoing_requests"},
)  # fmt: skip

SERVER = Server(
    "ray_serve", "2.60", ray_serve, config, title="Ray Serve", routing="two_choices",
    started=r"\bserve (run|deploy|start)\b|^[ \t]*(-[ \t]+)?import_path[ \t]*:",
    caveats={
        "autoscaling_config": "the number of replicas stays", "max_queued_requests": "no request is refused",
        "request_router_config": "the router is the default one",
    },
    words=Words(
        "max_batch_size", "batch_wait_timeout_s", 1000, servers="max_concurrent_batches",
        replicas="num_replicas", others={"max_ongoing": "max_ongoing_requests"},
    ),
    extras=_extras, variants=({}, {"handler": "blocking"}),
    formats=(FORM.format(
        "a Ray Serve deployment", "model.py",
        r"\bserve\.(batch|deployment)\b|\bfrom ray\b|\bimport ray\b|\bbatch_wait_timeout_s\b",
    ),),
)  # fmt: skip
