"""What a student did is noted, kept in one file by several kernels, and lost or mixed up by nothing."""

import errno
import json
import os
import re
import sys
from dataclasses import asdict

import pytest
import runs
from places import DATA

from batchsim import _compat
from batchsim.teaching import EXERCISES, SERVICE, check, grading, predict, progress
from batchsim.teaching import progress_store as store
from batchsim.teaching.exercises.exercise import Exercise, Verdict
from batchsim.teaching.progress_store import Record, Tried, read, write

RIGHT = 12 / SERVICE(12)  # of 01.1
WRONG = (500, 6000, 1000 / 3.65, 7, 8, 9)


@pytest.fixture
def file(tmp_path, monkeypatch):
    """The file of a student who begins."""
    monkeypatch.setenv("BATCHSIM_PROGRESS", str(tmp_path / "new" / "progress.json"))
    return tmp_path / "new" / "progress.json"


def said(capsys, exercise, answer):
    capsys.readouterr()
    check(exercise, answer)
    return capsys.readouterr().out.splitlines()


def tried(name="01.1"):
    return store.load().exercises[name]


# Hints in steps.


def test_hints_come_in_steps_and_an_answer_given_again_is_no_other_try(capsys):
    asked, steps = EXERCISES["01.1"], []
    for answer in (500, 500, 6000, 500, 7, 8, 9):
        steps.append(said(capsys, "01.1", answer))
    parts, look = f"What you need: {asked.parts}.", f"Where to look: “{asked.look}”, in this lesson."
    assert [lines[1:] for lines in steps] == [[], [], [parts], [parts], [look], [], []]
    assert tried().tries == 5


def test_no_line_after_the_third_try_was_there_before(capsys):
    lines = [line for answer in (*WRONG, 10, 11) for line in said(capsys, "01.1", answer)]
    later = [line for answer in (12, 13, 14) for line in said(capsys, "01.1", answer)]
    hint = "how long does a batch of 12 take, and how many requests per second is that?"
    assert later == [f"Not yet: {answer} is wrong as 7 was: {hint}" for answer in (12, 13, 14)]
    assert len({*lines[3:]}) == len(lines[3:])


def test_no_step_gives_the_answer_away(capsys):
    told = [line for answer in WRONG for line in said(capsys, "01.1", answer)]
    assert [line for line in told if "3,288" in line or "3287" in line or "3.65" in line] == []


def test_a_long_line_is_broken_between_words_as_jupyterlab_would_not_do(capsys, monkeypatch):
    (whole,) = said(capsys, "05.3", EXERCISES["05.3"].right())
    monkeypatch.setattr(grading, "WIDTH", 100)
    lines = said(capsys, "05.3", EXERCISES["05.3"].right())
    assert len(whole) > 100 >= max(map(len, lines))
    assert "\n".join(lines).replace("\n    ", " ") == whole


@pytest.mark.parametrize("name", [name for name, asked in EXERCISES.items() if hasattr(asked, "right")])
def test_no_line_ends_between_a_number_and_its_unit(capsys, monkeypatch, name):
    monkeypatch.setattr(grading, "WIDTH", 100)
    lines = said(capsys, name, EXERCISES[name].right())
    assert [line for line in lines[1:] if re.match(r" *(?:ms|s|%)\b", line)] == []


def test_a_wrong_type_is_no_try(capsys):
    for answer in ("500", None, [500]):
        (line,) = said(capsys, "01.1", answer)
        assert line.endswith("The exercise asks for a number (requests per second).")
    for exercise, answer in (("01.1", -7), ("01.2", 2.5), ("05.1", 101), ("11.1", [64, 512])):
        (line,) = said(capsys, exercise, answer)
        assert line.startswith("Not yet: the answer must be ")
    assert store.load().exercises == {}


def test_an_answer_of_a_class_without_a_repr_is_noted_by_its_type(capsys, monkeypatch):
    class Broken:
        def __repr__(self):
            raise RuntimeError

    class Never(Exercise):
        asks, parts, look = "a class", "a class", "Nowhere"

        def judge(self, answer):
            return Verdict(False, "it never is")

    monkeypatch.setitem(EXERCISES, "01.1", Never())
    assert said(capsys, "01.1", Broken()) == ["Not yet: it never is"]
    assert [each.answer for each in tried().wrong] == ["Broken"]
    said(capsys, "01.1", object())
    assert tried().wrong[1].answer == "<object object>", "the same in every kernel"


