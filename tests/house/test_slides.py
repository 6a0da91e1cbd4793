"""The slides of the lessons, as cells: `make slides` writes them as pages."""

import base64
import importlib
import re
import sys

import nbformat
import numpy as np
import pytest
from places import ROOT
from tracked import notebooks

BOOK = ROOT / "docs" / "book"
LESSONS = notebooks("notebooks/solutions/*.ipynb")

every_lesson = pytest.mark.parametrize("path", LESSONS, ids=lambda path: path.stem)


@pytest.fixture(scope="module")
def slides():
    sys.path.insert(0, str(BOOK))
    yield importlib.import_module("slides")
    sys.path.remove(str(BOOK))
    sys.modules.pop("slides", None)


def deck(slides, *cells):
    return slides.slides(nbformat.v4.new_notebook(cells=list(cells))).cells


def pages(cells):
    """The cells of each slide."""
    found = []
    for cell in cells:
        if cell.metadata.slideshow.slide_type != "-":
            found.append([])
        found[-1].append(cell)
    return found


def text(cells):
    return "\n".join(cell.source for cell in cells)


def markdown(source, **metadata):
    return nbformat.v4.new_markdown_cell(source, metadata=metadata)


def code(source, *outputs, **metadata):
    return nbformat.v4.new_code_cell(source, outputs=list(outputs), metadata=metadata)


def printed(words):
    return nbformat.v4.new_output("stream", text=words)


@every_lesson
def test_every_slide_begins_with_a_heading_and_holds_no_more_than_there_is_room_for(path, slides):
    for page in pages(slides.slides(nbformat.read(path, as_version=4)).cells):
        assert page[0].source.startswith("#")
        assert len(page) > 1
        lines = [
            slides.height(cell.outputs[0]) if cell.cell_type == "code" else slides.lines_of(cell.source)
            for cell in page[1:]
        ]
        assert len(lines) == 1 or sum(lines) <= slides.ROOM + 3, "code is a little smaller than its lines say"


@every_lesson
def test_an_outcome_comes_on_a_slide_after_its_question(path, slides):
    lesson = nbformat.read(path, as_version=4)
    shown = pages(slides.slides(lesson).cells)
    asking = [index for index, page in enumerate(shown) if "**Predict:**" in text(page)]
    assert len(asking) == sum(cell.source.startswith("predict(") for cell in lesson.cells)
    for index in asking:
        assert "A. " in text(shown[index])
        assert all(cell.cell_type == "markdown" for cell in shown[index]), "nothing that answers it"
        assert shown[index + 1][1].source.startswith("**")


@every_lesson
def test_no_solution_and_no_link_to_a_file_is_on_a_slide(path, slides):
    lesson = nbformat.read(path, as_version=4)
    cells = slides.slides(lesson).cells
    assert "check(" not in text(cells)
    assert "Right: " not in str([cell.get("outputs") for cell in cells])
    assert [link for link in re.findall(r"\]\(([^)]+)\)", text(cells)) if "://" not in link] == []
    assert "Run this cell" not in text(cells)
    assert "**Commit**" not in text(cells)


def test_headings_and_predictions_and_explanations_begin_slides(slides):
    shown = pages(
        deck(
            slides,
            markdown("# Why?\n\nA question."),
            markdown(
                "## At night\n\nFew requests.\n\n<details><summary>Why</summary>\n\nBecause.\n\n</details>"
            ),
            code("predict('which?', choices=['a', 'b'], answer='a', because='So it is.', then=print)"),
            code("outcome()", printed("3 ms"), tags=["solution"]),
            markdown("### A detail\n\nMore."),
        )
    )
    assert [text(page).split("\n")[0] for page in shown] == [
        "# Why?", "## At night", "## At night", "## At night", "## A detail",
    ]  # fmt: skip
    kinds = [page[0].metadata.slideshow.slide_type for page in shown]
    assert kinds == ["slide", "slide", "subslide", "subslide", "subslide"]
    assert [cell.source for cell in shown[1][1:]] == ["Few requests.", "Because."]
    assert [cell.source for cell in shown[2][1:]] == ["**Predict:** which?", "A. a", "B. b"]
    assert shown[3][1].source == "**a.** So it is."
    assert shown[3][2].outputs[0].text == "3 ms"


@every_lesson
def test_no_slide_has_one_line_only(path, slides):
    for page in pages(slides.slides(nbformat.read(path, as_version=4)).cells):
        told = [cell for cell in page[1:] if cell.cell_type == "markdown"]
        if len(told) == len(page) - 1 and not re.search("<div|not part of the 45 minutes", text(page)):
            assert sum(slides.lines_of(cell.source) for cell in told) > slides.SHORT, text(page)


