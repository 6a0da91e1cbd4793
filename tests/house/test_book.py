"""What the book is built from: `make book` builds it, and checks the links of what was built."""

import ast
import doctest
import html
import importlib
import re
import sys
from urllib.parse import parse_qs

import nbformat
import pytest
from places import ROOT
from tracked import notebooks

import batchsim as bs

BOOK = ROOT / "docs" / "book"


@pytest.fixture(scope="module")
def part():
    """Modules of docs/book, by their names: a folder of programs rather than a package."""
    sys.path.insert(0, str(BOOK))
    yield importlib.import_module
    sys.path.remove(str(BOOK))
    for path in BOOK.glob("*.py"):
        sys.modules.pop(path.stem, None)


@pytest.fixture(scope="module")
def sources(part, tmp_path_factory):
    folder = tmp_path_factory.mktemp("book") / "source"
    part("build").build(folder)
    return folder


@pytest.fixture(scope="module")
def lessons(sources):
    return {path.stem: nbformat.read(path, as_version=4) for path in sorted(sources.glob("lessons/*"))}


def words(notebook):
    return "\n".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")


def test_every_public_name_is_in_the_reference_once(part):
    assert part("reference").missing() == set()


@pytest.mark.parametrize("room", ["servers", "device", "theory", "teaching"])
def test_every_public_name_of_a_room_is_in_the_reference(room, sources):
    text = (sources / "reference" / f"{room}.rst").read_text()
    described = re.findall(r"^\.\. (?:auto\w+|py:data):: (\w+)$", text, re.MULTILINE)
    assert described == getattr(bs, room).__all__
    assert f".. currentmodule:: batchsim.{room}" in text


def test_every_page_is_listed_once(sources):
    """Sphinx would warn of one that is not, and of an entry without a page."""
    trees = re.findall(
        r"^```{toctree}\n(.*?)^```$", (sources / "index.md").read_text(), re.MULTILINE | re.DOTALL
    )
    entries = [line for tree in trees for line in tree.splitlines() if line and not line.startswith(":")]
    listed = [re.sub(r".*<(.+)>$", r"\1", entry) for entry in entries]
    pages = [path.relative_to(sources) for path in sources.rglob("*") if path.suffix in (".md", ".rst")]
    there = {page.with_suffix("").as_posix() for page in pages} - {"index"}
    assert sorted(listed) == sorted(there | {"lessons/*"})


def test_every_picture_of_a_page_has_words(sources):
    for path in sources.glob("*.md"):
        assert not re.search(r"!\[\s*\]\(", path.read_text()), path.name


def test_a_rule_is_described_by_its_parameters_and_not_by_what_every_rule_is_asked(part):
    left_out = part("reference").asked_of(bs.SizeOrWait)
    assert {"decide", "wake_s", "title", "check"} <= set(left_out)
    assert not {"max_batch_size", "max_wait_ms"} & set(left_out)


def test_docstrings_are_plain_text_with_examples(part):
    assert doctest.testmod(part("docstrings")).failed == 0
    lines = [
        "Two kinds:",
        "",
        "    a",
        "        b",
        "",
        "    c",
        "",
        "`x` of *these*, y_ and:",
        "",
        ">>> 1",
        "1",
    ]
    part("docstrings").to_rst(lines)
    assert lines[0] == "Two kinds::"
    assert lines[2:6] == ["    a", "        b", "", "    c"]
    assert lines[7:] == [r"`x` of \*these*, y\_ and:", "", ">>> 1", "1"]


def test_every_lesson_is_in_the_book(lessons):
    solved = {path.stem for path in notebooks("notebooks/solutions/*.ipynb")}
    assert set(lessons) == solved | {"00-explorer"}


def test_no_lesson_tells_an_outcome_before_it_is_asked_for(lessons):
    for name, notebook in lessons.items():
        solved = ROOT / "notebooks" / "solutions" / f"{name}.ipynb"
        if not solved.exists():
            continue
        source = nbformat.read(solved, as_version=4)
        hidden = [cell.source for cell in source.cells if "solution" in cell.metadata.get("tags", [])]
        shown = [
            cell for cell in notebook.cells if cell.source in hidden or "<summary>On paper<" in cell.source
        ]
        assert len(shown) == len(hidden)
        for cell in shown:
            assert "hide-cell" in cell.metadata.get("tags", []) or cell.source.startswith("<details>")


