"""Memory for keys and values, from data sheets, held against what servers logged."""

import pytest
from refusals import refusals

import batchsim as bs
from batchsim.scenario.data_sheets import CARDS, MODELS, LanguageModel, card_named, model_named


@pytest.mark.parametrize(
    ("model", "gpu", "gpus", "logged", "error"),
    [
        # vLLM 0.19 of the measured run (shared data), and pull requests 2031 and 10511 of vllm-project/vllm.
        ("llama-3.1-8b", "rtx-4090", 1, 2588, 0.005),
        ("llama-2-7b", "a100-80gb", 1, 7351, 0.001),
        ("llama-3-8b", "h100", 1, 53.29 * 512, 0.034),
    ],
)
def test_blocks_are_as_many_as_vllm_logged(model, gpu, gpus, logged, error):
    found = bs.kv_blocks(model, gpu, gpus=gpus)
    assert abs(found.blocks - logged) / logged == pytest.approx(0, abs=error)


def test_the_number_is_that_of_the_formula():
    # 10 GiB, half of it used; 1e9 parameters of one byte; 2 * 2 * 3 * 64 numbers of 2 bytes a token.
    model = LanguageModel("small", layers=2, heads=6, kv_heads=3, head_size=64, parameters=1e9)
    found = bs.kv_blocks(
        model, 10, weight_bytes=1, memory_utilization=0.5, reserved_gib=1, block_size=32
    )  # fmt: skip
    assert (found.token_bytes, found.blocks) == (1536, int((4 * 2**30 - 1e9) // (1536 * 32)))
    assert found.tokens == 32 * found.blocks
    assert bs.Continuous(kv_blocks=found).kv_blocks == found.blocks  # it is a whole number
    # Six cards: a sixth of the weights on each, and one head of three, as none is cut: each is there twice.
    six = bs.kv_blocks(model, 10, gpus=6, weight_bytes=1, memory_utilization=0.5, reserved_gib=1)
    assert six.blocks == int((4 * 2**30 - 1e9 / 6) // (512 * 16))


@pytest.mark.parametrize(("model", "gpus"), [("llama-3.1-70b", 3), ("qwen2.5-7b", 7), ("opt-66b", 16)])
def test_cards_that_cannot_share_the_heads_evenly_are_refused_as_servers_do(model, gpus):
    with pytest.raises(ValueError, match=f"gpus must share the heads of {model} evenly, .* got {gpus}"):
        bs.kv_blocks(model, "h200", gpus=gpus)


@pytest.mark.parametrize(
    ("model", "bytes_"), [("llama-3.1-8b", 131_072), ("llama-2-7b", 524_288), ("llama-3-70b", 327_680)]
)
def test_a_tokens_bytes_are_those_of_the_literature(model, bytes_):
    assert MODELS[model].kv_bytes() == bytes_


@pytest.mark.parametrize(
    "name", ["meta-llama/Llama-3.1-8B-Instruct", "meta-llama/Meta-Llama-3.1-8B", "LLAMA-3.1-8b"]
)
def test_a_model_is_known_by_the_name_it_is_published_under(name):
    assert model_named(name) is MODELS["llama-3.1-8b"]


@pytest.mark.parametrize(
    ("name", "card"),
    [
        ("NVIDIA H100 80GB HBM3", "h100"), ("NVIDIA A100-SXM4-80GB", "a100-80gb"), ("A100", "a100-80gb"),
        ("NVIDIA GeForce RTX 4090", "rtx-4090"), ("4090", "rtx-4090"), ("NVIDIA H200", "h200"),
    ],
)  # fmt: skip
def test_a_card_is_known_by_what_it_says_of_itself(name, card):
    assert card_named(name) is CARDS[card]


def test_what_was_assumed_is_said():
    text = repr(bs.kv_blocks("llama-3.1-70b", "h100", gpus=4))
    for words in ("4 x h100", "79.2 GiB", "90 %", "1.25 GiB", "llama-3.1-70b, 32.85 GiB on each", "327,680"):
        assert words in text


@refusals
def test_what_cannot_be_is_refused():
    """
    bs.kv_blocks("llama-3.1-8", "h100") -> did you mean 'llama-3.1-8b'
    bs.kv_blocks("llama-3.1-8b", "h1000") -> got 'h1000'; did you mean 'h100'
    bs.kv_blocks("llama-3.1-70b", "h100") -> 131.4 GiB on each card
    bs.kv_blocks("llama-3.1-8b", "h100", gpus=0) -> gpus must be at least 1
    bs.kv_blocks("llama-3.1-8b", 24, memory_utilization=1.1) -> at most 1
    bs.kv_blocks(8, "h100") -> TypeError: model must be a name, or a LanguageModel
    bs.kv_blocks("llama-3.1-8b", None) -> TypeError: gpu must be a name, or the memory in GiB
    bs.kv_blocks("llama-3.1-8b", float("nan")) -> gpu must be a number
    """