@every_lesson
def test_a_slide_has_one_long_paragraph_or_a_few_short_ones(path, slides):
    for page in pages(slides.slides(nbformat.read(path, as_version=4)).cells):
        told = [cell.source for cell in page if cell.cell_type == "markdown" and slides.is_prose(cell.source)]
        lines = sorted(map(slides.lines_of, told))
        long = [each for each in lines if each > slides.SHORT]
        assert len(long) < 2 or sum(lines) <= slides.PROSE + slides.SHORT or "<div" in text(page), text(page)


@every_lesson
def test_a_slide_asks_for_nothing_that_only_a_notebook_has(path, slides):
    said = text(cells := slides.slides(nbformat.read(path, as_version=4)).cells)
    said += str([cell.outputs for cell in cells if cell.cell_type == "code"])
    asked = r"Run\s+this\s+cell|[Pp]ress\s+(Play|\*\*)|Drag\s+\*\*|click\s+the|JupyterLab\s+folds"
    assert re.findall(asked, said) == []


@every_lesson
def test_text_about_a_picture_stands_beside_it(path, slides):
    """An explanation that names a line or a column has the picture or the table on its slide."""
    lesson, outcome = nbformat.read(path, as_version=4), False
    shown = pages(slides.slides(lesson).cells)
    for cell in lesson.cells:
        outcome = slides.aside(cell.outputs) if cell.cell_type == "code" and cell.outputs else outcome
        if cell.cell_type == "code" and cell.source.startswith("predict("):
            outcome = ""
        told = slides.FOLDED.search(cell.source) if cell.cell_type == "markdown" else None
        if told and outcome and "Explanation" in told[1] and slides.POINTS.search(told[2]):
            first = slides.blocks(slides.shown(told[2]))[0].partition("\n")[0]
            (page,) = [page for page in shown if first in text(page)]
            assert "<div class" in text(page) or any(each.get("outputs") for each in page)


def test_the_list_of_lessons_is_a_styled_page(slides, tmp_path):
    pytest.importorskip("sphinx_revealjs")
    slides.export(tmp_path)
    page = (tmp_path / "index.html").read_text()
    assert "<style>" in page
    assert len(re.findall(r'<a href="\d\d-[\w-]+\.html"><b>\d\d</b> .*</a> <i>\d+ slides</i>', page)) == len(
        LESSONS
    )


def test_text_that_has_no_room_goes_on_below_the_same_heading(slides):
    paragraph = "word " * 60
    shown = pages(deck(slides, markdown("## Long\n\n" + "\n\n".join([paragraph] * 6))))
    assert [text(page).split("\n")[0] for page in shown] == ["## Long"] * len(shown)
    assert len(shown) > 1
    assert sum(len(page) - 1 for page in shown) == 6


def test_a_list_that_is_longer_than_a_slide_goes_on_with_its_next_item(slides):
    item = "- " + "word " * 60
    shown = pages(deck(slides, markdown("## List\n\n" + "\n".join([item] * 5))))
    assert len(shown) > 1
    assert [cell.source.count("- word") for page in shown for cell in page[1:]] == [1] * 5


def test_code_is_shown_where_it_is_short_and_not_folded(slides):
    short, long = "1 + 1", "\n".join(["x = 1"] * 30)
    cells = deck(
        slides,
        markdown("## Code"),
        code(short, printed("2")),
        code(long, printed("3")),
        code("folded()", printed("4"), jupyter={"source_hidden": True}),
        code("nothing = 1"),
    )
    assert "```python\n1 + 1\n```" in text(cells)
    assert "x = 1" not in text(cells)
    assert "folded" not in text(cells)
    assert [cell.outputs[0].text for cell in cells if cell.cell_type == "code"] == ["2", "3", "4"]


def test_formulas_are_drawn_by_the_browser(slides):
    pytest.importorskip("docutils.utils.math.latex2mathml")
    told = slides.formulas(r"With $\lambda$ as `$HOME`: $$\frac{1}{2}$$")
    assert "<mi>λ</mi>" in told
    assert '<math xmlns="http://www.w3.org/1998/Math/MathML" display="block">' in told
    assert "`$HOME`" in told


def test_links_to_files_and_what_to_do_at_a_computer_are_left_out(slides):
    told = slides.shown(
        "See [lesson 1](01.ipynb), [w](https://x.org). Run this cell: it defines\nrules. Then look."
    )
    assert told == "See lesson 1, [w](https://x.org). Then look."


