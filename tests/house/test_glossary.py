"""The glossary: every place in the code that it names is there, and every lesson leads to it."""

import functools
import re

import nbformat
import pytest
from places import ROOT
from tracked import notebooks

import batchsim as bs
from batchsim.result.metrics import COMPONENTS, COMPUTING

PATH = ROOT / "docs" / "glossary.md"
NOTEBOOKS = notebooks("notebooks/**/[0-9]*-*.ipynb")
ENTRY = re.compile(r"^### (?P<word>.+)\n\n(?P<meaning>.+)\n\n(?P<where>.+)$", re.MULTILINE)
ENTRIES = {entry["word"]: entry for entry in ENTRY.finditer(PATH.read_text())}

# Words for the same thing that the picture, the shell and the lessons do not use.
OTHER_WORDS = {
    "came free": "became free",
    "waiting for company (ms)": "forming",
    "waiting for the server (ms)": "queueing",
    "max num batched tokens": "step budget",
    "max num seqs": "number of seats",
}


def test_picture_shell_and_lessons_use_one_word_for_one_thing():
    paths = [
        path for folder in ("batchsim", "docs", "notebooks") for path in sorted((ROOT / folder).rglob("*.*"))
    ]
    texts = {path: path.read_text() for path in paths if path.suffix in (".py", ".md", ".ipynb", ".toml")}
    found = [(path.name, word) for path, text in texts.items() for word in OTHER_WORDS if f" {word}" in text]
    assert [each for each in found if each[0] != "student.ipynb"] == []


every_entry = pytest.mark.parametrize("word", ENTRIES)
every_notebook = pytest.mark.parametrize(
    "path", dict.fromkeys(NOTEBOOKS), ids=lambda path: "-".join(path.parts[-2:])
)


def places(word):
    return re.findall(r"`([^`]+)`", ENTRIES[word]["where"])


@functools.cache
def examples():
    """Of a run of batches, and of one of tokens: what the places begin with."""
    batches = bs.Scenario(bs.Poisson(800), bs.SizeOrWait(8, 5), bs.Affine(5, 0.5), servers=2)
    tokens = bs.Scenario(
        bs.Poisson(2), bs.Continuous(4), bs.StepTime(10, 5, 0.1, 0.001), tokens=bs.Tokens(20, 4)
    )
    batcher = bs.InferenceBatcher(len, max_batch_size=8, max_wait_ms=5)
    return [
        {
            "bs": bs,
            "batcher": batcher,
            "scenario": scenario,
            "rule": scenario.rule,
            "result": bs.simulate(scenario, requests, seed=1),
        }
        for scenario, requests in ((batches, 40_000), (tokens, 50))
    ]


def is_there(place):
    return any(found(place, names) for names in examples())


def found(place, names):
    try:
        eval(place, dict(names))
    except (AttributeError, KeyError):
        owner, _, field = place.rpartition(".")  # a field without a default is in no class
        return field in getattr(eval(owner, dict(names)), "__dataclass_fields__", ())
    except ValueError:  # of tokens alone
        return False
    return True


def test_every_heading_is_an_entry():
    words = re.findall(r"^### (.+)$", PATH.read_text(), re.MULTILINE)
    assert words == list(ENTRIES), "a word, a paragraph that explains it, a line that says where it is met"
    assert len(set(words)) == len(words)


def test_a_word_is_explained_in_a_few_sentences():
    meanings = {word: entry["meaning"] for word, entry in ENTRIES.items()}
    assert [word for word, meaning in meanings.items() if not meaning.endswith(".")] == []
    assert [word for word, meaning in meanings.items() if len(re.findall(r"\.(?= |$)", meaning)) > 3] == []


@every_entry
def test_a_word_is_met_in_the_code_where_the_glossary_says(word):
    assert "Code: " in ENTRIES[word]["where"]
    assert places(word)
    assert [place for place in places(word) if not is_there(place)] == []


def test_the_unit_of_a_word_is_that_of_its_name_in_the_code():
    units = {"ms": "ms", "per_s": "requests per s", "s": "s"}
    wrong = []
    for word, entry in ENTRIES.items():
        said = re.match(r"Unit: ([^.]+)\.", entry["where"])
        for end in re.findall(r"`[\w.]+?_(ms|per_s|s)`", entry["where"]):
            if not said or said[1] != units[end]:
                wrong.append(word)
    assert wrong == []


def test_the_words_of_a_result_are_all_there():
    triggers = {trigger.name.lower() for trigger in bs.Trigger}
    assert triggers | {*COMPONENTS} | {*COMPUTING} - {"preempted"} <= set(ENTRIES)
    assert {"TTFT", "TPOT", "preemption", "KV cache", "load", "utilisation", "throughput"} <= set(ENTRIES)


@every_notebook
def test_a_notebook_of_the_course_leads_to_the_glossary(path):
    notebook = nbformat.read(path, as_version=4)
    text = "\n".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")
    links = re.findall(r"\[glossary\]\(([^)#]+)(?:#[^)]*)?\)", text)
    assert links, "say: The words are explained in the [glossary](../../docs/glossary.md)."
    assert {(path.parent / link).resolve() for link in links} == {PATH}


def test_links_within_the_glossary_lead_to_a_word():
    words = {word.lower().replace(" ", "-") for word in ENTRIES}
    assert set(re.findall(r"\]\(#([^)]+)\)", PATH.read_text())) <= words