# What counts.


def test_a_right_answer_solves_an_exercise_after_any_number_of_tries(capsys):
    for answer in WRONG:
        said(capsys, "01.1", answer)
    assert said(capsys, "01.1", RIGHT) == ["Right: 12 requests every 3.65 ms are 3,288 requests per second."]
    assert tried().solved_at
    assert "1 solved (7 tries)" in repr(progress())


def test_the_first_wrong_answers_are_kept_and_each_is_a_try(capsys):
    for answer in range(1, store.KEPT + 2):
        said(capsys, "01.1", answer)
    assert [each.answer for each in tried().wrong] == [str(each) for each in range(1, store.KEPT + 1)]
    assert tried().tries == store.KEPT + 1


def test_what_comes_after_a_right_answer_is_judged_and_does_not_count(capsys):
    for answer in (500, RIGHT):
        said(capsys, "01.1", answer)
    before = asdict(tried())
    assert said(capsys, "01.1", RIGHT)[0].startswith("Right: ")
    assert [line[:9] for answer in (7, 8) for line in said(capsys, "01.1", answer)] == ["Not yet: "] * 2
    assert asdict(tried()) | {"last_at": ""} == before | {"last_at": ""}


# Predictions.


def committed(choice, key="01.a"):
    asked = predict("?", ["Yes", "No"], "Yes", "", key=key)
    asked.choice.value = choice
    asked.commit.click()


def test_the_first_choice_of_a_prediction_counts():
    committed("No")
    committed("Yes")
    assert [(each.chosen, each.right) for each in store.load().predictions.values()] == [("No", False)]
    assert "0 of 1 right" in repr(progress())


def test_a_prediction_without_a_key_is_not_noted():
    committed("Yes", key=None)
    assert store.load().predictions == {}


@pytest.mark.parametrize("key", ["a", "01", "1.a", 1])
def test_a_key_that_is_no_lesson_and_letter_is_refused(key):
    with pytest.raises(ValueError, match=r"key must be a lesson and a letter, such as '01\.a', got"):
        predict("?", ["Yes", "No"], "Yes", "", key=key)


# The file.


def test_what_tests_do_is_in_no_file(monkeypatch):
    assert store.place() == (None, store.OF_TESTS)
    monkeypatch.delenv("PYTEST_VERSION")  # which pytest sets for kernels, too
    path, _ = store.place()
    assert path.parts[-2:] == (".batchsim", "progress.json")


def test_what_runs_among_the_solutions_is_in_no_file(tmp_path, monkeypatch):
    (tmp_path / "solutions").mkdir()
    monkeypatch.chdir(tmp_path / "solutions")
    monkeypatch.delenv("PYTEST_VERSION")
    assert store.place()[0] is None
    monkeypatch.setenv("BATCHSIM_PROGRESS", "mine.json")
    assert store.place()[0] is None, "nbval finds the same output for all, whatever the variable says"
    progress(file="mine.json")
    assert store.place()[0] == tmp_path / "solutions" / "mine.json", "unless the kernel is told of one"


def test_progress_may_be_switched_off(monkeypatch):
    monkeypatch.setenv("BATCHSIM_PROGRESS", "off")
    assert store.place()[0] is None
    assert "BATCHSIM_PROGRESS is off" in repr(progress())
    monkeypatch.setenv("BATCHSIM_PROGRESS", "off: this browser stores no files")
    assert store.place()[1] == "this browser stores no files"
    assert "this browser stores no files" in repr(progress())


def test_a_file_is_made_at_the_first_try_and_the_student_is_told_where(file, capsys):
    progress()
    assert not file.exists()
    assert (
        said(capsys, "01.1", 500)[-1] == f"Your progress is kept in {file}: bs.teaching.progress() shows it."
    )
    assert len(said(capsys, "01.1", 500)) == 1, "once"
    assert file.parent.stat().st_mode & 0o77 == 0, "it is nobody else's"
    assert read(file).exercises["01.1"].tries == 1


def test_another_kernel_goes_on_where_the_first_one_ended(file):
    for answer in WRONG[:4]:
        check("01.1", answer)
    committed("Yes")
    progress(name="Ann")
    before = store.load()
    store.forget()
    assert store.load() == before
    assert progress().student == "Ann"


