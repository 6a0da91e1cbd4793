"""Predictions and self-grading exercises, without a kernel or a browser."""

import math
import re
from types import SimpleNamespace

import matplotlib
import nbformat
import numpy as np
import pandas
import pytest
from answers import said
from matplotlib import pyplot as plt
from places import ROOT
from refusals import refusals

import batchsim as bs
from batchsim.teaching import EXERCISES, SERVICE, check, output_capture, predict
from batchsim.teaching.exercises import does_it_tell_the_truth as truth
from batchsim.teaching.exercises import same_knobs_different_servers as same
from batchsim.teaching.exercises import tune_to_an_objective as tuned
from batchsim.teaching.exercises.exercise import Number
from batchsim.teaching.output_capture import PRE

matplotlib.use("agg")

pytestmark = pytest.mark.usefixtures("right_once")
NUMBERS = [name for name, exercise in EXERCISES.items() if isinstance(exercise, Number)]


class Unsaid:
    """An answer of a student's own class."""

    def __repr__(self):
        raise RuntimeError("no text")


SOONER = "Which answers sooner?", ["One at a time", "In batches", "Both <alike>"], "One at a time", "No wait."


@pytest.fixture
def asked():
    return predict(*SOONER)


def test_nothing_is_chosen_for_the_learner_and_committing_asks_for_a_choice(asked):
    assert asked.choice.value is None
    assert asked.verdict.value == ""
    asked.commit.click()
    assert asked.verdict.value == "Choose an answer first, then commit."
    assert not asked.commit.disabled


@pytest.mark.parametrize(
    ("choice", "verdict"),
    [
        ("One at a time", "✓ Right. No wait."),
        ("In batches", "✗ Not this time.<br>The right answer is “One at a time”. No wait."),
    ],
)
def test_a_verdict_says_what_is_right_and_why_and_is_final(asked, choice, verdict):
    asked.choice.value = choice
    assert asked.verdict.value == ""
    asked.commit.click()
    assert asked.verdict.value == verdict
    assert asked.choice.disabled
    assert asked.commit.disabled


def test_what_is_shown_is_text_and_never_markup():
    asked = predict("Is p < q?", ["p < q", "p > q"], "p < q", "Since q > p & so on.")
    assert asked.children[0].value == "<b>Predict: Is p &lt; q?</b>"
    asked.choice.value = "p > q"
    asked.commit.click()
    assert (
        asked.verdict.value
        == "✗ Not this time.<br>The right answer is “p &lt; q”. Since q &gt; p &amp; so on."
    )


def test_a_prediction_prints_the_same_each_time_and_shows_the_choice(asked):
    unanswered = "Predict: Which answers sooner?\n  ( ) One at a time\n  ( ) In batches\n  ( ) Both <alike>"
    assert repr(asked) == repr(predict(*SOONER)) == unanswered
    asked.choice.value = "In batches"
    assert repr(asked) == unanswered.replace("( ) In", "(x) In")


def test_a_page_shows_the_whole_question_and_no_output_widget(asked):
    assert asked._repr_mimebundle_()["text/plain"] == repr(asked)
    kinds = [type(child).__name__ for child in asked.children]
    assert kinds == ["HTML", "RadioButtons", "Button", "Verdict", "VBox"]


def test_a_wrong_choice_says_why_it_is_wrong():
    asked = predict("?", {"Yes": "", "No": "Since 1 < 2."}, "Yes", "It is.")
    asked.choice.value = "No"
    asked.commit.click()
    assert asked.verdict.value == "✗ Not this time. Since 1 &lt; 2.<br>The right answer is “Yes”. It is."


def outcome_of(then, choice="Yes"):
    asked = predict("?", ["Yes", "No"], "Yes", "", then)
    assert asked.outcome.children == ()
    asked.commit.click()
    assert asked.outcome.children == (), "nothing is chosen yet"
    asked.choice.value = choice
    asked.commit.click()
    return [child.value for child in asked.outcome.children]


@pytest.mark.parametrize("choice", ["Yes", "No"])
def test_the_outcome_is_shown_when_the_learner_commits_and_not_before(choice):
    assert outcome_of(lambda: print("p99 < 30 ms"), choice) == [f"{PRE}p99 &lt; 30 ms\n</pre>"]


