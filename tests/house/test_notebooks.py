"""The notebooks as files: what nbval, which runs them, does not look at."""

import ast
import base64
import contextlib
import io
import json
import re
from itertools import pairwise

import nbformat
import pytest
from lesson_cells import LESSONS, NOTEBOOKS, ROOT, code, of_seeds, read, say
from lesson_pictures import faults, figures_in, missing_metrics
from student_copies import NOT_CHECKED, PROGRESS, student_copy
from tidy_notebooks import VIEW, tidy
from tracked import notebooks

from batchsim import teaching as lessons
from batchsim.engines.compiled.jit import WHAT
from batchsim.teaching import game
from batchsim.web.course_files import copy_to

DOORS = [NOTEBOOKS / "00-explorer.ipynb", NOTEBOOKS / "app.ipynb"]  # they teach nothing
COPIES = sorted(set(notebooks("notebooks/*.ipynb")) - set(DOORS))  # of the lessons, for students
EXECUTED = [*DOORS, *LESSONS]
LONG = ("07-", "08-", "09-")
ASKS = "predict(", "draw_p99("  # what a student commits to before an outcome
EXERCISE = re.compile(r'\bcheck\("([^"]+)"')

every_notebook = pytest.mark.parametrize(
    "path", EXECUTED + COPIES, ids=lambda path: "-".join(path.parts[-2:])
)
every_executed = pytest.mark.parametrize("path", EXECUTED, ids=lambda path: path.stem)
every_lesson = pytest.mark.parametrize("path", LESSONS, ids=lambda path: path.stem)
every_copy = pytest.mark.parametrize("path", COPIES, ids=lambda path: path.stem)


def text(notebook):
    return "\n\n".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")


def outputs(notebook):
    return [output for cell in code(notebook) for output in cell.outputs]


def printed(cell):
    return "".join(output.text for output in cell.outputs if output.output_type == "stream")


def section(notebook, name):
    found = re.findall(rf"^## {name}\n(.*?)(?=^## |\Z)", text(notebook), re.DOTALL | re.MULTILINE)
    assert len(found) == 1, f"one section called {name}"
    return found[0]


def test_there_is_a_front_door_and_a_lesson():
    assert [path.exists() for path in DOORS] == [True, True]
    assert LESSONS[0].name == "01-why-batch.ipynb"


@every_executed
def test_the_cells_were_run_in_order(path):
    cells = code(read(path))
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))


@every_notebook
def test_no_cell_ended_in_an_error_or_a_warning(path):
    kept = outputs(read(path))
    assert [output for output in kept if output.output_type == "error"] == []
    assert [output.text for output in kept if output.get("name") == "stderr"] == []


@every_notebook
def test_no_widget_state_is_kept(path):
    assert set(read(path).metadata) <= {"kernelspec", "language_info"}


@every_notebook
def test_the_kernel_is_any_python_3(path):
    assert read(path).metadata.kernelspec.name == "python3"


@every_notebook
def test_nothing_is_shown_through_an_output_widget(path):
    sources = "\n".join(cell.source for cell in code(read(path)))
    assert re.findall(r"\bOutput\(|\binteract\w*\(", sources) == []


@every_notebook
def test_no_picture_is_over_200_kb(path):
    pictures = [
        base64.b64decode(data)
        for output in outputs(read(path))
        for kind, data in output.get("data", {}).items()
        if kind in ("image/png", "image/jpeg")
    ]
    assert [len(picture) for picture in pictures if len(picture) > 200_000] == []


@every_notebook
def test_nothing_names_a_place_on_a_machine(path):
    notebook = read(path)
    for output in outputs(notebook):
        output.get("data", {}).pop("image/png", None)  # its letters may spell anything
    places = re.findall(r"/home/|/root/|/work/|/Users/|/tmp/|[A-Z]:\\\\", json.dumps(notebook))
    assert places == []


@pytest.mark.parametrize("path", ["solutions", *(path.name for path in DOORS + COPIES)])
def test_every_notebook_is_listed_in_the_readme(path):
    assert f"notebooks/{path}" in (ROOT / "README.md").read_text()


@every_lesson
def test_a_lesson_is_tidy(path):
    assert tidy(read(path)) == read(path), "run tools/tidy_notebooks.py on it"


@every_lesson
def test_a_lesson_asks_one_question(path):
    titles = re.findall(r"^# (.+)$", text(read(path)), re.MULTILINE)
    assert len(titles) == 1
    assert titles[0].endswith("?")
    assert titles[0].count("?") == 1