PREDICT_MANY = """
import sys, time
from pathlib import Path
from batchsim.teaching import progress_store as store
from batchsim.teaching.progress import note_prediction
file, lesson = Path(sys.argv[1]), sys.argv[2]
store.use(file)
file.with_name(f"ready-{lesson}").touch()
end = time.monotonic() + 60
while len(list(file.parent.glob("ready-*"))) < 2 and time.monotonic() < end:  # both at once
    time.sleep(0.001)
for letter in "abcdefghijkl":
    note_prediction(f"{lesson}.{letter}", "Yes", True)
"""


def test_kernels_at_once_lose_nothing_of_each_other(file):
    file.parent.mkdir()
    kernels = [
        runs.processes.Process(
            target=runs.execute, args=(PREDICT_MANY, file.parent.parent / lesson, str(file), lesson)
        )
        for lesson in ("01", "06")
    ]
    for kernel in kernels:
        kernel.start()
    for kernel in kernels:
        kernel.join()
    assert len(read(file).predictions) == 2 * 12


@pytest.mark.skipif(sys.platform == "win32", reason="Windows locks files otherwise")
def test_a_browser_has_no_locks_and_keeps_progress(file, monkeypatch):
    monkeypatch.setattr("batchsim._files.IN_BROWSER", True)
    monkeypatch.delattr("fcntl.flock")
    progress(name="Ann")
    assert store.read(file).student == "Ann"


@pytest.mark.skipif(sys.platform == "win32", reason="Windows locks files otherwise")
def test_where_locks_do_not_work_nobody_waits_for_one(file, monkeypatch):
    def unsupported(*_):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr("fcntl.flock", unsupported)
    monkeypatch.setattr(store.time, "sleep", lambda _: pytest.fail("it waits"))
    committed("Yes")
    assert len(read(file).predictions) == 1


@pytest.mark.parametrize("text", ["", "{", "[" * 100_000, "null", '{"format": "batchsim progress"}'])
def test_a_damaged_file_is_kept_aside_and_said(file, capsys, text):
    file.parent.mkdir()
    file.write_text(text)
    lines = said(capsys, "01.1", 500)
    aside = file.with_name("progress-damaged.json")
    assert lines[0].startswith("Not yet: ")
    assert "progress-damaged.json, and a new file begins" in lines[1]
    assert aside.read_text() == text
    assert read(file).exercises["01.1"].tries == 1
    file.write_text("again")
    progress()
    assert "progress-damaged-2.json" in capsys.readouterr().out


def test_a_file_of_version_1_goes_on(file, capsys):
    """It also has what is no longer recorded: a right answer to 01.2 led to the same with new numbers."""
    file.parent.mkdir()
    text = (DATA / "progress-1.json").read_text()
    file.write_text(text.replace('"Ann"', '"Anne"'))  # its checksum is not compared
    assert (tried("01.2").tries, [each.answer for each in tried("01.2").wrong]) == (3, ["9", "10"])
    assert progress().next == "01.2"
    assert said(capsys, "01.2", 11)[0].startswith("Right: ")
    assert progress().next == "01.3"
    content = json.loads(file.read_text())
    assert content["version"] == 2
    assert not {"checksum", "evidence"} & set(content)


def test_a_file_of_another_version_stays_as_it_is(file, capsys):
    check("01.1", 500)
    content = json.loads(file.read_text()) | {"version": 3}
    file.write_text(json.dumps(content))
    before = file.read_text()
    store.forget()
    lines = said(capsys, "01.1", 6000)
    assert lines[0].startswith("Not yet: ")
    assert f"of version 3, of batchsim {_compat.__version__}, and" in lines[1]
    assert len(said(capsys, "01.1", 7)) == 2, "the hints go on"
    assert file.read_text() == before
    assert "of version 3" in repr(progress())


@pytest.mark.parametrize("where", ["folder", "file"])
def test_where_nothing_can_be_written_exercises_go_on(tmp_path, monkeypatch, capsys, where):
    (tmp_path / "file").write_text("")
    (tmp_path / "folder").mkdir()
    # Below a file is nothing, and a folder is no file: also for root, who may write what is read-only.
    path = tmp_path / "file" / "progress.json" if where == "file" else tmp_path / "folder"
    monkeypatch.setenv("BATCHSIM_PROGRESS", str(path))
    lines = said(capsys, "01.1", 500)
    assert lines[0].startswith("Not yet: ")
    assert lines[1].startswith(f"Not kept in {path} (")
    assert len(said(capsys, "01.1", 6000)) == 2
    assert tried().tries == 2
    assert "Not kept: " in repr(progress())


