"""Data sheets of language models and of the cards that serve them."""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

from batchsim import _check
from batchsim._format import counted, number

GIB = 2**30
T = TypeVar("T")


@dataclass(frozen=True)
class LanguageModel:
    """The shape of a dense language model, which determines the memory of its weights, keys and values.

    >>> LanguageModel("mine", layers=32, heads=32, kv_heads=8, head_size=128, parameters=8.03e9).kv_bytes()
    131072
    """

    name: str
    layers: int
    heads: int
    kv_heads: int  # fewer than heads if several queries share a key
    head_size: int
    parameters: float

    def __post_init__(self) -> None:
        for name in ("layers", "heads", "kv_heads", "head_size"):
            _check.fix_whole(self, name)
        _check.fix_real(self, "parameters", above=0, at_most=1e14)
        _check.at_most("kv_heads", self.kv_heads, self.heads, "heads")

    def kv_bytes(self, bytes_each: float = 2) -> int:
        """Return the bytes of one token's keys and values, `bytes_each` a number."""
        return round(2 * self.layers * self.kv_heads * self.head_size * bytes_each)


@dataclass(frozen=True)
class Card:
    """A GPU: its memory as CUDA reports it (less than in its name), bandwidth and rate of products.

    `tera_flops`: 16-bit products summed in 32 bits, dense. `flops_share`: the share that prompts reach.
    """

    name: str
    memory_gib: float
    gigabytes_per_s: float
    tera_flops: float
    flops_share: float = 0.5


# From the authors' config.json, and the sums of their tensors.
MODELS = {name: LanguageModel(name, *numbers) for name, *numbers in (  # type: ignore[arg-type]
    ("llama-2-7b", 32, 32, 32, 128, 6.738e9), ("llama-2-13b", 40, 40, 40, 128, 13.016e9),
    ("llama-2-70b", 80, 64, 8, 128, 68.977e9), ("llama-3-8b", 32, 32, 8, 128, 8.030e9),
    ("llama-3.1-8b", 32, 32, 8, 128, 8.030e9), ("llama-3-70b", 80, 64, 8, 128, 70.554e9),
    ("llama-3.1-70b", 80, 64, 8, 128, 70.554e9), ("llama-3.3-70b", 80, 64, 8, 128, 70.554e9),
    ("mistral-7b", 32, 32, 8, 128, 7.242e9), ("mistral-nemo-12b", 40, 32, 8, 128, 12.248e9),
    ("qwen2-7b", 28, 28, 4, 128, 7.616e9), ("qwen2.5-7b", 28, 28, 4, 128, 7.616e9),
    ("qwen3-32b", 64, 64, 8, 128, 32.762e9), ("yi-34b", 60, 56, 8, 128, 34.389e9),
    ("opt-13b", 40, 40, 40, 128, 12.853e9), ("opt-66b", 64, 72, 72, 128, 65.7e9),
    ("opt-175b", 96, 96, 96, 128, 175e9), ("bloom-176b", 70, 112, 112, 128, 176.25e9),
)}  # fmt: skip

# From the makers' data sheets, without sparsity; the memory is that in servers' public logs of CUDA. A
# GeForce card sums in 32 bits at half the rate of its tensor cores (165 of 330 TFLOP/s), and prompts reach
# all of that half: 167 TFLOP/s in the published steps of the RTX 4090.
CARDS = {
    card.name: card
    for card in (
        Card("rtx-4090", 23.65, 1008, 165, flops_share=1), Card("l40s", 44.4, 864, 362),
        Card("a100-40gb", 39.4, 1555, 312), Card("a100-80gb", 79.15, 2040, 312),
        Card("h100", 79.2, 3350, 989.5), Card("h200", 139.8, 4800, 989.5),
    )
}  # fmt: skip


def _plain(name: str) -> str:
    """Return a name as in the tables: without its owner, its tuning, and its brand."""
    short = re.sub(r"[\s_]+", "-", name.rpartition("/")[2].strip().lower())
    short = re.sub(
        r"-(instruct|chat|hf|base|it|v\d+(\.\d+)*|24\d\d|sxm\d?|sxm-80gb|80gb-sxm)(?=-|$)", "", short
    )
    short = re.sub(r"^(nvidia|meta|geforce)-", "", short)
    return re.sub(r"^(nvidia|geforce)-", "", short)