def test_four_lessons_show_the_pages_figure_with_their_own_numbers(lessons):
    framed = {}
    for name, notebook in lessons.items():
        for cell in notebook.cells:
            for output in cell.get("outputs", []):
                if "<iframe" in (shown := output.get("data", {}).get("text/html", "")):
                    framed[int(name[:2])] = parse_qs(html.unescape(shown).split("#")[1].split('"')[0])
    assert set(framed) == {1, 3, 4, 5}
    for number, asked in framed.items():
        (notebook,) = (notebook for name, notebook in lessons.items() if int(name[:2]) == number)
        code = " ".join(cell.source for cell in notebook.cells if cell.cell_type == "code")
        for name, (value,) in asked.items():
            if name not in ("views", "controls", "rate_per_s"):  # lesson 3 has ten arrivals instead of a rate
                assert re.search(rf"\b{re.escape(value)}\b", code), (number, name, value)
        assert set(asked["views"][0].split()) <= {"film", "latency", "map", "load", "breakdown"}


def test_a_prediction_can_be_read_without_a_kernel(lessons):
    for notebook in lessons.values():
        for cell in notebook.cells:
            if cell.source.startswith("predict("):
                assert "remove-input" in cell.metadata.tags
                page = cell.outputs[0].data["text/html"]
                call = ast.parse(cell.source).body[0].value
                asked = next(word.value for word in call.keywords if word.arg == "choices")
                assert page.count("<details>") == len(ast.literal_eval(asked))
                assert page.count("✓ Right.") == 1


def test_the_words_of_a_lesson_are_those_of_a_page(lessons):
    for notebook in lessons.values():
        assert "Commit" not in words(notebook)
        assert "solutions/" not in words(notebook)
    assert lessons["01-why-batch"].cells[0].source.startswith("# Lesson 1: Why ")


def test_a_live_picture_is_said_to_be_a_stored_one(lessons):
    for notebook in lessons.values():
        for cell in notebook.cells:
            if re.search(r"\bbs\.(explore|film)\(", cell.source) and cell.cell_type == "code":
                told = [output.get("data", {}).get("text/markdown", "") for output in cell.outputs]
                assert "stored picture" in " ".join(told)


def test_a_link_leads_to_a_page_or_names_the_file(part):
    lead, pages = part("build").led, {"docs/a.md": "a.md", "notebooks/solutions/b.ipynb": "lessons/b.ipynb"}
    assert lead("[b](../notebooks/b.ipynb#x)", "docs/a.md", pages) == "[b](lessons/b.ipynb#x)"
    assert lead("[b](b.ipynb) [a](../../docs/a.md)", "notebooks/solutions/b.ipynb", pages) == (
        "[b](b.ipynb) [a](../a.md)"
    )
    assert lead("The [licence](../LICENSE).", "docs/a.md", pages) == "The licence (`LICENSE`)."
    assert lead("[LICENSE](../LICENSE)", "docs/a.md", pages) == "`LICENSE`"
    assert lead("`[a](b)` and [w](https://x.org)", "docs/a.md", pages) == "`[a](b)` and [w](https://x.org)"
    with pytest.raises(ValueError, match=r"got 'no\.md' in docs/a\.md"):
        lead("[b](no.md)", "docs/a.md", pages)


def test_the_check_of_a_site_finds_what_leads_nowhere_and_what_is_fetched(part, tmp_path):
    (tmp_path / "a.html").write_text(
        '<a href="b.html#here">b</a> <a href="b.html#gone">b</a> <a href="c.html">c</a>'
        '<a href="https://x.org">x</a>'
        '<script src="https://cdn.org/m.js"></script><link rel="stylesheet" href="//fonts.org/f.css">'
        '<link rel="canonical" href="https://x.org">'
        '<img src="p.png" alt="p.png"><img src="p.png" alt="Two lines">'
    )
    (tmp_path / "b.html").write_text('<p id="here"></p>')
    (tmp_path / "p.png").write_bytes(b"")
    (tmp_path / "s.css").write_text("@import url(https://fonts.org/f.css); a { background: url(data:x) }")
    found = part("check").problems(tmp_path)
    assert [line.rpartition(" ")[2] for line in found] == [
        "b.html#gone", "c.html", "https://cdn.org/m.js", "//fonts.org/f.css", "p.png", "https://fonts.org/f.css",
    ]  # fmt: skip
