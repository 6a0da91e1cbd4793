"""What the presets of language models' servers share: cards, memory, and words."""

from typing import Any

from batchsim import _check
from batchsim.scenario.data_sheets import RESERVED_GIB, Card, card_named, kv_blocks, model_named
from batchsim.scenario.rules.continuous import MOST

UNCUT = MOST  # a budget that cuts no prompt
NO_MEMORY = "without a number of blocks, or a model and a gpu, memory is taken to be enough"


def card_of(gpu: Any) -> Card | None:
    """Return the card of a name or of its memory in GiB; None for none."""
    if gpu is None:
        return None
    if isinstance(gpu, str):
        return card_named(gpu)
    return Card("a card", float(_check.real("gpu", gpu, above=0)), 0.0, 0.0)


def known_unless(limit: int | None, model: Any) -> Any:
    """Return the model; None if it is not known and need not be, as a limit says how much memory there is."""
    if limit is not None and isinstance(model, str):
        try:
            model_named(model)
        except ValueError:
            return None
    return model


def blocks_beside(
    model: str | None, gpu: Any, gpus: int, block_size: int, memory_utilization: float,
    reserved_gib: float = RESERVED_GIB,
) -> int | None:  # fmt: skip
    """Return the blocks that a model leaves on its cards; None if either is not known."""
    _check.real("the share of the card's memory", memory_utilization, above=0, at_most=1)
    if model is None or gpu is None:
        return None
    return kv_blocks(
        model, gpu, gpus=gpus, block_size=block_size, memory_utilization=memory_utilization,
        reserved_gib=reserved_gib,
    ).blocks  # fmt: skip


def maybe_whole(name: str, value: Any, at_least: int = 1) -> int | None:
    """Return a whole number that may be left out."""
    return None if value is None else _check.whole(name, value, at_least, MOST)
