"""The card of a published step time, for a file that leaves it out."""

import pytest

from batchsim import servers
from batchsim.servers import cards

KNOWN = cards.on_device("llama-3.1-8b/rtx-4090")


def test_a_known_card_gives_the_memory_and_keeps_what_is_said_of_the_file():
    found = servers.parse("vllm serve llama-3.1-8b --config more.yaml")
    assert any("memory is unlimited" in note for note in found.notes)
    on_card = cards.on_card(found, KNOWN)
    assert on_card.rule.kv_blocks == cards.blocks("llama-3.1-8b/rtx-4090").blocks - 1  # a placeholder
    assert on_card.notes == ("more.yaml is not read, and may set more",)


def test_a_known_card_gives_the_captured_sizes_that_depend_on_it():
    found = servers.parse("sglang serve --model-path llama-3.1-8b")
    largest = [max(each.captured["captured"]) for each in (found, cards.on_card(found, KNOWN))]
    assert largest == [160, 48]


@pytest.mark.parametrize("text", ["vllm serve another-7b", "vllm serve llama-3.1-8b\n# batchsim: gpu='h100'"])
def test_a_file_of_another_model_or_with_a_card_stays(text):
    found = servers.parse(text)
    assert cards.on_card(found, KNOWN) == found


def test_given_memory_replaces_only_what_is_said_of_it():
    found = cards.with_memory(servers.parse("vllm serve a/model --config more.yaml"), 299)
    assert found.rule.kv_blocks == 299
    assert found.notes == (
        "without a gpu, max_num_seqs, max_num_batched_tokens as on a small card",
        "more.yaml is not read, and may set more",
    )
