"""`batchsim lab` copies the course, and keeps what a student changed; `grade` makes one table of a class."""

import csv
import io
import json
import os
import re
import signal
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import nbformat
import pytest
from shell import graded

import batchsim as bs
from batchsim import __version__
from batchsim.teaching.progress_store import Predicted, Record, Tried, Wrong, write
from batchsim.web import course_files
from batchsim.web.course_files import COPIED, NOTE, copy_to

ROOT = Path(bs.__file__).parents[1]
LESSON = "notebooks/03-a-second-in-slow-motion.ipynb"
LISTEN = """
import os, signal, sys
print(os.getcwd(), *sys.argv[1:], sep="|", flush=True)
signal.pause()
"""
posix = pytest.mark.skipif(os.name != "posix", reason="Windows has no exec")


@pytest.fixture
def course(tmp_path):
    """The course's own files, small: a later version may change them."""
    folder = tmp_path / "course"
    for name in ("notebooks/01.ipynb", "notebooks/solutions/01.ipynb", "docs/glossary.md", "VALIDATION.md"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(f"{name} of the first version")
    return folder


def content(folder):
    return {
        path.relative_to(folder).as_posix(): path.read_text() for path in folder.rglob("*") if path.is_file()
    }


def test_a_copy_has_the_courses_files_and_a_note_of_their_checksums(course, tmp_path):
    written, newer = copy_to(tmp_path / "mine", course)
    copied = content(tmp_path / "mine")
    noted = json.loads(copied.pop(NOTE))
    assert copied == content(course)
    assert (sorted(written), newer) == (sorted(copied), [])
    assert noted.keys() == copied.keys()


def test_a_second_copy_writes_nothing(course, tmp_path):
    copy_to(tmp_path / "mine", course)
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "mine").rglob("*")}
    assert copy_to(tmp_path / "mine", course) == ([], [])
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "mine").rglob("*")} == before


def test_a_newer_version_replaces_untouched_files_and_names_the_changed_ones(course, tmp_path):
    copy_to(tmp_path / "mine", course)
    (tmp_path / "mine" / "notebooks" / "01.ipynb").write_text("my answers")
    for name in ("notebooks/01.ipynb", "docs/glossary.md"):
        (course / name).write_text(f"{name} of the second version")
    for _ in range(2):  # what is named once is named until the student takes it
        assert copy_to(tmp_path / "mine", course)[1] == ["notebooks/01.ipynb"]
    assert content(tmp_path / "mine")["notebooks/01.ipynb"] == "my answers"
    assert content(tmp_path / "mine")["docs/glossary.md"] == "docs/glossary.md of the second version"
    (tmp_path / "mine" / "notebooks" / "01.ipynb").unlink()
    assert copy_to(tmp_path / "mine", course) == (["notebooks/01.ipynb"], [])


def test_a_changed_file_without_a_newer_version_is_not_named(course, tmp_path):
    copy_to(tmp_path / "mine", course)
    (tmp_path / "mine" / "notebooks" / "01.ipynb").write_text("my answers")
    assert copy_to(tmp_path / "mine", course) == ([], [])


@pytest.mark.parametrize("note", ["", "[]", "{", None])
def test_without_its_note_a_copy_keeps_every_file_that_differs(course, tmp_path, note):
    copy_to(tmp_path / "mine", course)
    (tmp_path / "mine" / "docs" / "glossary.md").write_text("mine")
    (tmp_path / "mine" / NOTE).unlink()
    if note is not None:
        (tmp_path / "mine" / NOTE).write_text(note)
    assert copy_to(tmp_path / "mine", course) == ([], ["docs/glossary.md"])


