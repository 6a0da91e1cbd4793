"""Servers' file formats: what tells a file, how it is read, and how it is written.

protobuf and PyYAML are imported as a file needs them.
"""

from batchsim.servers.formats.document import Document, Format, Source
from batchsim.servers.formats.kserve import INFERENCE_SERVICE
from batchsim.servers.formats.language_servers import FORMATS as _LANGUAGE
from batchsim.servers.formats.python_servers import FORMATS as _PYTHON
from batchsim.servers.formats.tf_serving import BATCHING_PARAMETERS
from batchsim.servers.formats.torchserve import CONFIG_PROPERTIES, MODEL_CONFIG
from batchsim.servers.formats.triton import CONFIG_PBTXT

__all__ = ["FORMATS", "Document", "Format", "Source"]

# Of a server that has two, the one that is written comes first.
FORMATS: tuple[Format, ...] = (
    CONFIG_PBTXT, BATCHING_PARAMETERS, CONFIG_PROPERTIES, MODEL_CONFIG, INFERENCE_SERVICE, *_PYTHON,
    *_LANGUAGE,
)  # fmt: skip
