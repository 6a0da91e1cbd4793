"""The servers by name, and the meaning of their settings."""

from collections.abc import Mapping
from dataclasses import replace
from importlib import import_module
from typing import Any

from batchsim import _check
from batchsim.servers.server import Server, ServerConfig


def _servers(modules: str) -> dict[str, Server]:
    """Return the servers of some modules, each by its name."""
    return {name: import_module(f"batchsim.servers.{name}").SERVER for name in modules.split()}


# In the order of the tables.
SERVERS = _servers(
    "textbook triton tf_serving torchserve mosec kserve ray_serve bentoml litserve batched clipper"
)
# The servers of language models, whose rules need a scenario with tokens.
TOKEN_SERVERS = _servers("vllm sglang tgi tensorrt_llm orca")
# The servers whose rules limit tokens, and need requests with sizes.
SIZE_SERVERS = _servers("tei")
ALL = SERVERS | SIZE_SERVERS | TOKEN_SERVERS


def with_more(config: ServerConfig, settings: Mapping[str, Any]) -> ServerConfig:
    """Return a config with more of its server's settings; what else its file says stays."""
    given = {name: value for name, value in config.settings.items() if name not in config.unknown}
    before, meant = (ALL[config.server].configure(each) for each in (given, given | dict(settings)))
    changed = {name: getattr(meant, name) for name in ("rule", "servers", "settings", "captured")}
    notes = (*meant.notes, *(note for note in config.notes if note not in before.notes))
    return replace(config, **changed, notes=notes)


def config(server: str, **settings: Any) -> ServerConfig:
    """Return the meaning of a server's settings: the rule, servers, limits and padding.

    >>> found = config("triton", max_batch_size=32, count=2, max_queue_size=256, preserve_ordering=True)
    >>> found.rule, found.servers, found.queue_limit, found.unused
    (SizeOrWait(max_batch_size=32, max_wait_ms=0), 2, 256, {'preserve_ordering': True})
    """
    _check.one_of("server", server, ALL)
    return ALL[server].configure(settings)