@every_lesson
def test_a_lesson_has_15_to_35_cells(path):
    cells = [cell for cell in student_copy(read(path)).cells if cell.source != PROGRESS]
    assert 15 <= len(cells) <= 35


@every_lesson
def test_a_lesson_has_three_to_five_objectives_with_minutes_that_add_up(path):
    objectives = section(read(path), "Objectives")
    minutes = re.findall(r"^- \*\*[a-z]+\*\* .*?\((\d+) minutes\)", objectives, re.DOTALL | re.MULTILINE)
    assert 3 <= len(minutes) <= 5
    assert sum(map(int, minutes)) == 45
    assert "After these 45 minutes" in objectives


def unfolded(notebook):
    """Return the lines of code that a student sees before the exercises."""
    cells = notebook.cells[
        : next(i for i, each in enumerate(notebook.cells) if "## Exercises" in each.source)
    ]
    seen = [cell for cell in cells if cell.cell_type == "code" and cell.source != PROGRESS]
    return sum(
        cell.source.count("\n") + 1
        for cell in seen
        if not cell.metadata.get("jupyter", {}).get("source_hidden")
    )


def test_students_of_the_first_lesson_see_little_code():
    """It promises that a student only needs to know how to run a cell."""
    assert unfolded(read(COPIES[0])) <= 20


@every_lesson
def test_a_figure_has_the_style_of_the_explorer_and_names_at_its_lines(path):
    sources = "\n".join(cell.source for cell in code(read(path)))
    assert ".legend(" not in sources
    assert ("plt.subplots(" in sources) <= ("plt.rcParams.update(STYLE)" in sources)


@pytest.mark.parametrize("name", ["07-tune-to-an-objective", "10-continuous-batching"])
def test_a_long_lesson_has_a_part_that_may_be_left_out(name):
    cells = read(NOTEBOOKS / f"{name}.ipynb").cells
    headings = [(i, cell) for i, cell in enumerate(cells) if cell.source.startswith("## If there is time")]
    ((place, heading),) = headings
    assert heading.metadata["jp-MarkdownHeadingCollapsed"]
    assert sum(cell.source.startswith("predict(") for cell in cells[:place]) <= 4
    assert max(i for i, cell in enumerate(cells) if EXERCISE.search(cell.source)) < place


@every_lesson
def test_a_lesson_ends_with_its_key_points_and_what_it_leaves_out(path):
    headings = re.findall(r"^## (.+)$", text(read(path)), re.MULTILINE)
    assert headings[-2:] == ["Key points", "What this model leaves out"]
    assert 3 <= section(read(path), "Key points").count("\n- ") + 1 <= 6


@every_lesson
def test_a_lesson_asks_for_a_prediction_whose_answer_is_folded_away(path):
    asking = [cell for cell in code(read(path)) if cell.source.startswith("predict(")]
    assert asking
    assert all(cell.metadata.get("jupyter", {}).get("source_hidden") for cell in asking)


@every_lesson
def test_every_wrong_choice_of_a_prediction_says_why_it_is_wrong(path):
    for cell in code(read(path)):
        if cell.source.startswith("predict("):
            given = {each.arg: each.value for each in ast.parse(cell.source).body[0].value.keywords}
            choices, answer = ast.literal_eval(given["choices"]), ast.literal_eval(given["answer"])
            assert [choice for choice, why in choices.items() if not why] == [answer]


@every_lesson
def test_a_sentence_follows_each_curve_that_a_student_draws(path):
    cells = read(path).cells
    for cell, after in pairwise(cells):
        if cell.source.startswith("draw_p99(") and "then=" not in cell.source:
            assert after.source.startswith("<details><summary><b>What the curve shows</b>")


NUMBER = r"(?<![\w.,/])(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?"
UNIT = r"(?:ms|s|%|per second|seconds?|times|tokens|requests)(?!\w)"
STATED = re.compile(rf"({NUMBER})\s({UNIT})")
BARE = re.compile(rf"(?<![\w.,/])(?:\d{{1,3}}(?:,\d{{3}})+(?:\.\d+)?|\d+\.\d+)(?![\w/]|[.,]\d|\s{UNIT})")
# What is stated and no cell has, by the lesson, computed from what it has. Intervals of 95 % are everywhere.
ON_PAPER = {
    "01": [1.887, 0.144, game.RATE_PER_S, 3 * 1.85, 1 - 3 * 0.15, 5.55 / 0.55],  # cited, of the game, solved
    "02": [0.11 - 0.1],
    "03": [25 + 4, 40_000],
    "04": [100 * 4000 / 4812, 2.00 + 2.90],
    "05": [round(60 * 103.08, -2)],
    "06": [32 / 6.65e-3],
    "07": [2 * 64 / 35.83e-3, 1440 / 1124, 1350 * (6.05e-3 + 10.33e-3) / 2 / 12],
    "09": [1 / 2.0312e-3, 32 / (1.8874e-3 + 32 * 0.1438e-3), 25 * 2, 32 / 0.5, 10 / 3.3254e-3],
    "10": [4053 / 53.5, 56.9 / 21.7, 100 * (32.4 - 32.1) / 32.4, 300],
    "11": [round(1521, -2), round(1311, -2)],
    "12": [1.8 * 5000, 24_000 * 0.02, 24_000 * 0.05, 100 / 70],
}