def lab(folder, *options, before=()):
    """Run `batchsim lab` in a folder whose JupyterLab only prints its arguments and waits."""
    (folder / "stub").mkdir(exist_ok=True)
    (folder / "stub" / "jupyterlab.py").write_text(LISTEN)
    env = {**os.environ, "PYTHONPATH": f"{folder / 'stub'}{os.pathsep}{ROOT}", "PYTHONDONTWRITEBYTECODE": "1"}
    command = [*before, sys.executable, "-m", "batchsim", "lab", *map(str, options)]
    return subprocess.Popen(
        command, cwd=folder, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


@posix
def test_lab_is_jupyterlab_itself_in_the_copied_course_so_that_a_kill_is_its_own(tmp_path):
    with lab(tmp_path, "--port", "9000", "--", "--no-browser") as running:
        said = running.stdout.readline()
        place, *options = running.stdout.readline().strip().split("|")
        running.terminate()
        running.communicate(timeout=300)  # until nobody is left to write
        assert running.returncode == -signal.SIGTERM
    assert re.fullmatch(r"The course of batchsim [\d.]+ is in batchsim-course: \d+ files written.\n", said)
    assert place == str(tmp_path / "batchsim-course")
    assert {"--ip=127.0.0.1", "--port=9000", "--no-browser"} <= set(options)
    assert "--LabApp.default_url=/lab/tree/notebooks/00-explorer.ipynb" in options
    (settings,) = [option for option in options if "app_settings_dir" in option]
    assert (Path(settings.partition("=")[2]) / "overrides.json").exists()


@posix
def test_lab_opens_a_folder_of_ones_own_and_copies_nothing(tmp_path):
    (tmp_path / "own").mkdir()
    with lab(tmp_path, "--notebooks", "own") as running:
        assert running.stdout.readline().startswith(f"{tmp_path}|")
        running.terminate()
    assert not (tmp_path / "batchsim-course").exists()


def refused(folder, *options, before=()):
    """Return the one line of a `batchsim lab` that ends with an error."""
    with lab(folder, *options, before=before) as running:
        said, error = running.communicate(timeout=300)
    assert (running.returncode, said) == (2, "")
    assert re.fullmatch(r"Error: .+\n", error)
    return error.removeprefix("Error: ").strip()


@posix
def test_lab_says_in_one_line_what_stops_it(tmp_path):
    assert refused(tmp_path, "--notebooks", "no") == "--notebooks must be a folder, got no"
    assert refused(tmp_path, "--port", "70000") == "--port must be at most 65,535, got 70000"
    (tmp_path / "batchsim-course").write_text("mine")
    assert "batchsim-course" in refused(tmp_path)
    assert (tmp_path / "batchsim-course").read_text() == "mine"


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs a folder in which nobody may write")
def test_lab_in_a_read_only_place_is_one_line(tmp_path):
    (tmp_path / "batchsim-course").symlink_to("/proc/sys")
    assert "/proc/sys" in refused(tmp_path) or "batchsim-course" in refused(tmp_path)


# Writing fails as on a full disk: no file grows beyond 300 kB, in blocks of 512 bytes.
SMALL_FILES = ("sh", "-c", 'ulimit -f 586; exec "$@"', "sh")


@posix
def test_lab_on_a_full_disk_is_one_line_and_leaves_every_file_whole(tmp_path):
    mine = tmp_path / "batchsim-course" / "notebooks" / "01-why-batch.ipynb"
    mine.parent.mkdir(parents=True)
    mine.write_text("my answers")
    assert refused(tmp_path, before=SMALL_FILES).startswith("batchsim-course/notebooks/")
    there = content(tmp_path / "batchsim-course")
    assert there.pop("notebooks/01-why-batch.ipynb") == "my answers"
    assert there  # some were small enough
    assert [name for name, text in there.items() if text != (ROOT / name).read_text()] == []
    with lab(tmp_path) as running:  # there is room again
        lines = [running.stdout.readline() for _ in range(2)]
        running.terminate()
    assert lines[1].startswith(
        "Kept your batchsim-course/notebooks/01-why-batch.ipynb. A newer version is there"
    )
    assert mine.read_text() == "my answers"


LINKS = re.compile(r"\]\((?!https?:|#)([^)#\s]+)")


def test_no_link_of_the_copy_leads_outside_it(tmp_path):
    for name in copy_to(tmp_path)[0]:
        path = tmp_path / name
        if path.suffix == ".ipynb":
            cells = nbformat.read(path, as_version=4).cells
            text = "\n".join(cell.source for cell in cells if cell.cell_type == "markdown")
        else:
            text = path.read_text(encoding="utf-8")
        assert [link for link in LINKS.findall(text) if not (path.parent / link).exists()] == [], name


def test_every_lesson_is_copied():
    copied = {name for name, _ in course_files.files(ROOT, COPIED)}
    there = {*ROOT.glob("notebooks/*.ipynb"), *ROOT.glob("notebooks/solutions/*.ipynb")}
    assert len(there) > 20
    assert {path.relative_to(ROOT).as_posix() for path in there} <= copied


LATE = "That is the throughput."


def tried(tries, solved=True, wrong=()):
    return Tried(
        tries, "2026-01-01T09:00:00+00:00", "2026-01-01T10:00:00+00:00", "2026-01-01T10:00:00+00:00" * solved,
        [Wrong(answer, told) for answer, told in wrong],
    )  # fmt: skip


@pytest.fixture
def handed_in(tmp_path):
    """Three students' files."""
    them = {
        "ann": Record(
            "Ann", "a", exercises={"01.1": tried(1), "01.2": tried(3), "07.1": tried(1)},
            predictions={"01.a": Predicted("x", True, "2026-01-02T09:00:00+00:00")},
        ),
        "bob": Record("Bob", "b", exercises={"07.1": tried(6, False, wrong=[("1350", LATE), ("9", "No.")])}),
        "cem": Record("cem", "c", exercises={"07.1": tried(5, False, wrong=[("1350", LATE)])}),
    }  # fmt: skip
    for name, record in them.items():
        record.begun_at = "2026-01-01T08:00:00+00:00"
        write(tmp_path / f"{name}.json", record)
    return tmp_path


def test_the_table_has_a_row_a_student_and_a_column_a_lesson(handed_in):
    lines = graded(*handed_in.glob("*.json")).stdout.splitlines()
    assert lines[0].startswith("3 students: ")
    heading = next(line.split() for line in lines if "student" in line and "01" in line)
    rows = {line.split()[0]: dict(zip(heading, line.split(), strict=False)) for line in lines if "/" in line}
    assert [name for name in rows if name in ("Ann", "Bob", "cem")] == ["Ann", "Bob", "cem"]
    assert (rows["Ann"]["01"], rows["Ann"]["06"], rows["Ann"]["07"]) == ("2/2", "-", "1/1")
    assert (rows["Bob"]["01"], rows["Bob"]["07"]) == ("-", "0/1")


def test_the_hardest_exercise_comes_with_the_wrong_answer_that_most_gave(handed_in):
    said = graded(*handed_in.glob("*.json")).stdout
    line = next(line for line in said.splitlines() if line.startswith("07.1: "))
    assert "4.0 tries a student" in line
    assert "solved by 1 of 3" in line
    assert line.endswith(f"Most often (2) the answer was 1350: {LATE}")


def test_json_and_csv_have_the_same_numbers(handed_in):
    files = sorted(handed_in.glob("*.json"))
    found = json.loads(graded(*files, "--json").stdout)
    assert found["refused"] == []
    ann = found["students"][0]
    keys = ("student", "01_solved", "01_tried", "solved", "tries")
    assert [ann[key] for key in keys] == ["Ann", 2, 2, 3, 5]
    assert (ann["predicted"], ann["predicted_right"], ann["last_at"][:10]) == (1, 1, "2026-01-02")
    assert found["hardest"][0]["exercise"] == "07.1"
    rows = list(csv.DictReader(io.StringIO(graded(*files, "--csv").stdout)))
    assert rows == [{key: str(value) for key, value in row.items()} for row in found["students"]]


@pytest.mark.parametrize("begin", "=+-@\uff1d\uff0b\uff0d\uff20")
def test_a_name_is_no_formula_of_a_spreadsheet(tmp_path, begin):
    write(tmp_path / "x.json", Record(f"{begin}1+1"))
    edited(tmp_path / "x.json", batchsim="@1")
    (row,) = csv.DictReader(io.StringIO(graded(tmp_path / "x.json", "--csv", "--any-version").stdout))
    assert (row["student"], row["batchsim"]) == (f"'{begin}1+1", "'@1")


def test_nothing_of_a_file_reaches_the_terminal_as_more_than_letters(tmp_path):
    clear = "\x1b[2J"
    wrong = [(f"{clear}7", f"{clear}No.")]
    write(tmp_path / "ann.json", Record("Ann", exercises={"01.1": tried(2, wrong=wrong)}))
    write(tmp_path / "bob.json", Record("Bob"))
    edited(tmp_path / "bob.json", batchsim=clear)
    done = graded(*tmp_path.glob("*.json"), code=2)
    assert "[2J7" in done.stdout
    assert "batchsim [2J, and this is" in done.stderr
    assert "\x1b" not in done.stdout + done.stderr


def test_a_pattern_that_the_shell_left_is_expanded(handed_in):
    assert len(json.loads(graded(handed_in / "*.json", "--json").stdout)["students"]) == 3


# What is refused, and with what it is.


def turned_down(*files, options=()):
    """Return the lines on stderr, and the names of those that are counted."""
    done = graded(*files, "--json", *options, code=2)
    lines = done.stderr.splitlines()
    assert all(line.startswith("Error: ") for line in lines)
    found = json.loads(done.stdout)
    assert [line.removeprefix("Error: ") for line in lines] == found["refused"]
    return found["refused"], [row["student"] for row in found["students"]]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "it must be JSON"),
        ("[" * 100_000, "nested too deeply"),
        ('{"a": ' * 900 + "1" + "}" * 900, "it lacks format"),
        ("[1]", "it holds [1]"),
        ('{"format": "batchsim progress"}', "it lacks version, student, key, begun_at, batchsim, "),
        ('{"cells": [], "metadata": {}}', "it lacks format, version, student, "),
    ],
)
def test_what_is_no_progress_file_says_so_and_the_others_count(handed_in, text, said):
    other = handed_in / "other.json"
    other.write_text(text)
    (line,), counted = turned_down(*handed_in.glob("*.json"))
    assert line.startswith(f"{other} is not a progress file")
    assert said in line
    assert counted == ["Ann", "Bob", "cem"]


