"""A corpus of results and traces as engineers have them, written by hand: each is read as its table says.

The documents are in tests/data/load_corpus; what is right of each stands in its table, `expected.txt`.
"""

import math
import re
import warnings
from typing import NamedTuple

import pytest
from corpus import documents, table
from places import DATA

import batchsim as bs

CORPUS = DATA / "load_corpus"
DOCUMENTS = documents(CORPUS)


class Row(NamedTuple):
    """What is right of a document: its tool, or "trace" or "tokens"; values; and words of its warnings."""

    name: str
    kind: str
    values: str
    words: str


TABLE = table(CORPUS, Row)
# What a row may say of a stage.
OF_STAGE = {
    "name": lambda stage: stage.name.replace(" ", "_"),
    "served": lambda stage: stage.served_per_s,
    "latency": lambda stage: stage.latency_ms["mean"],
    "ttft": lambda stage: stage.ttft_ms.get("mean", math.nan),
    "tpot": lambda stage: stage.tpot_ms,
    "prompt": lambda stage: stage.prompt_tokens,
    "output": lambda stage: stage.output_tokens,
    "samples": lambda stage: stage.samples,
}


def test_the_table_has_each_document():
    assert {row.name for row in TABLE} == {*DOCUMENTS}


@pytest.mark.parametrize("row", TABLE, ids=lambda row: f"{row.name}-{row.kind.split()[-1]}")
def test_a_document_is_read_as_its_table_says(row, tmp_path):
    path = tmp_path / row.name
    path.write_text(DOCUMENTS[row.name])
    kind = row.kind.removeprefix("refused ")
    reader = {"trace": bs.Trace.from_file, "tokens": bs.Tokens.from_jsonl}.get(kind, bs.load_test)
    if "refused" in row.kind:
        with pytest.raises(ValueError, match=row.words):
            reader(path)
        return
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        found = reader(path)
    said = [str(each.message) for each in said] + getattr(found, "warnings", [])
    words = [each for each in row.words.split("; ") if each]
    assert len(said) == len(words), said
    assert all(map(re.search, words, said)), said
    {"trace": is_trace, "tokens": is_tokens}.get(kind, is_load_test)(found, row)


def is_trace(found, row):
    """Check the times of a trace."""
    assert found.times_s == pytest.approx([float(each) for each in row.values.split(",")])


def is_tokens(found, row):
    """Check the lengths of prompts and answers, and the tokens of a hash id."""
    got = {
        "prompt": found.prompt.values, "output": found.output.values, "piece": [found.prefixes.piece_tokens],
    }  # fmt: skip
    for name, each in re.findall(r"(\w+)=(\S+)", row.values):
        assert list(got[name]) == [int(value) for value in each.split(",")]


def is_load_test(found, row):
    """Check the tool, and a value of each stage."""
    assert f"{found.tool} {found.version}".strip() == row.kind
    for name, each in re.findall(r"(\w+)=(\S+)", row.values):
        got, wanted = [OF_STAGE[name](stage) for stage in found.stages], each.split(",")
        if name != "name":
            wanted = pytest.approx([float(value) for value in wanted], rel=1e-3, nan_ok=True)
        assert got == wanted, name