def feedback(cell):
    """Return the words of a prediction: its choices, why they are wrong, and why the right one is right."""
    words = [each.value for each in ast.walk(ast.parse(cell.source)) if isinstance(each, ast.Constant)]
    return " | ".join(word for word in words if isinstance(word, str))


@every_lesson
def test_a_number_in_the_text_or_in_feedback_is_one_of_the_cells(path):
    notebook = read(path)
    cells = [cell for cell in code(notebook) if not cell.source.startswith(ASKS)]
    kept = [
        output | {"data": dict(output.get("data", {}), **{"image/png": ""})} for output in outputs(notebook)
    ]
    told = re.sub(
        r"(?<=\d)[_,](?=\d{3})|\\n", "", " ".join([*(cell.source for cell in cells), json.dumps(kept)])
    )
    found = [float(each) for each in re.findall(r"(?<![\w.])\d+(?:\.\d+)?(?:e-?\d+)?", told)]
    found += [95, *ON_PAPER.get(path.name[:2], [])]
    words = [cell.source for cell in notebook.cells if cell.cell_type == "markdown"]
    words = [each for each in words if "### Exercise" not in each]  # which gives what it asks about
    words += [feedback(cell) for cell in code(notebook) if cell.source.startswith("predict(")]
    said = " ".join(" ".join(words).split())
    for other in of_seeds(said):  # test_lesson_words.py computes them
        said = said.replace(other, "")
    said = re.sub(r"\]\([^)]*\)|`[^`]*`", "", said)  # links and code
    stated = STATED.findall(said) + [(number, "") for number in BARE.findall(said)]
    assert stated
    missing = []
    for shown, unit in stated:
        number, last = float(shown.replace(",", "")), 10.0 ** -len(shown.partition(".")[2])
        scales = {"ms": (1, 1000), "%": (1, 100), "s": (1, 1e-3), "seconds": (1, 1e-3)}.get(unit, (1,))
        if not any(abs(each * scale - number) <= 0.5001 * last for each in found for scale in scales):
            missing.append(f"{shown} {unit}")
    assert missing == []


@every_lesson
def test_numbers_of_a_table_have_the_decimals_of_their_column_and_separators(path):
    tables = [output.data.get("text/html", "") for output in outputs(read(path)) if "data" in output]
    for table in tables:
        rows = [re.findall(r"<td>(.*?)</td>", row) for row in re.findall(r"<tr>(.*?)</tr>", table, re.DOTALL)]
        for column in zip(*filter(None, rows), strict=True):
            whole = all(re.fullmatch(r"\d+\.0", each) for each in column)
            assert not (whole and max(map(float, column)) >= 10), column
            if all(re.fullmatch(r"-?[\d,]+(\.\d+)?", each) for each in column):
                assert len({len(each.partition(".")[2]) for each in column}) == 1, column
        long = re.findall(r"<t[dh]>(\d{4,}(?:\.\d+)?)</t[dh]>", table)
        assert long == [], "write them with separators"


@every_lesson
def test_a_picture_has_its_numbers_in_words_beside_it(path):
    drawn = [cell for cell in code(read(path)) if any("image/png" in o.get("data", {}) for o in cell.outputs)]
    assert drawn
    has_own_words = re.compile(r"bs\.(explore|figure|film)\(")
    drawn = [cell for cell in drawn if not has_own_words.search(cell.source)]
    assert [cell.source for cell in drawn if not printed(cell) and "text/html" not in str(cell.outputs)] == []


@every_notebook
def test_every_picture_has_its_words(path):
    drawn = [output for output in outputs(read(path)) if "image/png" in output.get("data", {})]
    words = [output.metadata.get("image/png", {}).get("alt", "") for output in drawn]
    assert [text for text in words if len(text) < 40] == [], "name its axes and series; then make notebooks"