def edited(path, **changes):
    """Change a file by hand."""
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    return path


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"format": "grades"}, "its format is 'grades'"),
        ({"student": 7}, "student must be of type str, got 7"),
        ({"student": "\x1b[31m"}, "name must be 1 to 60 letters on one line"),
        ({"predictions": []}, "predictions must be of type dict, got []"),
        ({"exercises": {"01.1": {"tries": 1}}}, "exercises '01.1' must have tries, first_at, "),
        ({"exercises": {"01.1": None}}, "exercises '01.1' must be of type dict, got None"),
        (
            {"exercises": {"01.1": asdict(Tried(tries=-5))}},
            "must be from 0 to 1,000,000, got -5",
        ),
    ],
)
def test_what_does_not_fit_is_refused(handed_in, changes, said):
    (line,), counted = turned_down(edited(handed_in / "ann.json", **changes), handed_in / "bob.json")
    assert said in line
    assert counted == ["Bob"]


def test_a_file_that_is_not_there_is_told_in_words(handed_in):
    path = handed_in / "dee.json"
    (line,), counted = turned_down(path, handed_in / "bob.json")
    assert line == f"{path}: no such file or directory"
    assert counted == ["Bob"]


def test_canvas_gets_the_points_that_are_possible_and_each_students_by_login_id(handed_in):
    points, *rows = csv.DictReader(io.StringIO(graded(*handed_in.glob("*.json"), "--canvas").stdout))
    assert list(points)[:6] == [
        "Student", "ID", "SIS User ID", "SIS Login ID", "Section", "batchsim lesson 01"
    ]  # fmt: skip
    assert (points["Student"].strip(), points["batchsim lesson 01"]) == ("Points Possible", "4")
    found = [(row["SIS Login ID"], row["batchsim lesson 01"], row["batchsim lesson 07"]) for row in rows]
    assert found == [("Ann", "2", "1"), ("Bob", "0", "0"), ("cem", "0", "0")]


