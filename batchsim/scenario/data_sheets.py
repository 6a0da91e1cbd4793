"""Data sheets of language models and of the cards that serve them."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from batchsim import _check

GIB = 2**30
T = TypeVar("T")


@dataclass(frozen=True)
class LanguageModel:
    """The shape of a dense language model: what its weights, keys and values take.

    >>> LanguageModel("mine", layers=32, heads=32, kv_heads=8, head_size=128, parameters=8.03e9).kv_bytes()
    131072
    """

    name: str
    layers: int
    heads: int
    kv_heads: int  # fewer than heads where several queries share a key
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
    """A GPU: its memory as CUDA reports it, which is less than the name says, bandwidth and rate of products.

    `tera_flops`: 16-bit products summed in 32 bits, dense. `flops_share`: how much of it prompts reach.
    """

    name: str
    memory_gib: float
    gigabytes_per_s: float
    tera_flops: float
    flops_share: float = 0.5


def _models(rows: Iterable[tuple[str, int, int, int, int, float]]) -> dict[str, LanguageModel]:
    return {name: LanguageModel(name, *numbers) for name, *numbers in rows}  # type: ignore[arg-type]


# Their authors' config.json, and the sums of their tensors.
MODELS = _models((
    ("llama-2-7b", 32, 32, 32, 128, 6.738e9), ("llama-2-13b", 40, 40, 40, 128, 13.016e9),
    ("llama-2-70b", 80, 64, 8, 128, 68.977e9), ("llama-3-8b", 32, 32, 8, 128, 8.030e9),
    ("llama-3.1-8b", 32, 32, 8, 128, 8.030e9), ("llama-3-70b", 80, 64, 8, 128, 70.554e9),
    ("llama-3.1-70b", 80, 64, 8, 128, 70.554e9), ("llama-3.3-70b", 80, 64, 8, 128, 70.554e9),
    ("mistral-7b", 32, 32, 8, 128, 7.242e9), ("mistral-nemo-12b", 40, 32, 8, 128, 12.248e9),
    ("qwen2-7b", 28, 28, 4, 128, 7.616e9), ("qwen2.5-7b", 28, 28, 4, 128, 7.616e9),
    ("qwen3-32b", 64, 64, 8, 128, 32.762e9), ("yi-34b", 60, 56, 8, 128, 34.389e9),
    ("opt-13b", 40, 40, 40, 128, 12.853e9), ("opt-66b", 64, 72, 72, 128, 65.7e9),
    ("opt-175b", 96, 96, 96, 128, 175e9), ("bloom-176b", 70, 112, 112, 128, 176.25e9),
))  # fmt: skip

# The makers' data sheets, without sparsity; the memory is what CUDA reports, from servers' public logs.
# A GeForce card sums in 32 bits at half the rate of its tensor cores (165 of 330 TFLOP/s). Prompts reach all
# of that half: 167 TFLOP/s by the published steps of the RTX 4090.
CARDS = {
    card.name: card
    for card in (
        Card("rtx-4090", 23.65, 1008, 165, flops_share=1), Card("l40s", 44.4, 864, 362),
        Card("a100-40gb", 39.4, 1555, 312), Card("a100-80gb", 79.15, 2040, 312),
        Card("h100", 79.2, 3350, 989.5), Card("h200", 139.8, 4800, 989.5),
    )
}  # fmt: skip


def _plain(name: str) -> str:
    """Return a name as the tables have it: without its owner, its tuning, and what it is sold as."""
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
        raise ValueError(f"{what} must be one whose data sheet is known, got {name!r}{hint}")
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
