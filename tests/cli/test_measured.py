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


def test_published_lists_the_watts_of_servers_with_their_joules_and_source():
    text, llama = run("published", "llama-3.1-8b/h100").stdout, bs.published_watts("llama-3.1-8b/h100")
    sizes, watts, joules = zip(
        *((size, llama.watts[size], llama.joules[size]) for size in llama.watts), strict=True
    )
    row = [f"{column[0]:g} to {column[-1]:g}" for column in (sizes, watts, joules)]
    assert re.search(" +".join(["llama-3.1-8b/h100", *row, "token", llama.backend]), text)
    assert llama.source_url in text
    (found,) = [each for each in run_json("published", "llama-3.1-8b")["watts"] if each["name"] == llama.name]
    assert found["watts"] == {str(size): each for size, each in llama.watts.items()}
    assert found["joules"]["8"] == llama.joules[8]
    only = bs.published_names(watts=True)[-1]
    assert {*run_json("published", only)} == {"watts"}


def test_published_without_a_word_lists_all():
    lines = run("published").stdout
    assert all(f" {name} " in lines for watts in (False, True) for name in bs.published_names(watts=watts))
    assert refused("published", "resnet5").startswith(
        "no published name has 'resnet5'; did you mean 'resnet50/a100-80gb/mixed-fp16', 'resnet50/t4"
    )


def test_a_model_is_measured_at_the_powers_of_two_up_to_32():
    found = run_json("measure", "--model", "mlp", "--width", "8", "--repeats", "2")
    assert [row["batch_size"] for row in found["rows"]] == [1, 2, 4, 8, 16, 32]