def test_moodle_gets_a_username_and_a_grade_for_each_lesson(handed_in):
    rows = list(csv.DictReader(io.StringIO(graded(*handed_in.glob("*.json"), "--moodle").stdout)))
    assert list(rows[0])[:2] == ["username", "batchsim lesson 01"]
    assert [(row["username"], row["batchsim lesson 07"]) for row in rows] == [
        ("Ann", "1"), ("Bob", "0"), ("cem", "0")
    ]  # fmt: skip


def test_a_file_of_another_version_of_the_format_is_refused(handed_in):
    (line,), _ = turned_down(edited(handed_in / "ann.json", version=9))
    (handed_in / "ann.json").write_text('{"format": "batchsim progress", "version": 9}')
    assert "of version 9, of batchsim ?" in turned_down(handed_in / "ann.json")[0][0]
    assert (
        f"of version 9, of batchsim {__version__}, and batchsim {__version__} reads versions 1 and 2" in line
    )


def test_a_file_of_another_batchsim_is_refused_unless_it_is_wanted(handed_in):
    path = edited(handed_in / "ann.json", batchsim="9.9")
    (line,), _ = turned_down(path)
    assert line.startswith(f"{path}, Ann's progress, is of batchsim 9.9, and this is {__version__}")
    assert json.loads(graded(path, "--json", "--any-version").stdout)["students"][0]["batchsim"] == "9.9"


def test_exercises_that_there_are_not_are_refused(tmp_path):
    write(tmp_path / "ann.json", Record("Ann", exercises={"99.1": tried(1), "01.1": tried(1)}))
    (line,), _ = turned_down(tmp_path / "ann.json")
    assert line.endswith(f"has exercises that batchsim {__version__} does not have: 99.1")
    (row,) = json.loads(graded(tmp_path / "ann.json", "--json", "--any-version").stdout)["students"]
    assert row["tried"] == 1


