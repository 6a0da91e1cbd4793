"""The card of a published step time, and its memory where nobody says how many blocks there are."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace

from batchsim.scenario.data_sheets import KVBlocks, card_named, kv_blocks, model_named
from batchsim.servers.registry import ALL, with_more
from batchsim.servers.server import ServerConfig

MODELS = "model", "model_path", "model_id"  # what servers call the setting for the model


def on_device(name: str) -> dict[str, str]:
    """Return the settings for the model and the card of a published step time; {} if one is unknown.

    >>> on_device("llama-3.1-8b/rtx-4090")["gpu"], on_device("llama-2-7b/gh200/vllm")
    ('rtx-4090', {})
    """
    model, _, card = name.partition("/")
    with suppress(ValueError):
        model_named(model)
        card = card_named(card.partition("/")[0]).name
        return dict.fromkeys(MODELS, model) | {"gpu": card}
    return {}


def blocks(name: str, block_size: int = 16) -> KVBlocks | None:
    """Return the blocks that the model of a published step time leaves on its card; None if unknown.

    >>> blocks("llama-3.1-8b/rtx-4090").blocks, blocks("llama-2-7b/gh200/vllm")
    (2599, None)
    """
    known = on_device(name)
    return kv_blocks(known["model"], known["gpu"], block_size=block_size) if known else None


def on_card(config: ServerConfig, known: Mapping[str, str]) -> ServerConfig:
    """Return a config with the memory of a known card, if it leaves out the card of the same known model."""
    given = config.settings
    model = next((given[name] for name in MODELS if name in given), None)
    with suppress(ValueError):  # a model without a data sheet
        if known and model and "gpu" not in given and model_named(model) is model_named(known["model"]):
            return with_more(config, {"gpu": known["gpu"]})
    return config


def with_memory(config: ServerConfig, kv_blocks: int | None) -> ServerConfig:
    """Return a config with so many blocks, in its server's own settings, if it leaves its memory open.

    >>> from batchsim import servers
    >>> with_memory(servers.parse("vllm serve a/model"), 299).settings["num_gpu_blocks_override"]
    300
    """
    if kv_blocks is None or getattr(config.rule, "kv_blocks", 0) is not None:
        return config
    own, rule = ALL[config.server], replace(config.rule, kv_blocks=kv_blocks)  # type: ignore[type-var]
    before, after = (own.extras(replace(config, rule=each)) for each in (config.rule, rule))
    return with_more(config, {name: each for name, each in after.items() if before.get(name) != each})
