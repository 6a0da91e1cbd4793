"""The servers by name, and the meaning of their settings."""

from typing import Any

from batchsim import _check
from batchsim.servers.batched import SERVER as BATCHED
from batchsim.servers.bentoml import SERVER as BENTOML
from batchsim.servers.clipper import SERVER as CLIPPER
from batchsim.servers.kserve import SERVER as KSERVE
from batchsim.servers.litserve import SERVER as LITSERVE
from batchsim.servers.mosec import SERVER as MOSEC
from batchsim.servers.orca import SERVER as ORCA
from batchsim.servers.ray_serve import SERVER as RAY_SERVE
from batchsim.servers.server import Server, ServerConfig
from batchsim.servers.sglang import SERVER as SGLANG
from batchsim.servers.tei import SERVER as TEI
from batchsim.servers.tensorrt_llm import SERVER as TENSORRT_LLM
from batchsim.servers.textbook import SERVER as TEXTBOOK
from batchsim.servers.tf_serving import SERVER as TF_SERVING
from batchsim.servers.tgi import SERVER as TGI
from batchsim.servers.torchserve import SERVER as TORCHSERVE
from batchsim.servers.triton import SERVER as TRITON
from batchsim.servers.vllm import SERVER as VLLM

# In the order of the tables.
SERVERS: dict[str, Server] = {
    server.name: server
    for server in (
        TEXTBOOK, TRITON, TF_SERVING, TORCHSERVE, MOSEC, KSERVE, RAY_SERVE, BENTOML, LITSERVE, BATCHED,
        CLIPPER,
    )
}  # fmt: skip
# The servers of language models, whose rules need a scenario with tokens.
TOKEN_SERVERS: dict[str, Server] = {server.name: server for server in (VLLM, SGLANG, TGI, TENSORRT_LLM, ORCA)}
# The servers whose rules limit tokens, and need requests with sizes.
SIZE_SERVERS: dict[str, Server] = {server.name: server for server in (TEI,)}
ALL = SERVERS | SIZE_SERVERS | TOKEN_SERVERS


def config(server: str, **settings: Any) -> ServerConfig:
    """Return the meaning of a server's settings: the rule, servers, limits and padding.

    >>> found = config("triton", max_batch_size=32, count=2, max_queue_size=256, preserve_ordering=True)
    >>> found.rule, found.servers, found.queue_limit, found.unused
    (SizeOrWait(max_batch_size=32, max_wait_ms=0), 2, 256, {'preserve_ordering': True})
    """
    _check.one_of("server", server, ALL)
    return ALL[server].configure(settings)