def test_a_file_without_a_name_says_how_to_say_it(tmp_path):
    write(tmp_path / "x.json", Record())
    (line,), _ = turned_down(tmp_path / "x.json")
    assert "lacks a student's name: set it with bs.teaching.progress(name=" in line


def test_of_a_student_who_hands_in_twice_the_newer_file_counts(handed_in):
    older = Record("Ann", "a", begun_at="2026-01-01T08:00:00+00:00")
    write(handed_in / "again.json", older)
    (line,), counted = turned_down(*handed_in.glob("*.json"))
    assert line.startswith(f"{handed_in / 'again.json'} is an older file of the same student, Ann: ")
    assert counted == ["Ann", "Bob", "cem"]


@pytest.mark.parametrize(("name", "key", "said"), [("ANN", "z", "the name of"), ("Zoe", "a", "the key of")])
def test_a_file_of_anothers_name_or_key_hides_nobody(handed_in, name, key, said):
    write(handed_in / "zoe.json", Record(name, key))
    (line,), counted = turned_down(*handed_in.glob("*.json"))
    assert line.startswith(f"{handed_in / 'ann.json'}, Ann's progress, has {said} {handed_in / 'zoe.json'}")
    assert sorted(counted) == sorted(["Ann", "Bob", "cem", name])


def test_a_file_of_the_future_is_no_newer_one(handed_in):
    write(handed_in / "again.json", Record("Ann", "a", begun_at="2999-01-01T08:00:00+00:00"))
    (line,), _ = turned_down(*handed_in.glob("*.json"))
    assert line.startswith(f"{handed_in / 'again.json'} is a file of the future, 2999-01-01, of the same")


TIMES = ["", "tomorrow", "2026-13-01", "\ud800", "9" * 400]


@pytest.mark.parametrize("option", ["--csv", "--json", "--canvas", "--moodle", "--any-version"])
def test_a_file_that_does_not_fit_hides_nobody(handed_in, option):
    for number, time in enumerate(TIMES):
        record = Record(f"{number}", f"{number}", exercises={"01.1": tried(1)})
        write(handed_in / "bad.json", record)
        edited(handed_in / "bad.json", begun_at=time).rename(handed_in / f"bad{number}.json")
    edited(handed_in / "cem.json", batchsim=f"{__version__}\ud800")
    done = graded(*handed_in.glob("*.json"), option, "--any-version", code=2)
    assert all(name in done.stdout for name in ("Ann", "Bob", "cem"))
    lines = done.stderr.splitlines()
    assert sum("has a time that is none" in line for line in lines) == len(lines) == len(TIMES)
    assert all(len(line.partition("none: ")[2]) <= 80 for line in lines)


def test_predictions_that_no_lesson_asks_are_not_counted(tmp_path):
    noted = Predicted("x", True, "2026-01-02T09:00:00+00:00")
    write(tmp_path / "ann.json", Record("Ann", predictions={"01.a": noted, "01.z": noted, "x": noted}))
    (row,) = json.loads(graded(tmp_path / "ann.json", "--json").stdout)["students"]
    assert (row["predicted"], row["predicted_right"]) == (1, 1)


def test_a_time_without_a_zone_is_of_utc(tmp_path):
    noted = Predicted("x", True, "2026-01-02T09:00:00+02:00")
    write(tmp_path / "ann.json", Record("Ann", begun_at="2026-01-02T08:00:00", predictions={"01.a": noted}))
    (row,) = json.loads(graded(tmp_path / "ann.json", "--json").stdout)["students"]
    assert row["last_at"] == "2026-01-02T08:00:00+00:00"


def test_a_folder_is_told_to_name_its_files(handed_in):
    (line,), _ = turned_down(handed_in)
    assert line == f"{handed_in} is a folder: name the files in it, as {handed_in / '*.json'}"


def test_a_file_that_is_not_there_is_refused(tmp_path):
    (line,), _ = turned_down(tmp_path / "none.json")
    assert "none.json" in line


@pytest.mark.parametrize(
    ("arguments", "said"),
    [([], "progress files must be given"), (["x.json", "--csv", "--json"], "got --json and --csv")],
)
def test_what_cannot_be_asked_is_bad_input(arguments, said):
    assert said in graded(*arguments, code=2).stderr