def test_a_student_may_name_a_file(tmp_path):
    assert progress(name="Bob", file=tmp_path / "bob.json").student == "Bob"
    check("01.1", RIGHT)
    assert read(tmp_path / "bob.json").exercises["01.1"].solved_at
    (tmp_path / "x.json").write_text("{}")
    with pytest.raises(
        ValueError, match=r"x\.json is not a progress file: it lacks format, version, student, "
    ):
        progress(file=tmp_path / "x.json")


# Who it is.


def test_another_students_progress_is_refused_with_whose_it_is(file):
    progress(name="Ann")
    assert progress(name=" Ann ").student == "Ann"
    with pytest.raises(ValueError, match=r"this is Ann's progress \(.*progress.json\), got name='Bob'"):
        progress(name="Bob")
    assert progress().student == "Ann"


def test_a_name_may_be_corrected_and_a_course_begun_anew(file):
    progress(name="Ann")
    check("01.1", RIGHT)
    key = store.load().key
    assert progress().rename("Anne").next == "01.2"
    bobs = progress().start_over("Bob")
    assert (bobs.student, bobs.next) == ("Bob", "01.1")
    assert store.load().key != key
    assert read(file.with_name("progress-Anne.json")).exercises["01.1"].solved_at


def test_a_name_may_have_sixty_letters_without_the_spaces_around_it():
    assert progress(name=f" {'x' * 60} ").student == "x" * 60


@pytest.mark.parametrize("name", ["", " ", "a\nb", "x" * 61, "\x1b[31m"])
def test_what_is_no_name_is_refused(name):
    with pytest.raises(ValueError, match="name must be 1 to 60 letters on one line, got"):
        progress(name=name)


def test_a_name_that_is_no_text_is_refused():
    with pytest.raises(TypeError, match="name must be a student's name, got 7"):
        progress(name=7)


def test_an_export_is_the_progress_and_replaces_its_own_older_one_alone(file, tmp_path):
    with pytest.raises(ValueError, match=r'progress\(name="Ann"\)'):
        progress().export(tmp_path / "ann.json")
    mine = progress(name="Ann")
    path = mine.export(tmp_path / "ann.json")
    assert read(path) == store.load()
    check("01.1", RIGHT)
    assert read(mine.export(path)).exercises["01.1"].solved_at, "what was done since is in it"
    write(tmp_path / "bob.json", Record("Bob"))
    with pytest.raises(ValueError, match=r"bob.json is Bob's progress, not Ann's"):
        mine.export(tmp_path / "bob.json")
    (tmp_path / "notes.json").write_text("{}")
    with pytest.raises(ValueError, match=r"notes.json is not a progress file"):
        mine.export(tmp_path / "notes.json")


# What is shown.


def test_the_table_says_what_is_done_and_what_is_next(file):
    progress(name="Ann <3")
    check("01.1", RIGHT)
    check("01.2", 10)
    committed("Yes")
    committed("No", key="99.a")
    lines = repr(progress()).splitlines()
    assert lines[0] == "Ann <3's progress"
    (row,) = [line for line in lines if line.strip().startswith("01-why-batch")]
    cells = re.split(r"\s{2,}", row.strip())
    assert cells[1:] == ["1 of 1 right", "1 of 4", "1 solved (1 try); 2 not solved yet (1 try)"]
    assert [line.split()[0] for line in lines if "0 of 1 right" in line] == ["99"]
    assert "Next: exercise 01.2." in lines
    shown = progress()._repr_html_()
    assert "Ann &lt;3&#x27;s progress" in shown
    assert "<td" in shown
    assert "<3" not in shown


def test_when_all_is_solved_nothing_is_next():
    for name in EXERCISES:
        store.change(
            lambda record, name=name: record.exercises.setdefault(name, Tried(tries=1, solved_at="now"))
        )
    assert progress().next == ""
    assert "Every exercise is solved." in repr(progress())


def test_every_lesson_of_the_table_is_a_notebook():
    from lesson_cells import LESSONS

    assert {row.lesson for row in progress().rows()} <= {path.stem for path in LESSONS}