@every_lesson
def test_every_exercise_is_solved(path):
    solved = [cell for cell in code(read(path)) if EXERCISE.search(cell.source)]
    assert 2 <= len(solved) <= 4
    assert [cell.source for cell in solved if not printed(cell).startswith("Right: ")] == []
    assert {EXERCISE.search(cell.source)[1] for cell in solved} <= set(lessons.EXERCISES)


def test_every_exercise_is_in_a_lesson():
    asked = [name for path in LESSONS for cell in code(read(path)) for name in EXERCISE.findall(cell.source)]
    assert sorted(asked) == sorted(lessons.EXERCISES)


# The students' copies.


def test_every_lesson_has_a_copy_for_students():
    assert [path.name for path in COPIES] == [path.name for path in LESSONS]


@every_copy
def test_a_students_copy_is_what_the_script_makes(path):
    assert read(path) == student_copy(read(path.parent / "solutions" / path.name)), "run: make lessons"


@every_copy
def test_nothing_is_seen_below_the_first_prediction_but_questions(path):
    cells = code(read(path))
    first = next(index for index, cell in enumerate(cells) if cell.source.startswith(ASKS))
    below = [cell for cell in cells[first:] if cell.outputs]
    assert [cell.source for cell in below if not cell.source.startswith(ASKS)] == []
    for cell in below:
        assert [output.data["text/plain"].startswith(("Predict: ", "Draw: ")) for output in cell.outputs] == [
            True
        ]
    without = [cell for cell in cells[first:] if not cell.source.startswith(ASKS)]
    assert [cell.source for cell in without if NOT_CHECKED not in cell.metadata.tags] == []


@every_notebook
def test_every_link_leads_to_a_file_and_from_a_copy_to_another_one(path):
    links = re.findall(r"\]\(([^)#:]+)\)", text(read(path)))
    assert [link for link in links if not (path.parent / link).exists()] == []
    if path in COPIES:
        assert [link for link in links if (path.parent / link).resolve() == path.resolve()] == []


RARE = pytest.mark.rare("simulates for long; the other lessons run whole in `make test`")


@pytest.mark.parametrize(
    "path", [pytest.param(each, marks=[RARE] * each.name.startswith(LONG), id=each.stem) for each in COPIES]
)
def test_a_copy_runs_whole_and_tells_no_outcome_before_it_is_predicted(path, monkeypatch, tmp_path):
    copy_to(tmp_path)  # as `batchsim lab` does: nothing else of the project is beside it
    monkeypatch.chdir(tmp_path / "notebooks")
    monkeypatch.setenv("MPLBACKEND", "agg")
    asked, outcomes, said, namespace = [], [], "", {"__name__": "__main__", "display": lambda *_: None}

    def predict(question, *, then, **options):
        def noted():
            with contextlib.redirect_stdout(io.StringIO()) as printed:
                value = then()
            print(printed.getvalue(), end="")
            outcomes.append((question, value if isinstance(value, tuple) else (value,), printed.getvalue()))
            return value

        asked.append(lessons.predict(question, then=noted, **options))

    for number, cell in enumerate(code(read(path))):
        if "bs.explore(" in cell.source:
            continue
        told = say(cell.source, namespace)
        if EXERCISE.search(cell.source):
            assert told.startswith("Not answered yet: ")
        said += told
        if number == 0:
            namespace["predict"] = predict
    assert asked
    for prediction in asked:
        assert prediction.outcome.children == ()
        prediction.choice.value = prediction.answer
        prediction.commit.click()
        assert prediction.verdict.value.startswith("✓ Right. ")
        assert prediction.outcome.children
        shown = "".join(child.value for child in prediction.outcome.children)
        assert "Error" not in shown
        assert [
            number for number in re.findall(r"(?<![\d,.])\d+\.\d\d(?=</td>)", shown) if number in said
        ] == []
    figures = figures_in([*namespace.values(), *(value for _, values, _ in outcomes for value in values)])
    missing = [(question, missing_metrics(question, *shown)) for question, *shown in outcomes]
    assert [each for each in missing if each[1]] + [each for one in figures for each in faults(one)] == []
    if "plt" in namespace:
        namespace["plt"].close("all")


def test_the_exercises_ask_about_the_server_of_the_lesson():
    namespace = {}
    say(code(read(LESSONS[0]))[0].source, namespace)
    assert namespace["SERVICE"] == lessons.SERVICE
    assert namespace["SEED"] == lessons.SEED


