"""`batchsim published` lists the published service times."""

import re

from shell import refused, run, run_json

import batchsim as bs


def test_published_lists_names_with_sizes_times_and_source():
    text = run("published", "nnunet").stdout
    source = bs.published_source("nnunet/t4/fp16")
    assert re.search(r"nnunet/t4/fp16 +1 to 4 +109\.417 to 409\.599 +Triton, PyTorch", text)
    assert source.source_url in text
    assert source.licence in text
    tables = run_json("published", "nnunet")["tables"]
    assert {table["name"] for table in tables} == set(bs.published_names("nnunet"))
    assert tables[0]["service"]["1"] == 109.417


def test_published_without_a_word_lists_all():
    lines = run("published").stdout
    assert all(f" {name} " in lines for name in bs.published_names())
    assert refused("published", "resnet5").startswith(
        "no published name has 'resnet5'; did you mean 'resnet50/a100-80gb/mixed-fp16', 'resnet50/t4"
    )


def test_a_model_is_measured_at_the_powers_of_two_up_to_32():
    found = run_json("measure", "--model", "mlp", "--width", "8", "--repeats", "2")
    assert [row["batch_size"] for row in found["rows"]] == [1, 2, 4, 8, 16, 32]
