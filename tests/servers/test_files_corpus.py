"""A corpus of files as engineers have them, written by hand: each is read, edited, written and read again.

The documents are in tests/data/servers_corpus, several in a text. What is right of each stands in its table,
`expected.txt`, and comes from the servers' documentation and source.
"""

import dataclasses
import re
from typing import NamedTuple

import pytest
from corpus import documents, table
from places import DATA

import batchsim as bs
from batchsim import servers
from batchsim.servers import files
from batchsim.servers.registry import ALL

CORPUS = DATA / "servers_corpus"
RULES = vars(bs) | {name: getattr(servers, name) for name in ALL if hasattr(servers, name)}
# The limits of a file without any, and how the table calls them.
NO_LIMITS = {
    "queue_limit": None,
    "timeout_ms": None,
    "pad_to": (),
    "devices": None,
    "timeout_action": "reject",
}
ON_EACH_GPU = "instances are on each GPU"  # of most Triton files: tests of their own
SHORT = dict(zip(("queue", "timeout", "pad", "devices", "action"), NO_LIMITS, strict=True))


class Row(NamedTuple):
    """What is right of a document: its rule, its servers, its limits, its notes, and one line of an edit."""

    name: str
    rule: str
    count: str
    limits: str
    notes: str
    edit: str
    line: str


TABLE = table(CORPUS, Row)
ROWS = [row for row in TABLE if not row.name.startswith("~")]  # for which no reader exists yet
DOCUMENTS = documents(CORPUS)


def values(text):
    """The numbers and words of "queue=64 timeout=250"."""
    return {name: eval(value) for name, value in re.findall(r"(\w+)=(\S+)", text)}


def test_the_table_has_each_document_once():
    assert sorted(row.name.lstrip("~") for row in TABLE) == sorted(DOCUMENTS)
    assert len(ROWS) >= 150


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_a_document_is_read_edited_written_and_read_again(row, tmp_path):
    path = tmp_path / row.name
    path.write_text(DOCUMENTS[row.name])
    if row.rule == "refused":
        with pytest.raises(ValueError, match=row.notes):
            servers.read(path)
        return
    found = servers.read(path)
    is_meant(found, row)
    form = files.document(path.read_text(), None, None, path).form
    assert servers.write(found.server, found, form.file) == path.read_text()
    if row.edit:
        is_edited(path, found, row)


def is_meant(found, row):
    """Check that a file means what the table says of it."""
    count, _, replicas = row.count.partition("x")
    assert found.rule == eval(row.rule, dict(RULES))
    assert (found.servers, found.replicas) == (int(count), int(replicas or 1))
    limits = NO_LIMITS | {SHORT[name]: value for name, value in values(row.limits).items()}
    assert {name: getattr(found, name) for name in limits} == limits
    # A server of language models says so wherever its file does not tell the memory or the card.
    usual = [note for note in found.notes if re.match("memory is unlimited|without a gpu", note)]
    left_out = {*ALL[found.server].by_card[0]} - {*found.settings}
    unsaid = ["unlimited"] * (getattr(found.rule, "kv_blocks", 0) is None)
    unsaid += ["as on a small card"] * (bool(left_out) and "gpu" not in found.settings)
    assert len(usual) == bool(unsaid)
    assert all(word in usual[0] for word in unsaid)
    said = [note for note in found.notes if note not in usual and not note.startswith(ON_EACH_GPU)]
    said += [f"?{key}" for key in found.unknown]
    if row.notes != "*":
        phrases = [each.replace("?", r"\?.*", 1) for each in row.notes.split("; ") if each]
        assert len(said) == len(phrases), said
        assert all(map(re.search, phrases, said)), said


def is_edited(path, found, row):
    """Check that an edit changes one line of the file, which then means the new rule, and back."""
    rule = dataclasses.replace(found.rule, **values(row.edit))
    old, new = path.read_text().splitlines(), servers.edit(path, rule).text.splitlines()
    (line,) = [each for each in new if each not in old]
    assert row.line in ("?", line.strip())
    gone = [each for each in old if each not in new]
    assert len(gone) == len(old) + 1 - len(new) <= 1
    for wanted in (rule, found.rule):
        path.write_text(servers.edit(path, wanted).text)
        again, meant = servers.read(path), dataclasses.replace(found, rule=wanted)
        assert plain(again) == plain(meant)


def plain(config):
    """A config without its settings, and without the note on those that depend on the card."""
    notes = (re.sub("(; )?without a gpu.*", "", note) for note in config.notes)
    return dataclasses.replace(config, settings={}, notes=[*filter(None, notes)])