def test_tidying_drops_what_a_first_run_says_of_compiling():
    cell = nbformat.v4.new_code_cell("bs.simulate(scenario)")
    for text in (f"Compiled {WHAT}: 2.5 s.", "Result"):
        cell.outputs.append(nbformat.v4.new_output("display_data", data={"text/plain": text}))
    tidied = tidy(nbformat.v4.new_notebook(cells=[cell]))
    assert [output.data["text/plain"] for output in tidied.cells[0].outputs] == ["Result"]


def test_tidying_drops_the_view_but_keeps_the_text_and_the_count():
    output = nbformat.v4.new_output(
        "execute_result", {VIEW: {"model_id": "1"}, "text/plain": "Predict: ?"}, execution_count=1
    )
    cell = nbformat.v4.new_code_cell("predict()", execution_count=1, outputs=[output])
    cell.metadata["execution"] = {"iopub.execute_input": "noon"}
    notebook = nbformat.v4.new_notebook(cells=[cell], metadata={"widgets": {"state": {}}})
    tidied = tidy(notebook)
    assert tidied.cells[0].outputs[0].data == {"text/plain": "Predict: ?"}
    assert tidied.cells[0].execution_count == 1
    assert tidied.cells[0].metadata == {}
    assert "widgets" not in tidied.metadata


def test_a_copy_keeps_the_question_of_an_exercise_and_leaves_out_what_solves_it():
    solved = nbformat.v4.new_notebook()
    for source, tags in (
        ("predict(\n    '?',\n)", []),
        ("outcome()", ["solution"]),
        ('my_x = 3\n\ncheck("42.1", my_x)', ["solution"]),
        ("predict(\n    '??',\n)  ", []),
        ("1 + 1", []),
    ):
        output = nbformat.v4.new_output("execute_result", {"text/plain": "3"}, execution_count=1)
        cell = nbformat.v4.new_code_cell(source, execution_count=1, outputs=[output])
        cell.metadata["tags"] = tags
        solved.cells.append(cell)
    copy = student_copy(solved)
    assert [cell.source for cell in copy.cells] == [
        "predict(\n    '?',\n    key=\"42.a\",\n)",
        'my_x = ...\n\ncheck("42.1", my_x)',
        PROGRESS,
        "predict(\n    '??',\n    key=\"42.b\",\n)",
        "1 + 1",
    ]
    assert [len(cell.outputs) for cell in copy.cells] == [1, 0, 0, 1, 0]
    assert [cell.execution_count for cell in copy.cells] == [None] * 5
    assert len(solved.cells) == 5, "the lesson itself stays"


def test_a_copy_keeps_what_surrounds_the_code_to_write():
    source = """class Queue:
    def __init__(self):
        self.waiting = []

    def add(self, one):
        \"\"\"Add one.\"\"\"
        # your code
        if one:

            self.waiting.append(one)

    def full(self):
        # your code
        return len(self.waiting) > 3


check("x", Queue)"""
    cell = nbformat.v4.new_code_cell(source, metadata={"tags": ["solution"]})
    (kept,) = student_copy(nbformat.v4.new_notebook(cells=[cell])).cells
    assert kept.metadata.tags == []
    expected = source.replace("if one:\n\n            self.waiting.append(one)", "...")
    assert kept.source == expected.replace("return len(self.waiting) > 3", "...")


@every_copy
def test_a_copy_notes_each_prediction_under_a_key_of_its_own(path):
    keys = re.findall(
        r'^    key="(\d\d)\.([a-z])",\n\)$', "\n".join(c.source for c in code(read(path))), re.M
    )
    assert [lesson for lesson, _ in keys] == [path.name[:2]] * len(keys)
    assert "".join(letter for _, letter in keys) == "abcdefghij"[: len(keys)]
    asked = [cell for cell in code(read(path)) if cell.source.startswith(ASKS)]
    assert len(keys) == len(asked)


def test_students_see_the_lessons_first_and_open_solutions_by_a_link():
    """A list of files begins with folders, so `batchsim lab` leaves out this one."""
    manager = pytest.importorskip("jupyter_server.services.contents.largefilemanager").LargeFileManager
    command = (ROOT / "batchsim" / "cli" / "course.py").read_text()
    option = re.search(r'--ContentsManager.hide_globs=(.*?)"', command)[1]
    contents = manager(root_dir=str(ROOT), hide_globs=ast.literal_eval(option))
    shown = [each["name"] for each in contents.get("notebooks")["content"]]
    assert "solutions" not in shown
    assert "01-why-batch.ipynb" in shown
    assert contents.get("notebooks/solutions/01-why-batch.ipynb", content=False)["type"] == "notebook"
