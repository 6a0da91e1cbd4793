"""The same question in a server's own words: its parameter names, units and defaults.

`servers.triton(max_batch_size=32, max_queue_delay_microseconds=2000)` is a rule, for a scenario like any
other. `servers.config("triton", max_batch_size=32, count=2, max_queue_size=256)` is a `ServerConfig`: the
rule, and what the same file says of servers, limits and padding; `.scenario(workload, service)` or
`.apply(scenario)` makes a scenario of it. What a server does not accept is refused with its range.
"""

from typing import Any

from batchsim import _check
from batchsim.scenario import Scenario
from batchsim.servers.batched import SERVER as _BATCHED
from batchsim.servers.batched import batched
from batchsim.servers.bentoml import SERVER as _BENTOML
from batchsim.servers.bentoml import bentoml
from batchsim.servers.clipper import SERVER as _CLIPPER
from batchsim.servers.clipper import clipper
from batchsim.servers.kserve import SERVER as _KSERVE
from batchsim.servers.kserve import kserve
from batchsim.servers.linter import Finding, Findings, Note, linter
from batchsim.servers.litserve import SERVER as _LITSERVE
from batchsim.servers.litserve import litserve
from batchsim.servers.mosec import SERVER as _MOSEC
from batchsim.servers.mosec import mosec
from batchsim.servers.ray_serve import SERVER as _RAY_SERVE
from batchsim.servers.ray_serve import ray_serve
from batchsim.servers.server import Server, ServerConfig
from batchsim.servers.textbook import SERVER as _TEXTBOOK
from batchsim.servers.textbook import textbook
from batchsim.servers.tf_serving import SERVER as _TF_SERVING
from batchsim.servers.tf_serving import tf_serving
from batchsim.servers.torchserve import SERVER as _TORCHSERVE
from batchsim.servers.torchserve import torchserve
from batchsim.servers.triton import SERVER as _TRITON
from batchsim.servers.triton import triton

__all__ = [
    "SERVERS", "Finding", "Findings", "Note", "Server", "ServerConfig", "batched", "bentoml", "clipper",
    "config", "kserve", "lint", "litserve", "mosec", "ray_serve", "textbook", "tf_serving", "torchserve",
    "triton",
]  # fmt: skip

# By their names, in the order in which tables show them.
SERVERS: dict[str, Server] = {
    server.name: server
    for server in (
        _TEXTBOOK, _TRITON, _TF_SERVING, _TORCHSERVE, _MOSEC, _KSERVE, _RAY_SERVE, _BENTOML, _LITSERVE,
        _BATCHED, _CLIPPER,
    )
}  # fmt: skip


def config(server: str, **settings: Any) -> ServerConfig:
    """Return what a server's settings mean: the rule, servers, limits and padding.

    >>> found = config("triton", max_batch_size=32, count=2, max_queue_size=256, preserve_ordering=True)
    >>> found.rule, found.servers, found.queue_limit, found.unused
    (SizeOrWait(max_batch_size=32, max_wait_ms=0), 2, 256, {'preserve_ordering': True})
    """
    _check.one_of("server", server, SERVERS)
    return SERVERS[server].configure(settings)


def lint(
    config: ServerConfig, scenario: Scenario, requests: int = linter.REQUESTS, seed: int = 0
) -> Findings:
    """Return what a server's settings cost under a scenario's workload and service time.

    Each finding is proved by a number, of a run or of theory, with the settings as they are and with the
    change that it proposes, in the same traffic; what no number shows is no finding. The greatest effect
    comes first. The rule, the servers and the limits of the scenario are replaced by the config's.

    >>> from batchsim import Affine, Poisson, Scenario, SizeOrWait
    >>> scenario = Scenario(Poisson(2000), SizeOrWait(), Affine(1.8874, 0.1438))
    >>> settings = config("ray_serve", max_batch_size=32, batch_wait_timeout_s=0.002, max_ongoing_requests=64)
    >>> found = lint(settings, scenario)
    >>> found.codes, found[0].change
    (('wait-below-t-min',), {'batch_wait_timeout_s': 0.0027})
    """
    _check.instance("config", config, ServerConfig, "a ServerConfig, as of servers.config")
    return linter.lint(SERVERS[config.server], config, scenario, requests, seed)
