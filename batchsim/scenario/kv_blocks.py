"""How many blocks of keys and values a card has room for, beside the model."""

import math
from dataclasses import dataclass

from batchsim import _check
from batchsim._format import counted, number
from batchsim.scenario.data_sheets import GIB, Card, LanguageModel, card_named, model_named

# Three of vLLM's public logs on one card: 1.2 GiB (0.19, RTX 4090), 1.3 (0.2, A100), 3.0 (0.6, H100).
RESERVED_GIB = 1.25


@dataclass(frozen=True, repr=False)
class KVBlocks:
    """Blocks of memory for keys and values, and what was assumed; a whole number to whoever asks for one."""

    blocks: int
    block_size: int
    model: LanguageModel
    card: Card
    gpus: int
    weights_gib: float  # on each card
    reserved_gib: float
    memory_utilization: float
    token_bytes: int  # of keys and values, on all cards

    def __index__(self) -> int:
        return self.blocks

    __int__ = __index__

    @property
    def tokens(self) -> int:
        """How many tokens they hold."""
        return self.blocks * self.block_size

    def __repr__(self) -> str:
        cards = self.card.name if self.gpus == 1 else f"{self.gpus} x {self.card.name}"
        each = "" if self.gpus == 1 else " on each"
        used = number(100 * self.memory_utilization)
        lines = (
            f"{counted(self.blocks, 'block')} of {self.block_size}: {self.tokens:,} tokens",
            f"  card      {cards}, {number(self.card.memory_gib, 4)} GiB, of which {used} % is used",
            f"  weights   {self.model.name}, {number(self.weights_gib, 4)} GiB{each}",
            f"  reserved  {number(self.reserved_gib)} GiB{each} for activations, graphs and CUDA",
            f"  a token   {self.token_bytes:,} bytes of keys and values",
        )
        return "\n".join(lines)


def kv_blocks(
    model: str | LanguageModel, gpu: str | float, *, gpus: int = 1, block_size: int = 16,
    weight_bytes: float = 2, kv_bytes: float = 2, memory_utilization: float = 0.9,
    reserved_gib: float = RESERVED_GIB,
) -> KVBlocks:  # fmt: skip
    """Return how many blocks of keys and values fit beside a model, for `Continuous(kv_blocks=...)`.

    `model` and `gpu` are names (`batchsim.scenario.data_sheets` has them), or a `LanguageModel` and the
    card's memory in GiB. `gpus` share the weights and the heads (tensor parallel). `weight_bytes` of a
    parameter: 2 in 16 bits, 1 in fp8; `kv_bytes` of a key's number. A server uses `memory_utilization` of the
    card (vLLM: gpu_memory_utilization), of which `reserved_gib` on each card go to activations, graphs and
    CUDA itself: a tenth of a GiB more or less are 51 blocks of an 8B model. On three of vLLM's public logs
    with one card this gives +0.4, 0 and +3 %; with several it gives too many, as libraries take more there.

    ValueError for a name that is not known, with the nearest ones, for gpus that cannot share the heads
    evenly, and where the model alone is too large.

    >>> kv_blocks("llama-3.1-8b", "rtx-4090")
    2,599 blocks of 16: 41,584 tokens
      card      rtx-4090, 23.65 GiB, of which 90 % is used
      weights   llama-3.1-8b, 14.96 GiB
      reserved  1.25 GiB for activations, graphs and CUDA
      a token   131,072 bytes of keys and values
    """
    shape = model if isinstance(model, LanguageModel) else model_named(model)
    if isinstance(gpu, (str, bool)) or not isinstance(gpu, (int, float)):
        card = card_named(gpu)  # refuses what is no name
    else:
        card = Card("a card", float(_check.real("gpu", gpu, above=0)), math.nan, math.nan)
    gpus = _check.whole("gpus", gpus, at_most=65_536)
    if shape.heads % gpus or (shape.kv_heads % gpus and gpus % shape.kv_heads):
        has = f"{shape.heads} heads and {shape.kv_heads} of keys and values"
        raise ValueError(f"gpus must share the heads of {shape.name} evenly, {has}, got {gpus}")
    block_size = _check.whole("block_size", block_size, at_most=2**31)
    _check.real("weight_bytes", weight_bytes, above=0, at_most=8)
    _check.real("kv_bytes", kv_bytes, above=0, at_most=8)
    _check.real("memory_utilization", memory_utilization, above=0, at_most=1)
    _check.real("reserved_gib", reserved_gib, at_least=0)
    weights_gib = shape.parameters * weight_bytes / gpus / GIB
    left_gib = card.memory_gib * memory_utilization - weights_gib - reserved_gib
    # A card has whole heads: with more cards than heads each holds a copy.
    heads = math.ceil(shape.kv_heads / gpus)
    token_bytes = shape.kv_bytes(kv_bytes)
    block_gib = token_bytes / shape.kv_heads * heads * block_size / GIB
    blocks = math.floor(left_gib / block_gib)
    if blocks < 1:
        must = f"the weights of {shape.name}, {number(weights_gib, 4)} GiB on each card, must leave room"
        usable = number(card.memory_gib * memory_utilization, 4)
        taken = f"{number(reserved_gib)} GiB of them reserved"
        raise ValueError(f"{must} for a block, got {usable} GiB of {card.name}, {taken}")
    return KVBlocks(
        blocks, block_size, shape, card, gpus, weights_gib, float(reserved_gib), float(memory_utilization),
        token_bytes,
    )  # fmt: skip
