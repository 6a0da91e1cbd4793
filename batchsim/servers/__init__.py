"""The same question in a server's own words: its parameter names, units and defaults.

`servers.triton(max_batch_size=32, max_queue_delay_microseconds=2000)` is a rule, for a scenario like any
other. `servers.config("triton", max_batch_size=32, count=2, max_queue_size=256)` is a `ServerConfig`: the
rule, and what the same file says of servers, limits and padding; `.scenario(workload, service)` or
`.apply(scenario)` makes a scenario of it. What a server does not accept is refused with its range.

`servers.read("config.pbtxt")` is the `ServerConfig` of a server's own file, `servers.parse` that of its text,
and `servers.write("triton", scenario)` the text that says a setting to a server. `servers.lint` finds what
settings cost under a scenario.

`SERVERS` compute requests in batches; `TOKEN_SERVERS` generate tokens, and need a scenario with them.
"""

from batchsim.servers.batched import batched
from batchsim.servers.bentoml import bentoml
from batchsim.servers.clipper import clipper
from batchsim.servers.kserve import kserve
from batchsim.servers.linter import Finding, Findings, Note, lint
from batchsim.servers.litserve import litserve
from batchsim.servers.mosec import mosec
from batchsim.servers.orca import orca
from batchsim.servers.ray_serve import ray_serve
from batchsim.servers.read import parse, read
from batchsim.servers.registry import SERVERS, TOKEN_SERVERS, config
from batchsim.servers.server import Server, ServerConfig
from batchsim.servers.sglang import sglang
from batchsim.servers.tensorrt_llm import tensorrt_llm
from batchsim.servers.textbook import textbook
from batchsim.servers.tf_serving import tf_serving
from batchsim.servers.tgi import tgi
from batchsim.servers.torchserve import torchserve
from batchsim.servers.triton import triton
from batchsim.servers.vllm import vllm
from batchsim.servers.vllm_v0 import vllm_v0
from batchsim.servers.write import file_name, write, write_all

__all__ = [
    "Finding", "Findings", "Note", "SERVERS", "Server", "ServerConfig", "TOKEN_SERVERS", "batched",
    "bentoml", "clipper", "config", "file_name", "kserve", "lint", "litserve", "mosec", "orca", "parse",
    "ray_serve", "read", "sglang", "tensorrt_llm", "textbook", "tf_serving", "tgi", "torchserve", "triton",
    "vllm", "vllm_v0", "write", "write_all",
]  # fmt: skip