def test_an_outcome_may_be_a_picture_and_a_table():
    open_before = plt.get_fignums()

    def then():
        print("it rises")
        figure, ax = plt.subplots(figsize=(4, 3), dpi=50)
        ax.plot([1, 2])
        return figure, pandas.DataFrame({"p99": [3.5]})

    picture, numbers = outcome_of(then)
    assert numbers.startswith(f"<details><summary>Numbers</summary>{PRE}it rises\n</pre>")
    table = numbers.partition("</pre>")[2]
    assert picture.startswith('<img class="batchsim-still" src="data:image/png;base64,')
    assert 'alt="it rises" style="width: 200px; max-width: 100%">' in picture
    assert "<table" in table
    assert "3.5" in table
    assert plt.get_fignums() == open_before, "or the notebook shows the figure once more"


def test_a_table_of_an_outcome_keeps_a_number_and_its_unit_in_a_line():
    table = pandas.DataFrame({"throughput (per s)": [20]}, index=["batches, wait 10 ms"])
    (shown,) = outcome_of(lambda: table)
    assert "<th>throughput (per\N{NO-BREAK SPACE}s)</th>" in shown
    assert "<th>batches, wait 10\N{NO-BREAK SPACE}ms</th>" in shown


def test_an_outcome_that_fails_says_so():
    assert outcome_of(lambda: 1 / 0) == [
        f"{PRE}ZeroDivisionError: division by zero. Run the cells above, then this one again.</pre>"
    ]


@refusals
def test_a_prediction_that_makes_no_sense_is_refused():
    """
    predict("?", ["Yes", "No"], "Yes", "", 3) -> TypeError: then must be a function without arguments, got 3
    predict("?", ["Yes", "No"], "yes", "") -> got 'yes'; did you mean 'Yes'?
    predict("?", ["Yes"], "Yes", "") -> choices must be at least two, all different, got ['Yes']
    predict("?", ["Yes", "Yes"], "Yes", "") -> choices must be at least two, all different, got
    predict("?", [], "Yes", "") -> choices must be at least two, all different, got []
    """


@pytest.mark.parametrize("name", EXERCISES)
def test_an_exercise_left_open_says_so_and_names_the_unit(capsys, name):
    put = f"put your answer in place of the ...: {EXERCISES[name].asks}."
    assert said(capsys, name, ...) == f"Not answered yet: {EXERCISES[name].missing or put}\n"


@pytest.mark.parametrize("name", NUMBERS)
def test_what_is_right_is_right_and_explained(capsys, name):
    right = EXERCISES[name].right()
    assert said(capsys, name, right).startswith("Right: ")
    assert said(capsys, name, np.float64(right)) == said(capsys, name, right)


@pytest.mark.parametrize("name", NUMBERS)
@pytest.mark.parametrize("answer", [-1, 0, 1, 99, 2.5, 1e9])
def test_a_hint_never_tells(capsys, name, answer):
    right, told = EXERCISES[name].right(), said(capsys, name, answer)
    assert told.startswith("Not yet: ")
    digits = 0 if right >= 10 or right == round(right) else 2
    numbers = re.findall(r"\d[\d,]*(?:\.\d+)?", told.replace("100, 200, 300, 400", ""))
    assert round(right, digits) not in [round(float(each.replace(",", "")), digits) for each in numbers]


@pytest.mark.parametrize(
    "answer",
    [
        "500",
        "five",
        None,
        True,
        [500],
        math.nan,
        math.inf,
        10**400,
        check,
        pandas.DataFrame({"a": range(50)}),
        Unsaid(),
    ],
    ids=lambda answer: type(answer).__name__,
)
def test_what_is_no_number_is_explained_in_one_line(capsys, answer):
    told = said(capsys, "01.1", answer)
    assert told.startswith("Not yet: the answer must be ")
    assert told.endswith(" (requests per second).\n")
    assert len(told.splitlines()) == 1


@pytest.mark.parametrize(
    ("answer", "advice"),
    [
        ("3,288", "leave out the quotes"),
        ([3287, 3288], "got 2 values (list): take out one number"),
        (np.array([3287.67]), "got 1 value (ndarray): take out the number"),
        (pandas.DataFrame({"per s": [3287.67]}), "got 1 value (DataFrame): take out the number"),
        (check, "call it"),
    ],
    ids=lambda each: type(each).__name__,
)
def test_what_is_nearly_a_number_is_told_how_to_make_it_one(capsys, answer, advice):
    assert advice in said(capsys, "01.1", answer)
    assert advice in said(capsys, "10.3", answer)


def test_feedback_in_a_notebook_brings_the_style_that_breaks_no_word_on_a_phone(monkeypatch, capsys):
    published = []
    shell = SimpleNamespace(display_pub=SimpleNamespace(publish=published.append))
    monkeypatch.setattr(output_capture, "notebook", lambda: shell)
    assert said(capsys, "01.1", 5).startswith("Not yet")
    ((kind, style),) = published[0].items()
    assert (kind, len(published)) == ("text/html", 1)
    assert ".jp-OutputArea-output pre { word-break: normal" in style


