"""The first screen of the validation is a page of its own, and each family has another."""

import re

import pytest
from places import ROOT
from validation import page, pages


def test_the_files_are_the_whole_text_and_there_are_no_others():
    written = pages.files(pages.whole())
    assert written == {path: (ROOT / path).read_text() for path in written}
    there = {path.relative_to(ROOT).as_posix() for path in (ROOT / "docs" / "validation").iterdir()}
    assert there == written.keys() - {pages.FIRST}


def test_the_first_page_is_a_screen_and_links_to_each_other_page():
    text = (ROOT / pages.FIRST).read_text()
    assert len(text.splitlines()) < 60
    assert {*re.findall(r"\]\((docs/[^)]+)\)", text)} == {*map(page.place, pages.PAGES)}
    assert text.index("| family |") < text.index(f"## {pages.LAST}")


def test_a_text_comes_back_from_its_files_as_it_was(tmp_path, monkeypatch):
    text = pages.whole().replace("M/M/1, load 0.5", "another row")
    assert text != pages.whole()
    monkeypatch.setattr(pages, "ROOT", tmp_path)
    pages.write(text)
    assert pages.whole() == text


def test_a_section_of_no_family_is_an_error():
    with pytest.raises(ValueError, match=r"a section must be of a page, got A new one$"):
        pages.files(pages.whole() + "\n## A new one\n\nText.\n")
