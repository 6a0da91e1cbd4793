"""Serving systems in their own vocabulary: parameter names, units and defaults.

`servers.triton(max_batch_size=32, max_queue_delay_microseconds=2000)` is a rule, for a scenario like any
other. `servers.config("triton", max_batch_size=32, count=2, max_queue_size=256)` is a `ServerConfig`: the
rule, and the servers, limits and padding that the same file sets. Its `.scenario(workload, service)` or
`.apply(scenario)` makes a scenario. A value that the server does not accept raises ValueError with the range.

`servers.read("config.pbtxt")` returns the `ServerConfig` of a server's own file, `servers.parse` that of its
text. `servers.write("triton", scenario)` returns the text of such a file, and `servers.edit("config.pbtxt",
scenario)` that file with the settings of the scenario. `servers.lint` finds what settings cost under a
scenario.

`SERVERS` compute requests in batches. `SIZE_SERVERS` also limit their sizes, which a workload must have.
`TOKEN_SERVERS` generate tokens, and need a scenario with tokens.
"""

from typing import TYPE_CHECKING

from batchsim import _check
from batchsim.servers.batched import batched as batched
from batchsim.servers.bentoml import bentoml as bentoml
from batchsim.servers.clipper import clipper as clipper
from batchsim.servers.edit import Edited, edit, edited
from batchsim.servers.files import file_name, parse, read, write, write_all
from batchsim.servers.kserve import kserve as kserve
from batchsim.servers.linter import Finding, Findings, Note, lint
from batchsim.servers.litserve import litserve as litserve
from batchsim.servers.mosec import mosec as mosec
from batchsim.servers.orca import orca as orca
from batchsim.servers.ray_serve import ray_serve as ray_serve
from batchsim.servers.registry import ALL, SERVERS, SIZE_SERVERS, TOKEN_SERVERS, config
from batchsim.servers.server import Server, ServerConfig
from batchsim.servers.sglang import sglang as sglang
from batchsim.servers.tei import tei as tei
from batchsim.servers.tensorrt_llm import tensorrt_llm as tensorrt_llm
from batchsim.servers.textbook import textbook as textbook
from batchsim.servers.tf_serving import tf_serving as tf_serving
from batchsim.servers.tgi import tgi as tgi
from batchsim.servers.torchserve import torchserve as torchserve
from batchsim.servers.triton import triton as triton
from batchsim.servers.vllm import vllm as vllm

__all__ = [
    "Edited", "Finding", "Findings", "Note", "SERVERS", "SIZE_SERVERS", "Server", "ServerConfig",
    "TOKEN_SERVERS", "config", "edit", "edited", "file_name", "lint", "parse", "read", "write", "write_all",
    *sorted(ALL),
]  # fmt: skip


if not TYPE_CHECKING:  # a type checker would take any name for one of ours

    def __getattr__(name):
        raise _check.no_attribute(__name__, name)
