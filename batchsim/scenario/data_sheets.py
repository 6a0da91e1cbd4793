"""What the data sheets of language models and GPUs say, for a first guess of how long a step takes."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from batchsim import _check

Sheet = TypeVar("Sheet")


@dataclass(frozen=True)
class Model:
    """A dense language model: its size and its attention; weights and keys in bytes a number.

    >>> MODELS["llama-3.1-8b"].read_bytes
    131072.0
    """

    parameters: float
    layers: int
    heads: int
    kv_heads: int
    head_size: int
    bytes_per_weight: float = 2.0
    bytes_per_key: float = 2.0

    def __post_init__(self) -> None:
        for name in ("layers", "heads", "kv_heads", "head_size"):
            _check.fix_whole(self, name)
        for name in ("parameters", "bytes_per_weight", "bytes_per_key"):
            _check.fix_real(self, name, above=0)

    @property
    def weight_bytes(self) -> float:
        return self.parameters * self.bytes_per_weight

    @property
    def read_bytes(self) -> float:
        """The keys and values of one token, in all layers."""
        return 2 * self.layers * self.kv_heads * self.head_size * self.bytes_per_key


@dataclass(frozen=True)
class Gpu:
    """A GPU's rates: dense 16-bit products (no sparsity) with 32-bit sums, and its memory's."""

    tflop_per_s: float
    bandwidth_gb_per_s: float

    def __post_init__(self) -> None:
        _check.fix_real(self, "tflop_per_s", above=0)
        _check.fix_real(self, "bandwidth_gb_per_s", above=0)


# Of the models' configurations (config.json), and the parameters on their cards.
MODELS = {
    "llama-2-7b": Model(6.74e9, 32, 32, 32, 128),
    "llama-3-70b": Model(70.6e9, 80, 64, 8, 128),
    "llama-3.1-8b": Model(8.03e9, 32, 32, 8, 128),
    "llama-3.1-70b": Model(70.6e9, 80, 64, 8, 128),
    "mistral-7b": Model(7.24e9, 32, 32, 8, 128),
    "qwen2.5-7b": Model(7.62e9, 28, 28, 4, 128),
    "qwen3-32b": Model(32.8e9, 64, 64, 8, 128),
}
# Of NVIDIA's data sheets. H100 and H200: SXM.
GPUS = {
    "a100-80gb": Gpu(312, 2039),
    "h100": Gpu(989.5, 3350),
    "h200": Gpu(989.5, 4800),
    "l40s": Gpu(362, 864),
    "rtx-4090": Gpu(165, 1008),
}


def sheet(what: str, given: Any, known: Mapping[str, Sheet], kind: type[Sheet]) -> Sheet:
    """Return a data sheet, given as one or by its name."""
    if isinstance(given, kind):
        return given
    if given not in known:
        hint = _check.nearest(given, known) if isinstance(given, str) else ""
        raise ValueError(
            f"{what} must be one of {', '.join(known)}, or a {kind.__name__}, got {given!r}{hint}"
        )
    return known[given]