def _found(what: str, name: str, known: Mapping[str, T], also: Mapping[str, str]) -> T:
    plain = _plain(name)
    plain = also.get(plain, plain)
    if plain not in known:
        hint = _check.nearest(plain, known)
        raise ValueError(f"{what} must be in the data sheets, got {name!r}{hint}")
    return known[plain]


def model_named(name: str) -> LanguageModel:
    """Return a model by its name, with or without its owner; ValueError with the nearest names.

    >>> model_named("meta-llama/Llama-3.1-8B-Instruct").kv_heads
    8
    """
    _check.instance("model", name, str, "a name, or a LanguageModel")
    return _found("model", name, MODELS, {"mistral-nemo": "mistral-nemo-12b", "bloom": "bloom-176b"})


def card_named(name: str) -> Card:
    """Return a card by its name; ValueError with the nearest names.

    >>> card_named("NVIDIA GeForce RTX 4090").memory_gib
    23.65
    """
    _check.instance("gpu", name, str, "a name, or the memory in GiB")
    also = {
        "4090": "rtx-4090", "a100": "a100-80gb", "a100-80g": "a100-80gb", "a100-40g": "a100-40gb",
        "a100-sxm4-80gb": "a100-80gb", "a100-sxm4-40gb": "a100-40gb", "h100-80gb": "h100",
        "h100-80gb-hbm3": "h100", "rtx4090": "rtx-4090",
    }  # fmt: skip
    return _found("gpu", name, CARDS, also)


# The blocks of keys and values that fit on a card together with the model.


# Three of vLLM's public logs on one card: 1.2 GiB (0.19, RTX 4090), 1.3 (0.2, A100), 3.0 (0.6, H100).
RESERVED_GIB = 1.25


@dataclass(frozen=True, repr=False)
class KVBlocks:
    """Blocks of memory for keys and values, with the assumptions; it converts to a whole number."""

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
        """The number of tokens that fit."""
        return self.blocks * self.block_size

    def __repr__(self) -> str:
        cards = self.card.name if self.gpus == 1 else f"{self.gpus} x {self.card.name}"
        each = "" if self.gpus == 1 else " on each"
        used = number(100 * self.memory_utilization)
        lines = (
            f"{counted(self.blocks, 'block')} of {self.block_size}: {self.tokens:,} tokens",
            f"  card      {cards}, {number(self.card.memory_gib, 4)} GiB, {used} % of it used",
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
    """Return the number of blocks of keys and values that fit with a model, for `Continuous(kv_blocks=...)`.

    `model` and `gpu` are names (`batchsim.scenario.data_sheets` has them), or a `LanguageModel` and the
    card's memory in GiB. `gpus` share the weights and the heads (tensor parallel). `weight_bytes` of a
    parameter: 2 in 16 bits, 1 in fp8; `kv_bytes` of a key's number. A server uses `memory_utilization` of the
    card (vLLM: gpu_memory_utilization), and `reserved_gib` of that on each card for activations, graphs and
    CUDA itself: a tenth of a GiB is 51 blocks of an 8B model. On three of vLLM's public logs with one card
    this gives +0.4, 0 and +3 %; with several cards too many, because libraries use more there.

    ValueError for an unknown name, with the nearest ones, for gpus that cannot share the heads evenly, and if
    the model alone is too large.

    >>> kv_blocks("llama-3.1-8b", "rtx-4090")
    2,599 blocks of 16: 41,584 tokens
      card      rtx-4090, 23.65 GiB, 90 % of it used
      weights   llama-3.1-8b, 14.96 GiB
      reserved  1.25 GiB for activations, graphs and CUDA
      a token   131,072 bytes of keys and values
    """
    shape = model if isinstance(model, LanguageModel) else model_named(model)
    if isinstance(gpu, (str, bool)) or not isinstance(gpu, (int, float)):
        card = card_named(gpu)  # raises unless it is a name
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
    # A card has whole heads: with more cards than heads, each has a copy.
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
