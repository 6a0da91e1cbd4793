"""`batchsim lab` copies the course, and overwrites nothing that a student changed."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

import batchsim as bs
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
