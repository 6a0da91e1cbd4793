"""The paper is within the limits of the Journal of Open Source Education, and cites what its list has."""

import re

from places import ROOT

TEXT = (ROOT / "paper" / "paper.md").read_text()
BODY = TEXT.split("---\n", 2)[2]


def test_the_paper_has_the_length_and_the_sections_that_the_journal_asks_for():
    assert 250 <= len(BODY.split()) <= 1000
    sections = set(re.findall(r"^# (.+)$", BODY, re.MULTILINE))
    assert {"Summary", "Statement of need", "Learning objectives", "Instructional design"} <= sections
    assert {"State of the field", "Experience of use"} <= sections


def test_every_citation_is_in_the_list_and_every_entry_is_cited():
    entries = re.findall(r"^@\w+\{(\w+),", (ROOT / "paper" / "paper.bib").read_text(), re.MULTILINE)
    assert sorted(entries) == sorted(set(re.findall(r"@(\w+)[;\]]", BODY)))


def test_the_figure_is_there():
    for picture in re.findall(r"!\[[^\]]+\]\((\S+)\)", BODY):
        assert (ROOT / "paper" / picture).stat().st_size < 200_000