@pytest.mark.parametrize(
    ("name", "message"), [("01.11", r"got '01\.11'; did you mean '01\.1'"), (7, r"got 7; known: 01\.1, ")]
)
def test_an_unknown_exercise_is_refused_with_the_nearest_or_all(name, message):
    with pytest.raises(ValueError, match=message):
        check(name, 1)


def test_a_rounded_saturation_rate_counts_and_a_different_one_does_not(capsys):
    right = 12 / 3.65e-3
    assert said(capsys, "01.1", round(right, -1)).startswith("Right")
    assert said(capsys, "01.1", right * 1.02).startswith("Not yet")


def test_a_request_waits_as_long_as_it_computes_at_two_thirds_of_the_capacity():
    # rho / (2 (1 - rho)) = 1
    assert EXERCISES["06.1"].right() == pytest.approx(2 / 3 / SERVICE(1), rel=1e-9)


def test_the_interval_of_the_lesson_is_as_wide_as_the_means_of_runs_are_spread():
    asked = EXERCISES["06.2"]
    scenario = bs.Scenario(bs.Poisson(400), bs.SizeOrWait(1, 0), SERVICE)
    means_ms = [bs.simulate(scenario, asked.requests, seed=seed).mean_latency_ms for seed in range(300)]
    assert 1.96 * np.std(means_ms) / np.mean(means_ms) == pytest.approx(asked.half_width, abs=0.005)


def first_cell(name):
    path = ROOT / "notebooks" / "solutions" / f"{name}.ipynb"
    notebook = nbformat.read(path, as_version=4)
    namespace = {}
    exec(next(cell.source for cell in notebook.cells if cell.cell_type == "code"), namespace)
    return namespace


LESSONS = {
    "07-tune-to-an-objective": (tuned, {"PROMISED_MS": "PROMISED_MS", "SEED": "SEED"}),
    "08-does-it-tell-the-truth": (
        truth, {name: name for name in ("SERVICE", "SLOWER", "OWN_MS", "RULE", "RATE_PER_S", "SEED")},
    ),
    "09-same-knobs-different-servers": (same, {"SERVICE": "SERVICE", "B": "MAX_BATCH_SIZE", "SEED": "SEED"}),
}  # fmt: skip


@pytest.mark.parametrize("name", LESSONS)
def test_the_exercises_of_a_lesson_ask_about_its_server_and_its_constants(monkeypatch, name):
    monkeypatch.setenv("MPLBACKEND", "agg")
    lesson, (module, constants) = first_cell(name), LESSONS[name]
    assert {ours: lesson[its] for its, ours in constants.items()} == {
        ours: getattr(module, ours) for ours in constants.values()
    }
    if "TODAY" in lesson:
        assert lesson["TODAY"].service == module.SERVICE
        assert lesson["TODAY"].workload == bs.Poisson(module.RATE_PER_S)


def test_what_a_replay_found_slows_a_server_down_that_still_keeps_up():
    scenario = bs.Scenario(bs.Poisson(truth.RATE_PER_S), truth.RULE, truth.as_it_ran())
    assert EXERCISES["08.1"].right() == pytest.approx(scenario.saturation_per_s)
    assert scenario.load < 0.9


def test_the_least_wait_is_where_a_run_begins_to_keep_up():
    asked = EXERCISES["09.2"]
    for times, keeps_up in ((0.97, False), (1.03, True)):
        rule = bs.servers.ray_serve(same.MAX_BATCH_SIZE, times * asked.right() / 1000)
        result = bs.simulate(bs.Scenario(bs.Poisson(asked.rate_per_s), rule, same.SERVICE), 200_000)
        first, second = np.split(result.latency_ms, 2)
        assert (second.mean() < 2 * first.mean()) == keeps_up == (asked.load(times * asked.right()) < 1)


def test_what_ray_serve_carries_by_default_is_what_a_run_of_more_shows():
    asked = EXERCISES["09.3"]
    config = bs.servers.config("ray_serve")
    assert (config.rule.max_batch_size, config.rule.max_ongoing) == (asked.max_batch_size, asked.ongoing)
    assert config.rule.max_wait_ms == asked.wait_ms
    result = bs.simulate(config.scenario(bs.Poisson(3000), same.SERVICE), 20_000)
    assert result.throughput_per_s == pytest.approx(asked.right(), rel=0.01)