def test_hints_and_what_is_of_use_at_a_computer_only_are_left_out(slides):
    cells = deck(
        slides,
        markdown("## Set-up\n\nRun this cell first."),
        code("import batchsim", printed("ready")),
        markdown(
            "## Exercises\n\nReplace the `...` with your answer.\n\n### Exercise 1: a rate\n\nHow many?"
        ),
        markdown("<details><summary>Hint</summary>\n\nCount.\n\n</details>"),
        code("my_rate = 3\n\ncheck('01.1', my_rate)", printed("Right: 3"), tags=["solution"]),
        markdown("On paper: 3.", tags=["solution"]),
    )
    assert text(cells) == "## Exercise 1: a rate\nHow many?"
    game = code('my_game = be_the_batcher("01.4")\nmy_game', printed("run this cell, press Start"))
    cells = deck(
        slides, markdown("## Be the batcher\n\nPress Send."), markdown("## Exercise 4\n\nPlay."), game
    )
    assert text(cells) == "## Exercise 4\nPlay."


@every_lesson
def test_the_first_slide_and_each_question_have_the_teacher_s_notes(path, slides):
    lesson, notes = nbformat.read(path, as_version=4), slides.notes_of(path.stem[:2])
    assert "| you hear | ask |" in notes
    assert "*Exam*" not in notes
    plain, noted = (slides.slides(lesson, each).cells for each in ("", notes))
    assert [cell.source for cell in noted if cell.source != notes] == [cell.source for cell in plain]
    questions = [index for index, page in enumerate(pages(plain)) if "**Predict:**" in text(page)]
    places, at = [], -1
    for cell in noted:
        kind = cell.metadata.slideshow.slide_type
        at += kind not in ("-", "notes")
        places += [at] if kind == "notes" else []
    assert places == sorted({0, *questions})


def test_a_picture_comes_before_the_table_of_its_cell(slides):
    table = nbformat.v4.new_output("display_data", {"text/html": "<table><tr><td>1</td></tr></table>"})
    picture = nbformat.v4.new_output("display_data", {"image/png": "iVBO"})
    shown = deck(slides, markdown("# Why?"), code("both()", table, picture))
    assert [[*cell.outputs[0].data] for cell in shown if cell.cell_type == "code"] == [
        ["image/png"],
        ["text/html"],
    ]


def test_the_figure_and_the_game_of_a_lesson_are_frames_of_the_page(slides):
    notebook = nbformat.read(ROOT / "notebooks" / "solutions" / "01-why-batch.ipynb", as_version=4)
    frames = {}
    for page in pages(slides.slides(notebook, "", 1).cells):
        for cell in page:
            for output in cell.get("outputs", []):
                if found := re.search(r'data-src="batchsim\.html#([^"]*)"', str(output)):
                    frames[page[0].source] = found[1]
    assert frames["## Be the batcher"] == "player"
    assert "views=film+breakdown" in frames["## Try it yourself"]
    assert len(frames) == 2
    assert "iframe" not in str(slides.slides(notebook).cells)


@pytest.mark.parametrize("path", LESSONS, ids=lambda path: path.stem)
def test_no_code_of_a_live_figure_is_on_a_slide(path, slides):
    notebook = nbformat.read(path, as_version=4)
    for number in (0, int(path.stem[:2])):
        assert "bs.figure(" not in text(slides.slides(notebook, "", number).cells)


# Films: the code of a lesson runs so far, and a frame on the slide plays what it returns.


@every_lesson
def test_a_lesson_with_a_film_frames_it_in_place_of_the_still(path, slides):
    lesson, number = nbformat.read(path, as_version=4), int(path.stem[:2])
    has_film = any(slides.FILM.search(cell.source) for cell in lesson.cells if cell.cell_type == "code")
    framed = str(slides.slides(lesson, number=number).cells).count(f'data-src="{slides.film_name(number)}"')
    assert framed == has_film


def test_code_runs_until_the_film_without_what_waits_for_a_reader(slides):
    cells = [
        code(
            "import batchsim as bs\nfour = bs.SizeOrWait(4, 2)\n"
            "scenario = bs.Scenario(bs.Poisson(800), four, bs.Affine(1, 1))"
        ),
        code("predict('which?', None)"),
        code("print('one')\nbs.film(scenario, requests=7)"),
        code("1 / 0"),
    ]
    film = slides.film_of(nbformat.v4.new_notebook(cells=cells))
    assert repr(film).startswith("Film of 7 requests")
    assert slides.film_of(nbformat.v4.new_notebook(cells=cells[:2])) is None


def test_the_page_of_a_film_holds_its_script_and_its_times_and_fetches_nothing(slides):
    import batchsim as bs

    scenario = bs.Scenario(bs.Poisson(800), bs.SizeOrWait(4, 2), bs.Affine(1, 1))
    page = slides.film_page(bs.film(scenario, requests=7))
    assert page.count("</script>") == 1
    assert "modules.player.render(" in page
    (arrival_s,) = re.findall(r'\\"arrival_s\\":\{\\"dtype\\":\\"float64\\",\\"bytes\\":\\"([^"\\]*)', page)
    assert np.array_equal(np.frombuffer(base64.b64decode(arrival_s)), bs.simulate(scenario, 7).arrival_s)
    assert re.findall(r"(?:src|href)=|https?:", page) == []
